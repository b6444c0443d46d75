# SPDX-License-Identifier: GPL-3.0-or-later
"""qlog files: three programs' forms are read alike; broken, too large and hostile files are
refused.
"""

import codecs
import gzip
import json
import os
import random
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from satlab.check.endpoint.pair import CLIENT, SERVER
from satlab.check.samples import Sample, UnusedSource
from satlab.check.trace import qlog, qlog_figures, qlog_process, qlog_records, qlog_transfer
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram
from satlab.check.trace.pcap import UDP
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.qlog_transfer import Counts, QlogTransfer

SIZE = 3000
PACKETS = ((100, 0, 1000), (101, 1000, 1000), (700, 0, 1000), (701, 2000, 1000))
"""Time in ms, offset and length of what a server sends on stream 0: the first 1000 bytes twice."""
HEAD: dict[str, Any] = {
    "qlog_version": "0.3",
    "qlog_format": "JSON-SEQ",
    "trace": {"vantage_point": {"type": "server"}},
}


def ngtcp2() -> list[dict[str, Any]]:
    """Return the records of a server as ngtcp2 writes them."""
    limits = {
        "owner": "remote",
        "initial_max_data": 1 << 20,
        "initial_max_stream_data_bidi_local": 2000,
    }
    metrics = {"smoothed_rtt": 650, "congestion_window": 12000, "bytes_in_flight": 11000}
    credit = {"frame_type": "max_stream_data", "stream_id": 0, "maximum": 1 << 20}
    return [
        {"time": 0, "name": "transport:parameters_set", "data": limits},
        {"time": 0, "name": "transport:packet_received", "data": packet("initial")},
        {"time": 90, "name": "transport:packet_received", "data": packet("1RTT", stream(0, 70))},
        {"time": 95, "name": "recovery:metrics_updated", "data": metrics},
        *(sent(*one) for one in PACKETS[:2]),
        {"time": 300, "name": "transport:packet_received", "data": packet("1RTT", credit)},
        {"time": 600, "name": "recovery:packet_lost", "data": {"header": {"packet_number": 0}}},
        *(sent(*one) for one in PACKETS[2:]),
        {
            "time": 800,
            "name": "recovery:metrics_updated",
            "data": {"bytes_in_flight": 0, "ssthresh": 6000},
        },
    ]


def stream(offset: int, length: int) -> dict[str, Any]:
    return {"frame_type": "stream", "stream_id": 0, "offset": offset, "length": length}


def packet(kind: str, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"header": {"packet_type": kind}, "frames": list(frames)}


def sent(time: int, offset: int, length: int) -> dict[str, Any]:
    return {
        "time": time,
        "name": "transport:packet_sent",
        "data": packet("1RTT", stream(offset, length)),
    }


def quiche() -> list[dict[str, Any]]:
    """Return the same as quiche writes it: other schema names, lengths in `raw`, no threshold as
    2^64 - 1.
    """
    records: list[dict[str, Any]] = json.loads(json.dumps(ngtcp2()))
    for record in records:
        name, data = record["name"].partition(":")[2], record["data"]
        record["name"] = f"quic:{name.replace('metrics_updated', 'recovery_metrics_updated')}"
        if "owner" in data:
            data["initiator"] = data.pop("owner")
        for frame in data.get("frames", []):
            if "length" in frame:
                frame["raw"] = {"payload_length": frame.pop("length")}
    records.insert(
        3,
        {
            "time": 90.5,
            "name": "quic:recovery_metrics_updated",
            "data": {"ssthresh": (1 << 64) - 1},
        },
    )
    return records


def picoquic() -> dict[str, Any]:
    """Return the same as picoquic writes it: one document, events as arrays, times in microseconds."""
    events = []
    for record in json.loads(json.dumps(ngtcp2())):
        category, _, name = record["name"].partition(":")
        data = record["data"]
        if "congestion_window" in data:
            data["cwnd"] = data.pop("congestion_window")
            data["smoothed_rtt"] *= 1000
        for frame in data.get("frames", []):
            if frame["frame_type"] == "stream":
                frame["id"] = frame.pop("stream_id")
        if "header" in data:
            data["packet_type"] = data["header"].pop("packet_type", "1RTT")
        events.append([record["time"] * 1000, category, name, data])
    trace = {
        "vantage_point": {"name": "backend-67", "type": "server"},
        "configuration": {"time_units": "us"},
        "event_fields": ["relative_time", "category", "event", "data"],
        "events": events,
    }
    return {"qlog_version": "draft-00", "title": "picoquic", "traces": [trace]}


def sequence(records: list[dict[str, Any]], head: dict[str, Any] = HEAD) -> bytes:
    return b"".join(b"\x1e" + json.dumps(one).encode() + b"\n" for one in (head, *records))


def read(folder: Path, data: bytes, name: str = "x.sqlog", size: int = SIZE) -> QlogTransfer:
    (folder / name).write_bytes(data)
    return qlog_transfer.read(qlog.opened(folder / name), size)


@pytest.mark.parametrize("program", ["ngtcp2", "quiche", "picoquic"])
@pytest.mark.promise("P79")
def test_the_forms_of_three_programs_are_read_alike(program: str, tmp_path: Path) -> None:
    if program == "picoquic":
        found = read(tmp_path, json.dumps(picoquic()).encode(), "x.qlog")
    else:
        found = read(tmp_path, sequence(ngtcp2() if program == "ngtcp2" else quiche()))
    assert found.first_received_s == 0
    assert found.first_short_received_s == 0.09
    assert found.first_stream_received_s == 0.09
    assert found.first_sent_s == 0.1
    assert (found.sent_packets, found.lost_packets, found.retransmitted_share) == (4, 1, 0.25)
    assert [(one.t_s, one.supply, one.lost_packets) for one in found.points[-3:]] == [
        (0.6, "slow", 1),
        (0.701, "done", 1),
        (0.8, "done", 1),
    ]
    # The stream's credit of 2000 bytes, until 300 ms.
    assert "blocked" in [one.supply for one in found.points]
    assert [one.is_slow_start for one in found.points[:-1]] == [True] * (len(found.points) - 1)
    assert {(one.cwnd_bytes, one.rtt_ms) for one in found.points} == {(12000, 650)}


@pytest.mark.parametrize("kind", ["1RTT", "UNKNOWN"])
def test_the_flows_of_a_server_are_in_its_file(kind: str, tmp_path: Path) -> None:
    """Packets 0 to 3; an ACK of 1 and, as text, of 2 to 3. A file that quic-trace's converter made
    does not know the types of received packets.
    """
    records = ngtcp2()
    numbers = iter(range(4))
    for record in records:
        if record["name"] == "transport:packet_sent":
            record["data"]["header"]["packet_number"] = next(numbers)
    acks = {"frame_type": "ack", "acked_ranges": [[1], ["2", "3"], "x", [None]]}
    records.append({"time": 1400, "name": "transport:packet_received", "data": packet(kind, acks)})
    records.append({"time": 1500, "name": "recovery:metrics_updated", "data": {"ssthresh": 1}})
    found = read(tmp_path, sequence(records))
    [flow] = found.flows
    assert flow.name == "stream 0" and flow.sent == [(0.1, 1000), (0.101, 2000), (0.701, 3000)]
    assert flow.acknowledged == [(1.4, 3000)]
    assert (flow.lost, flow.retransmitted) == ([(0.6, 0)], [(0.7, 0)])
    # 1.3, 0.7 and 0.7 s.
    times_ms = [one.ack_ms for one in found.points if one.ack_ms is not None]
    assert times_ms == [pytest.approx(900, abs=1)]


