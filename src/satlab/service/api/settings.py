# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the API process, and the plan that the root process passes to it."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes, times in s.

    `hosts`: accepted values of the header Host, in lower case, with the port where it is not the
    scheme's default. `allowed`: further ones, by which a proxy before the service is called; its
    origins are http or https. `secure`: clients use TLS, so cookies are marked Secure and origins
    are https. `further_jobs`: the operator's folder of jobs next to the shipped and uploaded ones.
    `other_runs`: folder of the command line's runs, which are shown. `most_queued`: largest number
    of scenario instances that wait. `most_runs`: number of run folders that are kept; the oldest
    are removed first. `launch_bytes`: largest request of a launch, with the documents of all its
    scenarios. `body_bytes`, `body_s`: largest body of a request, and the time to send it. Without a
    session: `stranger_bytes`, and `stranger_s` with a further second for each `stranger_rate` bytes
    that have come. `archive_bytes`: largest total of the stored files in one archive.
    `metrics_token_sha256`: digest of the token that opens `/metrics`.
    """

    state: Path
    hosts: frozenset[str]
    secure: bool = False
    allowed: frozenset[str] = frozenset()
    further_jobs: Path | None = None
    other_runs: Path | None = None
    session_s: float = 12 * 3600
    most_queued: int = 250
    most_runs: int = 500
    body_bytes: int = 1 << 20
    body_s: float = 60.0
    stranger_bytes: int = 16 << 10
    stranger_s: float = 5.0
    stranger_rate: float = 4096.0
    upload_bytes: int = 8 << 20
    launch_bytes: int = 2 << 20
    archive_bytes: int = 1 << 30
    metrics_token_sha256: str | None = None

    @property
    def runs(self) -> Path:
        """Folder of the run folders; the root helper writes it, the API reads it."""
        return self.state / "runs"

    @property
    def logs(self) -> Path:
        """Folder with the stderr of the runners of instances, RUN-ID.log. The root helper writes
        the files.
        """
        return self.state / "logs"

    @property
    def database(self) -> Path:
        """The SQLite file; only the API uses it."""
        return self.state / "api" / "satlab.sqlite"

    @property
    def jobs(self) -> Path:
        """Folder of uploaded jobs; only the API writes it."""
        return self.state / "api" / "jobs"


class ApiPlan(BaseModel):
    """What the root process passes to the API process.

    `helper`: socket of the root helper; `listener`, `certificate`, `key`: file descriptors; with
    the last two it uses TLS.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    settings: Settings
    helper: Path
    listener: int
    certificate: int | None = None
    key: int | None = None
