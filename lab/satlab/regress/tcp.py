# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference that QUIC is held against: TCP through a PEP on both sides of the satellite link.

Kuhn et al., "QUIC: Opportunities and threats in SATCOM", section 4.2, configuration D: distributed proxies with large
buffers and an initial window of 100. Here HAProxy splits (docs/decisions/0007-tcp-pep-and-reproduction.md), plain TCP
without TLS, CUBIC on all legs.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from satlab import grants, paths
from satlab.errors import HostError
from satlab.lab import Lab
from satlab.process import wait
from satlab.regress.confine import STANDARD_PATH, Ended
from satlab.regress.ends import CLIENT, PORT, OnTheLab, Program, Wish, read_lines, shown
from satlab.regress.sample import Sample, Status
from satlab.regress.suite import Case
from satlab.regress.wire import Wire
from satlab.topology import Role, Topology

INITIAL_WINDOW = 100
READY_S = 20.0
END_S = 10.0
_END = Path(__file__).with_name("tcp_end.py")
_JOB = paths.JOBS / "satlab_pep" / "files" / "satlab_pep.py"


@dataclass(frozen=True)
class TcpPep(OnTheLab):
    """Plain TCP, split by a proxy on each side of the satellite link."""

    name: str = "TCP with PEP (HAProxy, CUBIC, initial window 100)"
    protocol: Literal["tcp"] = "tcp"

    def lacks(self, case: Case) -> str:
        """Say why it cannot do a case: there is nothing that it cannot."""
        return ""

    def server(self, wish: Wish) -> Program:
        """Give the server."""
        return _python("server", {"host": wish.host, "port": PORT})

    def client(self, wish: Wish, number: int) -> Program:
        """Give the client."""
        asked = {"direction": wish.case.direction, "bytes": wish.size, "marks": wish.marks}
        place = {"host": wish.host, "port": PORT, "output": str(_file(wish, number))}
        return _python("client", {**place, **asked, "timeout_s": wish.case.timeout_s})

    def sample(self, wish: Wish, number: int, ended: Ended, wire: Wire | None) -> Sample:
        """Read what the client left."""
        told = read_lines(_file(wish, number))
        if not told:
            return wish.failed(ended.reason or "the client left nothing")
        [found] = told
        status: Status = "ok" if found["bytes"] >= wish.size else "censored" if found["late"] else "failed"
        reached = [time - found["began"] for time in found["reached"]]
        first = found["first"]
        return Sample(
            wish.case.id, wish.seed, status, "" if status == "ok" else f"{found['bytes']} of {wish.size} bytes came",
            (*reached, *(None,) * (len(wish.marks) - len(reached))),
            handshake_ms=(found["connected"] - found["began"]) * 1000,
            time_to_first_byte_ms=None if first is None else (first - found["began"]) * 1000,
        )  # fmt: skip

    @contextlib.contextmanager
    def path(self, up: Lab, wish: Wish, folder: Path) -> Iterator[list[str]]:
        """Split connections for as long as the block lasts; what went wrong stands in the list afterwards."""
        faults: list[str] = []
        nodes = [name for name, node in up.topology.nodes.items() if node.role is Role.PROXY]
        with contextlib.ExitStack() as proxies:
            for node in nodes:
                up.set_congestion_control(node, "cubic", INITIAL_WINDOW)
                proxies.enter_context(_proxy(up, node, folder / node, faults))
            yield faults


def _file(wish: Wish, number: int) -> Path:
    return wish.folder / CLIENT / f"client-{number}.json"


def _python(side: str, wanted: dict[str, Any]) -> Program:
    """Run our end with the interpreter behind the environment that we run in."""
    interpreter = Path(sys.executable).resolve()
    base = Path(sys.base_prefix).resolve()
    own = () if base.is_relative_to("/usr") else (base,)
    return Program((str(interpreter), "-I", "-S", str(_END), side, json.dumps(wanted)), shown(_END, *own))


@contextlib.contextmanager
def _proxy(up: Lab, node: str, folder: Path, faults: list[str]) -> Iterator[None]:
    """Run the job satlab_pep on a node."""
    uid = grants.new_uid()
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="satlab-pep-") as home:  # short: it holds a Unix socket
        for place in (folder, Path(home)):
            grants.give(place, uid)
        visible = [*grants.program_paths(), folder.resolve(), Path(home)]
        drop = grants.drop_argv(uid, grants.CAPABILITIES["satlab_pep"], visible)
        ends = (_address(up.topology, Role.CLIENT), _address(up.topology, Role.SERVER))
        argv = [*up.enter_argv(node), *drop, sys.executable, str(_JOB), "haproxy", *ends]
        with _job(argv, _environment(node, folder, home), folder):
            yield
    reports = list(folder.glob("files/*/pep_json.json"))
    if not reports or not json.loads(reports[0].read_text())["connections"]:
        faults.append(f"the PEP on {node} has split no connection")


def _environment(node: str, folder: Path, home: str) -> dict[str, str]:
    """Give what a job finds in its environment; its records go to the folder."""
    numbers = ("JOB_INSTANCE_ID", "SCENARIO_INSTANCE_ID", "OWNER_SCENARIO_INSTANCE_ID")
    return {
        "PATH": STANDARD_PATH, "HOME": home, "TMPDIR": home, "PYTHONPATH": str(paths.SHIM), "JOB_NAME": "satlab_pep",
        "PYTHONDONTWRITEBYTECODE": "1", "SATLAB_RAW": str(folder.resolve()), "SATLAB_AGENT": node,
    } | dict.fromkeys(numbers, "1")  # fmt: skip


@contextlib.contextmanager
def _job(argv: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Run the job, ready, for as long as the block lasts."""
    stats, log = folder / "stats.jsonl", folder / "log"
    with log.open("wb") as words:
        job = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    try:
        wait(lambda: job.poll() is not None or (stats.exists() and '"ready"' in stats.read_text()), READY_S)
        if job.poll() is not None or not stats.exists():
            raise HostError(f"a PEP does not start: {log.read_text().strip()}", "apt-get install haproxy")
        yield
    finally:
        job.terminate()
        try:
            job.wait(END_S)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _address(topology: Topology, role: Role) -> str:
    return str(next(iter(topology.nodes[topology.node_of(role)].interfaces.values())).address)