def test_a_retransmission_without_a_logged_loss_is_a_loss(tmp_path: Path) -> None:
    found = read(
        tmp_path, sequence([one for one in ngtcp2() if one["name"] != "recovery:packet_lost"])
    )
    assert found.lost_packets == 0
    assert found.reported_lost_packets is None
    assert found.retransmitted_share == 0.25
    assert [one.lost_packets for one in found.points[-2:]] == [1, 1]
    assert not found.points[0].lost_packets


def test_a_threshold_below_the_window_ends_slow_start(tmp_path: Path) -> None:
    more = {"time": 900, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 0}}
    found = read(tmp_path, sequence([*ngtcp2(), more]))
    assert [one.is_slow_start for one in found.points[-2:]] == [False, False]


@pytest.mark.parametrize("name", ["delta", "relative_to_previous_event"])
def test_times_since_the_previous_event_are_added_up(name: str, tmp_path: Path) -> None:
    way = {"trace": {"vantage_point": {"type": "client"}, "common_fields": {"time_format": name}}}
    steps = [{"time": 100, "name": "x"}, {"time": 50, "name": "y"}]
    (tmp_path / "x.sqlog").write_bytes(sequence(steps, way))
    assert [one.t_s for one in qlog.opened(tmp_path / "x.sqlog").events] == pytest.approx(
        [0.0, 0.05]
    )
    (tmp_path / "x.sqlog").write_bytes(sequence(steps))
    assert [one.t_s for one in qlog.opened(tmp_path / "x.sqlog").events] == [0.0, 0.0]


def test_array_events_may_name_their_type_event_type(tmp_path: Path) -> None:
    document = picoquic()
    document["traces"][0]["event_fields"][2] = "event_type"
    assert read(tmp_path, json.dumps(document).encode(), "x.qlog").sent_packets == 4


def test_lines_without_separators_are_a_sequence_by_their_name(tmp_path: Path) -> None:
    assert read(tmp_path, sequence(ngtcp2()).replace(b"\x1e", b"")).sent_packets == 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ((1 << 53) - 1, 2.0**53 - 1),
        (1 << 53, None),
        (-1, None),
        (True, None),
        ("1", 1.0),
        ("0012.50", 12.5),
        ("18446744073709551615", None),
        ("1" * 21, None),
        ("-1", None),
        ("1e5", None),
        ("0x10", None),
        (" 1", None),
        ("", None),
        ("\u0661", None),
    ],
)
def test_numbers_are_finite_and_positive(value: Any, expected: float | None) -> None:
    assert qlog.number({"a": value}, "a") == expected and qlog.number([value], "a") is None


def supply(folder: Path, *events: tuple[str, dict[str, Any]], size: int = 10_000) -> str:
    """Return the supply of a server after events, 10 ms apart, and 1000 bytes on stream 0 at first."""
    metrics = {"congestion_window": 12_000, "bytes_in_flight": 1000}
    first = ("metrics_updated", metrics), ("packet_sent", packet("1RTT", stream(0, 1000)))
    records = [
        {"time": 10 * n, "name": name, "data": data}
        for n, (name, data) in enumerate((*first, *events))
    ]
    return read(folder, sequence(records), size=size).points[-1].supply


def peer(**limits: int) -> tuple[str, dict[str, Any]]:
    unlimited = {"initial_max_data": 1 << 20, "initial_max_stream_data_bidi_local": 1 << 20}
    return "parameters_set", {"owner": "remote"} | unlimited | {
        f"initial_max_{key}": value for key, value in limits.items()
    }


def frames(kind: str, *each: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return kind, packet("1RTT", *each)


ON_STREAM_1, ON_STREAM_3 = ({**stream(0, 1000), "stream_id": number} for number in (1, 3))
CREDIT = {"frame_type": "max_data"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([peer()], "slow"),
        ([peer(data=2000)], "blocked"),
        ([peer(stream_data_bidi_local=2000)], "blocked"),
        ([peer(stream_data_bidi_remote=2000, stream_data_uni=2000)], "slow"),
        ([peer(stream_data_bidi_remote=2000), frames("packet_sent", ON_STREAM_1)], "blocked"),
        ([peer(stream_data_uni=2000), frames("packet_sent", ON_STREAM_3)], "blocked"),
        ([("parameters_set", {"owner": "local", "initial_max_data": 2000})], "slow"),
        (
            [
                peer(data=2000),
                frames("packet_received", CREDIT | {"maximum": 9000}, CREDIT | {"maximum": 2100}),
            ],
            "slow",
        ),
    ],
)
def test_credit_is_that_of_the_peer_for_the_kind_of_stream(
    events: list[tuple[str, dict[str, Any]]], expected: str, tmp_path: Path
) -> None:
    assert supply(tmp_path, *events) == expected


def requests(folder: Path, *events: tuple[float, str, dict[str, Any]]) -> qlog_transfer.SenderPoint:
    """Return the last state of a server with a round trip of 0.6 s that allowed 2 streams at
    first; events at s.
    """
    metrics = {"congestion_window": 12_000, "bytes_in_flight": 0, "smoothed_rtt": 600}
    first = (
        (0.0, "parameters_set", {"owner": "local", "initial_max_streams_bidi": 2}),
        (0.0, "metrics_updated", metrics),
    )
    records = [
        {"time": 1e3 * t_s, "name": name, "data": data} for t_s, name, data in (*first, *events)
    ]
    return read(folder, sequence(records), size=10_000).points[-1]


def asked(t_s: float, number: int) -> tuple[float, str, dict[str, Any]]:
    request = {**stream(0, 20), "stream_id": 4 * number}
    return t_s, "packet_received", packet("1RTT", request)


def answered(
    t_s: float, number: int, *, is_whole: bool = True
) -> tuple[float, str, dict[str, Any]]:
    answer = {**stream(0, 32), "stream_id": 4 * number, "fin": is_whole}
    return t_s, "packet_sent", packet("1RTT", answer)


def streams(kind: str, t_s: float, **fields: Any) -> tuple[float, str, dict[str, Any]]:
    """Return a frame that allows streams, or one that says that they lack."""
    name = "packet_sent" if kind == "max_streams" else "packet_received"
    frame = {"frame_type": kind, "stream_type": "bidirectional", **fields}
    return t_s, name, packet("1RTT", frame)


ANSWERED = (asked(1, 0), answered(1.1, 0), asked(1.2, 1), answered(1.3, 1))


