# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured packets: files, QUIC packets of a datagram, times of a transfer, symptoms."""

import ctypes
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from satlab.check.trace import packet_capture, pcap
from satlab.check.trace.captured_transfer import (
    MIN_OVERHEAD_BYTES,
    Address,
    CapturedTransfer,
    Datagram,
    tcp_retransmitted_share,
    transfer_of,
)
from satlab.check.trace.conftest import (
    PORT,
    SERVER,
    long_packet,
    short_packet,
    udp,
)
from satlab.check.trace.pcap import TCP, UDP, Packet
from satlab.check.trace.symptoms import symptoms

RTT_S = 0.66
RATE_BPS = 50e6


def test_a_file_of_packets_is_read_as_written(tmp_path: Path) -> None:
    packets = [
        udp(b"\x40" + bytes(1199), t_ns=1_700_000_000_123_456_789 + n, cut=80) for n in range(3)
    ]
    pcap.write(tmp_path / "x.pcap", packets)
    assert pcap.read(tmp_path / "x.pcap") == packets
    assert (tmp_path / "x.pcap").stat().st_mode & 0o777 == 0o600
    (tmp_path / "y.pcap").write_bytes(b"no pcap, but as long as the head of one")
    with pytest.raises(ValueError, match="not a pcap"):
        pcap.read(tmp_path / "y.pcap")


def ipv6(packet: Packet, next_header: int = UDP) -> Packet:
    """Return the packet with an IPv6 header in place of its IPv4 header."""
    traffic_class = packet.head[1]
    head = struct.pack("!IHBB", 6 << 28 | traffic_class << 20, packet.length - 20, next_header, 64)
    ends = (IPv6Address(int.from_bytes(packet.head[at : at + 4])).packed for at in (12, 16))
    return Packet(packet.t_ns, packet.length + 20, head + b"".join(ends) + packet.head[20:])


