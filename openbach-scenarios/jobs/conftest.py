# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of jobs share: a program as a module, and as a process with the recorder in place
of an agent.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from satlab.common import paths
from tests import job_programs

JOBS = Path(__file__).parent
DEADLINE_S = 120.0


def program(job: str) -> Path:
    return JOBS / job / "files" / f"{job}.py"


@dataclass(frozen=True)
class Trial:
    """A job and the recorder of its statistics; `raw` is the raw folder of its run."""

    job: str
    raw: Path

    def start(
        self, *arguments: str, within: Sequence[str] = (), **environment: str
    ) -> "subprocess.Popen[str]":
        """Start the job, behind the words `within`; the caller waits for it."""
        return subprocess.Popen(
            [*within, sys.executable, str(program(self.job)), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(paths.SHIM),
                "SATLAB_RAW": str(self.raw),
                "SATLAB_AGENT": "client",
                "JOB_NAME": self.job,
                "JOB_INSTANCE_ID": "1",
                "SCENARIO_INSTANCE_ID": "1",
                "OWNER_SCENARIO_INSTANCE_ID": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(
        self, *arguments: str, within: Sequence[str] = (), **environment: str
    ) -> tuple[int, str]:
        """Run the job to its end; return status and output."""
        process = self.start(*arguments, within=within, **environment)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def ready(self) -> None:
        """Wait until the job has reported that it is ready."""
        deadline = time.monotonic() + DEADLINE_S
        while not any(record.get("ready") for record in self.records()):
            assert time.monotonic() < deadline, f"{self.job} is not ready after {DEADLINE_S} s"
            time.sleep(0.02)

    def records(self) -> list[dict[str, Any]]:
        """Return what was sent so far."""
        file = self.raw / "stats.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def statistics(self, name: str) -> list[Any]:
        """Return the values of a statistic that were sent so far."""
        return [record[name] for record in self.records() if name in record]

    def stored(self, statistic: str, instance: int = 1) -> Any:
        """Return the first JSON file of a statistic, None without one."""
        file = self.raw / "files" / f"{self.job}-{instance}" / f"{statistic}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def stand_in(self, program: str, script: str) -> dict[str, str]:
        """Write a shell script in place of a program; return the environment that has it."""
        file = self.raw / "stand-in" / program
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}")
        file.chmod(0o755)
        return {"PATH": f"{file.parent}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Node:
    """A network namespace with an interface `lan0` (192.0.2.1), whose far end (192.0.2.2) is in
    another one.
    """

    name: str

    @property
    def far(self) -> "Node":
        """The namespace at the other end."""
        return Node(self.name.replace("-near", "-far"))

    @property
    def within(self) -> tuple[str, ...]:
        """The words before a command that runs there."""
        return ("ip", "netns", "exec", self.name)

    def run(self, *argv: str) -> str:
        """Run a short command there; return its output."""
        return subprocess.run(
            [*self.within, *argv], check=True, capture_output=True, text=True, timeout=120
        ).stdout


@pytest.fixture
def node() -> Iterator[Node]:
    """Yield a node of its own; the test needs root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    near = Node(f"satlab-{secrets.token_hex(3)}-near")
    far = near.far
    try:
        for each in (near, far):
            subprocess.run(["ip", "netns", "add", each.name], check=True)
        near.run(
            "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", far.name
        )
        for each, address in ((near, "192.0.2.1/24"), (far, "192.0.2.2/24")):
            each.run("ip", "address", "add", address, "dev", "lan0")
            each.run("ip", "link", "set", "lan0", "up")
        yield near
    finally:
        for each in (near, far):
            subprocess.run(["ip", "netns", "del", each.name], check=False, capture_output=True)


@pytest.fixture
def trial(tmp_path: Path) -> Callable[[str], Trial]:
    """Return a job to try."""
    return lambda job: Trial(job, tmp_path)


@pytest.fixture
def udp_port() -> str:
    """Return a port of the loopback interface that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture
def module() -> Callable[[str], ModuleType]:
    """Load a job's program as a module."""
    return job_programs.load
