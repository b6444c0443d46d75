# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check.samples import Sample
from satlab.check.trace import trace_reader

PLAN: Any = SimpleNamespace(
    rtt_ms=SimpleNamespace(max=655.0),
    forward=SimpleNamespace(rate_bps=10e6, udp_goodput_bps=9.5e6),
    return_=SimpleNamespace(rate_bps=1e6, udp_goodput_bps=0.9e6),
)


CASE: Any = SimpleNamespace(
    id="a", direction="download", second_after_s=None, jitter_ms=None, reorder=None, changes=()
)


def start(side: str, role: str, t_unix_s: float) -> dict[str, Any]:
    return {"type": "start", "side": side, "role": role, "t_unix_s": t_unix_s}


def interval(side: str, t_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "type": "interval",
        "side": side,
        "t_s": t_s,
        "cwnd_bytes": 100_000,
        "in_flight_bytes": 99_000,
        "rtt_ms": 650.0,
        "slow_start": True,
        "app_limited": False,
        "handed": False,
        "lost_packets": 0,
    } | changes


def summary(side: str, **figures: Any) -> dict[str, Any]:
    return {
        "type": "summary",
        "side": side,
        "t_s": 9.0,
        "handshake_ms": 650.0,
        "bytes": 0,
        "goodput_bps": None,
    } | figures


def grown(step: int) -> dict[str, Any]:
    """Return a full window that grows."""
    return {"cwnd_bytes": 100_000 + 500 * step, "in_flight_bytes": 99_000 + 500 * step}


def download(**changes: Any) -> list[dict[str, Any]]:
    """Return 1 MB until 4 s of the client's time; the server begins 0.3 s later and sends from 0.9
    s on.
    """
    sent = [interval("server", 0.6 + step / 10, **grown(step) | changes) for step in range(30)]
    return [
        start("client", "receiver", 1000.0),
        start("server", "sender", 1000.3),
        *sent,
        summary("server"),
        summary("client", bytes=1_000_000, goodput_bps=2e6),
    ]


def link(forward: int, back: int, released: int = 0) -> list[dict[str, Any]]:
    """Return samples with queues of so many bytes, and so many bytes released by each link in each
    0.1 s.
    """
    times = [1000 + step / 10 for step in range(45)]
    return [
        {"type": "header"},
        *(
            {
                "type": "sample",
                "t_unix_s": t,
                "forward": {"queue_bytes": forward, "out_bytes": released},
                "return": {"queue_bytes": back, "out_bytes": released},
            }
            for t in times
        ),
    ]


def spent(lines: list[dict[str, Any]], forward: int = 0, back: int = 0) -> dict[str, Any]:
    trace = trace_reader.of_satperf(lines, link(forward, back), PLAN)
    assert trace is not None
    return {cause: pytest.approx(time) for cause, time in trace.spent_s().items() if time}


def test_a_download_s_time_is_the_client_s() -> None:
    assert spent(download()) == {"handshake": 0.9, "slow start": 3.1}


def test_queues_are_times_of_their_links() -> None:
    # 20 ms at 10 Mbit/s.
    assert spent(download(), forward=25_000) == {"handshake": 0.9, "link": 3.1}
    # 1.6 and 16 ms.
    assert spent(download(), forward=2_000, back=2_000) == {"handshake": 0.9, "ack link": 3.1}


def test_a_link_that_carries_its_capacity_without_a_queue_is_the_cause() -> None:
    """9.5 Mbit/s of UDP payload are 9.68 Mbit/s of IP packets: 121 kB in 0.1 s."""
    for released, main in ((120_000, "link"), (90_000, "slow start")):
        trace = trace_reader.of_satperf(download(), link(0, 0, released), PLAN)
        assert trace is not None and max(trace.spent_s(), key=trace.spent_s().__getitem__) == main


