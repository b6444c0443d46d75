#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: one end of a WireGuard tunnel, until it is stopped.

The device is the kernel's where it has WireGuard, else wireguard-go's. Both ends make both keys of
one secret, so that they exchange none; this protects nothing, it is for labs. Exit statuses: 0
stopped, 1 the tunnel died or the other end never answered, 2 arguments, 3 the host cannot do it.
"""

import argparse
import base64
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_vpn_rstats_filter.conf")
HANDSHAKE_S = 30.0
POLL_S = 0.1
SAMPLE_S = 1.0
KEEPALIVE_S = 5
"""A keepalive starts the handshake, which WireGuard repeats after 5 s and up to 0.3 s if it is
lost. One end alone sends them: initiations that cross cancel each other, and over a round-trip time
of 0.6 s all repetitions cross.
"""
STOP_S = 1.5
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class JobError(Exception):
    """An expected end of the job: what happened, the next command, the exit status."""

    def __init__(self, message: str, hint: str, status: int = 3) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


def run(*argv: str, text: str | None = None) -> str:
    """Run a short command and return its output."""
    try:
        done = subprocess.run(
            [shutil.which(argv[0], path=PATH) or argv[0], *argv[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{argv[0]}: {error}", "apt-get install wireguard-tools iproute2") from error
    if done.returncode:
        raise JobError(f"{' '.join(argv)}: {done.stderr.strip()}", "the job needs CAP_NET_ADMIN")
    return done.stdout


def private_key(secret: str, end: IPv4Address) -> str:
    """Return the private key of an end: a hash of secret and address, clamped (RFC 7748, section
    5).
    """
    key = bytearray(hashlib.sha256(f"satlab_vpn {secret} {end}".encode()).digest())
    key[0] &= 248
    key[31] = key[31] & 127 | 64
    return base64.b64encode(key).decode("ascii")


def settings(options: argparse.Namespace) -> str:
    """Return the configuration for wg(8)."""
    peer = run("wg", "pubkey", text=private_key(options.secret, options.peer_ip)).strip()
    keepalive = KEEPALIVE_S if options.own_ip < options.peer_ip else 0
    return (
        f"[Interface]\nPrivateKey = {private_key(options.secret, options.own_ip)}\nListenPort ="
        f" {options.port}\n[Peer]\nPublicKey = {peer}\nEndpoint ="
        f" {options.peer_ip}:{options.port}\nAllowedIPs ="
        f" {options.peer_tunnel_ip}/32\nPersistentKeepalive = {keepalive}\n"
    )


def device_name() -> str:
    """Return the device of this instance: a node may have several tunnels."""
    return f"wg{int(os.environ.get('JOB_INSTANCE_ID', '0'))}"


@contextlib.contextmanager
def device(name: str, implementation: str) -> Iterator["subprocess.Popen[bytes] | None"]:
    """Make the device, and remove it; yield the process behind it, None for the kernel's."""
    argv = [shutil.which("ip", path=PATH) or "ip", "link", "add", name, "type", "wireguard"]
    made = (
        subprocess.run(argv, capture_output=True, text=True, check=False)
        if implementation != "user"
        else None
    )
    if made is not None and made.returncode == 0:
        try:
            yield None
        finally:
            run("ip", "link", "delete", name)
        return
    if made is not None and implementation == "kernel":
        raise JobError(
            f"the kernel makes no WireGuard device: {made.stderr.strip()}", "use -i user"
        )
    program = shutil.which("wireguard-go", path=PATH)
    if program is None:
        raise JobError(
            "this kernel has no WireGuard, and there is no wireguard-go",
            "apt-get install wireguard-go",
        )
    child = subprocess.Popen(
        [program, "--foreground", name], stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def until(
    what: str,
    reached: Callable[[], bool],
    child: "subprocess.Popen[bytes] | None",
    stop: threading.Event,
) -> None:
    """Poll until something is reached, or `stop`."""
    deadline = time.monotonic() + HANDSHAKE_S
    while not reached():
        check_alive(child, stop)
        if time.monotonic() > deadline:
            raise JobError(
                f"{what} after {HANDSHAKE_S:g} s", "start the job on both nodes", status=1
            )
        if stop.wait(POLL_S):
            return


def check_alive(child: "subprocess.Popen[bytes] | None", stop: threading.Event) -> None:
    """Raise if wireguard-go has ended, unless all is being stopped."""
    if child is not None and child.poll() is not None and not stop.wait(STOP_S):
        hint = (
            "see the job's log; by 'too many open files' it means inotify instances"
            " (fs.inotify.max_user_instances)"
        )
        raise JobError(f"wireguard-go ended with status {child.returncode}", hint, status=1)


def configure(name: str, options: argparse.Namespace) -> None:
    """Set keys, addresses and route of the device."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(settings(options))
        file.flush()
        run("wg", "setconf", name, file.name)
    run(
        "ip",
        "address",
        "add",
        str(options.own_tunnel_ip),
        "peer",
        str(options.peer_tunnel_ip),
        "dev",
        name,
    )
    run("ip", "link", "set", name, "mtu", str(options.mtu), "up")


def counters(name: str) -> tuple[int, int, int]:
    """Return the time of the last handshake (s since the epoch, 0: none), and bytes received and
    sent.
    """
    fields = run("wg", "show", name, "dump").splitlines()[1].split("\t")
    return int(fields[4]), int(fields[5]), int(fields[6])


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Be one end of the tunnel until `stop`."""
    name, began = device_name(), time.monotonic()
    with device(name, options.implementation) as child:
        until(f"{name} was not there", lambda: Path(f"/sys/class/net/{name}").exists(), child, stop)
        if child is not None:
            until(
                f"{name} could not be configured",
                lambda: Path(f"/var/run/wireguard/{name}.sock").exists(),
                child,
                stop,
            )
        configure(name, options)
        until("no handshake with the other end", lambda: counters(name)[0] > 0, child, stop)
        if stop.is_set():
            return
        handshake_ms = round(1000 * (time.monotonic() - began), 1)
        collect_agent.send_stat(
            collect_agent.now(), ready=1, in_kernel=int(child is None), handshake_ms=handshake_ms
        )
        with announce():
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                check_alive(child, stop)
                if not stopped:
                    _, received, sent = counters(name)
                    collect_agent.send_stat(
                        collect_agent.now(), received_bytes=received, sent_bytes=sent
                    )


def announce() -> socket.socket:
    """Report that the job is ready, to satlab_await until the socket is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_vpn")
    return door


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name in ("own_ip", "peer_ip", "own_tunnel_ip", "peer_tunnel_ip"):
        options.add_argument(name, type=IPv4Address)
    options.add_argument("-p", "--port", type=number(1, 65535), default=51820)
    options.add_argument("-m", "--mtu", type=number(576, 9000), default=1420)
    options.add_argument("-s", "--secret", default="satlab", help="both ends make their keys of it")
    options.add_argument(
        "-i", "--implementation", choices=("auto", "kernel", "user"), default="auto"
    )
    return options


def main() -> int:
    """Hold the tunnel until SIGTERM or SIGINT."""
    options = parser().parse_args()
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    try:
        hold(options, stop)
    except JobError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
