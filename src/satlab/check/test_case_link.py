# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fields of a suite's cases become: queues, jitter, outages, seeds."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from satlab.check import case_link, check_run, suite
from satlab.check.check_run import CheckRequest
from satlab.check.conftest import small
from satlab.check.report import interop_result
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.link.config import Loss, PacketsQueue, UniformJitter


def test_the_satellite_fork_s_cases_are_those_of_both_clocks() -> None:
    """SAT and SATL: 20/2 Mbit/s, 600 ms, 25 packets, 10 MiB in 120 s; 1 % loss each way in 360 s."""
    transfers, endpoints = (
        suite.load(paths.SUITES / f"{name}.yml") for name in ("satellite", "interop")
    )
    for name, timeout_s, lost in (("sat", 120, 0.0), ("satl", 360, 0.01)):
        for plan, case in ((one, one.case(name)) for one in (transfers, endpoints)):
            ratio = case.loss.ratio if isinstance(case.loss, Loss) else 0.0
            found = (
                case.forward_mbps,
                case.return_mbps,
                plan.link.rtt_ms,
                case.queue_packets,
                case.timeout_s,
                ratio,
            )
            assert found == (20, 2, 600, 25, timeout_s, lost), (plan.name, name)
            link = case_link.build_request(plan, case)
            assert link.forward.queue == link.return_.queue == PacketsQueue(packets=25)
        assert (
            endpoints.case(name).files_bytes
            == (round(transfers.marks_mb[-1] * 1e6),)
            == (10 << 20,)
        )
        assert interop_result.abbreviation(name) == name.upper()


def test_a_queue_has_one_limit_and_jitter_and_outages_reach_the_link() -> None:
    case = {"id": "a", "forward_mbps": 10, "return_mbps": 2, "targets_s": [3.0]}
    with pytest.raises(ValueError, match="exclude each other"):
        small(cases=[case | {"queue_bdp": 1, "queue_packets": 5}])
    plan = small(cases=[case | {"jitter_ms": 20, "changes": [{"at_s": 3, "outage_s": 2.5}]}])
    link = case_link.build_request(plan, plan.cases[0])
    assert link.forward.jitter == link.return_.jitter == UniformJitter(uniform_ms=20)
    made: Any = SimpleNamespace(config=None, plan=None, request=link)
    [step] = case_link.for_lab(made, plan.cases[0], 1, Path("m")).timeline.steps  # type: ignore[union-attr]
    assert (step.at_s, step.set_.direction, step.set_.outage) == (3, "both", 2.5)


def test_impairments_and_drops_begin_with_the_first_transfer() -> None:
    plan = small(
        {
            "loss": {"ratio": 0.01},
            "reorder": {"ratio": 0.05, "packets": 2, "ms": 50},
            "duplicate": 0.1,
            "corrupt": 0.2,
            "drops": {"return": [2, 3]},
            "changes": [{"at_s": 1, "outage_s": 1}],
        }
    )
    made: Any = SimpleNamespace(
        request=case_link.build_request(plan, plan.cases[0]), config=None, plan=None
    )
    timeline = case_link.for_lab(made, plan.cases[0], 1, Path("m")).timeline
    assert timeline is not None and timeline.starts == "on-request"
    assert [(step.at_s, step.set_.model_dump()) for step in timeline.steps] == [
        (
            0,
            {
                "direction": "both",
                "reorder": {"ratio": 0.05, "packets": 2, "ms": 50},
                "duplicate": 0.1,
                "corrupt": 0.2,
            },
        ),
        (
            0,
            {
                "direction": "return",
                "loss": (
                    {"unit": "packet", "ratio": 0.01},
                    {"unit": "packet", "model": "list", "numbers": (2, 3)},
                ),
            },
        ),
        (1, {"direction": "both", "outage": 1}),
    ]
    read = small(plan.cases[0].model_dump(exclude_defaults=True))
    assert read == plan


@pytest.mark.parametrize(
    "fields",
    [
        {"reorder": {"ratio": 0.1}},
        {"reorder": {"ratio": 2, "ms": 5}},
        {"duplicate": -0.1},
        {"corrupt": 1.5},
        {"drops": {}},
        {"drops": {"return": [0]}},
        {"drops": {"back": [1]}},
    ],
)
def test_impossible_impairments_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        small(fields)


def test_changes_become_those_of_the_satellite_segment() -> None:
    plan = small({"forward_mbps": 50, "changes": [{"at_s": 45, "forward_mbps": 25, "rtt_ms": 260}]})
    link: Any = SimpleNamespace(
        request=case_link.build_request(plan, plan.cases[0]),
        plan=SimpleNamespace(
            forward=SimpleNamespace(symbol_rate_baud=25e6), terrestrial_one_way_delay_ms=75.0
        ),
    )
    timeline = case_link.for_lab(link, plan.cases[0], 1, Path("m")).timeline
    assert timeline is not None and {step.at_s for step in timeline.steps} == {45}
    found = [step.set_.model_dump(exclude_unset=True) for step in timeline.steps]
    assert found == [
        {"direction": "forward", "symbol_rate_baud": 12_500_000},
        {"direction": "both", "delay_ms": 55.0},
    ]


def test_a_suite_has_its_own_seed_and_number_of_samples(tmp_path: Path) -> None:
    file = tmp_path / "own.yml"
    document = small(seed=7, runs=2, marks_mb=[0.1]).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    file.write_text(yaml.safe_dump(document))
    for seed, runs, seeds in ((None, None, [7, 8]), (3, 1, [3])):
        request = CheckRequest(str(file), runs=runs, seed=seed, out=tmp_path / str(len(seeds)))
        found = check_run.run(request, ProgressLog(quiet=True))
        assert [one.seed for one in found.samples["a"]] == seeds
        assert found.document()["seed"] == seeds[0]
