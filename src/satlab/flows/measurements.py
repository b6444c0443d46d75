# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of a flow, by stack: satperf's lines, qlog of ngtcp2 and picoquic, `ss` of TCP, and
all packets.

Files that programs wrote have limits, and links are not followed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from satlab.check.sandboxed_program import ExitReport, read_json_lines
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.qlog_transfer import QlogTransfer
from satlab.common import install
from satlab.flows import connection_migration, qlog_files
from satlab.flows.endpoint_commands import Place
from satlab.flows.packet_counts import AtInterface
from satlab.flows.qlog_files import QlogReader
from satlab.flows.tcp_states import TcpState
from satlab.flows.time_series import Level, Seen, Total


@dataclass
class FlowRun:
    """How the programs of a flow ran. Times are s since time 0; None: it never happened.

    `gone`: side and report of the program that ended before the flow did. `refused`: the reason why
    the flow never began.
    """

    place: Place
    stop_s: float
    gone: tuple[str, ExitReport] | None = None
    gone_s: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class Measured:
    """Measurements of all flows. `interfaces`: by side and port; `zero_unix_s`: time 0."""

    zero_unix_s: float
    interfaces: Mapping[str, Mapping[int, AtInterface]]
    tcp: Mapping[int, Mapping[str, list[TcpState]]]
    missed_packets: int = 0
    qlog: QlogReader = qlog_files.read


def read(run: FlowRun, measured: Measured) -> Seen:
    """Return the measurements of a flow, and how it ended."""
    place = run.place
    seen = Seen(sources={"received, sent": "packets at the interfaces of both ends"})
    if measured.missed_packets:
        seen.sources["received, sent"] += (
            f", of which {measured.missed_packets} of all flows were missed"
        )
    _add_packets(seen, place, measured)
    _READERS[place.flow["stack"]](seen, run, measured)
    judge(seen, run)
    _add_migrations(seen, place, measured)
    return seen


def judge(seen: Seen, run: FlowRun) -> None:
    """Decide how a flow ended, unless its program has reported a failure."""
    asked = run.place.flow.get("bytes")
    if seen.status == "failed":
        seen.ended_s = min(seen.ended_s or run.gone_s or run.stop_s, run.stop_s)
    elif run.refused:
        seen.failed(run.refused, run.place.flow["start_s"])
    elif asked is not None and seen.payload.end >= asked:
        seen.ended_s = min(seen.payload.reached(asked) or run.stop_s, run.stop_s)
    elif run.gone is not None:
        side, report = run.gone
        reason = report.reason or "it ended before its time"
        seen.failed(f"the {side}: {reason}", min(run.gone_s or run.stop_s, run.stop_s))
    elif not seen.payload.end:
        seen.failed(seen.unread or "nothing arrived until the end", run.stop_s)
    else:
        seen.ended_s = run.stop_s
        if asked is not None:
            seen.status, seen.reason = "censored", "not complete at the end"


def _add_packets(seen: Seen, place: Place, measured: Measured) -> None:
    at_sender = measured.interfaces[place.sender][place.port].of(place.sender)
    at_receiver = measured.interfaces[place.receiver][place.port]
    arrived = at_receiver.of(place.sender)
    seen.sent_packets, seen.received_packets = at_sender.packets, arrived.packets
    seen.acks = at_receiver.of(place.receiver).packets
    seen.sent_bytes = at_sender.payload_bytes
    times = [at - measured.zero_unix_s for at in arrived.total.times]
    seen.received = Total(times, list(arrived.total.values))
    first_unix_s = measured.interfaces["client"][place.port].from_client.first_unix_s
    seen.began_s = None if first_unix_s is None else max(0.0, first_unix_s - measured.zero_unix_s)


