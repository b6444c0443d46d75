# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and headers by the examples of RFC 9001 and RFC 9369, appendix A; handshakes that are built
here.
"""

import random

import pytest
from cryptography.hazmat.primitives import hashes

from satlab.check.suite import Case
from satlab.check.trace import interop_evidence, quic_handshake
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram
from satlab.check.trace.conftest import (
    ORIGINAL,
    crypto,
    hello,
    initial,
    long_head,
    retry,
    sealed,
)
from satlab.check.trace.pcap import UDP
from satlab.check.trace.quic_handshake import handshakes
from satlab.check.trace.quic_headers import VERSION_1, VERSION_2, Kind, quic_packets
from satlab.check.trace.quic_protection import (
    AES_128,
    CHACHA20,
    expand_label,
    initial_keys,
    initial_secret,
    is_valid_retry,
    next_secret,
    opened,
    packet_keys,
    unprotected,
)

SERVER_INITIAL = bytes.fromhex(
    "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee"
)
"""Appendix A.3: a server's Initial packet with its ServerHello; its client began with ORIGINAL."""
CHACHA_SECRET = bytes.fromhex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b")
CHACHA_SHORT = bytes.fromhex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb")
"""Appendix A.5."""
SERVER_INITIAL_2 = bytes.fromhex(
    "dc6b3343cf0008f067a5502a4262b5004075d92faaf16f05d8a4398c47089698baeea26b91eb761d9b89237bbf87263017915358230035f7fd3945d88965cf17f9af6e16886c61bfc703106fbaf3cb4cfa52382dd16a393e42757507698075b2c984c707f0a0812d8cd5a6881eaf21ceda98f4bd23f6fe1a3e2c43edd9ce7ca84bed8521e2e140"
)
CHACHA_SHORT_2 = bytes.fromhex("5558b1c60ae7b6b932bc27d786f4bc2bb20f2162ba")
"""RFC 9369, appendices A.3 and A.5, with the connection id and the secret of RFC 9001."""
RETRIES = {
    VERSION_1: "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba",
    VERSION_2: "cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6",
}
"""Appendix A.4 of both."""


def connection(number: int, *extensions: int) -> list[tuple[bool, bytes]]:
    """Return the Initial datagrams of a connection with ids C<number> and S<number>."""
    client, server, original = b"C%d" % number, b"S%d" % number, b"original%d" % number
    return [
        (False, initial(client, original, hello(1, number), from_server=False, original=original)),
        (
            True,
            initial(server, client, hello(2, 99, *extensions), from_server=True, original=original),
        ),
    ]


def test_keys_and_headers_are_those_of_the_rfc() -> None:
    assert (
        initial_secret(ORIGINAL, from_server=False)
        .hex()
        .startswith("c00cf151ca5be075ed0ebfb5c80323c4")
    )
    assert (
        initial_secret(ORIGINAL, from_server=True)
        .hex()
        .startswith("3c199828fd139efd216c155ad844cc81")
    )
    key = expand_label(CHACHA_SECRET, hashes.SHA256, "quic hp", 32)
    assert unprotected(CHACHA_SHORT, 1, key, CHACHA20) == (0x42, 0xBFF4, 3)
    client = initial(b"", ORIGINAL, hello(1, 7), from_server=False)
    [found] = handshakes([(False, client), (True, SERVER_INITIAL)])
    assert found.suite == 0x1301
    assert found.is_resumed is False
    assert found.server_id.hex() == "f067a5502a4262b5"
    assert found.client_random == bytes([7]) * 32


@pytest.mark.parametrize(
    ("version", "server"), [(VERSION_1, SERVER_INITIAL), (VERSION_2, SERVER_INITIAL_2)]
)
def test_a_server_s_initial_packet_is_that_of_the_rfc(version: int, server: bytes) -> None:
    """In version 2 the client may have begun with version 1."""
    for start in {VERSION_1, version}:
        client = initial(b"", ORIGINAL, hello(1, 7), from_server=False, version=start)
        [found] = handshakes([(False, client), (True, server)])
        assert (found.version_at_start, found.version_at_end) == (start, version)
        assert (found.suite, found.offered_suites) == (AES_128, (AES_128,))
        assert found.server_id.hex() == "f067a5502a4262b5"
        assert found.largest[True] == 1


