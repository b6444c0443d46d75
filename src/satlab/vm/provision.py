# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a VM lab is provisioned with, in one private folder, and the runs of Ansible's
playbooks.
"""

import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from satlab.common import paths, terminals
from satlab.common.errors import ConfigError, Fault, HostError, RunError
from satlab.common.processes import finish
from satlab.common.topology import NetworkKind, Role, Topology
from satlab.lab import pki, web_target
from satlab.link import opensand, opensand_xml
from satlab.link.config import Attachment, LinkConfig, build_config
from satlab.link.opensand import Description, GroundEntity
from satlab.link.options import LinkOptions
from satlab.link.plan import LinkPlan, plan_link
from satlab.vm import debian_packages
from satlab.vm.inventory import VmOptions, inventory, write

ANSIBLE = paths.ROOT / "ansible"
DEADLINE_S = 3600.0
SILENCE_S = 900.0
"""Time without output after which a play hangs. The longest task, OpenBACH's installer, has its own
deadline.
"""
CERTIFICATE_AGE_S = 86400.0
_NAMESPACE = "/proc/self/ns/net"
"""On its guest satlink serves the namespace that it is in."""
METRICS_THERE, CONTROL_THERE = "/var/log/satlink/link.jsonl", "/run/satlink/control.sock"
_PROFILE = "/etc/satlab/profile"
_RECAP = re.compile(
    r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE
)
_FATAL = re.compile(
    r"^(?:fatal|failed): \[([^\]]+)\](?:: | \(item=.*?\) => |.*?=> )(.*)", re.MULTILINE
)
_MESSAGE = re.compile(r'"msg": "((?:[^"\\]|\\.)*)"')
KEPT_SETTINGS = (
    "ANSIBLE_CACHE_PLUGIN",
    "ANSIBLE_CACHE_PLUGIN_CONNECTION",
    "ANSIBLE_STRATEGY",
    "ANSIBLE_STRATEGY_PLUGINS",
    "ANSIBLE_TIMEOUT",
)
"""The settings of Ansible that the user's variables may change."""
_DISPLAY = (
    "ANSIBLE_",
    "CLICOLOR",
    "FORCE_COLOR",
    "LANG",
    "LC_",
    "NO_COLOR",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PY_COLORS",
)
"""Beginnings of variables that change what Ansible does or how it writes."""
_MESSAGE_END = 200
"""Characters that are kept at the beginning and at the end of a message."""


@dataclass(frozen=True)
class VmFolder:
    """The private folder of a lab: generated files, passwords (`secrets`), certificates (`pki`), and
    logs.
    """

    path: Path

    def make(self) -> None:
        """Make the folder and those in it, for their owner alone."""
        for each in (self.path, self.secrets):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def inventory(self) -> Path:
        return self.path / "inventory.yml"

    @property
    def known_hosts(self) -> Path:
        """The hosts' keys; ssh takes no others."""
        return self.path / "known_hosts"

    @property
    def key(self) -> Path:
        return self.path / "id_ed25519"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def link(self) -> Path:
        return self.path / "link.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"


@dataclass(frozen=True)
class PlayRecap:
    """Result of a play on one host."""

    ok: int
    changed: int
    unreachable: int
    failed: int


def prepare(
    folder: VmFolder,
    topology: Topology,
    choices: VmOptions,
    options: LinkOptions,
    connection: Mapping[str, Mapping[str, Any]],
) -> LinkPlan:
    """Write all files that the roles read: packages, link, certificates, inventory.

    Return the link's plan.

    Raises:
        ConfigError: profile or options are not usable.
        HostError: a package cannot be built.
    """
    folder.make()
    config = link_config(topology, options)
    plan = plan_link(config)
    _write(folder.link, config.model_copy(update={"profile": _PROFILE}).to_json())
    _write(folder.plan, plan.to_json())
    packages = folder.path / "packages"
    if not _current(packages):
        debian_packages.build(packages)
    _certificates(folder, topology)
    variables = {
        "satlab_dist": str(packages),
        "satlab_profile": config.profile,
        "satlab_link_config": str(folder.link),
        "satlab_pki": str(folder.pki),
        "satlab_secrets": str(folder.secrets),
        **(choices.variables or {}),
    }
    if choices.emulator == "opensand":
        profile = Path(config.profile)
        found = opensand.describe(profile, paths.SATLINK)
        entities = grounds(topology, found)
        variables["opensand_entities"] = {
            name: for_role(name, one, found) for name, one in entities.items()
        }
        variables["satlab_profile"] = str(own_files(folder, profile, entities))
    chosen = VmOptions(choices.size, choices.emulator, variables)
    write(folder.inventory, inventory(topology, chosen, connection))
    return plan


