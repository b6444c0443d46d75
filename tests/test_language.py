# SPDX-License-Identifier: GPL-3.0-or-later
"""Words that the glossary retires do not return.

They are the code-typed words of its columns "not".
"""

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = (
    *("README.md", "ARCHITECTURE.md", "docs/specification.md", "docs", "schemas"),
    *(
        "ansible",
        "benches",
        "collect",
        "crates",
        "papers",
        "src",
        "suites",
        "openbach-scenarios",
        "opensand-profiles",
    ),
    *("tests", "tools", "vagrant", "web-targets"),
)
"""What is checked: files and folders.

Of code, all text is: names, comments, docstrings, messages and help texts.
"""
SELF = "test_language.py"
"""This file, which has the words as examples."""
SUFFIXES = (".md", ".yml", ".html", ".py", ".rs", ".schema.json")
ORDINARY = re.compile(r"\bthere is no\b|\bis no longer\b|WantedBy=|\.tell\(", re.IGNORECASE)
"""Plain English, a key of systemd's units, and a call of Python's, that contain a retired word."""


@functools.cache
def retired() -> list[str]:
    """Return the words of the glossary's last column, as they stand there in code type."""
    rows = [
        line.split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")
    ]
    return list(dict.fromkeys(word for row in rows for word in re.findall(r"`([^`]+)`", row[-1])))


@functools.cache
def pattern(word: str) -> re.Pattern[str]:
    """Return what finds a word in running text and as a part of a name (snake_case, CamelCase,
    CONSTANT).
    """
    if not re.fullmatch(r"[a-z]+([ _][a-z]+)*", word):
        return re.compile(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])")
    parts = re.split(r"[ _]", word)
    lower, camel = r"[\s_]+".join(parts), "".join(part.capitalize() for part in parts)
    title, upper = lower[0].upper() + lower[1:], "_".join(parts).upper()
    return re.compile(
        rf"(?<![A-Za-z]){lower}(?![a-z])|(?<![A-Z])(?:{camel}|{title})(?![a-z])|(?<![A-Za-z]){upper}(?![A-Z])"
    )


@functools.lru_cache(1)
def without_ordinary(text: str) -> str:
    """Return a text with blanks in place of what is ordinary English."""
    return ORDINARY.sub(lambda found: " " * len(found[0]), text)


def uses(text: str, word: str) -> Iterator[int]:
    """Yield the number of each line that uses a word."""
    for found in pattern(word).finditer(without_ordinary(text)):
        yield text.count("\n", 0, found.start()) + 1


def texts(place: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a place, the glossary without the words that it retires."""
    tops = sorted(ROOT.glob(place))
    assert tops, f"{place} does not exist"
    for file in (
        file for top in tops for file in ([top] if top.is_file() else sorted(top.rglob("*")))
    ):
        if file == GLOSSARY:
            yield file, re.sub(r"\| [^|\n]*\|$", "|", file.read_text(), flags=re.MULTILINE)
        elif file.is_file() and file.name.endswith(SUFFIXES) and file.name != SELF:
            yield file, file.read_text()


@pytest.mark.parametrize("place", PLACES)
def test_retired_words_do_not_return(place: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for file, text in texts(place)
        for word in retired()
        for line in uses(text, word)
    ]
    assert not found, "docs/glossary.md retires these words:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It tells\nit.", "tells"),
        ("Tells it.", "tells"),
        ("def tells_it():", "tells"),
        ("struct TellsIt;", "tells"),
        ("const TELLS_IT: u8 = 1;", "tells"),
        ("bytes sent\nagain", "sent again"),
        ("let sent_again = 1;", "sent again"),
        ("BytesSentAgain", "sent again"),
        ("The C/N falls", "C/N"),
        ("this is no number", "is no"),
    ],
)
def test_a_retired_word_is_found(text: str, word: str) -> None:
    assert list(uses(text, word)) == [1]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("intellect", "tell"),
        ("stalks", "talk"),
        ("it is no longer; there is no file", "is no"),
        ("given", "give"),
    ],
)
def test_other_words_are_not(text: str, word: str) -> None:
    assert not list(uses(text, word))


def test_the_glossary_retires_words() -> None:
    assert {"talk", "tells", "mend", "sent again", "C/N"} <= set(retired())


def test_the_same_seed_prints_the_same_sentences() -> None:
    command = [sys.executable, str(ROOT / "tools" / "phrases.py"), "--seed", "7", "--count", "4"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first == second
    assert first.count("\n\n") == 4
