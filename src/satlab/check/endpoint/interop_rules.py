# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the QUIC interop runner's test cases: what the packets must show besides complete
files (its testcases_quic.py, `check` of each class).

A client's packets are judged at the client's interface, a server's at the server's, so that the
link between them does not count.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path

from satlab.check.endpoint.pair import CLIENT, SERVER
from satlab.check.suite import Case
from satlab.check.trace import (
    decrypted_packets,
    interop_evidence,
    quic_frames,
    quic_handshake,
    quic_headers,
)
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.decrypted_packets import DecryptedPacket
from satlab.check.trace.interop_evidence import PathSeen
from satlab.check.trace.quic_handshake import Handshake
from satlab.check.trace.quic_headers import VERSION_1, VERSION_2, Kind, QuicPacket
from satlab.check.trace.quic_protection import CHACHA20, OpenedPacket

INITIAL_MAX_STREAMS_BIDI = 0x08
MIN_LARGE_HANDSHAKE_BYTES = 7500
"""Of the server's handshake with a large certificate: less was not that certificate."""
AMPLIFICATION, TOLERATED_AMPLIFICATION = 3, 4
"""RFC 9000, section 8.1; and the factor up to which the interop runner lets a server pass."""
CE = 3


class NoKeyLogError(Exception):
    """A rule needs decrypted packets, and no key log fits."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} cannot be read: no key log that fits the packets")


@dataclass(frozen=True)
class Evidence:
    """The packets of a test case; `folders` are the programs' folders with their key logs."""

    case: Case
    wire: CapturedTransfer
    folders: Sequence[Path]
    round_trip_s: float = 0.6

    @property
    def at_server(self) -> CapturedTransfer:
        return self.wire.at_server or self.wire

    @cached_property
    def server_packets(self) -> Sequence[DecryptedPacket]:
        """The decrypted packets at the server's interface. Raises NoKeyLogError."""
        found = interop_evidence.decrypted_packets_of(self.at_server, self.folders)
        if found is None:
            raise NoKeyLogError("packets of the server")
        return found


def fault(of: Evidence) -> str:
    """Return the first rule that the packets break; empty if they keep all.

    Raises:
        NoKeyLogError: a rule needs decrypted packets, and no key log fits.
    """
    return next(filter(None, (rule(of) for rule in RULES)), "")


def _handshakes(of: Evidence) -> str:
    """Count as the interop runner does: connection ids of the server's Initial packets."""
    found, expected = of.at_server.handshakes, of.case.handshakes
    if expected is None or found == expected:
        return ""
    return f"{found} handshakes, {expected} expected"


def _retry(of: Evidence) -> str:
    has_retry = bool(of.wire.count("retry", from_server=True))
    if of.case.retry is None or not (of.case.retry or has_retry):
        return ""
    if not of.case.retry:
        return "a Retry was sent"
    if not has_retry:
        return "no Retry was sent"
    if not any(one.was_retried and one.token for one in quic_handshake.handshakes(of.wire.heads)):
        return "no Initial packet had the token of the Retry"
    before = max(
        (read.number for packet, read in _initials(of.wire) if not packet.token), default=-1
    )
    after = (read.number for packet, read in _initials(of.wire) if packet.token)
    if next(after, before + 1) <= before:
        return "the client reset its packet numbers after the Retry"
    return ""


def _initials(wire: CapturedTransfer) -> Iterator[tuple[QuicPacket, OpenedPacket]]:
    """Yield the client's Initial packets that can be decrypted."""
    known: list[Handshake] = []
    for one in wire.datagrams:
        for packet in quic_headers.quic_packets(one.payload, one.size):
            read = quic_handshake.take(known, packet, from_server=one.from_server)
            if read is not None and not one.from_server:
                yield packet, read[1]


