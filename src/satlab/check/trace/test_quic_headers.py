# SPDX-License-Identifier: GPL-3.0-or-later
"""QUIC packets of a datagram, and what is only padding; what a capture makes of it."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from satlab.check.trace.captured_transfer import Address, CapturedTransfer, transfer_of
from satlab.check.trace.conftest import (
    CLIENT,
    PORT,
    SERVER,
    long_head,
    long_packet,
    short_packet,
    udp,
    varint,
)
from satlab.check.trace.pcap import Packet
from satlab.check.trace.quic_headers import (
    LONG_KINDS,
    VERSION_1,
    VERSION_2,
    LongKind,
    quic_packets,
)

MS = 1_000_000
RANDOM = random.Random(7).randbytes(2000)  # noqa: S311
"""Random bytes for padding; the first one is chosen by each test."""


def kinds(datagram: bytes, size: int | None = None) -> list[str]:
    return [one.kind for one in quic_packets(datagram, size)]


def kinds_and_ids(datagram: bytes) -> list[tuple[str, bytes]]:
    return [(one.kind, one.source) for one in quic_packets(datagram)]


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_coalesced_packets_are_separated(version: int) -> None:
    datagram = (
        long_packet("initial", b"srv1", 60, b"token", version=version)
        + long_packet("handshake", b"srv1", 300, version=version)
        + short_packet()
    )
    assert kinds_and_ids(datagram) == [
        ("initial", b"srv1"),
        ("handshake", b"srv1"),
        ("1-rtt", b""),
    ]
    *_, last = quic_packets(datagram)
    assert (last.data, last.number_at) == (short_packet(), 5)
    four_bytes = long_head("handshake", b"srv1", b"dest", version) + (0x80000000 | 300).to_bytes(4)
    assert kinds(four_bytes + b"\xff" * 300 + short_packet()) == ["handshake", "1-rtt"]


@pytest.mark.parametrize(("kind", "bits"), [("initial", 1), ("0-rtt", 2), ("handshake", 3)])
def test_version_2_has_other_type_bits(kind: LongKind, bits: int) -> None:
    """RFC 9369, section 3.2; those of version 1 are smaller by one."""
    for version, shift in ((VERSION_1, 1), (VERSION_2, 0)):
        packet = long_packet(kind, b"s", 40, version=version)
        assert packet[0] >> 4 & 3 == bits - shift and kinds(packet) == [kind]
        assert [one.version for one in quic_packets(packet)] == [version]


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_a_retry_is_the_last_packet_of_its_datagram(version: int) -> None:
    """Its token has no length (RFC 9000, section 17.2.5): here it looks like a length of 0 and a
    1-RTT packet.
    """
    datagram = long_head("retry", b"srv2", b"dest", version) + b"\x00" + b"\x41" * 30
    [packet] = quic_packets(datagram)
    assert (packet.kind, packet.source) == ("retry", b"srv2")
    assert packet.token == datagram[15:-16]


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 30, b"\xc0", b"\xc0\0\0\0\x01\xff", bytes([0xFF] * 12), b"\x80abc"]
)
def test_payload_that_is_not_quic_yields_one_packet_at_most(data: bytes) -> None:
    assert len(kinds(data)) <= 1


def test_a_greased_fixed_bit_is_ignored() -> None:
    # RFC 9287: what is long stays long, and a short header is whatever has the first bit cleared.
    datagram = bytearray(long_packet("handshake", b"cli", 60)) + short_packet(first=0x01)
    datagram[0] &= ~0x40
    assert kinds(bytes(datagram)) == ["handshake", "1-rtt"]


# --- padding --------------------------------------------------------------------------------------

FIRST_BYTES = {
    "zeros": 0x00,
    "short header": 0x41,
    "short header without its fixed bit": 0x01,
    "initial": 0xC0,
    "0-rtt": 0xD0,
    "handshake": 0xE0,
    "retry": 0xF0,
}


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("before", [("initial",), ("initial", "handshake"), ("handshake",)])
@pytest.mark.parametrize("looks_like", FIRST_BYTES)
def test_bytes_behind_the_last_packet_are_padding(
    looks_like: str, before: tuple[LongKind, ...], version: int
) -> None:
    packets = b"".join(long_packet(kind, b"srv1", 60, version=version) for kind in before)
    filled = bytes(600) if looks_like == "zeros" else RANDOM[:600]
    padding = bytes([FIRST_BYTES[looks_like]]) + filled[1:]
    assert kinds(packets + padding) == list(before)
    # A version, and one of the ids alone, are not enough.
    for name in (b"\x04dest\x04abcd", b"\x04abcd\x04srv1"):
        similar = bytes([FIRST_BYTES[looks_like] | 0x80]) + version.to_bytes(4) + name
        assert kinds(packets + similar + varint(40) + RANDOM[:40]) == list(before)


@pytest.mark.parametrize("seed", range(40))
def test_random_padding_is_no_packet(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311
    packet = long_packet("initial", source.randbytes(8), 100, destination=source.randbytes(8))
    assert kinds(packet + source.randbytes(source.randrange(1, 1000))) == ["initial"]


@pytest.mark.parametrize("kind", get_args(LongKind))
def test_a_packet_that_does_not_fit_into_its_datagram_is_none(kind: LongKind) -> None:
    whole = long_packet(kind, b"srv1", 60)
    first = long_packet("initial", b"srv1", 60)
    expected = [] if kind == "retry" else [kind]
    assert kinds(first + whole) == ["initial", *expected]
    assert kinds(first + whole[:-1]) == ["initial"]
    # The capture cut it off, but it fits.
    assert kinds(first + whole[:-1], len(first + whole)) == ["initial", *expected]


def test_a_version_negotiation_is_alone() -> None:
    """RFC 9000, section 17.2.1: its type bits are arbitrary."""
    for first in (0x80, 0xC0, 0xD0, 0xE0, 0xFF):
        packet = bytes([first]) + bytes(4) + b"\x04dest\x03srv" + VERSION_2.to_bytes(4)
        [found] = quic_packets(packet + b"\0\0\0\x01")
        assert (found.kind, found.source, found.version) == ("version negotiation", b"srv", 0)
        assert kinds(long_packet("initial", b"srv", 60) + packet) == ["initial"]


@pytest.mark.parametrize("version", [2, 0xFF00001D, 0x1A2A3A4A, 0x51303530])
def test_another_version_is_unknown_whatever_its_type_bits_say(version: int) -> None:
    for first in (0xC0, 0xD0, 0xE0, 0xF0):
        packet = bytes([first]) + long_packet("initial", b"srv", 60, version=version)[1:]
        [found] = quic_packets(packet + short_packet())
        assert (found.kind, found.version, found.source) == ("unknown", version, b"srv")


@pytest.mark.parametrize(
    ("before", "first", "size", "is_packet"),
    [
        (("handshake",), 0x41, 40, True),
        (("initial", "handshake"), 0x41, 40, True),
        (("initial",), 0x41, 40, False),  # a side completes the handshake before it sends 1-RTT
        (("handshake",), 0x01, 40, False),
        (("handshake",), 0x41, 19, False),  # too short for a sample of header protection
    ],
)
def test_without_a_connection_id_the_first_byte_decides(
    before: tuple[LongKind, ...], first: int, size: int, is_packet: bool
) -> None:
    packets = b"".join(long_packet(kind, b"srv1", 60, destination=b"") for kind in before)
    expected = [*before, "1-rtt"] if is_packet else list(before)
    assert kinds(packets + short_packet(b"", size, first)) == expected
    assert kinds(packets + bytes(size)) == list(before)


# --- captures -------------------------------------------------------------------------------------


def capture(
    padding: bytes = b"",
    *,
    client: bytes = b"CLIENT01",
    server: bytes = b"SERVER01",
    versions: tuple[int, int] = (VERSION_1, VERSION_1),
    token: bytes = b"",
    later: tuple[bytes, bytes] | None = None,
) -> list[Packet]:
    """Return a download whose certificate chain needs a second round trip: each datagram with an
    Initial packet ends in `padding`. `versions` before and after the server's first packet; `later`
    are the ids of server and client after the handshake.
    """
    start, end = versions
    to_server, to_client = later or (server, client)

    def sent(kind: LongKind, size: int, *, version: int = end, to: bytes = server) -> bytes:
        return long_packet(kind, client, size, token, destination=to, version=version)

    def answer(kind: LongKind, size: int) -> bytes:
        return long_packet(kind, server, size, destination=client, version=end)

    first = sent("initial", 300, version=start, to=b"original") + padding
    return [
        udp(first, t_ns=1000 * MS, from_server=False),
        udp(answer("initial", 130) + padding, t_ns=1600 * MS),
        udp(answer("handshake", 1090), t_ns=1601 * MS),
        udp(sent("initial", 30) + padding, t_ns=1610 * MS, from_server=False),
        udp(answer("handshake", 890), t_ns=2210 * MS),
        udp(sent("handshake", 60), t_ns=2220 * MS, from_server=False),
        udp(short_packet(server, 80), t_ns=2220 * MS, from_server=False),
        udp(short_packet(client, 1243), t_ns=2830 * MS),
        udp(short_packet(to_server, 30), t_ns=2831 * MS, from_server=False),
        udp(short_packet(to_client, 1243), t_ns=2840 * MS),
        udp(short_packet(to_client, 1243), t_ns=2850 * MS),
        udp(short_packet(to_client, 491), t_ns=2860 * MS),
    ]


def read(packets: list[Packet]) -> CapturedTransfer:
    found = transfer_of(packets, SERVER, PORT)
    assert found is not None
    return found


def unknown_versions(wire: CapturedTransfer) -> set[int]:
    seen = {version for one in wire.datagrams for version in one.versions}
    return seen - {0, *LONG_KINDS}


def is_right(wire: CapturedTransfer) -> bool:
    """Whether the download of `capture` was read as it is: as Wireshark has it."""
    assert wire.handshake_ms == pytest.approx(1220)
    assert (wire.handshakes, wire.count("retry", from_server=True)) == (1, 0)
    assert wire.count("0-rtt", from_server=True) == 0
    assert len(wire.arrivals) == 4 and not unknown_versions(wire)
    assert wire.first_byte_s == pytest.approx(1.83)
    assert wire.times_s((1000, 4000), 4000) == pytest.approx((1.83, 1.86))
    bits = 8 * 4000
    assert wire.goodput_bps(4000) == pytest.approx(bits / 0.03)
    return True


@pytest.mark.parametrize("looks_like", FIRST_BYTES)
@pytest.mark.promise("P77")
def test_padding_changes_no_figure(looks_like: str) -> None:
    """quiche, aioquic and Go's x/net/quic pad with zeros, picoquic with random bytes."""
    filled = bytes(700) if looks_like == "zeros" else RANDOM[:700]
    padding = bytes([FIRST_BYTES[looks_like]]) + filled[1:]
    assert is_right(read(capture(padding)))
    assert is_right(read(capture(padding, server=b"")))
    assert is_right(read(capture(padding, versions=(VERSION_1, VERSION_2))))
    assert is_right(read(capture(padding, token=b"token from an earlier connection")))


