# SPDX-License-Identifier: GPL-3.0-or-later
"""lab.yml becomes inventory and machines: groups, addresses, faults; Vagrantfile and roles agree with it."""

import copy
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import paths, topology
from satlab.common.errors import ConfigError
from satlab.common.topology import Size
from satlab.vm import inventory
from satlab.vm.inventory import VmOptions

SHIPPED = yaml.safe_load(paths.LAB_FILE.read_text())
ANSIBLE = paths.ROOT / "ansible"
ROLES = sorted(p.name for p in (ANSIBLE / "roles").iterdir())
SHARED = {"net4sat", "own_package"}
"""Included by other roles, which verify what they did."""


def faults(folder: Path, change: Callable[[Any], Any]) -> str:
    data = copy.deepcopy(SHIPPED)
    change(data)
    file = folder / "lab.yml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        topology.load(file)
    return "\n".join(str(fault) for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["machines"]["hosts"].pop("sat"), "node 'sat' has no machine"),
        (lambda d: d["machines"].update(control="198.18.0.0/16"), "overlaps 198.18.1.0/24 of client-lan"),
        (lambda d: d["machines"]["hosts"]["st"].update(address="198.19.0.11"), "also the address of client"),
        (lambda d: d["machines"]["hosts"]["st"].update(address="198.20.0.11"), "not a host address of the control"),
        (lambda d: d["machines"]["hosts"]["st"].update(address="10.21.1.999"), "not a valid IPv4"),
        (lambda d: d["machines"]["hosts"]["st"].update(address="198.19.0.1"), "the host's own address"),
        (lambda d: d["machines"]["hosts"]["st"].update(memory_mib=64), "greater than or equal to 256"),
        (
            lambda d: d["machines"]["hosts"].update(spare={"address": "198.19.0.30"}),
            "is not a node and has no services",
        ),
        (lambda d: d["machines"]["hosts"]["controller"].update(services=["jenkins"]), "'openbach_controller'"),
        (lambda d: d["machines"]["box"].update(version="latest"), "String should match pattern"),
    ],
)
def test_faults_of_machines_are_named(tmp_path: Path, change: Callable[[Any], Any], said: str) -> None:
    assert said in faults(tmp_path, change)


def test_groups_are_roles_and_hosts_are_those_of_the_size() -> None:
    here = topology.load()
    small = inventory.inventory(here, VmOptions(), {})["all"]
    full = inventory.inventory(here, VmOptions(Size.FULL), {})["all"]
    assert set(full["hosts"]) - set(small["hosts"]) == {"controller"}
    assert set(small["children"]) == {"path", "endpoint_client", "pep", "emulator", "web_target"}
    assert {"openbach_controller", "collector"} <= set(full["children"])
    assert set(full["children"]) - {"path", "emulator"} <= set(ROLES)
    assert list(small["children"]["emulator"]["hosts"]) == ["st", "sat", "gw"]
    assert small["hosts"]["st"]["satlab_routes"][0]["via"] == "198.18.2.2"


def test_addresses_of_the_inventory_are_unique_and_those_of_the_file() -> None:
    hosts = inventory.inventory(topology.load(), VmOptions(Size.FULL), {})["all"]["hosts"].values()
    interfaces = [i for host in hosts for i in host.get("satlab_interfaces", ())]
    addresses = [i["address"].split("/")[0] for i in interfaces] + [host["ansible_host"] for host in hosts]
    assert len(set(addresses)) == len(addresses) == 21
    assert len({i["mac"] for i in interfaces}) == len(interfaces)


def test_hosts_that_are_no_machines_are_reached_as_their_variables_say() -> None:
    testbed = {"client": {"ansible_host": "192.0.2.10", "ansible_user": "root"}}
    hosts = inventory.inventory(topology.load(), VmOptions(), testbed)["all"]["hosts"]
    assert hosts["client"]["ansible_host"] == "192.0.2.10"
    assert hosts["server"]["ansible_host"] == "198.19.0.17"


def test_the_written_inventory_is_private(tmp_path: Path) -> None:
    inventory.write(tmp_path / "lab" / "inventory.yml", {"all": {}})
    assert (tmp_path / "lab" / "inventory.yml").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "lab").stat().st_mode & 0o777 == 0o700


