# SPDX-License-Identifier: GPL-3.0-or-later
"""The check that OpenBACH 2.7 does when a scenario is saved: it reports the first fault, in
OpenBACH's order and words.

A scenario that passes may still hang or fail; `satlab.openbach.scenario` refuses it at launch, with
every fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from satlab.common.errors import Fault
from satlab.openbach.argument_values import convert
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.json_document import Node

Document = dict[str, Any]

_WAITS = ("launched_ids", "finished_ids", "ended_ids", "running_ids")
_RESERVED = ("id", "label", "wait", "on_fail")
_POLICIES = ("fail", "ignore", "retry")
_TYPES = {
    "int": "int",
    "float": "float",
    "str": "str",
    "ip": "IPv4Address or IPv6Address",
    "network": "IPv4Network or IPv6Network",
    "date": "datetime",
    "ratio": "ratio",
    "job": "list",
    "scenario": "list",
    "None": "bool",
}
FUNCTIONS: dict[str, dict[str, type]] = {
    "start_job_instance": {"entity_name": str},
    "stop_job_instance": {"openbach_function_id": int},
    "stop_job_instances": {"openbach_function_ids": list},
    "start_scenario_instance": {"scenario_name": str},
    "stop_scenario_instance": {"openbach_function_id": int},
    "push_file": {"entity_name": str, "local_path": list, "remote_path": list},
    "pull_file": {"entity_name": str, "local_path": list, "remote_path": list},
    "reboot": {"entity_name": str},
    "status_job_instance": {"instance_id": int, "update": bool},
    "restart_job_instance": {"instance_id": int, "arguments": dict},
    "if": {
        "condition": dict,
        "openbach_functions_true_ids": list,
        "openbach_functions_false_ids": list,
    },
    "while": {
        "condition": dict,
        "openbach_functions_while_ids": list,
        "openbach_functions_end_ids": list,
    },
    "assign_collector": {"address": str, "collector": str},
    "install_agent": {
        "address": str,
        "collector": str,
        "username": str,
        "password": str,
        "name": str,
    },
    "uninstall_agent": {"address": str},
    "list_job_instances": {},
    "set_log_severity_job": {},
    "set_statistics_policy_job": {},
}
"""Accepted functions with their required arguments."""
_NOT_NULL = {
    "start_scenario_instance": ("arguments",),
    "restart_job_instance": ("date", "interval"),
}
"""Columns that OpenBACH's database requires, although its check does not."""


class RefusalError(Exception):
    """The first fault: OpenBACH's keys `error`, `offending_entry`; for some `offending_value`,
    `expected_type`.
    """

    def __init__(self, error: str, entry: str, **more: Any) -> None:
        super().__init__(error)
        self.body: dict[str, Any] = {"error": error, "offending_entry": entry, **more}


def check(
    document: Document, jobs: Mapping[str, Descriptor], values: Mapping[str, str] | None = None
) -> None:
    """Check a scenario; with `values` (at launch) also the values of its placeholders.

    Raises RefusalError.
    """
    _refuse_nul(document)
    _Check(document, jobs, values).run()