@pytest.mark.parametrize(
    ("events", "supply", "is_app_limited"),
    [
        # The client has asked for two of many files, and may open no third stream.
        (ANSWERED, "blocked", True),
        # What was allowed now reaches the client, and its request the server, a round trip later.
        ((*ANSWERED, streams("max_streams", 1.3, maximum=4), (1.5, "x", {})), "blocked", True),
        ((*ANSWERED, streams("max_streams", 1.3, maximum=4), (2.5, "x", {})), "slow", True),
        # The allowance was lost: the client says that it lacks streams.
        (
            (
                *ANSWERED,
                streams("max_streams", 1.3, maximum=4),
                streams("streams_blocked", 2.4, limit=2),
            ),
            "blocked",
            True,
        ),
        ((streams("max_streams", 0.1, maximum=4), *ANSWERED), "slow", True),
        # One request: a second stream was allowed and not used.
        ((asked(1, 0), answered(1.1, 0)), "slow", True),
        # An answer is not complete: the server has data.
        ((*ANSWERED[:3], answered(1.3, 1, is_whole=False)), "slow", False),
        ((asked(1, 0),), "slow", False),
        # A request that is retransmitted is no new one.
        ((*ANSWERED, asked(1.4, 1)), "blocked", True),
        # More than the file allowed: its frames that allow streams are of an unknown form.
        ((*ANSWERED, asked(1.4, 2), answered(1.5, 2)), "slow", True),
        # Streams were opened in any order: those below exist, too.
        ((asked(1, 1), answered(1.1, 1)), "blocked", True),
    ],
)
def test_a_client_without_stream_credit_is_distinguished_from_one_that_asks_for_nothing(
    events: Any, supply: str, *, is_app_limited: bool, tmp_path: Path
) -> None:
    found = requests(tmp_path, *events)
    assert (found.supply, found.is_app_limited) == (supply, is_app_limited)


def test_many_small_files_wait_for_streams(tmp_path: Path) -> None:
    """20 files of 32 bytes, with headers of as many bytes; two streams at a time, each free after a
    round trip.
    """
    rounds = [
        event
        for number in range(10)
        for event in (
            asked(1 + number, 2 * number),
            asked(1 + number, 2 * number + 1),
            answered(1.01 + number, 2 * number),
            answered(1.01 + number, 2 * number + 1),
            streams("max_streams", 1.6 + number, maximum=2 * number + 4),
        )
    ]
    metrics = {"congestion_window": 12_000, "bytes_in_flight": 0, "smoothed_rtt": 600}
    first = (
        (0.0, "parameters_set", {"owner": "local", "initial_max_streams_bidi": 2}),
        (0.0, "metrics_updated", metrics),
    )
    records = [
        {"time": 1e3 * t_s, "name": name, "data": data} for t_s, name, data in (*first, *rounds)
    ]
    points = read(tmp_path, sequence(records), size=20 * 16).points
    supplies = [one.supply for one in points if one.t_s > 1.01]
    assert supplies.count("blocked") > 20 and supplies[-1] == "done"
    assert "done" not in [one.supply for one in points if one.t_s < 10.0]


def test_a_pause_has_the_state_in_which_it_began(tmp_path: Path) -> None:
    """The interval until a state is judged by it: without a state at the pause's end, the pause
    would be judged by what came after it.
    """
    metrics = [
        {"congestion_window": 12_000, "bytes_in_flight": in_flight} for in_flight in (0, 11_000)
    ]
    records = [
        {"time": time, "name": "metrics_updated", "data": data}
        for time, data in zip((0, 9_000), metrics, strict=True)
    ]
    points = read(tmp_path, sequence(records)).points
    assert [(one.t_s, one.in_flight_bytes) for one in points] == [
        (0.0, 0),
        (9.0, 0),
        (9.0, 11_000),
    ]


def test_retransmissions_do_not_complete_a_transfer(tmp_path: Path) -> None:
    again, more = frames("packet_sent", stream(0, 1000)), frames("packet_sent", stream(1000, 1000))
    assert supply(tmp_path, again, size=2000) == "slow"
    assert supply(tmp_path, again, more, size=2000) == "done"


def test_the_request_is_the_first_data_of_a_request_stream(tmp_path: Path) -> None:
    control, empty = {**stream(0, 9), "stream_id": 2}, stream(0, 0)
    events = [frames("packet_received", frame) for frame in (control, empty, stream(0, 70))]
    records = [
        {"time": 10 * n, "name": name, "data": data} for n, (name, data) in enumerate(events)
    ]
    assert read(tmp_path, sequence(records)).first_stream_received_s == 0.02


def test_the_last_record_may_be_truncated(tmp_path: Path) -> None:
    whole = sequence(ngtcp2())
    assert read(tmp_path, whole[:-30]).sent_packets == 4


def test_a_document_of_any_size_is_read_event_by_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps(picoquic()).encode()
    whole = read(tmp_path, data, "x.qlog")
    monkeypatch.setattr(qlog_records, "CHUNK_BYTES", 64)
    assert read(tmp_path, data, "x.qlog") == whole and whole.sent_packets == 4


def test_a_sequence_is_recognised_by_its_content(tmp_path: Path) -> None:
    """NDJSON under the name of a document, and a document under that of a sequence."""
    whole = read(tmp_path, sequence(ngtcp2()))
    lines = sequence(ngtcp2()).replace(b"\x1e", b"")
    forms = {
        "lines": lines,
        "lines with a mark and CRLF": codecs.BOM_UTF8 + lines.replace(b"\n", b"\r\n"),
        "header without separator": lines[: lines.index(b"\n") + 1]
        + sequence(ngtcp2(), ngtcp2()[0]),
        "no line ends": sequence(ngtcp2()).replace(b"\n", b""),
        "records of several lines": sequence(ngtcp2()).replace(b", ", b",\n "),
    }
    for name, data in forms.items():
        found = read(tmp_path, data, "x.qlog")
        assert found.sent_packets == whole.sent_packets == 4, name
        assert not found.counts.damaged, name
    for text in (json.dumps(picoquic()), json.dumps(picoquic(), indent=1)):
        found = read(tmp_path, text.encode(), "x.sqlog")
        assert found.points == read(tmp_path, text.encode(), "x.qlog").points
        assert found.sent_packets == 4


@pytest.mark.parametrize("junk", [b"{", b"\xff\x00", b'{"time": 95, "name"', b'["a', b"]}", b'"'])
@pytest.mark.parametrize("place", [4, 6, 8])
def test_a_damaged_record_loses_only_itself(junk: bytes, place: int, tmp_path: Path) -> None:
    """The record at `place` is replaced, in each form."""
    kept = ngtcp2()[:place] + ngtcp2()[place + 1 :]
    records = sequence(ngtcp2()).split(b"\x1e")[1:]
    records[place + 1] = junk + b"\n"
    expected = replace(read(tmp_path, sequence(kept)), counts=Counts(damaged=1))
    assert read(tmp_path, b"\x1e" + b"\x1e".join(records)) == expected
    assert read(tmp_path, b"".join(records), "x.qlog") == expected
    document = picoquic()
    events = document["traces"][0]["events"]
    text = json.dumps(document).encode()
    gone = json.dumps(events[place]).encode()
    if junk in (b"]}", b'"'):  # which end the events, or begin a text up to the next one's
        return
    del events[place]
    expected = read(tmp_path, json.dumps(document).encode(), "x.qlog")
    found = read(tmp_path, text.replace(gone, junk), "x.qlog")
    assert found == replace(expected, counts=Counts(damaged=1))


