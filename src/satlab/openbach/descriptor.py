# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job descriptors, `jobs/<job>/files/<job>.yml` in the dictionary form of OpenBACH 2.7.

`is_upstream` reads them as a controller does: what it passes over is a warning
(`satlab.openbach.upstream_descriptors`).
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.openbach import upstream_descriptors
from satlab.openbach.json_document import NAME_RULE, is_name

TYPES = ("int", "str", "float", "ip", "network", "None", "job", "scenario", "ratio", "date")

_AGENT_PYTHON = "/opt/openbach/virtualenv/bin/python3"
AGENT_JOBS = "/opt/openbach/agent/jobs"
"""Where an agent keeps its jobs."""


@dataclass(frozen=True)
class Count:
    """How many values an argument takes: `least` to `most` (None = no limit)."""

    least: int
    most: int | None

    def allows(self, number: int) -> bool:
        """Return whether that many values are right."""
        return number >= self.least and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        """Return the rule in words."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def _count(value: Any) -> Count:
    """Read OpenBACH's count: an integer, 'a-b', '+' or '*'."""
    text = str(value)
    if text in "+*" and text:
        return Count(1 if text == "+" else 0, None)
    least, dash, most = text.partition("-")
    if not (least.isdecimal() and (most.isdecimal() if dash else True)):
        raise ValueError("is not a count: an integer, 'a-b', '+' or '*'")
    count = Count(int(least), int(most) if dash else int(least))
    if count.most is not None and count.most < count.least:
        raise ValueError("is an empty range")
    return count


def _list(value: Any) -> Any:
    """Read the empty entry of YAML as an empty list, as OpenBACH does."""
    return [] if value is None else value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Argument(_Model):
    """One positional argument, or one option (`flag` set).

    `least`, `most`: bounds; OpenBACH ignores them. `remainder`: a text may begin with '-', as the
    job takes all further words (argparse.REMAINDER).
    """

    name: str = Field(min_length=1)
    type: str
    count: Annotated[Count, BeforeValidator(_count)]
    description: str = ""
    password: bool = False
    default: Any = None
    choices: Annotated[tuple[str | int | float, ...], BeforeValidator(_list)] = ()
    flag: str | None = None
    repeatable: bool = False
    remainder: bool = False
    least: float | None = None
    most: float | None = None

    @property
    def is_flag(self) -> bool:
        """Return whether this is a bare flag, without values."""
        return self.type == "None"


class Level(_Model):
    """The arguments at one depth: of the job itself, or of one subcommand."""

    required: Annotated[tuple[Argument, ...], BeforeValidator(_list)] = ()
    optional: Annotated[tuple[Argument, ...], BeforeValidator(_list)] = ()
    subcommand: Annotated[tuple[Group, ...], BeforeValidator(_list)] = ()

    @property
    def arguments(self) -> dict[str, Argument]:
        """Return every argument of this level by name."""
        return {argument.name: argument for argument in (*self.required, *self.optional)}


class Subcommand(Level):
    """One choice of a group of subcommands."""

    name: str = Field(min_length=1)


class Group(_Model):
    """Subcommands of which one is chosen (or none, if `optional`)."""

    group_name: str = Field(min_length=1)
    optional: bool = False
    choices: tuple[Subcommand, ...]


class _General(_Model):
    name: str = ""
    description: str
    job_version: str
    keywords: Annotated[tuple[str, ...], BeforeValidator(_list)]
    persistent: bool
    need_privileges: bool = False


class _PlatformDefaults(_Model):
    ansible_system: str | None = None
    ansible_distribution: str | None = None
    ansible_distribution_release: str | None = None
    command: str | None = None
    command_stop: str | None = None


class _Platforms(_PlatformDefaults):
    supported_platforms: tuple[_PlatformDefaults, ...] = Field(min_length=1)


class _Statistic(_Model):
    name: str
    description: str
    frequency: str


