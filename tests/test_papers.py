# SPDX-License-Identifier: GPL-3.0-or-later
"""Cells of papers through satvirtual, shortened."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.papers import flow_request, paper
from satlab.papers.paper import Cell, Paper

CELLS = [
    ("seed-000", "a3/intra/2/1/bbr3"),
    ("seed-000", "c1/0/upload/17/1/cubic"),
    ("seed-001", "dvb-wifi/5/s5/bbr3"),
    ("seed-003", "more/migration-drop/bbr3"),
    ("seed-004", "table1/wifi/reno"),
    ("rfc-9959", "half/bulk/cr"),
]


def outcome(file: Path, request: dict[str, Any]) -> bytes:
    if not paths.SATVIRTUAL.exists():
        pytest.skip(f"{paths.SATVIRTUAL} is not built")
    file.write_text(json.dumps(request))
    done = subprocess.run([paths.SATVIRTUAL, "flows", file], capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout


def shortened(about: Paper, cell: Cell, number: int) -> dict[str, Any]:
    """Return a run of 25 s with its changes at 5 s."""
    request = flow_request.request(about, cell.model_copy(update={"duration_s": 25.0}), number)
    request["wire"]["timeline"] = [{**step, "at_s": 5} for step in request["wire"]["timeline"]]
    for flow in request["flows"]:
        if "migrate_s" in flow:
            flow["migrate_s"] = [5]
    return request


@pytest.mark.parametrize(("name", "cell"), CELLS)
def test_equal_seeds_have_equal_outcomes_to_the_bit(tmp_path: Path, name: str, cell: str) -> None:
    about = paper.load(name)
    (chosen,) = about.select([cell], quick=False)
    request = shortened(about, chosen, 1)
    first, second = (outcome(tmp_path / "flows.json", request) for _ in range(2))
    assert first == second
    found = json.loads(first)
    text = (paths.SCHEMAS / "virtual-flows-outcome.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(found)
    assert all(flow["status"] != "failed" for flow in found["flows"])
    other = shortened(about, chosen, 2)
    assert outcome(tmp_path / "other.json", other) != first
