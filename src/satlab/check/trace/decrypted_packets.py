# SPDX-License-Identifier: GPL-3.0-or-later
"""QUIC packets of a capture decrypted with a key log, and what their frames say.

A packet is decrypted only if the whole of it was captured.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from satlab.check.trace import quic_frames, quic_handshake
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram
from satlab.check.trace.quic_frames import Frame
from satlab.check.trace.quic_handshake import Handshake
from satlab.check.trace.quic_headers import Kind, QuicPacket, quic_packets, varint
from satlab.check.trace.quic_protection import (
    SUITES,
    VERSIONS,
    OpenedPacket,
    PacketKeys,
    next_secret,
    opened,
    packet_keys,
)

_SECRETS: Mapping[str, tuple[Kind, bool]] = {
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET": ("handshake", False),
    "SERVER_HANDSHAKE_TRAFFIC_SECRET": ("handshake", True),
    "CLIENT_TRAFFIC_SECRET_0": ("1-rtt", False),
    "SERVER_TRAFFIC_SECRET_0": ("1-rtt", True),
}
"""Lines of a key log (NSS format), for the kind of packet and whether the server sends it."""
Secrets = Mapping[tuple[bytes, Kind, bool], bytes]
"""By client random, kind of packet, and whether the server sends it."""


@dataclass(frozen=True)
class DecryptedPacket:
    """A packet of a datagram. `key_phase` is that of 1-RTT packets."""

    datagram: Datagram
    kind: Kind
    number: int
    key_phase: int
    frames: tuple[Frame, ...]


class _Level(NamedTuple):
    """Keys of a side at one level of encryption, and those after the last key update."""

    secret: bytes
    keys: PacketKeys
    updated: PacketKeys


@dataclass
class _Connection:
    """A connection whose keys are known: its ids by receiver (True: the server), its levels, and
    the largest packet number of each.
    """

    handshake: Handshake
    ids: dict[bool, set[bytes]] = field(default_factory=lambda: {False: set(), True: set()})
    largest: dict[tuple[Kind, bool], int] = field(default_factory=dict)
    levels: dict[tuple[Kind, bool], _Level] = field(default_factory=dict)


def decrypted(wire: CapturedTransfer, key_log: str) -> list[DecryptedPacket] | None:
    """Return the packets that can be decrypted: Initial, Handshake and 1-RTT packets.

    None if the key log has the keys of no connection.
    """
    secrets, known = secrets_of(key_log), quic_handshake.handshakes(wire.heads)
    connections = [_Connection(one) for one in known if _has_keys(one, secrets)]
    if not connections:
        return None
    for one in connections:
        one.ids[False].add(one.handshake.client_id)
        one.ids[True] |= {one.handshake.original, one.handshake.server_id}
    found: list[DecryptedPacket] = []
    initials: list[Handshake] = []
    for datagram in wire.datagrams:
        for packet in quic_packets(datagram.payload, datagram.size):
            initial = quic_handshake.take(initials, packet, from_server=datagram.from_server)
            if initial is not None:
                _, read = initial
                frames = tuple(quic_frames.frames(read.plain))
                found.append(DecryptedPacket(datagram, "initial", read.number, 0, frames))
            elif packet.kind in ("handshake", "1-rtt"):
                found += _opened(datagram, packet, connections, secrets)
    return found


def secrets_of(key_log: str) -> Secrets:
    """Return the secrets of a key log."""
    found = {}
    for line in key_log.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in _SECRETS:
            kind, from_server = _SECRETS[words[0]]
            try:
                found[bytes.fromhex(words[1]), kind, from_server] = bytes.fromhex(words[2])
            except ValueError:
                continue
    return found


def _has_keys(one: Handshake, secrets: Secrets) -> bool:
    """Whether the key log has both sides' secrets of 1-RTT packets."""
    sides = ((one.client_random, "1-rtt", side) for side in (False, True))
    return one.suite in SUITES and one.version in VERSIONS and all(key in secrets for key in sides)


