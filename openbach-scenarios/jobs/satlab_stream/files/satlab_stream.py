#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: send a stream of RTP packets at a constant rate; `receive` on one node, then `send`
on another.

The receiver reports one-way delay, jitter (RFC 3550, section 6.4.1), losses and, for a voice codec,
the quality by the E-model (ITU-T G.107). One-way delays need clocks that agree: the nodes of the
embedded lab share one. Exit statuses: 0 done, 1 nothing came or the file was not stored, 2
arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import math
import struct
import sys
import syslog
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import collect_agent
from jobkit import Stopped, argument_parser, ignore_stops, real, run_job, store_json, whole
from udp_stream import add_sides, receiving, run_side, send_delays, send_ends, sending

HEADER = struct.Struct("!BBHIIQI")
"""RTP (RFC 3550, section 5.1): version, payload type, sequence number, timestamp, SSRC. Then the
payload: time of sending, ns since the epoch, and packets of the stream so far.
"""
VERSION, END_TYPE = 0x80, 127
MAX_PACKETS = 1_000_000
MAX_BYTES = 1400


@dataclass(frozen=True)
class Codec:
    """A voice codec: bytes and ms of speech in a packet, algorithmic delay ms, Ie and Bpl of ITU-T
    G.113 appendix I.
    """

    payload_type: int
    payload_bytes: int
    packet_ms: float
    delay_ms: float
    ie: float
    bpl: float


CODECS = {
    "g711": Codec(0, 160, 20.0, 0.0, 0.0, 4.3),
    "g711-plc": Codec(0, 160, 20.0, 0.0, 0.0, 25.1),
    "g729a": Codec(18, 20, 20.0, 5.0, 11.0, 19.0),
    "g7231": Codec(4, 24, 30.0, 7.5, 15.0, 16.1),
}
R_DEFAULT = 93.2
"""R0 - Is with the default values of ITU-T G.107, table 2 (2015)."""


@dataclass
class Reception:
    """The packets received of one stream, in the order of arrival: sequence number, times of
    sending and receiving in ns.
    """

    arrivals: list[tuple[int, int, int]] = field(default_factory=list)
    announced: int | None = None
    duplicates: int = 0
    jitter_ms: float = 0.0
    _seen: set[int] = field(default_factory=set)
    _transit_ms: float | None = None

    def take(self, sequence: int, sent_ns: int, received_ns: int) -> bool:
        """Take a packet; False for a duplicate."""
        if sequence in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(sequence)
        self.arrivals.append((sequence, sent_ns, received_ns))
        transit_ms = (received_ns - sent_ns) / 1e6
        if self._transit_ms is not None:
            self.jitter_ms += (abs(transit_ms - self._transit_ms) - self.jitter_ms) / 16
        self._transit_ms = transit_ms
        return True

    @property
    def sent(self) -> int:
        """Packets sent, by the end of the stream, else by the highest number received."""
        highest = max((sequence for sequence, _, _ in self.arrivals), default=-1) + 1
        return max(self.announced or 0, highest)

    @property
    def owd_ms(self) -> list[float]:
        """One-way delays."""
        return [(received - sent) / 1e6 for _, sent, received in self.arrivals]

    def lost(self, playout_ms: float = math.inf) -> list[bool]:
        """Return for each packet whether it was lost, or came later than the fastest one by more
        than `playout_ms`.
        """
        delays = {sequence: (received - sent) / 1e6 for sequence, sent, received in self.arrivals}
        latest = min(delays.values(), default=0.0) + playout_ms
        return [number not in delays or delays[number] > latest for number in range(self.sent)]


def burst_ratio(lost: Sequence[bool]) -> float:
    """Return BurstR of ITU-T G.107: mean length of the bursts of losses over that of random losses;
    at least 1.
    """
    bursts, previous = 0, False
    for each in lost:
        bursts += each and not previous
        previous = each
    share = sum(lost) / len(lost) if lost else 0.0
    return max(1.0, (sum(lost) / bursts) * (1 - share)) if bursts and share < 1 else 1.0


