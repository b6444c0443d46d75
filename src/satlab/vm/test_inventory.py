# SPDX-License-Identifier: GPL-3.0-or-later
"""lab.yml becomes inventory and machines: groups, addresses, faults; Vagrantfile and roles agree
with it.
"""

import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import paths, terminals, topology
from satlab.common.errors import ConfigError
from satlab.common.topology import Size, Topology
from satlab.link import opensand
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.vm import inventory, provision
from satlab.vm.inventory import VmOptions
from tests import second_terminal

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
        (
            lambda d: d["machines"].update(control="198.18.0.0/16"),
            "overlaps 198.18.1.0/24 of client-lan",
        ),
        (
            lambda d: d["machines"]["hosts"]["st"].update(address="198.19.0.11"),
            "also the address of client",
        ),
        (
            lambda d: d["machines"]["hosts"]["st"].update(address="198.20.0.11"),
            "not a host address of the control",
        ),
        (lambda d: d["machines"]["hosts"]["st"].update(address="10.21.1.999"), "not a valid IPv4"),
        (
            lambda d: d["machines"]["hosts"]["st"].update(address="198.19.0.1"),
            "the host's own address",
        ),
        (
            lambda d: d["machines"]["hosts"]["st"].update(memory_mib=64),
            "greater than or equal to 256",
        ),
        (
            lambda d: d["machines"]["hosts"].update(spare={"address": "198.19.0.30"}),
            "is not a node and has no services",
        ),
        (
            lambda d: d["machines"]["hosts"]["controller"].update(services=["jenkins"]),
            "'openbach_controller'",
        ),
        (lambda d: d["machines"]["box"].update(version="latest"), "String should match pattern"),
    ],
)
@pytest.mark.promise("P96")
def test_faults_of_machines_are_named(
    tmp_path: Path, change: Callable[[Any], Any], said: str
) -> None:
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


def test_a_dumbbell_has_machines_of_its_own() -> None:
    here = topology.load(size=Size.DUMBBELL)
    dumbbell, small = (
        inventory.inventory(here, VmOptions(size), {})["all"]
        for size in (Size.DUMBBELL, Size.SMALL)
    )
    assert set(dumbbell["hosts"]) - set(small["hosts"]) == {"client2", "server2"}
    assert dumbbell["children"]["endpoint_client"]["hosts"].keys() == {"client", "client2"}
    assert dumbbell["children"]["web_target"]["hosts"].keys() == {"server", "server2"}
    assert [one["name"] for one in dumbbell["hosts"]["server"]["satlab_interfaces"]] == [
        "inet0",
        "lan0",
    ]
    without = inventory.inventory(topology.load(), VmOptions(), {})["all"]["hosts"]
    assert [one["name"] for one in without["server"]["satlab_interfaces"]] == ["inet0"]


def test_addresses_of_the_inventory_are_unique_and_those_of_the_file() -> None:
    hosts = inventory.inventory(topology.load(), VmOptions(Size.FULL), {})["all"]["hosts"].values()
    interfaces = [i for host in hosts for i in host.get("satlab_interfaces", ())]
    addresses = [i["address"].split("/")[0] for i in interfaces] + [
        host["ansible_host"] for host in hosts
    ]
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


def test_the_vagrantfile_makes_the_mac_addresses_of_the_inventory() -> None:
    text = (paths.ROOT / "Vagrantfile").read_text()
    assert inventory.mac(IPv4Address("198.18.1.2")) == "02:73:c6:12:01:02"
    assert '"02:73:%02x:%02x:%02x:%02x"' in text


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, ""),
        ({"LAB_SIZE": "full", "LAB_DRIVER": "qemu", "LAB_BOX": "satlab/bookworm"}, ""),
        (
            {
                "LAB_MANAGEMENT_NETWORK": "mine",
                "LAB_MANAGEMENT_SUBNET": "10.1.2.0/24",
                "LAB_POOL": "fast",
            },
            "",
        ),
        ({"LAB_SIZE": "huge"}, "LAB_SIZE=huge: small, full or dumbbell"),
        ({"LAB_DRIVER": "xen"}, "LAB_DRIVER=xen: kvm or qemu"),
    ],
)
def test_vagrant_takes_the_file(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    own = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(tmp_path),
        "VAGRANT_DOTFILE_PATH": str(tmp_path),
    }
    done = subprocess.run(
        ["vagrant", "validate"],
        cwd=paths.ROOT,
        env=own | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not said), done.stderr
    assert said in done.stderr


