# SPDX-License-Identifier: GPL-3.0-or-later
"""pcap files of the first bytes of IP packets, with times in ns, and their IP headers."""

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

UDP, TCP = 17, 6
LONG_SNAP_BYTES = 4096
"""Captured bytes of packets with a long QUIC header: the whole datagram, or several if they are
merged.
"""
WHOLE_SNAP_BYTES = 1 << 16
"""More than any packet, or aggregate of packets, has."""
IPV6_BYTES = 40
_MAGIC_NS, _LINKTYPE_RAW = 0xA1B23C4D, 101
_HEADER, _RECORD = struct.Struct("=IHHiIII"), struct.Struct("=IIII")


@dataclass(frozen=True)
class Packet:
    """An IP packet: time in ns of the Unix clock, its length on the wire, and its first bytes
    (`head`).
    """

    t_ns: int
    length: int
    head: bytes


class IpHeader(NamedTuple):
    """The header of an IPv4 packet, or of an IPv6 packet without extension headers. `size` in
    bytes; `ecn` is the field of RFC 3168.
    """

    protocol: int
    size: int
    source: IPv4Address | IPv6Address
    destination: IPv4Address | IPv6Address
    ecn: int


def ip_header(head: bytes) -> IpHeader | None:
    """Return the IP header of a packet's first bytes; None for a later fragment, or what is cut off
    or not IP.
    """
    version = head[0] >> 4 if head else 0
    if version == 4 and len(head) >= 20:
        if head[6] & 0x1F or head[7]:
            return None
        size = 4 * (head[0] & 0xF)
        source, destination = IPv4Address(head[12:16]), IPv4Address(head[16:20])
        return IpHeader(head[9], size, source, destination, head[1] & 3)
    if version == 6 and len(head) >= IPV6_BYTES:
        ends = IPv6Address(head[8:24]), IPv6Address(head[24:40])
        return IpHeader(head[6], IPV6_BYTES, *ends, head[1] >> 4 & 3)
    return None


def write(path: Path, packets: Iterable[Packet]) -> None:
    """Write a pcap file with times in ns (draft-ietf-opsawg-pcap), readable by its owner alone."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_HEADER.pack(_MAGIC_NS, 2, 4, 0, 0, WHOLE_SNAP_BYTES, _LINKTYPE_RAW))
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