def delay_impairment(delay_ms: float) -> float:
    """Return Idd of ITU-T G.107 (equation 7-27) for a one-way delay from mouth to ear, without
    echo.
    """
    if delay_ms <= 100:
        return 0.0
    x = math.log2(delay_ms / 100)
    return float(25 * ((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2))


def rating(codec: Codec, delay_ms: float, lost: Sequence[bool]) -> float:
    """Return R of the E-model; `delay_ms` from mouth to ear."""
    percent = 100 * sum(lost) / len(lost) if lost else 100.0
    ie_eff = codec.ie + (95 - codec.ie) * percent / (percent / burst_ratio(lost) + codec.bpl)
    return R_DEFAULT - delay_impairment(delay_ms) - ie_eff


def mean_opinion_score(r: float) -> float:
    """Return the estimated MOS-CQE of a rating (ITU-T G.107, annex B)."""
    if r <= 0:
        return 1.0
    return 4.5 if r >= 100 else max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def document(
    reception: Reception, codec: str | None, playout_ms: float, start_unix_s: float
) -> dict[str, object]:
    """Return the receiver's file (schemas/stream.schema.json)."""
    delays = reception.owd_ms
    lost = reception.lost()
    made: dict[str, object] = {
        "schema": "satlab/stream/1",
        "role": "receiver",
        "start_unix_s": start_unix_s,
        "sent": reception.sent,
        "received": len(delays),
        "duplicates": reception.duplicates,
        "burst_ratio": burst_ratio(lost),
        "jitter_ms": reception.jitter_ms,
        "owd_ms": delays,
    }
    if codec:
        known = CODECS[codec]
        discarded = reception.lost(playout_ms)
        mouth_to_ear = min(delays) + playout_ms + known.packet_ms + known.delay_ms
        r = rating(known, mouth_to_ear, discarded)
        made["voice"] = {
            "codec": codec,
            "playout_ms": playout_ms,
            "mouth_to_ear_ms": mouth_to_ear,
            "discarded": sum(discarded) - sum(lost),
            "r": r,
            "mos": mean_opinion_score(r),
        }
    return made


# --- the two sides --------------------------------------------------------------------------------


def receive(options: argparse.Namespace) -> int:
    """Receive one stream, to its end or until none of its packets has come for a while."""
    reception, start_unix_s = Reception(), time.time()
    with (
        contextlib.suppress(Stopped, TimeoutError),
        receiving("satlab_stream", options) as next_packet,
    ):
        while True:
            packet = next_packet()
            received_ns = time.time_ns()
            if len(packet) < HEADER.size:
                continue
            version, kind, _, _, _, sent_ns, number = HEADER.unpack_from(packet)
            if version != VERSION:
                continue
            if kind & 0x7F == END_TYPE:
                reception.announced = number
                break
            if number < MAX_PACKETS:
                reception.take(number, sent_ns, received_ns)
    ignore_stops()
    if not reception.arrivals:
        print("error: no packet of a stream has come", file=sys.stderr)
        return 1
    made = document(reception, options.codec, options.playout_ms, start_unix_s)
    send_delays([received_ns for _, _, received_ns in reception.arrivals], reception.owd_ms)
    summary: dict[str, float] = {"jitter_ms": reception.jitter_ms}
    summary["loss_ratio"] = 1 - len(reception.arrivals) / reception.sent
    voice = made.get("voice")
    if isinstance(voice, dict):
        summary["mos"] = voice["mos"]
    collect_agent.send_stat(collect_agent.now(), **summary)
    return store(made)


def send(options: argparse.Namespace) -> int:
    """Send packets at a constant rate, then the end of the stream."""
    codec = CODECS[options.codec] if options.codec else None
    interval_s = (codec.packet_ms if codec else options.interval_ms) / 1000
    size = max(HEADER.size, 12 + codec.payload_bytes if codec else options.size_bytes)
    count = min(MAX_PACKETS, round(options.duration_s / interval_s))
    sent, start_unix_s = 0, time.time()
    with sending(options) as send_packet:
        kind, began = codec.payload_type if codec else 96, time.monotonic()
        with contextlib.suppress(Stopped):
            for number in range(count):
                time.sleep(max(0.0, began + number * interval_s - time.monotonic()))
                send_packet(packet(kind, number, round(number * interval_s * 8000), size))
                sent += 1
        send_ends(send_packet, lambda: [packet(END_TYPE, sent, 0, HEADER.size)])
    return store(
        {"schema": "satlab/stream/1", "role": "sender", "start_unix_s": start_unix_s, "sent": sent}
    )


def packet(kind: int, number: int, timestamp: int, size: int) -> bytes:
    """Return a packet of `size` bytes with the time of now."""
    head = HEADER.pack(
        VERSION, kind, number & 0xFFFF, timestamp & 0xFFFFFFFF, 0x5A71AB, time.time_ns(), number
    )
    return head.ljust(size, b"\0")


def store(made: dict[str, object]) -> int:
    """Store the file of this side."""
    answer = store_json("stream_json", made)
    collect_agent.send_log(
        syslog.LOG_INFO,
        f"{made['role']}: {made.get('received', made['sent'])} packets, store: {answer}",
    )
    return 0 if answer == "OK" else 1


# --- arguments ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument(
        "-c",
        "--codec",
        choices=tuple(CODECS),
        help="voice codec; sets size and interval of packets, and adds the E-model's rating",
    )
    receiver, sender = add_sides(options, default_port=5004)
    receiver.add_argument(
        "-j",
        "--playout-ms",
        type=real(0, 5000),
        default=60.0,
        help="delay of the playout buffer, ms",
    )
    sender.add_argument("-i", "--interval-ms", type=real(1, 60000), default=20.0)
    sender.add_argument("-s", "--size-bytes", type=whole(HEADER.size, MAX_BYTES), default=172)
    return options


def main() -> int:
    """Run one side."""
    return run_side(parser().parse_args(), receive, send)


if __name__ == "__main__":
    run_job(__file__, main)
