#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run a performance enhancing proxy (RFC 3135) on one node until the job is stopped.

The proxy splits connections from a client to a server that pass this node: HAProxy or PEPsal split
TCP, satpep splits QUIC. nftables redirects the connections with tproxy, and the server sees the
client's own address. With PEPsal it sees the proxy's; so PEPsal splits all connections to the
server that come from the client's side, also those of a proxy there. Both addresses are of IPv4, or
both of IPv6 (not with PEPsal). Parameters of TCP legs are set on the routes by the job
satlab_tcp_conf, parameters of QUIC legs by this job. When the job ends, it removes its rules,
routes and processes.

Exit statuses: 0 stopped, 1 the proxy died, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import functools
import json
import os
import re
import resource
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from bound_ports import is_bound
from child_program import Child
from jobkit import (
    JobError,
    argument_parser,
    end,
    must_store_json,
    need,
    page_name,
    port,
    ready,
    run,
    run_job,
    stop_event,
)
from served_page import HOST_SUFFIX, add_certificates

READY_DEADLINE_S = 10.0
STOP_DEADLINE_S = 1.5
DRAIN_MS = 250
"""Time for satpep's open connections to end: well below the second after which an agent kills."""
WATCH_S = 0.1
MAX_LINES = 1000
SAMPLES = "satpep.jsonl"
MAX_SAMPLES_BYTES = 4 << 20
"""satpep's file of samples for `satlab serve`; the job empties it at this size."""
TABLE = "satlab_pep"
HINT = "the job needs nftables, iproute2, root, and a kernel with nft tproxy"
MARK = 0x5A7
ROUTES = 1447
"""Routing table that brings marked packets home; the number of the mark, in decimal."""
CONSENT = Path("/etc/satlab/quic-proxy-consent")
"""Consent of the host's operator outside a lab's namespaces: a file that root owns and no other
user can write.
"""
ACCEPTED = '"type":"accepted"'
"""Part of satpep's line for a new connection (schemas/satpep.schema.json)."""
LEG_OPTIONS = (
    "congestion-control",
    "initial-window",
    "ack-threshold",
    "max-ack-delay-ms",
    "careful-resume",
    "receive-window",
)
IPV4_ALONE = ("pepsal",)
"""Engines without IPv6."""
PEPSAL_FILES = 1 << 20
"""Hard limit of open files that PEPsal 2.0.2 sets; where it may not, it ends without a word."""
COUNT_S = 1.0


@dataclass(frozen=True)
class Family:
    """An IP version: options and names of the tools, and the addresses that mean all hosts.

    `sockets` ends the names of the lists of sockets in /proc/net; `errors` is the protocol of ICMP.
    """

    version: int
    option: str
    nft: str
    any: str
    everywhere: str
    sockets: str
    errors: str


FAMILIES = {
    4: Family(4, "-4", "ip", "0.0.0.0", "0.0.0.0/0", "", "icmp"),  # noqa: S104 - HAProxy's and satpep's options
    6: Family(6, "-6", "ip6", "[::]", "::/0", "6", "ipv6-icmp"),
}


@dataclass(frozen=True)
class Engine:
    """A proxy program that can serve the request. `catch` narrows the packets that are led into it;
    `any_source`: to those from the client's side, else to those of the client.

    `count` returns the number of its connections so far, from its log or from elsewhere.
    """

    name: str
    version: str
    argv: list[str]
    protocol: str
    count: Callable[[str], int]
    catch: str = ""
    any_source: bool = False


@dataclass(frozen=True)
class Request:
    """Checked options: the connections to split; `scratch` is a private folder.

    `page`: whose domains its server serves with the certificate of the page's host; empty for none.
    """

    engine: str
    client: IPv4Address | IPv6Address
    server: IPv4Address | IPv6Address
    port: int
    scratch: Path
    pki: Path
    leg_options: tuple[str, ...] = ()
    page: str = ""

    @property
    def family(self) -> Family:
        """Return the IP version of both addresses."""
        return FAMILIES[self.server.version]


# --- the engines ----------------------------------------------------------------------------------


def haproxy(request: Request) -> Engine:
    """HAProxy, transparent on both legs, in the foreground."""
    program = need("haproxy", "apt-get install haproxy")
    config, admin = request.scratch / "haproxy.cfg", request.scratch / "admin.sock"
    config.write_text(haproxy_config(request.family, request.port, admin), encoding="utf-8")
    found = re.search(r"HAProxy version (\S+)", run(program, "-v"))
    argv = [program, "-db", "-q", "-f", str(config)]
    return Engine(
        "haproxy",
        found[1] if found else "unknown",
        argv,
        "tcp",
        lambda _: haproxy_connections(admin),
    )


