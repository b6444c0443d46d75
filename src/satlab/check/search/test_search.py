# SPDX-License-Identifier: GPL-3.0-or-later
"""The search without a link: conditions, verdicts, shrinking, and planted faults in a model of a
stack.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from satlab.check import suite
from satlab.check.search import faults, search_file
from satlab.check.search.conditions import QUANTITIES, Changes, Space, loss
from satlab.check.search.faults import Kind, Limits, Observed
from satlab.check.search.search_file import Finding, Input, SearchRecord
from satlab.check.search.search_loop import Evaluation, Search, shrink
from satlab.check.suite import Suite
from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.link.config import GilbertElliott

ETOSAT = suite.load(paths.SUITES / "etosat.yml")
MEDIUM = Space(ETOSAT, ETOSAT.case("medium"))
NAMES = [one.name for one in QUANTITIES]
Fault = Callable[[dict[str, float]], Kind | None]
changes_of = st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 50), max_size=6)


def asked(seed: int = 1) -> Input:
    return Input(
        suite="etosat",
        case="medium",
        base=MEDIUM.base,
        stack="a model",
        reference="arithmetic",
        options={"client": {}, "server": {}},
        environment={},
        seed=seed,
        share=0.5,
        stall_rtts=10,
        largest_mb=50,
    )


def searched(
    fault: Fault, trials: int, found: SearchRecord | None = None, *, ask: int = 1_000_000
) -> SearchRecord:
    """Search with a model of a stack: up to so many trials, or so many questions whether to
    continue.
    """
    found = found or SearchRecord(input=asked())
    left = iter(range(ask))

    def evaluate(changes: Changes, _: int) -> Evaluation:
        return Evaluation(fault(MEDIUM.base | dict(changes)))

    def may_continue() -> bool:
        return found.trials < trials and next(left, None) is not None

    with ThreadPoolExecutor(2) as pool:
        Search(MEDIUM, found, evaluate, pool, 2, may_continue, lambda _: None).run()
    return found


# --- conditions -----------------------------------------------------------------------------------


def test_the_first_trial_is_the_case_and_others_follow_from_seed_and_number() -> None:
    assert MEDIUM.draw(1, 0) == {}
    drawn = [MEDIUM.draw(1, number) for number in range(1, 300)]
    assert drawn == [MEDIUM.draw(1, number) for number in range(1, 300)]
    assert drawn != [MEDIUM.draw(2, number) for number in range(1, 300)]
    assert {name for changes in drawn for name in changes} == set(NAMES)
    for changes in drawn:
        assert 1 <= len(changes) <= 5 and MEDIUM.effective(changes) == changes
        for one in QUANTITIES:
            assert one.low <= changes.get(one.name, one.low) <= one.high
            assert not one.needs or one.name not in changes or one.needs in changes


@given(changes_of)
def test_what_has_no_effect_does_not_count(values: dict[str, float]) -> None:
    effective = MEDIUM.effective(values | {"queue_bdp": MEDIUM.base["queue_bdp"]})
    assert "queue_bdp" not in effective
    assert "burst_packets" not in effective or "loss_percent" in effective
    assert effective.items() <= values.items()


@pytest.mark.parametrize("number", range(60))
def test_a_condition_is_a_suite_that_is_read_as_it_was_written(number: int) -> None:
    changes = MEDIUM.draw(3, number)
    made = MEDIUM.suite_of(changes, seed=7, timeout_s=60, target_s=5, name="finding-1")
    document = yaml.safe_load(
        yaml.safe_dump(made.model_dump(mode="json", by_alias=True, exclude_unset=True))
    )
    jsonschema.validate(document, json.loads((paths.SCHEMAS / "suite.schema.json").read_text()))
    again = Suite.model_validate(document)
    assert again == made and (again.seed, again.runs) == (7, 1)
    assert again.marks_mb == ((MEDIUM.base | changes)["payload_mb"],)
    [case] = again.cases
    assert case.forward_mbps == changes.get("forward_mbps", 50) and case.targets_s == (5,)
    assert [change.outage_s for change in case.changes] == (
        [changes["outage_s"]] if "outage_s" in changes else []
    )
    assert (case.loss is None) == ("loss_percent" not in changes)
    assert (case.reorder is None) == ("reorder_percent" not in changes)
    assert case.duplicate == changes.get("duplicate_percent", 0) / 100
    assert case.corrupt == changes.get("corrupt_percent", 0) / 100


def test_impairments_are_those_of_the_condition() -> None:
    alone = MEDIUM.suite_of({"reorder_percent": 2.0}, seed=1, timeout_s=60).cases[0]
    assert alone.reorder is not None
    assert alone.reorder.model_dump() == {"ratio": 0.02, "packets": 2, "ms": 50}
    changes = {"reorder_percent": 1.0, "reorder_packets": 7.4, "corrupt_percent": 0.5}
    deep = MEDIUM.suite_of(changes, seed=1, timeout_s=60).cases[0]
    assert deep.reorder is not None and deep.reorder.packets == 7 and deep.corrupt == 0.005
    assert MEDIUM.effective({"reorder_packets": 7.0}) == {}
    held = faults.loaded_rtt_s(MEDIUM.base | {"reorder_percent": 1.0}, 50)
    assert held == pytest.approx(faults.loaded_rtt_s(MEDIUM.base, 50) + 0.05)


def test_what_a_case_has_stays() -> None:
    variable = Space(ETOSAT, ETOSAT.case("medium-variable"))
    [case] = variable.suite_of({"outage_s": 2.0}, seed=1, timeout_s=60).cases
    own = variable.case.changes
    assert len(own) > 0 and len(case.changes) == len(own) + 1 and set(own) <= set(case.changes)
    assert [change.at_s for change in case.changes] == sorted(
        change.at_s for change in case.changes
    )
    lossy = Space(ETOSAT, ETOSAT.case("large-lossy"))
    assert lossy.suite_of({}, seed=1, timeout_s=60).cases[0].loss == lossy.case.loss
    assert Space(ETOSAT, ETOSAT.case("medium"), 3).base["payload_mb"] == 2


@given(st.floats(0.0001, 0.1), st.floats(2, 50))
def test_bursts_have_the_ratio_and_the_length(ratio: float, burst: float) -> None:
    process = GilbertElliott.model_validate(loss(ratio, burst))
    assert process.p / (process.p + process.r) == pytest.approx(ratio)
    assert 1 / process.r == pytest.approx(burst)
    assert loss(ratio, 1) == {"unit": "packet", "ratio": ratio}


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Observed("ok", "", 9.9, 1.0), None),
        (Observed("ok", "", 10.1, 1.0), "slow"),
        (Observed("ok", "", 10.1, 8.1), "stalls"),
        (Observed("ok", "", 9.0, None), None),
        (Observed("censored", "", None, 1.0), "slow"),
        (Observed("censored", "", None, 9.0), "stalls"),
        (Observed("failed", "why", None, 9.0), "dies"),
    ],
)
def test_the_worst_fault_of_a_transfer_counts(found: Observed, kind: Kind | None) -> None:
    assert faults.fault(found, 5.0, 8.0, Limits()) == kind
    if kind == "slow":
        assert faults.fault(found, None, 8.0, Limits()) is None


def test_the_longest_wait_includes_those_for_the_first_byte_and_for_the_end() -> None:
    pairs = [(1, 9), (11, 0), (12, 1), (15, 1), (16, 2)]
    samples = [{"t_s": t_s, "received_bytes": received} for t_s, received in pairs]
    assert faults.longest_wait_s(samples, 10, 17) == 4
    assert faults.longest_wait_s(samples, 5, 17) == 7
    assert faults.longest_wait_s(samples, 10, 30) == 14
    assert faults.longest_wait_s(samples[:1], 10, 30) is None


def test_a_full_queue_and_an_outage_do_not_count_as_a_stall() -> None:
    plain = faults.allowed_wait_s(MEDIUM.base | {"queue_bdp": 0.0}, 50, Limits())
    assert plain == pytest.approx(10 * (0.65 + faults.LOAD_SLACK_S))
    queued = faults.allowed_wait_s(
        MEDIUM.base | {"queue_bdp": 10.0, "payload_mb": 100.0}, 50, Limits()
    )
    assert queued == pytest.approx(plain + 10 * 6.5)
    assert (
        faults.allowed_wait_s(MEDIUM.base | {"queue_bdp": 10.0, "payload_mb": 1.0}, 50, Limits())
        < queued
    )
    out = faults.allowed_wait_s(MEDIUM.base | {"queue_bdp": 0.0, "outage_s": 4.0}, 50, Limits())
    assert out == pytest.approx(plain + 8)


def test_the_arithmetic_is_slow_start_and_the_rate() -> None:
    # 2 MB: 14.7 kB, doubled in each of 8 rounds of 0.65 s, the first of which is in the floor.
    values = MEDIUM.base | {"payload_mb": 2.0}
    assert faults.arithmetic_s(1.62, values, 50) == pytest.approx(1.62 + 7 * 0.65)
    assert faults.arithmetic_s(1.3, values | {"payload_mb": 0.01}, 50) == pytest.approx(1.3)
    assert faults.arithmetic_s(17.3, values | {"payload_mb": 100.0}, 50) == pytest.approx(
        17.3 + 8 * 0.65
    )


# --- shrinking ------------------------------------------------------------------------------------


@given(changes_of, st.sets(st.sampled_from(NAMES), max_size=4))
def test_only_values_that_the_fault_needs_remain(
    values: dict[str, float], needed: set[str]
) -> None:
    kept: list[Changes] = []
    start = MEDIUM.effective(values)

    def holds(changes: Changes) -> bool:
        return needed <= changes.keys()

    if not holds(start):
        return
    found = shrink(MEDIUM, start, holds, kept.append)
    assert holds(found) and all(map(holds, kept)) and len(found) <= len(start)
    for name in found:
        assert not holds(
            MEDIUM.effective({other: value for other, value in found.items() if other != name})
        )


def test_values_are_rounded_while_the_fault_persists() -> None:
    start = {"forward_mbps": 7.4, "rtt_ms": 1870.0, "loss_percent": 0.96}

    def holds(changes: Changes) -> bool:
        return changes.get("forward_mbps", 50) <= 7.4 and len(changes) == 3

    found = shrink(MEDIUM, start, holds, lambda _: None)
    # 2000 ms would be out of range.
    assert found == {"forward_mbps": 7.0, "rtt_ms": 1900.0, "loss_percent": 1.0}


# --- planted faults -------------------------------------------------------------------------------


def packets(values: dict[str, float]) -> float:
    return values["payload_mb"] * 1e6 / 1400


def small_window(values: dict[str, float]) -> Kind | None:
    """A stream window of 1 MB: a MB each round trip."""
    rtt_s, rate_mbps = values["rtt_ms"] / 1e3, values["forward_mbps"]
    floor_s = 2 * rtt_s + values["payload_mb"] * 8 / rate_mbps
    reference_s = faults.arithmetic_s(floor_s, values, rate_mbps)
    return faults.fault(
        Observed("ok", "", max(reference_s, values["payload_mb"] * rtt_s)),
        reference_s,
        1e9,
        Limits(),
    )


def few_losses(values: dict[str, float]) -> Kind | None:
    """Nothing is retransmitted after the 5th loss: expected losses of the payload's packets."""
    return "stalls" if packets(values) * values["loss_percent"] / 100 > 5 else None


