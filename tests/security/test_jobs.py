# SPDX-License-Identifier: GPL-3.0-or-later
"""T17 to T19 of the threat table: what a hostile job tries through what root does for it."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from satlab.common import paths, scratch
from satlab.common.errors import HostError
from satlab.lab import privileges
from satlab.lab.job_host import LabHost
from satlab.link.options import LinkOptions
from satlab.openbach import descriptor, runner
from satlab.openbach.model import BoundScenario, Function, OnFail, StartJob, Wait
from satlab.run import scenario_run
from satlab.service.root_helper.server import Helper
from tests.sandbox_place import lab_in_name

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
DESCRIPTOR = """
general: {{name: {name}, description: Tries what it must not, job_version: '1.0', keywords: [test], persistent: no}}
platform_configuration:
  ansible_system: Debian
  ansible_distribution: Debian
  command: /opt/openbach/virtualenv/bin/python3 /opt/openbach/agent/jobs/{name}/{name}.py
  supported_platforms: [{{ansible_distribution_release: bookworm}}]
arguments: {{}}
statistics: []
"""
NEST = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""
Run = Callable[..., runner.ScenarioResult]


@pytest.fixture(autouse=True)
def _nothing_deep_stays(tmp_path: Path) -> Iterator[None]:
    """Remove what a failed test leaves: pytest's own removal is recursive."""
    yield
    scratch.remove(tmp_path)


def add_job(jobs: Path, name: str, program: str) -> None:
    files = jobs / name / "files"
    files.mkdir(parents=True)
    (files / f"{name}.yml").write_text(DESCRIPTOR.format(name=name))
    (files / f"{name}.py").write_text(program)


@pytest.fixture
def run_jobs(tmp_path: Path) -> Run:
    """Run programs one after the other as the jobs of one run, without a lab: in its sandboxes,
    without a network.
    """

    def run_them(*programs: str) -> runner.ScenarioResult:
        jobs, folder = tmp_path / "jobs", tmp_path / "private"
        folder.mkdir(mode=0o700)
        for number, program in enumerate(programs, 1):
            add_job(jobs, f"job{number}", program)
        known = descriptor.load_jobs(jobs)
        functions = [
            Function(
                n,
                f"f{n}",
                Wait(finished=(n - 1,) if n > 1 else ()),
                OnFail(),
                StartJob("client", known[name], ()),
            )
            for n, name in enumerate(known, 1)
        ]
        scenario = BoundScenario("attack", {}, tuple(functions))
        host = LabHost(lab_in_name(), folder, jobs=[jobs])
        return runner.run(scenario, host, tmp_path / "raw", lambda _: None, threading.Event(), 30.0)

    return run_them


@ROOT_ONLY
def test_t17_a_link_in_place_of_the_next_home_reveals_nothing(
    run_jobs: Run, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret").write_text("root's")
    (victim / "secret").chmod(0o600)
    plant = f"""
import os
for name in ("2", "3"):
    try:
        os.symlink({str(victim)!r}, os.path.join("..", name))
    except PermissionError:
        print("refused")
os.symlink({str(victim)!r}, "2")
"""
    result = run_jobs(plant, "import os; print(os.getcwd(), '2' in os.listdir('.'))")
    logs = [path.read_text() for path in sorted((tmp_path / "raw" / "logs").iterdir())]
    assert {path.stat().st_uid for path in (victim, victim / "secret")} == {0}, (
        "a job owns what was root's"
    )
    assert result.ok, (result.reason, logs)
    assert logs == ["refused\nrefused\n", "/tmp False\n"]


@ROOT_ONLY
def test_t17_a_job_writes_in_its_own_folders_alone(run_jobs: Run, tmp_path: Path) -> None:
    attempts = """
import os
raw = os.environ["SATLAB_RAW"]
for path in (raw, "/", "/run", "/usr", os.environ["SATLAB_WWW"]):
    print(os.access(path, os.W_OK), os.stat(path).st_uid)
for path in (os.environ["HOME"], os.path.join(raw, "files"), os.path.join(raw, "stats.jsonl")):
    print(os.access(path, os.W_OK))
"""
    result = run_jobs(attempts)
    assert result.ok, result.reason
    said = (tmp_path / "raw/logs/job1-1.log").read_text().split("\n")
    assert said == [*["False 0"] * 5, *["True"] * 3, ""]


@ROOT_ONLY
def test_t18_deep_folders_in_a_home_go_with_the_job(run_jobs: Run) -> None:
    assert run_jobs(NEST, "import os; raise SystemExit(os.path.exists('d'))").ok


@ROOT_ONLY
def test_t18_deep_folders_do_not_keep_the_service_from_starting(tmp_path: Path) -> None:
    for name in ("scratch/satlab-jobs-x/1", "runs/20200101-x/raw/files"):
        (tmp_path / name).mkdir(parents=True)
        nest(tmp_path / name)
    helper = Helper(tmp_path, most_runs=1)
    assert not list((tmp_path / "scratch").iterdir())
    helper._prune()
    assert not list((tmp_path / "runs").iterdir())
    helper.close()
    assert not list(tmp_path.glob("scratch*"))


def test_t18_what_cannot_be_removed_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "scratch" / "stays").mkdir(parents=True)

    def refuse(path: Path) -> None:
        raise HostError(f"{path}: stays")

    with monkeypatch.context() as patch:
        patch.setattr(scratch, "remove", refuse)
        Helper(tmp_path, most_runs=1)
    (aside,) = tmp_path.glob("scratch-*")
    assert (aside / "stays").is_dir() and str(aside) in caplog.text
    assert not list((tmp_path / "scratch").iterdir())
    Helper(tmp_path, most_runs=1)  # the next start tries again
    assert [path.name for path in tmp_path.glob("scratch*")] == ["scratch"]


def nest(folder: Path) -> None:
    here = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    try:
        exec(NEST, {})  # noqa: S102 - our own
    finally:
        os.chdir(here)


def test_t19_a_job_of_a_shipped_name_does_not_take_its_capabilities(tmp_path: Path) -> None:
    assert privileges.CAPABILITIES["satlab_ping"]
    add_job(tmp_path / "jobs", "satlab_ping", "print('mine')")
    add_job(tmp_path / "jobs", "other", "print('mine')")
    scenario = tmp_path / "ping.json"
    scenario.write_text(
        '{"name": "ping", "openbach_functions": [{"id": 1, "start_job_instance": {"entity_name":'
        ' "client", "satlab_ping": {"destination_ip": "198.18.4.2", "count": 1}}}]}'
    )
    prepared = scenario_run.prepare(
        scenario_run.RunRequest(scenario, LinkOptions(profile="leo"), jobs=(tmp_path / "jobs",))
    )
    (function,) = prepared.scenario.functions
    assert isinstance(function.action, StartJob)
    assert str(paths.JOBS) in " ".join(function.action.job.command())
