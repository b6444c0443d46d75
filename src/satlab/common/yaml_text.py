# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML of anyone as plain JSON data, in a bounded time: libyaml finds the events, and budgets stop
it early.

Plain scalars are what OpenBACH, Ansible and PyYAML take them for (YAML 1.1: `no` is false, 0644 is
octal). Dates and sexagesimal numbers are text, as in the core schema of YAML 1.2.2 (10.3); so are
keys.
"""

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from satlab.common.errors import ConfigError, Fault

MOST_BYTES = 1 << 20
MOST_NODES = 200_000
DEEPEST = 100
"""Deepest nesting: libyaml's time grows with the square of the depth."""
LONGEST_NUMBER = 64
"""Longest number, characters: Python's time grows with the square of its digits."""

_WORDS: dict[str, bool | None] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
for _words, _value in ((("true", "yes", "on"), True), (("false", "no", "off"), False)):
    _WORDS |= {
        written: _value for word in _words for written in (word, word.capitalize(), word.upper())
    }
_INT = re.compile(r"([-+]?)(?:(0x[0-9a-fA-F]+)|(0[0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(
    r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    re.ASCII,
)


class YamlError(ConfigError):
    """A text is not YAML, or exceeds what is read of it. `fault` has place, line and column."""

    def __init__(self, place: object, line: int, column: int, reason: str) -> None:
        self.fault = Fault(f"{place}:{line}:{column}", f"is not YAML: {reason}")
        super().__init__(str(self.fault))


class _RefusedError(Exception):
    """An event is refused."""


@dataclass
class _Open:
    """An unfinished collection. `key`: the key of the next value of a mapping."""

    made: dict[str, Any] | list[Any]
    key: str | None = None


def read(path: Path, lines: dict[tuple[Hashable, ...], int] | None = None) -> Any:
    """Return the document of a file; `lines` as of `load`. Raises YamlError, OSError."""
    with path.open("rb") as file:
        return load(file.read(MOST_BYTES + 1), path, lines)


def load(
    text: str | bytes, place: object = "text", lines: dict[tuple[Hashable, ...], int] | None = None
) -> Any:
    """Return the one document of a text as plain data; None if it is empty.

    `lines` gets the line of each key of mappings within mappings. Aliases, merge keys, tags, keys
    that are no text or stand twice, and what exceeds a budget are refused.

    Raises:
        YamlError: with line and column.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > MOST_BYTES:
        raise YamlError(place, 1, 1, f"it has more than {MOST_BYTES} bytes")
    event: Any = None
    try:
        document, within = list[Any](), list[_Open]()
        for nodes, event in enumerate(yaml.parse(data.decode(), Loader=yaml.CSafeLoader)):
            if nodes > MOST_NODES:
                raise _RefusedError(f"it has more than {MOST_NODES} values and collections")
            if isinstance(event, yaml.DocumentStartEvent):
                if within:
                    raise _RefusedError("it has more than one document")
                within = [_Open(document)]
            elif isinstance(event, yaml.CollectionEndEvent):
                within.pop()
                within[-1].key = None
            elif isinstance(event, yaml.NodeEvent):
                _take(event, within, lines)
    except _RefusedError as error:
        raise YamlError(
            place, event.start_mark.line + 1, event.start_mark.column + 1, str(error)
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(place, line, column, str(error.problem or error.context)) from None
    except UnicodeDecodeError as error:
        raise YamlError(place, *_position(data, error.start), "it is not UTF-8") from None
    except yaml.reader.ReaderError as error:
        raise YamlError(
            place, *_position(data, error.position), "it has a control character"
        ) from None
    return document[0] if document else None


def _take(event: Any, within: list[_Open], lines: dict[tuple[Hashable, ...], int] | None) -> None:
    """Add a key, a value or the start of a collection to the innermost collection.

    Raises _RefusedError.
    """
    top = within[-1]
    if isinstance(event, yaml.AliasEvent):
        raise _RefusedError("aliases are not used here, write the value out")
    if event.tag not in (None, "!"):
        raise _RefusedError("tags are not used here")
    if isinstance(top.made, dict) and top.key is None:
        top.key = _key(event, top.made)
        if lines is not None and all(each.key is not None for each in within[1:]):
            lines[tuple(str(each.key) for each in within[1:])] = event.start_mark.line + 1
        return
    is_scalar = isinstance(event, yaml.ScalarEvent)
    value: Any = (
        _scalar(event) if is_scalar else {} if isinstance(event, yaml.MappingStartEvent) else []
    )
    if isinstance(top.made, list):
        top.made.append(value)
    else:
        top.made[str(top.key)] = value
    if is_scalar:
        top.key = None
        return
    within.append(_Open(value))
    if len(within) > DEEPEST:
        raise _RefusedError(f"it has more than {DEEPEST} collections within each other")


def _key(event: Any, mapping: dict[str, Any]) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise _RefusedError("a key is a collection")
    if event.value == "<<" and event.implicit[0]:
        raise _RefusedError("merge keys are not used here, write the keys out")
    if event.value in mapping:
        raise _RefusedError(f"the key {event.value[:100]!r} stands twice")
    return str(event.value)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    number = _INT.fullmatch(text) or _FLOAT.fullmatch(text)
    if number is None:
        return text
    if len(text) > LONGEST_NUMBER:
        raise _RefusedError(f"a number has more than {LONGEST_NUMBER} characters")
    if number.re is _INT:
        sign, hexadecimal, octal, decimal = number.groups()
        size = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
        return -size if sign == "-" else size
    if "n" in text.lower() or not math.isfinite(float(text)):
        raise _RefusedError("a number is not finite")
    return float(text)


def _position(data: bytes, offset: int) -> tuple[int, int]:
    """Return line and column of a byte, from 1."""
    before = data[:offset]
    return before.count(b"\n") + 1, offset - before.rfind(b"\n")