def test_a_sender_without_credit_and_one_without_cpu_are_distinguished() -> None:
    assert "flow control" in spent(download(app_limited=True, in_flight_bytes=50_000))
    assert "delivery" in spent(download(app_limited=True, in_flight_bytes=50_000, handed=True))
    assert "host" in spent(download(in_flight_bytes=20_000))


def test_a_loss_limits_the_window_from_then_on() -> None:
    lines = download()
    lines[12] |= {"lost_packets": 1}  # the interval until 1.6 s by the server's clock
    assert spent(lines) == {"handshake": 0.9, "slow start": 0.9, "loss recovery": 2.2}


def test_queues_are_those_of_the_time() -> None:
    samples = [
        one
        | (
            {"forward": {"queue_bytes": 25_000, "out_bytes": 0}}
            if one.get("t_unix_s", 0) > 1002
            else {}
        )
        for one in link(0, 0)
    ]
    trace = trace_reader.of_satperf(download(), samples, PLAN)
    assert trace is not None and trace.spent_s()["link"] == pytest.approx(1.9, abs=0.11)


def test_an_upload_is_sent_once_the_client_s_handshake_is_complete() -> None:
    sent = [interval("client", step / 10) for step in range(1, 40)]
    lines = [
        start("client", "sender", 1000.0),
        start("server", "receiver", 1000.5),
        *sent,
        summary("client"),
        summary("server", bytes=1_000_000, goodput_bps=2e6),
    ]
    assert spent(lines, back=5_000) == {"handshake": 0.65, "link": 3.85}
    lines[-2]["handshake_ms"] = None
    assert spent(lines, back=5_000) == {"unknown": 4.5}


def test_a_server_s_qlog_is_judged_with_the_link_s_queues() -> None:
    def point(t_s: float, supply: str, in_flight: int, lost: int) -> dict[str, Any]:
        return {
            "t_s": t_s,
            "cwnd_bytes": 100_000,
            "in_flight_bytes": in_flight,
            "is_slow_start": False,
            "rtt_ms": 650.0,
            "lost_packets": lost,
            "supply": supply,
        }

    points = [
        point(1.0, "slow", 99_000, 0),
        point(2.0, "blocked", 60_000, 0),
        point(3.0, "slow", 99_000, 1),
        point(3.5, "done", 20_000, 1),
    ]
    document = {"start_unix_s": 1000.0, "asked_s": 0.9, "end_s": 4.0, "points": points}
    spent_s = trace_reader.of_qlog(document, link(0, 0), PLAN).spent_s()
    assert {cause: time for cause, time in spent_s.items() if time} == pytest.approx(
        {
            "handshake": 0.9,
            "congestion avoidance": 0.1,
            "flow control": 1.0,
            "loss recovery": 1.0,
            "delivery": 1.0,
        }
    )
    assert trace_reader.of_qlog(document, link(25_000, 0), PLAN).spent_s()["link"] == pytest.approx(
        3.1
    )


def outcome(**transfer: Any) -> dict[str, Any]:
    """Return the outcome of a download of 4 s whose sender declared four packets lost."""
    usual = {"started_s": 0.5, "duration_s": 4.0, "handshake_ms": 650.0, "asked_ms": 900.0}
    sample = {
        "handshaking": False,
        "slow_start": True,
        "app_limited": False,
        "supply": "slow",
        "rtt_ms": 650.0,
        "lost_packets": 4,
        "pacing_bps": None,
        "received_bytes": 0,
        "sent_bytes": 0,
        "acked_bytes": None,
        "ack_ms": None,
        "forward_queue_ms": 0.0,
        "return_queue_ms": 0.0,
        "forward_out_bytes": 0,
        "return_out_bytes": 0,
        "forward_dropped_packets": 0,
        "forward_lost_packets": 0,
        "return_dropped_packets": 0,
        "return_lost_packets": 0,
    }
    names = ("forward", "return", "terrestrial_down", "terrestrial_up")
    return {
        "request": {"direction": "download"},
        "transfers": [usual | transfer],
        "samples": [sample | grown(step) | {"t_s": 0.5 + step / 10} for step in range(1, 40)],
        "link": [{"name": name, "dropped_packets": 0, "lost_packets": 0} for name in names],
    }


