# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of YAML is plain data, what is not ends at once, and both take a bounded time."""

import json
import time
from pathlib import Path

import pytest
import yaml

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError

SHIPPED = [
    paths.LAB_FILE,
    *sorted(paths.JOBS.glob("*/files/*.yml")),
    *sorted(paths.SUITES.glob("**/*.yml")),
    *sorted(paths.PAPERS.glob("**/*.yml")),
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_p281_files_have_the_data_that_pyyaml_finds(path: Path) -> None:
    assert yaml_text.read(path) == yaml.safe_load(path.read_text())


SAME = [
    "",
    "~",
    "no",
    "Yes",
    "on",
    "0755",
    "08",
    "-17",
    "0x1F",
    "1.5",
    "-.5",
    "1.0e+3",
    "1e3",
    "1.e5",
    "text",
    "'7'",
    "{}",
]


@pytest.mark.parametrize("text", SAME)
def test_p281_scalars_are_what_pyyaml_takes_them_for(text: str) -> None:
    (value,) = yaml_text.load(f"- {text}")
    (expected,) = yaml.safe_load(f"- {text}")
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    "text", ["2001-12-14", "2001-13-45", "2001-01-01 25:61:00", "12:30:45", "1_000", "0b11", "="]
)
def test_t65_dates_and_other_types_of_yaml_alone_are_text(text: str) -> None:
    assert yaml_text.load(f"a: {text}") == {"a": text}


def test_t65_keys_are_text() -> None:
    assert yaml_text.load("{on: 1, 7: 2, 2001-13-45: 3, ~: 4}") == {
        "on": 1,
        "7": 2,
        "2001-13-45": 3,
        "~": 4,
    }


def test_lines_are_those_of_keys() -> None:
    lines: dict[object, int] = {}
    text = "a:\n  b: {c: 1,\n    d: [{e: 1}]}\nf: 2\n"
    yaml_text.load(text, "text", lines)  # type: ignore[arg-type]
    assert lines == {("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 2, ("a", "b", "d"): 3, ("f",): 4}


CHAIN = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)
)
REFUSED = {
    "a: [": (2, 1, "expected node content"),
    "a: 1\n b: 2\n": (2, 3, "mapping values"),
    "\ta: 1": (1, 1, "cannot start any token"),
    "--- 1\n--- 2\n": (2, 1, "more than one document"),
    "a: \x07": (1, 4, "control character"),
    "a: 1\na: 2": (2, 1, "'a' stands twice"),
    "a: &x 1\nb: *x": (2, 4, "aliases"),
    "a: *b": (1, 4, "aliases"),
    CHAIN: (2, 10, "merge keys"),
    "<<: {a: 1}": (1, 1, "merge keys"),
    "a: !!timestamp 2001-13-45": (1, 4, "tags"),
    "a: !!binary x": (1, 4, "tags"),
    "a: !!python/none x": (1, 4, "tags"),
    "!!set {a}": (1, 1, "tags"),
    "? [a]\n: b": (1, 3, "a key is a collection"),
    "a: .inf": (1, 4, "not finite"),
    "a: 1.0e+999": (1, 4, "not finite"),
    "a: " + "9" * 5000: (1, 4, "more than 64 characters"),
    "[" * 100_000: (1, 100, "collections within each other"),
    "{a: " * 100_000: (1, 397, "collections within each other"),
    "- " * 50_000: (1, 199, "collections within each other"),
    "[" + "a," * 250_000 + "]": (1, 399_998, "values"),
    "a" * (2 << 20): (1, 1, "bytes"),
    "\ud800": (1, 1, "UTF-8"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:24])
def test_t65_what_is_refused_has_line_column_and_reason_and_takes_no_time(text: str) -> None:
    line, column, reason = REFUSED[text]
    before = time.process_time()
    with pytest.raises(ConfigError, match=reason) as error:
        yaml_text.load(text, "file.yml")
    assert str(error.value).startswith(f"file.yml:{line}:{column}: is not YAML: ")
    assert time.process_time() - before < 10


def test_t65_a_file_that_is_not_text_is_refused_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(yaml_text.YamlError, match=r"file.yml:2:4: is not YAML: it is not UTF-8"):
        yaml_text.read(file)


def test_t65_data_within_the_budgets_is_json() -> None:
    deep = "[" * 99 + "]" * 99
    assert json.dumps(yaml_text.load(deep)) == deep
