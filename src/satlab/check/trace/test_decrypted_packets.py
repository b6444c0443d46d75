# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets that are decrypted with a key log, and the evidence of ECN and of path validation."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from satlab.check.trace import decrypted_packets, interop_evidence, quic_frames
from satlab.check.trace.captured_transfer import Address, CapturedTransfer, transfer_of
from satlab.check.trace.conftest import (
    CLIENT,
    CLIENT_PORT,
    PORT,
    SERVER,
    crypto,
    hello,
    initial,
    long_head,
    sealed,
    udp,
    varint,
)
from satlab.check.trace.interop_evidence import PathSeen, PathValidation
from satlab.check.trace.pcap import Packet
from satlab.check.trace.quic_frames import EcnCounts, Frame
from satlab.check.trace.quic_headers import VERSION_1, VERSION_2
from satlab.check.trace.quic_protection import (
    AES_128,
    AES_256,
    CHACHA20,
    SUITES,
    PacketKeys,
    next_secret,
    packet_keys,
)

MS = 1_000_000
C, S, FIRST = b"client-1", b"server-1", b"original"
PING = b"\x01"
ACK = b"\x02\x07\x00\x01\x00\x02\x03"
"""Of two ranges."""


class Built:
    """A connection that is built packet by packet, 1 ms apart."""

    def __init__(
        self, suite: int = AES_128, versions: tuple[int, int] = (VERSION_1, VERSION_1)
    ) -> None:
        self.suite, (start, self.version) = suite, versions
        size = SUITES[suite].algorithm.digest_size
        self.secrets = {
            (kind, side): bytes([number]) * size
            for number, (kind, side) in enumerate(
                (kind, side) for kind in ("handshake", "1-rtt") for side in (False, True)
            )
        }
        self.packets: list[Packet] = []
        self.add(
            initial(C, FIRST, hello(1, 5, suite=suite), from_server=False, original=FIRST,
                    version=start), from_server=False)  # fmt: skip
        self.add(
            initial(S, C, hello(2, 9, suite=suite), from_server=True, original=FIRST,
                    version=self.version), from_server=True)  # fmt: skip

    def add(
        self, payload: bytes, *, from_server: bool, port: int = CLIENT_PORT, ecn: int = 0
    ) -> None:
        t_ns = (1000 + len(self.packets)) * MS
        self.packets.append(
            udp(payload, t_ns=t_ns, from_server=from_server, client_port=port, ecn=ecn)
        )

    def keys(self, kind: str, *, from_server: bool, updates: int = 0) -> PacketKeys:
        secret = self.secrets[kind, from_server]
        first = packet_keys(secret, self.suite, self.version)
        for _ in range(updates):
            secret = next_secret(secret, self.suite, self.version)
        keys = packet_keys(secret, self.suite, self.version)
        return keys._replace(header_key=first.header_key)

    def short(
        self,
        frames: bytes,
        number: int,
        *,
        from_server: bool,
        to: bytes | None = None,
        updates: int = 0,
        port: int = CLIENT_PORT,
        ecn: int = 0,
    ) -> None:
        head = b"\x40" + (to or (C if from_server else S))
        keys = self.keys("1-rtt", from_server=from_server, updates=updates)
        payload = sealed(head, frames, keys, number, phase=updates % 2)
        self.add(payload, from_server=from_server, port=port, ecn=ecn)

    @property
    def key_log(self) -> str:
        names = {"handshake": "HANDSHAKE_TRAFFIC_SECRET", "1-rtt": "TRAFFIC_SECRET_0"}
        lines = [
            f"{'SERVER' if side else 'CLIENT'}_{names[kind]} {(bytes([5]) * 32).hex()} {one.hex()}"
            for (kind, side), one in self.secrets.items()
        ]
        return "\n".join(["# comment", "BROKEN x", *lines, ""])

    @property
    def wire(self) -> CapturedTransfer:
        found = transfer_of(self.packets, SERVER, PORT)
        assert found is not None
        return found

    def folders(self, folder: Path) -> list[Path]:
        """Return an endpoint without a key log, and one with it."""
        for name, text in (("a", "nothing"), ("b", self.key_log)):
            (folder / name / "logs").mkdir(parents=True)
            (folder / name / interop_evidence.KEY_LOG).write_text(text)
        return [folder / "none", folder / "a", folder / "b"]


