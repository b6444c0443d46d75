# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a launch: a field for each argument and constant of a scenario, with help, unit and
choices.

A scenario has only a name and a description of an argument. The type of its value follows from the
jobs that receive it, in this scenario or in those that it starts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from satlab.common import plain_words
from satlab.common.errors import ConfigError
from satlab.common.paths import shipped_profiles
from satlab.lab import web_target
from satlab.link.option_model import Option, fault_of, options_of
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.job_arguments import out_of_bounds
from satlab.openbach.scenario import MAX_DEPTH
from satlab.run import catalog, scenario_value_checks
from satlab.service.root_helper.protocol import RunLink

Document = Mapping[str, Any]
Kind = Literal["text", "integer", "number"]

_NO, _YES = "no", "yes"
_KINDS: dict[str, Kind] = {"int": "integer", "float": "number"}
_UNIT = re.compile(r"\bin (s|ms|seconds|milliseconds|bytes|MB|bit/s)\b")
_WORDS = {
    "cc": "congestion control",
    "iw": "initial window",
    "ack": "ACK",
    "ip": "IP",
    "pep": "PEP",
    "rtt": "RTT",
    "st": "ST",
    "gw": "GW",
    "tcp": "TCP",
    "udp": "UDP",
}
"""Words of names that are shortened or capitalized."""
_UNITS = {"seconds": "s", "milliseconds": "ms"}


@dataclass(frozen=True)
class Field:
    """One field.

    `value` is its initial content; '' must be filled in if the field is `required`.
    """

    name: str
    label: str
    help: str = ""
    unit: str = ""
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    bounds: tuple[Argument, ...] = ()
    value: str = ""
    required: bool = False
    group: str = ""

    @property
    def id(self) -> str:
        """Return the name of the field in the form."""
        return f"{self.group}.{self.name}"


@dataclass(frozen=True)
class Form:
    """Fields by their use: arguments of the scenario, options of the link, constants that may be
    replaced.
    """

    arguments: tuple[Field, ...]
    link: tuple[Field, ...]
    constants: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return every field."""
        return (*self.arguments, *self.link, *self.constants)


@dataclass(frozen=True)
class FormRequest:
    """The request of a filled form; only constants with a changed value.

    `faults`: by id of the field.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    link: RunLink | None = None
    faults: Mapping[str, str] = field(default_factory=dict)


def form_of(
    scenario: Document,
    others: Mapping[str, Document],
    jobs: Mapping[str, Descriptor],
    profiles: Path,
) -> Form:
    """Make the form of a scenario; `others` are the scenarios that it may start, by name."""
    uses: dict[str, list[Argument]] = {}
    for name, use in _uses(scenario, others, jobs, MAX_DEPTH):
        uses.setdefault(name, []).append(use)
    arguments, constants = (_texts(scenario.get(key)) for key in ("arguments", "constants"))
    usual = catalog.defaults(str(scenario.get("name", "")), arguments)
    return Form(
        tuple(
            _field("argument", n, text, usual.get(n, ""), uses.get(n, []))
            for n, text in arguments.items()
        ),
        _link_fields(profiles),
        tuple(_field("constant", n, "", value, uses.get(n, [])) for n, value in constants.items()),
    )


def read(form: Form, given: Mapping[str, str]) -> FormRequest:
    """Read a filled form, with every fault."""
    faults = {
        f.id: "Please fill this in" if not f.choices else "Please choose one"
        for f in form.arguments
        if not given.get(f.id, "").strip()
    }
    for each in form.fields:
        text = given.get(each.id, "").strip()
        if text and each.choices and text not in each.choices:
            faults[each.id] = f"Choose one of {', '.join(each.choices)}"
        elif text and not _is(each.kind, text):
            faults[each.id] = _not_a_number(each, text)
        elif text and (
            beyond := [fault for use in each.bounds if (fault := out_of_bounds(use, text))]
        ):
            faults[each.id] = f"This is not possible: {beyond[0]}"
    arguments = {f.name: given.get(f.id, "").strip() for f in form.arguments}
    constants = {
        f.name: text
        for f in form.constants
        if (text := given.get(f.id, "").strip()) not in ("", f.value)
    }
    link = _read_link(form, given, faults)
    return FormRequest(arguments, constants, link, faults)


def _read_link(form: Form, given: Mapping[str, str], faults: dict[str, str]) -> RunLink | None:
    chosen = {f.name: given[f.id].strip() for f in form.link if given.get(f.id, "").strip()}
    try:
        link = RunLink.model_validate(chosen)
        link.options().request()
    except ValidationError as error:
        labels = {option.flag: f'"{option.help.label}"' for option in options_of(RunLink)}
        for detail in error.errors():
            fault = fault_of(RunLink, detail)
            text = f"This {fault.reason}" + (f" ({fault.remedy})" if fault.remedy else "")
            if fault.remedy and detail["type"].startswith(("greater_than", "less_than")):
                text = f"This must be {fault.remedy}"
            if flag := detail.get("ctx", {}).get("other"):  # a form has labels in place of flags
                text = text.replace(flag, labels[flag])
            faults.setdefault(f"link.{detail['loc'][0]}", text)
    except ConfigError as error:
        place = "link.emulator" if chosen.get("emulator") == "opensand" else "link.profile"
        faults.setdefault(place, "; ".join((str(error), *map(str, error.faults))))
    else:
        return link
    return None


