# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine checks before it starts, and the words that it starts Snakemake with."""

import json
import shlex
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from satlab.campaign import engine
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.engine import Engine, Options
from satlab.campaign.plan_file import Plan
from satlab.campaign.test_worker import run_task
from satlab.cli import app
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError

LOG = ProgressLog(quiet=True)


def plan(seed: int = 1) -> Plan:
    task = run_task(seed=seed)
    return Plan(name="queues", deadline_s=30, cells={"geo": {}}, tasks=(task,))


def test_dry_run_prints_what_is_left_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etosat.yml").write_text("suite: etosat\ncases: [medium]\nrepetitions: 2\n")
    result = CliRunner().invoke(app, ["campaign", "run", "etosat.yml", "--dry-run"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["left"] == ["etosat-medium.1", "etosat-medium.2"]
    assert document["folder"] == "runs/campaign-etosat"
    assert list(tmp_path.iterdir()) == [tmp_path / "etosat.yml"]


def test_a_folder_of_another_plan_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    CampaignFolder(tmp_path / "c").begin(plan())
    with pytest.raises(ConfigError, match="another plan"):
        Engine(plan(2), CampaignFolder(tmp_path / "c"), Options()).run(LOG, threading.Event())


def test_one_engine_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    where = CampaignFolder(tmp_path / "c")
    where.begin(plan())
    with (
        locked(where.path / ".lock", 1),
        pytest.raises(HostError, match="held by another process"),
    ):
        Engine(plan(), where, Options()).run(LOG, threading.Event())


def test_without_snakemake_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "is_installed", lambda: False)
    with pytest.raises(HostError) as caught:
        Engine(plan(), CampaignFolder(tmp_path / "c"), Options()).run(LOG, threading.Event())
    assert "--install campaign" in caught.value.hint


def test_a_worker_gets_the_plan_s_hash_and_attempts(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path / "a b")
    words = Engine(plan(), folder, Options(jobs=3, retries=2)).command("f" * 64)
    worker = shlex.split(words[words.index("--config") + 1].removeprefix("worker="))
    assert worker[worker.index("campaign") :] == [
        "campaign",
        "batch",
        str(folder.path),
        "--plan",
        "f" * 64,
        "--retries",
        "2",
    ]
    assert words[words.index("--resources") :][:3] == ["--resources", "tasks=3", "labs=3"]
    assert words[words.index("--retries") + 1] == str(engine.LOST)
    assert "--rerun-incomplete" in words and not {"--nolock", "--drop-metadata"} & {*words}


def test_p262_labs_here_take_slots_unless_their_number_is_asked_for(tmp_path: Path) -> None:
    def has_slots(options: Options) -> bool:
        return any(
            "--slots" in word
            for word in Engine(plan(), CampaignFolder(tmp_path), options).command("0" * 64)
        )

    assert has_slots(Options())
    assert not has_slots(Options(jobs=2))


def test_slurm_has_a_partition_and_no_other_executor_has_one(tmp_path: Path) -> None:
    chosen = engine.choose(plan(), tmp_path, Options("slurm", 4, 1, "labs"))
    words = chosen.command("0" * 64)
    assert "slurm_partition=labs" in words
    assert any("--slots" in word for word in words), "nodes of a cluster may be one machine"
    with pytest.raises(ConfigError, match="--partition"):
        engine.choose(plan(), tmp_path, Options("local", 4, 1, "labs"))
