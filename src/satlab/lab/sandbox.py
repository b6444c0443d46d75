# SPDX-License-Identifier: GPL-3.0-or-later
"""Sandboxes of jobs and programs under test: their files, rights and limits. satbox builds them
(crates/confine).
"""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from collect import EnforcedBy
from satlab.common import paths, plain_files
from satlab.common.errors import HostError
from satlab.lab import privileges

HOME = "/tmp"  # noqa: S108 - the sandbox's own
"""A program's working directory: a folder in memory that ends with the program."""
ENVIRONMENT = {"PATH": paths.STANDARD_PATH, "HOME": HOME, "LANG": "C.UTF-8"}
"""The only variables of satbox itself, and the defaults of a program's variables."""
CAPABILITY_NUMBERS = {"net_bind_service": 10, "net_admin": 12, "net_raw": 13}
"""Capabilities that may be granted (capabilities(7)). They count only in the lab's user namespace.
"""


@dataclass(frozen=True)
class Limits:
    """A program that exceeds one of these is ended. `seconds` None: no limit.

    After SIGTERM its descendants have `descendants_grace_s` to end, then the program has `grace_s`.
    """

    seconds: float | None = 600.0
    memory_bytes: int = 2 << 30
    processes: int = 256
    disk_bytes: int = 1 << 30
    files: int = 20_000
    open_files: int = 4096
    grace_s: float = 2.0
    descendants_grace_s: float = 0.0


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that is visible in a sandbox; by default at the same path.

    satbox opens `source` when it starts, and refuses a path that contains a symbolic link. So a
    user who may write to a folder on the path cannot make another file visible. Nothing resolves
    the path before.
    """

    source: Path
    target: str = ""
    writable: bool = False

    @classmethod
    def ours(cls, source: Path, *, writable: bool = False) -> "Mount":
        """Show a file or folder, with links followed. Only for paths that satlab or the host's
        administrator chose.
        """
        return cls(source.resolve(), str(source.absolute()), writable)

    def spec(self) -> dict[str, Any]:
        """Return the mount in satbox's form."""
        source = str(plain_files.named(self.source))
        return {"source": source, "target": self.target or source, "writable": self.writable}


@dataclass(frozen=True)
class Place:
    """The namespaces of a node.

    `network` None: no network. `user` None: they belong to the host's users.
    """

    network: Path | None = None
    user: Path | None = None

    def name(self) -> tuple[Mount, ...]:
        """Return the mount that shows a program the name of its network namespace: satpep refuses
        to run outside a lab.
        """
        return () if self.network is None else (Mount(self.network),)


@dataclass(frozen=True)
class Sandbox:
    """`base` is the root file system: the host's programs for `/`.

    No link on the way to it is followed.

    `hosts` None: the hosts file of `base`. `directory` is the working directory. The program has
    `variables` besides those of ENVIRONMENT, which they may replace.

    `held`: standard input is a socket. satbox sends a byte when it is ready to start the program,
    and starts it when it receives a byte. `packet_rings`: the program's packet sockets may have
    rings, as captures need; no limit counts that memory.
    """

    uid: int = field(default_factory=privileges.new_uid)
    place: Place = Place()
    mounts: tuple[Mount, ...] = ()
    base: Path = Path("/")
    name: str = "sandbox"
    hosts: str | None = None
    directory: str = HOME
    variables: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    held: bool = False
    packet_rings: bool = False
    limits: Limits = Limits()

    def spec(self, root: Path, report: Path | None) -> dict[str, Any]:
        """Return the sandbox in the form of `schemas/sandbox.schema.json`. Without a user namespace
        no capability is granted.
        """
        limits = vars(self.limits)
        return {
            "uid": self.uid,
            "capabilities": [
                CAPABILITY_NUMBERS[name] for name in self.capabilities if self.place.user
            ],
            "user_namespace": _text(self.place.user),
            "network": _text(self.place.network),
            "root": str(root.resolve()),
            "base": str(plain_files.named(self.base)),
            "mounts": [mount.spec() for mount in self.mounts],
            "name": self.name,
            "hosts": self.hosts,
            "directory": self.directory,
            "variables": {**ENVIRONMENT, **self.variables},
            "report": _text(report),
            "held": self.held,
            "packet_rings": self.packet_rings,
            "limits": limits,
        }

    def argv(self, spec: Path, root: Path, report: Path | None = None) -> list[str]:
        """Write the file `spec`, which only root can read, and return the argv prefix that runs a
        command.

        The caller must start it with the variables ENVIRONMENT and no others. `root` is an empty
        folder, the mount point of the sandbox's root; several sandboxes may share it. `report`: a
        new file, where satbox writes how the program ended.
        """
        spec.touch(mode=0o600)
        spec.write_text(json.dumps(self.spec(root, report)))
        return [str(paths.SATBOX), "run", str(spec.resolve()), "--"]


