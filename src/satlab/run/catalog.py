# SPDX-License-Identifier: GPL-3.0-or-later
"""Shipped scenarios, profiles, pages, jobs, suites, papers and stacks: one line for each."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from satlab.common import did_you_mean, paths, yaml_text
from satlab.common.errors import ConfigError

DEFAULTS = paths.SCENARIOS.parent / "defaults.yml"
Kind = Literal["scenarios", "profiles", "pages", "jobs", "suites", "papers", "stacks"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STACKS = {
    "quinn": "QUIC; transfers (satperf), checks and flows on both clocks, and the proxy satpep",
    "quiche": (
        "QUIC; transfers (satperf), checks and flows on the real clock, in lock-step with the"
        " virtual one"
    ),
    "noq": "QUIC; transfers (satperf) and flows on both clocks, with BBRv3",
    "ngtcp2": "QUIC; checks and flows on the real clock, by the programs of Debian",
    "picoquic": "QUIC; downloads as flows on the real clock, with BBRv1 and BBRv3",
    "tcp": (
        "the kernel's TCP; transfers, page loads and flows on the real clock, checks with PEP"
        " (tcp-pep)"
    ),
}
"""Stacks, and the parts of satlab that use each."""


def shipped(kind: Kind) -> dict[str, str]:
    """Return name and description of everything of a kind, by name."""
    match kind:
        case "scenarios":
            files = sorted(paths.SCENARIOS.glob("*.json"))
            found = {file.stem: _scenario(json.loads(file.read_text())) for file in files}
        case "profiles":
            base = paths.PROFILES / "_base"
            texts = {name: (base / f"{name}.yml").read_text() for name in paths.shipped_profiles()}
            found = {name: text.partition("\n")[0].strip("# ") for name, text in texts.items()}
        case "pages":
            files = sorted(paths.WEB_TARGETS.glob("*/page.yml"))
            found = {file.parent.name: yaml_text.read(file)["title"] for file in files}
        case "jobs":
            files = sorted(paths.JOBS.glob("*/files/*.yml"))
            jobs = {file.stem: yaml_text.read(file)["general"]["description"] for file in files}
            texts = {name: " ".join(text.split()) for name, text in jobs.items()}
            found = {name: text.partition(". ")[0].rstrip(".") for name, text in texts.items()}
        case "suites":
            files = sorted(paths.SUITES.glob("*.yml"))
            found = {file.stem: yaml_text.read(file)["source"] for file in files}
        case "papers":
            files = sorted(paths.PAPERS.glob("*/paper.yml"))
            found = dict(_paper(yaml_text.read(file)) for file in files)
        case "stacks":
            found = dict(STACKS)
    return found


def _paper(about: Mapping[str, Any]) -> tuple[str, str]:
    """Return a paper's name, as `reproduce` takes it, and its title."""
    name = about["known_as"].lower().replace(" ", "-")
    folder = f" ({about['name']})" if about["name"] != name else ""
    return name, f"{about['title']}{folder}"


def scenario_file(named: Path) -> Path:
    """Return the file of a scenario: a path, or the name of a shipped one.

    Raises:
        ConfigError: there is neither; the hint has the nearest names.
    """
    is_name = named.name == str(named) and not named.suffix
    file = paths.SCENARIOS / f"{named}.json"
    if named.exists():
        return named
    if not is_name or not file.exists():
        raise ConfigError(
            f"{named}: no such file or scenario",
            hint=did_you_mean.remedy(named.stem, shipped("scenarios"), "scenarios: {}"),
        )
    return file


def defaults(name: str, arguments: Iterable[str]) -> dict[str, str]:
    """Return the values of arguments of a shipped scenario that need not be set."""
    known = yaml_text.read(DEFAULTS)
    values = {**known["all"], **known.get(name, {})}
    return {argument: str(values[argument]) for argument in arguments if argument in values}


def settings(file: Path, arguments: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a scenario: those given, and defaults where the file is a shipped one."""
    is_shipped = file.resolve().parent == paths.SCENARIOS.resolve()
    return {**(defaults(file.stem, arguments) if is_shipped else {}), **given}


def _scenario(document: dict[str, Any]) -> str:
    names = document.get("arguments", {})
    usual = defaults(document["name"], names)
    arguments = ", ".join(f"{name}={usual[name]}" if name in usual else name for name in names)
    return f"{document['description']} [{arguments}]" if arguments else str(document["description"])
