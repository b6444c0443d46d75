# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of flows as one HTML file: figures of flows, groups and queues, and their plots."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collect import calibration
from satlab.flows.outcome_text import NOTHING
from satlab.report import html
from satlab.report.page import (
    Axis,
    Mark,
    Page,
    Part,
    Plot,
    Points,
    Section,
    Series,
    State,
    Table,
    Text,
    Tile,
    Tiles,
    all_but,
    cumulative,
    line,
    per_second,
    percentiles,
    side_by_side,
)

Outcome = Mapping[str, Any]
"""schemas/virtual-flows-outcome.schema.json."""
PAGE = "report/index.html"
MOST_FLOWS = 12
"""Flows in one plot: more cannot be told apart."""
MOST_MARKS = 8
"""Changes of the link that have a line with a label."""
CHANGES = {
    "waiting": "handover",
    "outage_s": "outage",
    "rate_mbps": "rate changes",
    "delay_ms": "delay changes",
    "loss": "loss changes",
    "queue": "queue changes",
}
"""What a step of a wire's timeline is called: the first of these fields that it has."""
QUEUE_S = 0.05
"""Time between two samples of a queue, s."""
TIME = "Time (s)"


def write(outcome: Outcome, folder: Path, file: Path) -> Path:
    """Write the page of an outcome below its folder, atomically, and return its path.

    `file`: the file of flows, for the command that repeats them.
    """
    return html.write(page(outcome, file), folder / PAGE)


def page(outcome: Outcome, file: Path) -> Page:
    """Return the page of an outcome."""
    flows, clock = outcome["flows"], outcome["clock"]
    lead: list[Part] = [Tiles(_tiles(outcome))]
    if outcome.get("calibration"):
        lead.append(Text(calibration.sentence(outcome["calibration"]) + ".", "warning"))
    over_time = [_goodput(outcome), _window(outcome), *_fairness(outcome)]
    again = f"./satlab flows {shlex.quote(str(file))} --clock {clock}"
    count = f"{len(flows)} flows" if len(flows) > 1 else f"flow {flows[0]['id']}"
    return Page(
        "satlab flows",
        f"{file.stem}: {count}, {clock} clock",
        lead,
        [
            Section("Flows", [_flows(outcome), Text(FLOWS, "note")]),
            Section("Over time", over_time),
            Section("Groups", [_groups(outcome), Text(GROUPS, "note")]),
            Section("Queues", [_queues(outcome), _waiting(outcome)]),
            Section("How to reproduce", [Text(again, "code")]),
        ],
    )


FLOWS = (
    "Goodput: payload in order at the receiver per time that the flow ran. RTT: as its sender"
    " measures it, mean and standard deviation over time. Lost: declared lost by the sender; of udp:"
    " sent and not received. Repeated: UDP payload declared lost per sent."
)
GROUPS = (
    "Jain's index of the goodputs while all flows of the group run: 1 if they are equal, 1/n if one"
    " of n flows gets everything. Used: payload of the group per capacity of the link."
)


def _tiles(outcome: Outcome) -> list[Tile]:
    flows = outcome["flows"]
    found = []
    for group in outcome["groups"][:3]:
        count = f"{group['flows']} flow{'s' if group['flows'] > 1 else ''}"
        named = f"{count} of group {group['group']}, {group['direction']}"
        if group["jain"] is not None:
            found.append(Tile(f"{group['jain']:.3f}", f"Jain's index, {named}; 1: all equal"))
        if group["utilisation"] is not None:
            found.append(Tile(f"{group['utilisation']:.0%}", f"of the link used, {named}"))
    if len(flows) <= 2:
        found += [
            Tile(f"{one['goodput_mbps']:.2f}", f"Goodput, {one['id']}", "Mbit/s") for one in flows
        ]
    ended = sum(one["status"] == "ok" for one in flows)
    state: State = "good" if ended == len(flows) else "bad"
    found.append(Tile(f"{ended}/{len(flows)}", "flows ended as planned", state=state))
    if outcome["clock"] == "real":
        bad = len(outcome["calibration"])
        caption = "checks out of calibration" if bad else "Calibration held: the link was as asked"
        found.append(Tile(str(bad or "\N{CHECK MARK}"), caption, state="bad" if bad else ""))
    return found


