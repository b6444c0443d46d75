# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the interop runner's test cases, with packets of aioquic: what is honest passes, and
each planted wrong behaviour is named.
"""

import heapq
import io
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicProtocolVersion, encode_quic_retry, pull_quic_header
from aioquic.tls import CipherSuite

from satlab.check.conftest import small
from satlab.check.endpoint import interop_endpoint, interop_rules
from satlab.check.endpoint.interop_rules import Evidence, NoKeyLogError
from satlab.check.suite import Case
from satlab.check.trace import captured_transfer, decrypted_packets, interop_evidence
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram, transfer_of
from satlab.check.trace.interop_evidence import EcnSeen
from satlab.check.trace.pcap import Packet
from satlab.check.trace.quic_frames import EcnCounts
from satlab.lab import pki

Address = tuple[str, int]
RETRY_ID = b"retried!"
CLIENT: Address = ("193.167.0.100", 50000)
SERVER: Address = ("193.167.100.100", 443)


def packet(t_s: float, source: Address, to: Address, data: bytes, ecn: int = 0) -> Packet:
    ends = [ip_address(one[0]) for one in (source, to)]
    udp = struct.pack("!HHHH", source[1], to[1], 8 + len(data), 0) + data
    addresses = b"".join(one.packed for one in ends)
    if isinstance(ends[0], IPv4Address):
        head = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(udp), 0, 0, 64, 17, 0) + addresses
    else:
        head = struct.pack("!IHBB", 6 << 28 | ecn << 20, len(udp), 17, 64) + addresses
    return Packet(round((1000 + t_s) * 1e9), len(head) + len(udp), head + udp)


@dataclass
class Exchange:
    """A client and a server of aioquic, `delay_s` apart, and what the path does with addresses.

    `client_seen`: the client's address at the server's interface. `server_used`: the address to
    which the client sends.
    """

    client: QuicConnection
    server: QuicConnection
    client_seen: Callable[[float], Address] = lambda _: CLIENT
    server_used: Callable[[float], Address] = lambda _: SERVER
    at_client: list[Packet] = field(default_factory=list)
    at_server: list[Packet] = field(default_factory=list)
    delay_s: float = 0.3
    retry: Callable[[bytes], QuicConnection] | None = None
    """Make the server once a client came back with the token of a Retry."""
    now: float = 0.0
    has_arrived: bool = False
    on_way: list[tuple[float, int, bool, bytes, Address]] = field(default_factory=list)

    def run(
        self,
        act: Callable[[QuicConnection], object],
        until_s: float = 8.0,
        later: tuple[float, Callable[[], object]] = (99, lambda: None),
    ) -> None:
        """Connect, act as the client once the handshake is complete, act again `later` at a time,
        and go on until `until_s`.
        """
        events = []
        at_s, again = later
        self.client.connect(SERVER, now=self.now)
        while self.now < until_s:
            if self.now >= at_s:
                again()
                at_s = 99
            self.send()
            timers = [one.get_timer() or until_s for one in (self.client, self.server)]
            self.now = min([*(one[0] for one in self.on_way[:1]), *timers, until_s])
            self.deliver()
            for side in (self.client, self.server):
                if (side.get_timer() or until_s) <= self.now:
                    side.handle_timer(now=self.now)
            while (event := self.client.next_event()) is not None:
                events.append(type(event).__name__)
                if events[-1] == "HandshakeCompleted":
                    act(self.client)
        assert "HandshakeCompleted" in events

    def send(self) -> None:
        seen, used = self.client_seen(self.now), self.server_used(self.now)
        for data, _ in self.client.datagrams_to_send(now=self.now):
            self.at_client.append(packet(self.now, CLIENT, used, data))
            self.carry(data, used, to_server=True)
        for data, to in self.server.datagrams_to_send(now=self.now) if self.has_arrived else ():
            self.at_server.append(packet(self.now, used, (to[0], to[1]), data))
            if (to[0], to[1]) == seen:
                self.carry(data, used, to_server=False)

    def carry(self, data: bytes, used: Address, *, to_server: bool) -> None:
        number = len(self.at_client) + len(self.at_server)
        heapq.heappush(self.on_way, (self.now + self.delay_s, number, to_server, data, used))

    def send_retry(self, data: bytes) -> bool:
        """Answer an Initial packet without a token."""
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        if header.token:
            assert self.retry is not None
            self.server = self.retry(header.destination_cid)
            return False
        answer = encode_quic_retry(1, RETRY_ID, header.source_cid, header.destination_cid, b"token")
        self.at_server.append(packet(self.now, SERVER, CLIENT, answer))
        self.carry(answer, SERVER, to_server=False)
        return True

    def deliver(self) -> None:
        while self.on_way and self.on_way[0][0] <= self.now:
            _, _, to_server, data, used = heapq.heappop(self.on_way)
            if to_server:
                seen = self.client_seen(self.now)
                self.at_server.append(packet(self.now, seen, used, data))
                if self.retry is not None and not self.has_arrived and self.send_retry(data):
                    continue
                self.has_arrived = True
                self.server.receive_datagram(data, seen, now=self.now)
            else:
                self.at_client.append(packet(self.now, used, CLIENT, data))
                self.client.receive_datagram(data, SERVER, now=self.now)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, pki.Pki]]:
    """Certificates: of usual size, and large."""
    folder = tmp_path_factory.mktemp("pki")
    pair = interop_endpoint.InteropPair({})
    yield {
        is_large: pki.create(
            folder / str(is_large),
            pair.certificate_names(case(large_certificate=is_large)),
            [ip_address(SERVER[0])],
            datetime.now(UTC),
        )
        for is_large in (False, True)
    }


def case(**fields: Any) -> Case:
    fixed = {"id": "a", "forward_mbps": 10, "return_mbps": 2, "test": "transfer", "handshakes": 1}
    return small(cases=[fixed | {"files_bytes": [100]} | fields], marks_mb=()).cases[0]


@dataclass
class Endpoints:
    """A client and a server of aioquic; `log` is the client's key log."""

    keys: pki.Pki
    client: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    log: io.StringIO = field(default_factory=io.StringIO)

    def path(self, **how: Any) -> Exchange:
        client = QuicConfiguration(
            is_client=True, alpn_protocols=["hq-interop"], secrets_log_file=self.log, **self.client
        )
        client.verify_mode = ssl.CERT_NONE
        server = QuicConfiguration(is_client=False, alpn_protocols=["hq-interop"], **self.server)
        server.load_cert_chain(self.keys.server_cert, self.keys.server_key)
        connected = QuicConnection(configuration=client)

        def accepting(retry_id: bytes | None = None) -> QuicConnection:
            return QuicConnection(
                configuration=server,
                original_destination_connection_id=connected.original_destination_connection_id,
                retry_source_connection_id=retry_id,
            )

        if how.pop("sends_retry", False):
            how["retry"] = accepting
        return Exchange(connected, accepting(), **how)

    def evidence(self, folder: Path, path: Exchange, of: Case, log: str | None = None) -> Evidence:
        """Return the evidence with the key log (None: the client's)."""
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs/keys.log").write_text(self.log.getvalue() if log is None else log)
        wire, at_server = (
            transfer_of(packets, ip_address(SERVER[0]), None)
            for packets in (path.at_client, path.at_server)
        )
        assert wire is not None
        return Evidence(of, replace(wire, at_server=at_server), [folder])


