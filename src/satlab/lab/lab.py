# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded lab as a whole: up, status, down.

A lab is its namespaces (`netns`), one satlink process in the SAT's namespace, and a folder
`/run/satlab/<lab id>/`:

- `lab.json`: what was built and how far (written whole or not at all), `link.json`, `plan.json`:
  its link
- `control.sock`: satlink's control socket
- `satlink.out`: its stdout; `satlink.log`: its stderr, unless the request names another folder for
  logs
- `link.jsonl`, before it `link.jsonl.1`: link metrics, at most METRICS_MAX_BYTES, unless the
  request names another file
- `opensand-{sat,gw,st}.log`: OpenSAND's logs, unless the request names another folder; `opensand/`:
  its infrastructure files, and next to the logs' folder its own logs and probes

With OpenSAND as emulator its processes run in the namespaces of SAT, GW and the terminals, a
further terminal in a node of its own, and satlink serves the terrestrial segment alone.

`down` needs no other state: it finds a lab's processes by their namespaces, and the namespaces by
their names. So it works whichever process was killed and whatever is left of the folder.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from satlab.common import locks, netns_names
from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.files import write_atomically
from satlab.common.paths import SATLINK
from satlab.common.processes import POLL_S, TrackedProcess, send, start, wait
from satlab.common.topology import NetworkKind, Role, Topology
from satlab.lab import netns
from satlab.lab.sandbox import Place
from satlab.link import control, opensand, opensand_xml
from satlab.link.config import (
    Emulator,
    LinkConfig,
    LinkRequest,
    build_config,
    build_lan_config,
    client_lan,
)
from satlab.link.opensand import Platform
from satlab.link.plan import LinkPlan, plan_link

METRICS_MAX_BYTES = 64 << 20
"""Largest size of link metrics in /run (which is in memory), bytes: the last 25 to 50 minutes, at
1.9 GB a day.
"""
RUN = Path("/run/satlab")
READY_DEADLINE_S = 5.0
"""Longest time until satlink serves its TUNs and the links have carrier, s."""
OPENSAND_READY_DEADLINE_S = 20.0
"""Longest time until the first echo over OpenSAND, s. Usually it takes 0.4 to 3.5 s; a logon that
fails is repeated after 5 s.
"""
OPENSAND_INITIALIZED_DEADLINE_S = 5.0
"""Longest time until SAT and GW log that they take messages, s: 10 to 40 ms on an idle host."""
END_DEADLINE_S = 1.0
"""Longest time until processes end after SIGTERM, and again after SIGKILL, s."""
LOCK_DEADLINE_S = 15.0
SATLINK_PROCESS = "satlink"
LAN_PROCESS = "satlink-lan"
"""Name of the satlink process that carries the client's LAN, if that LAN loses packets."""

_NO_USER_NAMESPACE = (
    "this kernel allows no user namespace: jobs that need CAP_NET_ADMIN or CAP_NET_RAW are refused"
)
_LAB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")