def test_a_damaged_time_changes_no_other_time(tmp_path: Path) -> None:
    whole = read(tmp_path, sequence(ngtcp2()))
    for place in (0, 3, 5, 8, len(ngtcp2()) - 2):
        records = ngtcp2()
        records[place]["time"] += 9_000_000
        found = read(tmp_path, sequence(records))
        assert abs(found.points[-1].t_s - whole.points[-1].t_s) < 0.1, place
        assert found.points[0].t_s == pytest.approx(0.095, abs=0.01), place


def test_a_damaged_record_in_a_large_document_loses_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qlog_records, "CHUNK_BYTES", 64)
    monkeypatch.setattr(qlog_records, "MAX_RECORD_BYTES", 1000)
    text = json.dumps(aioquic(ngtcp2())).encode()
    gone = json.dumps(ngtcp2()[4]).encode()
    for junk in (b'{"time": 95, "name', gone[:-2], gone[:20] + b"\x00" + gone[20:], b"{" * 900):
        found = read(tmp_path, text.replace(gone, junk), "x.qlog")
        assert (found.sent_packets, found.counts) == (3, Counts(damaged=1)), junk
        assert qlog.opened(tmp_path / "x.qlog").side == "server"
    last = json.dumps(ngtcp2()[-1]).encode()
    found = read(tmp_path, text.replace(last, last[:-5]), "x.qlog")
    assert (found.sent_packets, found.counts.damaged) == (4, 1)
    assert qlog.opened(tmp_path / "x.qlog").side == "server"


def aioquic(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a document as aioquic writes it: the vantage point is behind the events."""
    point = {"name": "aioquic", "type": "server"}
    trace = {"common_fields": {"ODCID": "00"}, "events": records, "vantage_point": point}
    return {"qlog_format": "JSON", "qlog_version": "0.3", "traces": [trace]}


def test_a_document_above_16_mib_whose_vantage_point_is_behind_its_events(tmp_path: Path) -> None:
    records = ngtcp2()
    records[8:8] = [
        {"time": 700, "name": "transport:datagrams_sent", "data": {"raw": "0" * 200_000}}
        for _ in range(90)
    ]
    data = json.dumps(aioquic(records)).encode()
    assert len(data) > 17 << 20
    found = read(tmp_path, data, "x.qlog")
    assert (qlog.opened(tmp_path / "x.qlog").side, found.sent_packets) == ("server", 4)
    cut = read(tmp_path, data[:-100], "x.qlog")  # in its last event: nobody says whose it is
    assert (qlog.opened(tmp_path / "x.qlog").side, cut.sent_packets) == (None, 4)
    assert cut.counts == Counts()


def test_a_vantage_point_may_be_unknown_absent_or_of_the_network(tmp_path: Path) -> None:
    for point in ({"type": "unknown"}, {"name": "x"}, {"type": "endpoint"}, None, "server"):
        head: dict[str, Any] = {"qlog_version": "0.3", "trace": {"vantage_point": point}}
        assert read(tmp_path, sequence(ngtcp2(), head)).sent_packets == 4
        assert qlog.opened(tmp_path / "x.sqlog").side is None
    for head in ({"file_schema": "x", "trace": {}}, {"qlog_version": "0.3"}):
        assert read(tmp_path, sequence(ngtcp2(), head)).sent_packets == 4
    (tmp_path / "x.sqlog").write_bytes(
        sequence([], {"trace": {"vantage_point": {"type": "Client"}}})
    )
    assert qlog.opened(tmp_path / "x.sqlog").side == "client"
    (tmp_path / "x.sqlog").write_bytes(
        sequence([], {"trace": {"vantage_point": {"type": "network"}}})
    )
    with pytest.raises(QlogError, match="is the network"):
        qlog.opened(tmp_path / "x.sqlog")


def test_of_several_traces_the_last_one_of_the_side_is_read(tmp_path: Path) -> None:
    def trace(kind: str | None, sent_packets: int) -> dict[str, Any]:
        events = [*ngtcp2()[:4], *(sent(100 + n, 1000 * n, 1000) for n in range(sent_packets))]
        return {"events": events} | ({"vantage_point": {"type": kind}} if kind else {})

    error = {"error_description": "no such file", "uri": "x"}
    for kinds, side, expected in (
        (["server", "client"], "server", 1),
        (["server", "server", "client", "client"], "server", 2),
        (["client", "server", "client"], "client", 3),
        (["client", None, "unknown"], "server", 3),
        (["unknown", "client"], "server", 1),
        (["client", "client"], "server", 2),
        (["server", "client"], None, 2),
    ):
        traces = [trace(kind, count) for count, kind in enumerate(kinds, 1)]
        (tmp_path / "x.qlog").write_text(json.dumps({"traces": [*traces, error]}, indent=2))
        log = qlog.opened(tmp_path / "x.qlog", cast("Any", side))
        assert qlog_transfer.read(log, SIZE).sent_packets == expected, (kinds, side)


def mvfst() -> dict[str, Any]:
    """Return a document as mvfst writes it: times and stream ids are texts, and microseconds of
    the steady clock.
    """
    document = picoquic()
    trace = document["traces"][0]
    trace["common_fields"] = {"reference_time": "0"}
    for event in trace["events"]:
        event[0] = str(98_765_000_000 + event[0])
        for frame in event[3].get("frames", []):
            if "id" in frame:
                frame["stream_id"] = str(frame.pop("id"))
            if "maximum" in frame:
                frame["maximum_data"] = frame.pop("maximum")
        match event[2]:
            case "packet_lost":
                event[2] = "packets_lost"
                event[3] = {"largest_lost_packet_num": 0, "lost_bytes": 1000, "lost_packets": 1}
            case "metrics_updated":
                event[1:3] = ["metric_update", "congestion_metric_update"]
                if "cwnd" in event[3]:
                    event[3]["current_cwnd"] = event[3].pop("cwnd")
    return document


def test_mvfst_s_form_is_read_like_picoquic_s(tmp_path: Path) -> None:
    expected = read(tmp_path, json.dumps(picoquic()).encode(), "x.qlog")
    assert expected.lost_packets == 1 and expected.points
    assert read(tmp_path, json.dumps(mvfst()).encode(), "x.qlog") == expected


def test_integers_may_be_texts(tmp_path: Path) -> None:
    """Also those of frames, metrics and parameters."""

    def texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: texts(one) for name, one in value.items()}
        if isinstance(value, list):
            return [texts(one) for one in value]
        return str(value) if isinstance(value, int) else value

    whole = read(tmp_path, sequence(ngtcp2()))
    assert read(tmp_path, sequence(texts(ngtcp2()))) == whole
    assert read(tmp_path, sequence(texts(quiche()))).points[-1] == whole.points[-1]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_is_read(suffix: str, tmp_path: Path) -> None:
    packed = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    for name, data in (
        ("x.sqlog", sequence(ngtcp2())),
        ("x.qlog", json.dumps(picoquic()).encode()),
        ("x.qlog", json.dumps(mvfst()).encode()),
    ):
        whole = read(tmp_path, data, name)
        assert read(tmp_path, packed(data), name + suffix) == whole
        # A name says nothing, and a file may consist of several members.
        assert read(tmp_path, packed(data[:99]) + packed(data[99:]), name) == whole
    assert qlog.newest(tmp_path) is not None


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_may_be_cut_off_or_damaged(suffix: str, tmp_path: Path) -> None:
    packed = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    records = [sent(n, 1000 * n, 1000) for n in range(3000)]
    # Each part is complete in the file, as if its writer had flushed.
    parts = [packed(sequence(records[:2000])), packed(sequence(records[2000:]).partition(b"\n")[2])]
    cut = read(tmp_path, b"".join(parts)[:-20], "x.sqlog" + suffix, 1 << 30)
    assert 2000 <= cut.sent_packets < 3000 and not cut.counts.damaged
    data = parts[0] + parts[1][:4] + b"\xff" * 400
    found = read(tmp_path, data, "x.sqlog" + suffix, 1 << 30)
    assert 1900 < found.sent_packets <= 2000 and found.counts.damaged == 1
    with pytest.raises(QlogError, match="neither"):
        read(tmp_path, packed(b"x")[:12] + bytes(50), "x.sqlog" + suffix)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_t57_decompression_is_limited(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB of white space in a file of a few KiB."""
    monkeypatch.setattr(qlog_records, "MAX_BYTES", 8 << 20)
    packed = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    for data in (b" " * (16 << 20), sequence([]) + b" " * (16 << 20)):
        (tmp_path / "x").write_bytes(packed(data))
        tracemalloc.start()
        with pytest.raises(QlogError, match="more than 8 MiB"):
            qlog_transfer.read(qlog.opened(tmp_path / "x"), SIZE)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
        tracemalloc.stop()


def test_zstd_needs_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        QlogError, match="needs the Python package zstandard; install it, or switch"
    ):
        read(tmp_path, zstandard.ZstdCompressor().compress(sequence([])), "x.sqlog.zst")


