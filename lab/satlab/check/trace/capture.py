# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets of one interface, headers alone, into a pcap file: what arrives at a client, whatever its program tells.

The kernel writes into a ring of blocks (packet(7), TPACKET_V3 of the kernel's networking/packet_mmap.rst), which a
thread copies as they are: no work per packet while something is measured.
"""

import contextlib
import ctypes
import mmap
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from satlab.netlab import netns
from satlab.netlab.lab import Lab

SNAP_BYTES = 80
"""IP and UDP headers and the head of a QUIC packet, or IP and TCP headers with options."""
LONG_SNAP_BYTES = 2048
"""Of packets with a long QUIC header, whose datagram may hold more packets."""
BLOCK_BYTES, BLOCKS = 1 << 20, 32
RETIRE_MS = 50
ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, TPACKET_V3 = 263, 5, 10, 2
SO_ATTACH_FILTER = 26
TP_STATUS_USER = 1
"""<linux/if_packet.h>, <asm-generic/socket.h>."""
_FILTER = (
    (0x30, 0, 0, 9),  # A = protocol
    (0x15, 0, 4, 17),  # UDP?
    (0xB1, 0, 0, 0),  # X = length of the IP header
    (0x50, 0, 0, 8),  # A = first byte of the payload
    (0x45, 0, 1, 0x80),  # long header (RFC 9000, section 17.2)?
    (0x06, 0, 0, LONG_SNAP_BYTES),
    (0x06, 0, 0, SNAP_BYTES),
)
"""Classic BPF that says how much of a packet is kept."""
_BLOCK, _PACKET = struct.Struct("=IIIIII"), struct.Struct("=IIIIIIHH")
_PCAP_MAGIC_NS, _LINKTYPE_RAW = 0xA1B23C4D, 101
_PCAP_HEAD, _PCAP_RECORD = struct.Struct("=IHHiIII"), struct.Struct("=IIII")


@dataclass(frozen=True)
class Packet:
    """An IPv4 packet: time in ns of the Unix clock, its length on the wire, and its first bytes."""

    t_ns: int
    length: int
    head: bytes


class Capture:
    """Captures from `start` to `stop`."""

    def __init__(self, up: Lab, node: str, interface: str) -> None:
        self._socket: socket.socket = netns.inside(up.lab_id, node, _open, interface)
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._blocks: list[bytes] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="tap", daemon=True)

    @contextlib.contextmanager
    def running(self, pcap: Path) -> Iterator[None]:
        """Capture for as long as the block lasts, then write the file."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
            self._ring.close()
            self._socket.close()
            write(pcap, (packet for block in self._blocks for packet in packets_of(block)))

    def _copy(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        number, is_last_round = 0, False
        while not is_last_round:
            is_last_round = self._over.is_set()
            poll.poll(2 * RETIRE_MS)
            while True:
                offset = number * BLOCK_BYTES
                _, _, status, _, _, length = _BLOCK.unpack_from(self._ring, offset)
                if not status & TP_STATUS_USER:
                    break
                self._blocks.append(self._ring[offset : offset + length])
                struct.pack_into("=I", self._ring, offset + 8, 0)
                number = (number + 1) % BLOCKS


def _open(interface: str) -> socket.socket:
    """Open the ring in the namespace of this thread."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    tap.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
    program = b"".join(struct.pack("=HBBI", *word) for word in _FILTER)
    words = ctypes.create_string_buffer(program)
    tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(_FILTER), ctypes.addressof(words)))
    frames = BLOCK_BYTES * BLOCKS // LONG_SNAP_BYTES
    ring = struct.pack("=IIIIIII", BLOCK_BYTES, BLOCKS, LONG_SNAP_BYTES, frames, RETIRE_MS, 0, 0)
    tap.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
    tap.bind((interface, ETH_P_ALL))  # of one protocol alone the kernel shows what arrives, not what leaves
    return tap


def packets_of(block: bytes) -> Iterator[Packet]:
    """Read a block of the ring."""
    _, _, _, count, offset, _ = _BLOCK.unpack_from(block)
    for _ in range(count):
        following, seconds, nanoseconds, kept, length, _, _, net = _PACKET.unpack_from(block, offset)
        start = offset + net
        yield Packet(seconds * 1_000_000_000 + nanoseconds, length, block[start : start + kept])
        offset += following


def write(pcap: Path, packets: Iterable[Packet]) -> None:
    """Write a private pcap file with times in ns (draft-ietf-opsawg-pcap)."""
    with os.fdopen(os.open(pcap, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_PCAP_HEAD.pack(_PCAP_MAGIC_NS, 2, 4, 0, 0, LONG_SNAP_BYTES, _LINKTYPE_RAW))
        for packet in packets:
            seconds, nanoseconds = divmod(packet.t_ns, 1_000_000_000)
            file.write(_PCAP_RECORD.pack(seconds, nanoseconds, len(packet.head), packet.length) + packet.head)


def read(pcap: Path) -> list[Packet]:
    """Read such a file. Raises ValueError for another one."""
    data = pcap.read_bytes()
    if len(data) < _PCAP_HEAD.size or _PCAP_HEAD.unpack_from(data)[0] != _PCAP_MAGIC_NS:
        raise ValueError(f"{pcap} is no pcap file with times in ns")
    found, offset = [], _PCAP_HEAD.size
    while offset + _PCAP_RECORD.size <= len(data):
        seconds, nanoseconds, kept, length = _PCAP_RECORD.unpack_from(data, offset)
        offset += _PCAP_RECORD.size
        found.append(Packet(seconds * 1_000_000_000 + nanoseconds, length, data[offset : offset + kept]))
        offset += kept
    return found
