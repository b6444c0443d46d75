# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from collect import iperf3
from collect.fixtures import example_run
from collect.jobs import Job
from collect.raw import Unreadable, read_json
from collect.records import Record

FIXTURES = Path(__file__).parent / "fixtures"
CLIENT = json.loads((FIXTURES / "iperf3_client.json").read_text())
SERVER = json.loads((FIXTURES / "iperf3_server.json").read_text())


def job(number: int, start: float = 100.0, stop: float = 106.0) -> Job:
    return Job.model_validate(
        example_run.job(number, "satlab_iperf3", "client", "bulk", start, stop)
    )


def document(content: dict[str, Any], number: int = 1, **times: float) -> iperf3.Document:
    parsed = iperf3.ADAPTER.validate_python(content)
    return iperf3.Document(job(number, **times), parsed)


def only(records: list[Record], metric: str, **labels: str) -> Record:
    summaries = [r for r in records if r.metric == metric and r.t_s is None]
    (found,) = [r for r in summaries if labels.items() <= r.labels.items()]
    return found


def series(records: list[Record], metric: str) -> list[Record]:
    return [r for r in records if r.metric == metric and r.t_s is not None]


@pytest.mark.promise("P36")
def test_goodput_is_what_the_receiver_counted_not_what_the_sender_sent() -> None:
    records = iperf3.records([document(SERVER, 1), document(CLIENT, 2)], 90.0)
    found = only(records, "goodput_bps")
    assert found.value == pytest.approx(4_791_432 * 8 / 2.000085)
    assert found.labels["direction"] == "download"
    assert found.labels["congestion_control"] == "bbr"
    assert only(records, "retransmits_count").value == 63


def test_window_and_rtt_come_from_the_sender() -> None:
    records = iperf3.records([document(SERVER, 1), document(CLIENT, 2)], 90.0)
    assert only(records, "cwnd_max_bytes").value == 220_096
    assert only(records, "tcp_rtt_ms", stat="max").value == pytest.approx(81.8, abs=0.5)
    assert len(series(records, "cwnd_bytes")) == len(series(records, "tcp_rtt_ms")) == 20
    assert sum(r.value or 0 for r in series(records, "retransmits_count")) == 63


def test_series_add_up_to_the_summary() -> None:
    records = iperf3.records([document(CLIENT)], 90.0)
    bits = sum((r.value or 0) * 0.1 for r in series(records, "goodput_bps"))
    assert bits == pytest.approx(4_791_432 * 8, rel=0.01)


@pytest.mark.parametrize(("job_start", "earliest"), [(0.4, 0.4), (-9.0, 0.0)])
def test_both_sides_are_dated_by_stamp_and_client_s_job(job_start: float, earliest: float) -> None:
    stamp = CLIENT["start"]["timestamp"]["timesecs"]
    client = document(CLIENT, 2, start=stamp + job_start, stop=stamp + 6.0)
    server = document(SERVER, 1, start=stamp - 50.0, stop=stamp + 100.0)
    records = iperf3.records([server, client], stamp - 10.0)
    spare = 6.0 - 2.000085 - earliest
    expected = 10 + earliest + spare / 2 + 0.1
    assert series(records, "goodput_bps")[0].t_s == pytest.approx(expected, abs=1e-3)
    assert series(records, "cwnd_bytes")[0].t_s == pytest.approx(expected, abs=1e-3)
    assert only(records, "series_clock_error_s").value == pytest.approx(spare / 2)


def test_a_server_alone_is_dated_by_iperf3_s_own_seconds() -> None:
    origin = SERVER["start"]["timestamp"]["timesecs"]
    records = iperf3.records([document(SERVER, 1)], origin)
    assert series(records, "cwnd_bytes")[0].t_s == pytest.approx(1.1, abs=0.01)


def test_both_sides_of_a_transfer_carry_its_number() -> None:
    second = [side | {"start": {**side["start"], "cookie": "other"}} for side in (SERVER, CLIENT)]
    sides = [
        document(SERVER, 1),
        document(second[0], 1),
        document(CLIENT, 2),
        document(second[1], 3),
    ]
    records = iperf3.records(sides, 0)
    for number in ("1", "2"):
        mine = [r for r in records if r.labels["transfer"] == number]
        assert {r.metric for r in mine} >= {"goodput_bps", "cwnd_max_bytes"}
    assert only(records, "goodput_bps", transfer="2").labels["instance"] == "3"


def test_refused_connection_is_a_failed_sample() -> None:
    refused = read_json(FIXTURES, "iperf3_refused.json", iperf3.ADAPTER.validate_json)
    (record,) = iperf3.records([iperf3.Document(job(1), refused)], 0)
    assert (record.metric, record.value, record.status) == ("goodput_bps", None, "failed")
    assert "Connection refused" in record.reason


