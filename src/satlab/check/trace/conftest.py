# SPDX-License-Identifier: GPL-3.0-or-later
"""QUIC packets and IP packets for tests, with and without protection."""

import struct
from ipaddress import IPv4Address

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from satlab.check.trace.pcap import Packet
from satlab.check.trace.quic_headers import LONG_KINDS, VERSION_1, LongKind
from satlab.check.trace.quic_protection import (
    CHACHA20,
    VERSIONS,
    PacketKeys,
    header_mask,
    initial_keys,
)

CLIENT, SERVER, PORT = IPv4Address("198.18.1.2"), IPv4Address("198.18.4.2"), 4433
CLIENT_PORT = 50000
ORIGINAL = bytes.fromhex("8394c8f03e515708")
"""The connection id that the client of RFC 9001, appendix A, began with."""


def varint(value: int) -> bytes:
    return (0x4000 | value).to_bytes(2, "big")


def long_head(
    kind: LongKind, source: bytes, destination: bytes, version: int = VERSION_1, token: bytes = b""
) -> bytes:
    """Return a long header up to its length field."""
    types = LONG_KINDS.get(version, LONG_KINDS[VERSION_1])
    head = bytes([0xC0 | types.index(kind) << 4]) + version.to_bytes(4)
    head += bytes([len(destination)]) + destination + bytes([len(source)]) + source
    return head + (varint(len(token)) + token if kind == "initial" else b"")


def long_packet(
    kind: LongKind,
    source: bytes,
    size: int,
    token: bytes = b"",
    *,
    destination: bytes = b"dest",
    version: int = VERSION_1,
) -> bytes:
    """Return a packet of `size` bytes after its header, all of them 0x99."""
    return long_head(kind, source, destination, version, token) + varint(size) + b"\x99" * size


def short_packet(destination: bytes = b"dest", size: int = 40, first: int = 0x41) -> bytes:
    """Return a 1-RTT packet of `size` bytes after its connection id, all of them 0x99."""
    return bytes([first]) + destination + b"\x99" * size


def retry(original: bytes, source: bytes, destination: bytes, token: bytes, version: int) -> bytes:
    """Return a Retry with its tag (RFC 9001, section 5.8)."""
    head = long_head("retry", source, destination, version) + token
    keys = VERSIONS[version]
    pseudo = bytes([len(original)]) + original + head
    return head + AESGCM(keys.retry_key).encrypt(keys.retry_nonce, b"", pseudo)


def sealed(head: bytes, frames: bytes, keys: PacketKeys, number: int, *, phase: int = 0) -> bytes:
    """Return a protected packet with a packet number of two bytes. `head`: all before the length of
    a long header, or all before the packet number of a short header.
    """
    frames = frames.ljust(4, b"\0")
    is_long = bool(head[0] & 0x80)
    if is_long:
        head += varint(2 + len(frames) + 16)
    first = head[0] | 1 | phase << 2
    whole = bytes([first]) + head[1:] + number.to_bytes(4)[2:]
    nonce = bytes(a ^ b for a, b in zip(keys.iv, number.to_bytes(12), strict=True))
    cipher = ChaCha20Poly1305(keys.key) if keys.suite == CHACHA20 else AESGCM(keys.key)
    data = whole + cipher.encrypt(nonce, frames, whole)
    at = len(head)
    mask = header_mask(data[at + 4 : at + 20], keys.header_key, keys.suite)
    protected = bytes(a ^ b for a, b in zip(data[at : at + 2], mask[1:3], strict=True))
    first ^= mask[0] & (0x0F if is_long else 0x1F)
    return bytes([first]) + data[1:at] + protected + data[at + 2 :]


def crypto(data: bytes, offset: int = 0) -> bytes:
    """Return a CRYPTO frame."""
    return b"\x06" + varint(offset) + varint(len(data)) + data


def initial(
    own: bytes,
    peer: bytes,
    message: bytes,
    *,
    from_server: bool,
    original: bytes = ORIGINAL,
    version: int = VERSION_1,
    token: bytes = b"",
    number: int = 7,
) -> bytes:
    """Return a protected Initial packet with an ACK and a CRYPTO frame at offset 0."""
    keys = initial_keys(original, version, from_server=from_server)
    head = long_head("initial", own, peer, version, token)
    return sealed(head, b"\x02\x00\x00\x00\x00" + crypto(message), keys, number)


def hello(kind: int, own: int, *extensions: int, suite: int = 0x1301) -> bytes:
    """Return a ClientHello (its random) or ServerHello with empty extensions."""
    body = b"\x03\x03" + bytes([own]) * 32 + b"\0"
    listed = b"".join(one.to_bytes(2) + b"\0\0" for one in extensions)
    chosen = suite.to_bytes(2) + b"\0" if kind == 2 else b"\0\x02" + suite.to_bytes(2) + b"\x01\0"
    body += chosen + len(listed).to_bytes(2) + listed
    return bytes([kind]) + len(body).to_bytes(3) + body


def udp(
    payload: bytes,
    *,
    t_ns: int,
    from_server: bool = True,
    cut: int | None = None,
    client_port: int = CLIENT_PORT,
    ecn: int = 0,
) -> Packet:
    """Return an IPv4 packet."""
    addresses = (SERVER, CLIENT) if from_server else (CLIENT, SERVER)
    ports = (PORT, client_port) if from_server else (client_port, PORT)
    length = 28 + len(payload)
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        ecn,
        length,
        0,
        0,
        64,
        17,
        0,
        *(address.packed for address in addresses),
    )
    data = head + struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload
    return Packet(t_ns, length, data[:cut])
