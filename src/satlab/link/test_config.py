# SPDX-License-Identifier: GPL-3.0-or-later
"""Link configuration and plan: the models against the schemas, and what satlink's answers turn
into.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.terminals import ProfileTerminal, spots, with_terminals
from satlab.common.topology import load
from satlab.link import satlink
from satlab.link.config import (
    BdpQueue,
    BytesQueue,
    Direction,
    LinkConfig,
    LinkRequest,
    Loss,
    build_config,
)
from satlab.link.plan import LinkPlan, ReturnPlan, ScpcPlan, plan_link
from satlab.run import validate

PLAN = {
    "schema": "satlab/link-plan/1",
    "version": "0.1.0",
    "profile": "geo",
    "profile_sha256": "00",
    "timing": "standard",
    "seed": 1,
    "terrestrial_one_way_delay_ms": 40.0,
    "rtt_ms": {"configured": 580.0, "min": 581.0, "mean": 590.0, "max": 600.0},
    "terminals": [],
    "advice": ["a BDP of 1.2 holds one window"],
}
_BOTH = {
    "symbol_rate_baud": 8e6,
    "modcod_id": 7,
    "modcod": "QPSK 3/4",
    "es_n0_db": 9.0,
    "rate_bps": 1e7,
}
_BOTH |= {
    "one_way_delay_ms": 250.0,
    "queue_bytes": 9,
    "bdp_bytes": 8,
    "loss_ratio": 0.0,
    "loss_unit": "packet",
}
_BOTH |= {
    "queue_discipline": "pie",
    "queue_ecn": True,
    "loss_models": ["bursts"],
    "jitter_mean_ms": 1.0,
}
_BOTH |= {"udp_goodput_bps": 9e6, "tcp_goodput_bps": 8e6}
_ACM = {"modcod_ids": [1, 28], "margin_db": 1.0, "hysteresis_db": 0.3, "report_period_ms": 1000.0}
PLAN["forward"] = _BOTH | {"frame_ns": 5, "frame_payload_bytes": 6000, "acm": _ACM}
PLAN["return"] = _BOTH | {
    "superframe_ns": 5,
    "slots_per_superframe": 4,
    "burst_payload_bytes": 100,
    "demand": None,
}


def schema(name: str) -> Any:
    return json.loads((paths.SCHEMAS / f"{name}.schema.json").read_text())


def config(**changes: Any) -> LinkConfig:
    request = LinkRequest(**({"profile": Path("/profiles/geo")} | changes))
    return build_config(load(), "demo", request, metrics=Path("/run/link.jsonl"))


def program(folder: Path, *, stdout: str = "", stderr: str = "", status: int = 0) -> Path:
    """Make an executable with fixed output and status."""
    for name, text in (("out", stdout), ("err", stderr)):
        (folder / name).write_text(text)
    file = folder / "satlink"
    file.write_text(f'#!/bin/sh\ncat "{folder}/out"\ncat "{folder}/err" >&2\nexit {status}\n')
    file.chmod(0o755)
    return file


def test_configuration_names_the_ends_of_both_links() -> None:
    document = json.loads(config().to_json())
    jsonschema.validate(document, schema("link-config"))
    assert document["st"] == {"netns": "/run/netns/satlab-demo.st", "tun": "sat0"}
    assert document["gw"] == {"netns": "/run/netns/satlab-demo.gw", "tun": "sat0"}
    assert document["near"] == {"netns": "/run/netns/satlab-demo.proxy-gw", "tun": "inet0"}
    assert document["far"] == {"netns": "/run/netns/satlab-demo.server", "tun": "inet0"}
    assert document["forward"]["queue"] == {"bdp": 1.2}
    assert document["terrestrial_one_way_delay_ms"] == 40.0
    assert document["metrics"] == "/run/link.jsonl"


def test_what_is_asked_reaches_the_configuration() -> None:
    made = config(
        forward=Direction(queue=BytesQueue(bytes=5000), loss=Loss(ratio=0.01, unit="frame")),
        return_=Direction(queue=BdpQueue(bdp=2)),
        terrestrial_one_way_delay_ms=0.0,
        metrics=Path("/runs/x/raw/link.jsonl"),
        seed=7,
        run_id="x",
    )
    assert LinkConfig.model_validate_json(made.to_json()) == made
    document = json.loads(made.to_json())
    jsonschema.validate(document, schema("link-config"))
    assert document["forward"] == {
        "queue": {"bytes": 5000},
        "loss": {"ratio": 0.01, "unit": "frame"},
    }
    assert document["return"] == {"queue": {"bdp": 2.0}, "loss": {"ratio": 0.0, "unit": "packet"}}
    assert document["terrestrial_one_way_delay_ms"] == 0.0
    assert (document["metrics"], document["seed"], document["run_id"]) == (
        "/runs/x/raw/link.jsonl",
        7,
        "x",
    )


def test_further_terminals_have_their_ids_of_the_profile() -> None:
    topology = with_terminals(load(), 3)

    def further(*ids: int) -> list[dict[str, Any]]:
        request = LinkRequest(
            profile=Path("/profiles/geo"), terminals=tuple(map(ProfileTerminal, ids))
        )
        document = json.loads(
            build_config(topology, "demo", request, metrics=Path("/run/link.jsonl")).to_json()
        )
        jsonschema.validate(document, schema("link-config"))
        found: list[dict[str, Any]] = document["terminals"]
        return found

    assert [one["id"] for one in further(4, 5)] == [4, 5]
    assert [one["subnet"] for one in further(4, 5)] == ["198.18.66.0/24", "198.18.67.0/24"]
    assert all("id" not in one for one in further())
    assert [one["address"] for one in further()] == ["198.18.63.3/32", "198.18.63.4/32"]
    assert all("address6" not in one for one in further())
    with pytest.raises(ConfigError, match="1 further terminals"):
        further(4)


def test_p345_gateways_of_spots_have_their_ids_of_the_profile() -> None:
    found = (ProfileTerminal(4, 6), ProfileTerminal(5))
    topology = with_terminals(load(), 3, spots(found))
    request = LinkRequest(profile=Path("/profiles/geo"), terminals=found)
    document = json.loads(
        build_config(topology, "demo", request, metrics=Path("/run/link.jsonl")).to_json()
    )
    jsonschema.validate(document, schema("link-config"))
    assert document["gateways"] == [
        {"netns": "/run/netns/satlab-demo.gw-2", "tun": "sat0", "id": 6}
    ]
    assert [one["address"] for one in document["terminals"]] == [
        "198.18.162.3/32",
        "198.18.63.4/32",
    ]


def test_opensand_takes_the_satellite_segment_from_satlink() -> None:
    made = config(emulator="opensand")
    document = json.loads(made.to_json())
    jsonschema.validate(document, schema("link-config"))
    assert (document["st"], document["gw"], document["near"]["tun"]) == (None, None, "inet0")
    assert LinkConfig.model_validate_json(made.to_json()) == made
    assert (made.emulator, config().emulator) == ("opensand", "satlink")


@pytest.mark.parametrize(
    "change",
    [
        {"speed": 3},
        {"forward": {"queue": {"bdp": 1, "bytes": 1}, "loss": {"ratio": 0, "unit": "packet"}}},
        {"return": {"queue": {"bdp": 1}, "loss": {"ratio": 1.1, "unit": "packet"}}},
        {"return": {"queue": {"bdp": 1}, "loss": {"ratio": 0, "unit": "byte"}}},
        {"st": {"netns": "x", "tun": "sixteen-letters-"}},
    ],
)
def test_model_and_schema_refuse_the_same(change: dict[str, Any]) -> None:
    """Limits of single values are in test_schema_limits.py."""
    document = json.loads(config().to_json()) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema("link-config"))
    with pytest.raises(ValueError, match="validation error"):
        LinkConfig.model_validate(document)


@pytest.mark.parametrize("end", ["st", "gw"])
def test_a_segment_is_whole_or_left_out(end: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        LinkConfig.model_validate(json.loads(config().to_json()) | {end: None})


def test_bad_requests_are_reported_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        config(seed=-1, metrics_interval_ms=1)
    assert [fault.place for fault in caught.value.faults] == [
        "link.seed",
        "link.metrics_interval_ms",
    ]


def test_plan_is_read(tmp_path: Path) -> None:
    jsonschema.validate(PLAN, schema("link-plan"))
    plan = plan_link(config(), program(tmp_path, stdout=json.dumps(PLAN)))
    assert isinstance(plan.return_, ReturnPlan)
    assert plan.return_.burst_payload_bytes == 100
    assert plan.rtt_ms.mean == 590.0
    assert json.loads(plan.to_json()) == PLAN
    assert LinkPlan.model_validate_json(plan.to_json()) == plan


def test_p307_the_plan_of_an_scpc_return_link_is_read(tmp_path: Path) -> None:
    carrier: dict[str, Any] = _BOTH | {"frame_ns": 5, "frame_payload_bytes": 6000, "acm": _ACM}
    scpc = PLAN | {"return": carrier | {"demand": None}}
    written = PLAN | {"return": carrier}
    jsonschema.validate(written, schema("link-plan"))
    plan = plan_link(config(), program(tmp_path, stdout=json.dumps(scpc)))
    assert isinstance(plan.return_, ScpcPlan)
    assert (plan.return_.frame_payload_bytes, plan.return_.demand) == (6000, None)
    assert json.loads(plan.to_json()) == scpc
    assert LinkPlan.model_validate_json(plan.to_json()) == plan


def test_faults_of_the_profile_are_handed_on(tmp_path: Path) -> None:
    said = (
        "error: profile geo has 2 faults\n"
        "geo/profile_gw.xml:12: access/dama/cra: out of range (0 to 100 (kbit/s))\n"
        "geo/topology.xml:3: frequency_plan: needs more\n"
        "hint: fix them\n"
    )
    with pytest.raises(ConfigError) as caught:
        plan_link(config(), program(tmp_path, stderr=said, status=2))
    assert caught.value.faults == (
        Fault("geo/profile_gw.xml:12: access/dama/cra", "out of range", "0 to 100 (kbit/s)"),
        Fault("geo/topology.xml:3: frequency_plan", "needs more"),
    )
    assert str(caught.value) == "profile geo has 2 faults"
    assert caught.value.hint == "fix them"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"status": 3, "stderr": "error: no TUN\n"}, "status 3: error: no TUN"),
        ({"status": 101}, "status 101: it said nothing"),
        ({"stdout": "rubbish"}, "answer not understood"),
        ({"stdout": json.dumps(PLAN | {"extra": 1})}, "answer not understood"),
    ],
)
def test_an_unusable_answer_is_the_hosts_fault(
    tmp_path: Path, answer: dict[str, Any], says: str
) -> None:
    with pytest.raises(HostError, match=says):
        plan_link(config(), program(tmp_path, **answer))


def test_no_profile_is_valid_by_a_program_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "SATLINK", program(tmp_path, status=101))
    with pytest.raises(HostError, match="satlink validate ended with status 101"):
        validate.check(paths.PROFILES / "geo")


def test_missing_and_hanging_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match="No such file") as caught:
        plan_link(config(), tmp_path / "satlink")
    assert "./satlab" in caught.value.hint
    monkeypatch.setattr(satlink, "DEADLINE_S", 0.05)
    hanging = tmp_path / "satlink"
    hanging.write_text("#!/bin/sh\nexec sleep 5\n")
    hanging.chmod(0o755)
    with pytest.raises(HostError, match=r"did not answer in 0\.05 s"):
        plan_link(config(), hanging)
