# SPDX-License-Identifier: GPL-3.0-or-later
"""Stored checks as one page, and the badge."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from satlab.check import check_file
from satlab.check.report import matrix_page
from satlab.check.samples import Sample
from satlab.common.errors import ConfigError
from satlab.report.page import Series, Tile


def verdict(
    mark_mb: float | None, target_s: float | None, median_s: float | None, result: str
) -> dict[str, Any]:
    return {
        "mark_mb": mark_mb,
        "target_s": target_s,
        "median_s": median_s,
        "low_s": median_s,
        "high_s": median_s,
        "n": 5,
        "censored": 0,
        "died": [],
        "result": result,
    }


def case(name: str, judged: Any, spent_s: dict[str, float] | None = None) -> check_file.Case:
    return {
        "id": name,
        "forward_mbps": 20.0,
        "return_mbps": 2.0,
        "rtt_ms": 600.0,
        "queue_bytes": (1, 1),
        "spent_s": spent_s,
        "verdicts": [judged],
        "samples": [Sample(name, 1, "ok", "", (4.0,), floors_s=(1.71,))],
    }


def stored(
    folder: Path,
    stack: str,
    began: float,
    median_s: float | None,
    result: str = "pass",
    **changes: Any,
) -> Path:
    spent_s = {"slow start": 3.0, "link": 1.0}
    document = check_file.plain(
        {
            "schema": "satlab/check/1",
            "version": "0.2.0",
            "suite": "etosat",
            "source": "the targets",
            "stack": stack,
            "clock": "virtual",
            "options": {},
            "seed": 1,
            "marks_mb": [2.0],
            "began_unix_s": began,
            "real_s": 1.0,
            "cases": [case("medium", verdict(2.0, 5.0, median_s, result), spent_s)],
            "compared": None,
        }
    )
    file = folder / f"{stack}-{began}.json"
    file.write_text(json.dumps(document | changes, default=asdict))
    return file


@pytest.mark.promise("P85")
def test_the_newest_check_of_each_stack_is_in_the_matrix_and_all_are_in_the_history(
    tmp_path: Path,
) -> None:
    files = [
        stored(tmp_path, "b", 30.0, 4.5),
        stored(tmp_path, "<b>a", 20.0, 6.0, "fail"),
        stored(tmp_path, "b", 10.0, None, "fail"),
        stored(tmp_path, "b", 20.0, 4.0),
    ]
    matrix = matrix_page.read(files)
    table = matrix.table()
    assert table.head[4:] == ("b (virtual clock)", "<b>a (virtual clock)")
    assert table.rows == [
        ("medium", "2", "5", "1.71", "4.500 pass, slow start", "6.000 FAIL, slow start")
    ]
    [plot] = matrix.trends()
    [line] = plot.series
    assert isinstance(line, Series)
    assert list(line.y) == [4.0, 4.5] and len(plot.table.rows) == 3
    matrix_page.write(matrix, tmp_path / "matrix.html")
    text = (tmp_path / "matrix.html").read_text()
    assert "4.500 pass, slow start" in text and "&lt;b&gt;a" in text and "<b>a" not in text


def test_the_badge_has_the_targets_of_the_newest_check(tmp_path: Path) -> None:
    files = [stored(tmp_path, "a<", 10.0, 6.0, "fail"), stored(tmp_path, "b", 20.0, 4.0)]
    image = ElementTree.fromstring(matrix_page.badge(matrix_page.read(files)))  # noqa: S314 - our own text
    assert image.get("aria-label") == "satellite etosat: 1/1 targets met"
    assert matrix_page.targets_met(check_file.read(files[0])) == (0, 1, "targets met")


def test_test_cases_of_the_runner_count_as_passed_of_those_supported(tmp_path: Path) -> None:
    results = ("pass", "pass", "not measurable", "unsupported")
    cases = [
        case(f"case-{number}", verdict(None, None, 4.0, result))
        for number, result in enumerate(results)
    ]
    matrix = matrix_page.read([stored(tmp_path, "a", 1.0, None, cases=cases)])
    assert matrix.tiles() == [Tile("2/3", "test cases passed: a (virtual clock)", state="bad")]


def test_a_suite_without_targets_is_neither_good_nor_bad(tmp_path: Path) -> None:
    open_case = case("medium", verdict(2.0, None, 4.0, "to be determined"))
    matrix = matrix_page.read([stored(tmp_path, "a", 1.0, None, cases=[open_case])])
    assert matrix.tiles() == [Tile("1", "figures, none with a target: a (virtual clock)")]
    image = ElementTree.fromstring(matrix_page.badge(matrix))  # noqa: S314 - our own text
    assert image.get("aria-label") == "satellite etosat: measured, no targets"


def test_a_case_that_a_stack_was_not_asked_for_is_shown(tmp_path: Path) -> None:
    matrix = matrix_page.read(
        [stored(tmp_path, "a", 1.0, 4.0), stored(tmp_path, "b", 2.0, 4.0, cases=[])]
    )
    assert matrix.table().rows[0][-1] == "not run"


@pytest.mark.parametrize("changes", [{"schema": "x"}, {"suite": "other"}, {"cases": None}])
def test_other_files_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    good, bad = stored(tmp_path, "a", 1.0, 4.0), stored(tmp_path, "b", 2.0, 4.0, **changes)
    if None in changes.values():
        bad.write_text("{}")
    with pytest.raises(ConfigError):
        matrix_page.read([good, bad])
    with pytest.raises(ConfigError):
        matrix_page.read([])


def test_stacks_of_one_name_but_other_options_or_programs_have_their_own_history(
    tmp_path: Path,
) -> None:
    def program(path: str) -> dict[str, Any]:
        file = {"side": "server", "path": path, "sha256": None}
        return {"command": [], "host": {}, "versions": {}, "programs": [file]}

    changes: list[dict[str, Any]] = [
        {"options": {"client": {"cc": "cubic"}}},
        {"options": {"client": {"cc": "bbr"}}},
        {"provenance": program("/a/server")},
        {"provenance": program("/b/server")},
        {"provenance": program("/b/server")},
    ]
    files = [stored(tmp_path, "own", number, 4.0, **one) for number, one in enumerate(changes)]
    found = matrix_page.read(files)
    assert {name: len(checks) for name, checks in found.checks.items()} == {
        "own (virtual clock), client cc=cubic": 1,
        "own (virtual clock), client cc=bbr": 1,
        "own (virtual clock), /a/server": 1,
        "own (virtual clock), /b/server": 2,
    }
