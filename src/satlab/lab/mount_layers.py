# SPDX-License-Identifier: GPL-3.0-or-later
"""`mount_layers.py [@ TARGET LOWER...]... -- COMMAND...`: run a command that sees folders stacked
on each other.

TARGET shows the folders LOWER, the uppermost first, read-only (overlayfs without an upper folder).
The mounts are made in a new mount namespace and end with the command. The program needs root and
uses only the standard library, so that it starts fast. It ends by exec of the command.
"""

import ctypes
import os
import sys
from collections.abc import Sequence

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x1, 0x2, 0x4, 0x4000, 0x40000
"""<linux/sched.h>, <linux/mount.h>."""
GROUP = "@"

_LIBC = ctypes.CDLL(None, use_errno=True)


def groups(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the targets with their layers."""
    found: list[tuple[str, list[str]]] = []
    for position, word in enumerate(words):
        if position and words[position - 1] == GROUP:
            found.append((word, []))
        elif word != GROUP:
            found[-1][1].append(word)
    return found


def stack(stacks: Sequence[tuple[str, list[str]]]) -> None:
    """Mount the layers in a new mount namespace of this process. Raises OSError."""
    _check(_LIBC.unshare(CLONE_NEWNS), "unshare")
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    for target, layers in stacks:
        _mount(
            "overlay",
            target,
            "overlay",
            MS_RDONLY | MS_NOSUID | MS_NODEV,
            f"lowerdir={':'.join(layers)}",
        )


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode())
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Mount the layers, then exec the command. On failure, exit with status 3 and a line for the
    job's log.
    """
    cut = sys.argv.index("--")
    try:
        stack(groups(sys.argv[1:cut]))
        os.execvp(sys.argv[cut + 1], sys.argv[cut + 1 :])  # noqa: S606 - an argument vector
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
