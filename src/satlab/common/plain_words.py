# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a value that people wrote, in words: of numbers, and of pydantic's findings."""

import re
from collections.abc import Mapping
from typing import Any

MOST_SHOWN = 40
"""Characters of a value that is shown with its fault."""
NUMBER = re.compile(r"\s*(-?\d+(?:[.,]\d+)?)\s*([^\s\d.,]\S*)?\s*")
POWERS = {"k": "e3", "M": "e6", "G": "e9"}
ALWAYS = {"extra_forbidden": ("is unknown", "remove it"), "missing": ("is missing", "add it")}
WRONG_TYPES = {
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "string_pattern_mismatch": "of the form that is asked for",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object with fields",
    "model_type": "an object with fields",
    "model_attributes_type": "an object with fields",
    "dataclass_type": "an object with fields",
}
BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def correct_number(text: str, unit: str = "") -> str:
    """Return what to write in place of a text that is no number; empty if that is unknown.

    `unit`: that of the number, which is not written. A share has none: 1% is 0.01.
    """
    found = NUMBER.fullmatch(text)
    if not found:
        return ""
    number, suffix = found[1].replace(",", "."), found[2] or ""
    if suffix == "%" and not unit:
        return f"{float(number) / 100:g}"
    if unit:
        suffix = suffix.removesuffix(unit)
    if suffix and suffix not in POWERS:
        return ""
    return number + POWERS.get(suffix, "")


def of_fault(detail: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and remedy of one of the errors of a pydantic.ValidationError; "" for none."""
    kind, value, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    shown = ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        shown = f"{value!r} " if len(repr(value)) <= MOST_SHOWN else ""
    if kind in ALWAYS:
        return ALWAYS[kind]
    if kind == "json_invalid":
        return f"is not JSON: {context.get('error', '')}", ""
    if kind in BOUNDS:
        words, name = BOUNDS[kind]
        return f"{shown}is out of range", f"{words} {context[name]:g}"
    if kind in WRONG_TYPES:
        wanted = WRONG_TYPES[kind]
        correct = correct_number(value) if isinstance(value, str) and wanted == "a number" else ""
        return f"{shown}is not {wanted}", f"write {correct}" if correct else ""
    if kind in ("literal_error", "enum"):
        return f"{shown}is unknown", f"one of {context['expected'].replace(' or ', ', ')}"
    return str(detail["msg"]).removeprefix("Value error, "), ""
