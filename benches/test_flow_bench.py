# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of `satlab bench flows`, with a program of known output in place of satvirtual."""

import json
from pathlib import Path

import pytest

from benches import flow_bench
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError

OUTCOME = {"link": [{"name": "forward", "in_packets": 1000}, {"name": "return", "in_packets": 500}]}


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "satvirtual"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", file)


def test_packets_are_counted_per_second_of_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    program(tmp_path, f"{burn}; echo '{json.dumps(OUTCOME)}'", monkeypatch)
    result = flow_bench.measure((1, 2), ProgressLog(quiet=True))
    assert [case["flows"] for case in result["cases"]][:4] == [1, 1, 2, 2]
    for case in result["cases"]:
        assert case["packets"] == 1500
        assert case["packets_per_cpu_s"] == pytest.approx(1500 / case["cpu_s"], rel=0.1)
    assert "packets per CPU second" in next(flow_bench.lines(result))


def test_a_failure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo broken >&2; exit 2", monkeypatch)
    with pytest.raises(HostError, match="broken"):
        flow_bench.measure((1,), ProgressLog(quiet=True))


def test_a_case_has_so_many_flows() -> None:
    request = flow_bench.request(64, "bbr3", 60)
    assert len({flow["id"] for flow in request["flows"]}) == 64