def test_t57_a_record_is_limited_and_only_lost_itself(tmp_path: Path) -> None:
    records = sequence(ngtcp2()).split(b"\x1e")[1:]
    for size in (qlog_records.MAX_RECORD_BYTES, 3 << 20):
        long = b'{"time": 98, "name": "x", "data": {"y": "' + b"z" * size + b'"}}\n'
        for separator in (b"\x1e", b""):
            whole = separator + separator.join([*records[:5], long, *records[5:]])
            found = read(tmp_path, whole)
            assert (found.sent_packets, found.counts) == (4, Counts(damaged=1))


def test_what_is_unknown_is_skipped_and_counted(tmp_path: Path) -> None:
    records = ngtcp2()
    records[0]["data"] |= {"f7c": "", "0x1B": 1}  # a parameter of QUIC that the program logs
    records[3]["data"] |= {"cats": 1, "dogs": {"a": 2}}
    records[10]["data"]["cats"] = 2
    records[5]["data"]["frames"] += [{"frame_type": "stream8"}, {"type": 1}, 7]
    other = {"time": 200, "data": {}}
    records[6:6] = [other | {"name": name} for name in ("quic:cats_fed", "x", "loglevel:info")]
    # An event of another protocol is none of QUIC's, whatever its name is.
    records[6:6] = [sent(200, 0, 9) | {"name": "http3:packet_sent"}]
    found = read(tmp_path, sequence(records))
    assert found.counts == Counts(damaged=0, events=2, fields=2, frames=3)
    assert found.counts.text == " (left out: 2 unknown events, 2 unknown fields, 3 unknown frames)"
    # Names of draft-01, and the frames of extensions that say nothing of a transfer.
    records = ngtcp2()
    records[3]["name"] = "recovery:metric_update"
    records[4]["data"]["frames"] += [{"frame_type": "observed_address"}, {"frame_type": "bdp"}]
    records[6:6] = [{"time": 200, "name": "connectivity:spin_bit_update", "data": {"state": True}}]
    assert read(tmp_path, sequence(records)).counts == Counts()
    known = read(tmp_path, sequence(ngtcp2()))
    assert replace(found, counts=Counts(), points=[]) == replace(known, points=[])
    assert Counts().text == ""


def test_an_event_of_another_protocol_or_of_recovery_sets_no_credit(tmp_path: Path) -> None:
    records = ngtcp2()
    limits = {"owner": "remote", "initial_max_data": 10, "reordering_threshold": 3}
    names = ("http3:parameters_set", "recovery:parameters_set", "quic:recovery_parameters_set")
    records[1:1] = [{"time": 0, "name": name, "data": limits} for name in names]
    assert read(tmp_path, sequence(records)) == read(tmp_path, sequence(ngtcp2()))


CURRENT: dict[str, Any] = {
    "file_schema": "urn:ietf:params:qlog:file:sequential",
    "serialization_format": "application/qlog+json-seq",
    "trace": {
        "vantage_point": {"type": "server"},
        "event_schemas": ["urn:ietf:params:qlog:events:quic-13"],
        "common_fields": {
            "time_format": "relative_to_epoch",
            "reference_time": {"clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z"},
        },
    },
}


def test_times_of_all_drafts_are_read_alike(tmp_path: Path) -> None:
    """Times since an epoch, since the previous event, in microseconds, and a form of an event's
    own.
    """
    whole = read(tmp_path, sequence(ngtcp2()))
    assert [one.t_s for one in whole.points][-1] == 0.8

    def timed(change: Callable[[float, float], float], **common: Any) -> QlogTransfer:
        records, previous = ngtcp2(), 0.0
        for record in records:
            previous, record["time"] = record["time"], change(record["time"], previous)
        head = {**CURRENT, "trace": {**CURRENT["trace"], "common_fields": common}}
        return read(tmp_path, sequence(records, head))

    unix_ms = 1_780_000_000_000
    system = {"clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z"}
    monotonic = {"clock_type": "monotonic", "epoch": "unknown"}
    previous = {"time_format": "relative_to_previous_event"}
    forms = (
        timed(lambda t, _: unix_ms + t, time_format="relative_to_epoch", reference_time=system),
        timed(lambda t, _: unix_ms + t, time_format="absolute"),
        timed(lambda t, _: 7e9 + t, reference_time=monotonic),
        timed(lambda t, _: t, time_format="relative", reference_time=str(unix_ms)),
        timed(lambda t, before: t - before, reference_time=monotonic, **previous),
        timed(lambda t, before: t - before, reference_time=unix_ms, time_format="delta"),
    )
    for number, found in enumerate(forms):
        times = [one.t_s for one in found.points]
        assert times == pytest.approx([one.t_s for one in whole.points], abs=1e-4), number
        assert found.first_stream_received_s == pytest.approx(0.09, abs=1e-4)
        assert (found.sent_packets, found.points[-1].rtt_ms) == (4, 650)
    records = ngtcp2()
    records[4] |= {"time": 5, "time_format": "relative_to_previous_event"}  # 100 ms
    assert read(tmp_path, sequence(records, CURRENT)).first_sent_s == pytest.approx(0.1)
    for record in (records := ngtcp2()):
        record["time"] *= 1000
        if "smoothed_rtt" in record["data"]:
            record["data"]["smoothed_rtt"] *= 1000
    head = {**HEAD, "trace": {**HEAD["trace"], "common_fields": {"time_units": "us"}}}
    assert read(tmp_path, sequence(records, head)).points[-1] == whole.points[-1]