def link_config(topology: Topology, options: LinkOptions) -> LinkConfig:
    """Return the link as the satellite's host serves it: between tunnels to ST and GW.

    The terrestrial ends are unused.

    The plan counts the terrestrial delay, which the hosts at its ends add. With OpenSAND there are
    no tunnels.
    """
    metrics, control = Path(METRICS_THERE), Path(CONTROL_THERE)
    further = terminals.further(topology)
    found = options.profile_terminals() if further else ()
    _check_gateway(terminals.gateways(found))
    if found and len(found) != len(further):
        raise ConfigError(
            f"{options.profile}: its spot has {1 + len(found)} terminals, {paths.LAB_FILE} names"
            f" {1 + len(further)}",
            hint="name as many in lab.yml, or take a profile with one, which all are equal to",
        )
    config = build_config(
        topology, "vm", options.request("vm", terminals=found), metrics=metrics, control=control
    )
    names = ("near", "far") if options.emulator == "opensand" else ("st", "gw", "near", "far")
    tuns: dict[str, Any] = {name: Attachment(netns=_NAMESPACE, tun=f"tun-{name}") for name in names}
    tuns["terminals"] = tuple(
        one.model_copy(update={"netns": _NAMESPACE, "tun": f"tun-{terminal.st}"})
        for one, terminal in zip(config.terminals, further, strict=False)  # with OpenSAND none
    )
    return config.model_copy(update=tuns)


def _check_gateway(gateways: Sequence[int]) -> None:
    """Refuse a profile whose further terminals belong to other gateways than the first.

    Raises:
        ConfigError: with their ids.
    """
    if gateways:
        raise ConfigError(
            f"the profile has terminals of GW {', '.join(map(str, gateways))}, too, and the VM lab"
            " has one gateway",
            hint="take a profile with one gateway, or the embedded lab: satlab up",
        )


def grounds(topology: Topology, found: Description) -> dict[str, GroundEntity]:
    """Return OpenSAND's terminals and gateway by their names in the roles; a lab of one terminal
    has the first alone.

    Raises: ConfigError: the profile has other terminals or addresses than lab.yml.
    """
    further = terminals.further(topology)
    others = found.further_sts if further else ()
    _check_gateway([one.gateway for one in others if one.gateway is not None])
    if len(others) != len(further):
        raise ConfigError(
            f"the profile has {1 + len(others)} terminals, {paths.LAB_FILE} names"
            f" {1 + len(further)}",
            hint="name as many in lab.yml, or take another profile",
        )
    pairs = {one.st: entity for one, entity in zip(further, others, strict=True)}
    ends = {
        end.node: end.address for end in topology.ends(topology.network_of(NetworkKind.EMULATION))
    }
    faults = [
        Fault(
            f"nodes.{name}",
            f"{ends[name]} on the emulation network, not {entity.emu_address}",
            "as in the profile",
        )
        for name, entity in pairs.items()
        if ends[name] != entity.emu_address
    ]
    if faults:
        raise ConfigError(f"{paths.LAB_FILE} does not fit the profile", faults, "make both equal")
    return {"st": found.st, "gw": found.gw, **pairs}


def for_role(name: str, entity: GroundEntity, found: Description) -> dict[str, str]:
    """Return the variables of an entity for its role: TAP, and files in the folder of the profile."""
    own = name in ("st", "gw")
    infrastructure = entity.infrastructure if own else _infrastructure(entity)
    profile = entity.profile or found.st.profile or ""
    return {
        "name": entity.tap_iface,
        "mac": entity.mac_address,
        "infrastructure": infrastructure,
        "profile": profile,
    }


def _infrastructure(entity: GroundEntity) -> str:
    return f"infrastructure_st{entity.entity_id}.xml"


def own_files(folder: VmFolder, profile: Path, entities: Mapping[str, GroundEntity]) -> Path:
    """Return the folder of OpenSAND's files: the profile's, or a copy with an infrastructure file
    of each terminal.
    """
    further = [entity for name, entity in entities.items() if name not in ("st", "gw")]
    if not further:
        return profile
    target = folder.path / "profile"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(profile, target)
    for entity in further:
        records = Path("/var/log/opensand", f"st{entity.entity_id}")
        opensand_xml.for_lab(
            profile / entity.infrastructure, entity, records, target / _infrastructure(entity)
        )
    return target


def _current(packages: Path) -> bool:
    """Return whether there are packages of this commit that are newer than the emulator."""
    found = list(packages.glob(f"satlink_*+{debian_packages.commit_time()}_*.deb"))
    return bool(found) and found[0].stat().st_mtime >= paths.SATLINK.stat().st_mtime


def _certificates(folder: VmFolder, topology: Topology) -> None:
    made = folder.pki / "server.crt"
    if made.exists() and time.time() - made.stat().st_mtime < CERTIFICATE_AGE_S:
        return
    server = topology.nodes[topology.node_of(Role.SERVER)]
    addresses = [ip_address(str(end.address)) for end in server.interfaces.values()]
    pki.create(
        folder.pki,
        [web_target.load(name).host for name in web_target.names()],
        addresses,
        datetime.now(UTC),
    )


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def without_terrestrial_delay(topology: Topology) -> Topology:
    """Return a topology whose terrestrial segment adds nothing, for hosts whose kernel has no
    netem.
    """
    name = topology.network_of(NetworkKind.INTERNET)
    network = topology.networks[name].model_copy(update={"one_way_delay_ms": 0.0})
    return topology.model_copy(update={"networks": dict(topology.networks) | {name: network}})


