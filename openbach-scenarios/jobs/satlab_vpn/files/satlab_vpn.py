#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run one end of a WireGuard tunnel until the job is stopped.

The device is of the kernel, or of wireguard-go if the kernel has no WireGuard. Both ends derive both
keys from one secret, so they exchange none. This protects nothing; it is for labs. Exit statuses: 0
stopped, 1 the tunnel died or the other end never answered, 2 arguments, 3 the host cannot do it.
"""

import argparse
import base64
import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import collect_agent
from jobkit import (
    JobError,
    announce,
    argument_parser,
    end,
    need,
    port,
    run,
    run_job,
    stop_event,
    whole,
)

HANDSHAKE_S = 30.0
POLL_S = 0.1
SAMPLE_S = 1.0
KEEPALIVE_S = 5
"""A keepalive starts the handshake, which WireGuard repeats after 5 s and up to 0.3 s if it is
lost. One end alone sends them: initiations that cross cancel each other, and over a round-trip time
of 0.6 s all repetitions cross.
"""
STOP_S = 1.5
HINT = "the job needs wireguard-tools, iproute2 and CAP_NET_ADMIN"


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
    peer = run("wg", "pubkey", text=private_key(options.secret, options.peer_ip), hint=HINT).strip()
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
    if implementation != "user":
        try:
            run("ip", "link", "add", name, "type", "wireguard", hint="use -i user")
        except JobError:
            if implementation == "kernel":
                raise
        else:
            try:
                yield None
            finally:
                run("ip", "link", "delete", name, hint=HINT)
            return
    program = need("wireguard-go", "apt-get install wireguard-go; this kernel has no WireGuard")
    child = subprocess.Popen(
        [program, "--foreground", name], stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    try:
        yield child
    finally:
        end(child, STOP_S)


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
        run("wg", "setconf", name, file.name, hint=HINT)
    own, peer = str(options.own_tunnel_ip), str(options.peer_tunnel_ip)
    run("ip", "address", "add", own, "peer", peer, "dev", name, hint=HINT)
    run("ip", "link", "set", name, "mtu", str(options.mtu), "up", hint=HINT)


def counters(name: str) -> tuple[int, int, int]:
    """Return the time of the last handshake (s since the epoch, 0: none), and bytes received and
    sent.
    """
    fields = run("wg", "show", name, "dump", hint=HINT).splitlines()[1].split("\t")
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
        with announce("satlab_vpn"):
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                check_alive(child, stop)
                if not stopped:
                    _, received, sent = counters(name)
                    collect_agent.send_stat(
                        collect_agent.now(), received_bytes=received, sent_bytes=sent
                    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    for name in ("own_ip", "peer_ip", "own_tunnel_ip", "peer_tunnel_ip"):
        options.add_argument(name, type=IPv4Address)
    options.add_argument("-p", "--port", type=port, default=51820)
    options.add_argument("-m", "--mtu", type=whole(576, 9000), default=1420)
    options.add_argument(
        "-s", "--secret", default="satlab", help="secret from which both ends derive their keys"
    )
    options.add_argument(
        "-i", "--implementation", choices=("auto", "kernel", "user"), default="auto"
    )
    return options


def main() -> None:
    """Hold the tunnel until SIGTERM or SIGINT."""
    options = parser().parse_args()
    hold(options, stop_event())


if __name__ == "__main__":
    run_job(__file__, main)
