# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a session, and how it ends: on a lab that does not exist."""

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collect.calibration import CalibrationCheck
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.lab import lab as labs
from satlab.lab import lab_owners
from satlab.lab.lab import Lab, LabStatus
from satlab.link.config import LinkRequest
from satlab.run import calibrate, lab_session, link_probe
from satlab.run.lab_session import NetnsHost, new_lab_id, run_session
from satlab.run.link_probe import Echoes, Probe, ProbePath
from satlab.run.metrics_file import MetricsFile

GOOD = calibrate.check("rtt_ms", "ms", 580, 581, 579, 583)
LATE = calibrate.check("late_packet_ratio.forward", "", 0, 0.5, 0, 0.01)


class FakeHost:
    """Notes what is done, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.since_unix_s = -1.0
        self.breaks = threading.Event()

    @contextlib.contextmanager
    def opened(self, _: ProgressLog) -> Iterator[str]:
        self.log.append("up")
        try:
            yield "the lab"
        finally:
            self.log.append("down")

    def calibrate(self, lab: str) -> list[CalibrationCheck]:
        self.log.append(f"calibrate {lab}")
        return [GOOD]

    def broken(self, _: str) -> str:
        return "satlink has ended" if self.breaks.is_set() else ""

    def release_errors(self, _: str, since_unix_s: float) -> list[CalibrationCheck]:
        self.log.append("release errors")
        self.since_unix_s = since_unix_s
        return [LATE]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_session, "WATCH_S", 0.01)


def test_a_body_runs_on_a_calibrated_lab_that_is_judged_when_it_is_down() -> None:
    host = FakeHost()

    def body(lab: str, halt: threading.Event) -> int:
        assert not halt.wait(0.1)
        host.log.append(f"body on {lab}")
        return 7

    result = run_session(host, body)
    assert host.log == ["up", "calibrate the lab", "body on the lab", "down", "release errors"]
    assert (result.outcome, result.checks, result.broken) == (7, [GOOD, LATE], "")
    assert host.since_unix_s == result.began_unix_s > 1e9


def test_a_stop_before_the_body_leaves_it_out() -> None:
    host, stop = FakeHost(), threading.Event()
    stop.set()
    result = run_session(host, lambda *_: pytest.fail("the body runs"), stop=stop)
    assert host.log == ["up", "calibrate the lab", "down", "release errors"]
    assert (result.outcome, result.began_unix_s, host.since_unix_s) == (None, 0.0, 0.0)


def test_a_stop_reaches_the_body() -> None:
    stop = threading.Event()

    def body(_: str, halt: threading.Event) -> bool:
        stop.set()
        return halt.wait(60)

    assert run_session(FakeHost(), body, stop=stop).outcome is True


def test_a_lab_that_breaks_ends_the_body_and_says_why() -> None:
    host = FakeHost()

    def body(_: str, halt: threading.Event) -> bool:
        host.breaks.set()
        return halt.wait(60)

    result = run_session(host, body)
    assert (result.outcome, result.broken) == (True, "satlink has ended")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lab_that_cannot_be_looked_at_ends_the_body() -> None:
    host = FakeHost()

    def broken(_: str) -> str:
        raise OSError(24, "Too many open files")

    ended: list[bool] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="Too many"):
        patch.setattr(host, "broken", broken)
        run_session(host, lambda _, halt: ended.append(halt.wait(60)))
    assert ended == [True]


@pytest.mark.parametrize("error", [HostError("no"), KeyboardInterrupt()])
def test_a_body_that_fails_leaves_no_lab_and_no_thread(error: BaseException) -> None:
    host, before = FakeHost(), threading.active_count()

    def body(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        run_session(host, body)
    assert host.log == ["up", "calibrate the lab", "down"]
    assert threading.active_count() == before


def test_lab_ids_are_usable_and_differ() -> None:
    ids = [new_lab_id("check") for _ in range(3)]
    for one in ids:
        labs.check_id(one)
    assert len(set(ids)) == 3


# --- the embedded lab -----------------------------------------------------------------------------

HOST = NetnsHost("x", topology.load(paths.LAB_FILE), LinkRequest(paths.PROFILES / "geo"))


def fake_lab(status: LabStatus | None = None, lan: object = None) -> Any:
    config = SimpleNamespace(emulator="satlink", metrics="link.jsonl")
    return SimpleNamespace(
        topology=HOST.topology,
        config=config,
        plan="the plan",
        lan=lan,
        notes=("a note",),
        enter_argv=None,
        status=lambda: status,
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (LabStatus("x", "up"), ""),
        (LabStatus("x", "broken", "satlink has ended"), "satlink has ended"),
        (LabStatus("x", "absent"), "the lab was taken down"),
    ],
)
def test_a_lab_that_somebody_took_down_is_broken_too(status: LabStatus, reason: str) -> None:
    assert HOST.broken(fake_lab(status)) == reason


@pytest.mark.parametrize(
    ("lan", "end"),
    [(None, ("client", "198.18.1.2")), (object(), ("proxy-st", "198.18.1.1"))],
)
def test_losses_of_the_client_s_lan_are_not_measured(
    lan: object, end: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    seen: list[Any] = []
    measured = Probe(Echoes(40, 581.0, 581.0, 581.0), 19e6, 6000, 0, 0, {})

    def probe_link(*arguments: Any) -> Probe:
        calls.append(arguments)
        return measured

    monkeypatch.setattr(link_probe, "probe_link", probe_link)

    def before(*arguments: Any, has_defects: bool) -> list[CalibrationCheck]:
        seen.append((*arguments, has_defects))
        return [GOOD]

    monkeypatch.setattr(calibrate, "before", before)
    assert HOST.calibrate(fake_lab(lan=lan)) == [GOOD]
    assert seen == [("the plan", measured, "satlink", False)]
    assert calls[0][1:4] == ("the plan", "satlink", ProbePath(*end, "server", "198.18.4.2"))


@pytest.mark.parametrize(
    ("rtts_ms", "pause_us", "probes", "ok"),
    [
        ([581], 80_000, 1, True),
        ([590, 581], 80_000, 2, True),
        ([590, 595, 581], 80_000, 3, True),
        ([590, 590, 590, 581], 80_000, 3, False),
        ([590, 581], 900, 1, False),
    ],
    ids=["good", "spoilt once", "spoilt twice", "never quiet", "a wrong link"],
)
def test_a_probe_is_repeated_if_the_host_paused_and_only_then(
    rtts_ms: list[float], pause_us: float, probes: int, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(rtts_ms)
    monkeypatch.setattr(link_probe, "probe_link", lambda *_: None)
    monkeypatch.setattr(
        calibrate,
        "before",
        lambda *_, **__: [calibrate.check("rtt_ms", "ms", 581, next(left), 580, 582, "40 echoes")],
    )
    monkeypatch.setattr(MetricsFile, "largest_release_error_us", lambda *_: pause_us)
    [found] = HOST.calibrate(fake_lab())
    assert (len(rtts_ms) - len(list(left)), found.ok) == (probes, ok)
    before = "; ".join(
        f"round-trip time {ms:g} ms (580 to 582 ms) (the host paused for 80 ms)"
        for ms in rtts_ms[: probes - 1]
    )
    assert found.note == (
        f"40 echoes; probed {probes} times, before: {before}" if before else "40 echoes"
    )


def test_a_lab_that_does_not_come_up_is_taken_down_and_has_no_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def owned(name: str) -> Iterator[str]:
        log.append(f"own {name}")
        yield name
        log.append("disown")

    def up(*_: object) -> None:
        raise HostError("no TUN")

    monkeypatch.setattr(lab_owners, "owned", owned)
    monkeypatch.setattr(Lab, "up", up)
    monkeypatch.setattr(labs, "down", lambda name: cast(bool, log.append(f"down {name}")))
    with pytest.raises(HostError, match="no TUN"), HOST.opened(lab_session.QUIET):
        pytest.fail("there is no lab")
    assert log == ["own x", "down x"]
    monkeypatch.setattr(Lab, "up", lambda *_: fake_lab())
    with HOST.opened(lab_session.QUIET):
        log.append("body")
    assert log[2:] == ["own x", "body", "down x", "disown"]