def test_events_of_old_drafts_are_read(tmp_path: Path) -> None:
    """Objects with category and type; arrays with times since the previous event."""
    whole = read(tmp_path, sequence(ngtcp2()))
    objects, arrays, previous = [], [], 0
    for record in ngtcp2():
        category, _, name = record["name"].partition(":")
        rest = {"category": category, "data": record["data"]}
        objects.append({"relative_time": record["time"], "type": name.upper(), **rest})
        arrays.append([record["time"] - previous, category.upper(), name, "", record["data"]])
        previous = record["time"]
    fields = ["delta_time", "CATEGORY", "EVENT_TYPE", "TRIGGER", "DATA"]
    point = {"vantage_point": {"type": "server"}}
    for trace in ({"events": objects}, {"events": arrays, "event_fields": fields}):
        found = read(tmp_path, json.dumps({"traces": [point | trace]}).encode(), "x.qlog")
        assert found.sent_packets == 4 and found.points[-1].cwnd_bytes == 12000
        assert found.first_sent_s == pytest.approx(0.1)
        assert found.points[-1].t_s == pytest.approx(whole.points[-1].t_s)


def test_a_document_may_be_truncated_or_have_several_connections(tmp_path: Path) -> None:
    data = json.dumps(picoquic()).encode()
    last = data.rindex(b"packet_sent")
    cut = read(tmp_path, data[: last + 40], "x.qlog")
    assert cut.sent_packets == 3
    first = picoquic()["traces"][0] | {"events": []}
    two = json.dumps(picoquic() | {"traces": [first, picoquic()["traces"][0]]}).encode()
    assert read(tmp_path, two, "x.qlog").sent_packets == 4


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "broken"),
        (b"\x1e{}\n", "broken"),
        (b"\x1e[]\n", "broken"),
        (sequence([], {"trace": {"vantage_point": {"type": "network"}}}), "broken"),
        (sequence([]) + b"\x1e" + b"[" * 100_000 + b"\n", "broken"),
        (sequence([]) + b"\x1e{\x00\xff}\n", "broken"),
        (json.dumps(picoquic() | {"traces": []}).encode(), "broken"),
        (sequence([{"name": "x"}]), "broken"),
        (sequence([{"time": -1, "name": "x"}]), "broken"),
        (sequence([]) + b'\x1e{"time": 1e999, "name": "x"}\n', "broken"),
        (sequence([]) + b'\x1e{"time": NaN, "name": "x"}\n', "broken"),
        (sequence([]) + b'\x1e{"time": 1' + b"0" * 5000 + b', "name": "x"}\n', "broken"),
        (sequence([]) + b"\x1e" + b"9" * (qlog_records.MAX_RECORD_BYTES + 1) + b"\n", "broken"),
    ],
)
def test_t11_a_broken_or_hostile_file_is_refused(data: bytes, kind: str, tmp_path: Path) -> None:
    with pytest.raises(QlogError) as caught:
        read(tmp_path, data, "x.qlog" if data[:1] == b"{" else "x.sqlog")
    assert caught.value.kind == kind and len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["x.sqlog", "x.qlog"])