def test_an_error_wins_over_complete_figures() -> None:
    (record,) = iperf3.records(
        [document(CLIENT | {"error": "interrupt - the server has terminated"})], 0
    )
    assert record.status == "failed"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"start": 1}', b'{"start": {}, "intervals": [], "end": {}}']
)
def test_malformed_documents_are_failed_samples(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "iperf3_json.json"
    path.write_bytes(content)
    parsed = read_json(tmp_path, path.name, iperf3.ADAPTER.validate_json)
    assert isinstance(parsed, Unreadable)
    (record,) = iperf3.records([iperf3.Document(job(1), parsed)], 0)
    assert record.status == "failed"
    assert "iperf3_json.json" in record.reason


def test_a_transfer_that_broke_off_has_no_goodput() -> None:
    asked = {**CLIENT["start"], "test_start": {**CLIENT["start"]["test_start"], "duration": 15}}
    record = only(iperf3.records([document(CLIENT | {"start": asked})], 0), "goodput_bps")
    assert record.status == "failed"
    assert "broken off after 2.0 s" in record.reason


@pytest.mark.parametrize(("share", "status"), [(0.951, "ok"), (0.949, "failed")])
@pytest.mark.parametrize("unit", ["duration", "bytes"])
def test_a_transfer_counts_from_95_percent_of_its_request_on(
    unit: str, share: float, status: str
) -> None:
    received = CLIENT["end"]["sum_received"]
    got = {"duration": received["seconds"], "bytes": received["bytes"]}[unit]
    request = (
        CLIENT["start"]["test_start"] | {"duration": 0, "bytes": 0} | {unit: round(got / share, 6)}
    )
    request["bytes"] = round(request["bytes"])
    records = iperf3.records(
        [document(CLIENT | {"start": CLIENT["start"] | {"test_start": request}})], 0
    )
    assert only(records, "goodput_bps").status == status
    assert only(records, "completeness_ratio").value == pytest.approx(share, abs=1e-4)


def test_omitted_intervals_are_in_no_figure() -> None:
    whole = iperf3.records([document(SERVER, 1), document(CLIENT, 2)], 0)
    sides = []
    for side in (SERVER, CLIENT):
        first = side["intervals"][0]
        streams = [stream | {"snd_cwnd": 1 << 40, "rtt": 1 << 40} for stream in first["streams"]]
        warm_up = {"streams": streams, "sum": first["sum"] | {"omitted": True, "bytes": 1 << 40}}
        sides.append(side | {"intervals": [warm_up, *side["intervals"]]})
    records = iperf3.records([document(sides[0], 1), document(sides[1], 2)], 0)
    assert records == whole
    assert len(series(whole, "goodput_bps")) == len(CLIENT["intervals"])


def test_cpu_time_is_the_share_of_a_core_times_the_duration() -> None:
    end = CLIENT["end"] | {"cpu_utilization_percent": {"host_total": 150.0}}
    end["sum_sent"] = CLIENT["end"]["sum_sent"] | {"seconds": 4.0}
    assert only(
        iperf3.records([document(CLIENT | {"end": end})], 0), "cpu_s"
    ).value == pytest.approx(6.0)


def test_udp_counts_what_arrived_and_what_was_lost() -> None:
    udp = json.loads((FIXTURES / "iperf3_udp_client.json").read_text())
    udp["end"]["sum"]["lost_packets"] = 46
    records = iperf3.records([document(udp)], 0)
    found = only(records, "goodput_bps")
    assert found.value == pytest.approx(2_444_992 * 8 / 1.000018)
    assert found.labels["transport"] == "UDP"
    assert only(records, "udp_lost_packets").value == 46
    assert only(records, "udp_sent_packets").value == 1707


def udp(
    *,
    at_client: bool = True,
    reverse: bool = False,
    version: str = "3.18",
    sent: int = 2000,
    highest: int = 2000,
    lost: int = 100,
    said: int | None = None,
) -> dict[str, Any]:
    """Return a side's document of 10 s with datagrams of 1200 bytes: `highest` is the number of the
    last that arrived, `lost` is missing before it, `said` is what the document calls lost.
    """
    said = lost if said is None else said
    arrived = highest - lost
    at_sender = at_client != reverse
    seen = {"start": 0, "end": 10, "seconds": 10, "jitter_ms": 0.2}
    per_s = (sent if at_sender else arrived) * 120
    end: dict[str, Any] = {
        # A receiving server does not know what was sent.
        "sum": seen
        | {
            "bytes": sent * 1200,
            "packets": sent if at_client or at_sender else highest,
            "lost_packets": said,
        },
    }
    if version != "3.9":
        end["sum_sent"] = seen | {"bytes": sent * 1200, "packets": sent, "lost_packets": 0}
        end["sum_received"] = seen | {
            "bytes": arrived * 1200,
            "packets": highest,
            "lost_packets": said,
        }
    request = {"protocol": "UDP", "num_streams": 1, "blksize": 1200, "duration": 10, "bytes": 0}
    start = {
        "cookie": "c" * 36,
        "version": f"iperf {version}",
        "timestamp": {"timesecs": 0},
        "test_start": request | {"reverse": int(reverse)},
    }
    if at_client:
        start["connecting_to"] = {"host": "198.18.4.2", "port": 5201}
    intervals = [
        {"streams": [], "sum": {"start": n, "end": n + 1, "seconds": 1, "bytes": per_s}}
        for n in range(10)
    ]
    return {"start": start, "intervals": intervals, "end": end}


SENDER = udp(said=0)
"""A client that sent: 3.14 and later, and a server of 3.13 or earlier."""
RECEIVER = udp(at_client=False, version="3.12")


@pytest.mark.promise("P36")
@pytest.mark.parametrize(
    ("documents", "lost", "goodput"),
    [
        # 3.9 has one total (esnet/iperf PR 1174); its bytes are those that were sent.
        ([udp(version="3.9", reverse=True)], 100, 1.824e6),
        ([udp(version="3.9", reverse=True), udp(version="3.9", at_client=False, reverse=True)], 100,
         1.824e6),
        ([udp(version="3.9"), udp(version="3.9", at_client=False)], 100, 1.824e6),
        ([udp(version="3.9"), RECEIVER], 100, 1.824e6),
        ([udp(version="3.9")], 100, None),
        # A sender reads what an older receiver lost as 0 (issues 1984 and 2055).
        ([SENDER], 100, 1.824e6),
        ([SENDER, RECEIVER], 100, 1.824e6),
        ([udp(said=0, highest=1950), udp(at_client=False, highest=1950)], 100, 1.776e6),
        ([udp(said=0, highest=1900, lost=0)], None, 1.824e6),
        ([udp(said=0, highest=1900, lost=0), udp(at_client=False, highest=1900, lost=0)], 0,
         1.824e6),
        ([udp(lost=0)], 0, 1.92e6),
        ([udp(lost=100)], 100, 1.824e6),
        # A receiver knows its losses, whatever the sender's version is.
        ([udp(reverse=True)], 100, 1.824e6),
        ([udp(reverse=True), udp(at_client=False, reverse=True, said=0)], 100, 1.824e6),
        ([udp(reverse=True, highest=1900, lost=0)], 0, 1.824e6),
        # Counters of 32 bits overflow, omitted intervals are subtracted (issues 1866 and 412).
        ([udp(reverse=True, said=-1)], None, 1.824e6),
        ([udp(reverse=True, said=2001)], None, 1.824e6),
    ],
)  # fmt: skip
def test_lost_datagrams_are_those_that_the_receiver_counted_or_unknown(
    documents: list[dict[str, Any]], lost: int | None, goodput: float | None
) -> None:
    records = iperf3.records(
        [document(content, number) for number, content in enumerate(documents, start=1)], 0
    )
    found = only(records, "udp_lost_packets")
    assert (found.value, found.status) == (lost, "failed" if lost is None else "ok")
    assert bool(found.reason) == (lost is None)
    assert only(records, "udp_sent_packets").value == 2000
    assert only(records, "goodput_bps").value == (goodput and pytest.approx(goodput))


def test_a_datagram_after_the_last_that_arrived_is_lost_or_under_way() -> None:
    records = iperf3.records([document(udp(said=0, highest=1900, lost=0))], 0)
    assert only(records, "udp_lost_packets").reason.startswith("2000 datagrams sent, 1900 arrived")


def test_a_client_that_received_knows_what_was_sent_by_its_bytes() -> None:
    """3.14: it counts 0 datagrams as sent, and in `sum` those up to the last that arrived."""
    received = udp(reverse=True, highest=1900, lost=1)
    received["end"]["sum"]["packets"] = 1900
    received["end"]["sum_sent"]["packets"] = 0
    records = iperf3.records([document(received)], 0)
    assert only(records, "udp_sent_packets").value == 2000
    assert only(records, "udp_lost_packets").value == 1


def test_a_document_needs_totals() -> None:
    with pytest.raises(ValidationError, match="neither sum_sent and sum_received nor sum"):
        document({**CLIENT, "end": {"sum_sent": CLIENT["end"]["sum_sent"]}})


def stretched(seconds: int, mbits: list[float]) -> dict[str, Any]:
    intervals = []
    for step in range(seconds * 10):
        span = {
            "start": step / 10,
            "end": (step + 1) / 10,
            "seconds": 0.1,
            "sender": False,
            "bytes": round(mbits[step // 10] * 1e5 / 8),
        }
        intervals.append({"streams": [], "sum": span})
    return {**CLIENT, "intervals": intervals}


def test_steady_goodput_is_the_median_second_of_the_second_half() -> None:
    records = iperf3.records([document(stretched(6, [1, 2, 3, 10, 50, 11]))], 0)
    assert only(records, "goodput_steady_bps").value == pytest.approx(11e6, rel=1e-4)


def test_a_short_transfer_has_no_steady_half() -> None:
    records = iperf3.records([document(CLIENT)], 0)
    assert not [r for r in records if r.metric == "goodput_steady_bps"]