class _State(BaseModel):
    """`lab.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_: Literal["satlab/lab-state/2"] = Field(default="satlab/lab-state/2", alias="schema")
    finished: bool
    since_unix_s: float
    processes: dict[str, TrackedProcess]
    topology: Topology


@dataclass(frozen=True)
class LabStatus:
    """The state of a lab. `phase` is `up`, `broken` (see `reason`) or `absent`; times in seconds
    since the epoch.
    """

    lab_id: str
    phase: Literal["up", "broken", "absent"]
    reason: str = ""
    nodes: tuple[str, ...] = ()
    satlink_pid: int | None = None
    since_unix_s: float | None = None
    profile: str | None = None
    emulator: Emulator | None = None
    metrics: Path | None = None


@dataclass(frozen=True)
class Lab:
    """A lab that is up.

    `found`: the lab was up as requested, and `up` changed nothing. `notes` are for the user.
    """

    lab_id: str
    topology: Topology
    config: LinkConfig
    plan: LinkPlan
    found: bool = False
    notes: tuple[str, ...] = ()
    lan: LinkConfig | None = None

    @classmethod
    def up(
        cls, lab_id: str, topology: Topology, request: LinkRequest, *, satlink: Path = SATLINK
    ) -> "Lab":
        """Bring a lab up, or find it up with the same topology, link and profile. A broken lab is
        built anew.

        SIGINT, SIGTERM and SIGHUP are held back until the next step and raised as
        KeyboardInterrupt. Then, as after any failure, nothing is left behind.

        Raises:
            ConfigError: bad lab id or profile, or the lab is up with another configuration.
            HostError: the host refuses a step; satlink or OpenSAND is missing, dies or is not ready
            in time.
        """
        check_id(lab_id)
        netns.check_host()
        folder = _folder(lab_id)
        metrics, control = folder / "link.jsonl", folder / "control.sock"
        bounds = {"metrics_max_bytes": METRICS_MAX_BYTES}
        platform = None
        if request.emulator == "opensand":
            platform = opensand.prepare(request.profile, topology, satlink)
            topology = platform.topology(topology)
        config = build_config(topology, lab_id, request, metrics=metrics, control=control, **bounds)
        notes = tuple(platform.notes()) if platform else ()
        lan = (
            build_lan_config(topology, lab_id, config, request.lan_loss)
            if request.lan_loss
            else None
        )
        lab = cls(lab_id, topology, config, plan_link(config, satlink), notes=notes, lan=lan)
        commands = _commands(lab, satlink, platform, request.logs)
        with _Interrupts() as interrupts, _locked(lab_id):
            if status(lab_id).phase == "up":
                return _same(cls.attach(lab_id), lab)
            _remove(lab_id)
            try:
                records = (request.logs.parent if request.logs else folder).absolute() / "opensand"
                _build(lab, commands, platform, records, interrupts)
            except BaseException:
                _remove(lab_id)
                interrupts.check()
                raise
        return (
            lab
            if netns_names.user_path(lab_id).exists()
            else replace(lab, notes=(*notes, _NO_USER_NAMESPACE))
        )

    @classmethod
    def attach(cls, lab_id: str) -> "Lab":
        """Return a lab that is up.

        Raises:
            ConfigError: there is no such lab.
            HostError: it is broken.
        """
        check_id(lab_id)
        state = status(lab_id)
        if state.phase == "absent":
            raise ConfigError(
                f"no lab named {lab_id} is up", hint="bring it up: satlab up --profile NAME"
            )
        if state.phase == "broken":
            raise HostError(
                f"lab {lab_id} is broken: {state.reason}", "take it down and up again: satlab down"
            )
        record, folder = _read_state(lab_id), _folder(lab_id)
        if record is None:
            raise HostError(f"lab {lab_id} was taken down just now")
        config = LinkConfig.model_validate_json((folder / "link.json").read_bytes())
        plan = LinkPlan.model_validate_json((folder / "plan.json").read_bytes())
        lan = folder / "lan.json"
        carried = LinkConfig.model_validate_json(lan.read_bytes()) if lan.exists() else None
        return cls(lab_id, record.topology, config, plan, found=True, lan=carried)

    def status(self) -> LabStatus:
        """Return the present state of the lab."""
        return status(self.lab_id)

    def down(self) -> None:
        """Take the lab down, as the function `down`."""
        down(self.lab_id)

    def enter_argv(self, node: str, *words: str) -> list[str]:
        """Return the argv that runs a command inside `node`; its prefix without `words`."""
        if node not in self.topology.nodes:
            raise ConfigError(
                f"lab {self.lab_id} has no node {node!r}",
                hint=f"one of {', '.join(self.topology.nodes)}",
            )
        return ["nsenter", f"--net={netns_names.path(self.lab_id, node)}", "--", *words]

    def place(self, node: str) -> Place:
        """Return the namespaces of a node."""
        user = netns_names.user_path(self.lab_id)
        return Place(netns_names.path(self.lab_id, node), user if user.exists() else None)

    def start_timeline(self) -> None:
        """Start the link's timeline, if it has one; satlink waits for this call."""
        if self.config.timeline and self.config.control:
            control.start_timeline(Path(self.config.control))

    def set_congestion_control(self, node: str, congctl: str, initcwnd: int | None = None) -> None:
        """Choose TCP's algorithm and initial window (segments; None: the kernel's) for new
        connections of `node`.
        """
        netns.set_congestion_control(self.lab_id, node, congctl, initcwnd)

    def set_tcp_buffers(self, node: str, receive_max: int, send_max: int) -> None:
        """Limit the buffers of TCP's new connections of `node`, bytes."""
        netns.set_tcp_buffers(self.lab_id, node, receive_max, send_max)