# --- roles ----------------------------------------------------------------------------------------


def roles_of(playbook: str) -> set[str]:
    plays = yaml.safe_load((ANSIBLE / playbook).read_text())
    return {role["role"] for play in plays for role in play.get("roles", ())}


def test_plays_name_roles_that_exist_and_every_role_is_used() -> None:
    used = roles_of("site.yml")
    assert used | SHARED | roles_of("campaign.yml") == set(ROLES)
    verified = set(
        re.findall(r"name: (\w+), tasks_from: verify", (ANSIBLE / "verify.yml").read_text())
    )
    assert verified == used


@pytest.mark.parametrize("role", ROLES)
def test_a_role_s_arguments_are_its_defaults(role: str) -> None:
    folder = ANSIBLE / "roles" / role
    defaults = yaml.safe_load((folder / "defaults/main.yml").read_text())
    specification = yaml.safe_load((folder / "meta/argument_specs.yml").read_text())
    options = specification["argument_specs"]["main"]["options"]
    assert {name for name, option in options.items() if not option.get("required")} == set(defaults)


def test_t13_roles_pin_versions_and_commits() -> None:
    for file in (ANSIBLE / "roles").rglob("*.yml"):
        text = file.read_text()
        assert not re.search(
            r"state: latest|version: (HEAD|master|main)\b|trusted=yes|allow_unauthenticated", text
        ), file
    defaults = yaml.safe_load((ANSIBLE / "roles/openbach_controller/defaults/main.yml").read_text())
    assert re.fullmatch(r"openbach-\d+\.\d+\.\d+", defaults["openbach_controller_tag"])
    assert re.fullmatch("[0-9a-f]{8,40}", defaults["openbach_controller_commit"])
    tasks = yaml.safe_load((ANSIBLE / "roles/openbach_controller/tasks/main.yml").read_text())
    names = [task["name"] for task in tasks]
    assert names.index("The sources are those of the commit") < names.index("Install OpenBACH")
    assert (
        yaml.safe_load((ANSIBLE / "roles/opensand/defaults/main.yml").read_text())[
            "opensand_version"
        ]
        == "8.2.0"
    )
    suites = yaml.safe_load((ANSIBLE / "roles/net4sat/defaults/main.yml").read_text())[
        "net4sat_suites"
    ]
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
            # Where its file lies, how it is asked for, and what is known to everybody are no
            # secrets.
            if re.search(
                r"(collector|grafana|controller)_password|/server\.key|datasource\.yml", str(task)
            ):
                found += task.get("no_log") is True
                assert task.get("no_log") is True or "stat" in str(list(task)), (file, task["name"])
    assert found >= 9


def test_t07_host_keys_are_checked() -> None:
    text = (ANSIBLE / "ansible.cfg").read_text()
    assert "host_key_checking = True" in text
    assert "StrictHostKeyChecking=yes" in text
    for file in ANSIBLE.rglob("*.yml"):
        assert "StrictHostKeyChecking=no" not in file.read_text()


# --- several terminals ----------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Topology:
    return terminals.named(second_terminal.write(tmp_path / "lab.yml"))


def test_a_second_terminal_has_machines_addresses_and_a_way_of_its_own(two: Topology) -> None:
    found = inventory.inventory(two, VmOptions(), {})["all"]
    assert list(found["children"]["emulator"]["hosts"]) == ["st", "sat", "gw", "st-2"]
    assert list(found["children"]["endpoint_client"]["hosts"]) == ["client", "client-2"]
    sides = [found["hosts"][name]["satlab_side"] for name in found["children"]["emulator"]["hosts"]]
    assert sides == ["st", "sat", "gw", "st-2"]
    assert "satlab_side" not in found["hosts"]["client-2"]
    st = found["hosts"]["st-2"]
    assert {i["name"]: i["address"] for i in st["satlab_interfaces"]} == {
        "lan0": "198.18.66.1/24",
        "sat0": "198.18.63.3/24",
        "emu0": "10.77.0.4/24",
    }
    ways = {route["destination"]: route["via"] for route in found["hosts"]["gw"]["satlab_routes"]}
    assert (ways["198.18.66.0/24"], ways["198.18.1.0/24"]) == ("198.18.63.3", "198.18.63.2")
    assert "198.18.66.0/24" in found["vars"]["satlab_lab_networks"]
    interfaces = [i for host in found["hosts"].values() for i in host.get("satlab_interfaces", ())]
    assert len({i["mac"] for i in interfaces}) == len(interfaces)


