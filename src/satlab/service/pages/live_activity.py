# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and flows on the nodes of an active run, from the progress of the run. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Progress = Mapping[str, Any]
"""schemas/run-progress.schema.json."""

UNKNOWN = "\u2013"
"""Shown for a value that the source of a flow does not report."""


@dataclass(frozen=True)
class Listing:
    """A table: column heads, of which the first `text_columns` are of text, and its rows."""

    columns: tuple[str, ...]
    text_columns: int
    rows: tuple[tuple[str, ...], ...] = ()


_FLOWS = Listing(
    (
        "Sender",
        "Source",
        "From",
        "To",
        "Algorithm",
        "cwnd (kB)",
        "RTT (ms)",
        "In flight (kB)",
        "Acknowledged (MB)",
    ),
    5,
)
_PROGRAMS = Listing(("Node", "Program", "Processes", "CPU (%)"), 2)


@dataclass(frozen=True)
class Activity:
    """Activity of the nodes. `nodes`: CPU time of all programs of a node, % of a core.

    `windows`: a few words on each flow of the table, in its order.
    """

    nodes: Mapping[str, float]
    flows: Listing = _FLOWS
    programs: Listing = _PROGRAMS
    windows: tuple[str, ...] = ()

    def cpu(self, name: str) -> str:
        """Return the CPU time of a node of the picture in words; of several terminals their sum."""
        node = name.lower()
        found = [
            value for key, value in self.nodes.items() if key == node or _is_further(key, node)
        ]
        return f"CPU {sum(found):.0f} %" if found else ""


NOTHING = Activity({})


def of(progress: Progress | None, *, ended: bool) -> Activity:
    """Return what the last sample in a run's progress has; nothing after the end."""
    sample = (progress or {}).get("activity")
    if ended or not isinstance(sample, dict):
        return NOTHING
    flows = tuple(
        (
            flow["node"],
            flow["source"],
            flow["local"] or UNKNOWN,
            flow["peer"] or UNKNOWN,
            flow["algorithm"] or UNKNOWN,
            f"{flow['cwnd_bytes'] / 1000:,.0f}",
            f"{flow['rtt_ms']:,.0f}",
            _amount(flow["in_flight_bytes"], 1e3, 0),
            _amount(flow["acked_bytes"], 1e6, 1),
        )
        for flow in sample["flows"]
    )
    programs = tuple(
        (load["node"], load["program"], str(load["processes"]), f"{load['cpu_percent']:.1f}")
        for load in sample["programs"]
    )
    return Activity(
        {each["node"]: float(each["cpu_percent"]) for each in sample["nodes"]},
        Listing(_FLOWS.columns, _FLOWS.text_columns, flows),
        Listing(_PROGRAMS.columns, _PROGRAMS.text_columns, programs),
        tuple(f"{flow['node']}: cwnd {_size(flow['cwnd_bytes'])}" for flow in sample["flows"]),
    )


def _amount(value: float | None, unit: float, digits: int) -> str:
    return UNKNOWN if value is None else f"{value / unit:,.{digits}f}"


def _size(size: float) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _is_further(key: str, node: str) -> bool:
    """Return whether a node belongs to a further terminal: st-2 for st."""
    return key.startswith(f"{node}-") and key.removeprefix(f"{node}-").isdecimal()
