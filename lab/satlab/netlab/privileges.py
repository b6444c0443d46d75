# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs and the API may do: a user of their own, no way to more, and the capabilities that stand here, no others.

A capability of a job counts inside its node's network namespace: with it a job can do nothing to the host's network.
"""

import os
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from satlab.common import paths

CAPABILITIES: dict[str, tuple[str, ...]] = {
    "satlab_capture": ("net_raw",),
    "satlab_iperf3": ("net_admin",),  # congestion control other than what the host lets everybody use
    "satlab_pep": ("net_admin", "net_bind_service", "net_raw"),  # packet filter, routes, transparent sockets
    "satlab_ping": ("net_raw",),
    "satlab_satperf": ("net_admin",),  # as satlab_iperf3
    "satlab_tcp_conf": ("net_admin",),  # routes and the namespace's sysctls
    "satlab_web_server": ("net_bind_service",),
}
"""Capabilities of a job's processes (capabilities(7), without CAP_); a job that is not listed has none."""
LINK_CONTROLLERS = ("satlab_link",)
"""Jobs that see the control socket of the lab's link."""

_BOX = Path(__file__).with_name("expose_paths.py")
_FIRST_UID, _UIDS = 1_900_000_000, 1 << 16
"""Users of runs. From here to 2147483647 systemd's table of uids (uids-gids.md) names no user."""
API_UID = _FIRST_UID + _UIDS
"""User of the API process: the same at every start, since its files stay."""


def new_uid() -> int:
    """Return a user for one run, which nobody else on this host is at the moment."""
    taken = set()
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            taken.add(entry.stat().st_uid)
    while (uid := _FIRST_UID + secrets.randbelow(_UIDS)) in taken:
        continue
    return uid


def program_paths() -> list[Path]:
    """Return what a program of ours needs to read: the tree, the interpreter, its packages."""
    return [paths.ROOT, *(Path(each).resolve() for each in (sys.prefix, sys.base_prefix))]


def drop_argv(
    uid: int, capabilities: Iterable[str], visible: Iterable[Path], *more: str, interpreter: str = sys.executable
) -> list[str]:
    """Return the argv prefix that runs a command as a user without privileges; every part of it `exec`s the next.

    `visible`: paths that the command reads or writes even where they lie in a folder that is closed to other users.
    `more`: further options of setpriv(1).
    """
    caps = ",".join(("-all", *(f"+{capability}" for capability in capabilities)))
    return [
        *(interpreter, "-I", "-S", str(_BOX), *map(str, visible), "--"),
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"),
        *(f"--bounding-set={caps}", f"--inh-caps={caps}", f"--ambient-caps={caps}", *more, "--"),
    ]


def give(path: Path, uid: int) -> None:
    """Let a user own a file, or a folder and all in it."""
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)
