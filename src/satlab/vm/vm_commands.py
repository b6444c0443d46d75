# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab by hand: up, provision, status, run, down."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from satlab.common import paths, terminals, yaml_text
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.common.topology import Service, Topology
from satlab.link.options import LinkOptions
from satlab.run import influx
from satlab.vm import host_checks, inventory, libvirt_host, provision, vagrant, vm_run
from satlab.vm.controller_client import Controller
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import PlayRecap, VmFolder
from satlab.vm.vagrant import Vagrant
from satlab.vm.vm_lab import VmLab

FOLDER = VmFolder(paths.ROOT / ".satlab" / "vm")


def up(options: LinkOptions, log: ProgressLog, variables: Mapping[str, str]) -> None:
    """Check the host, bring every machine up, provision them. Doing it again converges."""
    size, driver, box = host_checks.settings(os.environ)
    here = terminals.named(size=size)
    FOLDER.make()
    host = host_checks.Host()
    with log.step("checks"):
        found = {} if host.which("vagrant") is None else Vagrant(driver).states()
        if "running" not in found.values():
            for note in host_checks.check(here, size, driver, box, FOLDER.path, host):
                log.line(f"note: {note}")
        choice = libvirt_host.choose(inventory.machines(here), host.environment, host.output)
    tool = Vagrant(driver, environment=choice.variables())
    names = inventory.hosts(here, size)
    with log.step(f"{len(names)} machines up") as step:
        tool.up(FOLDER, names, step.now)
    with log.step("host keys"):
        vagrant.pin(FOLDER, inventory.machines(here), {name: tool.host_key(name) for name in names})
    provisioned(options, log, variables)


def provisioned(
    options: LinkOptions, log: ProgressLog, variables: Mapping[str, str]
) -> dict[str, PlayRecap]:
    """Write inventory and link, run site.yml, then verify.yml."""
    size, driver, _ = host_checks.settings(os.environ)
    here = terminals.named(size=size)
    names = inventory.hosts(here, size)
    keys = Vagrant(driver).keys(names)
    FOLDER.make()
    with log.step("packages and link"):
        choices = VmOptions(size, options.emulator, variables)
        connection = vagrant.connection(names, keys, FOLDER)
        # The link of the VM lab is the guests' whatever emulates it; `link.json` describes it as
        # for satlink.
        plan = provision.prepare(FOLDER, here, choices, options, connection)
    with log.step("site.yml") as step:
        recap = provision.play(FOLDER, "site.yml", on_task=step.now)
        step.outcome = f"{sum(r.changed for r in recap.values())} changes on {len(recap)} hosts"
    with log.step("verify.yml") as step:
        provision.play(FOLDER, "verify.yml", on_task=step.now)
    log.line(f"  round trip {plan.rtt_ms.min:.1f} to {plan.rtt_ms.max:.1f} ms")
    return recap


def write_inventory(options: LinkOptions, variables: Mapping[str, str]) -> Path:
    """Write the inventory and the files that it refers to, for hosts that are not Vagrant's; return
    its path.
    """
    size, _, _ = host_checks.settings(os.environ)
    provision.prepare(
        FOLDER,
        terminals.named(size=size),
        VmOptions(size, options.emulator, variables),
        options,
        {},
    )
    return FOLDER.inventory


def status(*, json_lines: bool) -> int:
    """Show every machine and whether ssh answers; FAILED when one does not."""
    size, driver, _ = host_checks.settings(os.environ)
    here = terminals.named(size=size)
    tool = Vagrant(driver)
    states = tool.states()
    rows = [(name, states.get(name, "not_created")) for name in inventory.hosts(here, size)]
    running = [name for name, state in rows if state == "running"]
    keys = tool.keys(running) if running else {}
    good = True
    for name, state in rows:
        address = inventory.machines(here).hosts[name].address
        units = _units(VmLab(FOLDER, here, keys=keys), name) if name in running else ""
        good = good and units == "running"
        row = {"host": name, "address": str(address), "machine": state, "system": units or None}
        say(
            json.dumps(row)
            if json_lines
            else f"{name}: {state}, {address}{f', system {units}' if units else ''}"
        )
    return ExitStatus.OK if good else ExitStatus.FAILED


