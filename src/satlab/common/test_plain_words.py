# SPDX-License-Identifier: GPL-3.0-or-later
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from satlab.common import plain_words


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = Field(default=1.0, ge=0, le=10)
    runs: int = 1
    kind: Literal["a", "b", "c"] = "a"
    steps: list[int] = []
    name: str


@pytest.mark.parametrize(
    ("text", "unit", "correct"),
    [
        ("1%", "", "0.01"),
        ("0,5", "BDP", "0.5"),
        ("300 ms", "ms", "300"),
        ("10M", "Baud", "10e6"),
        ("10MBaud", "Baud", "10e6"),
        ("5min", "s", ""),
        ("1%", "dB", ""),
        ("fast", "", ""),
        ("", "", ""),
    ],
)
def test_numbers_with_units_are_corrected_where_the_meaning_is_known(
    text: str, unit: str, correct: str
) -> None:
    assert plain_words.correct_number(text, unit) == correct


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"name": "x", "rat": 1}, ("is unknown", "remove it")),
        ({}, ("is missing", "add it")),
        ({"name": "x", "rate": "3%"}, ("'3%' is not a number", "write 0.03")),
        ({"name": "x", "rate": "5 s"}, ("'5 s' is not a number", "")),
        ({"name": "x", "rate": 11}, ("11 is out of range", "at most 10")),
        ({"name": "x", "runs": "2.5"}, ("'2.5' is not a whole number", "")),
        ({"name": "x", "kind": "d"}, ("'d' is unknown", "one of 'a', 'b', 'c'")),
        ({"name": "x", "steps": {"a": 1}}, ("is not a list", "")),
        ({"name": ["x"]}, ("is not a text", "")),
        ([], ("is not an object with fields", "")),
    ],
)
def test_faults_are_in_words(content: Any, said: tuple[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(content)
    (detail,) = caught.value.errors(include_url=False)
    assert plain_words.of_fault(detail) == said


def test_text_that_is_no_json_is_named_and_long_values_are_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate_json("\0" * 1000)
    assert plain_words.of_fault(caught.value.errors()[0])[0].startswith("is not JSON: expected")
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"name": "x", "rate": "9" * 1000 + "x"})
    assert plain_words.of_fault(caught.value.errors()[0]) == ("is not a number", "")