def kept(head: bytes, snap_bytes: int) -> int:
    """Return how many bytes of a packet the kernel keeps."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        program = packet_capture.filter_program(0, snap_bytes)
        words = ctypes.create_string_buffer(program)
        option = struct.pack("HP", len(program) // 8, ctypes.addressof(words))
        theirs.setsockopt(socket.SOL_SOCKET, packet_capture.SO_ATTACH_FILTER, option)
        ours.send(head)
        return len(theirs.recv(1 << 16))


@pytest.mark.parametrize("form", [lambda packet: packet, ipv6])
def test_the_kernel_keeps_more_of_long_headers(form: Callable[[Packet], Packet]) -> None:
    long = form(udp(long_packet("initial", b"cli", 5000), t_ns=0)).head
    short, other = (
        form(udp(short_packet(size=5000), t_ns=0)).head,
        form(edited(udp(b"\xff" * 5000, t_ns=0), byte_9=bytes([TCP]))).head,
    )
    if form is ipv6:
        other = ipv6(udp(b"\xff" * 5000, t_ns=0), TCP).head
    assert [kept(head, 80) for head in (long, short, other)] == [4096, 80, 80]
    assert kept(short, pcap.WHOLE_SNAP_BYTES) == len(short)


def test_a_transfer_over_ipv6_is_read(tmp_path: Path) -> None:
    first = udp(long_packet("initial", b"cli", 1100), t_ns=100, from_server=False, ecn=2)
    answer = udp(long_packet("initial", b"srv", 100, destination=b"cli"), t_ns=200, ecn=3)
    pcap.write(tmp_path / "x.pcap", [ipv6(first), answer, ipv6(answer)])
    packets, server = pcap.read(tmp_path / "x.pcap"), IPv6Address(int(SERVER))
    found = transfer_of(packets, server, PORT)
    assert found is not None and [one.ecn for one in found.datagrams] == [2, 3]
    assert found.datagrams[0].server == Address(server, PORT)
    assert found.datagrams[0].size == first.length - 28
    both = transfer_of(packets, [SERVER, server], PORT)
    assert both is not None and len(both.datagrams) == 3
    assert transfer_of(packets, server, PORT + 1) is None
    any_port = transfer_of(packets, server, None)
    assert any_port is not None and len(any_port.datagrams) == 2


def test_a_block_of_the_kernel_s_ring_is_parsed() -> None:
    first, second = b"\x45" + bytes(27), b"\x45" + bytes(59)
    head = struct.pack("=IIIIII", 3, 0, 1, 2, 48, 0)
    records = b""
    for number, data in enumerate((first, second)):
        record = struct.pack("=IIIIIIHH", 160, 7, number, 14 + len(data), 14 + 1500, 0, 76, 90)
        records += (record.ljust(90, b"\0") + data).ljust(160, b"\0")
    assert list(packet_capture.packets_of(head.ljust(48, b"\0") + records)) == [
        Packet(7_000_000_000, 1500, first),
        Packet(7_000_000_001, 1500, second),
    ]


def test_an_aggregate_in_the_ring_is_split_into_its_packets() -> None:
    """The size of its segments is in the header before the packet (struct virtio_net_hdr)."""
    whole = udp(b"\x40" + bytes(51), t_ns=0).head[:80]
    record = struct.pack("=IIIIIIHH", 0, 7, 0, 14 + len(whole), 14 + 28 + 2 * 1252 + 600, 0, 76, 90)
    record = (
        record.ljust(66, b"\0") + struct.pack("=BBHHHH", 0, 5, 42, 1252, 0, 0) + bytes(14) + whole
    )
    block = struct.pack("=IIIIII", 3, 0, 1, 1, 48, 0).ljust(48, b"\0") + record
    found = list(packet_capture.packets_of(block))
    assert [one.length for one in found] == [28 + 1252, 28 + 1252, 28 + 600]
    assert [len(one.head) for one in found] == [len(whole), 28, 28]
    assert {one.t_ns for one in found} == {7_000_000_000}


def tail(*sizes: int) -> CapturedTransfer:
    """A transfer of 100 full packets, 1 ms apart, then one of each size a round trip apart."""
    times = [1.4 + n / 1000 for n in range(100)] + [
        1.499 + RTT_S * n for n in range(1, len(sizes) + 1)
    ]
    data = [
        Datagram(t, True, n, ("1-rtt",))
        for t, n in zip(times, [1200] * 100 + list(sizes), strict=True)
    ]
    return CapturedTransfer(UDP, (Datagram(0.0, False, 1200, ("initial",)), *data))


@pytest.mark.parametrize(
    ("sizes", "size", "end_s"),
    [
        # An acknowledgement and CONNECTION_CLOSE, a round trip after the payload.
        ((40, 60), 115_000, 1.499),
        ((40, 700), 115_000, 1.499 + 2 * RTT_S),
        # The payload does not fit without it.
        ((80,), 100 * (1200 - MIN_OVERHEAD_BYTES) + 50, 1.499 + RTT_S),
    ],
)
def test_a_transfer_ends_with_its_last_packet_of_payload(
    sizes: tuple[int, ...], size: int, end_s: float
) -> None:
    wire = tail(*sizes)
    assert wire.times_s((size,), size) == pytest.approx((end_s,))
    assert wire.last_packet_s == pytest.approx(1.499 + RTT_S * len(sizes))


def test_a_transfer_is_read_from_its_packets() -> None:
    ms = 1_000_000
    packets = [
        udp(b"\x40late", t_ns=50 * ms),  # of an earlier connection
        udp(
            long_packet("initial", b"cli", 1100, destination=b"origin"),
            t_ns=100 * ms,
            from_server=False,
        ),
        udp(
            long_packet("initial", b"srv", 100, destination=b"cli")
            + long_packet("handshake", b"srv", 800, destination=b"cli"),
            t_ns=760 * ms,
        ),
        udp(
            long_packet("handshake", b"cli", 60, destination=b"srv") + short_packet(b"srv", 50),
            t_ns=770 * ms,
            from_server=False,
        ),
        *[udp(short_packet(b"cli", 996), t_ns=(1400 + n) * ms, cut=80) for n in range(100)],
    ]
    transfer = transfer_of(packets, SERVER, PORT)
    assert transfer is not None and transfer.protocol == UDP
    assert [transfer.first_answer_s, transfer.handshake_s] == pytest.approx([0.66, 0.67])
    assert transfer.server_ids == {b"srv"}
    # 100 datagrams of 1000 bytes carry 90,000 bytes of payload: half of it has arrived with the
    # 50th.
    assert transfer.times_s((45_000, 90_000), 90_000) == pytest.approx((1.349, 1.399))
    assert transfer.times_s((200_000,), 100_000) == (None,)
    assert transfer.goodput_bps(90_000) == pytest.approx(90_000 * 8 / 0.099)
    assert transfer.count("initial", from_server=True) == 1
    assert transfer.count("initial", from_server=False) == 1
    assert transfer_of(packets[:1], SERVER, PORT) is None
    assert transfer_of(packets, SERVER, 443) is None


def edited(packet: Packet, **fields: bytes) -> Packet:
    """Return a packet with other bytes at `byte_N` of its IP packet."""
    head = bytearray(packet.head)
    for name, data in fields.items():
        at = int(name.removeprefix("byte_"))
        head[at : at + len(data)] = data
    return Packet(packet.t_ns, packet.length, bytes(head))


def test_a_short_header_before_the_answer_is_of_an_earlier_connection() -> None:
    transfer = download([1])
    stray = Datagram(0.0, False, 40, ("1-rtt",))
    assert CapturedTransfer(UDP, (stray, *transfer.datagrams)).handshake_s == transfer.handshake_s


def test_packets_of_other_connections_are_ignored() -> None:
    first = udp(long_packet("initial", b"cli", 1100), t_ns=100, from_server=False)
    answer = udp(long_packet("initial", b"srv", 100), t_ns=200)
    other_port = struct.pack("!H", PORT + 1)
    ignored = [
        edited(answer, byte_20=other_port),  # from another port of the server
        edited(first, byte_22=other_port),  # to another port of the server
        edited(answer, byte_9=bytes([TCP])),
        edited(answer, byte_0=b"\x65"),  # IPv6
        edited(answer, byte_9=b"\x01"),  # ICMP
        Packet(300, 60, answer.head[:22]),
    ]
    transfer = transfer_of([first, answer, *ignored], SERVER, PORT)
    assert transfer is not None and [one.size for one in transfer.datagrams] == [
        first.length - 28,
        answer.length - 28,
    ]


def test_ip_options_are_skipped() -> None:
    plain = udp(b"\x41" + bytes(99), t_ns=1, from_server=False)
    head = b"\x46" + plain.head[1:20] + bytes(4) + plain.head[20:]
    transfer = transfer_of([Packet(1, plain.length + 4, head)], SERVER, PORT)
    assert transfer is not None
    assert transfer.datagrams[0].size == 100
    assert transfer.datagrams[0].kinds == ("1-rtt",)


def test_payload_may_be_coalesced_and_acknowledgements_of_tcp_have_none() -> None:
    assert Datagram(0, True, 900, ("handshake", "1-rtt")).is_data
    assert not Datagram(0, True, 900, ("1-rtt", "handshake")).is_data
    assert Datagram(0, True, 900, ()).is_data and not Datagram(0, True, 0, ()).is_data


# --- symptoms -------------------------------------------------------------------------------------


def download(
    rounds: list[int], *, answer_s: float = RTT_S, done_s: float = RTT_S + 0.01, payload: int = 1200
) -> CapturedTransfer:
    """Return a download with `rounds` packets in each round trip after the request."""
    sent: list[Datagram] = [
        Datagram(0.0, False, 1200, ("initial",)),
        Datagram(answer_s, True, 1200, ("initial", "handshake")),
        Datagram(done_s, False, 100, ("handshake", "1-rtt")),
    ]
    for number, count in enumerate(rounds):
        start = done_s + (number + 1) * RTT_S
        # A full round lasts as long as a round trip, less a little.
        step = min(0.0001, 0.5 * RTT_S / max(count, 1))
        sent += [Datagram(start + k * step, True, payload, ("1-rtt",)) for k in range(count)]
    return CapturedTransfer(UDP, tuple(sent))


def named(transfer: CapturedTransfer, **cpu_s: float) -> tuple[str, ...]:
    used = {name: (took, 0.0) for name, took in cpu_s.items()}
    return tuple(one.partition(":")[0] for one in symptoms(transfer, RTT_S, RATE_BPS, used))


HEALTHY = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 2560, 2560, 2560, 2560, 2560, 2560]


SMALL, LOST, CONSTANT = "small initial window", "lost handshake packet", "constant window"


@pytest.mark.parametrize(
    ("transfer", "found"),
    [
        (download(HEALTHY), ()),
        (download([1, 2, 4, 8, *HEALTHY]), (SMALL,)),
        (download([3, 6, *HEALTHY]), (SMALL,)),
        (download([4, 8, *HEALTHY]), ()),
        (download([3]), ()),  # it had no more to send
        (download(HEALTHY, answer_s=1.66, done_s=1.67), (LOST,)),
        (download(HEALTHY, done_s=RTT_S + 1.3), (LOST,)),
        (download(HEALTHY, answer_s=1.6 * RTT_S, done_s=1.6 * RTT_S), (LOST,)),
        (download(HEALTHY, answer_s=1.4 * RTT_S, done_s=1.4 * RTT_S), ()),
        (download([10, 20, 40, *range(300, 1300, 50)]), ()),  # it grows
        (download([833] * 8), ()),  # constant for a few round trips
        (download([10, 20, 40, 80, 160, 320, 640, *[833] * 12]), (CONSTANT,)),
    ],
)
def test_symptoms_are_named_and_a_healthy_download_has_none(
    transfer: CapturedTransfer, found: tuple[str, ...]
) -> None:
    assert named(transfer, client=1.0, server=1.0) == found


@pytest.mark.promise("P76")
def test_a_constant_window_is_named_with_its_size() -> None:
    transfer = download([10, 20, 40, 80, 160, 320, 640, *[833] * 12])
    assert "1.00 MB per round trip" in symptoms(transfer, RTT_S, RATE_BPS, {})[0]


@pytest.mark.parametrize("idle", [0.99, 0.95, 0.9])
def test_a_constant_window_is_found_if_its_round_trip_is_longer(idle: float) -> None:
    transfer = download([10, 20, 40, 80, 160, 320, 640, *[833] * 14])
    found = symptoms(transfer, idle * RTT_S, RATE_BPS, {})
    [text] = [one for one in found if one.startswith("constant window")]
    assert float(text.split()[2]) == pytest.approx(1.0, rel=0.1)


def test_a_retry_costs_a_round_trip_and_is_not_a_lost_packet() -> None:
    slow = download(HEALTHY, done_s=2 * RTT_S + 0.01)
    assert named(slow) == ("lost handshake packet",)
    retry = Datagram(RTT_S, True, 100, ("retry",))
    first, answer, *rest = slow.datagrams
    retried = CapturedTransfer(UDP, (first, retry, replace(answer, t_s=2 * RTT_S), *rest))
    assert retried.count("retry", from_server=True) == 1
    assert retried.count("retry", from_server=False) == 0
    assert named(retried) == ()
    of_the_client = CapturedTransfer(UDP, (first, answer, replace(retry, from_server=False), *rest))
    assert named(of_the_client) == ("lost handshake packet",)


def test_a_short_transfer_has_no_cpu_limit() -> None:
    short = CapturedTransfer(UDP, tuple(one for one in download(HEALTHY).datagrams if one.t_s < 1))
    assert named(short, client=1.0) == ()


@pytest.mark.parametrize(("share", "count"), [(0.2, 0), (0.3, 1)])
def test_a_quarter_of_the_time_without_a_core_is_a_symptom(share: float, count: int) -> None:
    transfer = download(HEALTHY)
    waited_s = share * transfer.datagrams[-1].t_s
    assert len(symptoms(transfer, RTT_S, RATE_BPS, {"client": (0.1, waited_s)})) == count


def test_a_program_that_takes_a_core_is_named() -> None:
    assert named(download(HEALTHY), client=1.0, server=9.9) == ("CPU limit",)


def test_tcp_retransmissions_are_counted_across_the_wrap() -> None:
    def segment(sequence: int, size: int, port: int = 5) -> Packet:
        head = bytearray(udp(bytes(20), t_ns=1).head[:20])
        head[9] = TCP
        return Packet(
            1,
            40 + size,
            bytes(head) + struct.pack("!HHIIBBHHH", 4433, port, sequence, 0, 0x50, 0, 0, 0, 0),
        )

    top = (1 << 32) - 500
    sent = [
        segment(top, 1000),
        segment(500, 1000),
        segment(top, 1000),
        segment(1000, 1000),
        segment(2000, 0),
    ]
    assert tcp_retransmitted_share(sent) == pytest.approx(1500 / 4000)
    # Another connection: nothing is repeated.
    larger = [segment(number * 1000, 1000, port=6) for number in range(6)]
    assert tcp_retransmitted_share([*sent, *larger]) == 0
    assert (
        tcp_retransmitted_share(
            [udp(b"x", t_ns=1), Packet(1, 20, b""), Packet(1, 40, b"\x45" * 20)]
        )
        is None
    )


def test_a_program_that_gets_no_core_is_named() -> None:
    [text] = symptoms(
        download(HEALTHY), RTT_S, RATE_BPS, {"client": (0.5, 1.0), "server": (0.2, 9.9)}
    )
    assert text.startswith("CPU limit: the server waited for a core 9") and "of a core" in text


def test_the_first_byte_is_the_first_full_packet_after_the_request() -> None:
    transfer = download([1])
    # Before the request: the end of the handshake.
    early = Datagram(RTT_S + 0.005, True, 1200, ("1-rtt",))
    small = Datagram(2 * RTT_S, True, 300, ("1-rtt",))  # a ticket
    full = Datagram(2 * RTT_S + 0.2, True, 1250, ("1-rtt",))
    whole = CapturedTransfer(
        UDP, (*transfer.datagrams[:2], early, transfer.datagrams[2], small, full)
    )
    assert whole.first_byte_s == full.t_s
    assert CapturedTransfer(UDP, whole.datagrams[:-1]).first_byte_s is None
    assert CapturedTransfer(UDP, transfer.datagrams[:2]).first_byte_s is None


def test_a_full_packet_has_1200_bytes_and_follows_a_0_rtt_request_at_once() -> None:
    sent = Datagram(0.0, False, 1200, ("initial", "0-rtt"))
    coalesced = Datagram(RTT_S, True, 1250, ("handshake", "1-rtt"))
    small, full = (Datagram(RTT_S + n / 100, True, 1198 + n, ("1-rtt",)) for n in (1, 2))
    assert CapturedTransfer(UDP, (sent, coalesced, small, full)).first_byte_s == full.t_s


@pytest.mark.parametrize("protocol", [UDP, TCP])
@pytest.mark.parametrize("options", [0, 40])
@pytest.mark.parametrize("kept", [28, 32, 60, 61, 67])
@pytest.mark.parametrize("fragment", [0, 3])
def test_t73_a_packet_that_ends_in_its_headers_is_none_of_the_transfer(
    protocol: int, options: int, kept: int, fragment: int
) -> None:
    """A program sends fragments and options of IP without a capability."""
    first = 0x45 + options // 4
    head = struct.pack("!BBHHHBBH", first, 0, 100, 0, fragment, 64, protocol, 0)
    to_server = head + bytes(4) + SERVER.packed + bytes(options) + struct.pack("!HH", 5000, 443)
    packet = Packet(1, 100, (to_server + bytes(60))[:kept])
    found = transfer_of([packet], SERVER, 443)
    needs = 20 + options + (8 if protocol == UDP else 20)
    assert (found is not None) == (not fragment and kept >= needs)