def test_t57_the_cpu_time_of_a_file_is_limited(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thousand bytes take their reader 100 s."""
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(qlog_records, "thread_time", lambda: float(next(clock)))
    monkeypatch.setattr(qlog_records, "CHUNK_BYTES", 1000)
    records = [sent(time, 100 * time, 100) for time in range(5000)]
    document = {"traces": [{"vantage_point": {"type": "server"}, "events": records}]}
    data = sequence(records) if name == "x.sqlog" else json.dumps(document).encode()
    with pytest.raises(QlogError, match="more than 120 s of CPU time") as refused:
        read(tmp_path, data, name)
    assert refused.value.kind == "too large"


def test_t11_size_and_events_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.sqlog"
    file.write_bytes(b"")
    os.truncate(file, qlog_records.MAX_BYTES + 1)
    with pytest.raises(QlogError, match="more than 1073741824 bytes"):
        qlog.opened(file)
    monkeypatch.setattr(qlog, "MAX_EVENTS", 5)
    with pytest.raises(QlogError, match="5 events"):
        read(tmp_path, sequence(ngtcp2()))
    monkeypatch.setattr(qlog_transfer, "MAX_POINTS", 2)
    monkeypatch.setattr(qlog, "MAX_EVENTS", 100)
    assert len(read(tmp_path, sequence(ngtcp2())).points) == 2


def test_t11_links_and_devices_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.sqlog").write_bytes(sequence(ngtcp2()))
    folder = tmp_path / "qlog"
    folder.mkdir()
    (folder / "link.sqlog").symlink_to(tmp_path / "real.sqlog")
    os.mkfifo(folder / "pipe.sqlog")
    (folder / "below").symlink_to(tmp_path)
    assert qlog.newest(folder) is None
    assert qlog.newest(folder / "below") is None and qlog.newest(folder / "none") is None
    for name in ("link.sqlog", "pipe.sqlog"):
        with pytest.raises(QlogError):
            qlog.opened(folder / name)


def test_t11_damaged_files_raise_nothing_else(tmp_path: Path) -> None:
    source = random.Random(7)  # noqa: S311 - a test's
    kept = [sequence(ngtcp2()), sequence(quiche()), json.dumps(picoquic()).encode()]
    values = [b"null", b"-1", b"1e308", b"[]", b'"x"', b"{}", b"true", str(1 << 70).encode()]
    read_whole = 0
    for turn in range(800):
        data = bytearray(source.choice(kept))
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(data))
            match source.randrange(8):
                case 0:
                    data[at] = source.randrange(256)
                case 1:
                    del data[at : at + source.randint(1, 20)]
                case _:
                    colon = data.find(b": ", at)
                    end = min(data.find(mark, colon) % (len(data) + 1) for mark in (b",", b"}"))
                    data[colon + 2 : end] = source.choice(values)
        try:
            found = read(tmp_path, bytes(data), "x.sqlog" if turn % 2 else "x.qlog")
        except QlogError:
            continue
        read_whole += 1
        share = found.retransmitted_share
        assert share is None or 0 <= share <= 1
        json.dumps([(one.t_s, one.cwnd_bytes) for one in found.points], allow_nan=False)
    assert 600 < read_whole < 800


# --- joined with packets --------------------------------------------------------------------------


BOTH = (SERVER, CLIENT)


def captured() -> CapturedTransfer:
    """The client's packets of that transfer.

    The server's clock starts 325 ms later: after the delay of the link.
    """
    short = [Datagram(1.1 + n / 10, True, 1250, ("1-rtt",)) for n in range(4)]
    sent = (Datagram(0.0, False, 1200, ("initial",)), Datagram(0.09, False, 90, ("1-rtt",)))
    answer = Datagram(0.05, True, 1200, ("initial",))
    return CapturedTransfer(UDP, (sent[0], answer, sent[1], *short), 1000.0)


INCOMPLETE = Sample("a", 1, "censored", "", (None,))


def joined(
    folder: Path,
    server: bytes | None,
    client: bytes | None = None,
    wire: CapturedTransfer | None = None,
    sample: Sample = INCOMPLETE,
    sides: tuple[str, ...] = BOTH,
) -> Sample:
    """Join qlog files of both endpoints (None: no file) with packets; `sides` are those whose qlog
    is read.
    """
    for side, data in ((SERVER, server), (CLIENT, client)):
        (folder / side).mkdir(parents=True)
        if data is not None:
            (folder / side / "x.sqlog").write_bytes(data)
    folders = {side: folder / side for side in sides}
    return qlog_figures.add(sample, folders, 100_000, folder, wire or captured(), 0.325, here)


def here(folder: Path, side: qlog.Side, size: int) -> QlogTransfer:
    """Read the newest file as `qlog_reader` does, but in this process."""
    path = qlog.newest(folder)
    if path is None:
        raise QlogError("missing", "no file")
    with qlog.plain(path) as file:
        return qlog_process.transfer(file, side, size)


def test_a_server_s_qlog_has_losses_and_states_by_the_client_s_clock(tmp_path: Path) -> None:
    found = joined(tmp_path, sequence(ngtcp2()))
    assert (found.lost_packets, found.retransmitted_share) == (1, 0.25)
    document = json.loads((tmp_path / qlog_figures.FILE).read_text())
    assert document["asked_s"] == pytest.approx(0.325 + 0.09)
    assert document["end_s"] == pytest.approx(1.4)
    assert document["points"][-1]["t_s"] == pytest.approx(0.325 + 0.8)
    assert found.sources["spent_s"].startswith("qlog of the server")
    assert found.warnings == (UnusedSource("missing", "client", "no file"),)


@pytest.mark.promise("P79")
def test_the_first_byte_is_from_the_client_s_qlog_or_its_packets(tmp_path: Path) -> None:
    head = {"trace": {"vantage_point": {"type": "client"}}}
    got = {
        "time": 1250,
        "name": "transport:packet_received",
        "data": packet("1RTT", stream(0, 900)),
    }
    client = sequence(
        [{"time": 5, "name": "transport:packet_sent", "data": packet("initial")}, got], head
    )
    logged = joined(tmp_path / "a", None, client)
    assert logged.time_to_first_byte_ms == pytest.approx(1245)
    assert logged.sources == {"time_to_first_byte_ms": "qlog of the client"}
    unlogged = joined(tmp_path / "b", None)
    assert unlogged.time_to_first_byte_ms == pytest.approx(1100)
    assert unlogged.sources == {"time_to_first_byte_ms": "packets"}
    assert (unlogged.lost_packets, unlogged.retransmitted_share) == (None, None)
    assert not (tmp_path / "b" / qlog_figures.FILE).exists()


def test_a_transfer_is_complete_with_the_last_new_byte_of_the_client_s_qlog(tmp_path: Path) -> None:
    """A hole is filled last; retransmissions, and what the server sends afterwards, do not count."""
    head = {"trace": {"vantage_point": {"type": "client"}}}
    parts = [(1200, 0, 40_000), (1300, 60_000, 40_000), (1900, 40_000, 20_000), (2000, 0, 40_000)]
    got = [
        {"time": t, "name": "packet_received", "data": packet("1RTT", stream(at, n))}
        for t, at, n in parts
    ]
    first = {"time": 5, "name": "packet_sent", "data": packet("initial")}
    sample = Sample("a", 1, "ok", "", (1.0, 2.6))
    found = joined(tmp_path / "a", None, sequence([first, *got], head), sample=sample)
    assert found.times_s == pytest.approx((1.0, 1.895))
    assert found.sources["times_s"] == "packets, the last one: qlog of the client"
    short = joined(tmp_path / "b", None, sequence([first, *got[:2]], head), sample=sample)
    assert short.times_s == (1.0, 2.6) and "times_s" not in short.sources


def test_figures_that_the_programs_report_are_kept(tmp_path: Path) -> None:
    sample = Sample("a", 1, "censored", "", (1.0,), time_to_first_byte_ms=1300.0, lost_packets=7)
    added = joined(tmp_path, sequence(quiche()), sample=sample, sides=(SERVER,))
    assert added.time_to_first_byte_ms == 1300.0
    assert added.lost_packets == 7
    assert added.retransmitted_share == 0.25
    assert not added.warnings
    assert set(added.sources) == {"retransmitted_share", "spent_s"}
    # The last payload byte, not the last packet.
    assert json.loads((tmp_path / qlog_figures.FILE).read_text())["end_s"] == 1.0


def test_the_newest_qlog_file_is_used_and_all_are_measured(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, size, age in (("a/x.sqlog", 10, 1), ("y.qlog", 5, 2), ("notes.txt", 100, 0)):
        (tmp_path / name).write_bytes(bytes(size))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert (qlog.newest(tmp_path), qlog.total_bytes(tmp_path)) == (tmp_path / "a/x.sqlog", 15)
    assert (qlog.newest(tmp_path / "none"), qlog.total_bytes(tmp_path / "none")) == (None, 0)


def test_a_qlog_of_another_transfer_does_not_fit(tmp_path: Path) -> None:
    other = joined(tmp_path / "a", sequence([], {"trace": {"vantage_point": {"type": "client"}}}))
    assert [one.kind for one in other.warnings] == ["does not fit", "missing"]
    whole = joined(tmp_path / "c", sequence(ngtcp2()), sample=Sample("a", 1, "ok", "", (1.0,)))
    assert "3000 bytes of streams, 100000 arrived" in whole.warnings[0].reason


@pytest.mark.parametrize("client_ids", [(b"c", b"d"), ()])
def test_of_two_connections_the_last_one_s_qlog_is_joined(
    client_ids: tuple[bytes, ...], tmp_path: Path
) -> None:
    """The second handshake begins at 5 s: the server's states are 5 s later by the client's clock."""

    def handshake(number: int, t_s: float) -> tuple[Datagram, ...]:
        own = client_ids[number : number + 1]
        initials = [Datagram(t_s + wait, False, 1200, ("initial",), own) for wait in (0.0, 0.7)]
        answer = Datagram(t_s + 0.65, True, 1200, ("initial",), (bytes([number]),))
        return (initials[0], answer, initials[1])

    rest = (replace(one, t_s=one.t_s + 5) for one in captured().datagrams[2:])
    wire = CapturedTransfer(UDP, (*handshake(0, 0.0), *handshake(1, 5.0), *rest), 1000.0)
    assert wire.last_start_s == 5.0
    got = {"time": 1250, "name": "packet_received", "data": packet("1RTT", stream(0, 100_000))}
    client = [{"time": 5, "name": "packet_sent", "data": packet("initial")}, got]
    head = {"trace": {"vantage_point": {"type": "client"}}}
    sample = Sample("a", 1, "ok", "", (6.0, 7.0))
    found = joined(tmp_path / "b", None, sequence(client, head), wire, sample, (CLIENT,))
    assert found.times_s == pytest.approx((6.0, 6.245)) and found.warnings == ()
    joined(tmp_path, sequence(ngtcp2()), None, wire, INCOMPLETE, (SERVER,))
    document = json.loads((tmp_path / qlog_figures.FILE).read_text())
    assert document["asked_s"] == pytest.approx(5.0 + 0.325 + 0.09)


def test_no_packet_arrives_before_it_has_crossed_the_link(tmp_path: Path) -> None:
    """The client sends its first packet with a short header at 0.2 s, which the server has at 0.09
    s by its clock.
    """
    first, answer, short, *rest = captured().datagrams
    late = CapturedTransfer(UDP, (first, answer, replace(short, t_s=0.2), *rest), 1000.0)
    joined(tmp_path, sequence(ngtcp2()), wire=late)
    document = json.loads((tmp_path / qlog_figures.FILE).read_text())
    assert document["asked_s"] == pytest.approx(0.325 + 0.2)


def test_states_are_50_ms_apart_and_the_last_one_is_kept(tmp_path: Path) -> None:
    metrics = {"congestion_window": 12_000, "bytes_in_flight": 0}
    records = [{"time": 10 * n, "name": "metrics_updated", "data": metrics} for n in range(13)]
    times = [one.t_s for one in read(tmp_path, sequence(records)).points]
    assert times == pytest.approx([0.0, 0.06, 0.12])


def quinn(sent_packets: int) -> list[dict[str, Any]]:
    """Return a server's records as quinn 0.11 writes them: no frames, and RTTs in seconds."""

    def event(time: float, name: str, **data: Any) -> dict[str, Any]:
        return {"time": time, "name": name, "data": data, "group_id": "d8efb7a3adb90d8f"}

    metrics = {"smoothed_rtt": 0.333, "congestion_window": 12_000, "bytes_in_flight": 0}
    short = {"packet_type": "1RTT", "packet_number": 7}
    got = [
        event(0, "transport:packet_received", header={"packet_type": "initial"}),
        event(0, "recovery:metrics_updated", **metrics),
        event(650, "transport:packet_received", header=short),
        event(651, "recovery:metrics_updated", smoothed_rtt=0.65, bytes_in_flight=12_000),
    ]
    full = short | {"length": 1250}
    got += [event(700 + n, "transport:packet_sent", header=full) for n in range(sent_packets)]
    got.append(event(1500, "recovery:packet_lost", header=short, trigger="time_threshold"))
    return [*got, event(1600, "recovery:metrics_updated", bytes_in_flight=0)]


QUINN: dict[str, Any] = {
    "qlog_version": "0.3",
    "qlog_format": "JSON-SEQ",
    "trace": {"vantage_point": {"type": "unknown"}, "configuration": {"time_offset": 0.0}},
}


def test_quinn_s_states_are_read_without_frames_and_with_rtts_in_seconds(tmp_path: Path) -> None:
    complete = Sample("a", 1, "ok", "", (1.0, 2.6))
    found = joined(tmp_path, sequence(quinn(85), QUINN), sample=complete, sides=(SERVER,))
    assert found.warnings == () and found.lost_packets == 1
    assert found.retransmitted_share is None
    assert found.sources["spent_s"] == "qlog of the server, link"
    points = json.loads((tmp_path / qlog_figures.FILE).read_text())["points"]
    assert [one["rtt_ms"] for one in (points[0], points[-1])] == [333, 650]
    assert (points[-1]["supply"], points[-2]["supply"]) == ("done", "done")
    short = joined(tmp_path / "a", sequence(quinn(60), QUINN), sample=complete, sides=(SERVER,))
    assert [one.reason for one in short.warnings] == [
        "it has 75000 bytes in packets, 100000 arrived"
    ]


@pytest.mark.parametrize("one_way_s", [0.0, 0.0002])
def test_an_rtt_that_fits_the_link_is_in_milliseconds(one_way_s: float, tmp_path: Path) -> None:
    """Of a link without delay an RTT of 0.65 ms may be true."""
    (tmp_path / "x.sqlog").write_bytes(sequence(quinn(85), QUINN))
    add = qlog_figures.add
    found = add(INCOMPLETE, {"server": tmp_path}, 100, tmp_path, captured(), one_way_s, here)
    points = json.loads((tmp_path / qlog_figures.FILE).read_text())["points"]
    assert points[-1]["rtt_ms"] == 0.65 and not found.warnings


def test_a_qlog_without_packets_says_so(tmp_path: Path) -> None:
    metrics = [one for one in quinn(9) if "recovery" in one["name"]]
    complete = Sample("a", 1, "ok", "", (1.0, 2.6))
    found = joined(tmp_path, sequence(metrics, QUINN), sample=complete, sides=(SERVER,))
    expected = "it has no packets, so its times have no place on the link"
    assert found.warnings == (UnusedSource("does not fit", "server", expected),)
    assert read(tmp_path, sequence(metrics, QUINN)).points


def test_a_file_that_names_no_side_is_that_of_its_folder_s(tmp_path: Path) -> None:
    unnamed = {"file_schema": "x", "trace": {}}
    assert joined(tmp_path / "a", sequence(ngtcp2(), unnamed)).lost_packets == 1
    other = sequence(ngtcp2(), {"trace": {"vantage_point": {"type": "client"}}})
    found = joined(tmp_path / "b", other, sides=(SERVER,))
    assert [one.reason for one in found.warnings] == ["its vantage point is the client"]
    assert found.lost_packets is None


def test_the_source_of_a_figure_says_what_was_left_out(tmp_path: Path) -> None:
    records = sequence(ngtcp2()) + b"\x1e{\n" * 3
    unknown = {"time": 900, "name": "quic:cats_fed", "data": {}}
    more = b"\x1e" + json.dumps(unknown).encode() + b"\n"
    found = joined(tmp_path, records + more, sides=(SERVER,))
    source = "qlog of the server (left out: 3 damaged records, 1 unknown event)"
    assert found.sources == {
        "lost_packets": source,
        "retransmitted_share": source,
        "spent_s": f"{source}, link",
        "time_to_first_byte_ms": "packets",
    }


def test_quiche_s_own_count_of_losses_is_read(tmp_path: Path) -> None:
    records = [one for one in ngtcp2() if one["name"] != "recovery:packet_lost"]
    data = {"cf_lost_packets": {"total": 7, "delta": 1}, "cf_lost_bytes": {"total": 9, "delta": 1}}
    records.append({"time": 900, "name": "quic:recovery_metrics_updated", "data": data})
    found = read(tmp_path, sequence(records))
    assert (found.lost_packets, found.reported_lost_packets, found.counts) == (7, 7, Counts())


def test_programs_without_qlog_keep_their_sample(tmp_path: Path) -> None:
    assert qlog_figures.add(INCOMPLETE, {}, 100_000, tmp_path, captured(), 0.325) is INCOMPLETE
