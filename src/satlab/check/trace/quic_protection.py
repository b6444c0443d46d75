# SPDX-License-Identifier: GPL-3.0-or-later
"""Protection of QUIC packets (RFC 9001, section 5; RFC 9369, section 3.3): keys from secrets,
header protection, decryption.

Initial packets are protected with keys that anybody can derive (RFC 9001, section 5.2): ClientHello
and ServerHello are readable without secrets.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from satlab.check.trace.quic_headers import VERSION_1, VERSION_2, QuicPacket

AES_128, AES_256, CHACHA20 = 0x1301, 0x1302, 0x1303
"""Cipher suites of TLS 1.3 that QUIC can use (RFC 8446, appendix B.4)."""


class _Suite(NamedTuple):
    """Hash, and bytes of the keys."""

    algorithm: type[hashes.SHA256] | type[hashes.SHA384]
    key_bytes: int


SUITES: Mapping[int, _Suite] = {
    AES_128: _Suite(hashes.SHA256, 16),
    AES_256: _Suite(hashes.SHA384, 32),
    CHACHA20: _Suite(hashes.SHA256, 32),
}


class _Version(NamedTuple):
    """Salt of Initial secrets, first word of the labels, key and nonce of a Retry's tag."""

    salt: bytes
    label: str
    retry_key: bytes
    retry_nonce: bytes


VERSIONS: Mapping[int, _Version] = {
    VERSION_1: _Version(
        bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"),
        "quic",
        bytes.fromhex("be0c690b9f66575a1d766b54e368c84e"),
        bytes.fromhex("461599d35d632bf2239825bb"),
    ),
    VERSION_2: _Version(
        bytes.fromhex("0dede3def700a6db819381be6e269dcbf9bd2ed9"),
        "quicv2",
        bytes.fromhex("8fb4b01b56ac48e260fbcbcead7ccc92"),
        bytes.fromhex("d86969bc2d7c6d9990efb04a"),
    ),
}
"""RFC 9001, sections 5.2 and 5.8; RFC 9369, section 3.3."""


class PacketKeys(NamedTuple):
    """Keys of the packets that a side sends at one level of encryption."""

    suite: int
    key: bytes
    iv: bytes
    header_key: bytes


class Header(NamedTuple):
    """A header without its protection; `size` of the packet number, bytes."""

    first: int
    number: int
    size: int


class OpenedPacket(NamedTuple):
    """A decrypted packet: first byte without protection, packet number, frames."""

    first: int
    number: int
    plain: bytes


def initial_secret(original: bytes, *, from_server: bool, version: int = VERSION_1) -> bytes:
    """Return a side's secret of Initial packets. `original`: the connection id that the client
    began with, or that of a Retry.
    """
    secret = HKDF.extract(hashes.SHA256(), VERSIONS[version].salt, original)
    return expand_label(secret, hashes.SHA256, "server in" if from_server else "client in", 32)


@functools.lru_cache(maxsize=256)
def initial_keys(original: bytes, version: int, *, from_server: bool) -> PacketKeys:
    secret = initial_secret(original, from_server=from_server, version=version)
    return packet_keys(secret, AES_128, version)


def packet_keys(secret: bytes, suite: int, version: int) -> PacketKeys:
    """Return the keys of a secret."""
    algorithm, key_bytes = SUITES[suite]
    label = VERSIONS[version].label
    key, iv, header_key = (
        expand_label(secret, algorithm, f"{label} {name}", size)
        for name, size in (("key", key_bytes), ("iv", 12), ("hp", key_bytes))
    )
    return PacketKeys(suite, key, iv, header_key)


def next_secret(secret: bytes, suite: int, version: int) -> bytes:
    """Return the secret after a key update (RFC 9001, section 6.1)."""
    return expand_label(
        secret, SUITES[suite].algorithm, f"{VERSIONS[version].label} ku", len(secret)
    )


def expand_label(
    secret: bytes, algorithm: type[hashes.HashAlgorithm], label: str, size: int
) -> bytes:
    """Return HKDF-Expand-Label with an empty context (RFC 8446, section 7.1)."""
    name = f"tls13 {label}".encode()
    info = size.to_bytes(2) + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(algorithm(), size, info).derive(secret)


def unprotected(data: bytes, number_at: int, key: bytes, suite: int) -> Header | None:
    """Remove header protection (RFC 9001, section 5.4).

    None if the packet was cut off before the end of its sample.
    """
    sample = data[number_at + 4 : number_at + 20]
    if len(sample) < 16:
        return None
    mask = header_mask(sample, key, suite)
    first = data[0] ^ (mask[0] & (0x0F if data[0] & 0x80 else 0x1F))
    size = (first & 3) + 1
    number = bytes(
        a ^ b for a, b in zip(data[number_at : number_at + size], mask[1:], strict=False)
    )
    return Header(first, int.from_bytes(number), size)


def header_mask(sample: bytes, key: bytes, suite: int) -> bytes:
    """Return the bytes that header protection adds: the first to the first byte of the packet, the
    others to the packet number.
    """
    if suite == CHACHA20:
        return Cipher(algorithms.ChaCha20(key, sample), None).encryptor().update(bytes(5))
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(sample)  # noqa: S305 - as the RFC has it


def opened(
    data: bytes,
    number_at: int,
    keys: PacketKeys,
    largest: int = -1,
    updated: PacketKeys | None = None,
) -> OpenedPacket | None:
    """Decrypt a packet; None if other keys protect it, or it is cut off.

    `largest` packet number so far (-1: none). `updated`: the keys of short headers with key phase
    1.
    """
    header = unprotected(data, number_at, keys.header_key, keys.suite)
    if header is None:
        return None
    if updated is not None and not header.first & 0x80 and header.first & 4:
        keys = updated
    start = number_at + header.size
    number = _whole_number(header, largest)
    head = bytes([header.first]) + data[1:number_at] + header.number.to_bytes(header.size)
    nonce = bytes(a ^ b for a, b in zip(keys.iv, number.to_bytes(12), strict=True))
    cipher = ChaCha20Poly1305(keys.key) if keys.suite == CHACHA20 else AESGCM(keys.key)
    try:
        return OpenedPacket(header.first, number, cipher.decrypt(nonce, data[start:], head))
    except (InvalidTag, ValueError):
        return None


def _whole_number(header: Header, largest: int) -> int:
    """Return the packet number that is nearest to the expected one (RFC 9000, appendix A.3)."""
    window = 1 << (8 * header.size)
    number = ((largest + 1) & -window) | header.number
    if number + window // 2 <= largest + 1:
        return number + window
    if number > largest + 1 + window // 2 and number >= window:
        return number - window
    return number


def is_valid_retry(packet: QuicPacket, original: bytes) -> bool:
    """Return whether a Retry answers a client's Initial packet to `original` (RFC 9001, section
    5.8).
    """
    if packet.version is None or packet.version not in VERSIONS or len(packet.data) < 16:
        return False
    version = VERSIONS[packet.version]
    pseudo = bytes([len(original)]) + original + packet.data[:-16]
    return packet.data[-16:] == AESGCM(version.retry_key).encrypt(version.retry_nonce, b"", pseudo)