def new_connection_id(name: bytes) -> bytes:
    return b"\x18\x01\x00" + bytes([len(name)]) + name + bytes(16)


@pytest.mark.parametrize("suite", [AES_128, AES_256, CHACHA20])
@pytest.mark.parametrize("versions", [(VERSION_1, VERSION_1), (VERSION_1, VERSION_2)])
def test_packets_are_decrypted_with_the_key_log(suite: int, versions: tuple[int, int]) -> None:
    """Coalesced, padded, after key updates and under other connection ids."""
    built = Built(suite, versions)
    keys = built.keys("handshake", from_server=True)
    handshake = sealed(long_head("handshake", S, C, built.version), crypto(b"data"), keys, 3)
    one = sealed(b"\x40" + C, PING, built.keys("1-rtt", from_server=True), 0)
    built.add(handshake + one, from_server=True)
    built.short(new_connection_id(b"next"), 1, from_server=False)
    for updates in range(4):
        built.short(PING, 20_000 * updates + 2, from_server=True, to=b"next", updates=updates)
        built.short(ACK, 2 + updates, from_server=False, updates=updates)
    built.add(b"\x40" + S + os.urandom(60), from_server=False)
    found = decrypted_packets.decrypted(built.wire, built.key_log)
    assert found is not None
    ends = [(one.kind, one.number, one.key_phase) for one in found]
    assert ends[:5] == [
        ("initial", 7, 0),
        ("initial", 7, 0),
        ("handshake", 3, 0),
        ("1-rtt", 0, 0),
        ("1-rtt", 1, 0),
    ]
    assert ends[5::2] == [("1-rtt", 20_000 * n + 2, n % 2) for n in range(4)]
    assert ends[6::2] == [("1-rtt", 2 + n, n % 2) for n in range(4)]
    assert found[2].frames == (Frame(quic_frames.CRYPTO, b"data"),)
    assert found[4].frames == (Frame(quic_frames.NEW_CONNECTION_ID, b"next"),)
    assert decrypted_packets.decrypted(built.wire, "") is None
    other = built.key_log.replace((bytes([5]) * 32).hex(), (bytes([6]) * 32).hex())
    assert decrypted_packets.decrypted(built.wire, other) is None


def test_a_packet_that_was_not_captured_whole_is_not_decrypted() -> None:
    built = Built()
    built.short(PING + bytes(100), 1, from_server=True)
    last = built.packets[-1]
    built.packets[-1] = Packet(last.t_ns, last.length, last.head[:80])
    found = decrypted_packets.decrypted(built.wire, built.key_log)
    assert found is not None and [one.kind for one in found] == ["initial", "initial"]


def test_an_id_that_no_frame_gave_is_tried_with_the_length_of_the_others() -> None:
    """That of the server's preferred address is in its transport parameters."""
    built = Built()
    built.short(PING, 1, from_server=True)
    built.short(PING, 1, from_server=False, to=b"prefered")
    built.short(PING, 2, from_server=False, to=b"of another length")
    found = decrypted_packets.decrypted(built.wire, built.key_log)
    assert found is not None
    assert [(one.kind, one.number) for one in found[2:]] == [("1-rtt", 1), ("1-rtt", 1)]


