# SPDX-License-Identifier: GPL-3.0-or-later
"""Queues on the page of a run while it runs."""

import json
import os
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from satlab.service.api.conftest import FakeHelper, start
from satlab.service.api.dependencies import Context
from satlab.service.pages.link_curves import LINK, Curves
from satlab.service.pages.live_queues import COLUMNS, MOST_LINES, Queues
from satlab.service.pages.test_pages import launch
from satlab.service.pages.test_path_picture import counters


def figures(**values: Any) -> dict[str, Any]:
    return {
        "rate_bps": 1e6,
        "queue_bytes": 3000,
        "queue_p50_ms": 1.25,
        "queue_p99_ms": None,
        **values,
    }


def sample(forward: dict[str, Any] | None, back: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "sample", "t_unix_s": 1.0, "forward": forward, "return": back}


def test_p302_terminals_and_fifos_have_a_line_each() -> None:
    queues = Queues()
    fifos = [{"fifo": "EF", "queue_bytes": 500, "queue_p50_ms": 2.0, "dropped_packets": 3}]
    of = [figures(terminal=1), figures(terminal=2, fifos=fifos, modcod_id=4)]
    back = figures(slots_requested=4, slots_assigned=20, frames=15)
    for _ in range(2):
        queues.add(sample(figures(terminals=of, dropped_packets=3), back))
    rows = queues.rows()
    assert [row[:3] for row in rows] == [
        ("forward", "all", "all"),
        ("forward", "1", "all"),
        ("forward", "2", "all"),
        ("forward", "2", "EF"),
        ("return", "all", "all"),
    ]
    assert rows[2][3:] == ("1.00", "3.0", "1.2", "", "", "0", "4", "", "", "")
    assert rows[3][3:] == ("", "0.5", "2.0", "", "", "6", "", "", "", "")
    assert rows[4][-3:] == ("4", "20", "15")
    assert all(len(row) == len(COLUMNS) for row in rows)
    # A FIFO without packets in the last sample is empty; what it dropped before is still known.
    queues.add(sample(figures(terminals=[figures(terminal=1), figures(terminal=2)]), None))
    assert queues.rows()[3][3:9] == ("", "0.0", "", "", "", "6")


def test_p302_one_terminal_with_one_queue_has_none() -> None:
    queues = Queues()
    queues.add(sample(figures(), figures()))
    queues.add(sample(None, None))
    assert queues.rows() == []


def test_p302_lines_are_limited() -> None:
    queues = Queues()
    for number in range(1000):
        fifos = [{"fifo": str(number), "queue_bytes": 1, "dropped_packets": 0}]
        queues.add(sample(figures(fifos=fifos), None))
    assert len(queues.rows()) == MOST_LINES


def test_p302_curves_of_a_run_have_them() -> None:
    curves = Curves()
    fifos = [{"fifo": "EF", "queue_bytes": 1000, "dropped_packets": 1}]
    curves.add(sample(counters(fifos=fifos), counters()))
    assert [row[:3] for row in curves.queues.rows()][1] == ("forward", "all", "EF")


def test_p302_the_page_of_a_run_has_the_table_while_it_runs(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    run_id = start(context, number)
    path = context.settings.runs / run_id / LINK
    path.parent.mkdir(parents=True)
    fifos = [
        {"fifo": name, "queue_bytes": 145_000, "queue_p95_ms": 1234.5, "dropped_packets": 3}
        for name in ("EF", "BE", "<b>x")
    ]
    terminals = [
        counters(**figures(terminal=1)),
        counters(**figures(terminal=2, fifos=fifos, modcod_id=4)),
    ]
    back = counters(**figures(slots_requested=4, slots_assigned=20, frames=15))
    line = {
        **sample(counters(**figures(terminals=terminals)), back),
        "terrestrial_down": None,
        "terrestrial_up": None,
    }
    path.write_text(json.dumps(line) + "\n")
    page = runner.get(f"/ui/runs/{number}").text
    if folder := os.environ.get("SATLAB_PICTURES"):
        Path(folder, "live_queues.html").write_text(page)
    assert page.count("<td>forward</td>") == 6
    assert "1,234.5" in page
    assert "&lt;b&gt;x" in page
    assert "<b>x" not in page
    helper.end(run_id, 0)
    context.queue.step()
    assert "<td>forward</td>" not in runner.get(f"/ui/runs/{number}").text
