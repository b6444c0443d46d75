# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a sample that come from its endpoints' qlog files: losses, retransmissions, first
byte, and the sender's states by the client's clock.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from satlab.check.samples import Sample, UnusedSource
from satlab.check.trace import careful_resume, qlog, qlog_reader
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.qlog_transfer import QlogTransfer, SenderPoint

FILE = "qlog.json"
"""File in a sample's folder: states and flows of the server, by the client's clock."""
MIN_COMPLETE_SHARE = 0.9
"""Share of the payload that the qlog of a complete transfer must contain. A program that is killed
loses its last lines.
"""
QlogReader = Callable[[Path, qlog.Side, int], QlogTransfer]
"""Reads the newest file of a folder (`qlog_reader.newest`)."""
Figures = dict[str, tuple[Any, str]]
"""Fields of a sample: value and source."""


def add(
    sample: Sample,
    folders: Mapping[str, Path],
    size: int,
    folder: Path,
    wire: CapturedTransfer,
    one_way_s: float,
    read: QlogReader = qlog_reader.newest,
) -> Sample:
    """Add the figures of qlog files to the sample of a download of `size` bytes; the sample's own
    figures stay.

    `folders` hold the qlog files, by side; without any, the sample is returned unchanged. After
    several connections the newest file, of the last one, is read. The server's states are written
    to FILE in `folder`. `one_way_s` is the delay of the idle link from the client to the server.
    """
    if not folders:
        return sample
    figures: Figures = {}
    warnings = []
    # The client first: its completion ends the server's states.
    for name, qlog_folder in sorted(folders.items()):
        side = cast("qlog.Side", name)
        try:
            transfer = _open(read, qlog_folder, side, size, is_complete=sample.status == "ok")
        except QlogError as error:
            warnings.append(UnusedSource(error.kind, side, str(error)))
            continue
        source = f"qlog of the {side}{transfer.counts.text}"
        if side == "server":
            values = {
                "lost_packets": transfer.reported_lost_packets,
                "retransmitted_share": transfer.retransmitted_share,
            }
            known = {name: value for name, value in values.items() if value is not None}
            figures |= {name: (value, source) for name, value in known.items()}
            later_s = _later_s(transfer, wire, one_way_s)
            transfer.points = _with_rtt_in_ms(transfer.points, one_way_s * 1000)
            if _write_states(transfer, folder, wire, later_s, sample.times_s[-1]):
                figures["spent_s"] = (None, f"{source}, link")
            sample = _resumed(sample, transfer, later_s, source)
        else:
            sent_s, received_s = transfer.first_sent_s, transfer.first_stream_received_s
            if sent_s is not None and received_s is not None:
                first_s = wire.last_start_s + received_s - sent_s
                figures["time_to_first_byte_ms"] = (first_s * 1000, source)
            sample = _completed(sample, transfer, size, wire.last_start_s, source)
    if "time_to_first_byte_ms" not in figures and wire.first_byte_s is not None:
        figures["time_to_first_byte_ms"] = (wire.first_byte_s * 1000, "packets")
    figures = {name: figure for name, figure in figures.items() if getattr(sample, name) is None}
    sources = {**sample.sources, **{name: source for name, (_, source) in figures.items()}}
    return replace(
        sample,
        **{name: value for name, (value, _) in figures.items()},
        sources=sources,
        warnings=tuple(reversed(warnings)),
    )


def _open(
    read: QlogReader, folder: Path, side: qlog.Side, size: int, *, is_complete: bool
) -> QlogTransfer:
    """Read the newest qlog file of a folder.

    Raises:
        QlogError: there is no file, it cannot be used, or it does not belong to the captured
        transfer.
    """
    transfer = read(folder, side, size)
    if transfer.sent_packets == 0 and transfer.first_received_s is None:
        raise QlogError("does not fit", "it has no packets, so its times have no place on the link")
    if side == "server" and is_complete and transfer.payload_bytes < MIN_COMPLETE_SHARE * size:
        unit = "of streams" if transfer.has_frames else "in packets"
        raise QlogError(
            "does not fit", f"it has {transfer.payload_bytes:.0f} bytes {unit}, {size} arrived"
        )
    return transfer


def _completed(
    sample: Sample, transfer: QlogTransfer, size: int, start_s: float, source: str
) -> Sample:
    """Return the sample with the completion time of the client's qlog, if the qlog has every byte
    of the payload.
    """
    sent_s, complete_s = transfer.first_sent_s, transfer.last_new_received_s
    if (
        sample.status != "ok"
        or sent_s is None
        or complete_s is None
        or transfer.received_bytes < size
    ):
        return sample
    times = (*sample.times_s[:-1], start_s + complete_s - sent_s)
    return replace(sample, times_s=times, sources={"times_s": f"packets, the last one: {source}"})


def _later_s(transfer: QlogTransfer, wire: CapturedTransfer, one_way_s: float) -> float | None:
    """Return by how much the client's clock is ahead of the server's, s; None if the server
    received no packet.

    The offset is chosen so that neither the client's first packet nor its first packet with a short
    header arrives before it was sent and had crossed the link.
    """
    handshake_s = wire.handshake_s if len(wire.server_ids) < 2 else None  # of the first connection
    pairs = [
        (wire.last_start_s, transfer.first_received_s),
        (handshake_s, transfer.first_short_received_s),
    ]
    known = [
        sent - received for sent, received in pairs if sent is not None and received is not None
    ]
    return one_way_s + max(known) if known and transfer.first_received_s is not None else None


def _resumed(sample: Sample, transfer: QlogTransfer, later_s: float | None, source: str) -> Sample:
    """Return the sample with the phases of Careful Resume, unless the programs report them."""
    found = careful_resume.of_events(transfer.resumption, later_s or 0.0)
    if found is None or sample.careful_resume is not None:
        return sample
    sources = {**sample.sources, "careful_resume": source}
    words = (*sample.symptoms, *careful_resume.symptoms(found))
    return replace(sample, careful_resume=found, symptoms=words, sources=sources)


def _write_states(
    transfer: QlogTransfer,
    folder: Path,
    wire: CapturedTransfer,
    later_s: float | None,
    end_s: float | None,
) -> bool:
    """Write the states to FILE, by the client's clock, which starts with its first packet. Writes
    nothing and returns False if the states are unknown.

    The states end with the last payload byte (`end_s`), or with the last packet if that byte never
    arrived: satperf's endpoints exchange results after the payload.
    """
    requested_s = transfer.first_stream_received_s or transfer.first_short_received_s
    last_s = max((one.t_s for one in wire.arrivals), default=0.0) if end_s is None else end_s
    if later_s is None or requested_s is None or not transfer.points:
        return False
    points = [asdict(point) | {"t_s": point.t_s + later_s} for point in transfer.points]
    document = {
        "start_unix_s": wire.start_unix_s,
        "asked_s": requested_s + later_s,
        "end_s": last_s,
        "points": points,
        "flows": [asdict(flow.shifted(later_s)) for flow in transfer.flows],
    }
    (folder / FILE).write_text(json.dumps(document))
    return True


def _with_rtt_in_ms(points: list[SenderPoint], one_way_ms: float) -> list[SenderPoint]:
    """Return the points with RTTs in ms, for a writer that logs seconds (quinn 0.11): no RTT can be
    shorter than the idle link's delay.
    """
    largest = max((one.rtt_ms for one in points), default=0.0)
    if not 0 < largest < one_way_ms:
        return points
    return [replace(one, rtt_ms=one.rtt_ms * 1000) for one in points]
