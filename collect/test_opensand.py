# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND's logs and probes: their dates name no time zone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from collect import opensand
from collect.records import Record, Series

ORIGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "hours", [0, 1, -8, 5.75, 13], ids=["UTC", "Berlin", "Los Angeles", "Kathmandu", "Auckland"]
)
def test_probes_are_read_in_the_time_zone_of_the_run(hours: float, tmp_path: Path) -> None:
    probes = tmp_path / "opensand" / "gw" / "gw0_0.csv"
    probes.parent.mkdir(parents=True)
    local = (datetime.fromtimestamp(ORIGIN + after_s + hours * 3600, UTC) for after_s in (-20, 0.5))
    dates = "".join(f"{time:%Y-%m-%d %H:%M:%S.%f};7\n" for time in local)
    probes.write_text("Date;Up_Return_modcod.Rx (index)\n" + dates)
    found = [one for one in opensand.records(tmp_path, ORIGIN, 0.0) if isinstance(one, Series)]
    assert [list(one.t_s) for one in found] == [[-20, 0.5]]


@pytest.mark.parametrize("hours", [0, -8, 5.75], ids=["UTC", "Los Angeles", "Kathmandu"])
def test_losses_of_the_calibration_are_apart_from_those_of_the_scenario(
    hours: float, tmp_path: Path
) -> None:
    """Lines as 8.2.0 writes them; the library that reassembles bursts writes further ones."""
    said = [
        (0.1, "EVENT", "Blocks initialized"),
        (4.0, "ERROR", "error during encapsulation : EncapErrorSizeBuffer"),
        (4.0, "ERROR", "SF#44: error while processing packet #33"),
        (4.1, "ERROR", "error during encapsulation : EncapErrorSizeBuffer"),
        (9.5, "ERROR", "[rle_decapsulate][Module 0] Error during reassembly"),
        (9.5, "ERROR", "rle failed to decaspulate SDU"),
        (9.6, "ERROR", "error during encapsulation : EncapErrorSizeBuffer"),
    ]
    lines = []
    for after_s, level, text in said:
        at = datetime.fromtimestamp(ORIGIN + after_s + hours * 3600, UTC)
        lines.append(f"[{at:%Y-%m-%d %H:%M:%S.%f}][{level}][gw0][encap] {text}\n")
    log = tmp_path / "logs" / "opensand-gw.log"
    log.parent.mkdir()
    log.write_text("".join(lines))
    found = [one for one in opensand.records(tmp_path, ORIGIN, 9.0) if isinstance(one, Record)]
    counted = {(one.labels["cause"], one.labels["phase"]): one.value for one in found if one.value}
    assert counted == {
        ("gse_encapsulation", "calibration"): 2,
        ("gse_encapsulation", "scenario"): 1,
        ("rle_reassembly", "scenario"): 1,
    }
    assert len(found) == 2 * len(opensand.LOSSES)
