# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence in the packets that a test case did what its name says. Without evidence an exit status
of 0 does not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.check.suite import Case
from satlab.check.trace import decrypted_packets, quic_frames, quic_handshake
from satlab.check.trace.captured_transfer import Address, CapturedTransfer
from satlab.check.trace.decrypted_packets import DecryptedPacket
from satlab.check.trace.quic_frames import EcnCounts
from satlab.check.trace.quic_headers import LONG_KINDS
from satlab.common import plain_files

KEY_LOG = "logs/keys.log"
MAX_KEY_LOG_BYTES = 1 << 20
"""Largest amount that is read, bytes."""
TAG_BYTES = 16
"""Tag of each protected packet, bytes (RFC 9001, section 5.3)."""


def fault(case: Case, wire: CapturedTransfer) -> str:
    """Return the first requirement of a case that the packets do not show; empty if they show
    all.
    """
    if case.resumed or case.early_data:
        found = quic_handshake.handshakes(wire.heads)
        if not found or not found[-1].is_resumed:
            return (
                "no session was resumed: no server accepted a pre-shared key in the last handshake"
            )
    return _early_data_fault(case, wire) if case.early_data else ""


def _early_data_fault(case: Case, wire: CapturedTransfer) -> str:
    """Judge as the QUIC interop runner does: there must be 0-RTT packets, and the 1-RTT packets
    must hold less than half of the requested names.
    """
    if not wire.count("0-rtt", from_server=False):
        return "no 0-RTT packet was sent"
    late = [
        one.size - TAG_BYTES
        for one in wire.datagrams
        if not one.from_server and one.is_data and len(one.kinds) < 2
    ]
    limit = case.name_length * len(case.file_sizes) // 2
    if sum(late) > limit:
        return (
            f"requests were not sent as early data: {sum(late)} bytes in 1-RTT packets, at most"
            f" {limit} expected"
        )
    return ""


def version_fault(wire: CapturedTransfer) -> str:
    """Return why the packets cannot be read; empty if they can.

    Most of the server's long headers must be of a known version: a client may try others first, and
    a packet may be damaged.
    """
    found = Counter(
        version
        for one in wire.datagrams
        if one.from_server
        for version in one.versions
        if version not in (0, *LONG_KINDS)
    )
    known = sum(
        version in LONG_KINDS
        for one in wire.datagrams
        if one.from_server
        for version in one.versions
    )
    if found.total() <= known:
        return ""
    [(version, _)] = found.most_common(1)
    return f"unknown version 0x{version:08x}: satlab reads QUIC versions 1 and 2"


# --- evidence that needs decryption ---------------------------------------------------------------


def key_phases(wire: CapturedTransfer, folders: Sequence[Path]) -> dict[str, set[int]] | None:
    """Return the key phases seen of each side (RFC 9001, section 6); None if no key log fits.
    `folders` are the programs' folders; one program may still run.
    """
    packets = decrypted_packets_of(wire, folders) or []
    found = {
        name: {
            one.key_phase
            for one in packets
            if one.kind == "1-rtt" and one.datagram.from_server is from_server
        }
        for name, from_server in (("client", False), ("server", True))
    }
    return found if all(found.values()) else None


@dataclass(frozen=True)
class EcnSeen:
    """The ECN marks of one sender: its packets by ECN field of the IP header, and the highest counts
    that its peer acknowledged (None: no ACK frame had counts).
    """

    marks: Mapping[int, int]
    acknowledged: EcnCounts | None


@dataclass(frozen=True)
class PathValidation:
    """Whether the server challenged a path, and whether the client answered on it (RFC 9000, section
    8.2).
    """

    challenged: bool
    answered: bool


@dataclass(frozen=True)
class PathSeen:
    """A further address of the client, and the time of its first packet."""

    client: Address
    first_s: float
    validation: PathValidation


def ecn_seen(wire: CapturedTransfer, folders: Sequence[Path]) -> dict[str, EcnSeen] | None:
    """Return the ECN marks of client and server; None if no key log fits."""
    packets = decrypted_packets_of(wire, folders)
    if packets is None:
        return None
    found = {}
    for name, from_server in (("client", False), ("server", True)):
        sent = [one for one in wire.datagrams if one.from_server is from_server]
        counts = [
            frame.ecn
            for packet in packets
            if packet.datagram.from_server is not from_server
            for frame in packet.frames
            if frame.ecn is not None
        ]
        highest = EcnCounts(*map(max, zip(*counts, strict=True))) if counts else None
        found[name] = EcnSeen(dict(Counter(one.ecn for one in sent)), highest)
    return found


def paths_seen(wire: CapturedTransfer, folders: Sequence[Path]) -> list[PathSeen] | None:
    """Return each address of the client after its first one; None if no key log fits."""
    packets = decrypted_packets_of(wire, folders)
    if packets is None:
        return None
    found = []
    for address in wire.client_addresses[1:]:
        seen = path_validation(one for one in packets if one.datagram.client == address)
        first_s = next(
            one.t_s for one in wire.datagrams if one.client == address and not one.from_server
        )
        found.append(PathSeen(address, first_s, seen))
    return found


def path_validation(packets: Iterable[DecryptedPacket]) -> PathValidation:
    """Read the frames of path validation in the packets of one path."""
    challenges, answers = set(), set()
    for packet in packets:
        for frame in packet.frames:
            if frame.kind == quic_frames.PATH_CHALLENGE and packet.datagram.from_server:
                challenges.add(frame.data)
            elif frame.kind == quic_frames.PATH_RESPONSE and not packet.datagram.from_server:
                answers.add(frame.data)
    return PathValidation(bool(challenges), bool(challenges & answers))


def decrypted_packets_of(
    wire: CapturedTransfer, folders: Sequence[Path]
) -> list[DecryptedPacket] | None:
    """Decrypt with the first key log that fits."""
    for folder in folders:
        text = plain_files.start_of(folder, KEY_LOG, MAX_KEY_LOG_BYTES)
        packets = None if text is None else decrypted_packets.decrypted(wire, text)
        if packets is not None:
            return packets
    return None
