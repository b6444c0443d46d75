# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs for load, files, packet filter, rate and figures, in real runs over leo."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from tests import json_lines
from tests.net.conftest import AsPlanned, executed, measured_run
from tests.net.test_observing_jobs import Function, job
from tests.net.test_services import Figures, measure

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("satlink")]
SERVER = "198.18.4.2"


def figures_of(as_planned: AsPlanned, folder: Path, functions: list[Function]) -> Figures:
    """Run a scenario of these functions over leo."""
    scenario = folder / "tried.json"
    scenario.write_text(json.dumps({"name": "tried", "openbach_functions": functions}))

    return Figures(measured_run(as_planned, scenario, LinkOptions(profile="leo")))


def records(found: Figures) -> list[dict[str, Any]]:
    return json_lines.read(found.outcome.folder / "raw/stats.jsonl")


def test_a_file_comes_over_ftp_at_the_rate_that_an_interface_is_limited_to(
    as_planned: AsPlanned, tmp_path: Path
) -> None:
    serve = {"server": {"bind": SERVER, "exit": True}}
    fetch = {"client": {"server_ip": SERVER, "direction": "download", "size_bytes": 500_000}}
    functions = [
        job(1, "server", "satlab_shape", {"interface": "inet0", "rate_bps": 1_000_000}),
        job(2, "server", "satlab_ftp", serve),
        job(
            3,
            "server",
            "satlab_await",
            {"jobs": ["satlab_shape", "satlab_ftp"]},
            launched_ids=[1, 2],
        ),
        job(4, "client", "satlab_ftp", fetch, finished_ids=[3]),
        {
            "id": 5,
            "stop_job_instances": {"openbach_function_ids": [1]},
            "wait": {"finished_ids": [4]},
        },
        job(
            6,
            "client",
            "satlab_postprocess",
            {"statistic": "throughput_bps", "comparison": {}},
            finished_ids=[4],
        ),
    ]
    found = figures_of(as_planned, tmp_path, functions)
    assert 0.5e6 < found.one("goodput_bps", direction="download") < 1.0e6
    assert found.one("received_bytes") == 500_000
    sent = [record["sent_bytes"] for record in records(found) if "sent_bytes" in record]
    assert sent[-1] > 500_000


def test_an_upload_over_ftp_is_a_figure_of_its_receiver(as_planned: AsPlanned) -> None:
    found = measure(as_planned, "ftp", "leo", direction="upload", size_bytes="2000000")
    assert found.one("goodput_bps", direction="upload") > 1e5
    assert found.one("transfer_time_s") > 0
    assert list((found.outcome.folder / "raw/files").glob("satlab_postprocess-*/figure.html"))


def test_a_load_is_measured_and_drawn(as_planned: AsPlanned) -> None:
    found = measure(as_planned, "load", "leo", duration="4")
    assert 10 < found.one("one_way_delay_ms", stat="min") < 200
    assert found.one("stream_loss_ratio") == 0
    assert 0.5e6 < found.one("load_sent_bps") < 1.5e6
    assert found.one("load_received_bps") == pytest.approx(found.one("load_sent_bps"), rel=0.2)
    (table,) = (found.outcome.folder / "raw/files").glob("satlab_postprocess-*/table.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)


def test_selected_packets_of_a_load_are_counted_and_others_dropped(
    as_planned: AsPlanned, tmp_path: Path
) -> None:
    marked = {
        "hook": "OUTPUT",
        "protocol": "udp",
        "destination_port": 5010,
        "dscp": {"code_point": 46},
    }
    dropped = {"hook": "INPUT", "protocol": "icmp", "drop": {}}
    send = {"send": {"destination_ip": SERVER, "duration_s": 1, "gap": "gamma", "gap_ms": 10}}
    ping = {"destination_ip": SERVER, "count": 2, "interval": 0.2}
    both = ["satlab_packet_filter", "satlab_load"]
    functions = [
        job(1, "client", "satlab_packet_filter", marked),
        job(2, "server", "satlab_packet_filter", dropped),
        job(3, "server", "satlab_load", {"receive": {"bind": SERVER}}),
        job(4, "client", "satlab_await", {"jobs": ["satlab_packet_filter"]}, launched_ids=[1]),
        job(5, "server", "satlab_await", {"jobs": both}, launched_ids=[2, 3]),
        job(6, "client", "satlab_load", send, finished_ids=[4, 5]),
        {
            **job(7, "client", "satlab_ping", ping, finished_ids=[4, 5]),
            "on_fail": {"policy": "Ignore"},
        },
        {
            "id": 8,
            "stop_job_instances": {"openbach_function_ids": [1, 2]},
            "wait": {"finished_ids": [3, 6, 7], "time": 1},
        },
    ]
    scenario = tmp_path / "tried.json"
    scenario.write_text(json.dumps({"name": "tried", "openbach_functions": functions}))
    request = scenario_run.RunRequest(
        scenario, LinkOptions(profile="leo"), runs=tmp_path / "runs", report=False
    )
    found = Figures(executed(request))
    selected: dict[str, int] = {}
    for record in records(found):
        if "selected_packets" in record:
            selected[record["_metadata"]["agent_name"]] = record["selected_packets"]
    assert found.one("stream_loss_ratio") == 0
    ends = selected["client"] - found.one("stream_sent_packets")
    assert 1 <= ends <= 5, "the end of the load is sent until the receiver has gone"
    assert selected["server"] == found.one("ping_sent_packets") == 2
    assert found.one("ping_lost_packets") == 2