def check_id(lab_id: str) -> None:
    """Refuse a lab id that is not 1 to 16 of a-z, 0-9 and (not first) a hyphen.

    Raises:
        ConfigError: with what is allowed.
    """
    if not _LAB_ID.fullmatch(lab_id):
        raise ConfigError(
            f"lab id {lab_id!r} is not usable", hint="1 to 16 of a-z, 0-9 and (not first) a hyphen"
        )


def list_labs() -> list[LabStatus]:
    """Return every lab of this host, by id: labs with a record, and labs of which only namespaces
    are left.
    """
    _check_readable()
    with_folder = (
        {entry.name for entry in RUN.iterdir() if entry.is_dir()} if RUN.is_dir() else set()
    )
    return [status(lab_id) for lab_id in sorted(with_folder | netns.lab_ids())]


def status(lab_id: str) -> LabStatus:
    """Look at a lab without changing it.

    Raises:
        HostError: not root.
    """
    _check_readable()
    nodes = tuple(netns.present(lab_id))
    if not nodes and not _folder(lab_id).exists():
        return LabStatus(lab_id, "absent")
    state = _read_state(lab_id)
    if state is None:
        return LabStatus(lab_id, "broken", "it has no record", nodes)
    reason = _ailment(state, nodes)
    details: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValidationError):
        config = LinkConfig.model_validate_json((_folder(lab_id) / "link.json").read_bytes())
        details = {
            "profile": config.profile,
            "emulator": config.emulator,
            "metrics": Path(config.metrics),
        }
    satlink = state.processes.get(SATLINK_PROCESS)
    pid = satlink.pid if satlink else None
    return LabStatus(
        lab_id, "broken" if reason else "up", reason, nodes, pid, state.since_unix_s, **details
    )


def down(lab_id: str) -> bool:
    """Take a lab down, however much of it is left. Return False if there was nothing.

    Every process inside its namespaces is ended (SIGTERM, then SIGKILL), then namespaces and record
    are removed.

    Raises:
        ConfigError: bad lab id.
        HostError: not root, or a process does not end even after SIGKILL.
    """
    check_id(lab_id)
    netns.check_host()
    with _Interrupts(), _locked(lab_id):
        return _remove(lab_id)


# --- building -------------------------------------------------------------------------------------


def _same(lab: Lab, requested: Lab) -> Lab:
    """Return the lab that is up if it is as requested."""
    has, needs = lab.config.model_dump(), requested.config.model_dump()
    faults = [
        Fault(f"link.{key.rstrip('_')}", f"{has[key]!r} is up, {needs[key]!r} is asked for")
        for key in has
        if has[key] != needs[key]
    ]
    if lab.lan != requested.lan:
        faults.append(Fault("lan", "another loss on the client's LAN is asked for"))
    if lab.topology != requested.topology:
        faults.append(Fault("topology", "lab.yml has changed since"))
    if not faults and lab.plan != requested.plan:
        faults.append(Fault("profile", "its files, or satlink, have changed since"))
    if faults:
        hint = "take it down first (satlab down), or choose another lab id"
        raise ConfigError(f"lab {lab.lab_id} is up with another configuration", faults, hint)
    return lab


