# SPDX-License-Identifier: GPL-3.0-or-later
"""aioquic in lock-step with satlab's virtual time (docs/virtual-interface.md): client or server, by
the set-up.

Start: `python lockstep.py`; file descriptor 0 is the socket to satlab.
"""

import hashlib
import json
import math
import os
import random
import socket
from collections import deque
from typing import Any

import aioquic
from aioquic._buffer import Buffer
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType, pull_quic_header
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

INTERFACE = "satlab/virtual-interface/1"
ALPN = "hq-interop"
PEER = ("192.0.2.1", 443)
PERIOD = 251
WINDOW = 64_000_000
"""Flow-control windows: more than 250 Mbit/s times 650 ms."""
AHEAD = 1 << 18
"""Payload that the stack has beyond what is in flight, bytes: it copies its buffer at each
acknowledgement.
"""
MOST_DATAGRAMS = 1000
PART = 1 << 15
BLOCK = bytes(index % PERIOD for index in range(PERIOD + PART))


def payload(offset: int, length: int) -> bytes:
    """Return a part of the payload, at most PART bytes."""
    skip = offset % PERIOD
    return BLOCK[skip : skip + length]


class Connection:
    """A connection and its transfer.

    The payload's sender writes, the other side counts and hashes.
    """

    def __init__(self, quic: QuicConnection, *, sends: bool, total: int) -> None:
        self.quic, self.sends, self.total = quic, sends, total
        self.stream: int | None = None
        self.connected = self.requested = False
        self.written = self.received = self.lost = 0
        self.hash = hashlib.sha256()
        self.sha256: str | None = None
        self.error: str | None = None
        control: Any = quic._loss._cc
        counted = control.on_packets_lost

        def on_packets_lost(*, now: float, packets: Any) -> None:
            lost = list(packets)
            self.lost += len(lost)
            counted(now=now, packets=lost)

        control.on_packets_lost = on_packets_lost

    def handle_events(self) -> None:
        while (event := self.quic.next_event()) is not None:
            if isinstance(event, events.HandshakeCompleted):
                self.connected = True
            elif isinstance(event, events.StreamDataReceived):
                self.take(event)
            elif (
                isinstance(event, events.ConnectionTerminated)
                and self.sha256 is None
                and not self.is_sent
            ):
                self.error = event.reason_phrase or f"closed with error {event.error_code:#x}"

    @property
    def is_sent(self) -> bool:
        return self.sends and self.written == self.total

    @property
    def is_received(self) -> bool:
        return self.sha256 is not None

    def take(self, event: events.StreamDataReceived) -> None:
        if self.stream is None:  # a server: the request, and what follows it
            self.stream, self.requested = event.stream_id, True
            if self.sends:
                return
            event = events.StreamDataReceived(
                event.data.partition(b"\r\n")[2], event.end_stream, event.stream_id
            )
        if self.sends:
            return
        self.hash.update(event.data)
        self.received += len(event.data)
        if event.end_stream:
            self.sha256 = self.hash.hexdigest()

    def feed(self) -> None:
        """Write payload, so much that the stack always has some."""
        if not self.sends or self.stream is None or not self.requested:
            return
        sender = self.quic._streams[self.stream].sender
        while (
            self.written < self.total
            and len(sender._buffer) < self.quic._loss.bytes_in_flight + AHEAD
        ):
            part = payload(self.written, min(self.total - self.written, PART))
            self.written += len(part)
            self.quic.send_stream_data(self.stream, part, end_stream=self.written == self.total)

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = {
            "connected": self.connected,
            "requested": self.requested,
            "received_bytes": self.received,
            "early_data": self.quic.tls.early_data_accepted,
            "sha256": self.sha256,
            "error": self.error,
        }
        return report | ({"sender": self.state()} if self.sends else {})

    def state(self) -> dict[str, Any]:
        loss = self.quic._loss
        control, pacer = loss._cc, loss._pacer
        threshold = control.ssthresh
        bps = (
            None
            if not pacer.packet_time
            else round(self.quic._max_datagram_size * 8 / pacer.packet_time)
        )
        return {
            "cwnd_bytes": control.congestion_window,
            "in_flight_bytes": max(0, control.bytes_in_flight),
            "slow_start": threshold is None or control.congestion_window < threshold,
            "supply": self.supply(),
            "rtt_ms": loss._rtt_smoothed * 1e3,
            "lost_packets": self.lost,
            "pacing_bps": bps,
        }

    def supply(self) -> str:
        if self.stream is None or self.stream not in self.quic._streams:
            return "done" if self.is_sent else "slow"
        stream = self.quic._streams[self.stream]
        if self.is_sent and stream.sender.buffer_is_empty:
            return "done"
        credit = min(
            stream.max_stream_data_remote - stream.sender.highest_offset,
            self.quic._remote_max_data - self.quic._remote_max_data_used,
        )
        return "blocked" if credit <= 0 else "slow"


