# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered to the link, and what is read of the probe's programs and the emulator's metrics.

No link is needed.
"""

import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from satlab.link.plan import LinkPlan
from satlab.run import link_probe, metrics_file
from satlab.run.link_probe import Echoes, Measured, Probe, ProbeError, ProbePath, probe_link
from satlab.run.metrics_file import MetricsFile

PLAN = cast(
    LinkPlan,
    SimpleNamespace(
        rtt_ms=SimpleNamespace(configured=580, min=581.0, mean=581.5, max=582.0),
        return_=SimpleNamespace(demand=None),
        forward=SimpleNamespace(
            udp_goodput_bps=19e6, rate_bps=19.6e6, queue_discipline="drop-tail"
        ),
    ),
)
PATH = ProbePath("proxy-st", "192.0.2.2", "server", "192.0.2.1")
RTTS_MS = [700.0] * link_probe.WARM_UP_ECHOES + [581.0, 582.0] * 10


def nowhere(node: str, *words: str) -> list[str]:
    raise NotImplementedError


class FakeMeasure:
    """Replaces the probe's programs. `asked` lists the rate, length and echoes of each call."""

    def __init__(self, *found: Measured | ProbeError) -> None:
        self.asked: list[tuple[float, ...]] = []
        self.found = iter(found)
        self.paths: list[ProbePath] = []
        self.on_train: Callable[[], None] = lambda: None

    def __call__(self, enter: Any, path: ProbePath, *numbers: float) -> Measured:
        self.asked.append(numbers)
        self.paths.append(path)
        self.on_train()
        found = next(self.found)
        if isinstance(found, ProbeError):
            raise found
        return found


def measuring(monkeypatch: pytest.MonkeyPatch, *found: Measured | ProbeError) -> FakeMeasure:
    fake = FakeMeasure(*found)
    monkeypatch.setattr(link_probe, "measure", fake)
    return fake


def sample(dropped: int = 0, forward: int = 0, return_: int = 0) -> dict[str, Any]:
    directions = {"forward": forward, "return": return_}
    return {
        "type": "sample",
        **{
            name: {"in_packets": 0, "dropped_packets": dropped, "queue_packets": queue}
            for name, queue in directions.items()
        },
    }


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def test_more_than_the_link_carries_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first echoes do not count."""
    fake = measuring(monkeypatch, Measured(RTTS_MS, 4000, 3700, 19e6))
    monkeypatch.setattr(link_probe, "_drain", lambda *_: pytest.fail("satlink reports its queues"))
    probe = probe_link(nowhere, PLAN, "satlink", PATH)
    [(bps, seconds, echoes, longest_ms)] = fake.asked
    assert fake.paths == [PATH]
    assert bps == pytest.approx(21.56e6)
    assert bps > 1.05 * PLAN.forward.rate_bps, "the link has to be the limit"
    assert (seconds, echoes, longest_ms) == (link_probe.PROBE_S, 23, 583.0)
    assert probe == Probe(Echoes(20, 581.0, 581.5, 582.0), 19e6, 4000, 300, 0, {})


def test_drops_of_the_full_queue_are_those_of_the_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, fake = tmp_path / "link.jsonl", measuring(monkeypatch, Measured(RTTS_MS, 4000, 3800, 9e6))
    append(file, {"type": "header"}, sample(dropped=7))
    fake.on_train = lambda: append(file, sample(dropped=100, forward=9))
    # What is still queued when the train ends leaves later, and may be dropped until then.
    late = iter([sample(dropped=20, forward=3), sample(), sample()])
    monkeypatch.setattr(time, "sleep", lambda _: append(file, next(late)))
    probe = probe_link(nowhere, PLAN, "satlink", PATH, MetricsFile(file))
    assert (probe.lost_packets, probe.queue_drops) == (200, 120)


def test_the_largest_release_error_is_that_of_all_directions_after_a_time(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "link.jsonl")
    idle = {"late_max_us": None}
    append(file.path, {"type": "header"})
    for t_unix_s, late_us in ((1.0, 90_000.0), (2.0, 700.0), (3.0, 20_000.0)):
        directions = {
            "forward": {"late_max_us": 50.0},
            "return": {"late_max_us": late_us},
            "terrestrial_up": idle,
        }
        append(
            file.path,
            {"type": "sample", "t_unix_s": t_unix_s, **directions, "terrestrial_down": None},
        )
    assert file.largest_release_error_us(1.0) == 20_000
    assert file.largest_release_error_us(3.0) == 0


def test_a_probe_that_fails_leaves_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = measuring(monkeypatch, ProbeError("no route"), Measured([None] * 23, 4000, 1, None))
    probe = probe_link(nowhere, PLAN, "satlink", PATH)
    assert (probe.rtt, probe.rate_bps, probe.packets) == (None, None, 0)
    assert probe.notes == {"rtt": "no route", "rate": "no route"}
    probe = probe_link(nowhere, PLAN, "satlink", PATH)
    assert probe.notes == {"rtt": "no echo came back", "rate": "1 of 4000 datagrams arrived"}
    assert len(fake.asked) == 2


def test_opensand_s_probe_waits_until_an_echo_meets_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its RTT may be 640 ms; a failed echo is ignored."""
    echoes = [Measured([rtt_ms], 0, 0, None) for rtt_ms in (900.0, None, 650.0, 610.0, 1.0)]
    whole = Measured(RTTS_MS, 4000, 3700, 19e6)
    fake = measuring(monkeypatch, whole, ProbeError("late"), *echoes)
    ticks = SimpleNamespace(configured=580, min=584.0, mean=602.25, max=620.5)
    probe_link(
        nowhere, cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"rtt_ms": ticks})), "opensand", PATH
    )
    assert {numbers[:3] for numbers in fake.asked[1:]} == {(0, 0, 1)}
    assert next(fake.found) == echoes[-1]


