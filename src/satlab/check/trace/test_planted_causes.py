# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of planted causes in docs/regression.md, cell by cell: real stacks under the virtual
clock, and a model.

Its last row needs a CPU: tests/net/test_check.py.
"""

from pathlib import Path
from typing import Any

import pytest

from satlab.check import case_link
from satlab.check.backend import virtual_clock
from satlab.check.conftest import small
from satlab.check.suite import Case
from satlab.check.trace import causes
from satlab.check.trace.causes import SenderState, TransferTrace
from satlab.common import paths

RTT_S = 0.65
PLANTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a link of 5 Mbit/s": ({"forward_mbps": 5}, {"bytes": 16_000_000}),
    "an application that makes 2 Mbit/s": ({}, {"source_mbps": 2}),
    "stream credit of 100 kB": ({}, {"client": {"stream_receive_window": 100_000}}),
    "a link that loses 5 % of the packets": ({"loss": {"unit": "packet", "ratio": 0.05}}, {}),
}
"""What is planted in a transfer of 4 MB over 20 Mbit/s: in the case, and in the request."""
STACKS: dict[str, dict[str, Any]] = {
    "CUBIC": {"stack": "quinn"},
    "BBRv3": {"stack": "noq", "server": {"congestion_control": "bbr3"}},
}
MODEL: dict[str, dict[str, Any]] = {
    "a link of 5 Mbit/s": {"rate_bps": 5e6, "link_share": 0.98},
    "an application that makes 2 Mbit/s": {
        "rate_bps": 2e6,
        "is_app_limited": True,
        "supply": "slow",
    },
    "stream credit of 100 kB": {"rate_bps": 1.2e6, "is_app_limited": True},
    "a link that loses 5 % of the packets": {
        "rate_bps": 8e6,
        "lost_packets": 50,
        "link_share": 0.4,
    },
    "a sender with a thousandth of a core": {"rate_bps": 1e6},
}
"""States of a sender that paces at 8 Mbit/s, or at the link's 5: what it sends, and what differs.
"""


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the document: by what was planted, and by sender."""
    text = (paths.ROOT / "docs/regression.md").read_text().partition("| planted |")
    head, _, *rows = [
        line.strip("| ").split(" | ")
        for line in f"planted |{text[2]}".partition("\n\n")[0].splitlines()
    ]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


CELLS = [
    (planted, sender, cause) for planted, row in table().items() for sender, cause in row.items()
]


def test_the_table_is_whole() -> None:
    assert list(table()) == list(MODEL) and list(PLANTED) == list(MODEL)[:-1]
    assert {tuple(row) for row in table().values()} == {(*STACKS, "fixed rate")}


@pytest.mark.parametrize(
    ("planted", "sender", "cause"),
    [cell for cell in CELLS if cell[0] in PLANTED and cell[1] in STACKS],
)
def test_a_planted_cause_is_named_for_each_kind_of_sender(
    planted: str, sender: str, cause: str, tmp_path: Path
) -> None:
    case, changes = PLANTED[planted]
    fields = {
        "id": "planted",
        "forward_mbps": 20,
        "return_mbps": 2,
        "targets_s": [None],
        "timeout_s": 1000,
    } | case
    plan = small(cases=[fields], marks_mb=[4])
    made: Case = plan.cases[0]
    request = virtual_clock.transfer(plan, made, 1, {}, {}) | changes | STACKS[sender]
    sample = virtual_clock.run(
        case_link.build(plan, made, tmp_path / "profiles"), request, tmp_path, made
    )
    assert sample.spent_s is not None and causes.largest(sample.spent_s) == cause, sample


@pytest.mark.parametrize(
    ("planted", "cause"), [(planted, row["fixed rate"]) for planted, row in table().items()]
)
def test_a_planted_cause_is_named_for_a_sender_with_a_fixed_rate(planted: str, cause: str) -> None:
    changes = dict(MODEL[planted])
    rate_bps = changes.pop("rate_bps")
    pacing_bps = 5e6 if planted == "a link of 5 Mbit/s" else 8e6
    fields: dict[str, Any] = {
        "cwnd_bytes": 4e6,
        "in_flight_bytes": rate_bps / 8 * RTT_S,
        "is_handshaking": False,
        "is_slow_start": True,
        "is_app_limited": False,
        "supply": "blocked",
        "rtt_ms": RTT_S * 1e3,
        "lost_packets": 0,
        "payload_queue_ms": 0.0,
        "ack_queue_ms": 0.0,
        "pacing_bps": pacing_bps,
    }
    states = [SenderState(t_s=tick / 20, **(fields | changes)) for tick in range(20, 400)]
    spent_s = TransferTrace(1.0, 20.0, states).spent_s()
    assert causes.largest(spent_s) == cause and spent_s[cause] > 17, spent_s
