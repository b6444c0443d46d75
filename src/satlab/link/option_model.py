# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of option models: command line, web form and requests come from one definition."""

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import annotated_types
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from satlab.common import plain_words
from satlab.common.errors import ConfigError, Fault

Group = Literal["Link", "Losses", "Impairments", "Queue and AQM", "Timing", "Output"]
_LONG = 15
"""Limits with more digits are not shown, as no value reaches them."""
GROUPS: tuple[Group, ...] = get_args(Group)
"""Groups of options, in the order of help and forms."""


@dataclass(frozen=True)
class Help:
    """Presentation of an option, in the annotation of its field.

    A number has a `unit`, any other value a `metavar` that shows its form. `short` is the letter of
    the short flag. `opensand`: the option also works with the real OpenSAND.
    """

    label: str
    text: str
    group: Group
    unit: str = ""
    metavar: str = ""
    short: str = ""
    opensand: bool = False


@dataclass(frozen=True)
class Option:
    """One option; `range` are the limits of a number in words."""

    name: str
    kind: Any
    default: Any
    help: Help
    range: str

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def text(self) -> str:
        """The help text, with the limits."""
        return f"{self.help.text.rstrip('.')}; {self.range}." if self.range else self.help.text


class Options(BaseModel):
    """Read-only. The options of a class follow those of its bases, the last base first (pydantic)."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True
    )  # built where used: commands start sooner

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Check options of the command line. Raises ConfigError with every fault."""
        try:
            return cls(**given)
        except ValidationError as error:
            faults = [fault_of(cls, detail) for detail in error.errors(include_url=False)]
            if len(faults) == 1:
                raise ConfigError(
                    f"{faults[0].place}: {faults[0].reason}", hint=faults[0].remedy
                ) from error
            raise ConfigError(f"{len(faults)} options cannot be used", faults) from error


def options_of(model: type[Options]) -> tuple[Option, ...]:
    """Return the options of a model, by group."""
    every = [
        Option(name, field.annotation, field.default, _help(model, name), _range(field))
        for name, field in model.model_fields.items()
    ]
    return tuple(sorted(every, key=lambda option: GROUPS.index(option.help.group)))


def fault_of(model: type[Options], detail: Any) -> Fault:
    """Return the fault for one of pydantic's errors."""
    name, value = str(detail["loc"][0]), detail["input"]
    option = next(option for option in options_of(model) if option.name == name)
    shown = "" if value is True else f" {value:.15g}" if isinstance(value, float) else f" {value}"
    reason, said = plain_words.of_fault({**detail, "input": None})  # it is shown with the flag
    correct = plain_words.correct_number(str(value), option.help.unit)
    if correct and "number" in reason:
        usual = f"write {correct}"
    elif detail["type"] == "string_pattern_mismatch":
        usual = option.help.text.rstrip(".")
    else:
        usual = option.range or said
    remedy = detail.get("ctx", {}).get("remedy", usual)
    return Fault(f"{option.flag}{shown}", reason, remedy)


def invalid(reason: str, remedy: str, other: str = "") -> PydanticCustomError:
    """Return the error that a validator of an option raises. `other`: the flag that it names."""
    context = {"reason": reason, "remedy": remedy, "other": other}
    return PydanticCustomError("option", "{reason}", context)


def _help(model: type[Options], name: str) -> Help:
    """Return the help of an option, or that of the base class whose option it narrows."""
    bases = [
        base for base in model.__mro__ if issubclass(base, Options) and name in base.model_fields
    ]
    return next(
        each
        for base in bases
        for each in base.model_fields[name].metadata
        if isinstance(each, Help)
    )


def _range(field: FieldInfo) -> str:
    limits: dict[str, str] = {}
    for each in field.metadata:
        for name in ("gt", "ge", "le"):
            value = (
                getattr(each, name, None)
                if isinstance(each, annotated_types.BaseMetadata)
                else None
            )
            if value is not None:
                limits[name] = str(int(value)) if value == int(value) else f"{value:g}"
    low = f"above {limits['gt']}" if "gt" in limits else limits.get("ge")
    if low is None or "le" not in limits:
        return ""
    return f"{low} to {limits['le']}" if len(limits["le"]) < _LONG else f"{low} or more"