def test_vagrantfile_is_short_and_has_no_facts_of_its_own() -> None:
    text = (paths.ROOT / "Vagrantfile").read_text()
    assert len(text.splitlines()) <= 120
    assert not re.findall(r"198\.1[89]\.\d+\.\d+", text)
    assert inventory.mac(IPv4Address("198.18.1.2")) == "02:73:c6:12:01:02"
    assert '"02:73:%02x:%02x:%02x:%02x"' in text


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")
@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, ""), ({"LAB_SIZE": "full", "LAB_DRIVER": "qemu", "LAB_BOX": "satlab/bookworm"}, ""),
     ({"LAB_SIZE": "huge"}, "LAB_SIZE=huge: small or full"), ({"LAB_DRIVER": "xen"}, "LAB_DRIVER=xen: kvm or qemu")],
)  # fmt: skip
def test_vagrant_takes_the_file(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    own = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(tmp_path),
        "VAGRANT_DOTFILE_PATH": str(tmp_path),
    }
    done = subprocess.run(
        ["vagrant", "validate"], cwd=paths.ROOT, env=own | variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (not said), done.stderr
    assert said in done.stderr


# --- roles ----------------------------------------------------------------------------------------------------------


def roles_of(playbook: str) -> set[str]:
    plays = yaml.safe_load((ANSIBLE / playbook).read_text())
    return {role["role"] for play in plays for role in play.get("roles", ())}


def test_plays_name_roles_that_exist_and_every_role_is_used() -> None:
    used = roles_of("site.yml")
    assert used | SHARED | roles_of("campaign.yml") == set(ROLES)
    verified = set(re.findall(r"name: (\w+), tasks_from: verify", (ANSIBLE / "verify.yml").read_text()))
    assert verified == used


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_all_its_parts(role: str) -> None:
    folder = ANSIBLE / "roles" / role
    parts = ["README.md", "defaults/main.yml", "meta/argument_specs.yml", "tasks/main.yml"]
    parts += ["tasks/verify.yml"] if role in roles_of("site.yml") else []
    assert [part for part in parts if not (folder / part).is_file()] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_role_s_arguments_are_its_defaults_each_with_a_comment_and_its_prefix(role: str) -> None:
    folder = ANSIBLE / "roles" / role
    text = (folder / "defaults/main.yml").read_text()
    defaults = yaml.safe_load(text)
    options = yaml.safe_load((folder / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert {name for name, option in options.items() if not option.get("required")} == set(defaults)
    assert all(name.startswith(f"{role}_") for name in defaults)
    lines = text.splitlines()
    for name in defaults:
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{name}:"))
        above = lines[place - 1]
        assert above.startswith("# ") or any(above.startswith(f"{other}:") for other in defaults), name


def test_t13_roles_pin_versions_and_commits() -> None:
    for file in (ANSIBLE / "roles").rglob("*.yml"):
        text = file.read_text()
        assert not re.search(r"state: latest|version: (HEAD|master|main)\b|trusted=yes|allow_unauthenticated", text), (
            file
        )
    defaults = yaml.safe_load((ANSIBLE / "roles/openbach_controller/defaults/main.yml").read_text())
    assert re.fullmatch(r"openbach-\d+\.\d+\.\d+", defaults["openbach_controller_tag"])
    assert re.fullmatch("[0-9a-f]{8,40}", defaults["openbach_controller_commit"])
    tasks = yaml.safe_load((ANSIBLE / "roles/openbach_controller/tasks/main.yml").read_text())
    names = [task["name"] for task in tasks]
    assert names.index("The sources are those of the commit") < names.index("Install OpenBACH")
    assert yaml.safe_load((ANSIBLE / "roles/opensand/defaults/main.yml").read_text())["opensand_version"] == "8.2.0"
    suites = yaml.safe_load((ANSIBLE / "roles/net4sat/defaults/main.yml").read_text())["net4sat_suites"]
    assert {"bookworm", "trixie"} <= set(suites)


def test_t13_the_repository_s_key_is_the_one_that_is_named() -> None:
    """The fingerprint of a version 4 key is SHA-1 over its packet (RFC 4880, section 12.2)."""
    import base64

    role = ANSIBLE / "roles" / "net4sat"
    armored = (role / "files/net4sat.asc").read_text()
    body = base64.b64decode(armored.split("\n\n", 1)[1].rsplit("\n=", 1)[0])
    assert body[0] == 0x99, "a public key packet with a length of two bytes"
    length = int.from_bytes(body[1:3])
    fingerprint = hashlib.sha1(body[: 3 + length]).hexdigest().upper()  # noqa: S324 - as the standard has it
    named = re.search(r"signing key: ([0-9A-F ]+),", (role / "defaults/main.yml").read_text())
    assert named
    assert named[1].replace(" ", "") == fingerprint


def test_t07_secrets_are_never_printed() -> None:
    found = 0
    for file in (ANSIBLE / "roles").glob("*/tasks/*.yml"):
        for task in yaml.safe_load(file.read_text()):
            # Where its file lies, how it is asked for, and what is known to everybody are no secrets.
            if re.search(r"(collector|grafana|controller)_password|/server\.key|datasource\.yml", str(task)):
                found += task.get("no_log") is True
                assert task.get("no_log") is True or "stat" in str(list(task)), (file, task["name"])
    assert found >= 9


def test_t07_host_keys_are_checked() -> None:
    text = (ANSIBLE / "ansible.cfg").read_text()
    assert "host_key_checking = True" in text
    assert "StrictHostKeyChecking=yes" in text
    for file in ANSIBLE.rglob("*.yml"):
        assert "StrictHostKeyChecking=no" not in file.read_text()