def _add_migrations(seen: Seen, place: Place, measured: Measured) -> None:
    """Note when the client took another address. The flow fails if a change it asked for is missing."""
    asked = place.flow.get("migrate_s", [])
    clients = measured.interfaces["server"][place.port].clients
    runs = [(at - measured.zero_unix_s, str(IPv4Address(source))) for at, source in clients]
    found = connection_migration.arrivals(runs, asked, place.addresses["client"])
    seen.moved_s = [round(at, 6) for at in found if at is not None]
    end_s = (seen.ended_s or place.flow["start_s"]) - connection_migration.LATE_S
    missing = [
        at for at, arrived in zip(asked, found, strict=True) if arrived is None and at < end_s
    ]
    if missing:
        seen.failed(f"no packet from the address that its client takes at {missing[0]:g} s arrived")


# --- satperf --------------------------------------------------------------------------------------


def _satperf(seen: Seen, run: FlowRun, measured: Measured) -> None:
    place = run.place
    lines = {side: read_json_lines(place.output(side)) for side in ("server", "client")}
    own = {
        side: [line for line in found if line.get("side") == side] for side, found in lines.items()
    }
    starts = {
        side: next((one for one in found if one["type"] == "start"), None)
        for side, found in own.items()
    }
    ends = {
        side: next((one for one in found if one["type"] == "summary"), None)
        for side, found in own.items()
    }
    names = [str(start["stack"]) for start in starts.values() if start]
    seen.library = names[0] if names else f"satperf {place.flow['stack']}"
    for side, start in starts.items():
        if start is not None:
            later_s = start["t_unix_s"] - measured.zero_unix_s
            intervals = [one for one in own[side] if one["type"] == "interval"]
            add = _received if side == place.receiver else _sent
            add(seen, intervals, later_s)
    receiver, sender, client = (
        ends[side] or {} for side in (place.receiver, place.sender, "client")
    )
    seen.acks = receiver.get("acks_sent") or seen.acks
    seen.sent_bytes = sender.get("sent_bytes", seen.sent_bytes)
    seen.lost_bytes = sender.get("lost_bytes", 0)
    seen.sent_packets = sender.get("sent_packets") or seen.sent_packets
    names_of = {"payload": place.receiver, "window, RTT, losses": place.sender}
    seen.sources |= {name: f"satperf at the {side}" for name, side in names_of.items()}
    _outcome_of(seen, client, receiver)


def _outcome_of(seen: Seen, client: Mapping[str, Any], receiver: Mapping[str, Any]) -> None:
    """Take a failure that satperf reports."""
    is_timeout = str(client.get("reason", "")).startswith("timeout after")
    is_stopped = str(client.get("reason", "")).startswith("interrupted")
    if client.get("status", "ok") != "ok" and not is_timeout and not is_stopped:
        seen.failed(str(client["reason"]))
    elif receiver.get("data_equal") is False:
        seen.failed("the received data differs from the sent data")


def _received(seen: Seen, intervals: list[dict[str, Any]], later_s: float) -> None:
    total = 0
    seen.payload.add(later_s, 0)
    for line in intervals:
        total += line["bytes"]
        seen.payload.add(later_s + line["t_s"], total)


def _sent(seen: Seen, intervals: list[dict[str, Any]], later_s: float) -> None:
    lost = 0
    for line in intervals:
        lost += line["lost_packets"]
        at_s = later_s + line["t_s"]
        seen.cwnd.add(at_s, line["cwnd_bytes"])
        seen.rtt.add(at_s, line["rtt_ms"])
        seen.lost.add(at_s, lost)


# --- qlog -----------------------------------------------------------------------------------------


