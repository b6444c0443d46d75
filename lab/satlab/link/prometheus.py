# SPDX-License-Identifier: GPL-3.0-or-later
"""Link metrics in Prometheus' text exposition format 0.0.4, from the last sample of a metrics file.

A sample counts one interval, so all figures are gauges: those of the last interval.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from satlab.common.errors import HostError

TAIL_BYTES = (1 << 17, 1 << 20, 1 << 24)
"""Bytes read from the end, in turn until they hold a sample: room for the last one and the changes after it."""
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
    "queue_p50_ms": "time in a terminal's queue of the packets that left it in the interval, median, ms",
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
"""Figures of each terminal where several share the satellite link: families of their own, so that sums count once."""
OF_FIFO = {
    "queue_bytes": "IP bytes waiting in a FIFO at the end of the interval",
    "queue_packets": "IP packets waiting in a FIFO at the end of the interval",
    "queue_p50_ms": "time in a FIFO of the packets that left it in the interval, median, ms",
    "queue_p95_ms": "the same, 95th percentile, ms",
    "queue_p99_ms": "the same, 99th percentile, ms",
    "sent_packets": "packets that left a FIFO for a frame in the interval",
    "dropped_packets": "packets dropped by a FIFO in the interval",
}
"""Figures of each FIFO with packets where there are several, of each terminal where several share the link."""


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
                # The first piece may be half a line, and the last is one being written, or nothing.
                for line in reversed(lines[:-1] if size <= tail else lines[1:-1]):
                    sample: dict[str, Any] = json.loads(line)
                    if sample["type"] == "sample":
                        return sample
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
    raise HostError(f"{path}: no sample yet", "try again in a second")


def render(lab_id: str, sample: dict[str, Any]) -> str:
    """Return the exposition text, without figures that were not measured or are another emulator's."""
    directions = {name: figures for name, figures in sample.items() if isinstance(figures, dict)}
    parts = [_family("sample_time_seconds", "Unix time of the sample", [("", sample["t_unix_s"])], lab_id)]
    for field, text in HELP.items():
        values = [(name, figures[field]) for name, figures in directions.items() if figures.get(field) is not None]
        parts.append(_family(field, text, values, lab_id))
    used = [(f'{name}",modcod="{modcod}', count) for name, f in directions.items() for modcod, count in _used(f)]
    parts.append(_family("modcod_frames", "frames sent in the interval, by MODCOD or waveform", used, lab_id))
    of_terminals = [
        (f'{name}",terminal="{terminal["terminal"]}', terminal)
        for name, figures in directions.items()
        for terminal in figures.get("terminals", ())
    ]
    for field, text in OF_TERMINAL.items():
        values = [(labels, one[field]) for labels, one in of_terminals if one.get(field) is not None]
        parts.append(_family(f"terminal_{field}", text, values, lab_id))
    of_fifos = [pair for name, figures in directions.items() for pair in _fifos(name, figures)]
    of_fifos += [pair for labels, one in of_terminals for pair in _fifos(labels, one)]
    for field, text in OF_FIFO.items():
        values = [(labels, one[field]) for labels, one in of_fifos if one.get(field) is not None]
        parts.append(_family(f"fifo_{field}", text, values, lab_id))
    return "".join(parts)


def _fifos(labels: str, figures: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the FIFOs with their labels. Names are letters, digits, `_`, `-` and `.`: they need no escapes."""
    return [(f'{labels}",fifo="{fifo["fifo"]}', fifo) for fifo in figures.get("fifos", ())]


def _used(figures: dict[str, Any]) -> Iterable[tuple[str, float]]:
    by_modcod: dict[str, float] = figures["frames_by_modcod"]
    return by_modcod.items()


def _family(name: str, text: str, values: list[tuple[str, float]], lab_id: str) -> str:
    """Return one metric with a value per direction. Lab ids and directions need no escapes."""
    metric = f"satlab_link_{name}"
    lines = [f"# HELP {metric} {text}", f"# TYPE {metric} gauge"]
    for direction, value in values:
        labels = f'lab="{lab_id}"' + (f',direction="{direction}"' if direction else "")
        lines.append(f"{metric}{{{labels}}} {value!r}")
    return "\n".join(lines) + "\n" if values else ""
