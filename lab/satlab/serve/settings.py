# SPDX-License-Identifier: GPL-3.0-or-later
"""What `satlab serve` was told, checked."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Settings of the API process. Sizes in bytes, times in s.

    `hosts`: values of the header Host that are answered, in lower case, with the port where it is not the scheme's own.
    `secure`: the service is reached over TLS, so cookies are marked Secure and origins are https.
    `most_queued`: scenario instances that may wait for the machine. `most_runs`: run folders that are kept; the oldest
    go first.
    """

    state: Path
    hosts: frozenset[str]
    secure: bool = False
    session_s: float = 12 * 3600
    most_queued: int = 250
    most_runs: int = 500
    body_bytes: int = 1 << 20
    upload_bytes: int = 8 << 20

    @property
    def runs(self) -> Path:
        """Folder of the run folders; the root helper writes it, the API reads it."""
        return self.state / "runs"

    @property
    def database(self) -> Path:
        """The SQLite file; the API's own."""
        return self.state / "api" / "satlab.sqlite"

    @property
    def jobs(self) -> Path:
        """Folder of the jobs that were uploaded; the API's own."""
        return self.state / "api" / "jobs"
