# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs from outside tell beyond their times: their qlog, joined with the packets at the client's interface."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from satlab.check.endpoint.pair import CLIENT, SERVER, EndpointPair, TransferRequest
from satlab.check.samples import Sample, UnusedSource
from satlab.check.trace import qlog, qlog_transfer
from satlab.check.trace.pcap import CapturedTransfer
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.qlog_transfer import QlogTransfer

FILE = "qlog.json"
"""In the folder of a sample: what was read of the server's qlog, by the client's clock."""
WHOLE = 0.9
"""Share of a payload that a qlog must tell of: a program that is ended loses the last of what it writes."""
Figures = dict[str, tuple[Any, str]]
"""Fields of a sample: value, and where it is from."""


def add(
    found: Sample, ends: EndpointPair, request: TransferRequest, folder: Path, wire: CapturedTransfer, one_way_s: float
) -> Sample:
    """Add first byte, bytes sent again and losses to the sample of a download, and leave the sender's states in FILE.

    `one_way_s` is what a packet takes from the client to the server over the idle link.
    """
    figures: Figures = {}
    warnings = []
    places = {side: place for side in (SERVER, CLIENT) if (place := ends.qlog(request, side)) is not None}
    if not places:
        return found
    for side, place in places.items():
        try:
            told = _read(place, side, request, wire, is_whole=found.status == "ok")
        except QlogError as error:
            warnings.append(UnusedSource(error.kind, side, str(error)))
            continue
        if side == SERVER:
            figures |= _of_server(told)
            figures |= _states(told, folder, wire, one_way_s, found.times_s[-1])
        else:
            figures |= _of_client(told)
    if "time_to_first_byte_ms" not in figures and wire.first_byte_s is not None:
        figures["time_to_first_byte_ms"] = (wire.first_byte_s * 1000, "packets")
    figures = {name: figure for name, figure in figures.items() if getattr(found, name) is None}
    return replace(
        found, **{name: value for name, (value, _) in figures.items()},
        sources={name: source for name, (_, source) in figures.items()}, warnings=tuple(warnings),
    )  # fmt: skip


def _read(place: Path, side: str, request: TransferRequest, wire: CapturedTransfer, *, is_whole: bool) -> QlogTransfer:
    """Read an end's qlog of the connection whose packets these are.

    Raises:
        QlogError: there is none that can be used.
    """
    file = qlog.newest(place)
    if file is None:
        raise QlogError("missing", "it left none")
    if len(wire.server_ids) > 1:
        raise QlogError("does not fit", f"the packets are of {len(wire.server_ids)} connections")
    log = qlog.opened(file)
    if log.side != side:
        raise QlogError("does not fit", f"it says it is the {log.side}'s")
    told = qlog_transfer.read(log, request.size)
    if side == SERVER and is_whole and told.new_bytes < WHOLE * request.size:
        raise QlogError("does not fit", f"it tells of {told.new_bytes:.0f} bytes of streams, {request.size} came")
    return told


def _of_client(told: QlogTransfer) -> Figures:
    sent, came = told.sent_s, told.stream_received_s
    if sent is None or came is None:
        return {}
    return {"time_to_first_byte_ms": ((came - sent) * 1000, "qlog of the client")}


def _of_server(told: QlogTransfer) -> Figures:
    values = {"lost_packets": told.told_lost_packets, "retransmitted_share": told.retransmitted_share}
    return {name: (value, "qlog of the server") for name, value in values.items() if value is not None}


def _states(told: QlogTransfer, folder: Path, wire: CapturedTransfer, one_way_s: float, end_s: float | None) -> Figures:
    """Leave the sender's states by the client's clock, which starts with its first packet; none where they are unknown.

    They last until the payload was there, `end_s`, or to the last packet where it never was: satperf's ends go on to
    talk of what they have measured. The server's clock is set so that no packet of the client came before it was sent
    and had passed the link: neither the first one nor the first with a short header.
    """
    asked_s = told.stream_received_s or told.short_received_s
    last_s = max((one.t_s for one in wire.arrivals), default=0.0) if end_s is None else end_s
    if told.received_s is None or asked_s is None or not told.points:
        return {}
    pairs = [(0.0, told.received_s), (wire.handshake_s, told.short_received_s)]
    later_s = one_way_s + max(sent - came for sent, came in pairs if sent is not None and came is not None)
    states = [asdict(point) | {"t_s": point.t_s + later_s} for point in told.points]
    document = {"start_unix_s": wire.start_unix_s, "asked_s": asked_s + later_s, "end_s": last_s, "points": states}
    (folder / FILE).write_text(json.dumps(document))
    return {"spent_s": (None, "qlog of the server, link")}
