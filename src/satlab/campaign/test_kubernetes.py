# SPDX-License-Identifier: GPL-3.0-or-later
"""The Job of a campaign, judged by the schemas of Kubernetes' API, and what a pod of it does."""

import base64
import threading
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from satlab.campaign import kubernetes
from satlab.campaign.kubernetes import Cluster
from satlab.campaign.plan_file import Plan, Task, digest
from satlab.campaign.task_request import Check
from satlab.campaign.worker import Worker
from satlab.cli import app
from satlab.common.errors import ConfigError, ExitStatus

CLUSTER = Cluster("registry.example/satlab:1", "data", 8)
VERSIONS = ("1.29", "1.34")


def plan(count: int = 2, *, lab: bool = True) -> Plan:
    clock: Any = "real" if lab else "virtual"
    tasks = tuple(
        Task(
            id=f"geo.{n}",
            cell="geo",
            number=n,
            estimate_s=1,
            cores=2,
            request=Check(verb="check", suite="etosat", case="medium", clock=clock, seed=n),
        )
        for n in range(1, count + 1)
    )
    return Plan(name="Queues_and.more", deadline_s=30, cells={"geo": {}}, tasks=tasks)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.promise("P95")
def test_p264_a_campaign_is_a_valid_job_with_a_pod_for_each_task(version: str) -> None:
    config, job = kubernetes.documents(plan(20), CLUSTER)
    for document in (config, job):
        kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):  # the judge judges
        kubernetes_validate.validate(job | {"spec": {"completions": "many"}}, version, strict=True)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (20, 8)
    assert job["metadata"]["name"].startswith("satlab-queues-and-more-")


def test_t40_pods_are_privileged_for_labs_alone_and_hold_no_token() -> None:
    for has_labs in (True, False):
        pod = kubernetes.documents(plan(lab=has_labs), CLUSTER)[1]["spec"]["template"]["spec"]
        assert pod["containers"][0]["securityContext"]["privileged"] is has_labs
        assert pod["automountServiceAccountToken"] is False


def test_p264_a_pod_does_the_task_of_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = plan(3)
    config, _ = kubernetes.documents(whole, CLUSTER)
    file = tmp_path / "plan.json.gz"
    file.write_bytes(base64.b64decode(config["binaryData"]["plan.json.gz"]))
    sha256 = digest(whole.text())
    monkeypatch.setattr("satlab.campaign.attempt.command", lambda _: ["echo", "{}"])
    for index in range(3):
        where, name = kubernetes.task_of_pod(str(index), sha256, file, tmp_path / "c")
        assert name == f"geo.{index + 1}"
        assert Worker(where, sha256, 0).work(name, threading.Event()) == ExitStatus.OK
    assert not where.left(whole)
    for wrong in (None, "3", "-1", "x"):
        with pytest.raises(ConfigError, match="not the index of a task"):
            kubernetes.task_of_pod(wrong, sha256, file, tmp_path / "c")
    with pytest.raises(ConfigError, match="not the plan"):
        kubernetes.task_of_pod("0", "0" * 64, file, tmp_path / "c")


def test_p264_the_manifest_is_yaml_on_stdout(tmp_path: Path) -> None:
    file = tmp_path / "ci.yml"
    file.write_text("suite: ci\nrepetitions: 2\n")
    result = CliRunner().invoke(
        app, ["campaign", "manifest", str(file), "--image", "i", "--claim", "c"]
    )
    assert result.exit_code == 0, result.output
    config, job = yaml.safe_load_all(result.stdout)
    assert (config["kind"], job["kind"]) == ("ConfigMap", "Job")
    assert (
        config["metadata"]["name"]
        == job["spec"]["template"]["spec"]["volumes"][1]["configMap"]["name"]
    )


def test_a_plan_that_fits_no_config_map_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "MAX_CONFIG_MAP", 1100)
    with pytest.raises(ConfigError, match="exceeds a ConfigMap"):
        kubernetes.documents(plan(50), CLUSTER)
