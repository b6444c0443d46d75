# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign as an Indexed Job of Kubernetes: `satlab campaign manifest` (docs/campaigns.md).

Each index is one task. The plan is in a ConfigMap, the campaign's folder on a volume that all nodes
share.
"""

import base64
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.campaign import plan_file as plans
from satlab.campaign.attempt import STOP_S
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.engine import LOST
from satlab.campaign.plan_file import Plan
from satlab.common.errors import ConfigError

INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable that Kubernetes sets in each pod of an Indexed Job."""
FOLDER, PLAN = Path("/campaign"), Path("/plan/plan.json.gz")
MAX_CONFIG_MAP = 1 << 20
MAX_PLAN = 200_000_000
NAME_CHARACTERS = 40


@dataclass(frozen=True)
class Cluster:
    """Image with satlab, a claim of a volume that many nodes may write, tasks at once, namespace,
    repeats of a task.
    """

    image: str
    claim: str
    jobs: int
    namespace: str = "default"
    retries: int = 1


def documents(plan: Plan, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the ConfigMap of the plan and the Job.

    Raises:
        ConfigError: the plan is too large for a ConfigMap, or a task names files or addresses of
            this host's user.
    """
    plan.for_any_host("in pods")
    text = plan.text()
    digest = plans.digest(text)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    if len(packed) > MAX_CONFIG_MAP - 1000:
        raise ConfigError(
            f"the plan of {len(plan.tasks)} tasks exceeds a ConfigMap (1 MiB)",
            hint="split the campaign",
        )
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in plan.name.lower())[
        :NAME_CHARACTERS
    ]
    name = f"satlab-{letters.strip('-')}-{digest[:8]}"
    head = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": {"app.kubernetes.io/name": "satlab"},
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": head,
        "binaryData": {PLAN.name: packed},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": head,
        "spec": _job(plan, cluster, name, digest),
    }
    return [config, job]


def _job(plan: Plan, cluster: Cluster, name: str, digest: str) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": len(plan.tasks),
        "parallelism": min(cluster.jobs, len(plan.tasks)),
        "backoffLimitPerIndex": cluster.retries + LOST,
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "satlab"}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": int(STOP_S) + 10,
                "containers": [_container(plan, cluster, digest)],
                "volumes": [
                    {"name": "campaign", "persistentVolumeClaim": {"claimName": cluster.claim}},
                    {"name": "plan", "configMap": {"name": name}},
                ],
            },
        },
    }


def _container(plan: Plan, cluster: Cluster, digest: str) -> dict[str, Any]:
    """Return the container of each pod; privileged only if its tasks need a lab of network
    namespaces.
    """
    has_labs = any(task.lab == "netns" for task in plan.tasks)
    command = ["satlab", "campaign", "pod", "--plan", digest, "--retries", str(cluster.retries)]
    closed = {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "name": "task",
        "image": cluster.image,
        "command": command,
        "securityContext": {"privileged": True} if has_labs else closed,
        "resources": {
            "requests": {"cpu": str(max(task.cores for task in plan.tasks)), "memory": "1Gi"}
        },
        "volumeMounts": [
            {"name": "campaign", "mountPath": str(FOLDER)},
            {"name": "plan", "mountPath": str(PLAN.parent), "readOnly": True},
        ],
    }


def task_of_pod(
    index: str | None, sha256: str, file: Path = PLAN, folder: Path = FOLDER
) -> tuple[CampaignFolder, str]:
    """Write the plan into the campaign's folder if there is none, and return the folder and the
    task of this pod's index.

    Raises:
        ConfigError: no index, another plan, or an index beyond its tasks.
    """
    with gzip.open(file, "rb") as packed:
        plan = plans.parse(packed.read(MAX_PLAN).decode(), str(file), sha256)
    if index is None or not index.isdecimal() or int(index) >= len(plan.tasks):
        raise ConfigError(
            f"{INDEX}={index} is not the index of a task",
            hint="satlab campaign manifest writes the Job",
        )
    where = CampaignFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".plan.lock", STOP_S):
        where.begin(plan)
    return where, plan.tasks[int(index)].id