def virtual(document: dict[str, Any]) -> dict[str, Any]:
    spent_s = trace_reader.of_outcome(document, PLAN, CASE).spent_s()
    return {cause: pytest.approx(time) for cause, time in spent_s.items() if time}


def test_losses_that_the_link_did_not_have_are_spurious() -> None:
    assert virtual(outcome()) == {"handshake": 0.9, "spurious loss": 3.1}
    for direction, cause in (("return", "spurious loss"), ("forward", "loss recovery")):
        document = outcome()
        ways = {direction, "terrestrial_down" if direction == "forward" else "terrestrial_up"}
        for one in document["link"]:
            one["dropped_packets"] = int(one["name"] in ways)
        assert virtual(document) == {"handshake": 0.9, cause: 3.1}


def late(document: dict[str, Any], case: Any = CASE) -> float:
    return trace_reader.of_outcome(document, PLAN, case).spent_s()["late acks"]


def test_acknowledgements_that_path_and_queues_do_not_explain_are_late() -> None:
    """Of 900 ms each round trip, 245 ms of 2.1 s: a round trip and a half after the request."""
    for name in ("ack_ms", "rtt_ms"):  # the RTT where times until acknowledgements are unknown
        document = outcome()
        for sample in document["samples"]:
            sample[name] = 900.0
        assert late(document) == pytest.approx(2.1 * 245 / 900, abs=0.25)
        document["samples"][10]["forward_queue_ms"] = 9.0  # not enough to explain it
        assert late(document)
        for sample in document["samples"][::15]:  # a queue explains it for some round trips
            sample["return_queue_ms"] = 200.0
        assert not late(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter_ms": 100.0},
        {"reorder": SimpleNamespace(ms=100.0)},
        {"changes": (SimpleNamespace(rtt_ms=850.0), SimpleNamespace(rtt_ms=None))},
    ],
)
def test_what_the_case_asks_for_is_not_late(changes: dict[str, Any]) -> None:
    document = outcome()
    for sample in document["samples"]:
        sample["ack_ms"] = 900.0
    assert late(document) and not late(document, SimpleNamespace(**vars(CASE) | changes))


def test_an_acknowledgement_is_known_for_two_round_trips() -> None:
    document = outcome()
    document["samples"][0]["ack_ms"] = document["samples"][19]["ack_ms"] = 900.0
    trace = trace_reader.of_outcome(document, PLAN, CASE)
    # Those of the handshake are left out.
    assert {state.late_ms for state in trace.states if not 1.95 < state.t_s < 3.85} == {0.0}
    assert {state.late_ms for state in trace.states if 1.95 < state.t_s < 3.85} == {245.0}


def test_an_acknowledgement_may_be_50_ms_late_and_a_round_trip_time_100_ms() -> None:
    for name, most in (("ack_ms", 50), ("rtt_ms", 100)):
        for more, is_late in ((most - 5, False), (most + 5, True)):
            document = outcome()
            for sample in document["samples"]:
                sample[name] = 655.0 + more
            assert bool(late(document)) == is_late


def test_a_transfer_has_its_flow_and_what_the_link_lost() -> None:
    document = outcome(started_s=0.5)
    for number, sample in enumerate(document["samples"]):
        sample |= {
            "sent_bytes": 2000 * number,
            "acked_bytes": 1000 * number,
            "received_bytes": 1500 * number,
            "lost_packets": int(number >= 5),
            "forward_dropped_packets": 3 * (number >= 7),
            "forward_lost_packets": number >= 9,
        }
    trace = trace_reader.of_outcome(document, PLAN, CASE)
    [flow] = trace.flows
    assert flow.sent[-1] == pytest.approx((3.9, 76_000)) and flow.size == 76_000
    assert flow.acknowledged[-1][1] == 38_000 and flow.arrived[-1][1] == 57_000
    [lost] = flow.lost
    dropped, on_the_link = trace.link_losses
    assert lost == pytest.approx((0.6, 5_000))
    assert dropped == pytest.approx((0.8, 3, 0)) and on_the_link == pytest.approx((1.0, 0, 1))
    assert trace.began_s == 0