@dataclass(frozen=True)
class _Command:
    """A process of the lab: the node that it runs in, and the files for its stdout and stderr,
    which may be the same file.
    """

    node: str
    argv: list[str]
    out: Path
    log: Path


def _commands(
    lab: Lab, satlink: Path, platform: Platform | None, logs: Path | None
) -> dict[str, _Command]:
    """Return the lab's processes by name, in the order of their start."""
    folder = _folder(lab.lab_id)
    place = (logs or folder).absolute()
    commands = {}
    for machine in platform.machines(lab.topology) if platform else ():
        name = opensand.process_name(machine)
        log = place / f"{name}.log"
        argv = platform.command(machine, _infrastructure(lab.lab_id, machine)) if platform else []
        commands[name] = _Command(machine.node, argv, log, log)
    files = {SATLINK_PROCESS: "link.json"} | ({LAN_PROCESS: "lan.json"} if lab.lan else {})
    for name, file in files.items():
        argv = [str(satlink.resolve()), "run", str(folder / file)]
        node = lab.topology.node_of(Role.SAT)
        commands[name] = _Command(node, argv, folder / f"{name}.out", place / f"{name}.log")
    return commands


def _build(
    lab: Lab,
    commands: dict[str, _Command],
    platform: Platform | None,
    records: Path,
    interrupts: "_Interrupts",
) -> None:
    folder = _folder(lab.lab_id)
    folder.mkdir(mode=0o700)
    state = _State(finished=False, since_unix_s=time.time(), processes={}, topology=lab.topology)
    _write_state(lab.lab_id, state)
    _write(folder / "link.json", lab.config.to_json())
    _write(folder / "plan.json", lab.plan.to_json())
    if lab.lan:
        _write(folder / "lan.json", lab.lan.to_json())
    taps = platform.taps(lab.topology) if platform else None
    carried = client_lan(lab.topology)[0].network if lab.lan else None
    netns.build(lab.topology, lab.lab_id, taps, carried)
    interrupts.check()
    for machine in platform.machines(lab.topology) if platform else ():
        source = Path(lab.config.profile) / machine.entity.infrastructure
        port = lab.config.probes.port if lab.config.probes else None
        opensand_xml.for_lab(
            source,
            machine.entity,
            records / machine.name,
            _infrastructure(lab.lab_id, machine),
            port,
        )
    processes = _start_all(lab, commands, platform, interrupts)
    state = state.model_copy(update={"processes": processes})
    _write_state(lab.lab_id, state)
    if platform:
        _await_opensand(lab, processes, platform, interrupts)
    _await_ready(lab.lab_id, processes, interrupts)
    _write_state(lab.lab_id, state.model_copy(update={"finished": True}))
    interrupts.check()


def _infrastructure(lab_id: str, machine: opensand.Machine) -> Path:
    """Return the infrastructure file of an entity in this lab."""
    return _folder(lab_id) / "opensand" / f"infrastructure_{machine.name}.xml"


def _start_all(
    lab: Lab, commands: dict[str, _Command], platform: Platform | None, interrupts: "_Interrupts"
) -> dict[str, TrackedProcess]:
    """Start every process; OpenSAND's terminals when SAT and GW take their logon."""
    processes: dict[str, TrackedProcess] = {}
    machines = platform.machines(lab.topology) if platform else []
    terminals = {opensand.process_name(one) for one in machines if one.role is Role.ST}
    for name, command in commands.items():
        if name in terminals and not terminals & processes.keys():
            _await_initialized(dict(processes), interrupts)
        processes[name] = _start(lab, command)
    return processes


def _await_initialized(processes: dict[str, TrackedProcess], interrupts: "_Interrupts") -> None:
    """Wait until entities of OpenSAND log that they take messages. `_await_opensand` reports the
    entities that do not.
    """

    def initialized() -> bool:
        interrupts.check()
        _check_alive(processes)
        return all(
            opensand.is_initialized(p.log.read_text(errors="replace")) for p in processes.values()
        )

    wait(initialized, OPENSAND_INITIALIZED_DEADLINE_S)