def haproxy_config(family: Family, port: int, admin: Path) -> str:
    """Return HAProxy's configuration: what came for an address goes on to it, from the client's own
    address.
    """
    own = " v6only" if family.version == 6 else ""
    return "\n".join(
        [
            "global",
            f"  stats socket {admin} mode 600 level admin",
            "  maxconn 2000",
            "defaults",
            "  mode tcp",
            "  timeout connect 60s",
            "  timeout client 1h",
            "  timeout server 1h",
            "listen pep",
            f"  bind {family.any}:{port}{own} transparent",
            f"  source {family.any} usesrc clientip",
            f"  server original {family.any}",
            "",
        ]
    )


def haproxy_connections(admin: Path) -> int:
    """Ask HAProxy how many connections it has taken."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(str(admin))
        connection.sendall(b"show stat\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    header, *rows = (line.split(",") for line in answer.splitlines() if line)
    column = [name.lstrip("# ") for name in header].index("stot")
    return next(int(row[column]) for row in rows if row[:2] == ["pep", "FRONTEND"])


def pepsal(request: Request) -> Engine:
    """PEPsal, where a package provides it. It listens for IPv4 on a socket of IPv6, and connects to
    the server from the proxy's own address.
    """
    program = need(
        "pepsal",
        "no Debian release has it: install the package of a SATCOM lab, or use the engine haproxy",
    )
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= allowed < PEPSAL_FILES:
        raise JobError(
            f"pepsal ends where it cannot set its limit of open files to {PEPSAL_FILES}, and this"
            f" host allows {allowed}",
            f"run satlab with this limit (ulimit -Hn {PEPSAL_FILES}), or use the engine haproxy",
        )
    found = re.search(r"ver\. (\S+)", run(program, "-V"))
    argv = [program, "-p", str(request.port), "-c", "2000"]
    return Engine(
        "pepsal",
        found[1] if found else "unknown",
        argv,
        "tcp",
        lambda _: caught_connections(request.family),
        any_source=True,
    )


def caught_connections(family: Family) -> int:
    """Return the number of connections that the rules have caught, by their source ports."""
    listed = json.loads(run("nft", "-j", "list", "set", family.nft, TABLE, "seen", hint=HINT))
    seen = next(entry["set"] for entry in listed["nftables"] if "set" in entry)
    return len(seen.get("elem", ()))


def satpep(request: Request) -> Engine:
    """The QUIC PEP: it listens on the server's own port, because its answers come from there."""
    program = need("satpep", "build it: cargo build --release -p satpep")
    mode = request.engine.removeprefix("quic").lstrip("-") or "default"
    trust = [("--cert", "server.crt"), ("--key", "server.key"), ("--ca", "ca.crt")]
    argv = [program, "quic", "--listen", f"{request.family.any}:{request.port}", "--transparent"]
    argv += ["--keep-client-address"]
    argv += ["--mode", mode, "--drain-ms", str(DRAIN_MS), *request.leg_options, *consent()]
    argv += ["--metrics", str(request.scratch / SAMPLES)]
    argv += [word for flag, name in trust for word in (flag, str(request.pki / name))]
    argv += ["--domains-of", request.page + HOST_SUFFIX] if request.page else []
    version = run(program, "--version").strip().removeprefix("satpep ")
    return Engine(
        "satpep",
        version,
        argv,
        "udp",
        lambda text: text.count(ACCEPTED),
        f"udp dport {request.port}",
    )


def consent() -> list[str]:
    """Return satpep's option for a host outside a lab, if the host's operator has consented."""
    try:
        about = CONSENT.lstat()
    except OSError:
        return []
    is_roots = stat.S_ISREG(about.st_mode) and about.st_uid == 0 and not about.st_mode & 0o022
    return ["--outside-a-lab"] if is_roots else []


ENGINES: dict[str, Callable[[Request], Engine]] = {
    "haproxy": haproxy,
    "pepsal": pepsal,
    "quic": satpep,
    "quic-h3-capable": satpep,
    "quic-warm": satpep,
}


# --- catching connections -------------------------------------------------------------------------


def ip(family: Family, *words: str) -> str:
    """Run ip(8) for one IP version; return its output."""
    return run("ip", family.option, *words, hint=HINT)