@dataclass
class _Check:
    document: Document
    jobs: Mapping[str, Descriptor]
    values: Mapping[str, str] | None
    names: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def run(self) -> None:
        arguments, constants = self._texts("arguments"), self._texts("constants")
        both = [name for name in constants if name in arguments]
        if both:
            entry = ", ".join(f"constants.{name}" for name in both)
            raise RefusalError("Some constants are named the same than some arguments", entry)
        self.names = {**arguments, **constants}
        functions = _typed(self.document, "openbach_functions", list, "")
        seen: set[int] = set()
        for position, function in enumerate(functions):
            self._function(function, f"openbach_functions.{position}", seen)
        for position, function in enumerate(functions):
            self._waits(function, f"openbach_functions.{position}", seen)
        unused = [name for name in self.names if name not in self.used]
        if unused:
            raise RefusalError("An argument is unused", f"arguments.{unused[0]}")

    def _texts(self, key: str) -> dict[str, str]:
        texts = _typed(self.document, key, dict, "", {})
        for name in texts:
            _typed(texts, name, str, key)
        return dict(texts)

    def _function(self, function: Any, place: str, seen: set[int]) -> None:
        _is(function, dict, place)
        wait = _typed(function, "wait", dict, place, {})
        for key in _WAITS:
            for position, number in enumerate(_typed(wait, key, list, f"{place}.wait", [])):
                _is(number, int, f"{place}.wait.{key}.{position}")
        number = _typed(function, "id", int, place)
        _typed(function, "label", str, place, "")
        self._on_fail(function, place)
        names = [key for key in function if key not in _RESERVED]
        if len(names) != 1:
            error = "The content of the OpenBACH function to launch is missing"
            if names:
                error = f"Too much OpenBACH functions configured: {', '.join(names)}"
            shown = {"wait": {}, "on_fail": {}, **function}
            raise RefusalError(error, place, offending_value=shown, expected_type="None")
        entry = f"{place}.{names[0]}"
        if names[0] not in FUNCTIONS:
            raise RefusalError("Unknown OpenBACH Function", entry)
        if "time" in wait:
            self._value("float", wait["time"], entry)
        self._arguments(names[0], function[names[0]], entry)
        if not -(1 << 31) <= number < 1 << 31:
            raise RefusalError("integer out of range\n", entry)
        if number in seen:
            raise RefusalError(
                'duplicate key value violates unique constraint "openbach_function_id"', entry
            )
        seen.add(number)

    def _on_fail(self, function: Document, place: str) -> None:
        on_fail = _typed(function, "on_fail", dict, place, {})
        policy = _typed(on_fail, "policy", str, f"{place}.on_fail", "Fail")
        if policy.lower() not in _POLICIES:
            raise RefusalError(f"Unknown failure policy '{policy}'", f"{place}.on_fail")
        if policy.lower() == "retry":
            _typed(on_fail, "retry", int, f"{place}.on_fail")
        if "delay" in on_fail:
            self._value("float", on_fail["delay"], f"{place}.on_fail.delay")

    def _arguments(self, name: str, given: Any, entry: str) -> None:
        _is(given, dict, entry)
        for key, kind in FUNCTIONS[name].items():
            if key not in given:
                raise RefusalError(f"Missing entry ''{key}''", entry)
            _is(given[key], kind, f"{entry}.{key}")
        for column in _NOT_NULL.get(name, ()):
            if given.get(column) is None:
                raise RefusalError(
                    f'null value in column "{column}" violates not-null constraint', entry
                )
        if name in ("if", "while") and _has_literal(given["condition"]):
            # OpenBACH cannot store an operand of the type `value`; this is what it says.
            raise RefusalError("'property' object is not callable", entry)
        if name == "start_job_instance":
            self._start_job(given, entry)
            return
        if name == "start_scenario_instance" and not isinstance(given["arguments"], dict):
            met = type(given["arguments"]).__name__
            message = f"value has an invalid type '{met}' should be 'dict'"
            raise RefusalError(repr_list(message), entry)
        self._note_names(given, entry)

    def _start_job(self, given: Document, entry: str) -> None:
        self._note_names(given["entity_name"], entry)
        if not isinstance(given.get("interval") or "", int | str):
            _is(given["interval"], int, f"{entry}.interval")
        for key, kind in (("offset", "float"), ("interval", "int")):
            if given.get(key) is not None:
                self._value(kind, given[key], entry)
        names = [key for key in given if key not in ("entity_name", "offset", "interval")]
        if not names:
            raise RefusalError("The name of the job to start is missing", entry)
        if len(names) > 1:
            raise RefusalError("Too much job names to start", entry)
        place = f"{entry}.{names[0]}"
        if names[0] not in self.jobs:
            raise RefusalError(f"No such job in the controller database: {names[0]}", place)
        _is(given[names[0]], dict, place)
        self._level(self.jobs[names[0]].level, given[names[0]], place)

    def _level(self, level: Level, given: Document, place: str) -> None:
        """Check one level of a job's arguments.

        As in OpenBACH, the place does not contain the subcommand.
        """
        known = level.arguments
        choices: dict[str, Level] = {
            choice.name: choice for group in level.subcommand for choice in group.choices
        }
        for group in level.subcommand:
            chosen = [choice.name for choice in group.choices if choice.name in given]
            if not chosen and not group.optional:
                raise RefusalError(
                    "Missing subcommand for required group", f"{place}.{group.group_name}"
                )
            if len(chosen) > 1:
                raise RefusalError(
                    "Several subcommands provided for the group", f"{place}.{group.group_name}"
                )
        for name, value in given.items():
            if name in choices:
                _is(value, dict, f"{place}.{name}")
                self._level(choices[name], value, place)
            elif name not in known:
                raise RefusalError(
                    "The configured job does not accept the given argument", f"{place}.{name}"
                )
            else:
                self._values(known[name], value, f"{place}.{name}")
        for argument in level.required:
            if argument.name not in given:
                raise RefusalError("Missing required argument", f"{place}.{argument.name}")

    def _values(self, argument: Argument, value: Any, entry: str) -> None:
        if isinstance(value, list):
            if any(each is None for each in value):
                raise RefusalError("An array of value contains gaps for the given argument", entry)
            for each in value:
                self._values(argument, each, entry)
        elif argument.is_flag or argument.type in ("job", "scenario"):
            self._note_names(value, entry)
        else:
            about = {"offending_value": value, "expected_type": argument.type}
            self._value(argument.type, value, entry, **about)

    def _value(self, kind: str, value: Any, entry: str, **about: Any) -> None:
        """Check a value against a type; one with a placeholder only if the values of placeholders
        are known. `about`: further keys of the refusal of a wrong type.
        """
        self._note_names(value, entry)
        if isinstance(value, str):
            template = Template(value)
            if template.get_identifiers() and self.values is None:
                return
            missing = [
                name for name in template.get_identifiers() if name not in (self.values or {})
            ]
            if missing:
                message = (
                    f"value contains a placeholder ('{missing[0]}') that is not found in provided"
                    " parameters"
                )
                raise RefusalError(repr_list(message), entry)
            value = template.safe_substitute(self.values or {})
        faults: list[Fault] = []
        is_scalar = isinstance(value, str | int | float)
        is_text = kind == "str" and is_scalar
        if not is_scalar or (not is_text and convert(kind, value, Node(value, "", faults)) is None):
            message = (
                f"value has an invalid type '{type(value).__name__}' should be '{_TYPES[kind]}'"
            )
            raise RefusalError(repr_list(message), entry, **about)

    def _note_names(self, value: Any, entry: str) -> None:
        """Note the placeholders in a value and all below it; refuse undefined ones, and a dollar
        sign that begins none.
        """
        if isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                self._note_names(each, entry)
        elif isinstance(value, str):
            if not Template(value).is_valid():
                message = (
                    "value uses the placeholder escape symbol ($) but does not provide a valid"
                    " identifier"
                )
                raise RefusalError(repr_list(message), entry)
            for name in Template(value).get_identifiers():
                if name not in self.names:
                    message = "This argument is used as a placeholder value but is not defined"
                    raise RefusalError(message, f"arguments.'{name}'")
                self.used.add(name)

    def _waits(self, function: Document, place: str, seen: set[int]) -> None:
        wait = function.get("wait", {})
        for key in _WAITS:
            for position, number in enumerate(wait.get(key, [])):
                if number not in seen:
                    entry = f"{place}.wait.launched_ids.{position}"
                    raise RefusalError(
                        "The referenced openbach function does not exist",
                        entry,
                        offending_value=number,
                        expected_type="None",
                    )


