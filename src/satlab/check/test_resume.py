# SPDX-License-Identifier: GPL-3.0-or-later
"""The suites `resume` and `second`: cases in each mode, changes between two transfers, floors, own
targets.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest

from satlab.check import case_link, suite, time_floors
from satlab.check.backend import virtual_clock
from satlab.check.case_link import CaseLink, _sets
from satlab.check.samples import Sample
from satlab.check.suite import Case
from satlab.check.trace import careful_resume
from satlab.common import paths

RESUME = suite.load(paths.SUITES / "resume.yml")
SECOND, ETOSAT = (suite.load(paths.SUITES / f"{name}.yml") for name in ("second", "etosat"))
MODES = ("off", "iw32", "iw100", "0rtt", "cr", "0rtt-cr", "blind")


def case(**fields: Any) -> Case:
    return Case.model_validate({"id": "a", "forward_mbps": 50, "return_mbps": 10} | fields)


LINK = cast(
    "CaseLink",
    SimpleNamespace(
        plan=SimpleNamespace(
            forward=SimpleNamespace(symbol_rate_baud=25e6),
            terrestrial_one_way_delay_ms=75.0,
            model_dump=lambda **_: {
                "rtt_ms": {"min": 650.0},
                "forward": {"rate_bps": 49e6, "tcp_goodput_bps": 47e6, "udp_goodput_bps": 48e6},
                "return": {"rate_bps": 9.9e6, "tcp_goodput_bps": 9.4e6, "udp_goodput_bps": 9.6e6},
            },
        )
    ),
)


def test_each_case_is_taken_in_each_mode() -> None:
    ids = [one.id for one in RESUME.cases]
    assert ids[:7] == [f"same-{mode}" for mode in MODES] and len(ids) == 11 * 7
    schema = json.loads((paths.SCHEMAS / "virtual-transfer.schema.json").read_text())
    requests = {one.id: virtual_clock.transfer(RESUME, one, 1, {}, {}) for one in RESUME.cases}
    for request in requests.values():
        jsonschema.validate(request, schema)
    assert requests["same-cr"]["server"] == {"careful_resume": "on"}
    assert (requests["same-cr"]["zero_rtt"], requests["same-0rtt-cr"]["zero_rtt"]) == (False, True)
    assert requests["slow-source-off"]["source_mbps"] == 20
    assert (
        requests["two-clients-cr"]["neighbour"] is True and "neighbour" not in requests["same-cr"]
    )


def test_the_open_cells_have_the_links_of_the_draft_and_targets_of_our_own() -> None:
    open_cells = {one.id for one in ETOSAT.cases if None in one.targets_s}
    assert {one.id for one in SECOND.cases} == open_cells and SECOND.marks_mb == ETOSAT.marks_mb
    for one in SECOND.cases:
        draft = ETOSAT.case(one.id)
        assert set(draft.targets_s) == {None}
        links = [
            each.model_dump(exclude={"targets_s", "reference_s", "zero_rtt"})
            for each in (one, draft)
        ]
        assert links[0] == links[1]
        # Only what an earlier connection learned can be judged, and it is a verdict of ours.
        assert (None not in one.targets_s) == (one.second_after_s is not None)
        assert not one.sends_early_data
    assert (SECOND.targets, ETOSAT.targets) == ("own target s", "target s")


def test_a_target_of_our_own_is_not_below_its_floor(tmp_path: Path) -> None:
    for one in SECOND.cases:
        link = case_link.build(SECOND, one, tmp_path)
        marks = [round(mark * suite.MB) for mark in SECOND.marks_mb]
        floors = time_floors.possible(
            Sample(one.id, 1, "failed", "", (None,)), one, marks, link
        ).floors_s
        judged = [
            (target, floor)
            for target, floor in zip(one.targets_s, floors, strict=True)
            if target is not None
        ]
        assert all(floor < target for target, floor in judged), judged


def test_options_of_the_command_line_are_stronger_than_those_of_a_case() -> None:
    request = virtual_clock.transfer(
        RESUME, RESUME.case("same-iw32"), 1, {}, {"initial_window": 16}
    )
    assert request["server"] == {"initial_window": 16}


def test_a_change_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        case(changes=[{"at_s": 1}])


def test_changes_become_those_of_the_satellite_segment() -> None:
    changed = case(changes=[{"at_s": 45, "forward_mbps": 25, "rtt_ms": 260}])
    found = [one.model_dump(exclude_unset=True) for one in _sets(LINK, changed, changed.changes[0])]
    assert found == [
        {"direction": "forward", "symbol_rate_baud": 12_500_000},
        {"direction": "both", "delay_ms": 55.0},
    ]


@pytest.mark.parametrize(
    ("fields", "size", "expected_s"),
    [
        ({}, 2_000_000, 1.3 + 16 / 48),
        ({"second_after_s": 10}, 2_000_000, 0.65 + 16 / 48),
        ({"second_after_s": 10, "zero_rtt": False}, 2_000_000, 1.3 + 16 / 48),
        ({"direction": "upload"}, 2_000_000, 0.975 + 16 / 9.6),
        # 4.025 s at 48 Mbit/s, the rest at a fifth of it: what was released before the change still
        # arrives.
        (
            {"changes": [{"at_s": 5, "forward_mbps": 10}]},
            30_000_000,
            5.325 + (240 - 4.025 * 48) / 9.6,
        ),
        ({"changes": [{"at_s": 5, "forward_mbps": 100}]}, 6_000_000, 1.3 + 48 / 96),
        ({"changes": [{"at_s": 5, "forward_mbps": 10}]}, 2_000_000, 1.3 + 16 / 48),
        (
            {"changes": [{"at_s": 45, "forward_mbps": 25}], "second_after_s": 60},
            3_000_000,
            0.65 + 24 / 24,
        ),
        ({"changes": [{"at_s": 45, "rtt_ms": 260}], "second_after_s": 60}, 6_000_000, 0.26 + 1.0),
    ],
)
def test_the_floor_is_round_trips_and_bytes(
    fields: dict[str, Any], size: int, expected_s: float
) -> None:
    found = time_floors.possible(
        Sample("a", 1, "failed", "", (None,)), case(**fields), [size], LINK
    )
    assert found.floors_s == pytest.approx((expected_s,))


@pytest.mark.parametrize(
    ("resumed", "text"),
    [
        (None, None),
        ({"phases": []}, None),
        (
            {"phases": [{"trigger": "rtt_not_validated"}], "jump_bytes": None},
            "no jump (rtt_not_validated)",
        ),
        ({"phases": [{"trigger": None}], "jump_bytes": None}, "no jump (nothing to gain)"),
        (
            {"phases": [{}], "jump_bytes": 2_030_000, "retreated": False, "lost_bytes": 0},
            "a jump to 2.03 MB",
        ),
        (
            {"phases": [{}], "jump_bytes": 2_030_000, "retreated": True, "lost_bytes": 310_000},
            "a jump to 2.03 MB, taken back, 0.31 MB of it lost",
        ),
    ],
)
def test_the_table_says_what_careful_resume_did(
    resumed: careful_resume.Resumed | None, text: str | None
) -> None:
    expected = () if text is None else (f"careful resume: {text}",)
    assert careful_resume.symptoms(resumed) == expected
