# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of Debian's Slurm on this host, for one campaign.

`python tests/slurm.py FOLDER CAMPAIGN [--jobs N] [--retries N] [--kill N]`: CAMPAIGN is a
campaign's file, or a number of short tasks under the virtual clock (tests/campaigns.py). munged,
slurmctld and two slurmd run as root in namespaces of this process, which end with it: all in a PID
namespace, and each node in PID, mount and UTS namespaces of its own, with its own /run. The
packages are unpacked, not installed (`unpacked` in ./satlab). `--kill N`: when N tasks are done and
node-b has one in progress, SIGKILL ends everything on node-b, as if it had lost power. stdout has
one JSON object; FOLDER keeps the campaign and the daemons' logs.
"""

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.campaign import dataset, engine, planner
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.engine import Options
from satlab.campaign.plan_file import Plan
from satlab.common import paths, processes
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.install import SLURM_PACKAGES
from tests import campaigns

PACKAGES = paths.ROOT / ".satlab" / "packages"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SLURM = PACKAGES / "slurm-wlm-basic-plugins" / LIBRARIES / "slurm-wlm"
CONTROLLER, NODES, PARTITION = "controller", ("node-a", "node-b"), "labs"
NAMESPACES = "unshare --mount --pid --uts --fork --kill-child --mount-proc --".split()
READY_S = 30.0
LOST_S = 12
"""A node that is silent for so long is down, and its jobs are queued again."""
CONFIG = """\
ClusterName=satlab
SlurmctldHost={controller}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
ReturnToService=2
SlurmdTimeout={lost}
KillWait=5
MinJobAge=300
"""
ON_NODE = """
set -eu
hostname "$1"
mount -t tmpfs -o mode=755 run /run
"$2" -D -N "$1" -f "$3" -d "$4" >"$5" 2>&1 &
wait $!
"""


def is_unpacked() -> bool:
    """Return whether all packages are there."""
    return all((PACKAGES / name).is_dir() for name in SLURM_PACKAGES)


def program(name: str) -> str:
    """Return the path of a program of the packages;

    Debian's daemons have a suffix until they are installed.
    """
    places = (
        PACKAGES / package / "usr" / part / file
        for package in SLURM_PACKAGES
        for part in ("bin", "sbin")
        for file in (name, f"{name}-wlm")
    )
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise RuntimeError(f"no package has {name}")
    return str(found)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which programs find Slurm, its libraries and this cluster."""
    known = [PACKAGES / name for name in SLURM_PACKAGES]
    libraries = [
        str(SLURM),
        *(str(place / LIBRARIES) for place in known if (place / LIBRARIES).is_dir()),
    ]
    binaries = [str(place / "usr" / part) for place in known for part in ("bin", "sbin")]
    return {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": ":".join([str(folder / "bin"), *binaries, os.environ["PATH"]]),
        "SLURM_CONF": str(folder / "slurm.conf"),
        "XDG_STATE_HOME": str(folder / "home"),
    }


