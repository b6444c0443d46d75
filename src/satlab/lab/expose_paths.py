# SPDX-License-Identifier: GPL-3.0-or-later
"""`expose_paths.py PATH... -- COMMAND...`: run a command that sees only the given paths of folders
that are closed to others.

A process without root's rights cannot enter, for example, a clone below a home folder of mode 0700,
an interpreter below /root, or a run folder below a private scratch folder. This program makes a new
mount namespace. There it covers each closed folder above a path with an empty folder and shows only
the path in it.

It needs root and uses only the standard library, so that it starts fast. It ends by exec of the
command.
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
    """Yield the folders above a path that other users may not enter, the outermost first."""
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
        if not os.path.lexists(path):  # else an earlier path that lies above it has made it visible
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
    """Cover the folders, then exec the command. On failure, exit with status 3 and a line for the
    job's log.
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
