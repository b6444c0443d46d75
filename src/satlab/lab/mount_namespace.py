# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command in a mount namespace of its own, which shows it other files than the host's.

`mount_namespace.py expose PATH... -- COMMAND...`: paths in folders that are closed to others become
reachable. A process without root's rights cannot enter, for example, a clone below a home folder of
mode 0700, an interpreter below /root, or a run folder below a private scratch folder. Each closed
folder above a path is covered by an empty folder, which shows only the path.

`mount_namespace.py stack [UID:]TARGET:LOWER[:LOWER]... -- COMMAND...`: the folder TARGET shows the
folders LOWER, the uppermost first (overlayfs): read-only or, with UID, with an upper folder in
memory, in which this user may write to each folder that everybody may read.

The program needs root and uses only the standard library, so that it starts fast. It ends by exec
of the command.
"""

import ctypes
import os
import sys
from collections.abc import Iterator

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x2, 0x4, 0x1000, 0x4000, 0x40000
"""<linux/sched.h>, <linux/mount.h>."""
ARGV = (sys.executable, "-I", "-S", __file__)
"""How this program is started; a verb follows."""

UPPER_BYTES, UPPER_FILES, DEPTH = 16 << 20, 4096, 3
"""Size of an upper folder; how deep its user may write in it."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def closed_folders(path: str) -> Iterator[str]:
    """Yield the folders above a path that other users may not enter, the outermost first."""
    folder = "/"
    for name in path.strip("/").split("/"):
        if not os.stat(folder).st_mode & 0o001:  # noqa: PTH116 - pathlib costs half of the start
            yield folder
        folder = os.path.join(folder, name)  # noqa: PTH118


def expose(paths: list[str]) -> None:
    """Make the paths reachable for every user."""
    behind = {
        path: closed[0]
        for path in sorted(map(os.path.realpath, paths))
        if (closed := [*closed_folders(path)])
    }
    if not behind:
        return
    _unshare()
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


def stack(stacks: list[str]) -> None:
    """Mount folders on each other; each word is `[UID:]TARGET:LOWER[:LOWER]...`."""
    _unshare()
    for word in stacks:
        owner, _, stacked = ("", "", word) if word.startswith("/") else word.partition(":")
        target, _, layers = stacked.partition(":")
        flags, data = MS_NOSUID | MS_NODEV, f"lowerdir={layers}"
        if owner:
            size = f"mode=0755,size={UPPER_BYTES},nr_inodes={UPPER_FILES}"
            _mount("tmpfs", target, "tmpfs", flags, size)
            upper, work = f"{target}/upper", f"{target}/work"
            os.mkdir(work)  # noqa: PTH102
            own_folders(layers.split(":"), upper, int(owner))
            data += f",upperdir={upper},workdir={work}"
        else:
            flags |= MS_RDONLY
        _mount("overlay", target, "overlay", flags, data)


def own_folders(layers: list[str], upper: str, owner: int, depth: int = DEPTH) -> None:
    """Make the folder `upper`, and in it each folder of the layers that everybody may read, down
    to a depth; a user owns them.
    """
    os.mkdir(upper)  # noqa: PTH102
    os.chown(upper, owner, owner)
    below: dict[str, list[str]] = {}
    for layer in layers if depth else ():
        with os.scandir(layer) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.stat().st_mode & 0o005 == 0o005:
                    below.setdefault(entry.name, []).append(entry.path)
    for name, own in below.items():
        own_folders(own, f"{upper}/{name}", owner, depth - 1)


def _unshare() -> None:
    """Enter a new mount namespace, whose mounts the host does not see."""
    _check(_LIBC.unshare(CLONE_NEWNS), "unshare")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else os.fsencode(data))
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Mount, then exec the command. On failure, exit with status 3 and a line for the job's log."""
    cut = sys.argv.index("--")
    verb, words, command = sys.argv[1], sys.argv[2:cut], sys.argv[cut + 1 :]
    try:
        if verb == "expose":
            os.umask(0o022)
            expose(words)
        else:
            stack(words)
        os.execvp(command[0], command)  # noqa: S606 - an argument vector
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