def many_gaps(values: dict[str, float]) -> Kind | None:
    """More than 1,000 gaps end the connection; a burst is one gap."""
    return (
        "dies"
        if packets(values) * values["loss_percent"] / 100 / values["burst_packets"] > 1000
        else None
    )


def many_copies(values: dict[str, float]) -> Kind | None:
    """A copy of a packet ends the connection after 100 of them."""
    return "dies" if packets(values) * values["duplicate_percent"] / 100 > 100 else None


@pytest.mark.parametrize(
    ("fault", "kind", "trials", "names"),
    [
        (many_copies, "dies", 100, {"duplicate_percent"}),
        (small_window, "slow", 100, {"payload_mb"}),
        (few_losses, "stalls", 30, {"loss_percent"}),
        (many_gaps, "dies", 400, {"payload_mb", "loss_percent"}),
    ],
)
@pytest.mark.promise("P81")
def test_a_planted_fault_is_found_and_its_condition_is_simple(
    fault: Fault, kind: Kind, trials: int, names: set[str]
) -> None:
    findings = searched(fault, trials).findings
    assert findings and {one.kind for one in findings} == {kind}
    assert all(one.is_shrunk and len(one.changes) <= 4 for one in findings)
    assert any(set(one.changes) == names for one in findings), findings


