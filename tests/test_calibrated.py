# SPDX-License-Identifier: GPL-3.0-or-later
"""What network tests excuse of a calibration, and what not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.calibrated import calibrated, faults

NAMES = ("rtt_ms", "forward_udp_goodput_bps", "forward_loss_ratio", "late_packet_ratio.forward")


def write(
    folder: Path, *bad: str, names: tuple[str, ...] = NAMES, emulator: str = "satlink"
) -> Path:
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps({"emulator": emulator}))
    checks: list[dict[str, Any]] = [
        {"name": name, "measured": 1.0, "low": 2.0, "high": 3.0, "note": "", "ok": name not in bad}
        for name in names
    ]
    (folder / "raw" / "calibration.json").write_text(json.dumps({"checks": checks}))
    return folder


@pytest.mark.parametrize("name", NAMES[:3])
def test_rate_loss_and_rtt_must_hold(name: str, tmp_path: Path) -> None:
    assert faults(write(tmp_path, name)) == [f"{name} 1.0, not 2.0 to 3.0: "]
    with pytest.raises(AssertionError, match=f"not as planned.*{name}"):
        calibrated(lambda: write(tmp_path, name))


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_check_that_was_not_made_does_not_hold(name: str, tmp_path: Path) -> None:
    rest = tuple(one for one in NAMES if one != name)
    assert faults(write(tmp_path, names=rest)) == [f"{name} is missing"]
    lacks_losses = faults(write(tmp_path, names=rest, emulator="opensand"))
    assert lacks_losses == ([] if name == "forward_loss_ratio" else [f"{name} is missing"])


def test_a_run_that_ended_before_its_calibration_fails_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no calibration in .*: no manifest"):
        calibrated(lambda: tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"reason": "the lab did not start"}))
    with pytest.raises(AssertionError, match=r"no calibration in .*: the lab did not start"):
        calibrated(lambda: tmp_path)


@pytest.mark.parametrize(
    "name", ["late_packet_ratio.forward", "browser_wait_ratio", "cpu_wait_ratio.client"]
)
def test_a_busy_host_is_excused(name: str, tmp_path: Path) -> None:
    assert calibrated(lambda: write(tmp_path, name, names=(*NAMES, name))) == tmp_path


def test_packets_that_the_host_lost_are_not_excused(tmp_path: Path) -> None:
    assert faults(write(tmp_path, "host_loss_ratio", names=(*NAMES, "host_loss_ratio")))


def test_a_run_is_repeated_once(tmp_path: Path) -> None:
    runs: list[Path] = []

    def run() -> Path:
        runs.append(write(tmp_path / str(len(runs)), *([] if runs else ["rtt_ms"])))
        return runs[-1]

    assert calibrated(run) == tmp_path / "1"
    assert len(runs) == 2
