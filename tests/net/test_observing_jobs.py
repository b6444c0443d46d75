# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that change and watch the lab, in a real run: link control, capture, load of the host."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from satlab.link.options import LinkOptions
from tests import json_lines
from tests.net.conftest import AsPlanned, measured_run

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("satlink")]

Function = dict[str, Any]


def job(number: int, entity: str, name: str, arguments: Function, **wait: Any) -> Function:
    call = {"entity_name": entity, name: arguments}
    return {"id": number, "label": f"{name} {number}", "start_job_instance": call, "wait": wait}


def test_the_link_is_changed_captured_and_the_host_watched(
    tmp_path: Path, as_planned: AsPlanned
) -> None:
    """Round-trip times rise by twice the 50 ms that the satellite's delay is raised by."""
    ping = {"destination_ip": "198.18.4.2", "count": 5, "interval": 0.2}
    functions = [
        job(1, "client", "satlab_system_load", {"interval": 0.5}),
        job(2, "client", "satlab_capture", {"interface": "lan0", "seconds": 60, "filter": "icmp"}),
        job(3, "client", "satlab_ping", ping, launched_ids=[1, 2], time=1),
        job(
            4,
            "sat",
            "satlab_link",
            {"set": {"direction": "both", "delay_ms": 66}},
            finished_ids=[3],
        ),
        job(5, "client", "satlab_ping", ping, finished_ids=[4]),
        {
            "id": 6,
            "stop_job_instances": {"openbach_function_ids": [1, 2]},
            "wait": {"finished_ids": [5], "time": 1},
        },
    ]
    scenario = tmp_path / "watched.json"
    scenario.write_text(json.dumps({"name": "watched", "openbach_functions": functions}))
    outcome = measured_run(as_planned, scenario, LinkOptions(profile="leo"))
    raw = outcome.folder / "raw"
    jobs = json_lines.read(raw / "jobs.jsonl")
    said = {each["job"]: (raw / each["log"]).read_text() for each in jobs}
    assert {each["status"] for each in jobs} == {"Not Running", "Stopped"}, said
    sent = json_lines.read(raw / "stats.jsonl")

    times = {
        number: [
            r["rtt_ms"]
            for r in sent
            if r["_metadata"]["job_instance_id"] == number and "rtt_ms" in r
        ]
        for number in (3, 5)
    }
    before, after = (statistics.median(times[number]) for number in (3, 5))
    assert after - before == pytest.approx(100, abs=15)
    held = {
        r["_metadata"]["suffix"]: r["delay_ms"]
        for r in sent
        if r["_metadata"]["job_name"] == "satlab_link"
    }
    assert (held["forward"], held["return"]) == (66, 66)

    (captured,) = [r for r in sent if "packets" in r]
    assert captured["packets"] >= 18, "ten requests and their replies, some perhaps after the stop"
    (file,) = (raw / "files").glob("satlab_capture-*/*.pcapng")
    assert file.stat().st_mode & 0o077 == 0
    loads = [r for r in sent if "cpu_idle_ratio" in r]
    assert len(loads) >= 3
    assert {r["_metadata"]["suffix"] for r in sent if "rx_bps" in r} == {"lan0"}


def test_a_fade_is_followed_by_the_modcod(as_planned: AsPlanned) -> None:
    """6 dB off 17.99 dB, with a margin of 1 dB: 32APSK 9/10 (id 28) changes to 16APSK 3/4 (id 19),
    and comes back.
    """
    # iperf3 needs four round trips before its stream begins, and does not survive losses in them.
    settings: Any = {"attenuation_db": "6", "duration": "12", "clear_s": "6", "fade_s": "4"}
    outcome = measured_run(as_planned, "fade", LinkOptions(profile="geo-acm"), **settings)
    raw = outcome.folder / "raw"
    jobs = json_lines.read(raw / "jobs.jsonl")
    assert {each["status"] for each in jobs} <= {"Not Running", "Stopped"}, jobs
    records = json_lines.read(raw / "stats.jsonl")
    assert [r["attenuation_db"] for r in records if "attenuation_db" in r] == [6, 0]
    lines = json_lines.read(raw / "link.jsonl")
    forward = [each["forward"] for each in lines if each["type"] == "sample"]
    ids = [sample["modcod_id"] for sample in forward]
    assert (ids[0], min(ids), ids[-1]) == (28, 19, 28)
    assert sum(sample["lost_frames"] for sample in forward) > 0, "until the gateway has followed"