def _version(of: Evidence) -> str:
    """All is in version 1, unless the case is about version 2."""
    if of.case.version2:
        return _version2(of)
    if not of.case.test:
        return ""
    seen = _versions(of.at_server, "initial", from_server=True)
    if seen == {VERSION_1}:
        return ""
    return f"the server's Initial packets have {_named(seen)}, version 1 alone expected"


def _version2(of: Evidence) -> str:
    first = _versions(of.wire, "initial", from_server=False)
    if VERSION_1 not in first:
        return f"the client began with {_named(first)}, version 1 expected"
    answer = _versions(of.at_server, "initial", from_server=True)
    if VERSION_2 not in answer:
        return f"the server's Initial packets have {_named(answer)}, version 2 expected"
    for side, wire in ((CLIENT, of.wire), (SERVER, of.at_server)):
        seen = _versions(wire, "handshake", from_server=side == SERVER)
        if seen != {VERSION_2}:
            return f"the {side}'s Handshake packets have {_named(seen)}, version 2 alone expected"
    return ""


def _versions(wire: CapturedTransfer, kind: Kind, *, from_server: bool) -> set[int]:
    """Return the versions of a side's packets of a kind of long header."""
    return {
        version
        for one in wire.datagrams
        if one.from_server is from_server
        for found, version in zip(
            (known for known in one.kinds if known != "1-rtt"), one.versions, strict=False
        )
        if found == kind
    }


def _named(versions: set[int]) -> str:
    return " and ".join(f"version {quic_version(one)}" for one in sorted(versions)) or "no version"


def quic_version(version: int) -> str:
    """Return 1, 2 or the number in hexadecimal."""
    return {VERSION_1: "1", VERSION_2: "2"}.get(version, f"{version:#x}")


def _early_data(of: Evidence) -> str:
    return interop_evidence.fault(of.case, of.wire)


def _key_update(of: Evidence) -> str:
    if not of.case.key_update:
        return ""
    phases = interop_evidence.key_phases(of.wire, of.folders)
    if phases is None:
        raise NoKeyLogError("key phases")
    idle = [side for side, seen in phases.items() if 1 not in seen]
    return f"no key update: the {idle[0]} sent no packet of key phase 1" if idle else ""


def _cipher(of: Evidence) -> str:
    if of.case.cipher is None:
        return ""
    offered = [one.offered_suites for one in quic_handshake.handshakes(of.wire.heads)]
    if not any(offered):
        return "no ClientHello was captured"
    other = {suite for suites in offered for suite in suites} - {CHACHA20}
    if other:
        return f"the client offered {', '.join(f'{one:#06x}' for one in sorted(other))} besides ChaCha20"
    return ""


def _client_hellos(of: Evidence) -> str:
    """Count the CRYPTO frames that begin a ClientHello. A stack may need two packets for one."""
    expected = of.case.client_hellos
    if expected is None:
        return ""
    found = sum(
        any(
            frame.kind == quic_frames.CRYPTO and not frame.offset
            for frame in quic_frames.frames(read.plain)
        )
        for _, read in _initials(of.wire)
    )
    if found >= expected:
        return ""
    return f"the ClientHello was sent {found} times, at least {expected} expected"


def _max_streams(of: Evidence) -> str:
    most = of.case.max_streams
    if most is None:
        return ""
    limit = decrypted_packets.transport_parameters(of.server_packets).get(INITIAL_MAX_STREAMS_BIDI)
    try:
        granted, _ = quic_headers.varint(limit or b"", 0)
    except IndexError:
        return "the server's transport parameters have no limit of streams"
    return (
        f"the server granted {granted} streams at once, at most {most} expected"
        if granted > most
        else ""
    )


def _ecn(of: Evidence) -> str:
    if not of.case.ecn:
        return ""
    sides = {CLIENT: of.wire, SERVER: of.at_server}
    for side, wire in sides.items():
        seen = interop_evidence.ecn_seen(wire, of.folders)
        if seen is None:
            raise NoKeyLogError("reports of ECN marks")
        marks = seen[side].marks
        if not marks.get(1, 0) + marks.get(2, 0):
            return f"the {side} marked no packet ECT(0) or ECT(1)"
        if marks.get(CE, 0):
            return f"the {side} sent packets that were marked CE"
        if seen[side].acknowledged is None:
            return f"the marks of the {side} were not reported: no ACK frame had ECN counts"
    return ""


