#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: serve a generated page over HTTP/1.1 (h1), HTTP/2 (h2) or HTTP/3 (h3) until it is
stopped.

The job starts the server as a child process with its own configuration. docs/decisions/0003
explains the choice of servers. Exit statuses: 0 stopped, 1 the server died or used another congestion control,
2 arguments, 3 the host cannot do it.
"""

import argparse
import errno
import functools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import collect_agent
from child_program import Child
from jobkit import (
    JobError,
    argument_parser,
    congestion_control,
    end,
    find,
    must_store_json,
    page_name,
    port,
    ready,
    run_job,
    stop_event,
)
from served_page import add_certificates, add_pages

READY_DEADLINE_S = 10.0
STOP_DEADLINE_S = 5.0
OBSERVE_S = 0.5
TYPES = {
    "text/html;charset=iso-8859-1": "html",
    "text/plain;charset=iso-8859-1": "txt",
    "text/css": "css",
    "text/javascript": "js",
    "image/jpeg": "jpg",
    "image/gif": "gif",
}
NGINX_WITH_CUBIC = (1, 27, 5)
"""From nginx CHANGES: "Feature: CUBIC congestion control in QUIC connections"."""


Address = IPv4Address | IPv6Address
UDP_TABLES = {4: Path("/proc/net/udp"), 6: Path("/proc/net/udp6")}
"""Bound UDP ports by IP version (proc(5))."""


@dataclass(frozen=True)
class Request:
    """The checked arguments.

    `site` is the document root; `scratch` a private folder for configuration.
    """

    site: Path
    protocol: str
    bind: Address
    port: int
    congestion_control: str
    pki: Path
    scratch: Path

    @property
    def place(self) -> str:
        """Return address and port in one text; an address of IPv6 has brackets (RFC 3986)."""
        return (
            f"[{self.bind}]:{self.port}" if self.bind.version == 6 else f"{self.bind}:{self.port}"
        )


@dataclass(frozen=True)
class Server:
    """A program that can serve the request: its name, version and argument vector."""

    name: str
    version: str
    argv: list[str]


Choice = Callable[[Request], Server | str]
"""Returns a server, or the reason why it cannot serve the request."""


# --- the servers ----------------------------------------------------------------------------------


def choose(request: Request) -> Server:
    """Return the first server of the protocol's list that can serve the request.

    Raises JobError with all reasons.
    """
    choices: dict[str, tuple[Choice, ...]] = {
        "h1": (h2o, nginx),
        "h2": (h2o, nginx),
        "h3": (h2o, gtlsserver, nginx),
    }
    refusals = []
    for choice in choices[request.protocol]:
        answer = choice(request)
        if isinstance(answer, Server):
            return answer
        refusals.append(answer)
    package = "ngtcp2-server" if request.protocol == "h3" else "h2o"
    what = (
        f"no server for {request.protocol} with {request.congestion_control}: {'; '.join(refusals)}"
    )
    raise JobError(what, f"apt-get install {package}")


def h2o(request: Request) -> Server | str:
    """H2O, without compression; over HTTP/3 only if it accepts such a configuration (2.2.5 does
    not).
    """
    if not (program := find("h2o")):
        return "h2o is not installed"
    config = request.scratch / "h2o.json"
    config.write_text(
        json.dumps(h2o_config(request), indent=1), encoding="utf-8"
    )  # JSON is a subset of YAML
    if request.protocol == "h3" and run(program, "-m", "test", "-c", str(config)).returncode != 0:
        return "h2o here has no HTTP/3 with this congestion control"
    version = run(program, "--version").stdout.split("\n")[0].removeprefix("h2o version ")
    return Server("h2o", version, [program, "-m", "worker", "-c", str(config)])


def h2o_config(request: Request) -> dict[str, object]:
    """Return H2O's configuration.

    It runs as the job's own user, which can read the page and the key.
    """
    listen: dict[str, object] = {"host": str(request.bind), "port": request.port}
    if request.protocol != "h1":
        key, certificate = key_pair(request)
        listen["ssl"] = {"key-file": str(key), "certificate-file": str(certificate)}
    if request.protocol == "h3":
        listen["type"] = "quic"
        if request.congestion_control != "reno":  # its default
            listen["quic"] = {"cc": request.congestion_control}
    return {
        **({"user": "root"} if os.geteuid() == 0 else {}),
        "pid-file": str(request.scratch / "h2o.pid"),
        "listen": listen,
        "hosts": {"default": {"paths": {"/": {"file.dir": str(request.site)}}}},
        "file.mime.settypes": {mime: [f".{extension}"] for mime, extension in TYPES.items()},
        "file.dirlisting": "OFF",
        "file.send-compressed": "OFF",
        "compress": "OFF",
        "http1-upgrade-to-http2": "OFF",
    }


def gtlsserver(request: Request) -> Server | str:
    """The example server of ngtcp2:

    HTTP/3 alone, its congestion control chosen by option, no Alt-Svc header.
    """
    if not (program := find("gtlsserver")):
        return "gtlsserver is not installed"
    offered = re.search(r"--cc=\(([^)]*)\)", run(program, "--help").stdout)
    if not offered or request.congestion_control not in offered[1].split("|"):
        return f"gtlsserver has no congestion control {request.congestion_control}"
    mimes = request.scratch / "mime.types"
    mimes.write_text(
        "".join(f"{mime} {extension}\n" for mime, extension in TYPES.items()), encoding="ascii"
    )
    options = [
        f"--cc={request.congestion_control}",
        f"--mime-types-file={mimes}",
        f"--htdocs={request.site}",
    ]
    key, certificate = key_pair(request)
    place = [str(request.bind), str(request.port), str(key), str(certificate)]
    asked = run("dpkg-query", "--show", "--showformat=${Version}", "ngtcp2-server")
    version = asked.stdout.strip() if asked.returncode == 0 else "unknown"
    return Server("gtlsserver", version, [program, "--quiet", *options, *place])


def nginx(request: Request) -> Server | str:
    """Use nginx as one worker in the foreground; over HTTP/3 only with its module and the right
    congestion control.
    """
    if not (program := find("nginx")):
        return "nginx is not installed"
    about = run(program, "-V").stderr
    found = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", about)
    version = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
    if request.protocol == "h3":
        built_in = "cubic" if version >= NGINX_WITH_CUBIC else "reno"
        if "http_v3_module" not in about:
            return "nginx here has no HTTP/3"
        if request.congestion_control != built_in:
            return f"nginx here has {built_in} alone over QUIC"
    config = request.scratch / "nginx.conf"
    config.write_text(nginx_config(request), encoding="utf-8")
    argv = [program, "-p", str(request.scratch), "-e", "stderr", "-c", str(config)]
    return Server("nginx", ".".join(map(str, version)), argv)


def nginx_config(request: Request) -> str:
    """Return nginx's configuration: no compression, no access log, all files in `scratch`."""
    listen = f"listen {request.place}"
    if request.protocol != "h1":
        key, certificate = key_pair(request)
        kind = "quic" if request.protocol == "h3" else "ssl http2"
        listen += (
            f" {kind}; ssl_protocols TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key"
            f" {key}"
        )
    bodies = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "\n".join(
        [
            *(["user root;"] if os.geteuid() == 0 else []),
            f"daemon off; worker_processes 1; pid {request.scratch}/nginx.pid; error_log stderr;",
            "events {}",
            "http {",
            "access_log off; gzip off; sendfile on; tcp_nopush on; keepalive_requests 10000;",
            *(f"{body}_temp_path {request.scratch}/{body};" for body in bodies),
            "types {",
            *(f'"{mime}" {extension};' for mime, extension in TYPES.items()),
            "}",
            f"server {{ {listen}; root {request.site}; }}",
            "}\n",
        ]
    )