def test_satperf_s_lines_have_their_flow() -> None:
    lines = download(lost_packets=0)
    for number, line in enumerate(lines[2:-2], 1):
        line |= {"sent_bytes": 3000 * number, "acked_bytes": 1000 * number, "ack_ms": 660.0}
    lines.insert(3, interval("client", 2.0, bytes=500))
    lines.insert(4, interval("client", 2.1, bytes=700))
    samples = link(0, 0)
    samples[20]["forward"] |= {"dropped_packets": 2, "lost_packets": 1}
    trace = trace_reader.of_satperf(lines, samples, PLAN)
    assert trace is not None
    [flow] = trace.flows
    assert flow.sent[0] == pytest.approx((0.9, 3000)) and flow.sent[-1][1] == 90_000
    assert flow.arrived == [(2.0, 500), (2.1, 1200)]
    [lost] = trace.link_losses
    assert lost == pytest.approx((1.9, 2, 1))
    older = trace_reader.of_satperf(download(), link(0, 0), PLAN)
    assert older is not None and not older.flows


def test_a_second_connection_without_states_is_unknown_from_its_request_on() -> None:
    later = outcome(started_s=90.0)
    assert virtual(later) == {"handshake": 0.9, "unknown": 3.1}
    assert virtual(outcome(asked_ms=None)) == {"unknown": 4.0}
    assert virtual(outcome(asked_ms=None, handshake_ms=None)) == {"handshake": 4.0}


def test_under_the_virtual_clock_a_sender_with_room_is_idle() -> None:
    document = outcome()
    for sample in document["samples"]:
        sample["in_flight_bytes"] = 10_000
    assert "idle" in virtual(document) and "host" not in virtual(document)


def test_files_without_the_sender_s_states_are_no_trace(tmp_path: Path) -> None:
    assert trace_reader.of_satperf(download(in_flight_bytes=None), [], PLAN) is None  # quiche
    assert trace_reader.of_satperf(download()[:-2], [], PLAN) is None
    assert trace_reader.of_satperf([], [], PLAN) is None
    sample = Sample("a", 1, "ok", "", (4.0,))
    assert trace_reader.read(tmp_path, CASE, sample, PLAN) is None
    (tmp_path / "a-1" / "client").mkdir(parents=True)
    for number, lines in enumerate(([], download())):  # two connections: the last one is the sample
        file = tmp_path / "a-1" / "client" / f"client-{number}.jsonl"
        file.write_text("\n".join(map(json.dumps, lines)))
    trace = trace_reader.read(tmp_path, CASE, sample, PLAN)
    assert trace is not None and trace.end_s == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("lost_by", "cause"),
    [
        ("lost", "loss recovery"),
        ("by_host", "host"),
        ("dropped", "loss recovery"),
        ("spurious", "spurious loss"),
    ],
)
def test_a_window_that_shrank_for_what_the_host_lost_is_the_host_s(
    lost_by: str, cause: str, tmp_path: Path
) -> None:
    """The same states of a sender: who lost the packets decides."""
    (tmp_path / "a-1" / "client").mkdir(parents=True)
    lines = "\n".join(map(json.dumps, download(lost_packets=1)))
    (tmp_path / "a-1" / "client" / "client-0.jsonl").write_text(lines)
    sample = Sample("a", 1, "ok", "", (4.0,), ledgers={"forward": {lost_by: 30}})
    trace = trace_reader.read(tmp_path, CASE, sample, PLAN)
    assert trace is not None
    assert {name: time for name, time in trace.spent_s().items() if time} == {
        "handshake": pytest.approx(0.9),
        cause: pytest.approx(3.1),
    }