def test_one_cause_is_one_finding() -> None:
    found = searched(few_losses, 200)
    [one] = found.findings
    assert one.seen > 10 and (one.repeats, one.repeats_of) == (4, 4) and found.trials == 200


def test_a_fault_of_the_case_itself_is_found_once() -> None:
    [one] = searched(lambda _: "slow", 20).findings
    assert (one.trial, one.changes, one.seen) == (0, {}, 20)


def three_faults(values: dict[str, float]) -> Kind | None:
    return (
        many_copies(values) or few_losses(values) or ("slow" if values["rtt_ms"] > 1200 else None)
    )


@pytest.mark.parametrize("ask", [1, 20, 50, 100])
@pytest.mark.promise("P81")
def test_a_search_that_is_interrupted_anywhere_finds_the_same(ask: int, tmp_path: Path) -> None:
    whole = searched(three_faults, 80)
    part = SearchRecord(input=asked())
    parts = 0
    while part.trials < 80:
        searched(three_faults, 80, part, ask=ask * (1 + parts))
        parts += 1
        part.write(tmp_path)
        part = search_file.load(tmp_path, asked())
    for one in (whole, part):
        one.evaluations = 0
    assert parts > 1 and len(whole.findings) >= 3 and part == whole


def test_a_condition_that_the_reference_cannot_carry_is_not_judged() -> None:
    found = SearchRecord(input=asked())
    not_judged = Evaluation(None, is_judged=False)
    with ThreadPoolExecutor(1) as pool:
        Search(
            MEDIUM, found, lambda *_: not_judged, pool, 1, lambda: found.trials < 5, lambda _: None
        ).run()
    assert (found.trials, found.not_judged, found.findings) == (5, 5, [])