# --- tables ---------------------------------------------------------------------------------------


def _flows(outcome: Outcome) -> Table:
    head = (
        *("Flow", "Group", "Stack", "From", "To", "Goodput (Mbit/s)", "RTT (ms)", "Lost (packets)"),
        *("Repeated", "Status"),
    )
    rows = []
    for asked, one in zip(outcome["request"]["flows"], outcome["flows"], strict=True):
        rtt = [phase["rtt_ms"] for phase in one["phases"] if phase["rtt_ms"]]
        rows.append(
            (
                one["id"],
                asked.get("group", "all"),
                f"{asked['stack']} {asked.get('congestion_control') or ''}".strip(),
                asked["from"],
                asked["to"],
                f"{one['goodput_mbps']:.3f}",
                "\n".join(f"{each['mean']:.1f} ± {each['sd']:.1f}" for each in rtt) or NOTHING,
                f"{one['lost_packets']:,}",
                f"{one['retransmitted_share']:.2%}",
                one["status"] + (f": {one['reason']}" if one["reason"] else ""),
            )
        )
    phases = len(outcome["flows"][0]["phases"])
    caption = f"RTT: a line for each of the {phases} phases." if phases > 1 else ""
    return Table(head, rows, numbers=head[5:9], caption=caption, cards=True, keys=1)


def _groups(outcome: Outcome) -> Table:
    head = ("Group", "Direction", "Flows", "Failed", "Jain's index", "Used")
    rows = [
        (
            one["group"],
            one["direction"],
            str(one["flows"]),
            str(one["failed"]),
            NOTHING if one["jain"] is None else f"{one['jain']:.4f}",
            NOTHING if one["utilisation"] is None else f"{one['utilisation']:.1%}",
        )
        for one in outcome["groups"]
    ]
    return Table(head, rows, numbers=all_but(head, 2))