def _opened(
    datagram: Datagram,
    packet: QuicPacket,
    connections: Sequence[_Connection],
    secrets: Secrets,
) -> Iterator[DecryptedPacket]:
    """Yield the packet with its frames, if a connection has its keys."""
    side = datagram.from_server
    for one in connections:
        is_only = len(connections) == 1
        for number_at in _number_positions(packet, one.ids[not side], is_only=is_only):
            read = _read(one, packet, number_at, secrets, from_server=side)
            if read is None:
                continue
            frames = tuple(quic_frames.frames(read.plain))
            # The receiver of a packet may use the connection ids that it is given.
            one.ids[side] |= {
                frame.data for frame in frames if frame.kind == quic_frames.NEW_CONNECTION_ID
            }
            phase = read.first >> 2 & 1 if packet.kind == "1-rtt" else 0
            yield DecryptedPacket(datagram, packet.kind, read.number, phase, frames)
            return


def _number_positions(packet: QuicPacket, ids: set[bytes], *, is_only: bool) -> list[int]:
    """Return where the packet number may start: a short header does not say how long its connection
    id is.

    If no known id fits and there is only one connection, the id may be as long as one of them: the
    server's preferred address brings an id, and a packet with a new id may not have been captured.
    """
    if packet.version is not None:
        is_known = packet.number_at is not None and packet.destination in ids
        return [packet.number_at] if is_known and packet.number_at is not None else []
    fitting = {name for name in ids if packet.data[1:].startswith(name)}
    tried = fitting or (ids if is_only else set())
    return sorted({1 + len(name) for name in tried}, reverse=True)


def _read(
    one: _Connection, packet: QuicPacket, number_at: int, secrets: Secrets, *, from_server: bool
) -> OpenedPacket | None:
    """Decrypt a packet of a connection; follow a key update."""
    place = (packet.kind, from_server)
    level = one.levels.get(place) or _first_level(one, secrets, place)
    if level is None:
        return None
    one.levels[place] = level
    largest = one.largest.get(place, -1)
    read = opened(packet.data, number_at, level.keys, largest, level.updated)
    if read is None and packet.kind == "1-rtt":
        later = _updated_twice(level, one.handshake.version)
        read = opened(packet.data, number_at, later.keys, largest, later.updated)
        if read is not None:
            one.levels[place] = later
    if read is not None:
        one.largest[place] = max(largest, read.number)
    return read


def _first_level(one: _Connection, secrets: Secrets, place: tuple[Kind, bool]) -> _Level | None:
    """Return the keys of the key log: those of key phase 0 and of the key phase 1 after it."""
    secret, suite = secrets.get((one.handshake.client_random, *place)), one.handshake.suite
    if secret is None or suite is None:
        return None
    version = one.handshake.version
    keys = packet_keys(secret, suite, version)
    after = packet_keys(next_secret(secret, suite, version), suite, version)
    return _Level(secret, keys, after._replace(header_key=keys.header_key))


@functools.lru_cache(maxsize=256)
def _updated_twice(level: _Level, version: int) -> _Level:
    """Return the keys of the next two key phases. The key of header protection stays (RFC 9001,
    section 6.1).
    """
    suite = level.keys.suite
    second = next_secret(next_secret(level.secret, suite, version), suite, version)
    third = next_secret(second, suite, version)
    keys, after = (
        packet_keys(secret, suite, version)._replace(header_key=level.keys.header_key)
        for secret in (second, third)
    )
    return _Level(second, keys, after)


# --- transport parameters -------------------------------------------------------------------------

ENCRYPTED_EXTENSIONS, QUIC_TRANSPORT_PARAMETERS = 8, 57
"""RFC 8446, section 4; RFC 9001, section 8.2."""


def server_handshake(packets: Sequence[DecryptedPacket]) -> dict[int, bytes]:
    """Return the data of a server's Handshake packets by offset."""
    return {
        frame.offset: frame.data
        for packet in packets
        if packet.kind == "handshake" and packet.datagram.from_server
        for frame in packet.frames
        if frame.kind == quic_frames.CRYPTO
    }


def transport_parameters(packets: Sequence[DecryptedPacket]) -> dict[int, bytes]:
    """Return a server's transport parameters (RFC 9000, section 18.2) from its EncryptedExtensions;
    empty if they were not captured.
    """
    for kind, body in quic_handshake.messages(server_handshake(packets)):
        extensions = quic_handshake.extensions(body[2:]) if kind == ENCRYPTED_EXTENSIONS else {}
        if QUIC_TRANSPORT_PARAMETERS in extensions:
            return _parameters(extensions[QUIC_TRANSPORT_PARAMETERS])
    return {}


def _parameters(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    try:
        while at < len(data):
            name, at = varint(data, at)
            size, at = varint(data, at)
            found[name] = data[at : at + size]
            at += size
    except IndexError:
        return {}
    return found
