# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts from captured QUIC packets: sessions that were resumed and, with a key log, key phases.

Initial packets are protected with keys that anybody can derive (RFC 9001, section 5.2): ClientHello
and ServerHello are readable without secrets. The key phase is a protected bit of short headers
(section 5.4.1); its keys do not change with a key update (section 6), so the key log's first
secrets are enough.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from satlab.check.trace.quic_headers import QuicPacket, quic_packets, varint

VERSION_1 = b"\0\0\0\x01"
INITIAL_SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
"""RFC 9001, section 5.2."""
HELLO_RETRY_REQUEST = bytes.fromhex(
    "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
)
"""The random of a HelloRetryRequest (RFC 8446, section 4.1.3)."""
PRE_SHARED_KEY = 41
CLIENT_HELLO, SERVER_HELLO = 1, 2
SUITES: Mapping[int, tuple[type[hashes.SHA256] | type[hashes.SHA384], int]] = {
    0x1301: (hashes.SHA256, 16),
    0x1302: (hashes.SHA384, 32),
    0x1303: (hashes.SHA256, 32),
}
"""Hash and bytes of the key of header protection; 0x1303 is ChaCha20-Poly1305, the others are
AES-GCM.
"""
CHACHA20 = 0x1303
MAX_HANDSHAKES = 64
MAX_CRYPTO_BYTES = 1 << 16
MIN_VALID_SHARE = 0.95
"""Share of the short headers whose reserved bits must be zero after unprotection. The other packets
may have another connection id.
"""


@dataclass
class Handshake:
    """A connection as its Initial packets show it.

    `original` is the connection id that the client began with.
    """

    original: bytes
    crypto: dict[bool, dict[int, bytes]] = field(default_factory=lambda: {False: {}, True: {}})
    """Data of CRYPTO frames by offset, for server and client."""
    client_id: bytes = b""
    server_id: bytes = b""

    @property
    def client_random(self) -> bytes:
        """Return the random of the ClientHello; empty if it was not captured."""
        return next(
            (
                body[2:34]
                for kind, body in self._messages(from_server=False)
                if kind == CLIENT_HELLO
            ),
            b"",
        )

    @property
    def suite(self) -> int | None:
        hello = self._server_hello()
        return hello[0] if hello else None

    @property
    def is_resumed(self) -> bool:
        """Whether the server accepted a session: the ServerHello selects a pre-shared key (RFC
        8446, section 4.2.11).
        """
        hello = self._server_hello()
        return hello is not None and PRE_SHARED_KEY in hello[1]

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
        """Yield type and body of each complete handshake message."""
        data = _joined(self.crypto[from_server])
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[1:4]):
            end = 4 + int.from_bytes(data[1:4])
            yield data[0], data[4:end]
            data = data[end:]


def _suite_and_extensions(body: bytes) -> tuple[int, set[int]]:
    at = 35 + body[34]
    (suite,) = struct.unpack_from("!H", body, at)
    at += 5  # suite, compression, length of the extensions
    found = set()
    while at + 4 <= len(body):
        kind, length = struct.unpack_from("!HH", body, at)
        found.add(kind)
        at += 4 + length
    return suite, found


def _joined(parts: Mapping[int, bytes]) -> bytes:
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
            if packet.kind != "initial" or packet.data[1:5] != VERSION_1:
                break  # Initial packets come before all others
            _take(found, packet, from_server=from_server)
    return found


def _take(found: list[Handshake], packet: QuicPacket, *, from_server: bool) -> None:
    """Decrypt a packet with the keys of a known connection. A client's packet may begin a
    connection, or change its keys after a Retry.
    """
    known = list(reversed(found))
    if (
        not from_server
        and not any(one.original == packet.destination for one in found)
        and len(found) < MAX_HANDSHAKES
    ):
        known.append(Handshake(packet.destination))
    for one in known:
        plain = _decrypted(packet, one.original, from_server=from_server)
        if plain is None:
            continue
        if one not in found:
            found.append(one)
        if from_server:
            one.server_id = packet.source
        else:
            one.client_id = packet.source
        for offset, data in _crypto_frames(plain):
            if offset + len(data) <= MAX_CRYPTO_BYTES:
                one.crypto[from_server][offset] = data
        return


def _decrypted(packet: QuicPacket, original: bytes, *, from_server: bool) -> bytes | None:
    """Return the payload of an Initial packet; None if other keys protect the packet, or it is cut
    off.
    """
    if packet.number_at is None:
        return None
    secret = initial_secret(original, from_server=from_server)
    key, iv = (
        expand_label(secret, hashes.SHA256, f"quic {name}", size)
        for name, size in (("key", 16), ("iv", 12))
    )
    protection = expand_label(secret, hashes.SHA256, "quic hp", 16)
    header = unprotected(packet.data, packet.number_at, protection, 0x1301)
    if header is None:
        return None
    start, number = packet.number_at + header.size, header.number.to_bytes(header.size)
    head = bytes([header.first]) + packet.data[1 : packet.number_at] + number
    nonce = bytes(a ^ b for a, b in zip(iv, header.number.to_bytes(12), strict=True))
    try:
        return AESGCM(key).decrypt(nonce, packet.data[start:], head)
    except (InvalidTag, ValueError):
        return None


