# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets of flows by their ports."""

import struct

from satlab.check.trace.pcap import TCP, UDP, Packet
from satlab.flows.packet_counts import count

SERVER, CLIENT = "198.18.4.2", "198.18.1.2"


def packet(
    t_s: float, source: str, ports: tuple[int, int], length: int, protocol: int = UDP
) -> Packet:
    addresses = bytes(
        int(part)
        for one in (source, CLIENT if source == SERVER else SERVER)
        for part in one.split(".")
    )
    head = (
        bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0])
        + addresses
        + struct.pack(">HH", *ports)
    )
    head += bytes(8) + bytes([8 << 4]) + bytes(19)  # of TCP: 32 bytes of header
    return Packet(round(t_s * 1e9), length, head)


def test_payload_is_counted_by_port_and_way() -> None:
    packets = [
        packet(1.0, CLIENT, (50_000, 4433), 1228),
        packet(1.1, SERVER, (4433, 50_000), 1228),
        packet(1.2, SERVER, (4433, 50_000), 628),
        packet(1.3, SERVER, (4434, 50_001), 1500, TCP),
        packet(1.4, SERVER, (9999, 50_001), 1500),
        Packet(2, 100, b""),
    ]
    found = count(packets, [SERVER], [4433, 4434])
    first = found[4433]
    assert (first.of("server").packets, first.of("server").payload_bytes) == (2, 1800)
    assert (first.of("client").packets, first.of("client").first_unix_s) == (1, 1.0)
    assert first.from_server.total.at(1.21) == 1800
    assert found[4434].of("server").payload_bytes == 1448


def test_a_port_without_packets_has_none() -> None:
    assert count([], [SERVER], [4433])[4433].of("server").first_unix_s is None


def test_addresses_of_the_client_are_noted_when_they_change() -> None:
    other = "198.18.1.130"
    sources = [
        (1.0, CLIENT),
        (1.1, SERVER),
        (1.2, CLIENT),
        (2.0, other),
        (2.1, SERVER),
        (2.2, other),
        (3.0, CLIENT),
    ]
    packets = [
        packet(at, one, (4433, 5) if one == SERVER else (5, 4433), 1228) for at, one in sources
    ]
    found = count(packets, [SERVER], [4433])[4433]
    assert [(at, source[3]) for at, source in found.clients] == [(1.0, 2), (2.0, 130), (3.0, 2)]
    assert found.from_client.packets == 5