def _queues(outcome: Outcome) -> Table:
    head = ("Direction", "From (s)", "To (s)", "p50 (ms)", "p95 (ms)", "p99 (ms)", "Max (ms)")
    names = ("from_s", "to_s", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    rows = [
        (one["direction"], *(f"{phase[name]:.1f}" for name in names))
        for one in outcome["queues"]
        for phase in one["phases"]
    ]
    return Table(head, rows, numbers=all_but(head, 1))


# --- plots ----------------------------------------------------------------------------------------


def _bins(outcome: Outcome, number: int, name: str, scale: float) -> Points:
    """Return a series of a flow, its means over 1 s."""
    bin_s = outcome["request"]["bin_ms"] / 1000
    values = enumerate(outcome["flows"][number]["bins"][name], start=1)
    found = [(place * bin_s, value * scale) for place, value in values if value is not None]
    return per_second(found) if bin_s < 1 else found


def _drawn(outcome: Outcome, name: str, scale: float) -> dict[str, Points]:
    """Return a series of the first flows by their ids; none of those without values."""
    found = {
        one["id"]: _bins(outcome, number, name, scale)
        for number, one in enumerate(outcome["flows"][:MOST_FLOWS])
    }
    return {name: points for name, points in found.items() if any(value for _, value in points)}


def _note(outcome: Outcome) -> str:
    count = len(outcome["flows"])
    return f" The first {MOST_FLOWS} of {count} flows." if count > MOST_FLOWS else ""


def marks(request: Mapping[str, Any]) -> list[Mark]:
    """Return a line for each moment of a request of flows at which the link changes or a client
    moves.
    """
    found: dict[float, str] = {}
    for step in (request.get("wire") or {}).get("timeline", []):
        changed = [name for field, name in CHANGES.items() if step.get(field) is not None]
        found[step["at_s"]] = changed[0] if changed else "change"
    for one in request.get("flows", []):
        for at_s in one.get("migrate_s") or ():
            found.setdefault(at_s, f"{one['id']} moves")
    is_few = len(found) <= MOST_MARKS
    return [Mark("x", at, label=name if is_few else "") for at, name in sorted(found.items())]


def _goodput(outcome: Outcome) -> Plot:
    scale = 8e-6 / (outcome["request"]["bin_ms"] / 1000)
    lines = _drawn(outcome, "payload_bytes", scale)
    return Plot(
        key="goodput",
        title="Goodput by flow",
        caption="Payload in order at the receiver, means over 1 s." + _note(outcome),
        x=Axis(TIME, range=(0, outcome["request"]["duration_s"])),
        y=(Axis("Goodput (Mbit/s)", from_zero=True),),
        series=[line(name, points, style) for style, (name, points) in enumerate(lines.items())],
        height=340 + 5 * len(lines),
        table=side_by_side({f"{name} (Mbit/s)": points for name, points in lines.items()}),
        marks=marks(outcome["request"]),
    )


def _window(outcome: Outcome) -> Plot:
    """Draw window and RTT of each flow and the delay of both queues, over one time axis."""
    queues = {
        one["direction"]: per_second(
            [((n + 1) * QUEUE_S, delay) for n, delay in enumerate(one["delays_ms"])]
        )
        for one in outcome["queues"]
    }
    rows: tuple[tuple[str, str, Mapping[str, Points]], ...] = (
        ("Congestion window", "kB", _drawn(outcome, "cwnd_bytes", 1e-3)),
        ("RTT at the sender", "ms", _drawn(outcome, "rtt_ms", 1.0)),
        ("Delay of the queue", "ms", queues),
    )
    ids = [one["id"] for one in outcome["flows"]]
    series: list[Series] = []
    columns: dict[str, Points] = {}
    for place, (title, unit, lines) in enumerate(rows):
        for number, (name, points) in enumerate(lines.items()):
            if is_queue := place == 2:
                one = line(f"{name} queue", points)
                one = replace(one, colour="--muted", dash=("solid", "dot")[number])
            else:
                one = line(name, points, ids.index(name))
            is_listed = is_queue or place == 0
            series.append(replace(one, row=place, group=one.name, in_legend=is_listed))
            columns[f"{title}, {name} ({unit})"] = points
    return Plot(
        key="window",
        title="Window, RTT and queue",
        caption="Means over 1 s. The queues are those of all flows together; their delay is the"
        " time that the link needs for what waits." + _note(outcome),
        x=Axis(TIME, range=(0, outcome["request"]["duration_s"])),
        y=tuple(Axis(unit, from_zero=True, heading=title) for title, unit, _ in rows),
        series=series,
        height=660,
        table=side_by_side(columns),
        marks=marks(outcome["request"]),
        room=60,
    )


def _fairness(outcome: Outcome) -> list[Plot]:
    """Draw Jain's index of the groups with several flows over time."""
    lines = {
        f"{one['group']}, {one['direction']}": [
            (second + 0.5, value)
            for second, value in enumerate(one["jain_over_time"])
            if value is not None
        ]
        for one in outcome["groups"]
    }
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return []
    return [
        Plot(
            key="fairness",
            title="Fairness over time",
            caption="Jain's index of the goodputs of a second, of the flows of a group that run.",
            x=Axis(TIME, range=(0, outcome["request"]["duration_s"])),
            y=(Axis("Jain's index", range=(0, 1.05)),),
            series=[line(name, each, style) for style, (name, each) in enumerate(lines.items())],
            height=260,
            table=side_by_side(lines),
            marks=marks(outcome["request"]),
        )
    ]


def _waiting(outcome: Outcome) -> Plot:
    """Draw the distribution of the delay of both queues."""
    found = {one["direction"]: one["delays_ms"] for one in outcome["queues"] if one["delays_ms"]}
    return Plot(
        key="queue-delay",
        title="Delay of the queue: distribution",
        caption="Share of the time in which the queue holds at most this much, by samples every"
        " 50 ms.",
        x=Axis("Delay of the queue (ms)", from_zero=True),
        y=(Axis("Share of the time (%)", range=(0, 102)),),
        series=[cumulative(name, values, n) for n, (name, values) in enumerate(found.items())],
        height=300,
        table=percentiles("queue", "samples", found),
    )