def free_ports(count: int) -> list[int]:
    """Return so many TCP ports that are free on loopback."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@dataclass
class Cluster:
    """munged, slurmctld and slurmd of two nodes, in namespaces of this process."""

    folder: Path
    daemons: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def start(self) -> None:
        """Start everything, and wait until both nodes are idle.

        Raises RuntimeError with what the daemons said.
        """
        for place in (self.folder, self.folder / "state", self.folder / "home"):
            place.mkdir(mode=0o755, exist_ok=True)
        port, *ports = free_ports(1 + len(NODES))
        text = CONFIG.format(
            controller=CONTROLLER, port=port, folder=self.folder, plugins=SLURM, lost=LOST_S
        )
        for name, its_port in zip(NODES, ports, strict=True):
            text += (
                f"NodeName={name} NodeAddr=127.0.0.1 Port={its_port} CPUs=2 RealMemory=2000"
                " State=UNKNOWN\n"
            )
        text += (
            f"PartitionName={PARTITION} Nodes={','.join(NODES)} Default=YES OverSubscribe=EXCLUSIVE"
            " State=UP\n"
        )
        (self.folder / "slurm.conf").write_text(text)
        self._srun()
        self._munge()
        self._start(
            "slurmctld", [program("slurmctld"), "-D", "-f", str(self.folder / "slurm.conf")]
        )
        for name in NODES:
            self._node(name)
        if not processes.wait(lambda: self.states() == dict.fromkeys(NODES, "idle"), READY_S):
            raise RuntimeError(f"{self.states()}: {self.words()}")

    def _srun(self) -> None:
        """Write an srun for jobs, from which Snakemake takes all variables of Slurm: elsewhere
        /etc/slurm is found.
        """
        file = self.folder / "bin" / "srun"
        file.parent.mkdir(exist_ok=True)
        words = (
            f"SLURM_CONF={shlex.quote(str(self.folder / 'slurm.conf'))} exec"
            f" {shlex.quote(program('srun'))}"
        )
        file.write_text(f'#!/bin/sh\n{words} "$@"\n')
        file.chmod(0o755)

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {name: f"{self.folder}/munge.{name}" for name in ("socket", "pid", "log", "seed")}
        words = [f"--{name}-file={file}" for name, file in files.items() if name != "socket"]
        words += [f"--key-file={key}", f"--socket={files['socket']}"]
        self._start("munged", [program("munged"), "--foreground", "--force", *words])
        if not processes.wait(Path(files["socket"]).exists, READY_S):
            raise RuntimeError(self.words())

    def _node(self, name: str) -> None:
        spool = self.folder / name
        spool.mkdir(exist_ok=True)
        words = [name, program("slurmd"), str(self.folder / "slurm.conf"), program("slurmstepd")]
        self._start(
            name, [*NAMESPACES, "sh", "-c", ON_NODE, "sh", *words, str(self.folder / f"{name}.log")]
        )

    def _start(self, name: str, argv: list[str]) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            self.daemons[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def states(self) -> dict[str, str]:
        """Return the state of each node as slurmctld sees it."""
        argv = [program("sinfo"), "--noheader", "--Node", "--format=%N %T"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return dict(line.split() for line in done.stdout.splitlines())

    def words(self) -> str:
        """Return the last lines of every log."""
        logs = sorted([*self.folder.glob("*.out"), *self.folder.glob("*.log")])
        return " | ".join(f"{log.name}: {(processes.log_tail(log) or '')[-600:]}" for log in logs)

    def kill(self, name: str) -> None:
        """End a node with everything on it."""
        self.daemons[name].kill()
        self.daemons[name].wait()


def in_progress(folder: CampaignFolder, node: str) -> bool:
    """Return whether a node has a job while an attempt has begun that has not ended."""
    words = f"--noheader --states=running --nodelist={node} --format=%i".split()
    argv = [program("squeue"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    begun = folder.path.glob("tasks/*/*/attempt-*")
    return bool(done.stdout.strip()) and any(
        not (place / "attempt.json").exists() for place in begun
    )


def campaign(
    folder: Path, what: str, jobs: int, retries: int, kill_after: int | None
) -> dict[str, Any]:
    """Run a campaign over the nodes, kill node-b in the middle, and return what became of every
    task.
    """
    plan = campaigns.plan(int(what)) if what.isdecimal() else planner.plan(Path(what))
    cluster = Cluster(folder / "slurm")
    cluster.start()
    where = CampaignFolder(folder / "campaign")
    work = engine.choose(plan, where.path, Options("slurm", jobs, retries, PARTITION))
    done: list[ExitStatus | Exception] = []
    thread = threading.Thread(target=lambda: done.append(_outcome(work)))
    began = time.monotonic()
    thread.start()
    killed = None
    while thread.is_alive():
        thread.join(0.2)
        ended = len(plan.tasks) - len(where.left(plan))
        is_due = kill_after is not None and killed is None and ended >= kill_after
        if is_due and in_progress(where, NODES[1]):
            cluster.kill(NODES[1])
            killed = {
                "node": NODES[1],
                "tasks_done": ended,
                "at_s": round(time.monotonic() - began, 1),
            }
    return outcome(plan, where) | {
        "status": str(done[0]),
        "took_s": round(time.monotonic() - began, 1),
        "killed": killed,
        "states": cluster.states(),
    }


def _outcome(work: engine.Engine) -> ExitStatus | Exception:
    try:
        return work.run(ProgressLog(), threading.Event())
    except Exception as error:  # noqa: BLE001 - reported by the caller
        return error


def outcome(plan: Plan, where: CampaignFolder) -> dict[str, Any]:
    """Return how often each task is in the dataset, and on which nodes attempts were made."""
    collected = dataset.collect(plan, where)
    frame = collected.frame.filter(collected.frame["metric"] == dataset.TASK_METRIC)
    records = [record for record in collected.records.values() if record is not None]
    return {
        "tasks": len(plan.tasks),
        "rows_of_task": dict(Counter(Counter(frame["task"].to_list()).values())),
        "by_status": dict(Counter(frame["status"].to_list())),
        "by_node": dict(Counter(record.last.host.name for record in records)),
        "by_attempts": dict(Counter(len(record.attempts) for record in records)),
        "reasons": sorted(
            {attempt.reason for record in records for attempt in record.attempts if attempt.reason}
        ),
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("campaign")
    arguments.add_argument("--jobs", type=int, default=4)
    arguments.add_argument("--retries", type=int, default=1)
    arguments.add_argument("--kill", type=int)
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not given.inside:
        ended = "setpriv --pdeathsig KILL".split()
        argv = [*ended, *NAMESPACES, sys.executable, __file__, *sys.argv[1:], "--inside"]
        return subprocess.run(
            argv, env=os.environ | environment(folder / "slurm"), check=False
        ).returncode
    socket.sethostname(CONTROLLER)
    names = folder / "hosts"
    names.write_text(f"127.0.0.1 localhost {CONTROLLER} {' '.join(NODES)}\n")
    subprocess.run(["mount", "--bind", str(names), "/etc/hosts"], check=True)
    result = campaign(folder, given.campaign, given.jobs, given.retries, given.kill)
    print(json.dumps(result, indent=1))
    return 0 if result["status"] == str(ExitStatus.OK) else 1


if __name__ == "__main__":
    sys.exit(main())
