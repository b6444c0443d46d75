# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of terminals that share a link: what each did, and how evenly their transfers shared it."""

from collections.abc import Iterable, Sequence

from satlab.report.rows import Row

TERMINAL_COLUMNS = (
    "Direction", "Terminal", "Released (MB)", "Dropped (packets)", "Lost (packets)", "Largest queue (kB)",
    "Queue p50 (ms)", "p95 (ms)", "p99 (ms)", "MODCOD or waveform", "Slots asked for", "Assigned", "Used",
)  # fmt: skip
FAIRNESS_COLUMNS = ("Direction", "Transport", "Terminals", "Jain's index", "Equal part (Mbit/s)", "Least", "Most")
_FIGURES = {
    "terminal_out_bytes": (1e-6, 2),
    "terminal_dropped_packets": (1.0, 0),
    "terminal_lost_packets": (1.0, 0),
    "terminal_queue_max_bytes": (1e-3, 1),
}
_QUANTILES = ("p50", "p95", "p99")
_SLOTS = ("requested", "assigned", "used")


def terminal_rows(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return a line for each direction and terminal of one run, as in `TERMINAL_COLUMNS`; slots per superframe."""
    found: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        if row.metric.startswith("terminal_") and row.t_s is None:
            labels = row.labels
            key = labels["direction"], int(labels["terminal"])
            detail = labels.get("stat") or labels.get("modcod") or ""
            found.setdefault(key, {})[f"{row.metric} {detail}".strip()] = row
    order = ("forward", "return")
    ordered = sorted(found, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key[1]))
    return [(direction, str(number), *_cells(found[direction, number])) for direction, number in ordered]


def _cells(group: dict[str, Row]) -> list[str]:
    def cell(name: str, scale: float, digits: int) -> str:
        value = group[name].value if name in group else None
        return "" if value is None else f"{value * scale:,.{digits}f}"

    modcods = {row.labels["modcod"]: row.value or 0 for row in group.values() if row.metric == "terminal_modcod_frames"}
    most = sorted(modcods, key=lambda name: -modcods[name])[:3]
    return [
        *(cell(metric, scale, digits) for metric, (scale, digits) in _FIGURES.items()),
        *(cell(f"terminal_queue_ms {quantile}", 1.0, 0) for quantile in _QUANTILES),
        ", ".join(most) + (", ..." if len(modcods) > len(most) else ""),
        *(cell(f"terminal_slots_{name}_mean", 1.0, 1) for name in _SLOTS),
    ]


def fairness_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a line for each index of one run, as in `FAIRNESS_COLUMNS`; rates of the clients in Mbit/s."""
    made = []
    for row in rows:
        if row.metric != "fairness_jain_ratio":
            continue
        keys = ("direction", "transport")
        alike = [one for one in rows if all(one.labels.get(key) == row.labels[key] for key in keys)]
        share = next((one.value for one in alike if one.metric == "goodput_share_bps"), None)
        rates = [one.value for one in alike if one.metric == "goodput_bps" and one.value is not None]
        index = row.status if row.value is None else f"{row.value:.4f}"
        figures = (share, min(rates, default=None), max(rates, default=None))
        mbits = ("" if value is None else f"{value / 1e6:.3f}" for value in figures)
        made.append((*(row.labels[key] for key in keys), row.labels["terminals"], index, *mbits))
    return made
