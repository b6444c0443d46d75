# SPDX-License-Identifier: GPL-3.0-or-later
"""Capture the packet headers of one interface into a pcap file.

The kernel writes into a ring of blocks (packet(7), TPACKET_V3 of the kernel's networking/packet_mmap.rst). A thread
copies whole blocks: there is no work per packet during a measurement.
"""

import contextlib
import ctypes
import mmap
import select
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from satlab.check.trace import pcap
from satlab.check.trace.pcap import LONG_SNAP_BYTES, Packet
from satlab.netlab import netns
from satlab.netlab.lab import Lab

SNAP_BYTES = 80
"""IP and UDP headers and the start of a QUIC packet, or IP and TCP headers with options."""
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
"""Classic BPF: returns the bytes of a packet that are kept."""
_BLOCK, _PACKET = struct.Struct("=IIIIII"), struct.Struct("=IIIIIIHH")


class Capture:
    def __init__(self, up: Lab, node: str, interface: str) -> None:
        self._socket: socket.socket = netns.inside(up.lab_id, node, _open, interface)
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._blocks: list[bytes] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="capture", daemon=True)

    @contextlib.contextmanager
    def running(self, file: Path) -> Iterator[None]:
        """Capture during the block, then write the file."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            self._ring.close()
            self._socket.close()
            pcap.write(file, (packet for block in self._blocks for packet in packets_of(block)))

    def _copy(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        number, is_last_round = 0, False
        while not is_last_round:
            is_last_round = self._stopped.is_set()
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
    """Open the ring in this thread's network namespace."""
    ring = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    ring.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
    program = b"".join(struct.pack("=HBBI", *word) for word in _FILTER)
    words = ctypes.create_string_buffer(program)
    ring.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(_FILTER), ctypes.addressof(words)))
    frames = BLOCK_BYTES * BLOCKS // LONG_SNAP_BYTES
    request = struct.pack("=IIIIIII", BLOCK_BYTES, BLOCKS, LONG_SNAP_BYTES, frames, RETIRE_MS, 0, 0)
    ring.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
    ring.bind((interface, ETH_P_ALL))  # a single protocol would capture arriving packets alone
    return ring


def packets_of(block: bytes) -> Iterator[Packet]:
    """Parse a block of the ring."""
    _, _, _, count, offset, _ = _BLOCK.unpack_from(block)
    for _ in range(count):
        following, seconds, nanoseconds, kept, length, _, _, net = _PACKET.unpack_from(block, offset)
        start = offset + net
        yield Packet(seconds * 1_000_000_000 + nanoseconds, length, block[start : start + kept])
        offset += following