def _no_list(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError(
            "is the list form of OpenBACH 2.6; since 2.7 it is {supported_platforms: LIST}"
        )
    return value


class _File(_Model):
    general: _General
    platform_configuration: Annotated[_Platforms, BeforeValidator(_no_list)]
    arguments: Level
    statistics: Annotated[tuple[_Statistic, ...], BeforeValidator(_list)] = ()


@dataclass(frozen=True)
class Platform:
    """How the job is started on one system release; both commands are split, never run by a shell."""

    release: str
    command: tuple[str, ...]
    command_stop: tuple[str, ...]


@dataclass(frozen=True)
class Descriptor:
    """A checked job descriptor. `files` is the folder that holds the program.

    `programs`: where its playbook takes the programs from, by their name on the agent, as far as
    that is a sub-folder.
    """

    name: str
    description: str
    version: str
    persistent: bool
    files: Path
    platforms: tuple[Platform, ...]
    level: Level
    statistics: tuple[str, ...]
    warnings: tuple[Fault, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """Return the start command on this host: the agent's interpreter and job folder become
        ours.
        """
        return [self._here(word) for word in self._platform().command]

    def command_there(self) -> list[str]:
        """Return the start command as it is written: that of an agent."""
        return list(self._platform().command)

    def command_stop(self) -> list[str]:
        """Return the command that runs after a stop, [] when there is none."""
        return [self._here(word) for word in self._platform().command_stop]

    def _platform(self) -> Platform:
        # The embedded lab is not bound to OpenBACH's list of systems: an unlisted host uses the
        # first platform.
        try:
            release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        except OSError:
            release = ""
        return next(
            (entry for entry in self.platforms if entry.release == release), self.platforms[0]
        )

    def _here(self, word: str) -> str:
        folder = f"{AGENT_JOBS}/{self.name}/"
        if word == _AGENT_PYTHON:
            return sys.executable
        if not word.startswith(folder):
            return word
        name = word.removeprefix(folder)
        return str(self.files / self.programs.get(name, name))


def load_job(folder: Path, *, is_upstream: bool = False) -> Descriptor:
    """Read the descriptor of a job folder.

    Raises ConfigError with every fault found.
    """
    faults: list[Fault] = []
    descriptor = _read(folder, faults, [] if is_upstream else None)
    if faults or descriptor is None:
        raise ConfigError(f"the job {folder.name} is not valid", faults)
    return descriptor


def load_jobs(folder: Path) -> dict[str, Descriptor]:
    """Read every job below `folder`, by name; hidden folders are passed over.

    Raises ConfigError with the faults of all jobs.
    """
    jobs, bad = sort_jobs(folder)
    if bad:
        raise ConfigError(
            f"the jobs in {folder} are not valid",
            [fault for error in bad.values() for fault in error.faults],
        )
    return jobs


def sort_jobs(folder: Path) -> tuple[dict[str, Descriptor], dict[str, ConfigError]]:
    """Read every job below `folder` as `load_jobs` does; return those that are valid, and why the
    others are not.
    """
    jobs, bad = {}, {}
    for job in sorted(folder.iterdir()):
        if job.is_dir() and not job.name.startswith((".", "_")):
            try:
                jobs[job.name] = load_job(job)
            except ConfigError as error:
                bad[job.name] = error
    return jobs, bad


def all_jobs(folders: Iterable[Path]) -> dict[str, Descriptor]:
    """Return the shipped jobs, and the valid ones of further folders as a controller reads them.

    The name of a job decides what it may do, so those of shipped jobs are not given to others.

    Raises ConfigError: a shipped job is not valid.
    """
    further: dict[str, Descriptor] = {}
    for folder in folders:
        further |= sort_upstream(folder)[0]
    return further | load_jobs(paths.JOBS)


def sort_upstream(folder: Path) -> tuple[dict[str, Descriptor], dict[str, ConfigError]]:
    """Read every job at or below `folder` as a controller would; return those that are valid, and
    the others' faults.

    Raises ConfigError: there is no such folder, or two jobs have the same name.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    jobs: dict[str, Descriptor] = {}
    bad: dict[str, ConfigError] = {}
    for job in upstream_descriptors.find_jobs(folder):
        if job.name in jobs or job.name in bad:
            raise ConfigError(
                f"{folder}: two jobs are called {job.name}", hint="name a folder with one of them"
            )
        try:
            jobs[job.name] = load_job(job, is_upstream=True)
        except ConfigError as error:
            bad[job.name] = error
    return jobs, bad


def _read(folder: Path, faults: list[Fault], warnings: list[Fault] | None) -> Descriptor | None:
    """Read a descriptor; with `warnings` as a controller does, which notes there what it passes
    over.
    """
    name = folder.name
    path = folder / "files" / f"{name}.yml"
    if not is_name(name):
        faults.append(Fault(str(folder), "is not a job name", NAME_RULE))
    document = _yaml(path, faults)
    if document is None:
        return None
    if warnings is not None:
        found_here = warnings
        document = upstream_descriptors.adapt(
            document, lambda place, reason: found_here.append(Fault(f"{path}: {place}", reason))
        )
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        for detail in error.errors():
            place = ".".join(map(str, detail["loc"]))
            faults.append(Fault(f"{path}: {place}", detail["msg"][:1].lower() + detail["msg"][1:]))
        return None
    found = list(_level_faults(file.arguments, "arguments"))
    unclear = [*_greedy(file.arguments, "arguments"), *_name_faults(file.arguments)]
    if file.general.name not in ("", name):
        reason = f"{file.general.name!r} is not the name of the folder"
        unclear.append(Fault("general.name", reason, "OpenBACH takes that of the folder"))
    if warnings is None:
        found += unclear
    else:
        warnings += [replace(fault, place=f"{path}: {fault.place}") for fault in unclear]
        if packages := " ".join(upstream_descriptors.packages(folder)):
            reason = f"installs packages, which the embedded lab does not: {packages}"
            remedy = f"apt-get install {packages}, or --job-packages"
            warnings.append(Fault(str(folder / f"install_{name}.yml"), reason, remedy))
    found += _double_faults(file)
    platforms = _platforms(file.platform_configuration, found)
    faults.extend(replace(fault, place=f"{path}: {fault.place}") for fault in found)
    if found:
        return None
    return Descriptor(
        name=name,
        description=file.general.description,
        version=file.general.job_version,
        persistent=file.general.persistent,
        files=path.parent,
        platforms=tuple(platforms),
        level=file.arguments,
        statistics=tuple(statistic.name for statistic in file.statistics),
        warnings=tuple(warnings or ()),
        programs=upstream_descriptors.programs(folder) if warnings is not None else {},
    )


def _yaml(path: Path, faults: list[Fault]) -> Mapping[str, Any] | None:
    try:
        document = yaml_text.read(path)
    except OSError as error:
        faults.append(
            Fault(str(path), f"cannot be read: {error.strerror}", "a job has files/<job>.yml")
        )
    except yaml_text.YamlError as error:
        faults.append(error.fault)
    else:
        if isinstance(document, Mapping):
            return document
        faults.append(Fault(str(path), "is not a mapping"))
    return None


def _platforms(section: _Platforms, found: list[Fault]) -> list[Platform]:
    """Fill each platform from the defaults above the list, as the controller does."""
    platforms = []
    for position, own in enumerate(section.supported_platforms):
        place = f"platform_configuration.supported_platforms.{position}"
        merged = {
            key: getattr(own, key) if getattr(own, key) is not None else getattr(section, key)
            for key in _PlatformDefaults.model_fields
        }
        missing = [key for key, value in merged.items() if not value and key != "command_stop"]
        remedy = "add it here or above the list"
        found.extend(Fault(place, f"has no {key}", remedy) for key in missing)
        try:
            command, command_stop = (
                tuple(shlex.split(merged[key] or "")) for key in ("command", "command_stop")
            )
        except ValueError as error:
            found.append(Fault(place, f"command cannot be split: {error}"))
            continue
        platforms.append(
            Platform(merged["ansible_distribution_release"] or "", command, command_stop)
        )
    return platforms


def _level_faults(level: Level, place: str) -> Iterator[Fault]:
    for section, arguments in (("required", level.required), ("optional", level.optional)):
        for position, argument in enumerate(arguments):
            here = f"{place}.{section}.{position}"
            yield from _argument_faults(argument, here, is_option=section == "optional")
    unlimited = [argument.name for argument in level.required if argument.count.most is None]
    if len(unlimited) > 1:
        yield Fault(
            f"{place}.required",
            f"{', '.join(unlimited)} all take any number of values",
            "at most one required argument may, or the values cannot be distinguished",
        )
    for position, group in enumerate(level.subcommand):
        for number, choice in enumerate(group.choices):
            yield from _level_faults(choice, f"{place}.subcommand.{position}.choices.{number}")


def _greedy(level: Level, place: str) -> Iterator[Fault]:
    """Find options that argparse lets take the name of the subcommand for one more value (bug
    9338).
    """
    greedy = [
        argument.name for argument in level.optional if argument.count.least != argument.count.most
    ]
    if greedy and level.subcommand:
        yield Fault(
            f"{place}.optional",
            f"{', '.join(greedy)} may take the name of the subcommand for a value",
            "set a fixed count, or make it repeatable",
        )
    for position, group in enumerate(level.subcommand):
        for number, choice in enumerate(group.choices):
            yield from _greedy(choice, f"{place}.subcommand.{position}.choices.{number}")


def _argument_faults(argument: Argument, place: str, *, is_option: bool) -> Iterator[Fault]:
    if argument.type not in TYPES:
        known = f"known types: {', '.join(TYPES)}"
        yield Fault(place, f"unknown type {argument.type!r}", known)
    if is_option and not (argument.flag and argument.flag.startswith("-")):
        yield Fault(place, "an option needs a flag that starts with '-'")
    if not is_option and (argument.flag or argument.repeatable or argument.is_flag):
        reason = "a required argument is positional: no flag, not repeatable, not of type None"
        yield Fault(place, reason, "make it optional")
    if argument.is_flag != (argument.count == Count(0, 0)):
        yield Fault(place, "a bare flag has type None and count 0")


def _double_faults(file: _File) -> Iterator[Fault]:
    """Find what OpenBACH refuses as duplicated entries, except arguments."""
    statistics = [statistic.name for statistic in file.statistics]
    for name in sorted({name for name in statistics if statistics.count(name) > 1}):
        yield Fault("statistics", f"{name!r} is declared twice", "remove one")
    section = file.platform_configuration
    systems = [
        (
            own.ansible_system or section.ansible_system,
            own.ansible_distribution or section.ansible_distribution,
            own.ansible_distribution_release or section.ansible_distribution_release,
        )
        for own in section.supported_platforms
    ]
    for system in {system for system in systems if systems.count(system) > 1}:
        yield Fault(
            "platform_configuration", f"{' '.join(map(str, system))} is listed twice", "remove one"
        )


def _name_faults(root: Level) -> Iterator[Fault]:
    """Find names that OpenBACH could not distinguish: it looks for subcommands of the whole job
    first.
    """
    subcommands = [choice.name for _, choice in _choices(root)]
    for name in sorted({name for name in subcommands if subcommands.count(name) > 1}):
        yield Fault(
            "arguments",
            f"the subcommand {name!r} is defined twice",
            "names of subcommands are unique in a job",
        )
    for level in (root, *(choice for _, choice in _choices(root))):
        arguments = [argument.name for argument in (*level.required, *level.optional)]
        for name in sorted({name for name in arguments if arguments.count(name) > 1}):
            yield Fault(
                "arguments", f"the argument {name!r} is defined twice at one level", "rename one"
            )
        flags = [argument.flag for argument in level.optional if argument.flag]
        for flag in sorted({flag for flag in flags if flags.count(flag) > 1}):
            yield Fault("arguments", f"the flag {flag!r} is used twice at one level", "change one")
        for name in sorted(set(arguments) & set(subcommands)):
            yield Fault("arguments", f"{name!r} names an argument and a subcommand", "rename one")


def _choices(level: Level) -> Iterator[tuple[Group, Subcommand]]:
    for group in level.subcommand:
        for choice in group.choices:
            yield group, choice
            yield from _choices(choice)