def ruleset(engine: Engine, request: Request, interface: str) -> str:
    """Return the packet rules.

    Packets of the proxy's own connections, whose local address is a stranger's, come home, and so
    do errors of ICMP about them: otherwise a "packet too big" would go on to that stranger, and the
    proxy would not find the MTU of the path. What the client sends to the server goes to the
    proxy's port, its destination unchanged (kernel documentation, networking/tproxy.rst).
    """
    ip = request.family.nft
    source = "" if engine.any_source else f"{ip} saddr {request.client} "
    matched = f'iifname "{interface}" {source}{ip} daddr {request.server}'
    own = f"meta l4proto {{ {engine.protocol}, {request.family.errors} }}"
    home = f"{own} socket transparent 1 meta mark set {MARK} accept"
    catch = (
        f"{matched} meta l4proto {engine.protocol} {engine.catch} tproxy to :{request.port} meta"
        f" mark set {MARK} accept"
    )
    hook = "type filter hook prerouting priority mangle; policy accept;"
    seen = "set seen { type inet_service; flags dynamic; size 65535; }"
    note = f"{matched} tcp flags & (syn | ack) == syn add @seen {{ tcp sport }}"
    chain = f"chain prerouting {{\n{hook}\n{note}\n{home}\n{catch}\n}}"
    return f"table {ip} {TABLE} {{\n{seen}\n{chain}\n}}\n"


@contextlib.contextmanager
def caught(engine: Engine, request: Request) -> Iterator[None]:
    """Lead what passes into the proxy for the time of the block."""
    family = request.family
    release()  # what a killed job has left
    towards = re.search(
        r" dev (\S+)", run("ip", "-o", "route", "get", str(request.client), hint=HINT)
    )
    if not towards:
        raise JobError(f"no route to the client {request.client}", f"see: ip {family.option} route")
    try:
        ip(family, "rule", "add", "fwmark", str(MARK), "lookup", str(ROUTES))
        ip(family, "route", "add", "local", family.everywhere, "dev", "lo", "table", str(ROUTES))
        run("nft", "-f", "-", text=ruleset(engine, request, towards[1]), hint=HINT)
        yield
    finally:
        release()


def release() -> None:
    """Remove the rules of both IP versions that are there."""
    for family in FAMILIES.values():
        if family.version == 6 and not Path("/proc/net/if_inet6").exists():
            continue  # a kernel without IPv6
        if re.search(rf"table {family.nft} {TABLE}\b", run("nft", "list", "tables", hint=HINT)):
            run("nft", "delete", "table", family.nft, TABLE, hint=HINT)
        if re.search(rf"lookup {ROUTES}\b", ip(family, "rule")):
            ip(family, "rule", "del", "fwmark", str(MARK), "lookup", str(ROUTES))
        if f"table {ROUTES}" in ip(family, "route", "show", "table", "all"):
            ip(family, "route", "flush", "table", str(ROUTES))


# --- life of the proxy ----------------------------------------------------------------------------


def serve(request: Request, stop: threading.Event) -> None:
    """Start the proxy, lead traffic into it, watch it until `stop`, and leave `pep.json`."""
    engine = ENGINES[request.engine](request)
    sockets = lists_of_sockets(engine.protocol, request.family)
    check_port(sockets, request.port)
    log = request.scratch / "log"
    child = Child.start(engine.name, engine.argv, log)
    connections, fault = 0, ""
    try:
        # A connection would be caught by the proxy's own rules, so the socket is looked for.
        is_ready = functools.partial(is_bound, sockets, request.port)
        child.wait_until("ready", is_ready, stop, READY_DEADLINE_S)
        with caught(engine, request), ready("satlab_pep"):
            rounds = 0
            while not stop.wait(WATCH_S):
                child.check(stop)
                if rounds % (COUNT_S / WATCH_S) == 0:
                    connections = counted(engine, log, connections)
                bound(request.scratch / SAMPLES)
                rounds += 1
            connections = counted(engine, log, connections)
    except JobError as error:
        fault = str(error)
        raise
    finally:
        end(child.process, STOP_DEADLINE_S)
        record(request, engine, connections, log, fault)


def counted(engine: Engine, log: Path, before: int) -> int:
    """Return the connections so far; a proxy that is ending does not answer any more."""
    try:
        return engine.count(log.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, StopIteration, JobError):
        return before


def bound(samples: Path, most: int = MAX_SAMPLES_BYTES) -> None:
    """Empty a file that has grown too long; satpep appends to it, and so writes on at its start."""
    with contextlib.suppress(FileNotFoundError):
        if samples.stat().st_size > most:
            os.truncate(samples, 0)