@pytest.mark.parametrize(
    ("plain", "kinds"),
    [
        (b"\0\0\x01\0", [1]),
        (ACK + PING, [2, 1]),
        (b"\x03\x07\x00\x00\x00\x05\x01\x02", [3]),
        (crypto(b"abc") + b"\x07\x02to" + PING, [6, 7, 1]),
        (b"\x0f\x00\x00\x03abc" + b"\x0a\x04\x01a" + b"\x08\x04rest", [15, 10, 8]),
        (b"\x04\x00\x01\x02\x05\x00\x01\x10\x09\x11\x00\x09\x12\x09", [4, 5, 16, 17, 18]),
        (new_connection_id(b"12345678") + b"\x19\x00\x1e", [0x18, 0x19, 0x1E]),
        (b"\x1a12345678\x1b12345678", [0x1A, 0x1B]),
        (b"\x1c\x00\x00\x03bye", [0x1C]),
        (b"\x31\x02ab\x30rest", [0x31, 0x30]),
        (b"\x40\xaf\x01\x02\x03\x04" + varint(0x2F5) + b"\x05" + PING, [0xAF, 0x2F5, 1]),
        (b"\x01\x1a1234", [1]),  # ends within a frame
        (b"\x01\x02\x07\x00\x7f\xff\x00", [1]),  # more ranges than bytes
        (b"\x01\x3f\x01", [1]),  # unknown: what follows cannot be found
    ],
)
def test_frames_are_told_apart(plain: bytes, kinds: list[int]) -> None:
    assert [one.kind for one in quic_frames.frames(plain)] == kinds


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [(0, 0), (1, 1), (1, 0)])
@pytest.mark.parametrize("versions", [(VERSION_1, VERSION_1), (VERSION_1, VERSION_2)])
def test_key_phases_are_those_of_decrypted_packets(
    updates: tuple[int, int], versions: tuple[int, int], tmp_path: Path
) -> None:
    built = Built(versions=versions)
    folders = built.folders(tmp_path)
    assert interop_evidence.key_phases(built.wire, folders) is None, "nothing was sent"
    for side, count in zip((False, True), updates, strict=True):
        for number in range(count + 1):
            built.short(PING, number, from_server=side, updates=number)
    # A bit alone, without the keys of the next phase, is no key update.
    built.add(b"\x44" + S + bytes(60), from_server=False)
    seen = [set(range(count + 1)) for count in updates]
    found = interop_evidence.key_phases(built.wire, folders)
    assert found == {"client": seen[0], "server": seen[1]}
    assert interop_evidence.key_phases(built.wire, folders[:2]) is None


def acked(ect0: int, ect1: int = 0, ce: int = 0) -> bytes:
    return b"\x03\x07\x00\x00\x00" + bytes([ect0, ect1, ce])


def test_ecn_marks_and_counts_are_seen_on_both_sides(tmp_path: Path) -> None:
    built = Built(CHACHA20)
    built.short(PING, 1, from_server=False, ecn=2)
    built.short(acked(3), 1, from_server=True, ecn=2)
    built.short(acked(2, 0, 1), 2, from_server=False, ecn=2)
    built.short(acked(4), 2, from_server=True, ecn=3)
    found = interop_evidence.ecn_seen(built.wire, built.folders(tmp_path))
    assert found is not None
    assert (found["client"].marks, found["server"].marks) == ({0: 1, 2: 2}, {0: 1, 2: 1, 3: 1})
    assert found["client"].acknowledged == EcnCounts(4, 0, 0)
    assert found["server"].acknowledged == EcnCounts(2, 0, 1)
    assert interop_evidence.ecn_seen(built.wire, []) is None


def test_without_counts_nothing_was_acknowledged(tmp_path: Path) -> None:
    built = Built()
    built.short(ACK, 1, from_server=True, ecn=1)
    found = interop_evidence.ecn_seen(built.wire, built.folders(tmp_path))
    assert found is not None
    assert found["client"].acknowledged is found["server"].acknowledged is None
    assert found["server"].marks == {0: 1, 1: 1}


CHALLENGE, RESPONSE = b"\x1a12345678", b"\x1b12345678"
Step = Callable[[Built], None]


def after(frames: bytes, number: int, *, from_server: bool, port: int = 50007) -> Step:
    return lambda built: built.short(frames, number, from_server=from_server, port=port)


