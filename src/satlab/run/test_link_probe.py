# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered to the link and what is read of ping, iperf3 and the emulator's metrics.

No link is needed.
"""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from satlab.common import processes
from satlab.link.plan import LinkPlan
from satlab.run import link_probe, metrics_file
from satlab.run.link_probe import (
    WARM_UP_ECHOES,
    Echoes,
    NamespaceShell,
    ProbeError,
    ProbePath,
    probe_link,
)
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
PATH = ProbePath("proxy-st", "server", "192.0.2.1")
PING = "{count} received\nrtt min/avg/max/mdev = {ms}/{ms}/{ms}/0 ms"
FLOW = json.dumps(
    {
        "intervals": [{"sum": {"seconds": 0.1, "bytes": 237_500}}] * 4,
        "end": {"sum": {"packets": 1}, "sum_received": {"packets": 6000, "lost_packets": 300}},
    }
)


class FakeShell:
    """Answers ping and iperf3, the echoes before the measurement with nothing; `log` has what was
    run where.
    """

    def __init__(self, pings: Sequence[str], flow: str = FLOW) -> None:
        self.log: list[tuple[str, ...]] = []
        self.pings, self.flow = iter(pings), flow
        self.on_flow: Callable[[], None] = lambda: None

    def output(self, node: str, argv: Sequence[str], within_s: float) -> str:
        assert within_s > 0
        self.log.append((node, *argv))
        if argv[0] == "ping":
            return "" if argv[argv.index("-c") + 1] == str(WARM_UP_ECHOES) else next(self.pings)
        self.on_flow()
        return self.flow

    @contextlib.contextmanager
    def listener(self, node: str, address: str) -> Iterator[None]:
        self.log.append((node, "listen", address))
        yield
        self.log.append((node, "end"))


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


def test_more_than_the_link_carries_is_offered_from_the_server_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_probe, "_drain", lambda *_: pytest.fail("satlink reports its queues"))
    shell = FakeShell([PING.format(count=40, ms=581.5)])
    probe = probe_link(shell, PLAN, "satlink", PATH)
    warm_up, echo, listen, flow, end = shell.log
    assert (warm_up[:2], warm_up[warm_up.index("-c") + 1]) == (("proxy-st", "ping"), "3")
    assert (echo[:2], echo[-1]) == (("proxy-st", "ping"), "192.0.2.1")
    assert echo[echo.index("-c") + 1] == "40"
    assert (listen, end) == (("server", "listen", "192.0.2.1"), ("server", "end"))
    assert (flow[:2], flow[-1]) == (("proxy-st", "iperf3"), "192.0.2.1")
    assert {"-R", "-u", "-J"} < set(flow)  # the server sends
    offered_bps = int(flow[flow.index("-b") + 1])
    assert offered_bps == 21_560_000
    assert offered_bps > 1.05 * PLAN.forward.rate_bps, "the link has to be the limit"
    assert probe == link_probe.Probe(Echoes(40, 581.5, 581.5, 581.5), 19e6, 6000, 300, 0, {})


def test_drops_of_the_full_queue_are_those_of_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, shell = tmp_path / "link.jsonl", FakeShell([PING.format(count=40, ms=581.5)])
    append(file, {"type": "header"}, sample(dropped=7))
    shell.on_flow = lambda: append(file, sample(dropped=100, forward=9))
    # What is still queued when the flow ends leaves later, and may be dropped until then.
    late = iter([sample(dropped=20, forward=3), sample(), sample()])
    monkeypatch.setattr(time, "sleep", lambda _: append(file, next(late)))
    probe = probe_link(shell, PLAN, "satlink", PATH, MetricsFile(file))
    assert probe.queue_drops == 120


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


def test_a_probe_that_fails_leaves_its_reason() -> None:
    shell = FakeShell(["40 packets transmitted, 0 received"], '{"error": "no route"}')
    probe = probe_link(shell, PLAN, "satlink", PATH)
    assert (probe.rtt, probe.rate_bps, probe.packets) == (None, None, 0)
    assert probe.notes == {"rtt": "no echo came back", "rate": "iperf3: no route"}
    shell = FakeShell([PING.format(count=40, ms=581.5)], "oops")
    assert "did not return JSON" in probe_link(shell, PLAN, "satlink", PATH).notes["rate"]


@pytest.mark.parametrize(("lost", "flows"), [(1, 2), (2, 3), (3, 3)])
def test_a_flow_whose_handshake_is_lost_is_begun_again(lost: int, flows: int) -> None:
    """`iperf3 -u` repeats no datagram of its handshake: over 2 % of losses one in 25 is lost."""
    error = json.dumps(
        {"error": "unable to read from stream socket: Resource temporarily unavailable"}
    )
    answers = iter([error] * lost + [FLOW])
    shell = FakeShell([PING.format(count=40, ms=581.5)])
    shell.on_flow = lambda: setattr(shell, "flow", next(answers))
    probe = probe_link(shell, PLAN, "satlink", PATH)
    assert shell.log.count(("server", "listen", "192.0.2.1")) == flows
    assert (
        (probe.packets == 6000) is (lost < link_probe.FLOW_ATTEMPTS) is ("rate" not in probe.notes)
    )


def test_opensand_s_probe_waits_until_an_echo_meets_no_queue() -> None:
    """Its RTT may be 640 ms; a failed echo is ignored."""
    pings = [
        PING.format(count=40, ms=600),
        "",
        *(PING.format(count=1, ms=ms) for ms in (900, 650, 610, 1)),
    ]
    shell = FakeShell(pings)
    ticks = SimpleNamespace(configured=580, min=584.0, mean=602.25, max=620.5)
    probe_link(
        shell, cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"rtt_ms": ticks})), "opensand", PATH
    )
    assert "1/1/1" in next(shell.pings)


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
    assert MetricsFile(path).forward_drops(0, 9) == 3


@pytest.mark.parametrize(
    ("since", "packets", "drops"),
    [
        (0, 0, 0),
        (1, 90, 0),
        (1, 100, 0),
        (1, 150, 10),
        (1, 200, 20),
        (1, 250, 25),
        (0, 200, 7),
        (0, 300, 27),
        (0, 301, 32),
    ],
)
def test_drops_count_among_the_packets_that_the_receiver_knows_of(
    since: int, packets: int, drops: int, tmp_path: Path
) -> None:
    """The flow begins with the second sample; a packet dropped after the last received one is not
    missed. No packet entered in the last sample: its drops count while some are to come.
    """
    path = tmp_path / "link.jsonl"
    counts = [(100, 7), (100, 0), (100, 20), (0, 5)]
    figures = [{"in_packets": entered, "dropped_packets": dropped} for entered, dropped in counts]
    append(
        path,
        {"type": "header"},
        *({"type": "sample", "forward": one} for one in figures),
        {"type": "end"},
    )
    assert MetricsFile(path).forward_drops(since, packets) == drops


@pytest.mark.parametrize(("packets", "drops"), [(0, 0), (60, 0), (110, 10), (160, 20), (300, 24)])
def test_drops_at_the_head_of_a_queue_are_of_packets_that_entered_earlier(
    packets: int, drops: int, tmp_path: Path
) -> None:
    """CoDel drops what has waited: 60 of the first 100 packets pass the head in their interval, 100
    in the next.
    """
    path = tmp_path / "link.jsonl"
    counts = [(100, 0, 40), (100, 20, 40), (0, 4, 0)]
    figures = [
        {"in_packets": entered, "dropped_packets": dropped, "queue_packets": waiting}
        for entered, dropped, waiting in counts
    ]
    append(
        path,
        {"type": "header"},
        *({"type": "sample", "forward": one} for one in figures),
        {"type": "end"},
    )
    assert MetricsFile(path).forward_drops(0, packets, at_head=True) == drops


# --- what programs print --------------------------------------------------------------------------


def test_the_summary_of_ping_is_read_and_no_reply_is_an_error() -> None:
    output = (
        "40 packets transmitted, 39 received, 2.5% packet loss\nrtt min/avg/max/mdev ="
        " 1.5/2.25/3/0.1 ms, pipe 2\n"
    )
    assert link_probe.echoes(output) == Echoes(39, 1.5, 2.25, 3.0)
    with pytest.raises(ProbeError):
        link_probe.echoes("3 packets transmitted, 0 received, 100% packet loss, time 51ms\n")


@pytest.mark.parametrize(
    "late",
    [
        [(0.1, 237_500)] * 4,
        [(0.16, 237_500), (0.04, 237_500), (0.1, 237_500), (0.1, 237_500)],
        [(0.19, 380_000), (0.01, 95_000), (0.1, 237_500), (0.1, 237_500)],
    ],
    ids=["quiet host", "read late", "counted late"],
)
def test_steady_rate_leaves_the_ramp_out_and_no_byte_after_it(
    late: list[tuple[float, int]],
) -> None:
    ramp = [(0.1, 0), (0.1, 0), (0.1, 120_000), (0.1, 237_500)]
    intervals = [{"sum": {"seconds": seconds, "bytes": count}} for seconds, count in (*ramp, *late)]
    assert link_probe.steady_rate_bps({"intervals": intervals}) == pytest.approx(19e6)


def test_a_flow_without_intervals_has_no_rate() -> None:
    assert link_probe.steady_rate_bps({}) is None


# --- programs -------------------------------------------------------------------------------------

HERE = NamespaceShell(cast(Any, SimpleNamespace(enter_argv=lambda _: ["env"])))
LISTEN = "import socket, time\nwith socket.create_server(('127.0.0.1', {port})): time.sleep(20)"


def test_a_program_without_an_answer_in_time_is_an_error() -> None:
    assert HERE.output("client", ["echo", "x"], 5) == "x\n"
    assert HERE.output("client", ["sh", "-c", "echo y; exit 1"], 5) == "y\n"
    with pytest.raises(ProbeError, match="no answer within"):
        HERE.output("client", ["sleep", "5"], 0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_listener_is_there_when_its_block_begins_and_gone_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This one ignores SIGTERM."""
    port = free_port()
    script = (
        f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{LISTEN.format(port=port)}"
    )
    monkeypatch.setattr(link_probe, "listener_argv", lambda _: [sys.executable, "-c", script])
    monkeypatch.setattr(link_probe, "PROBE_PORT", port)
    monkeypatch.setattr(link_probe, "END_S", 0.1)
    with HERE.listener("server", "127.0.0.1"):
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("command", ["import time; time.sleep(20)", "pass", LISTEN])
def test_a_listener_on_another_port_or_one_that_ended_is_none(command: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", command.format(port=free_port())])
    try:
        with pytest.raises(ProbeError, match="nothing listens"):
            link_probe.wait_for_listener(process, free_port(), deadline_s=0.5)
    finally:
        processes.finish(process, 1)


def test_a_connection_from_a_port_is_not_a_listener() -> None:
    process = subprocess.Popen(["sleep", "20"])
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(
                server.getsockname(), source_address=("127.0.0.1", 0)
            ) as client,
            pytest.raises(ProbeError, match="nothing listens"),
        ):
            link_probe.wait_for_listener(process, client.getsockname()[1], deadline_s=0.1)
    finally:
        processes.finish(process, 1)