def _start(lab: Lab, command: _Command) -> TrackedProcess:
    started = start(
        [*lab.enter_argv(command.node), *command.argv], out=command.out, log=command.log
    )
    if command.log.parent != _folder(lab.lab_id):
        command.log.chmod(0o644)  # of a run, whose page shows its logs
    return started


def _await_ready(
    lab_id: str, processes: dict[str, TrackedProcess], interrupts: "_Interrupts"
) -> None:
    """Wait until satlink says it is ready and no link lacks carrier."""

    def ready() -> bool:
        interrupts.check()
        _check_alive(processes)
        satlinks = processes.keys() & {SATLINK_PROCESS, LAN_PROCESS}
        return all(
            _said_ready(lab_id, name) for name in satlinks
        ) and not netns.links_without_carrier(lab_id)

    if not wait(ready, READY_DEADLINE_S):
        lacking = ", ".join(netns.links_without_carrier(lab_id)) or "none"
        raise HostError(
            f"satlink is not ready after {READY_DEADLINE_S:g} s (links without carrier: {lacking}):"
            f" {processes[SATLINK_PROCESS].last_words()}",
            "is the host overloaded? Try again; else see satlink plan",
        )


def _await_opensand(
    lab: Lab, processes: dict[str, TrackedProcess], platform: Platform, interrupts: "_Interrupts"
) -> None:
    """Wait until an echo has crossed the satellite segment: OpenSAND may report that it is ready
    before it carries packets.
    """
    topology, seconds = lab.topology, OPENSAND_READY_DEADLINE_S
    st, gw = topology.node_of(Role.ST), topology.node_of(Role.GW)
    address = next(
        e.address for e in topology.ends(topology.network_of(NetworkKind.SATELLITE)) if e.node == gw
    )
    ping = f"ping -n -q -c 1 -i 0.2 -w {seconds:.0f} {address}"
    argv = [*lab.enter_argv(st), *ping.split()]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as echo:

        def answered() -> bool:
            interrupts.check()
            _check_alive(processes)
            return echo.poll() == 0

        try:
            if not wait(answered, seconds):
                raise _not_ready(processes, platform.machines(topology))
        finally:
            echo.kill()


def _not_ready(processes: dict[str, TrackedProcess], machines: list[opensand.Machine]) -> HostError:
    """Return how far the start of each OpenSAND entity came."""
    logs = {machine: processes[opensand.process_name(machine)] for machine in machines}
    came = [
        opensand.progress(machine, process.log.read_text(errors="replace"))
        for machine, process in logs.items()
    ]
    terminal = next(process for machine, process in logs.items() if machine.role is Role.ST)
    return HostError(
        f"OpenSAND carries no packet after {OPENSAND_READY_DEADLINE_S:g} s: {', '.join(came)}; "
        f"the terminal's log ends: {terminal.last_words()}",
        "check the profile: satlab validate; only OpenSAND checks its FIFOs, addresses and Es/N0",
    )


def _check_alive(processes: dict[str, TrackedProcess]) -> None:
    for name, process in processes.items():
        if not process.is_alive():
            raise HostError(
                f"{name} ended{_how_ended(name, process)} before it was ready:"
                f" {process.last_words()}"
            )


def _said_ready(lab_id: str, name: str) -> bool:
    line, newline, _ = (_folder(lab_id) / f"{name}.out").read_text(errors="replace").partition("\n")
    with contextlib.suppress(ValueError):
        return bool(newline) and json.loads(line).get("ready") is True
    return False


def _how_ended(name: str, process: TrackedProcess) -> str:
    """Return how a process ended, or that it is unknown."""
    code = process.exit_code()
    how = (
        ""
        if code is None
        else f" with status {code}"
        if code >= 0
        else f" by {signal.Signals(-code).name}"
    )
    meaning = (
        opensand.meaning(code)
        if code is not None and name not in (SATLINK_PROCESS, LAN_PROCESS)
        else ""
    )
    return how + (f" ({meaning})" if meaning else "")