def asks(client: QuicConnection) -> None:
    client.send_stream_data(client.get_next_available_stream_id(), b"GET /x\r\n", end_stream=True)


def goes_on(client: QuicConnection) -> None:
    """Send more than a window, so that packets leave for some seconds."""
    stream = client.get_next_available_stream_id()
    client.send_stream_data(stream, bytes(300_000), end_stream=True)


def verdict(of: Evidence) -> str:
    try:
        return interop_rules.fault(of)
    except NoKeyLogError as error:
        return f"unsupported: {error}"


def nothing(_: Exchange) -> None:
    return


CHACHA, AES = CipherSuite.CHACHA20_POLY1305_SHA256, CipherSuite.AES_128_GCM_SHA256


@pytest.mark.parametrize(
    ("suites", "words"),
    [
        ([CHACHA], ""),
        ([CHACHA, AES], "the client offered 0x1301 besides ChaCha20"),
        ([AES, CHACHA], "the client offered 0x1301 besides ChaCha20"),
        ([AES], "the client offered 0x1301 besides ChaCha20"),
    ],
)
def test_only_chacha20_may_be_offered(
    suites: list[CipherSuite], words: str, keys: dict[bool, pki.Pki], tmp_path: Path
) -> None:
    made = Endpoints(keys[False], client={"cipher_suites": suites})
    path = made.path()
    path.run(asks)
    of = made.evidence(tmp_path, path, case(cipher="chacha20"))
    assert verdict(of) == words
    unseen = replace(of.wire, heads=())
    assert verdict(replace(of, wire=unseen)) == "no ClientHello was captured"
    assert "1 handshakes, 2 expected" in verdict(replace(of, case=case(handshakes=2)))


