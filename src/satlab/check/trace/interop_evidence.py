# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence in the packets that a test case did what its name says. Without evidence an exit status
of 0 does not count.
"""

from collections.abc import Sequence
from pathlib import Path

from satlab.check.suite import Case
from satlab.check.trace import quic_handshake
from satlab.check.trace.captured_transfer import CapturedTransfer
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


def key_phases(wire: CapturedTransfer, folders: Sequence[Path]) -> dict[str, set[int]] | None:
    """Return the key phases seen of each side, by the first key log that fits; None if none fits.
    `folders` are the programs' folders; one program may still run.
    """
    for folder in folders:
        text = plain_files.start_of(folder, KEY_LOG, MAX_KEY_LOG_BYTES)
        phases = None if text is None else quic_handshake.key_phases(wire.heads, text)
        if phases is not None:
            return {"client": phases[False], "server": phases[True]}
    return None