def variables_fault(variables: Mapping[str, str]) -> str:
    """Return why a program cannot have these variables; empty if it can. satbox has the same
    bounds.
    """
    wrong = next((name for name in variables if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        return f"{wrong[:80]!r} is not the name of a variable"
    sizes = [
        len(f"{name}{value}".encode(errors="surrogatepass")) for name, value in variables.items()
    ]
    if (
        len(sizes) > MOST_VARIABLES
        or sum(sizes) > MOST_VARIABLE_BYTES
        or max(sizes, default=0) > LONGEST_VARIABLE
    ):
        return (
            f"more than {MOST_VARIABLES} variables, {MOST_VARIABLE_BYTES >> 10} KiB of them,"
            f" or {LONGEST_VARIABLE >> 10} KiB of one"
        )
    return "a value has a NUL" if any("\0" in value for value in variables.values()) else ""


MOST_VARIABLES, MOST_VARIABLE_BYTES, LONGEST_VARIABLE = 900, 1000 << 10, 120 << 10
"""Limits of variables that users choose. Together with satlab's variables they stay below satbox's
limits and Linux's limit for one word (128 KiB).
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")


@dataclass(frozen=True)
class Usage:
    """How a program ended and what it used;

    `status` -N: signal N. `why`: the limit that ended it, or empty.

    `lasted_s`: from the program's start to its end. `waited_s`: time in which a thread was runnable
    but had no core, from samples of the threads' states.
    """

    status: int
    why: str
    lasted_s: float
    cpu_s: float
    peak_bytes: int
    waited_s: float


REPORT_BYTES = 64 << 10


def read_report(file: Path) -> Usage | None:
    """Read satbox's report; None if there is none, because the sandbox was killed."""
    text = plain_files.start_of(file.parent.resolve(), file.name, REPORT_BYTES)
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return Usage(**{each.name: found[each.name] for each in fields(Usage)})


ALLOW = "allow user namespaces: sysctl user.max_user_namespaces=10000"
"""Remedy for what `lacking` returns."""


def lacking(place: Place, capabilities: Iterable[str]) -> str:
    """Return why a program that needs capabilities cannot run in a place; empty if it can.

    Ports below 1024 are free in every lab (`netns`).
    """
    needed = [name for name in capabilities if name != "net_bind_service"]
    if place.user is not None or not needed:
        return ""
    words = " and ".join(f"CAP_{name.upper()}" for name in needed)
    return (
        f"it needs {words}, which would count on the whole host: this kernel allows no user"
        " namespace"
    )


def enforced_by() -> EnforcedBy:
    """Return the mechanisms that enforce limits on this host. Raises HostError."""
    argv = [str(paths.SATBOX), "enforces"]
    done = subprocess.run(
        argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise HostError(f"satbox: {done.stderr.strip().removeprefix('error: ')}")
    return TypeAdapter(EnforcedBy).validate_json(done.stdout)


def not_enforced(by: EnforcedBy) -> Iterator[str]:
    """Yield each limit that a host with these mechanisms does not enforce, and the remedy."""
    if by.get("memory") == "watch":
        yield (
            "no control group limits memory and processes of jobs and programs: satbox looks every"
            " 50 ms and ends what exceeds them, so short peaks pass; mount cgroup version 2 with"
            " the controllers memory and pids"
        )
    if by.get("capabilities") == "not granted":
        yield (
            "this kernel allows no user namespace: jobs that need CAP_NET_ADMIN or CAP_NET_RAW are"
            f" refused; {ALLOW}"
        )


def programs() -> tuple[Mount, ...]:
    """Return the mounts that our programs need besides the system's, and the system's caches."""
    known = [*privileges.code_paths(), paths.PROGRAMS, *_CACHES]
    return tuple(
        Mount(path.resolve())
        for path in dict.fromkeys(known)
        if path.exists() and not path.resolve().is_relative_to("/usr")
    )


_CACHES = (Path("/var/cache/fontconfig"), Path("/var/lib/dpkg"))
"""Without its cache a browser would read every font again. Results have the versions of installed
packages.
"""


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
