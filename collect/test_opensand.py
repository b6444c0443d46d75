# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND's probes: their dates name no time zone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from collect import opensand
from collect.records import Series

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
    found = [one for one in opensand.records(tmp_path, ORIGIN) if isinstance(one, Series)]
    assert [list(one.t_s) for one in found] == [[-20, 0.5]]