def _by_qlog(seen: Seen, run: FlowRun, measured: Measured) -> None:
    place = run.place
    origin = f" of {install.picoquic_archive()}" if place.flow["stack"] == "picoquic" else ""
    seen.library = f"{place.flow['stack']}{origin}, {place.flow['congestion_control']}"
    for side in (place.sender, place.receiver):
        name = "window, RTT, losses" if side == place.sender else "payload"
        try:
            transfer = measured.qlog(place, side)
        except QlogError as error:
            why = f"qlog of the {side}: {error}"
            seen.sources[name] = f"none: {why}"
            if side == place.receiver and seen.received_packets:
                seen.unread = f"what arrived cannot be read: {why}"
            continue
        later_s = _later_s(transfer, place, side, measured)
        if later_s is None:
            seen.sources[name] = f"none: no packet of the client at the {side}"
            continue
        seen.sources[name] = f"qlog of the {side}{transfer.counts.text}"
        if side == place.sender:
            _states(seen, transfer, later_s)
        else:
            for t_s, total in transfer.arrivals:
                seen.payload.add(later_s + t_s, total)


def _later_s(transfer: QlogTransfer, place: Place, side: str, measured: Measured) -> float | None:
    """Return the offset of the times in a qlog file, s, by the client's first packet: it is in the
    file and was captured at the interface.
    """
    seen_unix_s = measured.interfaces[side][place.port].from_client.first_unix_s
    in_file_s = transfer.first_received_s if side == "server" else transfer.first_sent_s
    return (
        None
        if seen_unix_s is None or in_file_s is None
        else seen_unix_s - measured.zero_unix_s - in_file_s
    )


def _states(seen: Seen, transfer: QlogTransfer, later_s: float) -> None:
    for point in transfer.points:
        at_s = later_s + point.t_s
        seen.cwnd.add(at_s, point.cwnd_bytes)
        seen.rtt.add(at_s, point.rtt_ms)
        seen.lost.add(at_s, point.lost_packets)
    seen.sent_bytes, seen.lost_bytes = int(transfer.stream_bytes), int(transfer.retransmitted_bytes)
    seen.sent_packets = transfer.sent_packets


# --- TCP and datagrams ----------------------------------------------------------------------------


def _tcp(seen: Seen, run: FlowRun, measured: Measured) -> None:
    place = run.place
    states = measured.tcp.get(place.port, {"server": [], "client": []})
    seen.library = f"TCP of the kernel, {place.flow['congestion_control']}"
    seen.sources |= {
        "payload": f"ss at the {place.receiver}",
        "window, RTT, losses": f"ss at the {place.sender}",
    }
    # iperf3 has a connection before the one with the payload.
    seen.began_s = next(
        (one.t_unix_s - measured.zero_unix_s for one in states["client"]), seen.began_s
    )
    for one in states[place.receiver]:
        seen.payload.add(one.t_unix_s - measured.zero_unix_s, one.number("bytes_received"))
    cwnd, rtt, lost = Level(), Level(), Total()
    for one in states[place.sender]:
        at_s = one.t_unix_s - measured.zero_unix_s
        cwnd.add(at_s, one.number("cwnd") * one.number("mss"))
        rtt.add(at_s, one.number("rtt"))
        lost.add(at_s, one.retransmitted)
        seen.sent_bytes = max(seen.sent_bytes, int(one.number("bytes_sent")))
        seen.lost_bytes = max(seen.lost_bytes, int(one.number("bytes_retrans")))
    seen.cwnd, seen.rtt, seen.lost = cwnd, rtt, lost


def _udp(seen: Seen, run: FlowRun, measured: Measured) -> None:
    place = run.place
    seen.library = "datagrams at a constant rate"
    seen.payload = seen.received
    arrived = measured.interfaces[place.receiver][place.port].of(place.sender)
    seen.lost_bytes = max(0, seen.sent_bytes - arrived.payload_bytes)
    seen.sources["payload"] = seen.sources["received, sent"]
    seen.acks = 0


_READERS: Mapping[str, Callable[[Seen, FlowRun, Measured], None]] = {
    "quinn": _satperf,
    "quiche": _satperf,
    "noq": _satperf,
    "ngtcp2": _by_qlog,
    "picoquic": _by_qlog,
    "tcp": _tcp,
    "udp": _udp,
}