def _units(lab: VmLab, name: str) -> str:
    """Return systemd's state of a host: running, degraded; or why it is unknown."""
    try:
        return lab.output(name, "sh", "-c", "systemctl is-system-running || true").decode().strip()
    except SatlabError as error:
        return str(error)


def lab_of(here: Topology) -> VmLab:
    """Return the lab that is up.

    Raises:
        ConfigError: it is not.
    """
    size, driver, _ = host_checks.settings(os.environ)
    if not FOLDER.known_hosts.exists():
        raise ConfigError("the VM lab is not up", hint="bring it up: satlab vm up")
    return VmLab(FOLDER, here, keys=Vagrant(driver).keys(inventory.hosts(here, size)))


def prepared(
    scenario: Path, settings: Mapping[str, str], openbach: str | None, *, over_ssh: bool
) -> vm_run.PreparedVmRun:
    """Check a scenario against the lab, and choose how its jobs are started.

    `openbach`: URL of a controller, whose hosts need not be ours; None: that of the lab, if it has
    one. `over_ssh`: without any.

    Raises:
        ConfigError: the scenario is not usable, or there is no lab.
    """
    size, _, _ = host_checks.settings(os.environ)
    here = terminals.named(size=size)
    if openbach is not None and not over_ssh:
        elsewhere = VmLab(FOLDER, here) if not FOLDER.known_hosts.exists() else lab_of(here)
        return vm_run.prepare(scenario, settings, elsewhere, Controller.of(openbach))
    return vm_run.prepare(
        scenario, settings, lab_of(here), None if over_ssh else controller_of(FOLDER)
    )


def controller_of(folder: VmFolder) -> Controller | None:
    """Return the OpenBACH controller in a lab's inventory, with the password that its role made;
    None: it has none.
    """
    address = _service(folder, Service.OPENBACH_CONTROLLER)
    password = folder.secrets / "openbach-admin"
    if address is None:
        return None
    if not password.exists():
        raise ConfigError(
            "the lab's controller has no password yet", hint="provision it: satlab vm provision"
        )
    return Controller(address, login="openbach", password=password.read_text().strip())


def forward(run_folder: Path, url: str | None, log: ProgressLog) -> None:
    """Send a run's statistics to a database, by default to the lab's collector.

    A failure costs no measurement.
    """
    place = url or collector_of(FOLDER)
    if place is None:
        return
    try:
        count = influx.send([run_folder], place)
        log.line(f"  {count} points to {influx.Database.of(place)}")
    except SatlabError as error:
        log.line(f"note: {error}; send it later: satlab influx {run_folder} --to URL")


def collector_of(folder: VmFolder) -> str | None:
    """Return the URL of the collector in a lab's inventory, with the password that its role made;
    None: it has none.
    """
    address, password = _service(folder, Service.COLLECTOR), folder.secrets / "influxdb-admin"
    return (
        f"http://admin:{password.read_text().strip()}@{address}:8086"
        if address and password.exists()
        else None
    )


def _service(folder: VmFolder, service: Service) -> str | None:
    """Return the address of the host that the inventory has for a service."""
    found = yaml_text.read(folder.inventory)["all"] if folder.inventory.exists() else {}
    names = list(found.get("children", {}).get(service.value, {}).get("hosts", {}))
    return str(found["hosts"][names[0]]["ansible_host"]) if names else None


def down(log: ProgressLog) -> None:
    """Destroy every machine and remove the files generated for them."""
    _, driver, _ = host_checks.settings(os.environ)
    host = host_checks.Host()
    machines = inventory.machines(terminals.named())
    choice = libvirt_host.choose(machines, host.environment, host.output)
    FOLDER.make()
    with log.step("machines down") as step:
        Vagrant(driver, environment=choice.variables()).down(FOLDER, step.now)
    for each in (FOLDER.inventory, FOLDER.known_hosts, FOLDER.link, FOLDER.plan):
        each.unlink(missing_ok=True)
