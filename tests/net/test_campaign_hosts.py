# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an Ansible inventory, as EnOSlib writes it, become hosts of a campaign
(ansible/campaign.yml).
"""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.campaign import engine, hosts_file
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.engine import Options
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from tests import campaigns
from tests.ssh_hosts import SSHD, Node, Nodes, key, running

pytestmark = [
    pytest.mark.net,
    pytest.mark.skipif(
        not engine.is_installed() or not paths.SATVIRTUAL.exists() or not SSHD.exists(),
        reason="needs Snakemake, satvirtual and openssh-server",
    ),
]
ENOSLIB = os.environ.get("SATLAB_ENOSLIB")
"""A Python that has EnOSlib: where it is named, EnOSlib writes the inventory and starts the
playbook.
"""
ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
PLAYBOOK = paths.ROOT / "ansible" / "campaign.yml"
COUNT = 4


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with running(tmp_path, limited=False) as found:
        yield found


def machine(node: Node, client: Path) -> dict[str, Any]:
    """Return a host as EnOSlib's static provider takes it."""
    extra = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "campaign_host_authorized_keys": str(node.folder / "authorized_keys"),
        "campaign_host_public_key": str(node.folder / "host_key.pub"),
        "campaign_host_command": node.command,
    }
    described = {
        "roles": ["campaign"],
        "alias": node.name,
        "address": "127.0.0.1",
        "port": node.port,
        "user": "root",
    }
    return described | {"keyfile": str(client), "extra": extra}


def inventory(machines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the inventory that EnOSlib makes of its machines."""
    names = {"address": "ansible_host", "port": "ansible_port", "user": "ansible_ssh_user"}
    names |= {"keyfile": "ansible_ssh_private_key_file"}
    hosts = {
        one["alias"]: {names[key]: one[key] for key in names} | one["extra"] for one in machines
    }
    return {"campaign": {"hosts": hosts}}


def play(nodes: Nodes, folder: Path, identity: Path) -> str:
    """Run the playbook, by EnOSlib where it is; return what it printed."""
    machines = [machine(node, nodes.folder / "client") for node in nodes.nodes]
    given = {"campaign_host_identity": str(identity), "campaign_host_packages": ""}
    made = folder / "made.yml"
    if ENOSLIB:
        description = {"satlab": given, "resources": {"machines": machines, "networks": []}}
        (folder / "machines.yml").write_text(yaml.safe_dump(description))
        argv = [
            ENOSLIB,
            str(PLAYBOOK.with_name("enoslib_hosts.py")),
            str(folder / "machines.yml"),
            str(made),
        ]
    else:
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory(machines)))
        words = json.dumps(given | {"campaign_hosts_file": str(made)})
        argv = [
            str(ANSIBLE),
            "-i",
            str(folder / "inventory.yml"),
            str(PLAYBOOK),
            "--extra-vars",
            words,
        ]
    pinned = (
        f"-F none -o UserKnownHostsFile={nodes.folder / 'known_hosts'} -o StrictHostKeyChecking=yes"
    )
    variables = {
        "ANSIBLE_CONFIG": str(paths.ROOT / "ansible" / "ansible.cfg"),
        "ANSIBLE_SSH_ARGS": pinned,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "remote"),
        "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
        "HOME": str(folder),
    }
    done = subprocess.run(
        argv, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_p261_hosts_of_an_inventory_become_hosts_of_a_campaign(
    nodes: Nodes, tmp_path: Path
) -> None:
    identity = key(tmp_path / "campaign")
    play(nodes, tmp_path, identity)
    known = hosts_file.load(tmp_path / "made.yml")
    assert [(host.name, host.port, host.slots) for host in known.hosts] == [
        (n.name, n.port, 1) for n in nodes.nodes
    ]
    # The new key does attempts alone.
    *words, _ = known.command(known.hosts[0])
    other = subprocess.run(
        [*words, "cat /etc/passwd"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert other.returncode == ExitStatus.USAGE and b"root:" not in other.stdout
    plan, where = campaigns.plan(COUNT), CampaignFolder(tmp_path / "c")
    work = engine.choose(plan, where.path, Options("ssh", hosts=tmp_path / "made.yml"))
    assert work.run(ProgressLog(quiet=True), threading.Event()) == ExitStatus.OK
    assert campaigns.rows_of_tasks(where.path, COUNT) == Counter(
        {task.id: 1 for task in plan.tasks}
    )
    assert {record.last.host.name for task in plan.tasks if (record := where.read(task))} == {
        "node-a",
        "node-b",
    }
    # A second run changes nothing.
    recap = play(nodes, tmp_path, identity)
    assert ENOSLIB or recap.count("changed=0") == 3, recap