def resets_numbers(path: Exchange) -> None:
    """Plant a client that begins with packet number 0 again after a Retry."""
    original = path.client._connect

    def connect(now: float) -> None:
        path.client._packet_number = 0
        original(now)

    path.client._connect = connect  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("sends_retry", "plant", "wanted", "words"),
    [
        (True, nothing, True, ""),
        (False, nothing, True, "no Retry was sent"),
        (True, nothing, False, "a Retry was sent"),
        (False, nothing, False, ""),
        (True, resets_numbers, True, "the client reset its packet numbers after the Retry"),
    ],
)
def test_a_retry_comes_back_with_its_token(
    sends_retry: bool,
    plant: Callable[[Exchange], None],
    wanted: bool,
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
) -> None:
    made = Endpoints(keys[False])
    path = made.path(sends_retry=sends_retry)
    plant(path)
    path.run(asks)
    of = made.evidence(tmp_path, path, case(retry=wanted))
    found = verdict(of)
    assert words in found and bool(found) is bool(words)
    if sends_retry and wanted:
        unanswered = replace(of.wire, heads=of.wire.heads[:2])
        assert "no Initial packet had the token" in verdict(replace(of, wire=unanswered))


def test_a_client_hello_is_counted_whenever_it_is_sent(
    keys: dict[bool, pki.Pki], tmp_path: Path
) -> None:
    """Over 60 ms a client of aioquic sends it once, over 1.5 s again."""
    found = []
    for delay_s in (0.03, 0.75):
        made = Endpoints(keys[False])
        path = made.path(delay_s=delay_s)
        path.run(asks)
        of = made.evidence(tmp_path, path, case(client_hellos=2))
        found.append(verdict(of))
        assert not verdict(replace(of, case=case(client_hellos=1)))
        unseen = replace(of.wire, datagrams=())
        assert "was sent 0 times" in verdict(replace(of, wire=unseen))
    assert found == ["the ClientHello was sent 1 times, at least 2 expected", ""]


