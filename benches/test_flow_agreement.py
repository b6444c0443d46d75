# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of both clocks, on outcomes that are known."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from benches import flow_agreement
from benches.flow_agreement import Compared
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.flows import real_clock, satvirtual


def outcome(
    rates: list[float], jain: float, calibration: list[str] | None = None, failed: int = 0
) -> dict[str, Any]:
    group = {"jain": jain, "utilisation": sum(rates) / 20, "failed": failed}
    flows = [{"goodput_mbps": rate} for rate in rates]
    return {"flows": flows, "groups": [group], "calibration": calibration or []}


def test_flows_are_compared_by_their_rank() -> None:
    found = flow_agreement.compared([outcome([8, 10], 0.99)], [outcome([10.1, 8.0], 0.985)])
    assert found["deviation_by_rank"] == pytest.approx([0, 0.01])
    assert found["agrees"]
    assert found["is_measurable"]


@pytest.mark.parametrize(
    ("real", "agrees", "is_measurable"),
    [
        (outcome([10, 8], 0.90), False, True),
        (outcome([7, 9], 0.99), False, True),
        (outcome([10, 8], 0.99, failed=1), False, True),
        (outcome([10, 8], 0.99, ["rtt_ms"]), True, False),
        (outcome([0, 0], 0.99), False, True),
    ],
)
def test_what_differs_does_not_agree(
    real: dict[str, Any], agrees: bool, is_measurable: bool
) -> None:
    found = flow_agreement.compared([outcome([10, 8], 0.99)], [real])
    assert (found["agrees"], found["is_measurable"]) == (agrees, is_measurable)


def test_runs_are_compared_by_their_medians() -> None:
    virtual = [outcome([8, 10], jain) for jain in (0.9, 0.95, 0.99)]
    real = [
        outcome([8, 10], 0.95),
        outcome([2, 4], 0.7),
        outcome([10, 8], 0.96),
        outcome([1, 1], 1.0, ["rtt_ms"]),
    ]
    found = flow_agreement.compared(virtual, real)
    assert found["jain"]["deviation"] == 0
    assert found["jain"]["real"] == [0.95, 0.7, 0.96]
    assert found["goodput_mbps"] == {"virtual": [8, 10], "real": [8, 10]}
    assert (found["agrees"], found["is_measurable"], found["out_of_calibration"]) == (
        True,
        True,
        ["rtt_ms"],
    )
    assert not flow_agreement.compared(virtual, real[2:])["is_measurable"]


def test_a_case_has_its_stacks_in_turn_and_its_step() -> None:
    request = flow_agreement.flows("mixed-step", 4)
    assert [flow["stack"] for flow in request["flows"]] == ["quinn", "noq", "quinn", "noq"]
    assert request["wire"]["timeline"][0]["delay_ms"] == 100
    assert flow_agreement.flows("cubic", 2)["wire"]["timeline"] == []


def test_a_result_is_a_line_for_each_case() -> None:
    case = {"scenario": "cubic", "flows": 2} | flow_agreement.compared(
        *[[outcome([8, 10], 0.99)]] * 2
    )
    (line,) = flow_agreement.lines({"cases": [case]})
    assert "jain +0.0%" in line
    assert "OFF" not in line


def test_chosen_scenarios_are_measured_in_several_labs_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = threading.Barrier(2, timeout=120)

    def lab(file: Path, *_: Any) -> dict[str, Any]:
        both.wait()
        return outcome([8, 10], 0.99)

    monkeypatch.setattr(real_clock, "run", lab)
    monkeypatch.setattr(satvirtual, "simulated", lambda _: json.dumps(outcome([8, 10], 0.99)))
    asked = Compared(["bbr3"], [2], runs=4, parallel=2)
    found = flow_agreement.measure(asked, ProgressLog(quiet=True), threading.Event())
    assert [(case["scenario"], len(case["jain"]["real"])) for case in found["cases"]] == [
        ("bbr3", 4)
    ]
    assert (found["agree"], found["parallel"]) == (True, 2)


def test_a_lab_that_breaks_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, begun = threading.Event(), []

    def lab(file: Path, *_: Any) -> dict[str, Any]:
        begun.append(file)
        if file.parent.name == "0":
            raise HostError("the lab broke")
        stop.wait(120)
        raise KeyboardInterrupt

    monkeypatch.setattr(real_clock, "run", lab)
    monkeypatch.setattr(satvirtual, "simulated", lambda _: json.dumps(outcome([8, 10], 0.99)))
    with pytest.raises(HostError, match="broke"):
        flow_agreement.measure(
            Compared(["cubic"], [2], runs=50, parallel=2), ProgressLog(quiet=True), stop
        )
    assert stop.is_set()
    assert len(begun) < 50
