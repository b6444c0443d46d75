# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and flows on the nodes of an active run, from the progress of the run. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from satlab.report.page import Table, all_but
from satlab.run.lab_activity import Activity as Sample
from satlab.run.quic_flows import Flow
from satlab.service.root_helper.progress_file import Progress

UNKNOWN = "\u2013"
"""Shown for a value that the source of a flow does not report."""
FLOW_COLUMNS = (
    "Sender",
    "Source",
    "From",
    "To",
    "Algorithm",
    "cwnd (kB)",
    "RTT (ms)",
    "In flight (kB)",
    "Acknowledged (MB)",
)
PROGRAM_COLUMNS = ("Node", "Program", "Processes", "CPU (%)")
_SAMPLE = TypeAdapter(Sample)


@dataclass(frozen=True)
class Activity:
    """Activity of the nodes. `nodes`: CPU time of all programs of a node, % of a core.

    `windows`: a few words on the flows of each node.
    """

    nodes: Mapping[str, float]
    flows: Table
    programs: Table
    windows: tuple[str, ...] = ()

    def cpu(self, name: str) -> str:
        """Return the CPU time of a node of the picture in words; for several terminals the sum."""
        node = name.lower()
        found = [
            value for key, value in self.nodes.items() if key == node or _is_further(key, node)
        ]
        return f"CPU {sum(found):.0f} %" if found else ""


NOTHING = Activity({}, Table(FLOW_COLUMNS), Table(PROGRAM_COLUMNS))


def of(progress: Progress | None, *, ended: bool) -> Activity:
    """Return the activity in the last sample of a run's progress; nothing after the end of the run."""
    if ended or not progress or not progress.get("activity"):
        return NOTHING
    sample = _SAMPLE.validate_python(progress["activity"])
    flows = [
        (
            flow.node,
            flow.source,
            flow.local or UNKNOWN,
            flow.peer or UNKNOWN,
            flow.algorithm or UNKNOWN,
            f"{flow.cwnd_bytes / 1000:,.0f}",
            f"{flow.rtt_ms:,.0f}",
            _amount(flow.in_flight_bytes, 1e3, 0),
            _amount(flow.acked_bytes, 1e6, 1),
        )
        for flow in sample["flows"]
    ]
    programs = [
        (load.node, load.program, str(load.processes), f"{load.cpu_percent:.1f}")
        for load in sample["programs"]
    ]
    return Activity(
        {each["node"]: each["cpu_percent"] for each in sample["nodes"]},
        Table(FLOW_COLUMNS, flows, numbers=all_but(FLOW_COLUMNS, 5), cards=True),
        Table(PROGRAM_COLUMNS, programs, numbers=all_but(PROGRAM_COLUMNS, 2), cards=True),
        tuple(_windows(sample["flows"])),
    )


def _windows(flows: Sequence[Flow]) -> Iterator[str]:
    by_node: dict[str, list[int]] = {}
    for flow in flows:
        by_node.setdefault(flow.node, []).append(flow.cwnd_bytes)
    for node, windows in by_node.items():
        sizes = dict.fromkeys((size(min(windows)), size(max(windows))))
        count = f" of {len(windows)} flows" if len(windows) > 1 else ""
        yield f"{node}: cwnd{count} {' to '.join(sizes)}"


def _amount(value: float | None, unit: float, digits: int) -> str:
    return UNKNOWN if value is None else f"{value / unit:,.{digits}f}"


def size(number: float) -> str:
    """Write a number of bytes with its unit."""
    return f"{number / 1e6:.2f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"


def _is_further(key: str, node: str) -> bool:
    """Return whether a node belongs to a further terminal: st-2 for st."""
    return key.startswith(f"{node}-") and key.removeprefix(f"{node}-").isdecimal()
