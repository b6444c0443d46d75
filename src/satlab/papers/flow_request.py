# SPDX-License-Identifier: GPL-3.0-or-later
"""A cell of a paper as a file of flows."""

import random
from typing import Any

from satlab.papers.paper import Cell, Flows, Link, Paper, Stretch

BIN_MS = 100


def request(paper: Paper, cell: Cell, number: int) -> dict[str, Any]:
    """Return the file of flows of one run; the run's number is its seed."""
    duration_s = cell.duration_s or paper.duration_s
    link = paper.links[cell.link or paper.path[0].link]
    back_mbps = cell.return_mbps or link.return_mbps or link.rate_mbps
    loss = {} if cell.loss is None else {"loss": paper.losses[cell.loss]}
    common = {"delay_ms": link.rtt_ms / 2} | (
        {"header_bytes": cell.header_bytes} if cell.header_bytes else {}
    )
    half = {"rate_mbps": link.rate_mbps, **common, "queue": dict(paper.queues[cell.queue]), **loss}
    back = {"rate_mbps": back_mbps, **common, "queue": _return_queue(paper, cell, link, back_mbps)}
    timeline = [] if cell.link else _timeline(paper, cell, duration_s)
    phases = [at for at in paper.phases_s if at < duration_s]
    fec = {} if cell.fec is None else {"fec": {"code": cell.fec, "hold_ms": paper.fec_hold_ms}}
    return {
        "schema": "satlab/virtual-flows/1",
        "seed": number,
        "duration_s": duration_s,
        "bin_ms": BIN_MS,
        "phases_s": phases,
        **fec,
        **({} if cell.hystart is None else {"tcp_hystart": cell.hystart}),
        "wire": {"forward": half, "return": back, "timeline": timeline},
        "flows": _flows(
            paper, cell, number, [step["at_s"] for step in timeline] if cell.migrate else []
        ),
    }


def _return_queue(paper: Paper, cell: Cell, link: Link, back_mbps: float) -> dict[str, Any]:
    """Return the queue of the return direction.

    The forward queue's BDP uses the forward rate.
    """
    limit = cell.return_queue or paper.return_queue
    if limit != "forward":
        return {"bytes": round(limit * back_mbps * link.rtt_ms * 125)}
    queue = dict(paper.queues[cell.queue])
    return (
        {"bytes": round(queue["bdp"] * link.rate_mbps * link.rtt_ms * 125)}
        if "bdp" in queue
        else queue
    )


def _flows(paper: Paper, cell: Cell, number: int, migrations: list[float]) -> list[dict[str, Any]]:
    """Return all flows; each starts up to `start_within_s` after its time, in other runs at other
    moments.
    """
    phase = random.Random(number)  # noqa: S311 - a phase, not a secret
    flows: list[dict[str, Any]] = []
    for part in cell.flows:
        for index in range(part.count):
            start_s = (part.start_s or 0.0) + index * part.stagger_s
            if part.start_s is None:
                start_s += phase.uniform(0, paper.start_within_s)
            flows.append(_flow(cell, part, len(flows), round(start_s, 6), migrations))
    if len(flows) == 1:
        flows[0]["id"] = "flow"
    return flows


def _flow(
    cell: Cell, part: Flows, index: int, start_s: float, migrations: list[float]
) -> dict[str, Any]:
    pair = 1 + index % 2
    ends = (f"server{pair}", f"client{pair}")
    stack = part.stack or cell.stack
    quic = {} if stack == "udp" else {"congestion_control": part.control or cell.control}
    given = {
        "stop_s": None if part.life_s is None else round(start_s + part.life_s, 6),
        "bytes": part.bytes,
        "rate_mbps": part.rate_mbps,
        "datagram_bytes": cell.datagram_bytes,
        "migrate_s": migrations or None,
    }
    return {
        "id": f"flow-{index + 1}",
        "group": part.group,
        "from": ends[part.upload],
        "to": ends[not part.upload],
        "stack": stack,
        **quic,
        "start_s": start_s,
        **{name: value for name, value in given.items() if value is not None},
        **part.options,
    }


def _timeline(paper: Paper, cell: Cell, duration_s: float) -> list[dict[str, Any]]:
    stretches = paper.path[1:]
    if cell.change_every_s is not None:
        count = int(duration_s / cell.change_every_s)
        stretches = tuple(
            Stretch(at_s=n * cell.change_every_s, link=paper.path[n % len(paper.path)].link)
            for n in range(1, count + 1)
            if n * cell.change_every_s < duration_s
        )
    given = {"outage_s": cell.outage_s, "waiting": cell.handover}
    more = {name: value for name, value in given.items() if value is not None}
    return [
        {
            "at_s": stretch.at_s,
            "direction": "both",
            "rate_mbps": paper.links[stretch.link].rate_mbps,
            "delay_ms": paper.links[stretch.link].rtt_ms / 2,
            **more,
        }
        for stretch in stretches
    ]
