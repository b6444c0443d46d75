# SPDX-License-Identifier: GPL-3.0-or-later
"""The bindings of the NAT, and checksums of the packets that it rewrites."""

import struct
from ipaddress import IPv4Address

import pytest

from satlab.lab.rebinding_nat import RebindingNat

CLIENT, GATEWAY = IPv4Address("193.167.0.100"), IPv4Address("193.167.0.2")
SERVER = IPv4Address("193.167.100.100")
End = tuple[IPv4Address, int]


def checksum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def packet(source: End, to: End, payload: bytes = b"odd", *, protocol: int = 17) -> bytes:
    """A packet with valid checksums."""
    size = 8 + len(payload)
    ends = source[0].packed + to[0].packed
    udp = struct.pack("!HHHH", source[1], to[1], size, 0) + payload
    summed = checksum(ends + struct.pack("!HH", protocol, size) + udp) or 0xFFFF
    udp = udp[:6] + summed.to_bytes(2) + udp[8:]
    head = struct.pack("!BBHHHBBH", 0x45, 2, 20 + size, 7, 0, 64, protocol, 0) + ends
    return head[:10] + checksum(head).to_bytes(2) + head[12:] + udp


def ends(data: bytes) -> tuple[End, End]:
    """Return source and destination of a packet, whose checksums must be right."""
    assert checksum(data[:20]) == 0
    assert checksum(data[12:20] + struct.pack("!HH", data[9], len(data) - 20) + data[20:]) == 0
    ports = struct.unpack_from("!HH", data, 20)
    return (IPv4Address(data[12:16]), ports[0]), (IPv4Address(data[16:20]), ports[1])


def nat(*, address: bool = False, seed: int = 1) -> RebindingNat:
    return RebindingNat(CLIENT, GATEWAY, 1.0, 5.0, address, seed)


def sent(by: RebindingNat, now_s: float, port: int = 50000) -> End:
    """Return the source of the client's packet behind the NAT."""
    out = by.translated(packet((CLIENT, port), (SERVER, 443)), now_s)
    assert out is not None
    source, to = ends(out)
    assert to == (SERVER, 443) and out[1] == 2
    return source


def answered(by: RebindingNat, to: End, now_s: float) -> End | None:
    """Return where the client gets a packet of the server; None if the NAT dropped it."""
    back = by.translated(packet((SERVER, 443), to, bytes(1200)), now_s)
    return None if back is None else ends(back)[1]


@pytest.mark.parametrize("address", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_flow_gets_another_port_at_given_times(address: bool, seed: int) -> None:
    by = nat(address=address, seed=seed)
    seen = [sent(by, 100 + at) for at in (0, 0.99, 1.0, 5.99, 6.0, 11.0)]
    assert seen[0] == seen[1] == (CLIENT, 50000)
    assert seen[2] == seen[3] and len({*seen}) == 4 and by.rebindings == 3
    assert len({port for _, port in seen}) == 4
    addresses = {one for one, _ in seen}
    if address:
        assert GATEWAY not in addresses and len(addresses) >= 3
        assert all(
            one in range(int(CLIENT) & ~0xFF, int(CLIENT) | 0xFF) for one in map(int, addresses)
        )
    else:
        assert addresses == {CLIENT}
    assert answered(by, seen[-1], 111) == (CLIENT, 50000)
    assert [answered(by, one, 111) for one in seen[:-1]] == [None] * 5, "old bindings are forgotten"


def test_time_begins_with_the_client_s_first_packet() -> None:
    by = nat()
    assert answered(by, (CLIENT, 50000), 90.0) is None, "nothing is bound yet"
    assert sent(by, 100.0) == (CLIENT, 50000)
    assert answered(by, (CLIENT, 50000), 100.5) == (CLIENT, 50000)
    assert sent(by, 100.5, 50001) == (CLIENT, 50001)
    later = [sent(by, 101.0, port) for port in (50000, 50001)]
    assert len({*later}) == 2
    assert [answered(by, one, 101.1) for one in later] == [(CLIENT, 50000), (CLIENT, 50001)]


def test_other_packets_stay_as_they_are() -> None:
    by = nat()
    tcp = packet((CLIENT, 50000), (SERVER, 443), protocol=6)
    six, short = b"\x60" + bytes(60), b"\x45" + bytes(20)
    elsewhere = packet((SERVER, 443), (IPv4Address("198.18.2.2"), 443))
    for one in (tcp, six, short, elsewhere, b""):
        assert by.translated(one, 1.0) == one
    without = bytearray(packet((CLIENT, 50000), (SERVER, 443)))
    without[26:28] = b"\0\0"
    by.translated(bytes(without), 1.0)
    out = by.translated(bytes(without), 3.0)
    assert out is not None and out[26:28] == b"\0\0", "a packet may have no checksum"
    assert checksum(out[:20]) == 0
