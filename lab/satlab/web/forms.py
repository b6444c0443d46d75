# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a launch: a field for each argument and constant of a scenario, with help, unit and choices.

A scenario says of an argument its name and a description alone. What kind of value it takes follows from the jobs, of
this scenario or of those that it starts, that the value is handed to.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args

from pydantic import ValidationError

from satlab.common.errors import ConfigError
from satlab.link.config import Aqm, LossUnit, Timing
from satlab.link.options import LOSS_MODELS, QUEUES
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.scenario import MAX_DEPTH
from satlab.rootd.verbs import RunLink

Document = Mapping[str, Any]
Kind = Literal["text", "integer", "number"]

_KINDS: dict[str, Kind] = {"int": "integer", "float": "number"}
_UNIT = re.compile(r"\bin (s|ms|seconds|milliseconds|bytes|MB|bit/s)\b")
_UNITS = {"seconds": "s", "milliseconds": "ms"}


@dataclass(frozen=True)
class Field:
    """One field: `value` is what it holds at first, '' for what must be filled in if it is `required`."""

    name: str
    label: str
    help: str = ""
    unit: str = ""
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    value: str = ""
    required: bool = False
    group: str = ""

    @property
    def id(self) -> str:
        """Return the name of the field in the form."""
        return f"{self.group}.{self.name}"


@dataclass(frozen=True)
class Form:
    """Fields by their use: arguments of the scenario, options of the link, constants that may be replaced."""

    arguments: tuple[Field, ...]
    link: tuple[Field, ...]
    constants: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return every field."""
        return (*self.arguments, *self.link, *self.constants)


@dataclass(frozen=True)
class FormRequest:
    """What a filled form asks for; of the constants those that differ. `faults`: what is wrong, by id of the field."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    link: RunLink | None = None
    faults: Mapping[str, str] = field(default_factory=dict)


def form_of(scenario: Document, others: Mapping[str, Document], jobs: Mapping[str, Descriptor], profiles: Path) -> Form:
    """Make the form of a scenario; `others` are the scenarios that it may start, by name."""
    uses: dict[str, list[Argument]] = {}
    for name, use in _uses(scenario, others, jobs, MAX_DEPTH):
        uses.setdefault(name, []).append(use)
    arguments, constants = (_texts(scenario.get(key)) for key in ("arguments", "constants"))
    return Form(
        tuple(_field("argument", n, text, "", uses.get(n, [])) for n, text in arguments.items()),
        _link_fields(profiles),
        tuple(_field("constant", n, "", value, uses.get(n, [])) for n, value in constants.items()),
    )


def read(form: Form, given: Mapping[str, str]) -> FormRequest:
    """Read a filled form, with everything that is wrong in it."""
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
            faults[each.id] = "This is no whole number" if each.kind == "integer" else "This is no number"
    arguments = {f.name: given.get(f.id, "").strip() for f in form.arguments}
    constants = {f.name: text for f in form.constants if (text := given.get(f.id, "").strip()) not in ("", f.value)}
    link = _read_link(form, given, faults)
    return FormRequest(arguments, constants, link, faults)


def _read_link(form: Form, given: Mapping[str, str], faults: dict[str, str]) -> RunLink | None:
    chosen = {f.name: given[f.id].strip() for f in form.link if given.get(f.id, "").strip()}
    try:
        link = RunLink.model_validate(chosen)
        link.options().request()
    except ValidationError as error:
        for detail in error.errors():
            faults.setdefault(f"link.{detail['loc'][0]}", detail["msg"].replace("Input", "This"))
    except ConfigError as error:
        known = [f.id for f in form.link if f"--{f.name.replace('_', '-')} " in str(error)]
        faults.setdefault(known[0] if known else "link.profile", str(error))
    else:
        return link
    return None


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
    units = [found[1] for where in (text, *(use.description for use in uses)) if (found := _UNIT.search(where))]
    kinds = {_KINDS.get(use.type, "text") for use in uses}
    offered = [[str(choice) for choice in use.choices] for use in uses if use.choices]
    choices = tuple(choice for choice in offered[0] if all(choice in other for other in offered)) if offered else ()
    return Field(
        name=name,
        label=name.replace("_", " ").capitalize(),
        help=said,
        unit=_UNITS.get(units[0], units[0]) if units else "",
        kind=next(iter(kinds)) if len(kinds) == 1 else "text",
        choices=choices,
        value=value or (choices[0] if group == "argument" and choices else ""),
        required=group == "argument",
        group=group,
    )


# --- where values go ------------------------------------------------------------------------------------------------


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
                yield from ((name, use) for name in _placeholders(value) for known, use in below if known == inner)


def _of_level(level: Level, values: object) -> Iterator[tuple[str, Argument]]:
    choices = {choice.name: choice for group in level.subcommand for choice in group.choices}
    for name, value in values.items() if isinstance(values, dict) else ():
        if name in choices:
            yield from _of_level(choices[name], value)
        elif name in level.arguments:
            yield from ((placeholder, level.arguments[name]) for placeholder in _placeholders(value))


def _placeholders(value: object) -> Iterator[str]:
    """Yield the names that stand alone in a value, or in the lists that it is made of."""
    if isinstance(value, list):
        for entry in value:
            yield from _placeholders(entry)
    elif isinstance(value, str):
        names = Template(value).get_identifiers()
        if len(names) == 1 and value in (f"${names[0]}", f"${{{names[0]}}}"):
            yield names[0]


# --- the link -------------------------------------------------------------------------------------------------------


def _link_fields(profiles: Path) -> tuple[Field, ...]:
    names = tuple(sorted((p.name for p in profiles.iterdir() if p.is_dir()), key=lambda name: (name != "geo", name)))
    number: Kind = "number"

    def link(name: str, label: str, about: str, **more: Any) -> Field:
        return Field(name, label, about, group="link", **more)

    timing = "Frames as the standards open them, or in batches on the ticks of OpenSAND 8.2."
    model = f"Beside it: {LOSS_MODELS.partition(' or trace')[0]}."
    delay = "One way, between gateway and server; empty: as in the topology."
    return (
        link("profile", "Profile", "The satellite link: orbit, carriers, wave forms.", choices=names, value="geo"),
        link("loss", "Loss ratio", "Independent losses, each direction, 0 to 1.", kind=number, value="0"),
        link(
            "loss_unit", "Loss unit", "An IP packet, or a BBFRAME or burst.", choices=get_args(LossUnit), value="packet"
        ),
        link("loss_model", "Loss model", model),
        link("queue", "Queue limit", f"Of each direction: {QUEUES}.", value=f"{RunLink().queue_bdp:g}bdp"),
        link("aqm", "Queue management", "Without one the queue drops at its limit.", choices=get_args(Aqm)),
        link("jitter_ms", "Jitter", "Uniform, from 0 to this.", unit="ms", kind=number, value="0"),
        link("terrestrial_delay_ms", "Terrestrial delay", delay, unit="ms", kind=number),
        link("timing", "Timing", timing, choices=get_args(Timing), value="standard"),
        link("seed", "Seed", "Same seed, same losses.", kind="integer", value="1"),
    )
