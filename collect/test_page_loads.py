# SPDX-License-Identifier: GPL-3.0-or-later
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collect import page_loads
from collect.fixtures.example_run import failed_load, page_load
from collect.percentile import percentile
from collect.records import Record

LABELS = {"job": "satlab_page_load", "instance": "1"}


def load(index: int, pep: str = "none", **change: Any) -> list[Record]:
    content = page_load("h3", index, random.Random(index)) | change  # noqa: S311
    return page_loads.records(page_loads.PageLoad.model_validate(content), LABELS, pep)


def broken(index: int, status: str, reason: str = "why", pep: str = "none") -> list[Record]:
    content = failed_load(page_load("h3", index, random.Random(index)), status, reason)  # noqa: S311
    return page_loads.records(page_loads.PageLoad.model_validate(content), LABELS, pep)


def summary(rows: list[Record], metric: str, stat: str) -> Record:
    (found,) = [
        r for r in page_loads.over_loads(rows) if r.metric == metric and r.labels["stat"] == stat
    ]
    return found


def plt(*values: float) -> list[Record]:
    return [
        row for index, value in enumerate(values) for row in load(index, page_load_time_ms=value)
    ]


def test_each_metric_of_a_load_is_one_row_that_names_protocol_load_server_browser() -> None:
    rows = {r.metric: r for r in load(3, response_start_ms=1314.0)}
    assert rows["response_start_ms"].value == 1314.0
    assert {
        "protocol": "h3",
        "load": "3",
        "server": "h2o/2.2.5",
        "browser": "Chromium 150.0",
    }.items() <= rows["page_load_time_ms"].labels.items()
    assert rows["completeness_ratio"].value == 1.0
    assert rows["cpu_s"].value == pytest.approx(2.5)


def test_shifts_and_clicks_have_records_only_if_they_were_measured() -> None:
    names = {page_loads.LAYOUT_SHIFT, page_loads.INTERACTION}
    assert not names & {row.metric for row in load(0)}, "Firefox, or an older run"
    figures: dict[str, Any] = {"cumulative_layout_shift": 0, "interaction_to_next_paint_ms": 24.0}
    rows = {row.metric: row.value for row in load(0, clicked=True, **figures)}
    assert (rows[page_loads.LAYOUT_SHIFT], rows[page_loads.INTERACTION]) == (0, 24)
    (unanswered,) = [r for r in load(0, clicked=True) if r.metric == page_loads.INTERACTION]
    assert unanswered.status == "failed"
    shifts = [row for n in range(3) for row in load(n, cumulative_layout_shift=n / 10)]
    assert summary(shifts, page_loads.LAYOUT_SHIFT, "median").value == 0.1


@pytest.mark.parametrize("status", ["failed", "censored"])
def test_a_load_without_result_keeps_its_rows(status: str) -> None:
    rows = {r.metric: r for r in broken(1, status, "timeout 33 s")}
    for metric in page_loads.METRICS:
        assert (rows[metric].value, rows[metric].status, rows[metric].reason) == (
            None,
            status,
            "timeout 33 s",
        )
    assert rows["completeness_ratio"].value == pytest.approx(402_113 / 815_804)


def test_a_censored_load_keeps_what_came_before_the_deadline() -> None:
    rows = {
        r.metric: r
        for r in load(1, status="censored", reason="timeout 33 s", page_load_time_ms=None)
    }
    assert rows["response_start_ms"].status == "ok"
    assert rows["page_load_time_ms"].status == "censored"


def test_an_ok_load_without_a_paint_entry_is_a_failed_sample() -> None:
    rows = {r.metric: r for r in load(1, first_contentful_paint_ms=None)}
    assert rows["first_contentful_paint_ms"].status == "failed"


def test_median_min_max_and_counts() -> None:
    rows = [*plt(7000, 7600, 9000), *broken(9, "failed")]
    median = summary(rows, "page_load_time_ms", "median")
    assert median.value == 7600
    assert {"n": "3", "failed": "1", "censored": "0"}.items() <= median.labels.items()
    assert summary(rows, "page_load_time_ms", "min").value == 7000
    assert summary(rows, "page_load_time_ms", "max").value == 9000


def test_censored_loads_count_as_longer_than_all_others() -> None:
    rows = [*plt(7000, 7600, 9000), *broken(8, "censored"), *broken(9, "censored")]
    assert summary(rows, "page_load_time_ms", "median").value == 9000


def test_a_median_among_censored_loads_is_censored() -> None:
    rows = [*plt(7000), *broken(8, "censored"), *broken(9, "censored")]
    median = summary(rows, "page_load_time_ms", "median")
    assert (median.value, median.status) == (None, "censored")
    assert "2 of 3" in median.reason


def test_nothing_but_failures_is_a_failed_median() -> None:
    median = summary(broken(1, "failed"), "page_load_time_ms", "median")
    assert (median.value, median.status) == (None, "failed")


@pytest.mark.promise("P38")
def test_percentiles_are_of_twenty_loads_or_more() -> None:
    times = [float(1000 + n) for n in range(20)]
    rows = page_loads.over_loads(plt(*times[::-1]))
    found = {
        r.labels["stat"]: (r.value, r.labels["n"]) for r in rows if r.metric == "page_load_time_ms"
    }
    assert (found["p75"], found["p95"]) == ((1014.0, "20"), (1018.0, "20"))
    few = page_loads.over_loads(plt(*times[1:]))
    assert {r.labels["stat"] for r in few} == {"median", "min", "max"}


def test_a_percentile_among_censored_loads_is_censored() -> None:
    rows = [
        *plt(*(1000.0 + n for n in range(18))),
        *broken(18, "censored"),
        *broken(19, "censored"),
    ]
    assert summary(rows, "page_load_time_ms", "p75").value == 1014
    last = summary(rows, "page_load_time_ms", "p95")
    assert (last.value, last.status) == (None, "censored")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([1, 50, 75, 95, 100]))
def test_a_percentile_is_the_least_sample_that_enough_samples_do_not_exceed(
    values: list[float], share: int
) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= share * len(values)
    assert 100 * sum(value < found for value in values) < share * len(values)


def test_loads_with_and_without_a_proxy_are_not_pooled() -> None:
    rows = [*load(1, page_load_time_ms=100.0), *load(1, pep="haproxy", page_load_time_ms=300.0)]
    medians = {
        r.labels["pep"]: r.value
        for r in page_loads.over_loads(rows)
        if (r.metric, r.labels["stat"]) == ("page_load_time_ms", "median")
    }
    assert medians == {"none": 100.0, "haproxy": 300.0}
