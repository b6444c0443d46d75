# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches quic`: satperf's performance on this host, over a veth pair and over a large
satellite link.

Large: 250 Mbit/s forward and a tenth of it back, 650 ms, a queue of one BDP, 100 MB
(draft-kuhn-quic-4-sat-07, section 3), for every congestion control that is offered. A benchmark: it
fails no test, and a transfer that fails stays in the result.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benches.loaded_lab import profile_of
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.common.processes import finish, wait
from satlab.lab import pep_job, pki
from satlab.lab.lab import Lab
from satlab.link.config import BytesQueue, Direction, LinkRequest, Loss
from satlab.run import manifest
from satlab.run.lab_session import QUIET, NetnsHost, new_lab_id

PORT = 4433
NAME = "satperf.satlab.test"
RATE_MBPS = 250.0
TERRESTRIAL_MS = 75.0  # and 250 ms of satellite: 650 ms round trip
BDP_BYTES = int(RATE_MBPS * 1e6 / 8 * 0.65)
LARGE_BYTES = 100_000_000
VETH_BYTES = 1_000_000_000
START_S = 10.0
LEAVE_S = 10.0


@dataclass(frozen=True)
class Case:
    """One transfer.

    `loss` is of IP packets, in both directions; None is a veth pair without a satellite.

    `pep` is the engine of job satlab_pep on both proxies; its legs use `between` or, where satpep
    has it, the same congestion control. `slow` ones take an hour, as Reno and CUBIC see each loss
    as congestion.
    """

    stack: str
    congestion_control: str
    loss: float | None
    options: tuple[str, ...] = ()
    slow: bool = False
    pep: str = ""
    between: str = ""

    @property
    def name(self) -> str:
        """Name it for people."""
        where = "veth" if self.loss is None else f"loss {self.loss:.0%}"
        through = ["pep", self.pep, *self.between.split()] if self.pep else []
        return " ".join([self.stack, self.congestion_control, where, *self.options, *through])


ACK_FREQUENCY = ("--ack-threshold", "50", "--max-ack-delay-ms", "100")
CASES = (
    Case("quinn", "cubic", None),
    Case("quiche", "cubic", None),
    Case("quinn", "cubic", 0.0),
    Case("quinn", "cubic", 0.0, ACK_FREQUENCY),
    Case("quinn", "reno", 0.0),
    Case("quiche", "cubic", 0.0),
    Case("quiche", "reno", 0.0),
    Case("quiche", "bbr", 0.0),
    Case("quiche", "bbr", 0.01),
    Case("quinn", "cubic", 0.01, slow=True),
    Case("quinn", "reno", 0.01, slow=True),
    Case("quiche", "cubic", 0.01, slow=True),
    Case("quiche", "reno", 0.01, slow=True),
    *(Case("quinn", "cubic", 0.0, pep=mode) for mode in ("quic", "quic-h3-capable", "quic-warm")),
    Case("quinn", "reno", 0.0, pep="quic"),
    Case("quiche", "bbr", 0.0, pep="quic"),
    *(Case("quinn", "cubic", loss, pep="quic", between="bbr3") for loss in (0.0, 0.01)),
    Case("quinn", "cubic", 0.01, slow=True, pep="quic"),
    Case("quinn", "reno", 0.01, slow=True, pep="quic"),
)
SATPEP_CONTROLS = ("reno", "cubic")


@dataclass(frozen=True)
class Transfer:
    """Result of one client: exit status, its stderr, and its lines (schemas/satperf.schema.json)."""

    status: int
    said: str
    lines: list[dict[str, Any]]

    def summary(self, side: str = "client") -> dict[str, Any] | None:
        """Return the summary line of one side, if it came."""
        return next(
            (line for line in self.lines if line["type"] == "summary" and line["side"] == side),
            None,
        )


Connect = Callable[[str, Sequence[str], Sequence[str], float], Transfer]
"""Runs a client: node, options of its leg, what to transfer, timeout in s."""


@contextlib.contextmanager
def server(up: Lab, node: str, options: Sequence[str], folder: Path) -> Iterator[Connect]:
    """Run a server during the block; yields the function that runs its client.

    Raises:
        HostError: satperf is missing, or its server does not start.
    """
    if not paths.SATPERF.exists():
        raise HostError(f"{paths.SATPERF} is missing", "build it: ./satlab --install quic")
    keys = pki.create(folder / "pki", [NAME], [], datetime.now(UTC))
    place = f"{up.topology.nodes[node].address}:{PORT}"
    listen = [str(paths.SATPERF), "server", "--listen", place]
    listen += ["--output", str(folder / "server.jsonl")]
    listen += ["--cert", str(keys.server_cert), "--key", str(keys.server_key), *options]

    def connect(
        client_node: str, leg: Sequence[str], client: Sequence[str], timeout_s: float
    ) -> Transfer:
        argv = [str(paths.SATPERF), "client", "--connect", place]
        argv += ["--server-name", NAME, "--ca", str(keys.ca_cert)]
        argv = [*up.enter_argv(client_node), *argv, "--timeout", f"{timeout_s:g}", *leg, *client]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout_s + LEAVE_S, check=False
        )
        return Transfer(
            done.returncode,
            done.stderr.strip(),
            [json.loads(line) for line in done.stdout.splitlines()],
        )

    server_log = folder / "server.log"
    with server_log.open("wb") as words:
        process = subprocess.Popen(
            [*up.enter_argv(node), *listen], stdin=subprocess.DEVNULL, stderr=words
        )
    try:
        wait(lambda: b"listening" in server_log.read_bytes() or process.poll() is not None, START_S)
        if b"listening" not in server_log.read_bytes():
            raise HostError(f"satperf's server does not start: {server_log.read_text().strip()}")
        yield connect
    finally:
        finish(process, START_S)


