# SPDX-License-Identifier: GPL-3.0-or-later
"""The papers that ship, and the clocks on which each can be repeated."""

from typing import Literal

Clock = Literal["real", "virtual"]
PaperName = Literal["seed-000", "seed-001", "seed-002", "seed-003", "seed-004", "rfc-9959"]
KNOWN_AS: dict[str, PaperName] = {
    "martin-2022": "seed-000",
    "petrou-2022": "seed-001",
    "kosek-2022": "seed-002",
    "bujari": "seed-003",
    "kuhn-2021": "seed-004",
}
"""Papers by the name that they are known by (`known_as` in paper.yml)."""
NamedPaper = Literal["martin-2022", "petrou-2022", "kosek-2022", "bujari", "kuhn-2021", PaperName]
CLOCKS: dict[str, tuple[Clock, ...]] = {
    "seed-000": ("virtual", "real"),
    "seed-001": ("virtual", "real"),
    "seed-002": ("real",),
    "seed-003": ("virtual", "real"),
    "seed-004": ("virtual",),
    "rfc-9959": ("virtual",),
}
"""The clocks of each of these papers, its default first."""
