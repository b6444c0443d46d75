# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of flows: what it says and draws, of both clocks, and that text of others stays text."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from satlab.cli import app
from satlab.common import needs, paths
from satlab.flows import flows_report, satvirtual
from satlab.report import html
from satlab.report.page import Plot, Series, Table

HOSTILE = "<script>owned</script>"
BINS = 100


def flow(name: str, number: int, status: str = "ok") -> dict[str, Any]:
    """Return an invented flow of 10 s."""
    rising = [min(BINS, 10 + bin_) for bin_ in range(BINS)]
    spread = {"mean": 80.0 + number, "sd": 2.0}
    phase = {
        **{"from_s": 0.0, "to_s": 10.0, "goodput_mbps": spread, "goodput_bins_mbps": spread},
        **{"received_mbps": spread, "rtt_ms": spread, "lost_packets": number},
    }
    return {
        **{"id": name, "library": "quinn 0.11", "status": status, "ended_s": 10.0},
        **{"reason": HOSTILE if status != "ok" else "", "payload_bytes": 5_000_000},
        **{"goodput_mbps": 4.0 + number, "sent_packets": 4000, "lost_packets": number},
        **{"retransmitted_share": 0.01, "acks": 900, "time_to_80_percent_s": 1.0},
        **{"share_20s": 0.5, "phases": [phase]},
        "bins": {
            "payload_bytes": [each * (500 + number) for each in rising],
            "received_bytes": [each * 600 for each in rising],
            "lost_packets": [0] * BINS,
            "cwnd_bytes": [each * 1000 for each in rising],
            "rtt_ms": [80.0 + each / 10 for each in rising],
        },
    }


def outcome(count: int = 2, clock: str = "virtual", **more: Any) -> dict[str, Any]:
    """Return an invented outcome."""
    half = {"rate_mbps": 10, "delay_ms": 40, "queue": {"bytes": 60_000}}
    ends = {"from": "server1", "to": "client1", "start_s": 0, "group": "all"}
    names = [f"flow-{number}" for number in range(count - 1)] + [HOSTILE]
    step = {"at_s": 5, "direction": "both", "delay_ms": 80, "outage_s": None, "waiting": "keep"}
    queue = {"from_s": 0.0, "to_s": 10.0}
    queue |= dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "max_ms"), 12.0)
    document = {
        **{"schema": "satlab/virtual-flows-outcome/1", "version": "0.1.0", "clock": clock},
        "request": {
            **{"seed": 1, "duration_s": 10, "bin_ms": 100, "phases_s": []},
            "wire": {"forward": half, "return": half, "timeline": [step]},
            "flows": [
                ends | {"id": name, "stack": "quinn", "congestion_control": "cubic"}
                for name in names
            ],
        },
        "flows": [flow(name, number) for number, name in enumerate(names)],
        "groups": [
            {
                **{"group": "all", "direction": "forward", "flows": count, "failed": 0},
                **{"utilisation": 0.93, "jain": 0.985 if count > 1 else None},
                "jain_over_time": [0.9 if count > 1 else None] * 10,
            }
        ],
        "queues": [
            {"direction": "forward", "phases": [queue], "delays_ms": [2.0] * 150 + [40.0] * 50},
            {"direction": "return", "phases": [queue], "delays_ms": [0.0] * 200},
        ],
        "link": [],
    }
    return document | more


def plots(document: dict[str, Any]) -> dict[str, Plot]:
    return {one.key: one for one in flows_report.page(document, Path("my flows.json")).plots}


def test_the_invented_outcome_is_one() -> None:
    schema = json.loads((paths.SCHEMAS / "virtual-flows-outcome.schema.json").read_text())
    for each in (outcome(), outcome(1, "real", calibration=["forward_rate"])):
        jsonschema.Draft202012Validator(schema).validate(each)


def test_flows_are_drawn_over_time_with_the_queue_and_the_handover() -> None:
    found = plots(outcome())
    assert list(found) == ["goodput", "window", "fairness", "queue-delay"]
    one, _ = found["goodput"].series
    assert isinstance(one, Series)
    assert one.x[0] == 0.5 and len(one.x) == 10, "means over 1 s"
    assert one.y[-1] == pytest.approx(100 * 500 * 8e-6 / 0.1)
    headings = [axis.heading for axis in found["window"].y]
    assert headings == ["Congestion window", "RTT at the sender", "Delay of the queue"]
    assert [mark.label for mark in found["goodput"].marks] == ["handover"]
    forward, _ = found["queue-delay"].series
    assert isinstance(forward, Series)
    shares = dict(zip(forward.x, forward.y, strict=True))
    assert (shares[2.0], shares[40.0]) == (75, 100), "75 % of the time at most 2 ms"
    table = found["queue-delay"].table
    assert table.rows[0][table.head.index("75 % below (ms)")] == "2.0"


def test_changes_have_their_names_and_a_satellite_link_has_none() -> None:
    document = outcome()
    steps = [{"at_s": 1, "delay_ms": 3, "waiting": None}, {"at_s": 2, "outage_s": 1}, {"at_s": 3}]
    document["request"]["wire"]["timeline"] = steps
    document["request"]["flows"][0]["migrate_s"] = [4]
    names = ["delay changes", "outage", "change", "flow-0 moves"]
    assert [mark.label for mark in flows_report.marks(document["request"])] == names
    document["request"]["wire"]["timeline"] = [{"at_s": n, "loss": {}} for n in range(20)]
    assert {mark.label for mark in flows_report.marks(document["request"])} == {""}
    assert (
        flows_report.marks({"link": "l.json", "wire": None, "flows": [{"migrate_s": None}]}) == []
    )


def test_of_many_flows_the_first_are_drawn_and_all_are_listed() -> None:
    document = outcome(30)
    assert len(plots(document)["goodput"].series) == flows_report.MOST_FLOWS
    assert "The first 12 of 30 flows" in plots(document)["goodput"].caption
    (flows, *_) = flows_report.page(document, Path("f.json")).sections
    table = flows.parts[0]
    assert isinstance(table, Table) and len(table.rows) == 30


def test_one_flow_and_what_did_not_succeed() -> None:
    document = outcome(1, "real", calibration=["forward_rate"])
    document["flows"][0] |= flow(HOSTILE, 0, "failed")
    text = html.render(flows_report.page(document, Path("f.json")))
    assert "owned</script>" not in text and "&lt;script&gt;owned" in text
    assert "0/1" in text and "--wait-quiet 600" in text
    assert "./satlab flows f.json --clock real" in text


@pytest.mark.promise("P87")
def test_a_simulation_leaves_a_folder_with_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "ensure", lambda *_: None)
    monkeypatch.setattr(satvirtual, "simulated", lambda _: json.dumps(outcome()))
    file = tmp_path / "mine.json"
    file.write_text("{}")
    argv = ["flows", str(file), "--runs", str(tmp_path / "runs"), "--json"]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["clock"] == "virtual"
    (folder,) = (tmp_path / "runs").iterdir()
    assert sorted(each.name for each in folder.iterdir()) == [
        "flows.json",
        "outcome.json",
        "report",
    ]
    assert json.loads((folder / "outcome.json").read_text()) == outcome()
    text = (folder / "report" / "index.html").read_text()
    assert re.search(r"mine: 2 flows, virtual clock", text)
    assert str(folder / "report" / "index.html") in done.stderr.replace("\n", "")
