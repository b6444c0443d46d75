# SPDX-License-Identifier: GPL-3.0-or-later
"""`expose_paths.py PATH... -- COMMAND...`: run a command that sees only the given paths of folders
that are closed to others.

A clone below a home folder of mode 0700, an interpreter below /root, a run folder below a private
scratch folder: a process without root's rights cannot enter them, and need not see the rest of
them. In a mount namespace of its own, each closed folder on the way to a path is covered by an
empty one in which the path shows up again. A program of its own, and of the standard library alone,
so that it starts fast; needs root. The command replaces it.
"""

import ctypes
import os
import sys
from collections.abc import Iterator

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
"""<linux/sched.h>, <linux/mount.h>."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def closed_folders(path: str) -> Iterator[str]:
    """Yield the folders above a path that others may not enter, the outermost first."""
    folder = "/"
    for name in path.strip("/").split("/"):
        if not os.stat(folder).st_mode & 0o001:  # noqa: PTH116 - pathlib costs half of the start
            yield folder
        folder = os.path.join(folder, name)  # noqa: PTH118


def cover(paths: list[str]) -> None:
    """Make the paths reachable for every user, in a new mount namespace of this process."""
    behind = {
        path: closed[0]
        for path in sorted(map(os.path.realpath, paths))
        if (closed := [*closed_folders(path)])
    }
    if not behind:
        return
    _check(_LIBC.unshare(CLONE_NEWNS), "unshare")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    handles = {path: os.open(path, os.O_PATH) for path in behind}
    for folder in sorted(set(behind.values())):
        _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for path, handle in handles.items():
        if not os.path.lexists(path):  # else it lies below one that was made visible before
            _show(path, handle)


def _show(path: str, handle: int) -> None:
    folder = os.path.isdir(f"/proc/self/fd/{handle}")  # noqa: PTH112
    os.makedirs(path if folder else os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
    if not folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(f"/proc/self/fd/{handle}", path, None, MS_BIND | MS_REC)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode())
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Cover, then become the command; a failure ends with status 3 and a line that a job's log
    shows.
    """
    os.umask(0o022)
    cut = sys.argv.index("--")
    try:
        cover(sys.argv[1:cut])
        os.execvp(sys.argv[cut + 1], sys.argv[cut + 1 :])  # noqa: S606 - an argument vector
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