def initial_secret(original: bytes, *, from_server: bool) -> bytes:
    """Return a side's secret of Initial packets (RFC 9001, section 5.2)."""
    secret = HKDF.extract(hashes.SHA256(), INITIAL_SALT, original)
    return expand_label(secret, hashes.SHA256, "server in" if from_server else "client in", 32)


def expand_label(
    secret: bytes, algorithm: type[hashes.HashAlgorithm], label: str, size: int
) -> bytes:
    """Return HKDF-Expand-Label with an empty context (RFC 8446, section 7.1)."""
    name = f"tls13 {label}".encode()
    info = size.to_bytes(2) + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(algorithm(), size, info).derive(secret)


class Header(NamedTuple):
    """A header without its protection; `size` of the packet number, bytes."""

    first: int
    number: int
    size: int


def unprotected(data: bytes, number_at: int, key: bytes, suite: int) -> Header | None:
    """Remove header protection (RFC 9001, section 5.4).

    None if the packet was cut off before the end of its sample.
    """
    sample = data[number_at + 4 : number_at + 20]
    if len(sample) < 16:
        return None
    if suite == CHACHA20:
        mask = Cipher(algorithms.ChaCha20(key, sample), None).encryptor().update(bytes(5))
    else:
        mask = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(sample)  # noqa: S305 - as the RFC has it
    first = data[0] ^ (mask[0] & (0x0F if data[0] & 0x80 else 0x1F))
    size = (first & 3) + 1
    number = bytes(
        a ^ b for a, b in zip(data[number_at : number_at + size], mask[1:], strict=False)
    )
    return Header(first, int.from_bytes(number), size)


def _crypto_frames(plain: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and data of the CRYPTO frames of an Initial packet (RFC 9000, section 19)."""
    at = 0
    try:
        while at < len(plain):
            kind, at = varint(plain, at)
            if kind in (2, 3):
                at = _after_ack(plain, at, has_ecn=kind == 3)
            elif kind == 6:
                offset, at = varint(plain, at)
                length, at = varint(plain, at)
                yield offset, plain[at : at + length]
                at += length
            elif kind > 1:  # other than PADDING and PING: CONNECTION_CLOSE
                return
    except IndexError:
        return


def _after_ack(plain: bytes, at: int, *, has_ecn: bool) -> int:
    _, at = varint(plain, at)
    _, at = varint(plain, at)
    ranges, at = varint(plain, at)
    for _ in range(1 + 2 * ranges + 3 * has_ecn):
        _, at = varint(plain, at)
    return at


# --- key phases -----------------------------------------------------------------------------------


class HeaderKey(NamedTuple):
    """Key and cipher suite of the header protection of packets with a connection id."""

    connection_id: bytes
    key: bytes
    suite: int


def traffic_secrets(key_log: str) -> dict[tuple[bytes, bool], bytes]:
    """Return the first application secrets of a key log (NSS format) by client random and side
    (True: server).
    """
    names = {"CLIENT_TRAFFIC_SECRET_0": False, "SERVER_TRAFFIC_SECRET_0": True}
    found = {}
    for line in key_log.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in names:
            try:
                found[bytes.fromhex(words[1]), names[words[0]]] = bytes.fromhex(words[2])
            except ValueError:
                continue
    return found


def key_phases(
    datagrams: Sequence[tuple[bool, bytes]], key_log: str
) -> dict[bool, set[int]] | None:
    """Return the key phases of each side's short headers (True: server), over all connections.

    None if they are unknown: the key log lacks a connection, or its headers cannot be read.
    """
    secrets, found = traffic_secrets(key_log), handshakes(datagrams)
    phases: dict[bool, set[int]] = {False: set(), True: set()}
    for from_server in phases:
        keys = [_key_of(one, secrets, from_server=from_server) for one in found]
        heads = [
            payload
            for side, payload in datagrams
            if side is from_server and payload and not payload[0] & 0x80
        ]
        read = [_phase(head, [key for key in keys if key]) for head in heads]
        known = [phase for phase in read if phase is not None]
        if not found or None in keys or len(known) < MIN_VALID_SHARE * len(read):
            return None
        phases[from_server] = set(known)
    return phases


def _key_of(
    one: Handshake, secrets: Mapping[tuple[bytes, bool], bytes], *, from_server: bool
) -> HeaderKey | None:
    """Return the key of the packets that a side sends."""
    secret, suite = secrets.get((one.client_random, from_server)), one.suite
    if secret is None or suite is None or suite not in SUITES:
        return None
    algorithm, size = SUITES[suite]
    receiver_id = one.client_id if from_server else one.server_id
    return HeaderKey(receiver_id, expand_label(secret, algorithm, "quic hp", size), suite)


def _phase(data: bytes, keys: Sequence[HeaderKey]) -> int | None:
    """Return the key phase of a short header: its reserved bits must be zero (RFC 9000, section
    17.3.1).
    """
    for one in sorted(keys, key=lambda one: not data[1:].startswith(one.connection_id)):
        opened = unprotected(data, 1 + len(one.connection_id), one.key, one.suite)
        if opened is not None and not opened.first & 0x18:
            return opened.first >> 2 & 1
    return None
