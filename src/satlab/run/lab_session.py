# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab for one measurement: brought up, calibrated, watched while a body runs, taken down."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from collect import calibration, opensand
from collect.calibration import CalibrationCheck
from satlab.common.console import ProgressLog
from satlab.common.topology import Role, Topology
from satlab.lab import lab as labs
from satlab.lab import lab_owners, netns
from satlab.lab.lab import Lab
from satlab.link.calibration_bounds import expectation
from satlab.link.config import LinkRequest, client_lan
from satlab.run import calibrate, host_load, link_probe, link_rate_cache
from satlab.run.host_load import HostState
from satlab.run.link_probe import Probe, ProbePath
from satlab.run.metrics_file import MetricsFile

WATCH_S = 0.25
"""Period at which a session checks that its lab is still up, s."""
PROBES = 3
"""Largest number of probes of a link."""
PAUSE_US = 5000.0
"""Release error that shows a pause of the host, us: five times the limit for a single packet."""
QUIET = ProgressLog(quiet=True)
LabT = TypeVar("LabT")
OutcomeT = TypeVar("OutcomeT")
_NUMBERS = itertools.count()


class Host(Protocol[LabT]):
    """Where a lab is: namespaces of this host, machines over ssh, or behind a controller."""

    def opened(self, log: ProgressLog) -> AbstractContextManager[LabT]:
        """Bring the lab up; take it down when the block ends.

        Raises:
            ConfigError, HostError: it cannot be brought up.
        """

    def calibrate(self, lab: LabT) -> list[CalibrationCheck]:
        """Measure RTT, rate and losses, and judge them."""

    def broken(self, lab: LabT) -> str:
        """Return the reason why the lab is broken; empty while it is up."""

    def release_errors(self, lab: LabT, since_unix_s: float) -> list[CalibrationCheck]:
        """Judge how exact emulator and host were from `since_unix_s` on; called when the lab is
        down.
        """


@dataclass(frozen=True)
class SessionResult(Generic[LabT, OutcomeT]):
    """Result of a session. `outcome`: the body's result, None if the session was stopped before it.

    `began_unix_s`: when the body began, 0 if it did not. `broken`: what broke the lab.
    """

    lab: LabT
    outcome: OutcomeT | None
    before: list[CalibrationCheck]
    during: list[CalibrationCheck]
    began_unix_s: float
    broken: str

    @property
    def checks(self) -> list[CalibrationCheck]:
        return [*self.before, *self.during]


def run_session(
    host: Host[LabT],
    body: Callable[[LabT, threading.Event], OutcomeT],
    log: ProgressLog = QUIET,
    stop: threading.Event | None = None,
) -> SessionResult[LabT, OutcomeT]:
    """Run a body on a calibrated lab, which is taken down afterwards in any case.

    The body's event is set when `stop` is, or when the lab breaks.

    Raises:
        ConfigError, HostError: the lab cannot be brought up or taken down.
    """
    stop = stop or threading.Event()
    outcome, began_unix_s = None, 0.0
    with host.opened(log) as lab:
        with log.step("calibration") as step:
            before = host.calibrate(lab)
            step.outcome = calibration.verdict(before) or "the link is as planned"
        if not stop.is_set():
            began_unix_s = time.time()
            with _halting(lambda: bool(host.broken(lab)), stop) as halt:
                outcome = body(lab, halt)
        broken = host.broken(lab)
    during = host.release_errors(lab, began_unix_s)
    return SessionResult(lab, outcome, before, during, began_unix_s, broken)


@contextlib.contextmanager
def _halting(is_broken: Callable[[], bool], stop: threading.Event) -> Iterator[threading.Event]:
    """Yield an event that is set when `stop` is, or when the lab breaks."""
    halt, over = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            while not (stop.is_set() or is_broken() or over.wait(WATCH_S)):
                pass
        finally:  # also if the lab cannot be checked, because nothing else would end the body
            halt.set()

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield halt
    finally:
        over.set()
        watcher.join()


def new_lab_id(kind: str) -> str:
    """Return the id of a lab of this process' own; `kind` has at most five characters."""
    return f"{kind}-{os.getpid() % 100000}-{next(_NUMBERS) % 1000}"


