# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection that was opened before the navigation saves round trips: such a load is a failed
sample.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import collect
from collect import physical_floors
from satlab.common import paths
from satlab.common.errors import ExitStatus
from satlab.lab import sandbox
from satlab.lab.sandbox import Mount
from satlab.link.options import LinkOptions
from satlab.run import link_probe, scenario_run
from tests.net.conftest import executed

pytestmark = [pytest.mark.net, pytest.mark.browser]
NAVIGATION = "            timed_out = navigate(driver, target.url)\n"
OPENED_AHEAD = '            if index: navigate(driver, target.url + "none")\n'
"""Not of the first load."""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copy the shipped jobs, and use the copies; do not probe the link.

    A job's sandbox has a /tmp of its own.
    """
    monkeypatch.setattr(
        link_probe, "probe_link", lambda *_: link_probe.Probe(None, None, 0, 0, 0, {})
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        copy = shutil.copytree(paths.JOBS, Path(folder) / "jobs")
        monkeypatch.setattr(paths, "JOBS", copy)
        shown = (*sandbox.programs(), Mount(copy))
        monkeypatch.setattr(sandbox, "programs", lambda: shown)
        yield copy


@pytest.mark.parametrize("protocol", ["h1", "h3"])
@pytest.mark.promise("P42")
def test_a_connection_opened_ahead_fails_the_load(
    protocol: str, tmp_path: Path, jobs: Path
) -> None:
    """The honest load before it has no impossible time."""
    script = jobs / "satlab_page_load" / "files" / "satlab_page_load.py"
    text = script.read_text()
    assert text.count(NAVIGATION) == 2, "of measured and of observed loads"
    script.write_text(text.replace(NAVIGATION, OPENED_AHEAD + NAVIGATION))
    settings = {"protocol": protocol, "runs": "2"}
    request = scenario_run.RunRequest(
        paths.SCENARIOS / "page_load.json",
        LinkOptions(profile="leo"),
        settings,
        tmp_path / "runs",
        report=False,
    )
    result = executed(request)
    assert result.status == ExitStatus.FAILED
    honest, ahead = (rows_of(result.folder, load) for load in range(2))
    assert {row["status"] for row in honest} == {"ok"}, honest
    assert any(
        row["status"] == "failed" and row["reason"].startswith(physical_floors.BEFORE)
        for row in ahead
    ), ahead


def rows_of(folder: Path, load: int) -> list[dict[str, Any]]:
    rows = collect.gather(folder).lazy().collect().iter_rows(named=True)
    return [row for row in rows if json.loads(row["labels"]).get("load") == str(load)]
