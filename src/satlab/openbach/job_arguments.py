# SPDX-License-Identifier: GPL-3.0-or-later
"""The argument vector of a job, from the arguments of a `start_job_instance`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from satlab.common.errors import ConfigError, Fault
from satlab.openbach.argument_values import REMAINDER, Scalar, Values, convert
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.json_document import Node


@dataclass(frozen=True)
class InstanceOf:
    """The id of the job (or scenario) instance that a path of function ids leads to, known only
    while running.
    """

    kind: str
    path: tuple[int, ...]


Words = tuple["str | InstanceOf", ...]


def argv(descriptor: Descriptor, values: dict[str, Any]) -> Words:
    """Return the arguments that follow the job's command.

    Each level from the outside in: subcommand name, required values in descriptor order, options
    with their values, bare flags. Options keep the order of `values`. Every value is exactly one
    element.

    Raises ConfigError with every fault when the values do not fit the descriptor.
    """
    faults: list[Fault] = []
    node = Node(values, descriptor.name, faults)
    Values({}).check(node)
    words = arrange(descriptor, node, Values({}))
    if faults:
        raise ConfigError(f"the arguments do not fit the job {descriptor.name}", faults)
    return words


def arrange(descriptor: Descriptor, node: Node, values: Values) -> Words:
    """Check the arguments of a job and put them in order. Faulty values and those that come later
    are left out.
    """
    return tuple(_level(descriptor.level, node, values))


def _level(level: Level, node: Node, values: Values) -> Iterable[str | InstanceOf]:
    given = node.mapping()
    chosen = _subcommands(level, given, node)
    known = level.arguments
    choices = {choice.name for group in level.subcommand for choice in group.choices}
    for name in [name for name in given if name not in known and name not in choices]:
        given[name].fault("the job does not take this argument here", _names(level))
    for argument in level.required:
        if argument.name not in given:
            node.fault("is required and has no value", argument.description, argument.name)
        else:
            for occurrence in _occurrences(argument, given[argument.name], values):
                yield from occurrence
    options = [
        (known[name], given[name])
        for name in given
        if name in known and known[name].flag is not None
    ]
    for argument, entry in options:
        if not argument.is_flag:
            for occurrence in _occurrences(argument, entry, values):
                yield from (argument.flag or "", *occurrence)
    for argument, entry in options:
        if argument.is_flag and _is_set(entry, values):
            yield argument.flag or ""
    for name, choice in chosen.items():
        yield name
        yield from _level(choice, given[name], values)


def _names(level: Level) -> str:
    names = [
        *level.arguments,
        *(choice.name for group in level.subcommand for choice in group.choices),
    ]
    return f"known here: {', '.join(names)}" if names else "nothing is known here"


def _subcommands(level: Level, given: dict[str, Node], node: Node) -> dict[str, Level]:
    """Choose the subcommand of each group."""
    chosen: dict[str, Level] = {}
    for group in level.subcommand:
        choices: dict[str, Level] = {
            choice.name: choice for choice in group.choices if choice.name in given
        }
        if len(choices) > 1:
            node.fault(f"{' and '.join(choices)} are both given", "choose one", group.group_name)
        if not choices and not group.optional:
            names = ", ".join(choice.name for choice in group.choices)
            node.fault("no subcommand is given", f"choose one of {names}", group.group_name)
        chosen.update(choices)
    return chosen


def _occurrences(argument: Argument, node: Node, values: Values) -> list[list[str | InstanceOf]]:
    """Read `value`, `[value, ...]` or `[[value, ...], ...]`; the last is the form that OpenBACH
    returns.
    """
    if isinstance(node.value, list) and any(isinstance(entry, list) for entry in node.value):
        groups = [(entry, entry.array()) for entry in node.array()]
    else:
        groups = [(node, node.array() if isinstance(node.value, list) else [node])]
    if not groups:
        node.fault("holds no value")
    if len(groups) > 1 and not argument.repeatable:
        node.fault(f"is given {len(groups)} times and is not repeatable")
    occurrences = []
    for place, entries in groups:
        if not argument.count.allows(len(entries)):
            place.fault(f"takes {argument.count} value(s), not {len(entries)}")
        words = [_word(argument, entry, values) for entry in entries]
        occurrences.append([word for word in words if word is not None])
    return occurrences


def _word(argument: Argument, node: Node, values: Values) -> str | InstanceOf | None:
    refers = argument.type in ("job", "scenario")
    if refers and isinstance(node.value, list):  # a path as scenario_builder writes it: [3, 1]
        parts = [values.fill(part) for part in node.array()]
        return None if None in parts else _path(argument.type, " ".join(map(str, parts)), node)
    value = values.fill(node)
    if value is None:
        return None
    if refers:
        return _path(argument.type, value, node)
    text = convert(REMAINDER if argument.remainder else argument.type, value, node)
    choices = [convert(argument.type, one, Node(one, "", [])) for one in argument.choices]
    if text is not None and choices and text not in choices:
        node.fault(f"{text!r} is not one of {', '.join(map(str, argument.choices))}")
        return None
    if text is not None and (fault := out_of_bounds(argument, text)):
        node.fault(fault)
        return None
    return text


def out_of_bounds(argument: Argument, text: str) -> str:
    """Return which bound of the argument a number exceeds, '' if none."""
    if argument.least is not None and float(text) < argument.least:
        return f"{text} is below {argument.least:.15g}"
    if argument.most is not None and float(text) > argument.most:
        return f"{text} is above {argument.most:.15g}"
    return ""


def _path(kind: str, value: Scalar, node: Node) -> InstanceOf | None:
    parts = str(value).split()
    if not parts or isinstance(value, bool | float) or not all(part.isdecimal() for part in parts):
        node.fault(
            f"{value!r} is not a path of function ids",
            "for example 3, or '3 1' inside a sub-scenario",
        )
        return None
    return InstanceOf(kind, tuple(map(int, parts)))


def _is_set(node: Node, values: Values) -> bool:
    """Read a flag, also in the form [[true]] that OpenBACH returns."""
    while isinstance(node.value, list) and len(node.value) == 1:
        node = node.array()[0]
    value = values.fill(node)
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            node.fault(f"{value!r} is neither true nor false", "a flag is a boolean")
        return value.lower() == "true"
    if value is not None and not isinstance(value, bool):
        node.fault(f"{value!r} is neither true nor false", "a flag is a boolean")
    return value is True
