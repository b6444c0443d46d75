# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures better than physics are failed samples, and figures at the floor are not."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import collect
from collect import page_loads, physical_floors
from collect.fixtures import example_run
from collect.fixtures.example_run import Example, page_load
from collect.page_loads import PageLoad
from collect.records import Record

LINK = example_run.link_plan("geo")
FLOORS = physical_floors.of_link(LINK)
RTT_MS = FLOORS.rtt_ms


def load(protocol: str, **change: Any) -> PageLoad:
    return page_loads.PageLoad.model_validate(page_load(protocol, 1, random.Random(1)) | change)  # noqa: S311


@pytest.mark.parametrize(
    ("protocol", "pep", "round_trips"),
    [("h1", "none", 2), ("h2", "none", 3), ("h3", "none", 2), ("h1", "haproxy", 1)],
)
@pytest.mark.promise("P36")
def test_a_response_takes_its_round_trips(protocol: str, pep: str, round_trips: int) -> None:
    least = round_trips * RTT_MS
    assert physical_floors.load_fault(load(protocol, response_start_ms=least), pep, FLOORS) == ""
    early = physical_floors.load_fault(load(protocol, response_start_ms=least - 16), pep, FLOORS)
    assert early.startswith(physical_floors.BEFORE) and "Response Start" in early


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"first_contentful_paint_ms": 2 * RTT_MS - 10}, "First Contentful Paint"),
        ({"largest_contentful_paint_ms": 100.0}, "Largest Contentful Paint"),
        ({"page_load_time_ms": 3 * RTT_MS - 10}, "Page Load Time"),
        # 20 MB at 19.17 Mbit/s take 8.3 s
        ({"body_bytes": 20_000_000, "page_load_time_ms": 8000.0}, "Page Load Time"),
        (
            {"connect_start_ms": 3.0, "connect_end_ms": 3.0},
            "connection of the navigation, opened before it",
        ),
        (
            {"connect_start_ms": 3.0, "connect_end_ms": 450.0},
            "connection of the navigation, opened before it",
        ),
    ],
)
@pytest.mark.promise("P36")
def test_every_metric_of_a_page_has_a_floor(change: dict[str, Any], name: str) -> None:
    assert physical_floors.load_fault(load("h1"), "none", FLOORS) == ""
    assert name in physical_floors.load_fault(load("h1", **change), "none", FLOORS)


@pytest.mark.parametrize(
    ("metric", "possible", "impossible", "labels"),
    [
        ("connect_ms", RTT_MS, RTT_MS - 3, {}),
        ("ttfb_ms", 2 * RTT_MS, 2 * RTT_MS - 3, {}),
        ("goodput_bps", 18.04e6, 18.2e6, {"direction": "download", "transport": "TCP"}),
        ("goodput_bps", 19.17e6, 19.3e6, {"direction": "download", "transport": "QUIC"}),
        ("goodput_bps", 8.8e6, 8.9e6, {"direction": "upload", "transport": "TCP"}),
    ],
)
def test_transfers_have_floors(
    metric: str, possible: float, impossible: float, labels: dict[str, str]
) -> None:
    good, bad = Record(metric, possible, labels), Record(metric, impossible, labels)
    found = list(physical_floors.judged([good, bad], FLOORS, {}))
    assert found[0] == good
    assert (found[1].value, found[1].status) == (None, "failed")
    assert physical_floors.BEFORE in found[1].reason
    assert list(physical_floors.judged([bad], None, {})) == [bad]


def test_a_proxy_may_answer_a_handshake_and_not_a_request() -> None:
    records = [
        Record("connect_ms", 2.0, {"instance": "3"}),
        Record("ttfb_ms", RTT_MS - 20, {"instance": "3"}),
    ]
    assert [one.status for one in physical_floors.judged(records, FLOORS, {"3": "haproxy"})] == [
        "ok",
        "failed",
    ]


def test_an_impossible_load_fails_its_run(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 3}))
    file = run / "raw/files/satlab_page_load-1/page_load_json.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response_start_ms": 1028.0}))

    def response_starts() -> dict[str, str]:
        rows = collect.summaries(collect.gather(run))
        return {
            row["labels"]["load"]: row["status"]
            for row in rows
            if row["metric"] == "response_start_ms" and "load" in row["labels"]
        }

    assert response_starts() == {"1": "failed", "2": "ok", "3": "ok"}
    change = {
        "type": "change",
        "t_unix_s": example_run.START,
        "t_s": 0,
        "direction": "forward",
        "origin": "control",
        "set": {"delay_ms": 16},
        "error": None,
    }
    with (run / "raw/link.jsonl").open("a") as lines:
        lines.write(json.dumps(change) + "\n")
    assert set(response_starts().values()) == {"ok"}, "a link that changed has no known floor"
    (run / "plan.json").unlink()
    assert physical_floors.of_run(run) is None