class Endpoint:
    """What the set-up asks for: one connection at a time, kept until the next one begins."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup, self.is_client = setup, setup["role"] == "client"
        self.sends = self.is_client == (setup["direction"] == "upload")
        self.connections: list[Connection] = []
        self.out: deque[bytes] = deque()
        self.tickets: dict[bytes, Any] = {}
        self.ticket: Any = None

    def configuration(self) -> QuicConfiguration:
        made = QuicConfiguration(
            is_client=self.is_client,
            alpn_protocols=[ALPN],
            max_data=WINDOW,
            max_stream_data=WINDOW,
            idle_timeout=600.0,
        )
        certificate = self.setup["certificate"].encode()
        if self.is_client:
            made.server_name = self.setup["server_name"]
            made.load_verify_locations(cadata=certificate)
            made.session_ticket = self.ticket
        else:
            made.certificate = load_pem_x509_certificate(certificate)
            made.private_key = load_pem_private_key(self.setup["key"].encode(), None)
        return made

    def start(self, now: float) -> None:
        """Begin a connection; a server's begins with its first packet."""
        self.connections = self.connections[-1:]
        if not self.is_client:
            return
        quic = QuicConnection(
            configuration=self.configuration(), session_ticket_handler=self.keep_ticket
        )
        quic.connect(PEER, now)
        made = Connection(quic, sends=self.sends, total=self.setup["bytes"])
        made.stream = quic.get_next_available_stream_id()
        made.requested = self.sends
        verb = "PUT" if self.sends else "GET"
        quic.send_stream_data(
            made.stream, f"{verb} /{self.setup['bytes']}\r\n".encode(), end_stream=not self.sends
        )
        self.connections.append(made)

    def keep_ticket(self, ticket: Any) -> None:
        self.ticket = ticket if self.setup["early_data"] else None

    def receive(self, data: bytes, now: float) -> None:
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        for one in self.connections:
            if header.destination_cid in (cid.cid for cid in one.quic._host_cids):
                one.quic.receive_datagram(data, PEER, now)
                return
        if self.is_client or header.packet_type not in (
            QuicPacketType.INITIAL,
            QuicPacketType.ZERO_RTT,
        ):
            return
        for one in self.connections:  # a client uses its own choice until it knows the server's
            if header.destination_cid == one.quic.original_destination_connection_id:
                one.quic.receive_datagram(data, PEER, now)
                return
        quic = QuicConnection(
            configuration=self.configuration(),
            original_destination_connection_id=header.destination_cid,
            session_ticket_fetcher=self.tickets.get,
            session_ticket_handler=lambda ticket: self.tickets.update({ticket.ticket: ticket}),
        )
        self.connections.append(Connection(quic, sends=self.sends, total=self.setup["bytes"]))
        quic.receive_datagram(data, PEER, now)

    def step(self, message: dict[str, Any], arrived: list[bytes]) -> dict[str, Any]:
        now = message["now_ns"] / 1e9
        if message["start"]:
            self.start(now)
        for data in arrived:
            self.receive(data, now)
        for one in self.connections:
            due = one.quic.get_timer()
            if due is not None and due <= now + 1e-9:
                one.quic.handle_timer(max(now, due))
            one.handle_events()
            one.feed()
            if one.is_received:
                one.quic.close()
            self.out.extend(data for data, _ in one.quic.datagrams_to_send(now))
        answer = {"timer_ns": self.timer(message["now_ns"])}
        return answer | ({"report": self.connections[-1].report()} if self.connections else {})

    def timer(self, now_ns: int) -> int | None:
        if len(self.out) > MOST_DATAGRAMS:
            return now_ns
        timers = [due for one in self.connections if (due := one.quic.get_timer()) is not None]
        return math.ceil(min(timers) * 1e9) if timers else None

    def take(self) -> list[bytes]:
        return [self.out.popleft() for _ in range(min(len(self.out), MOST_DATAGRAMS))]


def main() -> None:
    with socket.socket(fileno=os.dup(0)).makefile("rwb", buffering=1 << 20) as pipe:
        setup = json.loads(pipe.readline())
        source = random.Random(f"{setup['seed']} {setup['role']}")  # noqa: S311 - the same in every run
        os.urandom = source.randbytes
        endpoint = Endpoint(setup)
        write(pipe, {"interface": INTERFACE, "name": f"aioquic {aioquic.__version__}"}, [])
        while line := pipe.readline():
            message = json.loads(line)
            arrived = [pipe.read(head["bytes"]) for head in message["datagrams"]]
            answer = endpoint.step(message, arrived)
            sent = endpoint.take()
            write(pipe, answer | {"datagrams": [{"bytes": len(data)} for data in sent]}, sent)


def write(pipe: Any, message: dict[str, Any], datagrams: list[bytes]) -> None:
    pipe.write(json.dumps(message).encode() + b"\n" + b"".join(datagrams))
    pipe.flush()


if __name__ == "__main__":
    main()