def lists_of_sockets(protocol: str, family: Family) -> tuple[str, ...]:
    """Return the names of the lists in /proc/net that have a proxy's socket: a socket of IPv6 may
    listen for IPv4, too.
    """
    return tuple(dict.fromkeys((f"{protocol}{family.sockets}", f"{protocol}6")))


def check_port(sockets: tuple[str, ...], port: int) -> None:
    """Refuse a port in use: the proxy's own message would be lost in its log."""
    if is_bound(sockets, port):
        raise JobError(
            f"port {port} is in use", "choose another --port, or see who has it: ss -lntup"
        )


def record(request: Request, engine: Engine, connections: int, log: Path, fault: str) -> None:
    """Store what the proxy was, how many connections it has split, its report on them, and what
    ended it early.
    """
    content = {
        "schema": "satlab/pep/1",
        "engine": engine.name,
        "version": engine.version,
        "argv": engine.argv,
        "client": str(request.client),
        "server": str(request.server),
        "connections": counted(engine, log, connections),
        "report": report_lines(log),
        "fault": fault,
    }
    must_store_json("pep_json", content)


def report_lines(log: Path) -> list[dict[str, object]]:
    """Return the JSON lines that the proxy wrote; HAProxy and PEPsal write none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"][:MAX_LINES]


def parser() -> argparse.ArgumentParser:
    options = argument_parser(__doc__)
    options.add_argument(
        "engine", choices=("none", *ENGINES), help="the proxy; none: no connection is split"
    )
    options.add_argument(
        "client_ip", type=ip_address, help="address of the client whose connections are split"
    )
    options.add_argument(
        "server_ip", type=ip_address, help="address of the server of these connections"
    )
    options.add_argument(
        "-l",
        "--port",
        type=port,
        default=5500,
        help="port on which the proxy listens; with quic the server's port",
    )
    for flag, name in zip("Cwadrf", LEG_OPTIONS, strict=True):
        options.add_argument(
            f"-{flag}",
            f"--{name}",
            type=leg_value,
            default="default",
            help="quic: value for both legs",
        )
        for side in ("client", "server"):
            options.add_argument(
                f"--{side}-side-{name}",
                type=leg_value,
                default="default",
                help="quic: value for this leg only",
            )
    options.add_argument(
        "-p", "--page", type=page_name, help="quic: page whose domains the proxy accepts"
    )
    add_certificates(options)
    return options


def leg_value(text: str) -> str:
    """Accept a word or a number; 0 and `default` leave an option to the proxy."""
    if len(text) > 16 or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text):
        raise argparse.ArgumentTypeError("is neither a word nor a number")
    return "" if text in ("0", "default") else text


def leg_options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return satpep's options of both legs; a leg's own value wins."""
    found: list[str] = []
    for side in ("client", "server"):
        for name in LEG_OPTIONS:
            field = name.replace("-", "_")
            value = getattr(arguments, f"{side}_side_{field}") or getattr(arguments, field)
            found += [f"--{side}-side-{name}", value] if value else []
    return tuple(found)


def main() -> None:
    """Be a proxy until SIGTERM or SIGINT."""
    arguments = parser().parse_args()
    stop = stop_event()
    if arguments.engine == "none":
        with ready("satlab_pep"):
            stop.wait()
        return
    versions = {arguments.client_ip.version, arguments.server_ip.version}
    if len(versions) > 1:
        what = "client and server have addresses of different IP versions"
        raise JobError(what, "give two addresses of one version", status=2)
    if 6 in versions and arguments.engine in IPV4_ALONE:
        what = f"{arguments.engine} knows IPv4 alone"
        raise JobError(what, "use the engine haproxy, or addresses of IPv4", status=2)
    legs = leg_options(arguments)
    if (legs or arguments.page) and ENGINES[arguments.engine] is not satpep:
        what = "leg options and page are for quic"
        raise JobError(what, "TCP's legs: job satlab_tcp_conf", status=2)
    with tempfile.TemporaryDirectory(prefix="satlab_pep_") as scratch:
        request = Request(
            engine=arguments.engine,
            client=arguments.client_ip,
            server=arguments.server_ip,
            port=arguments.port,
            scratch=Path(scratch),
            pki=arguments.pki,
            leg_options=legs,
            page=arguments.page or "",
        )
        serve(request, stop)


if __name__ == "__main__":
    run_job(__file__, main)
