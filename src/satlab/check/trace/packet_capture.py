# SPDX-License-Identifier: GPL-3.0-or-later
"""Capture the packet headers of one interface into a pcap file.

The kernel writes into a ring of blocks (packet(7), TPACKET_V3 of the kernel's
networking/packet_mmap.rst). A thread copies whole blocks: there is no work per packet during a
measurement. Aggregates (GRO, GSO) become the packets that they are: the kernel notes the size of
their segments in front of them.
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
from satlab.check.trace.pcap import LONG_SNAP_BYTES, WHOLE_SNAP_BYTES, Packet, ip_header
from satlab.lab import netns
from satlab.lab.lab import Lab

SNAP_BYTES = 80
"""Number of bytes that are kept of a packet: IP and UDP headers and the start of a QUIC packet, or
IP and TCP headers with options.
"""
BLOCK_BYTES, BLOCKS = 1 << 20, 32
RETIRE_MS = 50
ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
PACKET_VNET_HDR = 15
TPACKET_V3 = 2
SO_ATTACH_FILTER = 26
TP_STATUS_USER = 1
"""<linux/if_packet.h>, <asm-generic/socket.h>."""
ETHERNET_BYTES = 14
ARPHRD_NONE = 65534
"""<linux/if_arp.h>: the type of a TUN device, whose packets have no link header."""
_VNET = struct.Struct("=BBHHHH")
"""struct virtio_net_hdr of <linux/virtio_net.h>: flags, kind, length of headers, size of a segment,
checksum.
"""
TRANSPORT_PROTOCOLS = {6, 17}
_STATISTICS = struct.Struct("=III")
"""Packets, drops, and freezes of the queue (struct tpacket_stats_v3)."""
_BLOCK, _PACKET = struct.Struct("=IIIIII"), struct.Struct("=IIIIIIHH")


class Capture:
    """Packets of an interface. `missed` is set at the end: the number of packets for which the ring
    had no room.

    `whole`: keep whole packets, which can be decrypted; otherwise their headers.
    """

    def __init__(self, up: Lab, node: str, interface: str, *, whole: bool = False) -> None:
        snap_bytes = WHOLE_SNAP_BYTES if whole else SNAP_BYTES
        self._socket: socket.socket = netns.inside(up.lab_id, node, _open, interface, snap_bytes)
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._blocks: list[bytes] = []
        self.missed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="capture", daemon=True)

    @contextlib.contextmanager
    def running(self, file: Path | None = None) -> Iterator[None]:
        """Capture during the block, then write the file."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            _, self.missed, _ = _STATISTICS.unpack(
                self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
            )
            self._ring.close()
            self._socket.close()
            if file is not None:
                pcap.write(file, self.packets())

    def packets(self) -> Iterator[Packet]:
        """Yield the captured packets; only after the end."""
        return (packet for block in self._blocks for packet in packets_of(block))

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


def filter_program(link_bytes: int, snap_bytes: int) -> bytes:
    """Return the classic BPF program that returns how many bytes of a packet are kept: `snap_bytes`,
    more of long QUIC headers. `link_bytes` precede the IP header.
    """
    words = (
        (0x30, 0, 0, link_bytes),  # A = version and length of the header
        (0x54, 0, 0, 0xF0),
        (0x15, 4, 0, 0x60),  # IPv6?
        (0x30, 0, 0, link_bytes + 9),  # A = protocol
        (0x15, 0, 8, 17),  # UDP?
        (0xB1, 0, 0, link_bytes),  # X = length of the IP header
        (0x05, 0, 0, 3),
        (0x30, 0, 0, link_bytes + 6),  # A = next header
        (0x15, 0, 4, 17),  # UDP?
        (0x01, 0, 0, pcap.IPV6_BYTES),  # X = length of the IP header
        (0x50, 0, 0, link_bytes + 8),  # A = first byte of the payload
        (0x45, 0, 1, 0x80),  # long header (RFC 9000, section 17.2)?
        (0x06, 0, 0, link_bytes + max(LONG_SNAP_BYTES, snap_bytes)),
        (0x06, 0, 0, link_bytes + snap_bytes),
    )
    return b"".join(struct.pack("=HBBI", *word) for word in words)


def _open(interface: str, snap_bytes: int) -> socket.socket:
    """Open the ring in this thread's network namespace."""
    ring = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    ring.bind((interface, 0))  # captures nothing, but names the kind of link
    program = filter_program(
        0 if ring.getsockname()[3] == ARPHRD_NONE else ETHERNET_BYTES, snap_bytes
    )
    ring.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
    ring.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    words = ctypes.create_string_buffer(program)
    ring.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("HP", len(program) // 8, ctypes.addressof(words)),
    )
    frames = BLOCK_BYTES * BLOCKS // LONG_SNAP_BYTES
    request = struct.pack("=IIIIIII", BLOCK_BYTES, BLOCKS, LONG_SNAP_BYTES, frames, RETIRE_MS, 0, 0)
    ring.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
    ring.bind((interface, ETH_P_ALL))  # one protocol alone: only arriving packets
    return ring


def packets_of(block: bytes) -> Iterator[Packet]:
    """Parse a block of the ring.

    Packets that the kernel has merged, or not yet split, are split here.
    """
    _, _, _, count, offset, _ = _BLOCK.unpack_from(block)
    for _ in range(count):
        following, seconds, nanoseconds, kept, length, _, mac, net = _PACKET.unpack_from(
            block, offset
        )
        _, _, _, segment, _, _ = _VNET.unpack_from(block, offset + mac - _VNET.size)
        head = block[offset + net : offset + mac + kept]
        whole = Packet(seconds * 1_000_000_000 + nanoseconds, length - (net - mac), head)
        yield from _segments(whole, segment) if segment else (whole,)
        offset += following


def _segments(packet: Packet, size: int) -> Iterator[Packet]:
    """Yield the packets of an aggregate, as far as captured: each has `size` bytes of payload, the
    last one fewer.
    """
    head, ip = packet.head, ip_header(packet.head)
    if ip is None or len(head) < ip.size + 20 or ip.protocol not in TRANSPORT_PROTOCOLS:
        yield packet
        return
    headers = ip.size + (8 if ip.protocol == socket.IPPROTO_UDP else 4 * (head[ip.size + 12] >> 4))
    for start in range(headers, packet.length, size):
        captured = head[:headers] + head[start : start + size]
        yield Packet(packet.t_ns, headers + min(size, packet.length - start), captured)
