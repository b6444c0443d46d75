# SPDX-License-Identifier: GPL-3.0-or-later
"""T75 of the threat table: the folder of a campaign that somebody else made."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from satlab.campaign import campaign_report, dataset, host_effect, task_record
from satlab.campaign import plan_file as plans
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.task_record import Attempt, Host, TaskRecord
from satlab.common.errors import ConfigError
from tests import campaigns


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Return the folder of a task of a campaign whose output is not one."""
    plan = campaigns.plan(1)
    where = CampaignFolder(tmp_path / "theirs")
    where.begin(plan)
    task = plan.tasks[0]
    attempt = where.of(task) / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / task_record.OUTPUT).write_text("{}")
    host = Host(name="host", stamp="stamp", facts={})
    ended = Attempt(number=1, host=host, began_unix_s=1, ended_unix_s=2, exit_status=0, reason="")
    done = TaskRecord(
        id=task.id,
        cell=task.cell,
        number=task.number,
        rule=task.rule,
        seed=task.seed,
        request=task.request,
        plan_sha256="",
        status="ok",
        attempts=(ended,),
        counts="attempt-1",
        files=task_record.hashes(attempt),
    )
    (where.of(task) / task_record.TASK).write_text(done.model_dump_json(by_alias=True))
    return where.of(task)


def report(task: Path) -> Path:
    """Collect and report the campaign of a task's folder, as the command does."""
    where = CampaignFolder(task.parents[2])
    plan = plans.load(where.plan_file)
    collected = dataset.collect(plan, where)
    return campaign_report.write(plan, where, collected, host_effect.effects(collected.frame), [])


def _deep(task: Path) -> None:
    output = task / "attempt-1" / task_record.OUTPUT
    output.write_text("[" * 100_000)
    text = (task / task_record.TASK).read_text()
    digest = task_record.hashes(task / "attempt-1")[task_record.OUTPUT]
    known = TaskRecord.model_validate_json(text).files[task_record.OUTPUT]
    (task / task_record.TASK).write_text(text.replace(known, digest))


def _huge(task: Path) -> None:
    with (task / "attempt-1" / "huge").open("wb") as file:
        file.truncate(1 << 40)


def _pipe_of_a_task(task: Path) -> None:
    (task / task_record.TASK).unlink()
    os.mkfifo(task / task_record.TASK)


def _pipe_of_an_output(task: Path) -> None:
    (task / "attempt-1" / task_record.OUTPUT).unlink()
    os.mkfifo(task / "attempt-1" / task_record.OUTPUT)


def _link_of_tasks(task: Path) -> None:
    tasks = task.parents[1]
    tasks.rename(tasks.with_name("elsewhere"))
    tasks.symlink_to("elsewhere")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "deed", [_deep, _huge, _pipe_of_a_task, _pipe_of_an_output, _link_of_tasks]
)
def test_t75_odd_files_of_a_campaign_are_faults(theirs: Path, deed: Callable[[Path], None]) -> None:
    deed(theirs)
    assert report(theirs).read_text().startswith("<!doctype html>")


@pytest.mark.timeout(20)
def test_t75_a_plan_is_a_plain_file_of_bounded_size(theirs: Path) -> None:
    plan = theirs.parents[2] / plans.FILE
    with plan.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="holds no plan"):
        plans.load(plan)
    plan.unlink()
    os.mkfifo(plan)
    with pytest.raises(ConfigError, match="holds no plan"):
        plans.load(plan)


def test_t75_the_attempt_that_counts_is_one_of_the_task(theirs: Path) -> None:
    text = (theirs / task_record.TASK).read_text()
    for elsewhere in ("/usr", "../../..", "attempt-1/.."):
        with pytest.raises(ValidationError):
            TaskRecord.model_validate_json(
                text.replace('"counts":"attempt-1"', f'"counts":"{elsewhere}"')
            )


def test_t75_nothing_is_written_over_a_link_of_a_campaign(theirs: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "index.html").write_text("ours")
    (theirs.parents[2] / f".{dataset.NAME}").symlink_to(ours)
    (theirs.parents[2] / dataset.NAME).symlink_to(ours)
    (theirs.parents[2] / "report").symlink_to(ours)
    with pytest.raises(ConfigError, match="report/index"):
        report(theirs)
    assert [file.name for file in ours.iterdir()] == ["index.html"]
    assert (ours / "index.html").read_text() == "ours"