def test_an_error_of_the_host_ends_the_search() -> None:
    def evaluate(*_: Any) -> Evaluation:
        raise OSError("no space")

    saved: list[Finding | None] = []
    with ThreadPoolExecutor(2) as pool, pytest.raises(OSError, match="no space"):
        Search(
            MEDIUM, SearchRecord(input=asked()), evaluate, pool, 2, lambda: True, saved.append
        ).run()
    assert saved == [None]


# --- the record -----------------------------------------------------------------------------------


def test_a_record_follows_its_schema_and_another_search_is_refused(tmp_path: Path) -> None:
    found = searched(three_faults, 30)
    found.write(tmp_path)
    document = json.loads((tmp_path / search_file.FILE).read_text())
    jsonschema.validate(document, json.loads((paths.SCHEMAS / "search.schema.json").read_text()))
    assert search_file.load(tmp_path, asked()) == found
    with pytest.raises(ConfigError) as caught:
        search_file.load(tmp_path, asked(seed=2))
    assert [fault.place for fault in caught.value.faults] == ["seed"]
    (tmp_path / search_file.FILE).write_text("{}")
    with pytest.raises(ConfigError, match="not a valid"):
        search_file.load(tmp_path, asked())
    with pytest.raises(ConfigError, match="No such file"):
        search_file.load(tmp_path / "none", asked())
