# SPDX-License-Identifier: GPL-3.0-or-later
"""Published page metrics: Table II of Kosek et al., IFIP Networking 2022 (papers/seed-002)."""

import csv
from collections.abc import Mapping
from functools import cache
from typing import Any

import collect
from satlab.common.paths import ROOT

FILE = ROOT / "papers" / "seed-002" / "published.csv"
SOURCE = (
    "Kosek, Cech, Bajpai, Ott: Exploring Proxying QUIC and HTTP/3 for Satellite Communication, IFIP"
    " Networking 2022, Table II (no loss, median of 100 loads)"
)
PAGE = "kepler"
RTT_MS = {"geo": 580.0, "leo": 112.0}
"""The configured round trips of its orbits."""
RTT_SLACK_MS = 1.0
PEPS = {"h1": ("haproxy", "pepsal"), "h3": ("quic-h3-capable",)}
"""Which of our proxies stand for the paper's, by protocol; it had PEPsal, and a QUIC proxy that
connects to its next hop first.
"""


@cache
def _table() -> Mapping[tuple[str, str, str], float]:
    """Return the medians by place (orbit and loss in percent), type and metric."""
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {(row["cell"], row["algorithm"], row["metric"]): float(row["mean"]) for row in rows}


def published_ms(
    profile: str, page: str, protocol: str, pep: str, metric: str, link: Mapping[str, Any] | None
) -> float | None:
    """Return the published median in ms, or None where the paper measured something else.

    The link must be the paper's: its profile, its configured round-trip time, no loss in either
    direction. So must the proxy (`pep` as in the records of page loads). `link` is the link plan
    (schemas/link-plan.schema.json); without one nothing is known about the link.
    """
    if page != PAGE or link is None or pep not in (collect.NO_PEP, *PEPS.get(protocol, ())):
        return None
    rtt_ms = RTT_MS.get(profile)
    if rtt_ms is None or abs(link["rtt_ms"]["configured"] - rtt_ms) > RTT_SLACK_MS:
        return None
    if link["forward"]["loss_ratio"] or link["return"]["loss_ratio"]:
        return None
    kind = protocol if pep == collect.NO_PEP else f"{protocol}-pep"
    return _table().get((f"{profile}/0", kind, metric))