def normalised(document: Document) -> Document:
    """Return a scenario as OpenBACH does: values as lists of lists, with labels and all sections."""
    functions = [_normal_function(function) for function in document.get("openbach_functions", [])]
    return {
        "name": document.get("name", ""),
        "description": document.get("description", ""),
        "arguments": document.get("arguments", {}),
        "constants": document.get("constants", {}),
        "openbach_functions": functions,
    }


def _normal_function(function: Document) -> Document:
    name = next(key for key in function if key not in _RESERVED)
    body = function[name]
    if name == "start_job_instance":
        own = ("entity_name", "offset", "interval")
        body = {key: value if key in own else _lists(value) for key, value in body.items()}
    wait = {key: value for key, value in function.get("wait", {}).items() if value}
    shown = {"id": function["id"], "label": function.get("label", str(function["id"])), name: body}
    return (
        shown
        | ({"wait": wait} if wait else {})
        | ({"on_fail": function["on_fail"]} if "on_fail" in function else {})
    )


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    if not isinstance(value, list):
        return [[value]]
    return value if any(isinstance(each, list) for each in value) else [value]


def _has_literal(condition: Any) -> bool:
    """Return whether an operand of a condition is a literal."""
    if not isinstance(condition, dict):
        return False
    return condition.get("type") == "value" or any(map(_has_literal, condition.values()))


def repr_list(message: str) -> str:
    """Return a message as OpenBACH's validators do: the text of a list of one element."""
    return f'["{message}"]'


def _refuse_nul(document: Document) -> None:
    """Refuse NUL in any text: a controller's database cannot hold it."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        entry, value = waiting.pop()
        if isinstance(value, str) and "\0" in value:
            raise RefusalError("A string literal cannot contain NUL (0x00) characters.", entry)
        if isinstance(value, dict):
            waiting += [(entry, key) for key in value]
        if isinstance(value, dict | list):
            below = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{entry}.{key}" if entry else str(key), each) for key, each in below]


def _is(value: Any, kind: type, entry: str) -> None:
    if value is None:
        raise RefusalError("Missing entry", entry)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RefusalError("Type error", entry, offending_value=value, expected_type=str(kind))


_MISSING: Any = object()


def _typed(holder: Document, key: str, kind: type, place: str, default: Any = _MISSING) -> Any:
    """Return an entry of a type; without a default it is required."""
    entry = f"{place}.{key}" if place else key
    if key not in holder:
        if default is _MISSING:
            raise RefusalError("Missing entry", entry)
        return default
    _is(holder[key], kind, entry)
    return holder[key]