# --- taking down ----------------------------------------------------------------------------------


def _ailment(state: _State, nodes: tuple[str, ...]) -> str:
    """Return why a lab is not up; empty if it is."""
    missing = sorted(set(state.topology.nodes) - set(nodes))
    if not state.finished:
        return "it is being built, or its build was killed"
    if missing:
        return f"namespaces are missing: {', '.join(missing)}"
    dead = {name: process for name, process in state.processes.items() if not process.is_alive()}
    return "; ".join(
        f"{name} has ended{_how_ended(name, process)}: {process.last_words()}"
        for name, process in dead.items()
    )


def _remove(lab_id: str) -> bool:
    state = _read_state(lab_id)
    processes = list(state.processes.values()) if state else []
    found = bool(netns.present(lab_id)) or _folder(lab_id).exists()
    _end_processes(lab_id, processes)
    netns.remove(lab_id)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_folder(lab_id))
    return found


def _end_processes(lab_id: str, processes: list[TrackedProcess]) -> None:
    """End all processes of a lab: SIGTERM, so that satlink can write its last metrics, then
    SIGKILL.
    """

    def left() -> set[int]:
        inside = netns.occupants(lab_id) - {os.getpid()}
        return inside | {process.pid for process in processes if process.is_alive()}

    for number in (signal.SIGTERM, signal.SIGKILL):
        signalled: set[int] = set()

        def all_gone(number: signal.Signals = number, signalled: set[int] = signalled) -> bool:
            new = left() - signalled
            send(new, left, number)
            signalled |= new
            return not left()

        if wait(all_gone, END_DEADLINE_S):
            break
    else:
        raise HostError(
            f"processes of lab {lab_id} do not end: {sorted(left())}",
            "they hang in the kernel: see dmesg",
        )
    for process in processes:
        wait(process.is_reaped, END_DEADLINE_S)


# --- record, lock, signals ------------------------------------------------------------------------


def _folder(lab_id: str) -> Path:
    return RUN / lab_id


def _check_readable() -> None:
    if RUN.exists() and not os.access(RUN, os.R_OK | os.X_OK):
        raise HostError(f"{RUN} is readable by root alone", "run the same command as root")


def _read_state(lab_id: str) -> _State | None:
    """Read `lab.json`; None if it is missing, or of a form that this version does not know."""
    with contextlib.suppress(FileNotFoundError, ValidationError):
        return _State.model_validate_json((_folder(lab_id) / "lab.json").read_bytes())
    return None


def _write_state(lab_id: str, state: _State) -> None:
    _write(_folder(lab_id) / "lab.json", state.model_dump_json(by_alias=True, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    """Write a private file, whole or not at all."""
    write_atomically(path, text, mode=0o600)


@contextlib.contextmanager
def _locked(lab_id: str) -> Iterator[None]:
    """Hold a lab's lock file. The holder deletes it, so another process checks after locking that
    the file is still there.
    """
    path, end = RUN / f"{lab_id}.lock", time.monotonic() + LOCK_DEADLINE_S
    while (file := locks.hold_removable(path, wait=False)) is None:
        if time.monotonic() > end:
            raise HostError(
                f"another satlab command has worked on lab {lab_id} for {LOCK_DEADLINE_S:g} s"
            )
        time.sleep(POLL_S)
    try:
        yield
    finally:
        path.unlink()
        os.close(file)
        with contextlib.suppress(OSError):  # the folder holds other labs or locks
            RUN.rmdir()


class _Interrupts:
    """Hold back signals that would end the program until a step is done.

    Python delivers signals to the main thread only.
    """

    _HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._HELD}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._came is not None and kind is not KeyboardInterrupt:
            signal.raise_signal(self._came)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came = number

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self._came is not None:
            raise KeyboardInterrupt