def test_a_terminal_that_the_satellite_cannot_reach_is_refused(tmp_path: Path) -> None:
    content = second_terminal.data()
    del content["nodes"]["st-2"]["interfaces"]["emu0"]
    with pytest.raises(ConfigError) as caught:
        inventory.machines(terminals.named(second_terminal.write(tmp_path / "lab.yml", content)))
    assert [fault.place for fault in caught.value.faults] == ["nodes.st-2.interfaces"]


def test_satlink_serves_each_terminal_s_tunnel(two: Topology) -> None:
    config = provision.link_config(two, LinkOptions())
    assert [(one.netns, one.tun, one.subnet, one.id) for one in config.terminals] == [
        ("/proc/self/ns/net", "tun-st-2", "198.18.66.0/24", None)
    ]
    plan_link(config)
    own = provision.link_config(two, LinkOptions(profile="geo-dama"))
    assert [one.id for one in own.terminals] == [4]
    assert len(plan_link(own).terminals) == 2
    with pytest.raises(ConfigError, match="its spot has 3 terminals"):
        provision.link_config(two, LinkOptions(profile="geo-terminals"))
    assert (
        provision.link_config(topology.load(), LinkOptions(profile="geo-terminals")).terminals == ()
    )


def test_p346_terminals_of_several_gateways_are_refused_by_name(two: Topology) -> None:
    with pytest.raises(ConfigError, match="terminals of GW 6, too, and the VM lab has one gateway"):
        provision.link_config(two, LinkOptions(profile="geo-spots"))
    with pytest.raises(ConfigError, match="terminals of GW 6"):
        provision.grounds(two, opensand.describe(paths.PROFILES / "geo-spots", paths.SATLINK))


def test_opensand_has_a_process_with_files_of_its_own_for_each_terminal(
    two: Topology, tmp_path: Path
) -> None:
    folder = provision.VmFolder(tmp_path / "vm")
    folder.make()
    dama = opensand.describe(paths.PROFILES / "geo-dama", paths.SATLINK)
    assert list(provision.grounds(topology.load(), dama)) == ["st", "gw"]
    entities = provision.grounds(two, dama)
    assert list(entities) == ["st", "gw", "st-2"]
    made = provision.own_files(folder, paths.PROFILES / "geo-dama", entities)
    described = provision.for_role("st-2", entities["st-2"], dama)
    assert (made / described["profile"]).name == "profile_st4.xml"
    own = (made / described["infrastructure"]).read_text()
    section = own.partition("<entity_st>")[2].partition("</entity_st>")[0]
    assert "<entity_id>4<" in section
    assert "<emu_address>10.77.0.4<" in section
    alone = opensand.describe(paths.PROFILES / "geo", paths.SATLINK)
    with pytest.raises(ConfigError, match="the profile has 1 terminals"):
        provision.grounds(two, alone)
    elsewhere = entities["st-2"].model_copy(update={"emu_address": IPv4Address("10.77.0.9")})
    with pytest.raises(ConfigError, match="does not fit the profile"):
        provision.grounds(two, dama.model_copy(update={"further_sts": (elsewhere,)}))