def calibrated(
    probe: Callable[[], list[CalibrationCheck]], metrics: MetricsFile
) -> list[CalibrationCheck]:
    """Probe a link; again, up to PROBES times in all, if a check failed while the host paused.

    satlink's release error in `metrics` shows a pause. Without a pause the link itself is wrong,
    and is not probed again.
    """
    spoilt = list[str]()
    while True:
        began_unix_s = time.time()
        checks = probe()
        bad = calibrate.deviations(checks)
        pause_us = metrics.largest_release_error_us(began_unix_s) if bad else 0.0
        if pause_us < PAUSE_US or len(spoilt) + 1 == PROBES:
            return calibrate.repeated(checks, spoilt)
        spoilt.append(f"{', '.join(bad)} (the host paused for {pause_us / 1000:.0f} ms)")


@dataclass(frozen=True)
class NetnsHost:
    """The embedded lab: namespaces of this host that this process owns. `states`: the host's, after
    the calibration and before the lab is taken down.
    """

    lab_id: str
    topology: Topology
    link: LinkRequest
    states: list[HostState] = field(default_factory=list)
    probed: dict[str, int | None] = field(default_factory=dict, compare=False)
    """Number of losses in OpenSAND's logs at the end of calibration."""

    @contextlib.contextmanager
    def opened(self, log: ProgressLog) -> Iterator[Lab]:
        with lab_owners.owned(self.lab_id):
            try:
                with log.step("lab up"):
                    lab = Lab.up(self.lab_id, self.topology, self.link)
                for note in lab.notes:
                    log.line(f"note: {note}")
                yield lab
                self._note_state()
            finally:
                with log.step("lab down"):
                    labs.down(self.lab_id)

    def calibrate(self, lab: Lab) -> list[CalibrationCheck]:
        checks = calibrated(lambda: self._probe(lab), metrics_of(lab))
        self._note_state()
        self.probed.update(self._lost() or {})
        return checks

    def _probe(self, lab: Lab) -> list[CalibrationCheck]:
        """Measure from the client. If its LAN has losses, measure from its proxy, as these losses
        are not the link's.
        """
        proxy, client = client_lan(lab.topology)
        end = proxy if lab.lan else client
        server = lab.topology.node_of(Role.SERVER), lab.topology.address_of(Role.SERVER)
        path = ProbePath(end.node, str(end.address), *server)
        return self._judged(lab, self._measured(lab, path))

    def _judged(self, lab: Lab, probe: Probe) -> list[CalibrationCheck]:
        return calibrate.before(
            lab.plan, probe, lab.config.emulator, has_defects=self.link.opensand_defects
        )

    def _measured(self, lab: Lab, path: ProbePath) -> Probe:
        """Measure RTT, rate and losses; only the RTT if the others are known of an equal link."""
        rates = link_rate_cache.of_host() if lab.config.emulator == "satlink" else None
        known = rates.find(lab.plan) if rates else None
        probe = link_probe.probe_link(
            lab.enter_argv, lab.plan, lab.config.emulator, path, metrics_of(lab), known
        )
        if rates and not known and all(check.ok for check in self._judged(lab, probe)):
            rates.keep(lab.plan, probe)
        return probe

    def _note_state(self) -> None:
        with contextlib.suppress(OSError):  # somebody has taken the lab down: its session says so
            self.states.append(
                host_load.state(
                    self.topology.nodes, lambda node, work: netns.inside(self.lab_id, node, work)
                )
            )

    def broken(self, lab: Lab) -> str:
        """Return why the lab is not up; empty if it is up."""
        status = lab.status()
        return "" if status.phase == "up" else status.reason or "the lab was taken down"

    def release_errors(self, lab: Lab, since_unix_s: float) -> list[CalibrationCheck]:
        expected = expectation(lab.plan, lab.config.emulator)
        checks = calibrate.during(metrics_of(lab).each(), expected, since_unix_s)
        if (lost := self._lost()) is not None:
            checks += calibrate.opensand_losses(self.probed, lost)
        return [
            *checks,
            *(host_load.between(self.states[0], self.states[-1]) if len(self.states) > 1 else ()),
        ]

    def _lost(self) -> Mapping[str, int | None] | None:
        """Count the losses in OpenSAND's logs of the run so far; None without logs."""
        logs = self.link.logs
        return (
            opensand.all_losses(logs.parent) if logs and self.link.emulator == "opensand" else None
        )


def metrics_of(lab: Lab) -> MetricsFile:
    return MetricsFile(Path(lab.config.metrics))
