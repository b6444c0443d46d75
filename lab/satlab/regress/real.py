# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples on the real clock: each in a fresh lab that is calibrated before and watched meanwhile."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from satlab import calibrate, control, grants, lab, netns, ownership, paths, pki, topology
from satlab.calibrate import MetricsFile
from satlab.errors import HostError
from satlab.lab import Lab
from satlab.process import wait
from satlab.regress import links
from satlab.regress.ends import NAME, PORT, Ends, Wish
from satlab.regress.links import Link
from satlab.regress.sample import Sample
from satlab.regress.suite import Case, Suite
from satlab.topology import Role

START_S = 10.0
"""For a server to bind its port."""
GRACE_S = 15.0
"""For a client to end by itself beyond the case's time."""
END_S = 5.0
SAID_CHARACTERS = 300
WATCH_S = 0.25
_NUMBERS = itertools.count()
Program = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Real:
    """The backend; `stop` ends a sample, and with it the check."""

    ends: Ends
    stop: threading.Event = field(default_factory=threading.Event)
    at_once: int = 1
    clock: Literal["real"] = "real"

    @property
    def stack(self) -> str:
        """Name what is measured."""
        return self.ends.name

    def sample(self, suite: Suite, case: Case, link: Link, seed: int, raw: Path) -> Sample:
        """Bring a lab up, let the programs talk, take the lab down."""
        lacking = self.ends.lacks(case)
        if lacking:
            return Sample(case.id, seed, "unsupported", lacking, (None,) * len(suite.marks_mb))
        folder = raw / f"{case.id}-{seed}"
        folder.mkdir()
        metrics = MetricsFile(folder / "link.jsonl")
        request = links.for_lab(link, case, seed, metrics.path)
        with ownership.owned(f"check-{os.getpid() % 100000}-{next(_NUMBERS)}") as name:
            try:
                up = Lab.up(name, topology.load(paths.LAB_FILE), request)
                checks = _calibrated(up, metrics)
                began_unix_s = time.time()
                found = self._talk(up, suite, case, seed, folder)
                broken = up.status().reason
            finally:
                lab.down(name)
        if broken:
            raise HostError(f"the lab broke during {case.id}: {broken}")
        checks += calibrate.during(metrics.lines(), calibrate.expectation(up.plan, "satlink"), began_unix_s)
        calibrate.write(folder / "calibration.json", up.config.run_id, checks)
        return replace(found, calibration=", ".join(check.name for check in checks if not check.ok))

    def _talk(self, up: Lab, suite: Suite, case: Case, seed: int, folder: Path) -> Sample:
        """Start the server, then the client once or twice; give the sample of its last connection."""
        uid = grants.new_uid()
        host = _server_address(up)
        with tempfile.TemporaryDirectory(prefix="satlab-check-") as private:
            theirs = Path(private) / "ends"
            keys = pki.create(Path(private) / "pki", [NAME], [ip_address(host)], datetime.now(UTC))
            wish = Wish(suite, case, seed, host, keys, theirs)
            theirs.mkdir()
            for each in (theirs, keys.folder):
                grants.give(each, uid)
            Path(private).chmod(0o711)
            enter = _Enter(up, uid, (theirs, keys.folder))
            try:
                return self._connections(up, enter, wish, folder)
            finally:
                for file in theirs.glob("*.jsonl"):
                    shutil.move(file, folder / file.name)

    def _connections(self, up: Lab, enter: "_Enter", wish: Wish, folder: Path) -> Sample:
        with _running(enter(Role.SERVER, self.ends.server(wish)), folder / "server.log") as server:
            if not wait(lambda: server.poll() is not None or _listens(up), START_S) or server.poll() is not None:
                return wish.failed(f"the server does not listen: {_said(folder / 'server.log')}")
            found = wish.failed("no connection was made")
            for number in range(wish.connections):
                if number:
                    self.stop.wait(wish.case.second_after_s)
                if up.config.timeline and up.config.control:
                    control.start_timeline(Path(up.config.control))
                log = folder / f"client-{number}.log"
                with _running(enter(Role.CLIENT, self.ends.client(wish, number)), log) as client:
                    ended = self._await(up, wish, server, client)
                    status = client.poll()
                if status is None:
                    return wish.failed(ended)
                found = self.ends.sample(wish, number, status, _said(log))
                if found.status != "ok" and number + 1 < wish.connections:
                    return replace(wish.failed(f"first transfer: {found.reason}"), status=found.status)
        return found

    def _await(self, up: Lab, wish: Wish, server: Program, client: Program) -> str:
        """Wait for the client's end; say what came first if it was something else."""
        end = time.monotonic() + wish.case.timeout_s + GRACE_S
        while client.poll() is None:
            if self.stop.is_set():
                raise KeyboardInterrupt
            if server.poll() is not None and not wait(lambda: client.poll() is not None, END_S):
                return f"the server ended with status {server.poll()}"
            if time.monotonic() > end:
                return f"the client hangs: no end after {wish.case.timeout_s + GRACE_S:g} s"
            if up.status().phase != "up":
                return "the lab broke"
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(WATCH_S)
        return ""


@dataclass(frozen=True)
class _Enter:
    """Gives the argv that runs a command on a node, as a user of this sample alone, who sees what is shown."""

    up: Lab
    uid: int
    shown: tuple[Path, ...]

    def __call__(self, role: Role, argv: list[str]) -> list[str]:
        visible = [*grants.program_paths(), *self.shown]
        return [*self.up.enter_argv(self.up.topology.node_of(role)), *grants.drop_argv(self.uid, (), visible), *argv]


def _calibrated(up: Lab, metrics: MetricsFile) -> list[calibrate.Check]:
    return calibrate.before(up.plan, calibrate.probe_link(up, up.plan, _server_address(up), metrics))


def _server_address(up: Lab) -> str:
    server = up.topology.nodes[up.topology.node_of(Role.SERVER)]
    return str(next(iter(server.interfaces.values())).address)


@contextlib.contextmanager
def _running(argv: list[str], log: Path) -> Iterator[Program]:
    """Run a program for as long as the block lasts."""
    with log.open("wb") as words:
        program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    try:
        yield program
    finally:
        program.terminate()
        try:
            program.wait(END_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def _listens(up: Lab) -> bool:
    """Look whether the server's namespace has a UDP socket on the port."""
    node = up.topology.node_of(Role.SERVER)
    return any(netns.inside(up.lab_id, node, _has_port, table) for table in ("udp", "udp6"))


def _has_port(table: str) -> bool:
    """Look into proc(5)'s table of the namespace that this thread is in."""
    rows = Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]
    return any(row.split()[1].endswith(f":{PORT:04X}") for row in rows)


def _said(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").split("\n")[-6:]).strip(" |")[-SAID_CHARACTERS:]
