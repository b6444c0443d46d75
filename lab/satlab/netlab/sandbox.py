# SPDX-License-Identifier: GPL-3.0-or-later
"""Sandboxes of jobs and programs under test: what they see, may do and may use; satbox builds them (crates/confine)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.netlab import privileges

HOME = "/tmp"  # noqa: S108 - the sandbox's own
"""The folder in memory that is a program's working directory, and ends with it."""
CAPABILITY_NUMBERS = {"net_bind_service": 10, "net_admin": 12, "net_raw": 13}
"""Capabilities that may be granted (capabilities(7)). They count in the lab's user namespace alone."""


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
    grace_s: float = 2.0
    descendants_grace_s: float = 0.0


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that is visible in a sandbox; by default at the same path."""

    source: Path
    target: str = ""
    writable: bool = False

    def spec(self) -> dict[str, Any]:
        """Return it as satbox takes it."""
        target = self.target or str(self.source.absolute())
        return {"source": str(self.source.resolve()), "target": target, "writable": self.writable}


@dataclass(frozen=True)
class Place:
    """The namespaces of a node. `network` None: the caller's. `user` None: they belong to the host's users."""

    network: Path | None = None
    user: Path | None = None

    def name(self) -> tuple[Mount, ...]:
        """Return what shows a program the name of its network namespace: satpep runs in a lab's alone."""
        return () if self.network is None else (Mount(self.network),)


@dataclass(frozen=True)
class Sandbox:
    """`base` is the root file system: the host's programs for `/`. `hosts` None: the hosts file of `base`."""

    uid: int = field(default_factory=privileges.new_uid)
    place: Place = Place()
    mounts: tuple[Mount, ...] = ()
    base: Path = Path("/")
    name: str = "sandbox"
    hosts: str | None = None
    capabilities: tuple[str, ...] = ()
    limits: Limits = Limits()

    def spec(self, root: Path, report: int | None) -> dict[str, Any]:
        """Return it as `schemas/sandbox.schema.json` has it; without a user namespace nothing is granted."""
        limits = vars(self.limits)
        return {
            "uid": self.uid,
            "capabilities": [CAPABILITY_NUMBERS[name] for name in self.capabilities if self.place.user],
            "user_namespace": _text(self.place.user),
            "network": _text(self.place.network),
            "root": str(root.resolve()),
            "base": str(self.base.resolve()),
            "mounts": [mount.spec() for mount in self.mounts],
            "name": self.name,
            "hosts": self.hosts,
            "report": report,
            "limits": limits,
        }

    def argv(self, spec: Path, root: Path, report: int | None = None) -> list[str]:
        """Write the file `spec`, which root alone can read, and return the argv prefix that runs a command.

        `root` is an empty folder, the mount point of the sandbox's root; several sandboxes may have the same. The
        command has the caller's variables and working directory. `report`: descriptor for how it ended, as JSON.
        """
        spec.touch(mode=0o600)
        spec.write_text(json.dumps(self.spec(root, report)))
        return [str(paths.SATBOX), "run", str(spec), "--"]


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
    return f"it needs {words}, which would count on the whole host: this kernel allows no user namespace"


def programs() -> tuple[Mount, ...]:
    """Return what our programs need in addition to those of the system; caches of the system that exist."""
    known = [*privileges.program_paths(), paths.PROGRAMS, *_CACHES]
    return tuple(Mount(path.resolve()) for path in dict.fromkeys(known) if path.exists() and not _is_system(path))


_CACHES = (Path("/var/cache/fontconfig"), Path("/var/lib/dpkg"))
"""A browser would read every font again; the versions of installed packages are in results."""


def _is_system(path: Path) -> bool:
    return path.resolve().is_relative_to("/usr")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
