# SPDX-License-Identifier: GPL-3.0-or-later
"""Run untrusted programs, each in a sandbox of its own (sandbox_init.py), and read the files that they leave."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.netlab import privileges

_INIT = Path(__file__).with_name("sandbox_init.py")
CAPABILITIES = {"net_bind_service": 10, "net_admin": 12, "net_raw": 13}
"""Capabilities that may be granted (capabilities(7)). They apply to the host's user namespace (`satlab.grants`), but a
sandbox has its own process namespace: it cannot name the host's processes to enter their network namespaces."""
STOP_S = 10.0
OUTPUT_TAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Limits:
    """A program that exceeds one of these is ended."""

    seconds: float = 600.0
    memory_bytes: int = 2 << 30
    processes: int = 256
    disk_bytes: int = 1 << 30


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that is visible in a sandbox; by default at the same path."""

    source: Path
    target: str = ""
    writable: bool = False

    def spec(self) -> tuple[str, str, bool]:
        return str(self.source.resolve()), self.target or str(self.source.absolute()), self.writable


@dataclass(frozen=True)
class Sandbox:
    """`base` is the root file system: the host's programs for `/`. `hosts` None: the hosts file of `base`."""

    uid: int = field(default_factory=privileges.new_uid)
    mounts: tuple[Mount, ...] = ()
    base: Path = Path("/")
    name: str = "sandbox"
    hosts: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True)
class ExitReport:
    """How a program ended. `status` -N: signal N. `stop_reason`: why the sandbox ended it; empty if it ended itself.

    `waited_s` is the time for which it could have run and had no core, from samples of its threads' states.
    """

    status: int
    stop_reason: str
    cpu_s: float
    peak_bytes: int
    output_tail: str
    waited_s: float = 0.0

    @property
    def reason(self) -> str:
        """Why the program failed; empty after a success."""
        if self.stop_reason:
            return self.stop_reason
        if self.status == 0:
            return ""
        status = f"status {self.status}" if self.status > 0 else f"signal {-self.status}"
        return f"it ended with {status}{': ' if self.output_tail else ''}{self.output_tail}"


class SandboxedProcess:
    """A program in its sandbox, while it runs and afterwards."""

    def __init__(self, process: subprocess.Popen[bytes], report: int, log: Path, root: Path) -> None:
        self._process, self._report, self._log, self._root = process, report, log, root
        self._ended: ExitReport | None = None

    def poll(self, wait_s: float = 0.0) -> ExitReport | None:
        """Return how it ended; None if it still runs after `wait_s`."""
        if self._ended is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                self._ended = self._read()
        return self._ended

    def stop(self) -> ExitReport:
        """Terminate it, kill it if it does not end, and return how it ended."""
        if self.poll() is None:
            self._process.terminate()
            if self.poll(STOP_S) is None:
                self._process.kill()
        ended = self.poll(STOP_S)
        return ended or ExitReport(-9, "its sandbox does not end", 0.0, 0, "")

    def _read(self) -> ExitReport:
        with os.fdopen(self._report, "rb") as pipe:
            text = pipe.read()
        with contextlib.suppress(OSError):
            self._root.rmdir()
        lines = self._log.read_text(errors="replace").split("\n")[-6:]
        output_tail = " | ".join(lines).strip(" |")[-OUTPUT_TAIL_CHARACTERS:]
        if not text:
            return ExitReport(self._process.returncode, "its sandbox was killed", 0.0, 0, output_tail)
        return ExitReport(**json.loads(text), output_tail=output_tail)


def start(enter: Sequence[str], sandbox: Sandbox, argv: Sequence[str], log: Path) -> SandboxedProcess:
    """Start a program in a sandbox, in the network namespace that the command `enter` enters; its output goes to `log`.

    An empty folder next to `log` is the mount point of the sandbox's root while the program runs.
    """
    root = log.with_suffix(".root")
    root.mkdir()
    read_end, write_end = os.pipe()
    spec = {
        "argv": list(argv),
        "environment": {"PATH": paths.STANDARD_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **sandbox.environment},  # noqa: S108
        "cwd": "/tmp",  # noqa: S108 - the sandbox's own
        "uid": sandbox.uid,
        "capabilities": [CAPABILITIES[name] for name in sandbox.capabilities],
        "root": str(root.resolve()),
        "base": str(sandbox.base.resolve()),
        "mounts": [mount.spec() for mount in sandbox.mounts],
        "name": sandbox.name,
        "hosts": sandbox.hosts,
        "report": write_end,
        "seconds": sandbox.limits.seconds,
        "memory_bytes": sandbox.limits.memory_bytes,
        "processes": sandbox.limits.processes,
        "disk_bytes": sandbox.limits.disk_bytes,
    }
    command = [*enter, sys.executable, "-I", "-S", str(_INIT), json.dumps(spec)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(write_end,)
        )
    os.close(write_end)
    return SandboxedProcess(process, read_end, log, root)


def read_json_lines(file: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a file whose writer may have been killed; none if it is missing or a link."""
    if file.is_symlink() or not file.is_file():
        return []
    lines = []
    for line in file.read_text(errors="replace").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
