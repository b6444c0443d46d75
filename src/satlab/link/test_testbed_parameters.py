# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

from satlab.common.errors import ConfigError
from satlab.common.paths import SCENARIOS
from satlab.link import testbed_parameters
from satlab.link.config import Loss
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.scenario_run import RunRequest


def test_the_parameters_of_table_1_are_set_by_name() -> None:
    chosen = testbed_parameters.choose(
        {
            "internet_delay_ms": "25",
            "satcom_delay_ms": "120",
            "satcom_loss_percent": "0.1",
            "satcom_attenuation_db": "3",
            "pep": "none",
        },
        LinkOptions(),
    )
    assert chosen.settings == {"pep": "none"}
    assert (chosen.link.terrestrial_delay_ms, chosen.link.loss) == (25, 0.001)
    assert [c.model_dump(exclude={"direction"}) for c in chosen.at_start] == [
        {"delay_ms": 120},
        {"attenuation_db": 3},
    ]


def test_a_run_s_timeline_starts_with_them(tmp_path: Path) -> None:
    chosen = testbed_parameters.choose(
        {"satcom_delay_ms": "120", "satcom_loss_percent": "1", "pep": "none"},
        LinkOptions(profile="leo"),
    )
    request = RunRequest(
        SCENARIOS / "tcp.json", chosen.link, chosen.settings, tmp_path, at_start=chosen.at_start
    )
    link = scenario_run.prepare(request).link
    assert link.timeline is not None
    assert (link.timeline.starts, link.timeline.steps[0].at_s) == ("on-request", 0)
    assert link.timeline.steps[0].set_.delay_ms == 120
    assert link.forward.loss == Loss(ratio=0.01)


def test_every_fault_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        testbed_parameters.choose(
            {"satcom_delay_ms": "fast", "satcom_loss_percent": "101", "internet_delay_ms": "-1"},
            LinkOptions(),
        )
    assert len(caught.value.faults) == 3
