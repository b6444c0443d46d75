# SPDX-License-Identifier: GPL-3.0-or-later
"""Temporary folders that jobs and programs under test write below: root's own, removed whatever they hold."""

import logging
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satlab.common.errors import HostError

REMOVE_S = 20.0
"""How long a removal may take, s; less than the API waits for its root helper."""
_LOG = logging.getLogger("satlab.scratch")


def remove(path: Path, within_s: float = REMOVE_S) -> None:
    """Remove a file, or a folder and all in it, however deep. Links are not followed, other file systems not entered.

    Raises:
        HostError: something is left after `within_s`, or cannot be removed.
    """
    argv = ["rm", "-rf", "--one-file-system", "--", str(path)]  # shutil.rmtree is recursive: 1000 folders deep it fails
    hint = f"look at what is in it, then: rm -rf {path}"
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{path}: is not removed after {within_s:g} s", hint) from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").partition("\n")[0]
        raise HostError(f"{path}: {reason[-200:]}", hint)


def try_remove(path: Path) -> None:
    """Remove as `remove` does; what cannot be removed stays and is logged."""
    try:
        remove(path)
    except HostError as error:
        _LOG.warning("%s", error)


@contextmanager
def folder(prefix: str, mode: int = 0o700) -> Iterator[Path]:
    """Make a temporary folder of root's own for as long as the block lasts."""
    path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    path.chmod(mode)
    try:
        yield path
    finally:
        try_remove(path)