@contextlib.contextmanager
def proxies(up: Lab, case: Case, folder: Path) -> Iterator[None]:
    """Run job satlab_pep on both proxies for as long as the block lasts, if the case has a PEP.

    Raises:
        HostError: a proxy is not ready in time.
    """
    control = case.between or case.congestion_control
    words = ["--port", str(PORT)]
    if case.between or control in SATPEP_CONTROLS:
        words += ["--congestion-control", control]
    with contextlib.ExitStack() as peps:
        for node in pep_job.proxies(up) if case.pep else ():
            keys = folder / f"pki-{node}"  # each proxy is a user of its own
            shutil.copytree(folder / "pki", keys)
            own = [*words, "--pki", str(keys)]
            peps.enter_context(
                pep_job.proxy(up, node, own, folder / node, engine=case.pep, readable=[keys])
            )
        yield


def large(folder: Path, loss: float) -> contextlib.AbstractContextManager[Lab]:
    """Bring the large link up, and down again when the block ends."""
    direction = Direction(queue=BytesQueue(bytes=BDP_BYTES), loss=Loss(ratio=loss))
    request = LinkRequest(
        profile_of(RATE_MBPS, folder),
        forward=direction,
        return_=direction,
        terrestrial_one_way_delay_ms=TERRESTRIAL_MS,
    )
    return NetnsHost(new_lab_id("quic"), topology.load(paths.LAB_FILE), request).opened(QUIET)


def quic(cases: Sequence[Case], log: ProgressLog) -> dict[str, Any]:
    """Measure the cases, the slow ones all at the same time; return what `--json` prints.

    Raises:
        HostError: not root, satperf is not built, or labs cannot be brought up.
    """
    begun = manifest.host()
    results = []
    for case in (case for case in cases if not case.slow):
        with log.step(case.name):
            results.append(measure(case))
    slow = [case for case in cases if case.slow]
    if slow:
        with log.step(f"{len(slow)} slow cases at once"), ThreadPoolExecutor(len(slow)) as pool:
            results += pool.map(measure, slow)
    return {
        "schema": "satlab/bench-quic/1",
        "host": begun,
        "versions": manifest.versions(paths.SATLINK),
        "cases": results,
        "load_1min_end": os.getloadavg()[0],
    }


def transfer(case: Case, size: int, timeout_s: float) -> Transfer:
    """Carry `size` bytes in the lab of the case.

    Raises:
        HostError: a program is missing or does not start, or the lab cannot be brought up.
    """
    leg = ["--stack", case.stack, "--congestion-control", case.congestion_control, *case.options]
    # Two neighbours joined by a veth pair, or the endpoints of the path.
    nodes = ("gw", "proxy-gw") if case.loss is None else ("client", "server")
    with (
        tempfile.TemporaryDirectory(prefix="satlab-quic-") as name,
        large(Path(name), case.loss or 0.0) as up,
        server(up, nodes[1], ["--once", *leg], Path(name)) as connect,
        proxies(up, case, Path(name)),
    ):
        return connect(nodes[0], leg, ["--bytes", str(size)], timeout_s)


def measure(case: Case) -> dict[str, Any]:
    """Run one case in a new lab; return its parameters and the summaries of both sides."""
    size, timeout_s = (
        (VETH_BYTES, 120.0) if case.loss is None else (LARGE_BYTES, 14400.0 if case.slow else 300.0)
    )
    began = time.monotonic()
    try:
        done = transfer(case, size, timeout_s)
    except HostError as error:
        if not case.between:
            raise
        done = Transfer(error.status, str(error), [])  # satpep may be built without it
    return {
        **asdict(case),
        "name": case.name,
        "exit_status": done.status,
        "said": done.said,
        "client": done.summary(),
        "server": done.summary("server"),
        "took_s": round(time.monotonic() - began, 1),
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a result for people."""
    host = result["host"]
    load = f"load {host['load_1min']:.1f} before, {result['load_1min_end']:.1f} after"
    yield f"host  {host['cores']} x {host['cpu']}, {host['system']}, {load}"
    for case in result["cases"]:
        yield f"{case['name']}: {_line(case['client'], case['server'], case['said'])}"


def _line(client: dict[str, Any] | None, server: dict[str, Any] | None, said: str) -> str:
    if client is None or client["status"] != "ok" or server is None:
        return f"failed: {client['reason'] if client else said}"
    acks = f", {client['acks_sent']} ACKs" if client["acks_sent"] is not None else ""
    equal = "data equal" if client["data_equal"] else "DATA DIFFERS"
    return (
        f"{client['goodput_bps'] / 1e6:.1f} Mbit/s, {client['t_s']:.1f} s, {equal},"
        f" {server['retransmitted_share']:.1%} retransmitted{acks}, CPU {client['cpu_s']:.1f} +"
        f" {server['cpu_s']:.1f} s"
    )