def _ipv6(of: Evidence) -> str:
    if of.case.host != "server6":
        return ""
    count = sum(
        isinstance(one.client and one.client.ip, IPv4Address) for one in of.at_server.datagrams
    )
    return f"{count} packets were of IPv4" if count else ""


def _paths(of: Evidence) -> str:
    """Judge the new paths of a client behind a NAT, or of one that migrates."""
    if of.case.rebinding is None:
        return ""
    found = interop_evidence.paths_seen(of.at_server, of.folders)
    if found is None:
        raise NoKeyLogError("path validation")
    addresses = of.at_server.client_addresses
    if len(addresses) < 2:
        return "the server saw one address and port of the client alone"
    if of.case.rebinding.address and len({one.ip for one in addresses}) < 2:
        return "the server saw one address of the client alone"
    # A path of the last round trip may carry the end of the connection alone, or its answer is late.
    end_s = max(one.t_s for one in of.at_server.datagrams if not one.from_server) - of.round_trip_s
    used = [path for path in found if path.first_s < end_s]
    if not used:
        return "the client's new path came too late to be validated"
    return next(filter(None, map(_path_fault, used)), "")


def _path_fault(path: PathSeen) -> str:
    where = f"{path.client.ip} port {path.client.port}"
    if not path.validation.challenged:
        return f"the server did not validate the client's new path: no PATH_CHALLENGE to {where}"
    if not path.validation.answered:
        return f"the client did not answer the PATH_CHALLENGE to {where}"
    return ""


def _migration(of: Evidence) -> str:
    """Judge a change to the server's preferred address (RFC 9000, section 9.6)."""
    if not of.case.migrated:
        return ""
    sent = [one for one in of.wire.datagrams if not one.from_server]
    servers = list(dict.fromkeys(one.server for one in sent))
    if len(servers) < 2:
        return "the client did not change to another address of the server"
    first = next(number for number, one in enumerate(sent) if one.server == servers[1])
    found = quic_handshake.handshakes(of.wire.heads)
    size = 1 + (len(found[-1].server_id) if found else 0)
    before, after = (sent[number].payload[1:size] for number in (first - 1, first))
    if before == after:
        return "the client kept the connection id at the server's other address"
    path = interop_evidence.path_validation(
        one for one in of.server_packets if one.datagram.server == servers[1]
    )
    if not path.challenged:
        return "the server did not validate the path from its other address: no PATH_CHALLENGE"
    return "" if path.answered else "the client did not answer the PATH_CHALLENGE"


def _amplification(of: Evidence) -> str:
    """Judge what the server sends until the client's first Handshake packet arrives."""
    if not of.case.large_certificate:
        return ""
    size = len(quic_handshake.joined(decrypted_packets.server_handshake(of.server_packets)))
    if size < MIN_LARGE_HANDSHAKE_BYTES:
        return f"the server did not use the large certificate: its handshake has {size} bytes"
    received = sent = 0
    for one in of.at_server.datagrams:
        if one.from_server:
            sent += one.size
            if sent > TOLERATED_AMPLIFICATION * received:
                return (
                    f"the server sent {sent} bytes when it had received {received}, at most"
                    f" {AMPLIFICATION} times as much is allowed"
                )
        elif "handshake" in one.kinds:
            return ""
        elif "initial" in one.kinds:
            received += one.size
    return "the client sent no Handshake packet"


RULES: Sequence[Callable[[Evidence], str]] = (
    _handshakes,
    _version,
    _retry,
    _early_data,
    _key_update,
    _cipher,
    _client_hellos,
    _max_streams,
    _ecn,
    _ipv6,
    _paths,
    _migration,
    _amplification,
)
