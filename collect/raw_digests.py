# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests of a run's raw files, and their comparison with those in manifest.json."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collect.raw import LINES_BYTES, RefusedError, check_plain, open_folder, open_plain

MOST_DEEP = 8
"""Largest depth of folders below raw/ whose files have digests. A run's own files need two.
"""


@dataclass(frozen=True)
class Entry:
    """An entry below raw/ that is not a folder: its path relative to the run folder, and why it has
    no digest ("" if it has one).
    """

    name: str
    fault: str


def digests(run_dir: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the SHA-256 (hex) of the files below raw/, by path relative to the run folder, and the
    reasons why other files have none.

    Jobs write there. A file has no digest if it is larger than `LINES_BYTES`, deeper than
    `MOST_DEEP`, not a plain file, or has a name that is not UTF-8.
    """
    hashed: dict[str, str] = {}
    faults: dict[str, str] = {}
    for entry in _entries(run_dir):
        digest, reason = ("", entry.fault) if entry.fault else _sha256(run_dir, entry.name)
        if reason:
            faults[entry.name] = reason
        else:
            hashed[entry.name] = digest
    return hashed, faults


def differences(run_dir: Path, expected: Mapping[str, str]) -> list[str]:
    """Name every file below raw/ that is changed, missing, foreign or without a digest; [] if there
    is none.

    `expected` is the manifest's `files`.
    """
    present = {entry.name: entry.fault for entry in _entries(run_dir)}
    lines = [f"{name}: missing" for name in sorted(expected.keys() - present.keys())]
    for name, fault in present.items():
        digest, reason = _sha256(run_dir, name) if name in expected and not fault else ("", fault)
        if reason:
            lines.append(f"{name}: {reason}")
        elif name not in expected:
            lines.append(f"{name}: foreign, manifest.json does not know it")
        elif digest != expected[name]:
            lines.append(f"{name}: changed, its SHA-256 is not the one in manifest.json")
    return lines


def _entries(run_dir: Path) -> Iterator[Entry]:
    """Yield every entry below raw/ that is not a folder, in the order of paths."""
    faults: dict[tuple[str, ...], str] = {}
    folders: list[tuple[str, ...]] = [("raw",)]
    while folders:
        parts = folders.pop()
        try:
            if len(parts) - 1 > MOST_DEEP:
                raise RefusedError(f"lies more than {MOST_DEEP} folders deep")
            handle = open_folder(run_dir / parts[0], parts[1:])
            try:
                with os.scandir(handle) as found:
                    for each in found:
                        fault = _fault(each)
                        if not fault and each.is_dir(follow_symlinks=False):
                            folders.append((*parts, each.name))
                        else:
                            faults[*parts, each.name] = fault
            finally:
                os.close(handle)
        except FileNotFoundError:  # there is no raw/
            continue
        except (OSError, RefusedError) as error:
            faults[parts] = _reason(error)
    for path, fault in sorted(faults.items()):
        yield Entry(os.fsencode("/".join(path)).decode(errors="replace"), fault)


def _fault(entry: os.DirEntry[str]) -> str:
    """Return why a file has no digest; "" if it may have one, and for a folder."""
    try:
        entry.name.encode()
        if entry.is_dir(follow_symlinks=False):
            return ""
        check_plain(entry.stat(follow_symlinks=False), LINES_BYTES)
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except (OSError, RefusedError) as error:
        return _reason(error)
    return ""


def _reason(error: OSError | RefusedError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _sha256(run_dir: Path, name: str) -> tuple[str, str]:
    """Return a file's digest, or "" and the reason."""
    root, _, below = name.partition("/")
    try:
        with open_plain(run_dir / root, below, LINES_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), ""
    except (OSError, RefusedError) as error:
        return "", _reason(error)