def test_padding_changes_no_figure_of_a_client_without_a_connection_id() -> None:
    for first in FIRST_BYTES.values():
        wire = read(capture(bytes([first]) + RANDOM[:600], client=b""))
        assert is_right(wire)


@pytest.mark.parametrize("versions", [(VERSION_2, VERSION_2), (VERSION_1, VERSION_2)])
def test_version_2_has_the_figures_of_version_1(versions: tuple[int, int]) -> None:
    """The second pair is a compatible version negotiation (RFC 9368)."""
    wire = read(capture(versions=versions))
    assert is_right(wire)
    assert {version for one in wire.datagrams for version in one.versions} == set(versions)


def test_connection_ids_may_change_after_the_handshake() -> None:
    assert is_right(read(capture(later=(b"other id of server", b"other id of client"))))


def test_a_short_header_of_another_connection_is_foreign() -> None:
    """From the same port, before the client could have given the server another id."""
    packets = capture()
    stray = udp(short_packet(b"OLDCLIEN", 1243), t_ns=1200 * MS)
    own_stray = udp(short_packet(b"OLDSERVE", 40), t_ns=1605 * MS, from_server=False)
    found = read([packets[0], stray, *packets[1:3], own_stray, *packets[3:]])
    assert is_right(found)
    assert [one.is_foreign for one in found.datagrams].count(True) == 2
    assert found.first_answer_s == pytest.approx(0.6)