@pytest.mark.parametrize(
    ("limit", "log", "words"),
    [
        (128, None, ""),
        (1000, None, ""),
        (1001, None, "the server granted 1001 streams at once, at most 1000 expected"),
        (1 << 40, None, "the server granted 1099511627776 streams"),
        (128, "", "unsupported: packets of the server cannot be read"),
        (128, "SERVER_HANDSHAKE_TRAFFIC_SECRET 00 00\n", "unsupported: packets of the server"),
    ],
)
def test_the_limit_of_streams_is_read_from_the_transport_parameters(
    limit: int,
    log: str | None,
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Endpoints(keys[False])
    path = made.path()
    path.server._local_max_streams_bidi.value = limit
    path.run(asks, until_s=3)
    of = made.evidence(tmp_path, path, case(max_streams=1000), log)
    found = verdict(of)
    assert words in found and bool(found) is bool(words)
    if not words:
        monkeypatch.setattr(decrypted_packets, "transport_parameters", lambda _: {})
        assert "have no limit of streams" in verdict(of)
        several = case(max_streams=1000, handshakes=2)
        assert "1 handshakes, 2 expected" in verdict(replace(of, case=several))


V1, V2 = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2
CHANGES = {"original_version": V1, "supported_versions": [V2, V1]}


@pytest.mark.parametrize(
    ("client", "server", "wanted", "words"),
    [
        (CHANGES, {}, True, ""),
        ({"supported_versions": [V1]}, {}, True, "version 1, version 2 expected"),
        (CHANGES, {"supported_versions": [V1]}, True, "version 1, version 2 expected"),
        (
            {"original_version": V2, "supported_versions": [V2]},
            {},
            True,
            "the client began with version 2, version 1 expected",
        ),
        (CHANGES, {}, False, "version 2, version 1 alone expected"),
        ({}, {}, False, ""),
    ],
)
def test_both_sides_must_change_to_version_2(
    client: dict[str, Any],
    server: dict[str, Any],
    wanted: bool,
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
) -> None:
    made = Endpoints(keys[False], client, server)
    path = made.path()
    path.run(asks, until_s=4)
    found = verdict(made.evidence(tmp_path, path, case(version2=wanted)))
    assert words in found and bool(found) is bool(words)


def test_handshake_packets_must_be_of_version_2_alone(
    keys: dict[bool, pki.Pki], tmp_path: Path
) -> None:
    made = Endpoints(keys[False], CHANGES)
    path = made.path()
    path.run(asks, until_s=4)
    of = made.evidence(tmp_path, path, case(version2=True))
    for from_server in (False, True):
        changed = tuple(
            replace(one, versions=tuple(1 for _ in one.versions))
            if one.from_server is from_server
            and "handshake" in one.kinds
            and "initial" not in one.kinds
            else one
            for one in of.wire.datagrams
        )
        wire = CapturedTransfer(17, changed, heads=of.wire.heads)
        if any(one not in of.wire.datagrams for one in changed):
            assert "Handshake packets have version 1" in verdict(replace(of, wire=wire))


# --- paths ----------------------------------------------------------------------------------------


def rebound(address: str = CLIENT[0], port: int = 50001) -> Callable[[float], Address]:
    return lambda t_s: CLIENT if t_s < 1.4 else (address, port)


def twice(t_s: float) -> Address:
    return CLIENT if t_s < 1.4 else (CLIENT[0], 50001 if t_s < 3 else 50002)


def trusts_the_second(path: Exchange) -> None:
    """Plant a server that does not validate the client's second new path."""
    original = path.server._find_network_path

    def known(addr: Any) -> Any:
        found = original(addr)
        found.is_validated |= addr[1] == 50002
        return found

    path.server._find_network_path = known  # type: ignore[method-assign]


def silent(frame: str) -> Callable[[Exchange], None]:
    """Plant a side that leaves out a frame of path validation."""

    def plant(path: Exchange) -> None:
        if frame == "PATH_CHALLENGE":
            original = path.server._find_network_path

            def known(addr: Any) -> Any:
                found = original(addr)
                found.is_validated = True
                return found

            path.server._find_network_path = known  # type: ignore[method-assign]
        else:
            handlers = path.client._QuicConnection__frame_handlers  # type: ignore[attr-defined]
            _, epochs = handlers[0x1A]
            handlers[0x1A] = (lambda _context, _kind, buf: buf.pull_bytes(8), epochs)

    return plant


@pytest.mark.parametrize(
    ("seen", "address", "plant", "words"),
    [
        (rebound(), False, nothing, ""),
        (rebound("193.167.0.77"), True, nothing, ""),
        (lambda _: CLIENT, False, nothing, "the server saw one address and port"),
        (rebound(), True, nothing, "the server saw one address of the client alone"),
        (
            rebound(),
            False,
            silent("PATH_CHALLENGE"),
            "no PATH_CHALLENGE to 193.167.0.100 port 50001",
        ),
        (rebound(), False, silent("PATH_RESPONSE"), "the client did not answer"),
        (twice, False, nothing, ""),
        (twice, False, trusts_the_second, "no PATH_CHALLENGE to 193.167.0.100 port 50002"),
    ],
)
def test_a_new_path_must_be_validated(
    seen: Callable[[float], Address],
    address: bool,
    plant: Callable[[Exchange], None],
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
) -> None:
    made = Endpoints(keys[False])
    path = made.path(client_seen=seen)
    plant(path)
    path.run(goes_on)
    of = made.evidence(tmp_path, path, case(rebinding={"address": address}))
    found = verdict(of)
    assert words in found and bool(found) is bool(words)
    assert "unsupported" in verdict(made.evidence(tmp_path, path, of.case, ""))


@pytest.mark.parametrize(
    ("later_s", "words"), [(0.5, ""), (0.7, "no PATH_CHALLENGE to 193.167.0.1 port 46626")]
)
def test_a_path_of_the_last_round_trip_is_not_judged(
    later_s: float, words: str, keys: dict[bool, pki.Pki], tmp_path: Path
) -> None:
    """quinn's client closed the connection by the first packet from a new address."""
    made = Endpoints(keys[False])
    path = made.path(client_seen=rebound("193.167.0.77"))
    path.run(goes_on)
    of = made.evidence(tmp_path, path, case(rebinding={"address": True}))
    last = max(
        (one for one in of.at_server.datagrams if not one.from_server), key=lambda it: it.t_s
    )
    new = captured_transfer.Address(ip_address("193.167.0.1"), 46626)
    more = [replace(last, t_s=last.t_s + at_s, client=new) for at_s in (0, later_s)]
    ended = replace(of.at_server, datagrams=(*of.at_server.datagrams, *more))
    found = verdict(replace(of, wire=replace(of.wire, at_server=ended)))
    assert words in found and bool(found) is bool(words)
    first = of.at_server.client_addresses[0]
    only = [one for one in ended.datagrams if one.client in (first, new)]
    cut = replace(ended, datagrams=tuple(only[:-1]))
    assert "too late" in verdict(replace(of, wire=replace(of.wire, at_server=cut)))


PREFERRED: Address = (SERVER[0], 4443)


@pytest.mark.parametrize(
    ("moves_at_s", "new_id", "plant", "words"),
    [
        (1.4, True, nothing, ""),
        (99, True, nothing, "the client did not change to another address of the server"),
        (1.4, False, nothing, "the client kept the connection id"),
        (1.4, True, silent("PATH_CHALLENGE"), "the server did not validate the path"),
        (1.4, True, silent("PATH_RESPONSE"), "the client did not answer the PATH_CHALLENGE"),
    ],
)
def test_a_client_moves_to_the_preferred_address_with_a_new_connection_id(
    moves_at_s: float,
    new_id: bool,
    plant: Callable[[Exchange], None],
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
) -> None:
    made = Endpoints(keys[False])
    # aioquic validates a new address of the client alone, so the client has one, too.
    path = made.path(
        server_used=lambda t_s: SERVER if t_s < moves_at_s else PREFERRED,
        client_seen=lambda t_s: CLIENT if t_s < moves_at_s else (CLIENT[0], 50001),
    )
    plant(path)
    change = path.client.change_connection_id if new_id else (lambda: None)
    path.run(goes_on, later=(moves_at_s, change))
    of = made.evidence(tmp_path, path, case(migrated=True))
    found = verdict(of)
    assert words in found and bool(found) is bool(words)
    assert bool(verdict(made.evidence(tmp_path, path, of.case, "")))


@pytest.mark.parametrize(
    ("is_ipv4", "is_fault"),
    [
        (lambda _: False, False),
        (lambda _: True, True),
        (lambda one: one.from_server, True),
        (lambda one: not one.from_server and "initial" in one.kinds, True),
        (lambda one: one.is_data, True),
    ],
)
def test_no_packet_may_be_of_ipv4(
    is_ipv4: Callable[[Datagram], bool],
    is_fault: bool,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
) -> None:
    made = Endpoints(keys[False])
    path = made.path()
    path.run(asks, until_s=3)
    of = made.evidence(tmp_path, path, case(host="server6"))
    six = captured_transfer.Address(ip_address("fd00:cafe:cafe::100"), 50000)
    changed = tuple(
        one if is_ipv4(one) else replace(one, client=six) for one in of.at_server.datagrams
    )
    of = replace(of, wire=replace(of.wire, at_server=replace(of.at_server, datagrams=changed)))
    found = verdict(of)
    assert ("packets were of IPv4" in found) is is_fault
    assert verdict(replace(of, case=case(host="server4"))) == ""


def test_packets_of_ipv6_are_read() -> None:
    six: tuple[Address, Address] = (
        ("fd00:cafe:cafe::100", 50000),
        ("fd00:cafe:cafe:100::100", 443),
    )
    packets = [packet(0, *six, b"\xc0" + bytes(1200), ecn=2), packet(1, *six[::-1], bytes(50))]
    wire = transfer_of(packets, [ip_address(SERVER[0]), ip_address(six[1][0])], 443)
    assert wire is not None and [one.from_server for one in wire.datagrams] == [False, True]
    assert wire.datagrams[0].ecn == 2 and wire.datagrams[0].size == 1201


# --- ECN and amplification ------------------------------------------------------------------------

COUNTS = EcnCounts(10, 0, 0)
MARKED = EcnSeen({2: 10, 0: 1}, COUNTS)


@pytest.mark.parametrize(
    ("client", "server", "words"),
    [
        (MARKED, EcnSeen({1: 10}, EcnCounts(0, 10, 0)), ""),
        (EcnSeen({0: 9}, None), MARKED, "the client marked no packet"),
        (MARKED, EcnSeen({0: 9}, None), "the server marked no packet"),
        (MARKED, EcnSeen({2: 9, 3: 1}, COUNTS), "the server sent packets that were marked CE"),
        (EcnSeen({2: 9}, None), MARKED, "the marks of the client were not reported"),
        (MARKED, EcnSeen({2: 9}, None), "the marks of the server were not reported"),
        (None, None, "unsupported: reports of ECN marks"),
    ],
)
def test_ecn_needs_marks_and_reports_of_both_sides(
    client: EcnSeen | None,
    server: EcnSeen | None,
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Endpoints(keys[False])
    path = made.path()
    path.run(asks, until_s=3)
    seen = client and {"client": client, "server": server}
    monkeypatch.setattr(interop_evidence, "ecn_seen", lambda *_: seen)
    found = verdict(made.evidence(tmp_path, path, case(ecn=True)))
    assert words in found and bool(found) is bool(words)


def credited(more: int) -> Callable[[Exchange], None]:
    """Plant a server that believes to have received more bytes, of which it sends three times as
    many.
    """

    def plant(path: Exchange) -> None:
        original = path.server._find_network_path

        def known(addr: Any) -> Any:
            found = original(addr)
            found.bytes_received = max(found.bytes_received, more)
            return found

        path.server._find_network_path = known  # type: ignore[method-assign]

    return plant


@pytest.mark.parametrize(
    ("is_large", "plant", "log", "words"),
    [
        (True, nothing, None, ""),
        (False, nothing, None, "the server did not use the large certificate"),
        (True, credited(1 << 20), None, "bytes when it had received"),
        (True, credited(2400), None, "bytes when it had received 1200"),
        (True, nothing, "", "unsupported"),
    ],
)
def test_a_server_sends_three_times_what_it_received(
    is_large: bool,
    plant: Callable[[Exchange], None],
    log: str | None,
    words: str,
    keys: dict[bool, pki.Pki],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Endpoints(keys[is_large])
    path = made.path()
    plant(path)
    path.run(asks)
    of = made.evidence(tmp_path, path, case(large_certificate=True), log)
    found = verdict(of)
    assert words in found and bool(found) is bool(words)
    if not words:
        packets = of.server_packets
        monkeypatch.setattr(interop_evidence, "decrypted_packets_of", lambda *_: packets)
        initial = tuple(one for one in of.at_server.datagrams if "initial" in one.kinds)[:2]
        cut = replace(of.wire, at_server=replace(of.at_server, datagrams=initial))
        assert verdict(replace(of, wire=cut)) == "the client sent no Handshake packet"
