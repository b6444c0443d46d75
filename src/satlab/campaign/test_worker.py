# SPDX-License-Identifier: GPL-3.0-or-later
"""One task: attempts, deadlines, what is counted after a kill, and what a worker refuses."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from satlab.campaign import dataset, task_record
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan, Task, digest
from satlab.campaign.task_request import LocalRun, Run
from satlab.campaign.worker import Worker
from satlab.common import paths, processes
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.link.options import LinkOptions
from satlab.service.root_helper.protocol import RunLink

OUTCOME = '{"metric": "goodput_bps", "value": 7.0, "status": "ok", "reason": "", "labels": {}}'


def run_task(number: int = 1, cell: str = "geo", seed: int | None = None) -> Task:
    """Return a task of a cell; its seed is its number unless another is given."""
    asked = Run(
        verb="run", scenario="bulk_tcp", link=RunLink(seed=number if seed is None else seed)
    )
    name = f"{cell}.{number}"
    return Task(id=name, cell=cell, number=number, request=asked, estimate_s=1, cores=1)


def record_end(
    where: CampaignFolder, task: Task, sha256: str, output: str, host: str = "node-a"
) -> None:
    """Record an attempt with such an output on a host; without an output it failed."""
    place = where.of(task) / "attempt-1"
    place.mkdir(parents=True, exist_ok=True)
    (place / task_record.OUTPUT).write_text(output)
    ended = task_record.Attempt(
        number=1,
        host=task_record.Host(
            name=host, stamp=f"{host}-stamp", facts={"cpu": "fast", "cores": 2, "kernel": "6"}
        ),
        began_unix_s=0,
        ended_unix_s=5,
        exit_status=0 if output else 1,
        reason="" if output else "no such <script> page",
    )
    (place / task_record.ATTEMPT).write_text(ended.model_dump_json())
    assert Worker(where, sha256, 0).work(task.id, threading.Event()) == 0


def campaign(
    folder: Path, *, deadline_s: float = 30, count: int = 1
) -> tuple[CampaignFolder, Plan, str]:
    """Write the plan of a cell with so many tasks, and return folder, plan and hash."""
    tasks = tuple(run_task(n) for n in range(1, count + 1))
    plan = Plan(
        name="short",
        deadline_s=deadline_s,
        cells={"geo": {"loss": 0.5}},
        tasks=tasks,
    )
    where = CampaignFolder(folder)
    return where, plan, where.begin(plan)


def work(where: CampaignFolder, sha256: str, name: str = "geo.1", retries: int = 0) -> ExitStatus:
    return Worker(where, sha256, retries).work(name, threading.Event())


def test_p205_a_task_is_recorded_with_host_stamp_and_hashes(tmp_path: Path, script: Path) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    computing = "import time\nwhile time.process_time() < 0.2: pass\n"
    script.write_text(f"{computing}print('''{OUTCOME}''')")
    assert work(where, sha256) == ExitStatus.OK
    found = where.read(plan.tasks[0])
    assert found is not None
    assert found.last.cpu_s is not None
    assert found.last.cpu_s >= 0.2
    assert (found.status, found.counts, len(found.attempts)) == ("ok", "attempt-1", 1)
    assert set(found.files) == {task_record.ATTEMPT, task_record.OUTPUT, task_record.LOG}
    assert found.last.host == task_record.this_host()
    text = (where.of(plan.tasks[0]) / task_record.TASK).read_text()
    jsonschema.validate(
        json.loads(text), json.loads((paths.SCHEMAS / "campaign-task.schema.json").read_text())
    )


@pytest.mark.promise("P93")
def test_p206_what_is_out_of_calibration_is_repeated_and_every_attempt_kept(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text("raise SystemExit(4)")
    assert work(where, sha256, retries=1) == ExitStatus.OK
    found = where.read(plan.tasks[0])
    assert found is not None
    assert (found.status, [attempt.exit_status for attempt in found.attempts]) == (
        "out of calibration",
        [4, 4],
    )
    assert work(where, sha256, retries=5) == ExitStatus.OK
    assert len(where.attempts(plan.tasks[0])) == 2


def test_p206_what_a_host_broke_is_no_sample_and_left_for_another_attempt(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text("raise SystemExit(3)")
    for _ in range(2):
        with pytest.raises(HostError, match="exit status 3"):
            work(where, sha256)
    assert where.left(plan) and len(where.attempts(plan.tasks[0])) == 2
    script.write_text(f"print('''{OUTCOME}''')")
    assert work(where, sha256) == ExitStatus.OK
    found = where.read(plan.tasks[0])
    assert found is not None and (found.status, found.counts) == ("ok", "attempt-3")


def test_p206_flows_that_failed_out_of_calibration_are_repeated(tmp_path: Path) -> None:
    output = tmp_path / task_record.OUTPUT
    output.write_text('{"calibration": ["rtt_ms"]}')
    assert task_record.is_off("flows", ExitStatus.FAILED, output)
    output.write_text('{"calibration": []}')
    assert not task_record.is_off("flows", ExitStatus.FAILED, output)
    assert not task_record.is_off("run", ExitStatus.FAILED, output)
    assert task_record.is_off("run", ExitStatus.UNCALIBRATED, output)


def test_p206_a_failed_command_and_a_late_one_are_failed_samples(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c", deadline_s=1, count=2)
    script.write_text("raise SystemExit('no such page')")
    assert work(where, sha256) == ExitStatus.OK
    script.write_text("import time; time.sleep(60)")
    assert work(where, sha256, "geo.2") == ExitStatus.OK
    frame = dataset.collect(plan, where).frame
    assert frame["status"].to_list() == ["failed", "failed"]
    assert "no such page" in frame["reason"][0]
    assert "not ended within 1 s" in frame["reason"][1]


def test_a_reason_has_no_folder_of_the_host(tmp_path: Path, script: Path) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text(
        f"import os; raise SystemExit('log: ' + os.getcwd() + '/r/raw/a.log, {paths.ROOT}/papers')"
    )
    assert work(where, sha256) == ExitStatus.OK
    found = where.read(plan.tasks[0])
    assert found is not None
    assert found.last.reason == "exit status 1: log: r/raw/a.log, papers"


def test_p207_an_attempt_that_ended_counts_though_its_worker_was_killed(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text(f"print('''{OUTCOME}''')")
    assert work(where, sha256) == ExitStatus.OK
    (where.of(plan.tasks[0]) / task_record.TASK).unlink()
    script.write_text("raise SystemExit('a second run')")
    assert work(where, sha256) == ExitStatus.OK
    found = where.read(plan.tasks[0])
    assert found is not None
    assert (found.status, len(found.attempts)) == ("ok", 1)


def test_p207_half_an_attempt_is_removed_and_done_again(tmp_path: Path, script: Path) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    half = where.of(plan.tasks[0]) / "attempt-1"
    half.mkdir(parents=True)
    (half / "half").touch()
    script.write_text(f"print('''{OUTCOME}''')")
    assert work(where, sha256) == ExitStatus.OK
    assert not (half / "half").exists()
    assert dataset.collect(plan, where).frame["task"].to_list() == ["geo.1", "geo.1"]


def test_p207_a_second_worker_waits_for_the_first_and_runs_nothing(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text(f"import time; time.sleep(0.5); print('''{OUTCOME}''')")
    threads = [threading.Thread(target=work, args=(where, sha256)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(where.attempts(plan.tasks[0])) == 1
    assert where.is_done(plan.tasks[0])


def test_p207_the_command_of_a_killed_worker_ends(tmp_path: Path) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    (tmp_path / "command.py").write_text(
        "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    )
    code = (
        "import sys, threading; from pathlib import Path; from satlab.campaign import attempt,"
        " worker;from satlab.campaign.campaign_folder import CampaignFolder;argv ="
        " attempt.command(type('T', (), {'words': lambda _: ['satlab', 'x']})());attempt.command"
        " = lambda _: [*argv[:4], sys.executable,"
        f" {str(tmp_path / 'command.py')!r}];worker.Worker(CampaignFolder(Path({str(where.path)!r})),"
        f" {sha256!r}, 0).work('geo.1', threading.Event())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={"PYTHONPATH": paths.PYTHONPATH, "PATH": "/usr/bin:/bin"}
    )
    file = where.of(plan.tasks[0]) / "attempt-1" / "pid"
    assert processes.wait(lambda: file.is_file() and file.read_text() != "", 120)
    pid = int(file.read_text())
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert processes.wait(lambda: processes.start_ticks(pid) is None, 120)
    assert not where.is_done(plan.tasks[0])


def test_t34_a_worker_takes_commands_of_its_plan_alone(tmp_path: Path, script: Path) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text("raise SystemExit('started')")
    with pytest.raises(ConfigError, match="not a task"):
        work(where, sha256, "../geo.1")
    where.plan_file.write_text(where.plan_file.read_text().replace("bulk_tcp", "--jobs=/evil"))
    with pytest.raises(ConfigError, match="not the plan that was started"):
        work(where, sha256)
    with pytest.raises(ConfigError, match="holds no plan"):
        where.plan_file.write_text(
            plan.text().replace('"verb": "run"', '"argv": ["/bin/sh"], "verb": "run"')
        )
        assert "/bin/sh" in where.plan_file.read_text()
        work(where, digest(where.plan_file.read_text()))
    assert not where.attempts(plan.tasks[0])


@pytest.mark.parametrize(
    "name", ["a b", "a;touch x", "$(touch x)", "../x", "-x", "a/b", "", "a\nb", "{task}"]
)
def test_t35_an_id_cannot_be_shell_text(name: str) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        Plan(name="x", deadline_s=30, cells={name: {}}, tasks=())


def test_t35_words_of_a_command_reach_it_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = ("; touch x", "$(touch x)", "`touch x`", "a b", "{params}", "'\"")
    names = {f"word_{number}": word for number, word in enumerate(hostile)}
    asked = LocalRun(
        verb="run-here", names=("values",), scenario="bulk_tcp", link=LinkOptions(), values=names
    )
    assert asked.words()[5:11] == [f"--set={name}={word}" for name, word in names.items()]
    monkeypatch.setattr(LocalRun, "words", lambda _: ["satvirtual", *hostile])
    task = Task(id="geo.1", cell="geo", number=1, request=asked, estimate_s=1, cores=1)
    program = tmp_path / "satvirtual"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", program)
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(Plan(name="x", deadline_s=30, cells={"geo": {}}, tasks=(task,)))
    assert work(where, sha256) == ExitStatus.OK
    place = where.of(task) / "attempt-1"
    assert json.loads((place / task_record.OUTPUT).read_text()) == [*hostile]
    assert {file.name for file in place.iterdir()} == {
        task_record.OUTPUT,
        task_record.LOG,
        task_record.ATTEMPT,
    }


def test_t36_files_that_changed_after_the_end_are_reported_and_not_used(
    tmp_path: Path, script: Path
) -> None:
    where, plan, sha256 = campaign(tmp_path / "c")
    script.write_text(f"print('''{OUTCOME}''')")
    work(where, sha256)
    assert dataset.collect(plan, where).frame["value"].to_list()[1:] == [7.0]
    output = where.of(plan.tasks[0]) / "attempt-1" / task_record.OUTPUT
    output.write_text(output.read_text().replace("7.0", "70.0"))
    collected = dataset.collect(plan, where)
    assert collected.changed == {"geo.1": "changed since the task's end: output.json"}
    assert collected.frame["status"].to_list() == ["failed"]
    (where.of(plan.tasks[0]) / "attempt-1" / "more").touch()
    assert "more" in dataset.collect(plan, where).changed["geo.1"]