@pytest.mark.parametrize(
    ("version", "packet", "updated"),
    [
        (
            VERSION_1,
            CHACHA_SHORT,
            "1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9",
        ),
        (
            VERSION_2,
            CHACHA_SHORT_2,
            "c69374c49e3d2a9466fa689e49d476db5d0dfbc87d32ceeaa6343fd0ae4c7d88",
        ),
    ],
)
def test_a_short_header_is_opened_as_in_the_rfc(version: int, packet: bytes, updated: str) -> None:
    """Its packet number has three bytes of four: the expected one completes it."""
    keys = packet_keys(CHACHA_SECRET, CHACHA20, version)
    assert opened(packet, 1, keys, 654360563) == (0x42, 654360564, b"\x01")
    assert opened(packet, 1, keys) is None, "another number has another nonce"
    assert opened(packet[:-1] + b"\0", 1, keys, 654360563) is None
    assert next_secret(CHACHA_SECRET, CHACHA20, version).hex() == updated


@pytest.mark.parametrize("version", RETRIES)
def test_a_retry_is_valid_for_the_connection_that_it_answers(version: int) -> None:
    [packet] = quic_packets(bytes.fromhex(RETRIES[version]))
    assert (packet.kind, packet.token, packet.version) == ("retry", b"token", version)
    assert is_valid_retry(packet, ORIGINAL) and not is_valid_retry(packet, ORIGINAL[1:])
    [damaged] = quic_packets(packet.data[:-1] + b"\0")
    assert not is_valid_retry(damaged, ORIGINAL)


@pytest.mark.parametrize("version", RETRIES)
def test_a_retry_goes_on_with_its_connection(version: int) -> None:
    """The keys derive from its connection id. Padding that looks like a Retry does nothing."""
    client, server = b"C1", b"S1"
    asked = initial(client, ORIGINAL, hello(1, 1), from_server=False, version=version)
    answer = retry(ORIGINAL, b"RETRYID1", client, b"token", version)
    false = answer[:-1] + bytes([answer[-1] ^ 1])
    again = initial(
        client,
        b"RETRYID1",
        hello(1, 1),
        from_server=False,
        original=b"RETRYID1",
        version=version,
        token=b"token",
        number=8,
    )
    hello_back = initial(
        server, client, hello(2, 99), from_server=True, original=b"RETRYID1", version=version
    )
    sent = [(False, asked), (True, false), (True, answer), (False, again), (True, hello_back)]
    [found] = handshakes(sent)
    assert found.was_retried and found.retry_token == found.token == b"token"
    assert (found.suite, found.client_hellos, found.version_at_end) == (AES_128, 2, version)
    [found] = handshakes([(False, asked), (True, false)])
    assert not found.was_retried


def test_packets_of_one_version_are_not_read_with_the_keys_of_the_other() -> None:
    for version, other in ((VERSION_1, VERSION_2), (VERSION_2, VERSION_1)):
        packet = initial(b"", ORIGINAL, hello(1, 7), from_server=False, version=version)
        [parsed] = quic_packets(packet)
        assert parsed.number_at is not None
        keys = {one: initial_keys(ORIGINAL, one, from_server=False) for one in (version, other)}
        assert opened(packet, parsed.number_at, keys[version]) is not None
        assert opened(packet, parsed.number_at, keys[other]) is None


def test_a_hello_in_parts_is_joined_whatever_is_sent_again() -> None:
    """A large ClientHello needs two packets; parts are sent again with other bounds."""
    whole = hello(1, 7, 43, suite=CHACHA20)
    parts = [(9, 50), (0, 30), (0, 9), (30, len(whole))]
    keys = initial_keys(ORIGINAL, VERSION_2, from_server=False)
    head = long_head("initial", b"C", ORIGINAL, VERSION_2)
    sent = [
        (False, sealed(head, crypto(whole[start:end], start), keys, number))
        for number, (start, end) in enumerate(parts)
    ]
    [found] = handshakes(sent)
    assert found.offered_suites == (CHACHA20,) and found.client_hellos == 2
    assert handshakes(sent[:3])[0].offered_suites == ()


