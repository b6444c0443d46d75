# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes planted in transfers of real stacks under the virtual clock, and in a model.

The table in docs/regression.md is tested cell by cell; its last row needs a CPU:
tests/net/test_check.py.
"""

import json
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


def transferred(
    folder: Path, *, case: dict[str, Any] | None = None, **changes: Any
) -> dict[str, float]:
    """Return the seconds of each cause of 4 MB over 20 Mbit/s (or what `case` has), `changes` in
    the request.
    """
    fields = {"id": "planted", "forward_mbps": 20, "targets_s": [None], "timeout_s": 1000}
    plan = small(fields | (case or {}), marks_mb=[4])
    planted: Case = plan.cases[0]
    request = virtual_clock.transfer(plan, planted, 1, {}, {}) | changes
    link = case_link.build(plan, planted, folder / "profiles")
    sample = virtual_clock.run(link, request, folder, planted)
    assert sample.status == "ok" and sample.spent_s is not None
    assert set(sample.spent_s) == set(causes.CAUSES)
    [outcome] = folder.glob("*.outcome.json")
    whole = json.loads(outcome.read_text())["transfers"][-1]["duration_s"]
    assert sum(sample.spent_s.values()) == pytest.approx(whole)
    return dict(sample.spent_s)


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
    spent = transferred(tmp_path, case=case, **changes, **STACKS[sender])
    assert causes.largest(spent) == cause, spent


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


@pytest.mark.parametrize(
    ("case", "changes", "cause"),
    [
        ({}, {"client": {"initial_window": 1}, "server": {"initial_window": 1}}, "slow start"),
        (
            {"forward_mbps": 100},
            {"bytes": 40_000_000, "client": {"stream_receive_window": 1_000_000}},
            "flow control",
        ),
        ({"direction": "upload", "return_mbps": 0.5}, {}, "link"),
    ],
)
@pytest.mark.promise("P76")
def test_a_planted_cause_is_named(
    case: dict[str, Any], changes: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    spent = transferred(tmp_path, case=case, **changes)
    assert causes.largest(spent) == cause, spent


def test_an_initial_window_of_one_packet_costs_round_trips_of_slow_start(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "10").mkdir()
    one = transferred(tmp_path / "1", server={"initial_window": 1})
    ten = transferred(tmp_path / "10", server={"initial_window": 10})
    # log2(10) doublings of 0.65 s each.
    assert one["slow start"] - ten["slow start"] == pytest.approx(3.32 * 0.65, abs=0.9)


def test_a_return_link_of_50_kbit_s_holds_up_the_acknowledgements(tmp_path: Path) -> None:
    spent = transferred(tmp_path, case={"return_mbps": 0.05})
    assert spent["ack link"] > 1.0 and causes.largest(spent) == "ack link", spent


def test_the_handshake_takes_a_round_trip_and_the_request_half_of_one(tmp_path: Path) -> None:
    spent = transferred(tmp_path)
    assert spent["handshake"] == pytest.approx(1.5 * 0.65, abs=0.05)
    assert spent["delivery"] == pytest.approx(0.5 * 0.65, abs=0.1)
    assert (
        spent["application"]
        == spent["flow control"]
        == spent["host"]
        == spent["loss recovery"]
        == 0.0
    )
