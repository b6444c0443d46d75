# SPDX-License-Identifier: GPL-3.0-or-later
"""Are these the files that the run wrote? Compares raw/ with the digests in manifest.json."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def differences(run_dir: Path, digests: Mapping[str, str]) -> list[str]:
    """Name every file below raw/ that is changed, missing or foreign; [] when all is as the manifest says.

    `digests` is the manifest's `files`: SHA-256 in hex by path relative to the run folder.
    """
    present = {
        path.relative_to(run_dir).as_posix(): path
        for path in sorted((run_dir / "raw").rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }
    found = [f"{name}: missing" for name in sorted(digests.keys() - present.keys())]
    for name, path in present.items():
        if name not in digests:
            found.append(f"{name}: foreign, manifest.json does not know it")
        elif path.is_symlink() or not path.is_file():
            found.append(f"{name}: is no plain file")
        elif _sha256(path) != digests[name]:
            found.append(f"{name}: changed, its SHA-256 is not the one in manifest.json")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
