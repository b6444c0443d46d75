# SPDX-License-Identifier: GPL-3.0-or-later
"""Link metrics in Prometheus' text format, from the samples of a metrics file.

A sample counts one interval: alone it becomes gauges. `Totals` add samples up to counters.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.common.errors import HostError
from satlab.common.prometheus import family

TAIL_BYTES = (1 << 17, 1 << 20, 1 << 24)
"""Sizes of the pieces that are read from the file's end, one after the other, until one holds a
sample, bytes.
"""
HELP = {
    "queue_bytes": "IP bytes waiting at the end of the interval",
    "queue_packets": "IP packets waiting at the end of the interval",
    "queue_p50_ms": "time in the queue of the packets that left it in the interval, median, ms",
    "queue_p95_ms": "the same, 95th percentile, ms",
    "queue_p99_ms": "the same, 99th percentile, ms",
    "in_packets": "packets offered in the interval",
    "in_bytes": "bytes offered in the interval",
    "out_packets": "packets delivered in the interval",
    "out_bytes": "bytes delivered in the interval",
    "rate_bps": "bytes delivered, bit/s",
    "dropped_packets": "packets dropped by the queue in the interval",
    "marked_packets": "packets marked CE in the interval",
    "lost_packets": "packets lost on air in the interval",
    "reordered_packets": "packets that a later one overtook in the interval",
    "duplicated_packets": "copies that the link made in the interval",
    "corrupted_packets": "UDP datagrams with a flipped bit in the interval",
    "frames": "BBFRAMEs or bursts sent in the interval",
    "lost_frames": "frames not understood in the interval",
    "modcod_id": "MODCOD or waveform in force",
    "threshold_db": "Es/N0 that it needs, dB",
    "es_n0_db": "Es/N0 of what is sent, dB",
    "frame_fill_ratio": "share of the frames' payload in use",
    "superframes": "superframes begun in the interval",
    "slots_assigned": "bursts granted to the terminal in the interval",
    "slots_free": "bursts granted to no terminal in the interval",
    "slots_signalling": "bursts kept for requests in the interval",
    "slots_requested": "bursts that requests asked for in the interval",
    "requests": "capacity requests sent in the interval",
    "requests_lost": "capacity requests lost in the interval",
    "plans_lost": "plans (TBTP2) that the terminal did not get in the interval",
    "signalling_bytes": "payload of frames that plans took in the interval",
    "late_p50_us": "release error, median, us",
    "late_p99_us": "release error, 99th percentile, us",
    "late_max_us": "release error, largest, us",
    "late_packets": "packets released later than the limit in the interval",
}
OF_TERMINAL = {
    "queue_bytes": "IP bytes waiting for a terminal, or at it, at the end of the interval",
    "queue_packets": "IP packets waiting for a terminal, or at it, at the end of the interval",
    "queue_p50_ms": (
        "time in a terminal's queue of the packets that left it in the interval, median, ms"
    ),
    "queue_p95_ms": "the same, 95th percentile, ms",
    "queue_p99_ms": "the same, 99th percentile, ms",
    "in_packets": "packets offered for a terminal, or by it, in the interval",
    "out_packets": "packets delivered in the interval, by terminal",
    "out_bytes": "bytes delivered in the interval, by terminal",
    "rate_bps": "bytes delivered, by terminal, bit/s",
    "dropped_packets": "packets dropped by a terminal's queue in the interval",
    "lost_packets": "packets of a terminal lost on air in the interval",
    "frames": "BBFRAMEs with a part for a terminal, or its bursts, in the interval",
    "lost_frames": "frames of these not understood in the interval",
    "modcod_id": "MODCOD or waveform in force for a terminal",
    "es_n0_db": "Es/N0 of what is sent to a terminal, or by it, dB",
    "slots_assigned": "bursts granted to a terminal in the interval",
    "slots_requested": "bursts that a terminal asked for in the interval",
    "requests": "capacity requests that a terminal sent in the interval",
    "plans_lost": "plans (TBTP2) that a terminal did not get in the interval",
}
"""Figures of each terminal if several share the satellite link. They are separate families, so that
sums count once.
"""
OF_FIFO = {
    "queue_bytes": "IP bytes waiting in a FIFO at the end of the interval",
    "queue_packets": "IP packets waiting in a FIFO at the end of the interval",
    "queue_p50_ms": "time in a FIFO of the packets that left it in the interval, median, ms",
    "queue_p95_ms": "the same, 95th percentile, ms",
    "queue_p99_ms": "the same, 99th percentile, ms",
    "sent_packets": "packets that left a FIFO for a frame in the interval",
    "dropped_packets": "packets dropped by a FIFO in the interval",
}
"""Figures of each FIFO with packets, if there are several; of each terminal, if several share the
link.
"""

PREFIX = "satlab_link_"
TEXTS = {
    **HELP,
    "modcod_frames": "frames sent in the interval, by MODCOD or waveform",
    **{f"terminal_{name}": text for name, text in OF_TERMINAL.items()},
    **{f"fifo_{name}": text for name, text in OF_FIFO.items()},
}
"""All families, without their prefix."""
_COUNTS = (
    "in_packets",
    "in_bytes",
    "out_packets",
    "out_bytes",
    "sent_packets",
    "dropped_packets",
    "marked_packets",
    "lost_packets",
    "reordered_packets",
    "duplicated_packets",
    "corrupted_packets",
    "late_packets",
    "frames",
    "lost_frames",
    "modcod_frames",
    "superframes",
    "slots_assigned",
    "slots_free",
    "slots_signalling",
    "slots_requested",
    "requests",
    "requests_lost",
    "plans_lost",
    "signalling_bytes",
)
COUNTED = {
    name for name in TEXTS if name.removeprefix("terminal_").removeprefix("fifo_") in _COUNTS
}
"""Families that count what happened in the interval; the others are states, rates and quantiles."""
Values = dict[str, dict[str, float]]
"""Figures by family and labels."""


def last_sample(path: Path) -> dict[str, Any]:
    """Return the last whole sample of a metrics file.

    Raises:
        HostError: there is none.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            for tail in TAIL_BYTES:
                file.seek(max(0, size - tail))
                lines = file.read(tail).split(b"\n")
                # The first line may be cut off; the last one is empty or still being written.
                for line in reversed(lines[:-1] if size <= tail else lines[1:-1]):
                    sample: dict[str, Any] = json.loads(line)
                    if sample["type"] == "sample":
                        return sample
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
    raise HostError(f"{path}: no sample yet", "try again in a second")


