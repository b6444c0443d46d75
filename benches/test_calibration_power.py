# SPDX-License-Identifier: GPL-3.0-or-later
"""What a level's lab deviates in, and how its calibrations are counted."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benches import calibration_power
from benches.calibration_power import LEVELS, Level
from satlab.common.console import ProgressLog
from satlab.run import calibrate


@pytest.mark.parametrize("level", [level for level in LEVELS if not level.busy], ids=str)
def test_a_lab_deviates_in_what_its_level_says(level: Level, tmp_path: Path) -> None:
    link = calibration_power._host(level, 0, "geo", tmp_path).link
    text = (Path(link.profile) / "topology.xml").read_text()
    assert f"<bandwidth>{50_000 * (1 + level.rate):.0f}<" in text
    assert link.forward.loss.ratio == level.loss  # type: ignore[union-attr]
    assert link.terrestrial_one_way_delay_ms == 40 + level.rtt_ms / 2


@dataclass(frozen=True)
class Plan:
    name: str


@dataclass(frozen=True)
class FakeLab:
    plan: Plan


class FakeHost:
    """A lab whose RTT is off in one of two calibrations if its level deviates."""

    def __init__(self, level: Level) -> None:
        self.level, self.count = level, 0

    @contextlib.contextmanager
    def opened(self, _: ProgressLog) -> Iterator[FakeLab]:
        yield FakeLab(Plan(self.level.name))

    def calibrate(self, lab: FakeLab) -> list[Any]:
        assert lab.plan == Plan("as planned"), "the plan has no deviation"
        self.count += 1
        off_ms = self.level.rtt_ms * (self.count % 2)
        return [calibrate.check("rtt_ms", "ms", 580, 580 + off_ms, 579, 581)]


def test_marked_calibrations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_power, "_host", lambda level, *_: FakeHost(level))
    levels = ("as planned", "RTT +2 ms")
    result = calibration_power.measure("geo", 6, 2, levels, ProgressLog(quiet=True))
    planned, late = result["levels"]
    assert (planned["marked"], planned["causes"]) == (0, {})
    assert (late["marked"], late["causes"]) == (4, {"rtt_ms": 4})
    assert late["figures"]["rtt_ms"]["max"] == 582
    assert "RTT +2 ms: 4 of 6 marked (rtt_ms 4)" in "\n".join(calibration_power.lines(result))
