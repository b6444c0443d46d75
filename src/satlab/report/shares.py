# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of queues, and of terminals that share a link: what each did, and how evenly their
transfers shared it.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from satlab.report.rows import Row

TERMINAL_COLUMNS = (
    "Direction",
    "Terminal",
    "Released (MB)",
    "Dropped (packets)",
    "Lost (packets)",
    "Largest queue (kB)",
    "Queue p50 (ms)",
    "p95 (ms)",
    "p99 (ms)",
    "MODCOD or waveform",
    "Slots asked for",
    "Assigned",
    "Used",
)
QUEUE_COLUMNS = (
    "Direction",
    "Terminal",
    "FIFO",
    "Sent (packets)",
    "Dropped (packets)",
    "Largest queue (kB)",
    "Queue p50 (ms)",
    "p95 (ms)",
    "p99 (ms)",
)
FAIRNESS_COLUMNS = (
    "Direction",
    "Transport",
    "Terminals",
    "Jain's index",
    "Equal part (Mbit/s)",
    "Least",
    "Most",
)
CLIENT_COLUMNS = (
    "Client",
    "Page",
    "Protocol",
    "Proxies",
    "Loads",
    "Response Start (ms)",
    "First Contentful Paint",
    "Page Load Time",
)
_OF_LOADS = ("response_start_ms", "first_contentful_paint_ms", "page_load_time_ms")
_FIGURES = {
    "terminal_out_bytes": (1e-6, 2),
    "terminal_dropped_packets": (1.0, 0),
    "terminal_lost_packets": (1.0, 0),
    "terminal_queue_max_bytes": (1e-3, 1),
}
_QUANTILES = ("p50", "p95", "p99")
_ORDER = ("forward", "return", "terrestrial_down", "terrestrial_up")
_SLOTS = ("requested", "assigned", "used")


def terminal_rows(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return a line for each direction and terminal of one run, as in `TERMINAL_COLUMNS`; slots per
    superframe.
    """
    found: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        if row.metric.startswith("terminal_") and row.t_s is None:
            labels = row.labels
            key = labels["direction"], int(labels["terminal"])
            detail = labels.get("stat") or labels.get("modcod") or ""
            found.setdefault(key, {})[f"{row.metric} {detail}".strip()] = row
    ordered = sorted(found, key=lambda key: (_place(key[0]), key[1]))
    return [
        (direction, str(number), *_cells(found[direction, number])) for direction, number in ordered
    ]


def _cells(group: dict[str, Row]) -> list[str]:
    def cell(name: str, scale: float, digits: int) -> str:
        row = group.get(name)
        if row is None:
            return ""
        return row.status if row.value is None else f"{row.value * scale:,.{digits}f}"

    modcods = {
        row.labels["modcod"]: row.value or 0
        for row in group.values()
        if row.metric == "terminal_modcod_frames"
    }
    most = sorted(modcods, key=lambda name: -modcods[name])[:3]
    return [
        *(cell(metric, scale, digits) for metric, (scale, digits) in _FIGURES.items()),
        *(cell(f"terminal_queue_ms {quantile}", 1.0, 0) for quantile in _QUANTILES),
        ", ".join(most) + (", ..." if len(modcods) > len(most) else ""),
        *(cell(f"terminal_slots_{name}_mean", 1.0, 1) for name in _SLOTS),
    ]


def _place(direction: str) -> int:
    return _ORDER.index(direction) if direction in _ORDER else len(_ORDER)


def queue_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a line for each direction of one run whose packets have times in the queue, and for
    each of its FIFOs.
    """
    timed = {
        row.labels["direction"]
        for row in rows
        if row.metric == "link_queue_p50_ms" and row.t_s is None
    }
    shared = {
        row.labels["direction"]
        for row in rows
        if row.metric.startswith("fifo_") and "terminal" in row.labels
    }
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        direction = row.labels.get("direction", "")
        if row.t_s is not None or direction not in timed:
            continue
        if row.metric.startswith("fifo_"):
            key = (
                direction,
                row.labels.get("terminal", "all" if direction in shared else "1"),
                row.labels["fifo"],
            )
            name = f"{row.metric.removeprefix('fifo_')} {row.labels.get('stat', '')}".strip()
            found.setdefault(key, {})[name] = row
        elif row.metric in _OF_DIRECTION:
            found.setdefault((direction, "all", "all"), {})[_OF_DIRECTION[row.metric]] = row
    # A stable sort: FIFOs in the order of the records, behind the line of their direction.
    ordered = sorted(
        found, key=lambda key: (_place(key[0]), int(key[1]) if key[1].isdecimal() else 0)
    )
    return [(key[0].replace("_", " "), *key[1:], *_queue_cells(found[key])) for key in ordered]


_OF_DIRECTION = {
    "link_dropped_packets": "dropped_packets",
    "link_queue_max_bytes": "queue_max_bytes",
    **{f"link_queue_{quantile}_ms": f"queue_ms {quantile}" for quantile in _QUANTILES},
}


def _queue_cells(group: dict[str, Row]) -> list[str]:
    def cell(name: str, scale: float, digits: int) -> str:
        row = group.get(name)
        if row is None:
            return ""
        return row.status if row.value is None else f"{row.value * scale:,.{digits}f}"

    return [
        cell("sent_packets", 1.0, 0),
        cell("dropped_packets", 1.0, 0),
        cell("queue_max_bytes", 1e-3, 1),
        *(cell(f"queue_ms {quantile}", 1.0, 1) for quantile in _QUANTILES),
    ]


def fairness_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a line for each index of one run, as in `FAIRNESS_COLUMNS`; rates of the clients in
    Mbit/s.
    """
    made = []
    for row in rows:
        if row.metric != "fairness_jain_ratio":
            continue
        keys = ("direction", "transport")
        alike = [one for one in rows if all(one.labels.get(key) == row.labels[key] for key in keys)]
        share = next((one.value for one in alike if one.metric == "goodput_share_bps"), None)
        rates = [
            one.value for one in alike if one.metric == "goodput_bps" and one.value is not None
        ]
        index = row.status if row.value is None else f"{row.value:.4f}"
        figures = (share, min(rates, default=None), max(rates, default=None))
        mbits = ("" if value is None else f"{value / 1e6:.3f}" for value in figures)
        made.append((*(row.labels[key] for key in keys), row.labels["terminals"], index, *mbits))
    return made


def client_rows(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return a line for each client of one run with page loads of several, as in `CLIENT_COLUMNS`:
    medians.

    A load that was cut off took longer than any other; a failed one has no place in the order.
    """
    found: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in rows:
        if row.metric in _OF_LOADS and "load" in row.labels and "entity" in row.labels:
            key = tuple(row.labels.get(name, "") for name in ("entity", "page", "protocol", "pep"))
            found.setdefault(key, {}).setdefault(row.metric, []).append(row)
    if len({client for client, *_ in found}) < 2:
        return []
    ordered = sorted(found, key=lambda key: (len(key[0]), key))
    return [(*key, *_of_loads(found[key])) for key in ordered]


def _of_loads(group: Mapping[str, Sequence[Row]]) -> list[str]:
    last = group.get("page_load_time_ms", [])
    ended = sum(row.value is not None for row in last)
    return [f"{ended} of {len(last)}", *(_median(group.get(metric, ())) for metric in _OF_LOADS)]


def _median(rows: Sequence[Row]) -> str:
    values = [
        math.inf if row.value is None else row.value for row in rows if row.status != "failed"
    ]
    if not values:
        return "failed"
    median = statistics.median(values)
    return "cut off" if math.isinf(median) else f"{median:,.0f}"
