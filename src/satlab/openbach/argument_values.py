# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of scenario arguments: placeholders (Python's `string.Template`, as in OpenBACH) and
OpenBACH's types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from string import Template
from typing import Any

from satlab.openbach.json_document import Node

Scalar = str | int | float | bool

RATIOS = {
    "To": "1099511627776",
    "Gi": "1073741824",
    "Mi": "1048576",
    "Ki": "1024",
    "T": "1000000000000",
    "G": "1000000000",
    "M": "1000000",
    "K": "1000",
    "": "1",
    "m": "0.001",
    "u": "1e-06",
    "n": "1e-09",
}
"""Unit prefixes of the type `ratio` and the factor that is sent to the job."""


@dataclass(frozen=True)
class Values:
    """Values of placeholders: known texts, and names whose value comes later (they are not checked
    yet).
    """

    known: Mapping[str, str]
    deferred: frozenset[str] = frozenset()

    def check(self, node: Node) -> set[str]:
        """Note bad and undefined placeholders in every string below a node; return the names that
        are used.
        """
        if isinstance(node.value, str):
            return self._check_text(node)
        entries = list(node.mapping().values()) if isinstance(node.value, dict) else []
        if isinstance(node.value, list):
            entries = node.array()
        return {name for entry in entries for name in self.check(entry)}

    def _check_text(self, node: Node) -> set[str]:
        template = Template(node.value)
        if not template.is_valid():
            node.fault(
                f"{node.value[:60]!r} holds a '$' that starts no placeholder",
                "write $$ for a dollar",
            )
            return set()
        names = set(template.get_identifiers())
        for name in sorted(names - self.known.keys() - self.deferred):
            node.fault(
                f"the placeholder ${name} is not defined", "define it under arguments or constants"
            )
        return names

    def fill(self, node: Node) -> Scalar | None:
        """Read a scalar and replace its placeholders; None after a fault, or when a value comes
        later.

        Bad and undefined placeholders are left to `check`.
        """
        value = node.value
        if isinstance(value, float) and not math.isfinite(value):
            node.fault("is out of range")
            return None
        if isinstance(value, bool | int | float):
            return value
        if not isinstance(value, str):
            node.fault("a value is a string, a number or a boolean")
            return None
        template = Template(value)
        known = template.is_valid() and self.known.keys() >= set(template.get_identifiers())
        return template.substitute(self.known) if known else None

    def number(self, node: Node) -> float | None:
        """Read a number of seconds, not negative; None after a fault or when it comes later."""
        text = self._converted("float", node)
        if text is not None and float(text) < 0:
            node.fault(f"{text} s is negative")
            return None
        return None if text is None else float(text)

    def whole(self, node: Node) -> int | None:
        """Read a whole number of seconds above 0; None after a fault or when it comes later."""
        text = self._converted("int", node)
        if text is not None and int(text) < 1:
            node.fault(f"{text} s is not above 0")
            return None
        return None if text is None else int(text)

    def _converted(self, kind: str, node: Node) -> str | None:
        value = self.fill(node)
        return None if value is None else convert(kind, value, node)


def literal(node: Node) -> str:
    """Read a string that must not hold a placeholder: OpenBACH's launch check looks up the raw
    text.
    """
    text = node.text()
    if "$" in text:
        node.fault(
            "placeholders do not work here: a real OpenBACH answers HTTP 500 at launch",
            "write the name itself",
        )
    return text


REMAINDER = "remainder"
"""Kind of a text that may begin with '-'; not a type of OpenBACH."""


def convert(kind: str, value: Scalar, node: Node) -> str | None:
    """Check one value against an OpenBACH type and return the text that reaches the job; None after
    a fault.
    """
    if isinstance(value, bool):
        node.fault(f"{str(value).lower()} is not of type {kind}", "only flags are true or false")
        return None
    try:
        return _CONVERTERS[kind](value)
    except (ValueError, OverflowError) as error:
        if isinstance(error, _RefusedError):
            node.fault(f"{str(value)[:60]!r} {error}")
        else:
            expected = _WORDS.get(kind, kind)
            if kind in ("int", "float") and node.path:
                expected += _UNITS.get(node.path[-1].rpartition("_")[2], "")
            node.fault(f"{_named(value, node)} is not {expected}", _example(kind, value))
        return None


def _named(value: Scalar, node: Node) -> str:
    """Return a value as the caller gave it: with the name of its placeholder."""
    text = str(value)[:60]
    names = Template(node.value).get_identifiers() if isinstance(node.value, str) else []
    if len(names) == 1 and node.value in (f"${names[0]}", f"${{{names[0]}}}"):
        return f"{names[0]}={text}"
    return repr(text)


def _example(kind: str, value: Scalar) -> str:
    """Return the remedy for a number with something behind it."""
    found = re.match(r"\s*(-?\d+)(\.\d+)?", str(value))
    if found is None or kind not in ("int", "float"):
        return ""
    return f"for example {found[1] if kind == 'int' else found[0].strip()}"


class _RefusedError(ValueError):
    """A value is refused for a special reason."""


def _text(value: Scalar) -> str:
    text = _word(value)
    # Free text could otherwise pass for an option of the job: no '--' stands before it.
    if text.startswith("-"):
        raise _RefusedError("starts with '-' and could pass for an option")
    return text


def _word(value: Scalar) -> str:
    text = str(value)
    if "\0" in text:
        raise _RefusedError("holds a NUL, which no program argument can")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _RefusedError("is not text that UTF-8 can write") from error
    return text


def _int(value: Scalar) -> str:
    if isinstance(value, float) and value != int(value):
        raise ValueError(value)
    return str(int(value))


def _float(value: Scalar) -> str:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return str(number)


def _ratio(value: Scalar) -> str:
    if str(value) not in RATIOS:
        raise _RefusedError(f"is none of the unit prefixes {' '.join(filter(None, RATIOS))}")
    return RATIOS[str(value)]


def _date(value: Scalar) -> str:
    if isinstance(value, int | float) or value.isdecimal():
        return _int(value)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return str(round(moment.timestamp() * 1000))


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "ip": "an IP address",
    "network": "an IP network",
    "date": "a date",
}
"""Types in words."""
_UNITS = {"s": " of seconds", "ms": " of milliseconds", "bytes": " of bytes"}
"""Units of numbers, by the end of their names."""
_CONVERTERS: dict[str, Callable[[Any], str]] = {
    "int": _int,
    "float": _float,
    "str": _text,
    REMAINDER: _word,
    "ip": lambda value: str(ip_address(str(value))),
    "network": lambda value: str(ip_network(str(value), strict=False)),
    "ratio": _ratio,
    "date": _date,
}