def values(sample: dict[str, Any]) -> Values:
    """Return the figures of a sample, without figures that were not measured or belong to another
    emulator.
    """
    found: Values = {name: {} for name in TEXTS}
    for direction, figures in sample.items():
        if not isinstance(figures, dict):
            continue
        labels = f'direction="{direction}"'
        _put(found, "", HELP, labels, figures)
        for modcod, frames in figures["frames_by_modcod"].items():
            found["modcod_frames"][f'{labels},modcod="{modcod}"'] = frames
        for terminal in figures.get("terminals", ()):
            _put(
                found,
                "terminal_",
                OF_TERMINAL,
                f'{labels},terminal="{terminal["terminal"]}"',
                terminal,
            )
    return found


def _put(
    found: Values, prefix: str, texts: dict[str, str], labels: str, figures: dict[str, Any]
) -> None:
    """Add figures and those of their FIFOs.

    Names of FIFOs are letters, digits, `_`, `-` and `.`: without escapes.
    """
    for name in texts:
        if figures.get(name) is not None:
            found[prefix + name][labels] = figures[name]
    for fifo in figures.get("fifos", ()):
        _put(found, "fifo_", OF_FIFO, f'{labels},fifo="{fifo["fifo"]}"', fifo)


@dataclass
class Totals:
    """Sums of the counts of samples, by family and labels. `last` is the latest sample."""

    last: dict[str, Any] | None = None
    counts: Values = field(default_factory=dict)

    def add(self, sample: dict[str, Any]) -> None:
        self.last = sample
        for name, by_labels in values(sample).items():
            if name in COUNTED:
                total = self.counts.setdefault(name, {})
                for labels, count in by_labels.items():
                    total[labels] = total.get(labels, 0) + count


def render(lab_id: str, sample: dict[str, Any], counts: Values | None = None) -> str:
    """Return the exposition text.

    `counts`: totals, shown as counters instead of the counts of the interval.
    """
    lab = f'lab="{lab_id}"'
    parts = [
        family(
            f"{PREFIX}sample_time_seconds",
            "Unix time of the sample",
            "gauge",
            {lab: sample["t_unix_s"]},
        )
    ]
    for name, figures in values(sample).items():
        is_counter = counts is not None and name in COUNTED
        shown = counts.get(name, {}) if counts is not None and is_counter else figures
        labelled = {f"{lab},{labels}": value for labels, value in shown.items()}
        if is_counter:
            text = TEXTS[name].replace(" in the interval", " since the link started")
            parts.append(family(f"{PREFIX}{name}_total", text, "counter", labelled))
        else:
            parts.append(family(f"{PREFIX}{name}", TEXTS[name], "gauge", labelled))
    return "".join(parts)
