# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of a link's queues, of its terminals, and of how evenly transfers shared it."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from satlab.report.measurements import SummaryRecord
from satlab.report.page import Table, all_but

_OF_LOADS = ("response_start_ms", "first_contentful_paint_ms", "page_load_time_ms")
_QUANTILES = ("p50", "p95", "p99")
_ORDER = ("forward", "return", "terrestrial_down", "terrestrial_up")
_SLOTS = ("requested", "assigned", "used")


Runs = Mapping[str, Sequence[SummaryRecord]]
"""Summary records by the name of their run."""


def terminals(runs: Runs) -> Table | None:
    """Return the figures of each terminal, for runs with several terminals."""
    head = (
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
    return _by_run(head, 2, terminal_rows, runs)


def queues(runs: Runs) -> Table | None:
    """Return the queues of the runs whose packets have times in them."""
    head = (
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
    return _by_run(head, 3, queue_rows, runs)


def fairness(runs: Runs) -> Table | None:
    """Return how evenly transfers shared the link."""
    head = (
        "Direction",
        "Transport",
        "Terminals",
        "Jain's index",
        "Equal part (Mbit/s)",
        "Least",
        "Most",
    )
    table = _by_run(head, 2, fairness_rows, runs)
    return table and replace(table, title="Terminals that share the link")


def clients(runs: Runs) -> Table | None:
    """Return the page loads at each client, of the runs with several."""
    head = (
        "Client",
        "Page",
        "Protocol",
        "Proxies",
        "Loads",
        "Response Start (ms)",
        "First Contentful Paint",
        "Page Load Time",
    )
    return _by_run(head, 4, client_rows, runs)


def _by_run(
    head: tuple[str, ...],
    texts: int,
    rows_of: Callable[[Sequence[SummaryRecord]], list[tuple[str, ...]]],
    runs: Runs,
) -> Table | None:
    groups = {name: rows for name, records in runs.items() if (rows := rows_of(records))}
    if not groups:
        return None
    found = Table(head, groups=groups, numbers=all_but(head, texts))
    every = [row for rows in groups.values() for row in rows]
    used = [name for at, name in enumerate(head) if at < texts or any(row[at] for row in every)]
    return found.columns(*used)


def terminal_rows(rows: Iterable[SummaryRecord]) -> list[tuple[str, ...]]:
    """Return a line for each direction and terminal of one run; slots per superframe."""
    found: dict[tuple[str, int], dict[str, SummaryRecord]] = {}
    for row in rows:
        if row.metric.startswith("terminal_") and row.t_s is None:
            labels = row.labels
            key = labels["direction"], int(labels["terminal"])
            detail = labels.get("stat") or labels.get("modcod") or ""
            found.setdefault(key, {})[f"{row.metric} {detail}".strip()] = row
    lines = []
    for direction, number in sorted(found, key=lambda key: (_place(key[0]), key[1])):
        group = found[direction, number]
        modcods = {
            row.labels["modcod"]: row.value or 0
            for row in group.values()
            if row.metric == "terminal_modcod_frames"
        }
        most = sorted(modcods, key=lambda name: -modcods[name])[:3]
        lines.append(
            (
                direction,
                str(number),
                _cell(group, "terminal_out_bytes", 1e-6, 2),
                _cell(group, "terminal_dropped_packets", 1.0, 0),
                _cell(group, "terminal_lost_packets", 1.0, 0),
                _cell(group, "terminal_queue_max_bytes", 1e-3, 1),
                *(_cell(group, f"terminal_queue_ms {quantile}", 1.0, 0) for quantile in _QUANTILES),
                ", ".join(most) + (", ..." if len(modcods) > len(most) else ""),
                *(_cell(group, f"terminal_slots_{name}_mean", 1.0, 1) for name in _SLOTS),
            )
        )
    return lines


def _cell(group: Mapping[str, SummaryRecord], name: str, scale: float, digits: int) -> str:
    row = group.get(name)
    if row is None:
        return ""
    return row.status if row.value is None else f"{row.value * scale:,.{digits}f}"


def _place(direction: str) -> int:
    return _ORDER.index(direction) if direction in _ORDER else len(_ORDER)


def queue_rows(rows: Sequence[SummaryRecord]) -> list[tuple[str, ...]]:
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
    found: dict[tuple[str, str, str], dict[str, SummaryRecord]] = {}
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
    return [
        (
            key[0].replace("_", " "),
            *key[1:],
            _cell(found[key], "sent_packets", 1.0, 0),
            _cell(found[key], "dropped_packets", 1.0, 0),
            _cell(found[key], "queue_max_bytes", 1e-3, 1),
            *(_cell(found[key], f"queue_ms {quantile}", 1.0, 1) for quantile in _QUANTILES),
        )
        for key in ordered
    ]


_OF_DIRECTION = {
    "link_dropped_packets": "dropped_packets",
    "link_queue_max_bytes": "queue_max_bytes",
    **{f"link_queue_{quantile}_ms": f"queue_ms {quantile}" for quantile in _QUANTILES},
}


def fairness_rows(rows: Sequence[SummaryRecord]) -> list[tuple[str, ...]]:
    """Return a line for each index of one run; rates of the clients in Mbit/s."""
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


def client_rows(rows: Iterable[SummaryRecord]) -> list[tuple[str, ...]]:
    """Return a line for each client of one run with page loads of several: medians.

    A load that was cut off took longer than any other; a failed one has no place in the order.
    """
    found: dict[tuple[str, ...], dict[str, list[SummaryRecord]]] = {}
    for row in rows:
        if row.metric in _OF_LOADS and "load" in row.labels and "entity" in row.labels:
            key = tuple(row.labels.get(name, "") for name in ("entity", "page", "protocol", "pep"))
            found.setdefault(key, {}).setdefault(row.metric, []).append(row)
    if len({client for client, *_ in found}) < 2:
        return []
    lines = []
    for key in sorted(found, key=lambda key: (len(key[0]), key)):
        last = found[key].get("page_load_time_ms", [])
        ended = f"{sum(row.value is not None for row in last)} of {len(last)}"
        lines.append((*key, ended, *(_median(found[key].get(metric, ())) for metric in _OF_LOADS)))
    return lines


def _median(rows: Sequence[SummaryRecord]) -> str:
    values = [
        math.inf if row.value is None else row.value for row in rows if row.status != "failed"
    ]
    if not values:
        return "failed"
    median = statistics.median(values)
    return "cut off" if math.isinf(median) else f"{median:,.0f}"
