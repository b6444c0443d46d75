# SPDX-License-Identifier: GPL-3.0-or-later
"""Both parsers of YAML find the same data and the same faults."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import paths, yaml_text

SHIPPED = [
    paths.LAB_FILE,
    *sorted(paths.JOBS.glob("*/files/*.yml")),
    *sorted(paths.SUITES.glob("**/*.yml")),
    *sorted(paths.PAPERS.glob("**/*.yml")),
]
INVALID = [
    "a: [",
    "a: 1\n b: 2\n",
    "\ta: 1",
    "a: *b",
    "--- 1\n--- 2\n",
    "a: \x07",
    "a: !!python/none x",
    "? [a\n: b",
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_p281_files_have_the_data_that_the_parser_in_python_finds(path: Path) -> None:
    text = path.read_text()
    assert yaml_text.load(text) == yaml.safe_load(text)


def test_nodes_have_the_lines_that_the_parser_in_python_finds() -> None:
    def lines(node: yaml.Node | None) -> list[int]:
        assert isinstance(node, yaml.MappingNode)
        found = [key.start_mark.line for key, _ in node.value]
        return found + [
            line
            for _, value in node.value
            if isinstance(value, yaml.MappingNode)
            for line in lines(value)
        ]

    text = paths.LAB_FILE.read_text()
    assert lines(yaml_text.compose(text)) == lines(yaml.compose(text, Loader=yaml.SafeLoader))


@pytest.mark.parametrize("text", INVALID)
def test_p281_errors_are_those_of_the_parser_in_python(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError) as found:
        yaml_text.load(text)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("text", "fault"), [("a: 1\na: 2", "'a' stands twice"), ("a: &x 1\nb: *x", "aliases")]
)
def test_strict_loading_refuses_what_hides_something(text: str, fault: str) -> None:
    assert yaml_text.load(text)
    with pytest.raises(yaml.constructor.ConstructorError, match=fault) as error:
        yaml_text.load_strict(text)
    assert error.value.problem_mark is not None
    assert error.value.problem_mark.line == 1


@pytest.mark.parametrize("load", [yaml_text.load, yaml_text.load_strict])
@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 50_000])
def test_p281_deep_nesting_is_not_given_to_libyaml(
    text: str, load: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """libyaml takes half a minute of CPU time for the first of them."""
    events, parse = list[yaml.Event](), yaml.parse

    def counted(*given: Any, **more: Any) -> Iterator[yaml.Event]:
        for event in parse(*given, **more):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    with pytest.raises(RecursionError):
        load(text)
    assert len(events) <= 2 * yaml_text.DEEPEST + 3