def test_a_first_flight_that_was_lost_hides_no_payload() -> None:
    """The server repeats it after a second; a small file then arrives within a round trip."""
    first, *rest = capture()
    late = [first, *(replace(one, t_ns=one.t_ns + 1000 * MS) for one in rest)]
    found = read(late)
    assert found.first_answer_s == pytest.approx(1.6)
    assert found.first_byte_s == pytest.approx(2.83)
    assert found.times_s((1000, 4000), 4000) == pytest.approx((2.83, 2.86))


def test_packets_before_the_first_long_header_are_of_an_earlier_connection() -> None:
    strays = [
        udp(short_packet(b"OLDSERVE", 40), t_ns=500 * MS, from_server=False, client_port=49999),
        udp(short_packet(b"OLDCLIEN", 1243), t_ns=900 * MS, client_port=49999),
    ]
    assert is_right(read([*strays, *capture()]))
    assert len(read(strays).datagrams) == 2, "without a long header nothing is known"


def test_of_several_connections_the_first_is_timed() -> None:
    """Each from a port of its own; the second one's handshake is faster."""
    second = [
        udp(
            long_packet("initial", b"CLIENT02", 1100, destination=b"second01"),
            t_ns=1010 * MS,
            from_server=False,
            client_port=50001,
        ),
        udp(
            long_packet("initial", b"SERVER02", 100, destination=b"CLIENT02"),
            t_ns=1611 * MS,
            client_port=50001,
        ),
        udp(
            long_packet("handshake", b"CLIENT02", 60, destination=b"SERVER02")
            + short_packet(b"SERVER02", 60),
            t_ns=1612 * MS,
            from_server=False,
            client_port=50001,
        ),
    ]
    found = read(sorted([*capture(), *second], key=lambda one: one.t_ns))
    assert found.handshake_ms == pytest.approx(1220)
    assert found.server_ids == {b"SERVER01", b"SERVER02"} and found.handshakes == 2
    assert found.client_addresses == [Address(CLIENT, 50000), Address(CLIENT, 50001)]