def key_pair(request: Request) -> tuple[Path, Path]:
    """Return private key and certificate, which `satlab.lab.pki` made."""
    key, certificate = request.pki / "server.key", request.pki / "server.crt"
    for path in (key, certificate):
        if not os.access(path, os.R_OK):
            raise JobError(
                f"{path}: cannot be read", "set SATLAB_PKI to the folder of the run's certificates"
            )
    return key, certificate


# --- life of the child ----------------------------------------------------------------------------


def check_port(request: Request) -> None:
    """Bind the address once, so that a port in use is reported in one clear line."""
    udp = request.protocol == "h3"
    family = socket.AF_INET6 if request.bind.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM) as probe:
        if not udp:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(request.bind), request.port))
        except OSError as error:
            place = f"{'UDP' if udp else 'TCP'} {request.place}"
            reason = "port in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise JobError(
                f"{place}: {reason}", "choose another --port, or see who has it: ss -lntup"
            ) from error


def is_ready(request: Request) -> bool:
    """Return whether the server accepts: a TCP connection, or for QUIC a bound UDP port."""
    if request.protocol == "h3":
        table = UDP_TABLES[request.bind.version].read_text(encoding="ascii")
        return udp_bound(table, request.bind, request.port)
    loopback = {4: ip_address("127.0.0.1"), 6: ip_address("::1")}[request.bind.version]
    target = loopback if request.bind.is_unspecified else request.bind
    try:
        socket.create_connection((str(target), request.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def udp_bound(table: str, bind: Address, port: int) -> bool:
    """Look for a local address in the text of /proc/net/udp or udp6: hexadecimal words in the
    host's order of bytes.
    """
    words = [bind.packed[at : at + 4] for at in range(0, len(bind.packed), 4)]
    address = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return any(line.split()[1] == f"{address}:{port:04X}" for line in table.splitlines()[1:])


def congestion_controls(listing: str) -> set[str]:
    """Read the congestion controls from `ss -tinH`, connections of the host with itself left out.

    A connection has two lines, the second indented: flags, the algorithm, then `name:value` fields.
    """
    found = set()
    foreign = False
    for line in listing.splitlines():
        words = line.split()
        if not line[:1].isspace():
            local, peer = words[-2].rpartition(":")[0], words[-1].rpartition(":")[0]
            foreign = local != peer
        elif foreign:
            flags = {"ts", "sack", "ecn", "ecnseen", "fastopen"}
            found.update([word for word in words if word not in flags and ":" not in word][:1])
    return found


def serve(request: Request, page: str, stop: threading.Event) -> None:
    """Start the server, report when it is ready, watch it until `stop`, and leave `server.json`."""
    check_port(request)
    server = choose(request)
    log = request.scratch / "log"
    child = Child.start("the server", server.argv, log, agent_s=0.0)
    observed: set[str] = set()
    try:
        is_accepting = functools.partial(is_ready, request)
        child.wait_until("ready", is_accepting, stop, READY_DEADLINE_S)
        with ready("satlab_web_server"):
            while not stop.wait(OBSERVE_S):
                child.check(stop)
                if request.protocol != "h3" and not observed:
                    observed = congestion_controls(sockets(request.port))
                    check_congestion_control(observed, request.congestion_control)
    finally:
        end(child.process, STOP_DEADLINE_S)
        record(request, page, server, observed)


def sockets(port: int) -> str:
    """Return the open TCP connections of a port, as `ss -ti` prints them."""
    return run("ss", "-tinH", "state", "established", f"sport = :{port}").stdout


def check_congestion_control(observed: set[str], requested: str) -> None:
    """Raise JobError if TCP uses another congestion control than requested."""
    if others := sorted(observed - {requested}):
        reason = f"TCP uses {', '.join(others)}, not {requested}"
        raise JobError(
            reason, f"set it on the route: ip route change ... congctl {requested}", status=1
        )


def record(request: Request, page: str, server: Server, observed: set[str]) -> None:
    """Store what served the page, and send whether TCP used the congestion control that was
    requested.
    """
    content = {
        "server": server.name,
        "version": server.version,
        "argv": server.argv,
        "protocol": request.protocol,
        "page": page,
        "address": request.place,
        "alt_svc": False,
        "congestion_control": {"asked": request.congestion_control, "observed": sorted(observed)},
    }
    must_store_json("server_json", content)
    if observed:
        collect_agent.send_stat(
            collect_agent.now(), congestion_control_ok=int(observed == {request.congestion_control})
        )


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a short command and return its output; a missing program is a failed one."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


# --- arguments ------------------------------------------------------------------------------------


def folder(text: str) -> Path:
    """Accept a folder whose path needs no quoting in a configuration file."""
    path = Path(text).resolve()
    if not re.fullmatch(r"[A-Za-z0-9_./-]+", str(path)):
        raise argparse.ArgumentTypeError(
            f"{path}: use only A-Z, a-z, 0-9, '_', '.', '-' in the path"
        )
    return path


def parser() -> argparse.ArgumentParser:
    """Return the options; those that the descriptor names come from scenarios, the folders from the
    environment.
    """
    options = argument_parser(__doc__)
    options.add_argument(
        "-p", "--page", type=page_name, default="kepler", help="page to serve (default: kepler)"
    )
    options.add_argument(
        "-P", "--protocol", choices=("h1", "h2", "h3"), default="h1", help="protocol (default: h1)"
    )
    options.add_argument(
        "-B",
        "--bind",
        type=ip_address,
        default=IPv4Address(0),
        help="address to listen on (default: all)",
    )
    options.add_argument("--port", type=port, help="port (default: 80 for h1, 443 for h2 and h3)")
    options.add_argument(
        "-C",
        "--congestion-control",
        type=congestion_control,
        default="cubic",
        help="congestion control (default: cubic)",
    )
    add_pages(options, folder)
    add_certificates(options, folder)
    return options


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    arguments = parser().parse_args()
    stop = stop_event()
    site = arguments.root / arguments.page / "site"
    if not (site / "index.html").is_file():
        hint = "generate the page: satlab.lab.web_target"
        raise JobError(f"{site}: holds no index.html", hint, status=2)
    with tempfile.TemporaryDirectory(prefix="satlab_web_server_") as scratch:
        request = Request(
            site=site,
            protocol=arguments.protocol,
            bind=arguments.bind,
            port=arguments.port or {"h1": 80, "h2": 443, "h3": 443}[arguments.protocol],
            congestion_control=arguments.congestion_control,
            pki=arguments.pki,
            scratch=Path(scratch),
        )
        serve(request, arguments.page, stop)


if __name__ == "__main__":
    run_job(__file__, main)
