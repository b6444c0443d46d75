# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that nobody vouches for, each in a cell of its own: what it sees, what it may, what came of it."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from satlab.common import paths
from satlab.netlab import privileges

_CELL = Path(__file__).with_name("sandbox_init.py")
CAPABILITIES = {"net_bind_service": 10, "net_admin": 12, "net_raw": 13}
"""Those of capabilities(7) that a cell may be granted. They count in the host's user namespace (`satlab.grants`);
a cell has process ids of its own, and so cannot name the host's processes to reach their network namespaces."""
LEAVE_S = 10.0
SAID_CHARACTERS = 300


@dataclass(frozen=True)
class Limits:
    """What a program may take before its cell ends it."""

    seconds: float = 600.0
    memory_bytes: int = 2 << 30
    processes: int = 256
    disk_bytes: int = 1 << 30


@dataclass(frozen=True)
class Mount:
    """Something of the host's that shows up in a cell; at the same place unless said otherwise."""

    source: Path
    target: str = ""
    writable: bool = False

    def words(self) -> tuple[str, str, bool]:
        """Return it as the cell's spec has it."""
        source = str(self.source.resolve())
        return source, self.target or source, self.writable


@dataclass(frozen=True)
class Sandbox:
    """Where a program runs. `base` is the root file system that it finds: the host's programs, or a folder's."""

    uid: int = field(default_factory=privileges.new_uid)
    binds: tuple[Mount, ...] = ()
    base: Path = Path("/")
    name: str = "cell"
    hosts: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    bounds: Limits = Limits()


@dataclass(frozen=True)
class ExitReport:
    """How a program ended: exit status (-N: signal N), the bound that ended it, its means, its last words.

    `waited_s` is how long it could have run and had no core, from samples of its threads' states.
    """

    status: int
    why: str
    cpu_s: float
    peak_bytes: int
    said: str
    waited_s: float = 0.0

    @property
    def reason(self) -> str:
        """Return why it ended, for people; nothing after a success."""
        if self.why:
            return self.why
        if self.status == 0:
            return ""
        how = f"status {self.status}" if self.status > 0 else f"signal {-self.status}"
        return f"it ended with {how}{': ' if self.said else ''}{self.said}"


class SandboxedProcess:
    """A program in its cell, while it runs and after."""

    def __init__(self, process: subprocess.Popen[bytes], report: int, log: Path, root: Path) -> None:
        self._process, self._report, self._log, self._root = process, report, log, root
        self._ended: ExitReport | None = None

    def poll(self, wait_s: float = 0.0) -> ExitReport | None:
        """Return how it ended; None while it runs, which is seen for `wait_s` at most."""
        if self._ended is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                self._ended = self._read()
        return self._ended

    def stop(self) -> ExitReport:
        """Ask it to end, then make it end; give how it ended."""
        if self.poll() is None:
            self._process.terminate()
            if self.poll(LEAVE_S) is None:
                self._process.kill()
        ended = self.poll(LEAVE_S)
        return ended or ExitReport(-9, "its cell does not end", 0.0, 0, "")

    def _read(self) -> ExitReport:
        with os.fdopen(self._report, "rb") as pipe:
            text = pipe.read()
        with contextlib.suppress(OSError):
            self._root.rmdir()
        lines = self._log.read_text(errors="replace").split("\n")[-6:]
        said = " | ".join(lines).strip(" |")[-SAID_CHARACTERS:]
        if not text:
            return ExitReport(self._process.returncode, "its cell was killed", 0.0, 0, said)
        return ExitReport(**json.loads(text), said=said)


def start(enter: Sequence[str], cell: Sandbox, argv: Sequence[str], log: Path) -> SandboxedProcess:
    """Start a program in a cell, within the network namespace that `enter` leads into; its talk goes to `log`.

    `log` lies in a folder that stays; an empty folder beside it is the place of the cell's root as long as it runs.
    """
    root = log.with_suffix(".cell")
    root.mkdir()
    ours, theirs = os.pipe()
    spec = {
        "argv": list(argv),
        "environment": {"PATH": paths.STANDARD_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **cell.environment},  # noqa: S108
        "cwd": "/tmp",  # noqa: S108 - the cell's own
        "uid": cell.uid,
        "capabilities": [CAPABILITIES[name] for name in cell.capabilities],
        "root": str(root.resolve()),
        "base": str(cell.base.resolve()),
        "binds": [bind.words() for bind in cell.binds],
        "name": cell.name,
        "hosts": cell.hosts,
        "report": theirs,
        "seconds": cell.bounds.seconds,
        "memory_bytes": cell.bounds.memory_bytes,
        "processes": cell.bounds.processes,
        "disk_bytes": cell.bounds.disk_bytes,
    }
    command = [*enter, sys.executable, "-I", "-S", str(_CELL), json.dumps(spec)]
    with log.open("wb") as words:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, pass_fds=(theirs,))
    os.close(theirs)
    return SandboxedProcess(process, ours, log, root)
