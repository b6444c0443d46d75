# SPDX-License-Identifier: GPL-3.0-or-later
"""Temporary folders of root, below which jobs and programs under test write. They are removed
whatever they contain.

A sandboxed program writes to a tmpfs of limited size (`sized`), mounted in such a folder. So the
kernel limits the program's bytes and files, even files that it deleted but keeps open.
"""

import errno
import fcntl
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satlab.common.errors import HostError

REMOVE_S = 20.0
"""Longest removal, s: less than the API's wait for its root helper."""
PREFIX = "satlab-scratch-"
MOUNT_S = 20.0
_LOG = logging.getLogger("satlab.scratch")
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""A space, tab, line end or backslash in a path of mountinfo (proc_pid_mountinfo(5))."""


def remove(path: Path, within_s: float = REMOVE_S) -> None:
    """Remove a file, or a folder and all in it, however deep. Links are not followed.

    File systems that are mounted in it are detached, and not entered.

    Raises:
        HostError: a file cannot be removed, or some are left after `within_s`.
    """
    for mounted in _mounted_below(path):
        _mount("umount", "--lazy", "--", str(mounted))
    # shutil.rmtree is recursive: 1000 folders deep it fails
    argv = ["rm", "-rf", "--one-file-system", "--", str(path)]
    hint = f"look at what is in it, then: rm -rf {path}"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{path}: is not removed after {within_s:g} s", hint) from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").partition("\n")[0]
        raise HostError(f"{path}: {reason[-200:]}", hint)


def sized(folder: Path, size_bytes: int, files: int) -> None:
    """Mount an empty tmpfs on `folder` (empty, and ours); sandboxed programs may write to it.

    Its size is `size_bytes`, but at most half of the host's memory; it holds at most `files` files
    and folders. A program's files there count as memory of its sandbox. `remove`, `folder` and
    `sweep` unmount it.

    Raises:
        HostError: it cannot be mounted.
    """
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    options = f"nosuid,nodev,mode=0755,size={min(size_bytes, half)},nr_inodes={files}"
    _mount("mount", "--types", "tmpfs", "--options", options, "satlab", str(folder))


def copy_out(folder: Path, target: Path) -> None:
    """Copy the files that programs have left in a folder, after they ended. Links stay links, holes
    stay holes. Anything that cannot be copied, such as folders nested too deeply, is left out and
    logged.

    Raises:
        OSError: the disk is full.
    """
    options = ["--archive", "--sparse=always", "--no-target-directory"]
    argv = ["cp", *options, "--", str(folder), str(target)]
    variables = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, env=variables, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        if said.rstrip().endswith(os.strerror(errno.ENOSPC)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        reason = said.partition("\n")[0]
        _LOG.warning("%s: not all is kept: %s", target, reason[-200:])


def _mount(*argv: str) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=MOUNT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{argv[0]} {argv[-1]}: not done after {MOUNT_S:g} s") from error
    if done.returncode:
        raise HostError(
            f"{argv[0]} {argv[-1]}: {done.stderr.decode(errors='replace').strip()[-200:]}"
        )


def _mounted_below(path: Path) -> list[Path]:
    """Return the mount points in a folder, including the folder itself, the last mounted first."""
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    known = (
        Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4])) for line in lines
    )
    real = path.parent.resolve() / path.name
    return [mounted for mounted in known if mounted.is_relative_to(real)][::-1]


def try_remove(path: Path) -> None:
    """Remove as `remove` does; log what cannot be removed."""
    try:
        remove(path)
    except HostError as error:
        _LOG.warning("%s", error)


@contextmanager
def folder(purpose: str, mode: int = 0o700) -> Iterator[Path]:
    """Make a temporary folder of root during the block. A lock shows `sweep` that it is in use."""
    path, lock = _locked(purpose)
    try:
        path.chmod(mode)
        yield path
    finally:
        try:
            try_remove(path)
        finally:
            os.close(lock)


def _locked(purpose: str) -> tuple[Path, int]:
    """Make and lock a folder; a sweep may remove one that is not locked yet."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-")).resolve()
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            os.close(lock)


def sweep() -> list[Path]:
    """Remove temporary folders whose programs were killed; return them.

    Those of other users stay.
    """
    left = []
    for path in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*")):
        with suppress(OSError):  # it is being removed, is a link, or is in use (locked)
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    try_remove(path)
                    left.append(path)
            finally:
                os.close(lock)
    return left