def test_a_client_may_go_on_from_another_port() -> None:
    """A rebinding keeps the connection id, a migration takes another one."""
    packets = capture()
    for name in (b"SERVER01", b"NEXT0001"):
        moved = udp(short_packet(name, 40), t_ns=2855 * MS, from_server=False, client_port=50009)
        answer = udp(short_packet(b"CLIENT01", 1243), t_ns=2865 * MS, client_port=50009)
        found = read([*packets[:-1], moved, answer])
        assert [one.kinds for one in found.datagrams[-2:]] == [("1-rtt",)] * 2
        assert found.client_addresses[1] == Address(CLIENT, 50009)
        before = udp(
            short_packet(b"NEXT0001", 40), t_ns=1001 * MS, from_server=False, client_port=50009
        )
        assert read([packets[0], before]).datagrams[1].is_foreign


def test_servers_without_connection_ids_have_handshakes() -> None:
    one = read(capture(server=b""))
    assert (one.server_ids, one.handshakes) == (set(), 1)
    again = [
        udp(
            long_packet("initial", b"CLIENT02", 1100, destination=b"second01"),
            t_ns=5000 * MS,
            from_server=False,
            client_port=50001,
        ),
        udp(
            long_packet("initial", b"", 1100, destination=b"CLIENT02"),
            t_ns=5600 * MS,
            client_port=50001,
        ),
    ]
    both = read([*capture(server=b""), *again])
    assert both.handshakes == 2 and both.last_start_s == pytest.approx(4.0)


def test_a_version_negotiation_is_an_answer_and_no_handshake() -> None:
    refused = long_packet("initial", b"CLIENT01", 1100, destination=b"original", version=0x1A2A3A4A)
    offered = b"\xc0" + bytes(4) + b"\x08CLIENT01\x08original" + VERSION_1.to_bytes(4)
    start = [
        udp(refused, t_ns=390 * MS, from_server=False),
        udp(offered, t_ns=990 * MS),
    ]
    found = read([*start, *capture()])
    assert found.first_answer_s == pytest.approx(0.6)
    assert found.handshake_s == pytest.approx(0.61 + 1.22)
    assert (found.handshakes, unknown_versions(found)) == (1, {0x1A2A3A4A})


def test_packets_of_an_unknown_version_are_said_and_the_others_timed() -> None:
    found = read(capture(versions=(0x6B3343D0, 0x6B3343D0)))
    assert unknown_versions(found) == {0x6B3343D0}
    assert found.count("retry", from_server=True) == found.handshakes == 0
    assert found.handshake_ms == pytest.approx(1220)
    assert found.times_s((4000,), 4000) == pytest.approx((1.86,))


def test_every_version_has_every_type() -> None:
    assert all(sorted(kinds) == sorted(get_args(LongKind)) for kinds in LONG_KINDS.values())