# --- plays ----------------------------------------------------------------------------------------


def ssh_options(folder: VmFolder) -> list[str]:
    """Return ssh's options for a lab: its own file of known hosts, login only with keys, and time
    limits.
    """
    options = (
        f"UserKnownHostsFile={folder.known_hosts}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "ConnectTimeout=15",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=6",
    )
    return [word for option in options for word in ("-o", option)]


def play(
    folder: VmFolder,
    playbook: str,
    *extra: str,
    enter: Sequence[str] = (),
    on_task: Callable[[str], None] = lambda _: None,
    deadline_s: float = DEADLINE_S,
) -> dict[str, PlayRecap]:
    """Run a playbook of `ansible/` over a lab, and return the recap of each host. The output goes to
    `ansible.log`.

    `enter`: words before the command; `on_task` gets the name of each task.

    Raises:
        RunError: a task failed, a host is away, or the play hangs.
        HostError: Ansible is not installed.
    """
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        raise HostError("Ansible is missing", "install it: ./satlab --install vm")
    # Whole paths: `enter` may lead to another folder.
    argv = [*enter, str(program), "-i", str(folder.inventory), str(ANSIBLE / playbook), *extra]
    lines: list[str] = []
    with (
        (folder.path / "ansible.log").open("a", encoding="utf-8") as log,
        _lines_of(argv, environment(folder, os.environ), deadline_s) as (process, said),
    ):
        for line in said:
            lines.append(line)
            log.write(line)
            log.flush()
            if line.startswith("TASK ["):
                on_task(line.partition("[")[2].partition("]")[0])
        status = process.wait()
    text = "".join(lines)
    if status != 0:
        raise RunError(
            f"{playbook}: {_why(text)}",
            f"all of it: {folder.path / 'ansible.log'}; then the same again",
        )
    return {name: PlayRecap(*map(int, numbers)) for name, *numbers in _RECAP.findall(text)}


def environment(folder: VmFolder, users: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a play, from the user's.

    Its settings are those of `ansible.cfg` and these, whatever the user's shell or CI job sets for
    other plays: its output is read, and it takes only the pinned keys of hosts. The locale is one
    that every host has.
    """
    kept = {
        name: value
        for name, value in users.items()
        if name in KEPT_SETTINGS or not name.startswith(_DISPLAY)
    }
    return {
        **strategy(),
        **kept,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_LOCAL_TEMP": str(folder.path / "tmp"),
        "ANSIBLE_HOME": str(folder.path / "ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder.path / "cp"),
    }


def strategy() -> dict[str, str]:
    """Return the settings that keep one Python running on each host instead of one for each task.
    The user's settings take precedence.
    """
    found = importlib.util.find_spec("ansible_mitogen")
    if found is None or found.origin is None:
        return {}
    plugins = Path(found.origin).parent / "plugins" / "strategy"
    return {"ANSIBLE_STRATEGY_PLUGINS": str(plugins), "ANSIBLE_STRATEGY": "mitogen_linear"}


@contextmanager
def _lines_of(
    argv: Sequence[str], environment: Mapping[str, str], deadline_s: float
) -> Iterator[tuple["subprocess.Popen[str]", Iterator[str]]]:
    """Run a command and return its lines as they come; it is ended after `SILENCE_S` without one,
    or `deadline_s`.
    """
    process = subprocess.Popen(
        argv,
        cwd=ANSIBLE,
        env=environment,
        encoding="utf-8",
        errors="replace",
        bufsize=1,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    end = time.monotonic() + deadline_s

    def received() -> Iterator[str]:
        while True:
            try:
                line = lines.get(timeout=max(0.0, min(SILENCE_S, end - time.monotonic())))
            except queue.Empty:
                raise RunError(
                    "Ansible hangs", "look at the host that the last task waits for"
                ) from None
            if line is None:
                return
            yield line

    try:
        yield process, received()
    finally:
        finish(process, 10)
        reader.join(5)


def _why(text: str) -> str:
    """Return in one line which host failed at which task, and why."""
    fatal = _FATAL.search(text)
    if fatal is None:
        last = [line for line in text.splitlines() if line.strip()]
        return last[-1] if last else "it said nothing"
    task = re.findall(
        r"^(?:TASK|RUNNING HANDLER) \[([^\]]+)\]", text[: fatal.start()], re.MULTILINE
    )
    message = _MESSAGE.search(fatal[2])
    said = re.sub(r"\\[rnt]", " ", message[1]).replace('\\"', '"') if message else fatal[2]
    if len(said) > 2 * _MESSAGE_END:  # modules report a fault at the start, ssh at the end
        said = f"{said[:_MESSAGE_END]} ... {said[-_MESSAGE_END:]}"
    return f"{fatal[1]}: {task[-1] if task else 'start'}: {said}"
