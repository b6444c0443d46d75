# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns over ssh: Debian's sshd as two hosts on loopback."""

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.campaign import engine, hosts_file
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.engine import Options
from satlab.campaign.ssh_dispatch import OverSsh
from satlab.campaign.worker import Worker
from satlab.common import paths, processes
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError
from tests import campaigns
from tests.ssh_hosts import SSHD, Nodes, running

pytestmark = [
    pytest.mark.net,
    pytest.mark.skipif(
        not engine.is_installed() or not paths.SATVIRTUAL.exists() or not SSHD.exists(),
        reason="needs Snakemake, satvirtual and openssh-server",
    ),
]
COUNT = 12
HEAD = b'{"deadline_s": 9, "slot": 0, "request": '
HOSTILE = (
    HEAD + b'{"verb": "check", "suite": "etosat", "case": "medium", "seed": 1, "markdown":'
    b' "/etc/cron.d/x"}}',
    HEAD + b'{"verb": "run", "scenario": "ping", "link": {"timeline": "/etc/shadow"}}}',
    HEAD
    + b'{"verb": "run", "scenario": "ping", "link": {}, "argv": ["satlab", "check", "--markdown",'
    b' "/etc/x"]}}',
)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with running(tmp_path) as found:
        yield found


@pytest.mark.promise("P95")
def test_p263_a_host_that_is_lost_loses_no_task(nodes: Nodes, tmp_path: Path) -> None:
    plan, where = campaigns.plan(COUNT), CampaignFolder(tmp_path / "c")
    work = engine.choose(plan, where.path, Options("ssh", retries=1, hosts=nodes.file))
    done: list[ExitStatus] = []
    thread = threading.Thread(
        target=lambda: done.append(work.run(ProgressLog(quiet=True), threading.Event()))
    )
    thread.start()
    both = {"node-a", "node-b"}
    assert processes.wait(
        lambda: {at.host.name for task in plan.tasks for at in where.attempts(task)} == both, 60
    )
    nodes.nodes[1].kill()
    thread.join(120)
    assert done == [ExitStatus.OK]
    assert campaigns.rows_of_tasks(where.path, COUNT) == Counter(
        {task.id: 1 for task in plan.tasks}
    )
    assert {record.last.host.name for task in plan.tasks if (record := where.read(task))} == both
    assert where.log.read_text().count("Traceback") == 0


def test_t40_a_key_of_a_campaign_does_attempts_alone_and_hosts_have_pinned_keys(
    nodes: Nodes, tmp_path: Path
) -> None:
    plan, where = campaigns.plan(1), CampaignFolder(tmp_path / "c")
    digest = where.begin(plan)
    known = hosts_file.load(nodes.file)
    *words, _ = known.command(known.hosts[0])
    other = subprocess.run(
        [*words, "cat /etc/passwd"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert other.returncode == ExitStatus.USAGE
    assert b"root:" not in other.stdout
    assert b"no request for an attempt" in other.stderr

    for line in HOSTILE:
        refused = subprocess.run(
            [*words, "x"], input=line + b"\n", capture_output=True, check=False
        )
        assert refused.returncode == ExitStatus.USAGE
        assert b"no request for an attempt" in refused.stderr and b"root:" not in refused.stderr

    swapped = nodes.file.with_name("known_hosts").read_text().splitlines()
    ports = [line.split(" ", 1)[0] for line in swapped]
    keys = [line.split(" ", 1)[1] for line in reversed(swapped)]
    nodes.file.with_name("known_hosts").write_text(
        "".join(f"{port} {key}\n" for port, key in zip(ports, keys, strict=True))
    )
    work = Worker(where, digest, 0, OverSsh(known, where))
    with pytest.raises(HostError, match="Host key verification failed"):
        work.work(plan.tasks[0].id, threading.Event())
    assert not where.attempts(plan.tasks[0])