def rendered(folder: Path, two: Topology, role: str, variables: dict[str, Any]) -> dict[str, str]:
    """Fill the templates of an emulator's interfaces as its role's tasks do: their text by host and
    file.

    A fact of each host has them: a module that wrote each file would take 0.3 s of CPU time.
    """
    made = (
        "{{ made | default({}) | combine({made_dest: lookup('ansible.builtin.template',"
        " made_src)}) }}"
    )
    tasks: list[dict[str, Any]] = []
    for name in ("ground.yml", "sat.yml"):
        place = ANSIBLE / "roles" / role / "tasks" / name
        for task in yaml.safe_load(place.read_text()) if place.exists() else ():
            template = task.get("ansible.builtin.template")
            if template and "vars" in task and task["loop"] != ["near", "far"]:
                src = f"{ANSIBLE}/roles/{role}/templates/{template['src']}"
                names = task["vars"] | {"made_dest": template["dest"], "made_src": src}
                when = f"(satlab_role == 'sat') == {name == 'sat.yml'}"
                changed = {"ansible.builtin.set_fact": {"made": made}, "vars": names, "when": when}
                kept = {
                    key: value
                    for key, value in task.items()
                    if key not in ("notify", "ansible.builtin.template")
                }
                tasks.append(kept | changed)
    dest = f"{folder}/{{{{ inventory_hostname }}}}.json"
    tasks.append(
        {"ansible.builtin.copy": {"content": "{{ made | to_json }}", "dest": dest, "mode": "0600"}}
    )
    parts = [
        file
        for name in ("defaults", "vars")
        if (file := ANSIBLE / "roles" / role / name / "main.yml").exists()
    ]
    play = {
        "hosts": "emulator",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [*map(str, parts)],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play | {"tasks": tasks}]))
    found = inventory.inventory(two, VmOptions(), {})
    for name in found["all"]["children"]["emulator"]["hosts"]:
        found["all"]["hosts"][name]["ansible_python_interpreter"] = sys.executable
    inventory.write(folder / "inventory.yml", found)
    own = {"ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "home")}
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [
        str(program),
        "-i",
        str(folder / "inventory.yml"),
        str(folder / "play.yml"),
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(
        argv, env=os.environ | own, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    assert {Path(place).parent for files in found.values() for place in files} == {
        Path("/etc/systemd/network")
    }
    return {
        f"{host}/{Path(place).name}": text
        for host, files in found.items()
        for place, text in files.items()
    }


def neighbours(text: str) -> dict[str, str]:
    return dict(re.findall(r"\[Neighbor\]\nAddress=(\S+)\nLinkLayerAddress=(\S+)", text))


@pytest.mark.skipif(
    not Path(sys.executable).with_name("ansible-playbook").exists(),
    reason="needs Ansible: ./satlab --install vm",
)
def test_the_emulator_s_interfaces_are_those_of_every_terminal(
    two: Topology, tmp_path: Path
) -> None:
    """The templates as the roles fill them; with one terminal the numbers of tunnels are 1 and 2,
    too.
    """
    made = rendered(tmp_path, two, "satlink", {"satlab_link_config": "", "satlab_profile": ""})
    vni = {
        name: re.findall("VNI=(.)", made[f"{name}/30-sat0.netdev"]) for name in ("st", "gw", "st-2")
    }
    assert vni == {"st": ["1"], "gw": ["2"], "st-2": ["3"]}
    assert neighbours(made["gw/30-sat0.network"]) == {
        "198.18.63.2": "02:73:00:00:00:02",
        "198.18.63.3": "02:73:00:00:00:02",
    }
    assert set(neighbours(made["st-2/30-sat0.network"]).values()) == {"02:73:00:00:00:03"}
    assert "Destination=198.18.66.0/24\nGateway=198.18.63.3" in made["gw/30-sat0.network"]
    hub = made["sat/30-hub-st-2.netdev"]
    assert "Name=hub-st-2\n" in hub
    assert "MACAddress=02:73:00:00:00:03" in hub
    assert "Remote=10.77.0.4" in hub
    assert {name for name in made if name.startswith("sat/30-tun")} == {
        f"sat/30-tun-{side}.{kind}"
        for side in ("st", "gw", "st-2")
        for kind in ("netdev", "network")
    }
    tables = [
        re.findall("Table=(.*)", text)
        for name, text in made.items()
        if name.startswith("sat/30-hub")
    ]
    assert sorted({table for of in tables for table in of}) == [
        "101",
        "102",
        "103",
        "201",
        "202",
        "203",
    ]