@pytest.mark.parametrize(
    ("steps", "challenged", "answered"),
    [
        ([], False, False),
        ([after(CHALLENGE, 2, from_server=True)], True, False),
        (
            [after(CHALLENGE, 2, from_server=True), after(RESPONSE, 3, from_server=False)],
            True,
            True,
        ),
        (  # other data
            [
                after(CHALLENGE, 2, from_server=True),
                after(b"\x1b87654321", 3, from_server=False),
            ],
            True,
            False,
        ),
        (  # on the old path
            [
                after(CHALLENGE, 2, from_server=True, port=CLIENT_PORT),
                after(RESPONSE, 3, from_server=False, port=CLIENT_PORT),
            ],
            False,
            False,
        ),
        (  # the client's challenge is not the server's
            [after(CHALLENGE, 3, from_server=False), after(RESPONSE, 2, from_server=True)],
            False,
            False,
        ),
    ],
)
def test_each_further_path_is_seen_with_its_validation(
    steps: list[Step], challenged: bool, answered: bool, tmp_path: Path
) -> None:
    built = Built()
    built.short(PING, 1, from_server=True)
    built.short(PING, 1, from_server=False)
    assert interop_evidence.paths_seen(built.wire, built.folders(tmp_path)) == []
    first_s = len(built.packets) / 1000
    built.short(PING, 2, from_server=False, port=50007)
    for step in steps:
        step(built)
    [found] = interop_evidence.paths_seen(built.wire, [tmp_path / "b"]) or []
    assert replace(found, first_s=round(found.first_s, 6)) == PathSeen(
        Address(CLIENT, 50007), first_s, PathValidation(challenged, answered)
    )


def test_transport_parameters_of_the_server_are_read() -> None:
    built = Built()
    parameters = b"\x08\x02\x43\xe8" + b"\x40\x04\x01\x09"
    extensions = b"\x00\x10\x00\x00" + b"\x00\x39" + len(parameters).to_bytes(2) + parameters
    body = len(extensions).to_bytes(2) + extensions
    message = b"\x08" + len(body).to_bytes(3) + body
    keys = built.keys("handshake", from_server=True)
    for number, (start, end) in enumerate([(9, len(message)), (0, 9)]):
        head = long_head("handshake", S, C)
        built.add(sealed(head, crypto(message[start:end], start), keys, number), from_server=True)
    found = decrypted_packets.decrypted(built.wire, built.key_log)
    assert found is not None
    assert decrypted_packets.transport_parameters(found) == {8: b"\x43\xe8", 4: b"\x09"}
    assert decrypted_packets.transport_parameters(found[:3]) == {}


# --- hostile input --------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["", "00", "00" * 5, "00" * 200])
def test_secrets_of_any_length_decrypt_nothing(secret: str) -> None:
    built = Built()
    built.short(PING, 1, from_server=True)
    own = built.secrets["1-rtt", True].hex()
    found = decrypted_packets.decrypted(built.wire, built.key_log.replace(own, secret))
    assert [one.kind for one in found or []] in ([], ["initial", "initial"])


@pytest.mark.parametrize("seed", range(30))
def test_damaged_packets_are_left_out(seed: int) -> None:
    """Programs under test choose every byte of their packets, and of the key log."""
    source = random.Random(seed)  # noqa: S311
    built = Built(source.choice([AES_128, CHACHA20]))
    for number in range(5):
        built.short(new_connection_id(b"next"), number, from_server=bool(number % 2))
    whole = decrypted_packets.decrypted(built.wire, built.key_log)
    assert whole is not None and len(whole) == 7
    damaged = set()
    for at in source.sample(range(2, 7), 3):
        packet = built.packets[at]
        data = bytearray(packet.head)
        data[source.randrange(28, len(data))] ^= 1 << source.randrange(8)
        cut = source.choice([len(data), source.randrange(28, len(data))])
        built.packets[at] = Packet(packet.t_ns, packet.length, bytes(data[:cut]))
        damaged.add(at)
    found = decrypted_packets.decrypted(built.wire, built.key_log)
    assert found is not None
    kept = [one for at, one in enumerate(whole) if at not in damaged]
    assert [(one.kind, one.number, one.frames) for one in found] == [
        (one.kind, one.number, one.frames) for one in kept
    ]
    mangled = bytearray(built.key_log.encode())
    mangled[source.randrange(len(mangled))] ^= 1
    decrypted_packets.decrypted(built.wire, mangled.decode(errors="replace"))
