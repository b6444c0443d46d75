# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from satlab.common import did_you_mean


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kelper", "did you mean kepler?"),
        ("bulk_tpc", "did you mean bulk_tcp?"),
        ("nothing", "known: kepler, bulk_tcp"),
    ],
)
def test_a_near_name_is_asked_for_and_else_all_are_listed(name: str, expected: str) -> None:
    assert did_you_mean.remedy(name, ["kepler", "bulk_tcp"]) == expected


def test_names_that_are_as_near_are_all_asked_for() -> None:
    assert did_you_mean.remedy("meo", ["geo", "geo-acm", "leo"]) == "did you mean geo or leo?"


def test_without_any_name_it_says_so() -> None:
    assert did_you_mean.remedy("x", []) == "known: none"