# --- metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "looks"),
    [
        ([sample(), sample()], 2),
        ([sample(forward=1), sample(), sample()], 3),
        ([sample(return_=1), sample(), sample()], 3),
        ([sample(), sample(forward=1), sample(), sample()], 4),
        (
            [{"type": "sample", "forward": None, "return": None}] * 2,
            2,
        ),  # another emulator carries them
    ],
)
def test_a_link_has_settled_after_two_samples_without_a_queue(
    samples: list[dict[str, Any]], looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, left = tmp_path / "link.jsonl", iter(samples)
    append(file, sample(), sample())  # from before: they say nothing of what was sent since
    monkeypatch.setattr(time, "sleep", lambda _: append(file, next(left)))
    MetricsFile(file).settle()
    assert len(MetricsFile(file).samples()) == 2 + looks


def test_a_link_that_does_not_settle_is_waited_for_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = tmp_path / "link.jsonl", [0.0]
    append(file, sample(forward=1))

    def sleep(_: float) -> None:
        now[0] += 1.0
        append(file, sample(forward=1))

    monkeypatch.setattr(
        metrics_file, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )
    MetricsFile(file).settle()
    assert now[0] == 10.0


def test_metrics_file_ignores_a_line_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "link.jsonl"
    append(
        path,
        {"type": "header"},
        {"type": "sample", "forward": {"in_packets": 9, "dropped_packets": 3}},
    )
    with path.open("a") as file:
        file.write('{"type": "sam')
    assert MetricsFile(path).forward_drops(0) == 3


def test_drops_are_those_of_the_samples_since_a_number(tmp_path: Path) -> None:
    path = tmp_path / "link.jsonl"
    append(path, {"type": "header"}, *(sample(dropped=count) for count in (7, 0, 20, 5)))
    append(path, {"type": "sample", "forward": None})  # another process carries this direction
    found = [MetricsFile(path).forward_drops(since) for since in range(5)]
    assert found == [32, 25, 25, 5, 0]


# --- programs -------------------------------------------------------------------------------------


def here(node: str, *words: str) -> list[str]:
    return [sys.executable, *words[1:]]


def test_both_programs_measure_a_path_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(link_probe, "PROBE_PORT", free.getsockname()[1])
    path = ProbePath("client", "127.0.0.1", "server", "127.0.0.1")
    found = link_probe.measure(here, path, 10e6, 0.1, 3)
    assert (found.sent, found.received) == (84, 84)
    assert len(found.rtts_ms) == 3
    assert all(rtt_ms is not None and 0 < rtt_ms < 1000 for rtt_ms in found.rtts_ms)
    assert found.rate_bps and found.rate_bps > 1e6


def test_a_program_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = ProbePath("client", "192.0.2.1", "server", "127.0.0.1")
    with pytest.raises(ProbeError, match="the probe failed: OSError: "):
        link_probe.measure(here, nobody, 1e6, 0.1)
    with pytest.raises(ProbeError, match="did not answer with JSON: b'banner"):
        link_probe.measure(lambda *_: ["echo", "banner"], nobody, 1e6, 0.1)
    monkeypatch.setattr(link_probe, "START_S", 0.05)
    with pytest.raises(ProbeError, match="did not answer within"):
        link_probe.measure(lambda *_: ["sleep", "20"], nobody, 1e6, 0.1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("print('x' * 2_000_000)", "more than 16384 bytes"),
        ("print('{', end='', flush=True); time.sleep(20)", "did not answer within"),
        ("print('[' * 10_000)", "did not answer with JSON"),
        ("print([1])", "did not answer with an object"),
        (
            "print(FIGURES, flush=True); time.sleep(0.3); print(FIGURES)",
            "did not answer with figures: rtts_ms",
        ),
    ],
    ids=["endless", "half a line", "deep", "list", "figures"],
)
def test_t82_what_a_host_answers_is_bounded_and_checked(
    said: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of a VM may control what its programs print."""
    monkeypatch.setattr(link_probe, "START_S", 1.0)
    figures = '{"rtts_ms": ["x"], "sent": 1, "received": -1, "rate_bps": 1e99}'
    hostile = [sys.executable, "-c", f"import time; FIGURES = {figures!r}; {said}"]
    begin = time.monotonic()
    with pytest.raises(ProbeError, match=why):
        link_probe.measure(lambda _, *words: [*hostile, *words[5:]], PATH, 1e6, 0.1)
    assert time.monotonic() - begin < 10
