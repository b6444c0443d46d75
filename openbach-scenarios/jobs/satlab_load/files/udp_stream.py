# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make generate` from openbach-scenarios/_kit/udp_stream.py: change it there.
"""Sends UDP packets from one node to another, and measures them there."""

import argparse
import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address

import collect_agent
from jobkit import JobError, ignore_stops, port, raise_on_stop, ready, real, whole

Send = Callable[[bytes], None]
Side = Callable[[argparse.Namespace], int]

ENDS, END_EVERY_S = 5, 0.2
"""How often the end of a stream is sent; any one of them is enough."""
FIRST_S, IDLE_S = 60.0, 10.0
"""The receiver waits so long for the first packet, and for each further one."""
LOST = (ConnectionRefusedError, PermissionError)
"""Errors of a packet that a node loses: the receiver has ended, or a packet filter drops it."""
MAX_POINTS = 2000
"""Packets whose delay is also sent as a statistic, evenly chosen; the file has all."""


@contextlib.contextmanager
def receiving(job: str, options: argparse.Namespace) -> Iterator[Callable[[], bytes]]:
    """Yield what receives the next packet. The block ends with TimeoutError if none comes for a
    while.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        listener.bind((str(options.bind), options.port))
        listener.settimeout(FIRST_S)

        def receive() -> bytes:
            packet = listener.recv(2048)
            listener.settimeout(IDLE_S)
            return packet

        with ready(job):
            yield receive


@contextlib.contextmanager
def sending(options: argparse.Namespace) -> Iterator[Send]:
    """Yield what sends a packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options.dscp << 2)
        sender.connect((str(options.destination_ip), options.port))

        def send(packet: bytes) -> None:
            with contextlib.suppress(*LOST):
                sender.send(packet)

        yield send


def send_ends(send: Send, ends: Callable[[], Iterable[bytes]]) -> None:
    """Send the packets of the end several times, which a stop does not cut short."""
    ignore_stops()
    for _ in range(ENDS):
        time.sleep(END_EVERY_S)
        for packet in ends():
            send(packet)


def send_delays(received_ns: Sequence[int], owd_ms: Sequence[float]) -> None:
    """Send one-way delays as a statistic, each at the time when its packet came."""
    step = math.ceil(len(owd_ms) / MAX_POINTS)
    for at_ns, delay in zip(received_ns[::step], owd_ms[::step], strict=True):
        collect_agent.send_stat(at_ns // 1_000_000, owd_ms=delay)


def add_sides(
    options: argparse.ArgumentParser, default_port: int
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Add the arguments of both sides; return the parsers of the receiver and of the sender."""
    options.add_argument("-p", "--port", type=port, default=default_port)
    roles = options.add_subparsers(dest="role", required=True)
    receiver = roles.add_parser("receive")
    receiver.add_argument("-b", "--bind", type=IPv4Address, default=IPv4Address(0))
    sender = roles.add_parser("send")
    sender.add_argument("destination_ip", type=IPv4Address)
    sender.add_argument("-t", "--duration-s", type=real(0.1, 86400), default=10.0)
    sender.add_argument("-d", "--dscp", type=whole(0, 63), default=0)
    return receiver, sender


def run_side(options: argparse.Namespace, receive: Side, send: Side) -> int:
    """Run the side that the arguments name."""
    raise_on_stop()
    try:
        return receive(options) if options.role == "receive" else send(options)
    except OSError as error:
        raise JobError(error.strerror or str(error)) from error
