# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection that was opened before the navigation saves round trips: such a load is a failed sample."""

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import collect
from collect import floors
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.experiment import link_probe, run
from satlab.link.options import LinkOptions
from satlab.netlab import sandbox
from satlab.netlab.sandbox import Mount

pytestmark = [pytest.mark.net, pytest.mark.browser]
NAVIGATION = "            timed_out = navigate(driver, target.url)\n"
OPENED_AHEAD = '            navigate(driver, target.url + "none")\n'


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copy the shipped jobs, and use the copies; do not probe the link. A job's sandbox has a /tmp of its own."""
    monkeypatch.setattr(link_probe, "probe_link", lambda *_: link_probe.Probe(None, None, 0, 0, 0, {}))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        copy = shutil.copytree(paths.JOBS, Path(folder) / "jobs")
        monkeypatch.setattr(paths, "JOBS", copy)
        shown = (*sandbox.programs(), Mount(copy))
        monkeypatch.setattr(sandbox, "programs", lambda: shown)
        yield copy


@pytest.mark.parametrize("protocol", ["h1", "h3"])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_connection_opened_ahead_fails_the_load(protocol: str, is_ahead: bool, tmp_path: Path, jobs: Path) -> None:
    """The honest load differs in a line of the job, and has no impossible time."""
    script = jobs / "satlab_page_load" / "files" / "satlab_page_load.py"
    text = script.read_text()
    assert text.count(NAVIGATION) == 2, "of measured and of observed loads"
    if is_ahead:
        script.write_text(text.replace(NAVIGATION, OPENED_AHEAD + NAVIGATION))
    settings = {"protocol": protocol, "runs": "1"}
    request = run.RunRequest(
        paths.SCENARIOS / "page_load.json", LinkOptions(profile="leo"), settings, tmp_path / "runs", report=False
    )
    result = run.execute(run.prepare(request), ProgressLog(quiet=True), threading.Event())
    reasons = [record["reason"] for record in collect.summaries(collect.gather(result.folder)) if record["reason"]]
    impossible = [reason for reason in reasons if reason.startswith(floors.BEFORE)]
    if is_ahead:
        assert impossible and result.status == ExitStatus.FAILED, reasons
    else:
        assert not impossible and result.status != ExitStatus.FAILED, reasons
