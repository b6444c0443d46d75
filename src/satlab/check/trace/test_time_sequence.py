# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from satlab.check.trace import time_sequence
from satlab.check.trace.time_sequence import Flow, Recorder, StreamRange


def test_packets_are_followed_from_sending_to_acknowledgement() -> None:
    record = Recorder()
    record.sent(0.0, 0, 1200, [StreamRange(0.0, 0.0, 1000.0)])
    record.sent(0.1, 1, 1200, [StreamRange(0.0, 1000.0, 1000.0)])
    record.sent(0.2, 2, 1200, [StreamRange(4.0, 0.0, 500.0)])
    record.acknowledged(0.7, 1, 2)
    assert record.ack_ms() == pytest.approx(550) and record.ack_ms() is None
    record.lost(0.8, 0)
    record.sent(0.9, 3, 1200, [StreamRange(0.0, 0.0, 1000.0)])
    record.acknowledged(1.5, 0, 3)  # all of them, also the one that was declared lost
    assert record.ack_ms() == pytest.approx((1500 + 600) / 2)
    first, second = record.flows()
    assert (first.name, second.name) == ("stream 0", "stream 4")
    assert first.sent == [(0.0, 1000), (0.1, 2000)] and first.size == 2000
    assert first.acknowledged == [(0.7, 2000)]
    assert (first.lost, first.retransmitted) == ([(0.8, 0)], [(0.9, 0)])
    assert record.acked_bytes == 4800


def test_packets_without_streams_are_one_flow() -> None:
    record = Recorder()
    for number in range(3):
        record.sent(number / 10, number, 1000, [])
    record.acknowledged(1.0, 0, 1)
    [flow] = record.flows()
    assert flow.name == "all packets" and flow.size == 3000
    assert flow.acknowledged == [(1.0, 2000)] and not flow.retransmitted


def test_the_largest_flows_are_kept_in_their_order() -> None:
    record = Recorder()
    for stream in range(20):
        record.sent(0.0, stream, 100, [StreamRange(4.0 * stream, 0.0, 100.0 + stream % 7)])
    names = [flow.name for flow in record.flows()]
    assert names == [f"stream {4 * stream}" for stream in (4, 5, 6, 12, 13, 19)]


def test_streams_for_control_are_left_out() -> None:
    record = Recorder()
    record.sent(0.0, 0, 20, [StreamRange(3.0, 0.0, 9.0)])
    record.sent(0.0, 1, 1000, [StreamRange(0.0, 0.0, 1000.0)])
    assert [flow.name for flow in record.flows()] == ["stream 0"]


def test_a_line_only_rises_and_keeps_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    line: list[time_sequence.Point] = []
    for step in range(1000):
        time_sequence.rise(line, step / 1000, step)
        time_sequence.rise(line, step / 1000, 0)
    assert 90 < len(line) < 120 and line[0] == (0.0, 0) and line[-1] == (0.999, 999)
    monkeypatch.setattr(time_sequence, "MAX_POINTS", 100)
    marks: list[time_sequence.Point] = []
    for step in range(1000):
        time_sequence.mark(marks, step, step)
    assert 50 <= len(marks) <= 100 and marks[0] == (0, 0) and marks[-1] == (999, 999)


def test_what_is_in_flight_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_sequence, "MAX_IN_FLIGHT", 10)
    monkeypatch.setattr(time_sequence, "MAX_STREAMS", 4)
    record = Recorder()
    for number in range(100):
        record.sent(0.0, number, 100, [StreamRange(4.0 * number, 0.0, 10.0)])
    record.acknowledged(1.0, 0, 99)
    assert record.acked_bytes == 1000 and len(record.flows()) == 3


def test_a_flow_moves_to_another_clock() -> None:
    flow = Flow("a", [(1.0, 2.0)], lost=[(3.0, 4.0)]).shifted(0.5)
    assert (flow.sent, flow.lost) == ([(1.5, 2.0)], [(3.5, 4.0)])
