# SPDX-License-Identifier: GPL-3.0-or-later
from typing import Any

from collect import stream

LABELS = {"entity": "client"}
RECEIVED: dict[str, Any] = {
    "schema": "satlab/stream/1",
    "role": "receiver",
    "start_unix_s": 1.0,
    "sent": 5,
    "received": 4,
    "duplicates": 0,
    "burst_ratio": 1.0,
    "jitter_ms": 0.5,
    "owd_ms": [290.0, 291.0, 300.0, 292.0],
}
VOICE = {
    "codec": "g711",
    "playout_ms": 60.0,
    "mouth_to_ear_ms": 370.0,
    "discarded": 0,
    "r": 70.0,
    "mos": 3.6,
}


def made(**changes: Any) -> dict[tuple[str, str], float | None]:
    found = stream.records(stream.ADAPTER.validate_python(RECEIVED | changes), LABELS)
    return {(record.metric, record.labels.get("stat", "")): record.value for record in found}


def test_delay_jitter_loss_and_quality() -> None:
    found = made(voice=VOICE)
    assert found["one_way_delay_ms", "median"] == 291.5
    assert (found["one_way_delay_ms", "min"], found["one_way_delay_ms", "max"]) == (290.0, 300.0)
    assert found["stream_loss_ratio", ""] == 1 - 4 / 5
    assert (found["stream_jitter_ms", ""], found["mos", ""], found["mouth_to_ear_ms", ""]) == (
        0.5,
        3.6,
        370.0,
    )
    assert ("mos", "") not in made()


def test_the_sender_measures_nothing() -> None:
    sender = {"schema": "satlab/stream/1", "role": "sender", "start_unix_s": 1.0, "sent": 500}
    (record,) = stream.records(stream.ADAPTER.validate_python(sender), LABELS)
    assert (record.metric, record.value) == ("stream_sent_packets", 500)


def test_a_load_has_the_rate_of_each_side() -> None:
    load = {"flows": 2, "bytes": 5000, "active_s": 0.5}
    assert made(load=load)["load_received_bps", ""] == 80_000
    assert ("load_received_bps", "") not in made(load=load | {"active_s": 0})
    sender = {"schema": "satlab/stream/1", "role": "sender", "start_unix_s": 1.0, "sent": 500}
    drawn = {"distribution": "gamma", "mean": 5.0, "shape": 2.0}
    sender["load"] = load | {"seed": 1, "late_ms": 0.5, "gap_ms": drawn, "size_bytes": drawn}
    found = stream.records(stream.ADAPTER.validate_python(sender), LABELS)
    assert {record.metric: record.value for record in found} == {
        "stream_sent_packets": 500,
        "load_sent_bps": 80_000,
    }
    assert found[1].labels == {"entity": "client", "flows": "2"}


def test_a_stream_of_which_nothing_came_is_a_failed_sample() -> None:
    (record,) = stream.records(
        stream.ADAPTER.validate_python(RECEIVED | {"received": 0, "owd_ms": []}), LABELS
    )
    assert (record.status, record.reason) == ("failed", "0 of 5 packets")