def _not_a_number(asked: Field, text: str) -> str:
    if asked.kind == "integer":
        return "This is not a whole number"
    correct = plain_words.correct_number(text, asked.unit)
    return "This is not a number" + (f": write {correct}" if correct else "")


def _is(kind: Kind, text: str) -> bool:
    try:
        (int if kind == "integer" else float if kind == "number" else str)(text)
    except ValueError:
        return False
    return True


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _field(group: str, name: str, text: str, value: str, uses: list[Argument]) -> Field:
    said = text or next((use.description for use in uses if use.description), "")
    units = [
        found[1]
        for where in (text, *(use.description for use in uses))
        if (found := _UNIT.search(where))
    ]
    types = {use.type for use in uses}
    kinds = {_KINDS.get(each, "text") for each in types}
    offered = [[str(choice) for choice in use.choices] for use in uses if use.choices]
    choices = (
        tuple(choice for choice in offered[0] if all(choice in other for other in offered))
        if offered
        else ()
    )
    if any(use.name == scenario_value_checks.PAGE for use in uses):
        choices = tuple(web_target.names())
    unit = _UNITS.get(units[0], units[0]) if units else ""
    return Field(
        name=name,
        label=_label(name, unit),
        help=said,
        unit=unit,
        kind=next(iter(kinds)) if len(kinds) == 1 else "text",
        choices=choices,
        bounds=tuple(uses) if types <= _KINDS.keys() else (),
        value=value or (choices[0] if group == "argument" and choices else ""),
        required=group == "argument",
        group=group,
    )


def _label(name: str, unit: str) -> str:
    """Return a name in words. A unit at its end is left out where it stands next to the label."""
    words = name.split("_")
    kept = words[:-1] if len(words) > 1 and words[-1] == unit else words
    label = " ".join(_WORDS.get(word, word) for word in kept)
    return label[:1].upper() + label[1:]


# --- where values go ------------------------------------------------------------------------------


def _uses(
    scenario: Document, others: Mapping[str, Document], jobs: Mapping[str, Descriptor], depth: int
) -> Iterator[tuple[str, Argument]]:
    """Yield (placeholder, job argument) for each value that is a placeholder and nothing else."""
    functions = scenario.get("openbach_functions")
    for function in functions if isinstance(functions, list) else []:
        call = function.get("start_job_instance") if isinstance(function, dict) else None
        for name, values in call.items() if isinstance(call, dict) else ():
            if name in jobs:
                yield from _of_level(jobs[name].level, values)
        started = function.get("start_scenario_instance") if isinstance(function, dict) else None
        if isinstance(started, dict) and started.get("scenario_name") in others and depth > 0:
            given = started.get("arguments")
            below = list(_uses(others[started["scenario_name"]], others, jobs, depth - 1))
            for inner, value in given.items() if isinstance(given, dict) else ():
                yield from (
                    (name, use)
                    for name in _placeholders(value)
                    for known, use in below
                    if known == inner
                )


def _of_level(level: Level, values: object) -> Iterator[tuple[str, Argument]]:
    choices = {choice.name: choice for group in level.subcommand for choice in group.choices}
    for name, value in values.items() if isinstance(values, dict) else ():
        if name in choices:
            yield from _of_level(choices[name], value)
        elif name in level.arguments:
            yield from (
                (placeholder, level.arguments[name]) for placeholder in _placeholders(value)
            )


def _placeholders(value: object) -> Iterator[str]:
    """Yield the names of placeholders that are a whole value, or a whole element of its lists."""
    if isinstance(value, list):
        for entry in value:
            yield from _placeholders(entry)
    elif isinstance(value, str):
        names = Template(value).get_identifiers()
        if len(names) == 1 and value in (f"${names[0]}", f"${{{names[0]}}}"):
            yield names[0]


# --- the link -------------------------------------------------------------------------------------


def form_text(value: object) -> str:
    """Return the text of an option's value in the form."""
    if isinstance(value, bool):
        return _YES if value else _NO
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _link_fields(profiles: Path) -> tuple[Field, ...]:
    names = shipped_profiles(profiles)
    return tuple(_link_field(option, names) for option in options_of(RunLink))


def _link_field(option: Option, profiles: tuple[str, ...]) -> Field:
    kinds = get_args(option.kind) or (option.kind,)
    words = tuple(
        word
        for kind in (option.kind, *kinds)
        if get_origin(kind) is Literal
        for word in get_args(kind)
    )
    return Field(
        name=option.name,
        label=option.help.label,
        help=option.text,
        unit=option.help.unit,
        kind="integer" if int in kinds else "number" if float in kinds else "text",
        choices=profiles if option.name == "profile" else (_NO, _YES) if bool in kinds else words,
        value=form_text(option.default),
        group="link",
    )
