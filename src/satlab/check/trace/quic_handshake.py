# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections as their Initial packets show them: hellos, versions, Retry."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from satlab.check.trace import quic_frames
from satlab.check.trace.quic_headers import VERSION_1, QuicPacket, quic_packets
from satlab.check.trace.quic_protection import (
    OpenedPacket,
    initial_keys,
    is_valid_retry,
    opened,
)

HELLO_RETRY_REQUEST = bytes.fromhex(
    "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
)
"""The random of a HelloRetryRequest (RFC 8446, section 4.1.3)."""
PRE_SHARED_KEY = 41
CLIENT_HELLO, SERVER_HELLO = 1, 2
MAX_HANDSHAKES = 64
MAX_CRYPTO_BYTES = 1 << 16


@dataclass
class Handshake:
    """A connection as its Initial packets show it.

    `original` is the connection id that the client began with, after a Retry the Retry's.
    `version_at_start` is that of the client's first Initial packet, `version_at_end` that of the
    server's last one (None: none was captured). `token` is that of the client's last Initial packet.
    `client_hellos` counts the Initial packets with the start of a ClientHello.
    """

    original: bytes
    version_at_start: int = VERSION_1
    crypto: dict[bool, dict[int, bytes]] = field(default_factory=lambda: {False: {}, True: {}})
    """Data of CRYPTO frames by offset, for server and client."""
    client_id: bytes = b""
    server_id: bytes = b""
    version_at_end: int | None = None
    token: bytes = b""
    was_retried: bool = False
    retry_token: bytes = b""
    client_hellos: int = 0
    largest: dict[bool, int] = field(default_factory=lambda: {False: -1, True: -1})
    """Largest packet number of Initial packets, for server and client."""

    @property
    def version(self) -> int:
        """Version of the packets after the Initial ones (RFC 9369, section 4.1)."""
        return self.version_at_start if self.version_at_end is None else self.version_at_end

    @property
    def client_random(self) -> bytes:
        """Return the random of the ClientHello; empty if it was not captured."""
        hello = self._client_hello()
        return b"" if hello is None else hello[2:34]

    @property
    def offered_suites(self) -> tuple[int, ...]:
        """Return the cipher suites of the ClientHello; empty if it was not captured."""
        hello = self._client_hello()
        try:
            if hello is None:
                return ()
            at = 35 + hello[34]
            (size,) = struct.unpack_from("!H", hello, at)
            return struct.unpack_from(f"!{size // 2}H", hello, at + 2)
        except (IndexError, struct.error):
            return ()

    @property
    def suite(self) -> int | None:
        """Return the cipher suite of the ServerHello; None if it was not captured."""
        hello = self._server_hello()
        return hello[0] if hello else None

    @property
    def is_resumed(self) -> bool:
        """Whether the server accepted a session: the ServerHello selects a pre-shared key (RFC
        8446, section 4.2.11).
        """
        hello = self._server_hello()
        return hello is not None and PRE_SHARED_KEY in hello[1]

    def _client_hello(self) -> bytes | None:
        messages = self._messages(from_server=False)
        return next((body for kind, body in messages if kind == CLIENT_HELLO), None)

    def _server_hello(self) -> tuple[int, set[int]] | None:
        """Return suite and extensions; None if it was not captured."""
        for kind, body in self._messages(from_server=True):
            if kind == SERVER_HELLO and body[2:34] != HELLO_RETRY_REQUEST:
                try:
                    return _suite_and_extensions(body)
                except (IndexError, struct.error):
                    return None
        return None

    def _messages(self, *, from_server: bool) -> Iterator[tuple[int, bytes]]:
        return messages(self.crypto[from_server])


def messages(crypto: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of each complete handshake message of CRYPTO data by offset."""
    data = joined(crypto)
    while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[1:4]):
        end = 4 + int.from_bytes(data[1:4])
        yield data[0], data[4:end]
        data = data[end:]


def _suite_and_extensions(body: bytes) -> tuple[int, set[int]]:
    at = 35 + body[34]
    (suite,) = struct.unpack_from("!H", body, at)
    return suite, set(extensions(body[at + 5 :]))  # suite, compression, length of the extensions


def extensions(data: bytes) -> dict[int, bytes]:
    """Return the extensions of a handshake message by type; `data` starts after their length."""
    found, at = {}, 0
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        found[kind] = data[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def joined(parts: Mapping[int, bytes]) -> bytes:
    """Return the data from offset 0 up to the first gap."""
    data = b""
    for offset, part in sorted(parts.items()):
        if offset > len(data):
            break
        data += part[len(data) - offset :]
    return data


def handshakes(datagrams: Sequence[tuple[bool, bytes]]) -> list[Handshake]:
    """Return the connections in QUIC datagrams, given as (from the server?, payload), in the order
    of their beginning.
    """
    found: list[Handshake] = []
    for from_server, payload in datagrams:
        for packet in quic_packets(payload):
            take(found, packet, from_server=from_server)
    return found


def take(
    found: list[Handshake], packet: QuicPacket, *, from_server: bool
) -> tuple[Handshake, OpenedPacket] | None:
    """Add what an Initial or Retry packet says; return the connection and the content of an Initial
    packet that could be decrypted.
    """
    if packet.kind == "retry" and from_server:
        _retry(found, packet)
    if packet.kind != "initial" or packet.number_at is None or packet.version is None:
        return None
    known = [one for one in reversed(found) if _has_ids(one, packet, from_server)]
    if (
        not from_server
        and not any(one.original == packet.destination for one in found)
        and len(found) < MAX_HANDSHAKES
    ):
        known.append(Handshake(packet.destination, packet.version))
    for one in known:
        keys = initial_keys(one.original, packet.version, from_server=from_server)
        read = opened(packet.data, packet.number_at, keys, one.largest[from_server])
        if read is None:
            continue
        if one not in found:
            found.append(one)
        one.largest[from_server] = max(one.largest[from_server], read.number)
        if from_server:
            one.server_id, one.version_at_end = packet.source, packet.version
        else:
            one.client_id, one.token = packet.source, packet.token
        for frame in quic_frames.frames(read.plain):
            is_crypto = frame.kind == quic_frames.CRYPTO
            if is_crypto and frame.offset + len(frame.data) <= MAX_CRYPTO_BYTES:
                earlier = one.crypto[from_server].get(frame.offset, b"")
                one.crypto[from_server][frame.offset] = max(earlier, frame.data, key=len)
            one.client_hellos += is_crypto and frame.offset == 0 and not from_server
        return one, read
    return None


def _has_ids(one: Handshake, packet: QuicPacket, from_server: bool) -> bool:
    """Whether a packet has the connection ids of a connection."""
    if from_server:
        return packet.destination == one.client_id
    return packet.destination in (one.original, one.server_id)


def _retry(found: list[Handshake], packet: QuicPacket) -> None:
    """Go on with the connection id of a Retry: it replaces the one that keys derive from."""
    for one in reversed(found):
        if one.version_at_end is None and is_valid_retry(packet, one.original):
            one.original, one.was_retried, one.retry_token = packet.source, True, packet.token
            one.crypto[False].clear()
            return
