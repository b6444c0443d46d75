# SPDX-License-Identifier: GPL-3.0-or-later
"""Client, Proxy-ST, Proxy-GW and server in four namespaces in a row, with satpep on both proxies,
for tests.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from satlab.common import paths
from tests import json_lines
from tests.namespaces import End, add, join, remove, run
from tests.polling import until

NODES = ("client", "st", "gw", "server")
CLIENT, SERVER = "198.18.201.2", "198.18.203.2"
DEADLINE_S = 60.0
MARK, TABLE = "1", "100"
RULES = """table ip satpep {
  chain prerouting {
    type filter hook prerouting priority mangle; policy accept;
    meta l4proto udp socket transparent 1 meta mark set 1 accept
    iifname "west" udp dport 443 tproxy to :443 meta mark set 1 accept
    iifname "west" udp dport 4433 tproxy to :4433 meta mark set 1 accept
  }
}
"""


@dataclass
class Satpep:
    """A running proxy and what it says."""

    process: "subprocess.Popen[bytes]"
    out: Path
    errors: Path

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the whole lines so far, of one type or all."""
        return json_lines.read(self.out, kind)

    def line(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for so many lines of a type, and return the last one."""
        what = f"line {count} of type {kind}"
        found = until(lambda: (got := self.lines(kind))[count - 1 :] and got, what)
        result: dict[str, Any] = found[count - 1]
        return result

    def end(self) -> int:
        """Ask it to end, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@dataclass
class Chain:
    """The namespaces, and the certificates of their CA."""

    folder: Path
    pki: Path
    homes: Path
    started: list[Satpep] = field(default_factory=list)

    def node(self, role: str) -> str:
        """Return the name of a namespace."""
        return f"satpep-{os.getpid()}-{role}"

    def home(self) -> Path:
        """Make a home for a job.

        Its path is short: those of Chromium's sockets have at most 107 bytes.
        """
        return Path(tempfile.mkdtemp(dir=self.homes))

    def end(self) -> None:
        """End all proxies."""
        for proxy in self.started:
            proxy.end()

    def start(self, role: str, *argv: str) -> "subprocess.Popen[str]":
        """Start a command on a node."""
        inside = ["ip", "netns", "exec", self.node(role), *argv]
        return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def satpep(
        self, role: str, *argv: str, listen: tuple[str, ...] = ("0.0.0.0:443", "0.0.0.0:4433")
    ) -> Satpep:
        """Start a proxy and wait until it listens."""
        proxy = self.spawn(role, *argv, listen=listen)
        until(lambda: proxy.lines("ready") or proxy.process.poll() is not None, "readiness")
        if not proxy.lines("ready"):
            raise AssertionError(proxy.errors.read_text())
        return proxy

    def spawn(self, role: str, *argv: str, listen: tuple[str, ...]) -> Satpep:
        """Start a proxy, whatever becomes of it."""
        number = len(self.started)
        out, errors = (self.folder / f"satpep-{role}-{number}.{end}" for end in ("out", "err"))
        listens = [part for address in listen for part in ("--listen", address)]
        files = [
            f"--cert={self.pki}/server.crt",
            f"--key={self.pki}/server.key",
            f"--ca={self.pki}/ca.crt",
        ]
        command = [str(paths.SATPEP), "quic", "--outside-a-lab", *listens, *files, *argv]
        inside = ["ip", "netns", "exec", self.node(role), *command]
        with out.open("wb") as out_file, errors.open("wb") as error_file:
            proxy = Satpep(_popen(inside, out_file, error_file), out, errors)
        self.started.append(proxy)
        return proxy

    def transparent(self, role: str, *argv: str) -> Satpep:
        """Start a proxy that takes what passes and keeps the client's address."""
        return self.satpep(role, "--transparent", "--keep-client-address", "--drain-ms=0", *argv)


def _popen(argv: list[str], out: IO[bytes], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)


@contextlib.contextmanager
def chain(folder: Path, pki: Path) -> Iterator[Chain]:
    """Make the namespaces and their routes and packet rules; end all proxies and take everything
    away.
    """
    homes = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    made = Chain(folder, pki, homes)
    try:
        for role in NODES:
            _node(made.node(role))
        for number, (west, east) in enumerate(itertools.pairwise(NODES), start=1):
            _wire(made.node(west), made.node(east), f"198.18.20{number}")
        _route(made, "client", "198.18.200.0/21", "198.18.201.1")
        _route(made, "st", "198.18.203.0/24", "198.18.202.1")
        _route(made, "gw", "198.18.201.0/24", "198.18.202.2")
        _route(made, "server", "198.18.200.0/21", "198.18.203.1")
        for role in ("st", "gw"):
            inside = ("ip", "netns", "exec", made.node(role))
            run(*inside, "ip", "rule", "add", "fwmark", MARK, "lookup", TABLE)
            run(*inside, "ip", "route", "add", "local", "default", "dev", "lo", "table", TABLE)
            run(*inside, "nft", "-f", "-", text=RULES)
        yield made
    finally:
        made.end()
        shutil.rmtree(homes, ignore_errors=True)
        remove(*map(made.node, NODES))


def _node(name: str) -> None:
    add(name)
    # As in the lab: a link-local address that comes late would make Chromium drop its requests.
    off = [f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default")]
    run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1", *off)


def _wire(west: str, east: str, prefix: str) -> None:
    """Join two nodes; each interface is named after where it leads.

    Proxies have .1 towards client and server.
    """
    near, far = (1, 2) if east.endswith("-server") else (2, 1)
    join(End(west, "east", f"{prefix}.{near}"), End(east, "west", f"{prefix}.{far}"))


def _route(made: Chain, role: str, subnet: str, via: str) -> None:
    run("ip", "-n", made.node(role), "route", "add", subnet, "via", via)
