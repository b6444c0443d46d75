# SPDX-License-Identifier: GPL-3.0-or-later
"""Privileges of jobs and of the API: a separate user, no way to more rights, and the capabilities
below.

A job's capabilities count only in its lab's user namespace (`sandbox`). `drop_argv` starts the API,
which has no capabilities.
"""

import os
import secrets
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from satlab.common import paths
from satlab.common.errors import HostError
from satlab.lab import mount_namespace

CAPABILITIES: dict[str, tuple[str, ...]] = {
    "satlab_capture": ("net_raw",),
    "satlab_fec": ("net_admin",),  # TUN device, routes, mark
    "satlab_ip_route": ("net_admin",),  # routes
    "satlab_iperf3": (
        "net_admin",
    ),  # congestion control other than what the host lets everybody use
    "satlab_packet_filter": ("net_admin",),  # packet filter
    "satlab_pep": (
        "net_admin",
        "net_bind_service",
        "net_raw",
    ),  # packet filter, routes, transparent sockets
    "satlab_ping": ("net_raw",),
    "satlab_rate": ("net_admin",),  # packet filter
    "satlab_satperf": ("net_admin",),  # as satlab_iperf3
    "satlab_set_tos": ("net_admin",),  # packet filter
    "satlab_shape": ("net_admin",),  # queueing discipline
    "satlab_tcp_conf": ("net_admin",),  # routes and the namespace's sysctls
    "satlab_vpn": ("net_admin",),  # TUN or WireGuard device, addresses
    "satlab_web_server": ("net_bind_service",),
}
"""Capabilities of a job's processes (capabilities(7), without CAP_); a job that is not listed has
none.
"""
SHIPPED = frozenset(path.name for path in paths.JOBS.glob("satlab_*"))
"""Shipped jobs with privileges; an operator grants privileges to other jobs (`privileges_file`)."""
LINK_CONTROLLERS = ("satlab_link",)
"""Jobs that see the control socket of the lab's link."""
TUNNELS = ("satlab_fec", "satlab_vpn")
"""Shipped jobs that see the TUN device. They can make interfaces only in their node: CAP_NET_ADMIN
counts nowhere else.
"""
TUN = "tun"
"""What lets another job see the TUN device, in the operator's file."""

FIRST_UID, UIDS = 1_900_000_000, 1 << 16
"""Users of runs. From here to 2147483647 systemd's table of uids (uids-gids.md) names no user."""
API_UID = FIRST_UID + UIDS
"""User of the API process: the same at every start, since the API's files stay."""


def new_uid() -> int:
    """Return a user id for one run that no process on this host has at the moment."""
    taken = set()
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            taken.add(entry.stat().st_uid)
    while (uid := FIRST_UID + secrets.randbelow(UIDS)) in taken:
        continue
    return uid


def code_paths() -> list[Path]:
    """Return the parts of the tree that a sandboxed program needs: code, jobs and data, without
    results and history.
    """
    package = Path(paths.PYTHONPATH.partition(":")[0])
    parts = (
        "collect",
        "openbach-scenarios",
        "opensand-profiles",
        "schemas",
        "tests",
        "vagrant",
        "web-targets",
    )
    return [
        package,
        *(paths.ROOT / part for part in parts),
        paths.DASHJS,
        paths.PICOQUIC.parent,
        *program_paths()[1:],
    ]


def program_paths() -> list[Path]:
    """Return the paths that our programs read: the tree, the interpreter, its packages."""
    return [paths.ROOT, *(Path(each).resolve() for each in (sys.prefix, sys.base_prefix))]


def drop_argv(uid: int, visible: Iterable[Path], *more: str) -> list[str]:
    """Return the argv prefix that runs a command as a user without privileges; every part of it
    `exec`s the next.

    `visible`: paths that the command reads or writes even where they lie in a folder that is closed
    to other users. `more`: further options of setpriv(1).
    """
    return [
        *mount_namespace.ARGV,
        "expose",
        *map(str, visible),
        "--",
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        *more,
        "--",
    ]


def chown(path: Path, uid: int) -> None:
    """Make a user the owner of one file or folder, without its content.

    No job may be able to replace the file or folder meanwhile.

    Raises:
        HostError: the path is a link, or users other than ours can write to its parent folder.
        OSError: the path does not exist.
    """
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        above = os.fstat(place)
        is_shared = bool(above.st_mode & stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
        if is_shared or FIRST_UID <= above.st_uid <= API_UID:
            raise HostError(
                f"{path}: jobs can write in the folder that it lies in", f"chmod o-w {path.parent}"
            )
        handle = os.open(path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
    try:
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            raise HostError(f"{path}: is a link", "remove it")
        os.chown(f"/proc/self/fd/{handle}", uid, uid)
    finally:
        os.close(handle)


def chown_tree(path: Path, uid: int) -> None:
    """Make a user the owner of a folder that this program has just made, and of its content. The
    folder itself is changed last.

    Raises as `chown`, before anything is changed, if jobs can write to the folder.
    """
    for each in sorted((path, *path.rglob("*")), reverse=True):
        chown(each, uid)