def test_the_suites_are_those_of_the_hellos() -> None:
    client = initial(b"", ORIGINAL, hello(1, 7, suite=CHACHA20), from_server=False)
    server = initial(b"S", b"", hello(2, 8, 43, suite=CHACHA20), from_server=True)
    [found] = handshakes([(False, client), (True, server)])
    assert (found.offered_suites, found.suite) == ((CHACHA20,), CHACHA20)
    [found] = handshakes([(False, client)])
    assert (found.suite, found.version_at_end, found.version) == (None, None, VERSION_1)


def test_a_resumed_session_is_seen_in_the_server_s_hello() -> None:
    full, resumed = connection(1, 43, 51), connection(2, 43, quic_handshake.PRE_SHARED_KEY)
    assert [one.is_resumed for one in handshakes([*full, *resumed])] == [False, True]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_packets_prove_nothing_and_raise_nothing(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311
    datagrams = []
    for from_server, payload in [*connection(1, 41), *connection(2, 41)]:
        data = bytearray(payload)
        for _ in range(source.randrange(1, 5)):
            data[source.randrange(len(data))] = source.randrange(256)
        datagrams.append((from_server, bytes(data[: source.randrange(len(data) + 1)])))
    assert not any(one.is_resumed for one in handshakes(datagrams))


# --- evidence of test cases -----------------------------------------------------------------------


def case(**required: bool) -> Case:
    files = {"files_bytes": [32] * 40, "name_length": 250, "forward_mbps": 10, "return_mbps": 2}
    return Case.model_validate({"id": "a", "test": "a", **files, **required})


def wire(heads: list[tuple[bool, bytes]], *kinds: Kind, size: int = 1000) -> CapturedTransfer:
    return CapturedTransfer(
        UDP, tuple(Datagram(0.0, False, size, (kind,)) for kind in kinds), 0.0, tuple(heads)
    )


NINE: tuple[Kind, ...] = ("1-rtt",) * 9
FULL, RESUMED = connection(1, 43), [*connection(1, 43), *connection(2, 41)]


@pytest.mark.parametrize(
    ("required", "seen", "words"),
    [
        ({}, wire(FULL), ""),
        ({"resumed": True}, wire(FULL), "no session was resumed"),
        ({"resumed": True}, wire([]), "no session was resumed"),
        ({"resumed": True}, wire(RESUMED), ""),
        ({"early_data": True}, wire(FULL, "0-rtt"), "no session was resumed"),
        ({"early_data": True}, wire(RESUMED, "1-rtt"), "no 0-RTT packet was sent"),
        (
            {"early_data": True},
            wire(RESUMED, "0-rtt", *NINE),
            "8856 bytes in 1-RTT packets, at most 5000",
        ),
        ({"early_data": True}, wire(RESUMED, "0-rtt", "1-rtt"), ""),
    ],
)
def test_a_test_case_needs_evidence(
    required: dict[str, bool], seen: CapturedTransfer, words: str
) -> None:
    fault = interop_evidence.fault(case(**required), seen)
    assert words in fault and bool(fault) is bool(words)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ([VERSION_1], ""),
        ([VERSION_2], ""),
        ([0], ""),
        ([0x1A2A3A4A, VERSION_1], ""),  # one damaged packet
        ([0x6B3343D0], "unknown version 0x6b3343d0"),
        ([0xFF00001D, 0xFF00001D, VERSION_1], "unknown version 0xff00001d"),
    ],
)
def test_an_unknown_version_is_said(versions: list[int], words: str) -> None:
    sent = [Datagram(0.0, True, 1200, ("unknown",), (), (one,)) for one in versions]
    client = Datagram(0.0, False, 1200, ("unknown",), (), (0x3A3A3A3A,))
    fault = interop_evidence.version_fault(CapturedTransfer(UDP, (client, client, *sent)))
    assert words in fault and bool(fault) is bool(words)
