# SPDX-License-Identifier: GPL-3.0-or-later
"""pcap files of the first bytes of IPv4 packets, with times in ns."""

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UDP, TCP = 17, 6
LONG_SNAP_BYTES = 4096
"""Captured bytes of packets with a long QUIC header: the whole datagram, or several if they are
merged.
"""
_MAGIC_NS, _LINKTYPE_RAW = 0xA1B23C4D, 101
_HEADER, _RECORD = struct.Struct("=IHHiIII"), struct.Struct("=IIII")


@dataclass(frozen=True)
class Packet:
    """An IPv4 packet: time in ns of the Unix clock, its length on the wire, and its first bytes
    (`head`).
    """

    t_ns: int
    length: int
    head: bytes


def write(path: Path, packets: Iterable[Packet]) -> None:
    """Write a pcap file with times in ns (draft-ietf-opsawg-pcap), readable by its owner alone."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_HEADER.pack(_MAGIC_NS, 2, 4, 0, 0, LONG_SNAP_BYTES, _LINKTYPE_RAW))
        for packet in packets:
            seconds, nanoseconds = divmod(packet.t_ns, 1_000_000_000)
            file.write(
                _RECORD.pack(seconds, nanoseconds, len(packet.head), packet.length) + packet.head
            )


def read(path: Path) -> list[Packet]:
    """Read a file of `write`. Raises ValueError for other files."""
    data = path.read_bytes()
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != _MAGIC_NS:
        raise ValueError(f"{path} is not a pcap file with times in ns")
    packets, offset = [], _HEADER.size
    while offset + _RECORD.size <= len(data):
        seconds, nanoseconds, captured, length = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        packets.append(
            Packet(seconds * 1_000_000_000 + nanoseconds, length, data[offset : offset + captured])
        )
        offset += captured
    return packets
