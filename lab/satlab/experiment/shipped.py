# SPDX-License-Identifier: GPL-3.0-or-later
"""What ships with satlab and can be named on the command line: one line each."""

import json
from pathlib import Path
from typing import Any, Literal, get_args

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError
from satlab.link.options import shipped_profiles
from satlab.netlab import job_host, web_target
from satlab.openbach import descriptor

Kind = Literal["scenarios", "profiles", "pages", "jobs", "suites"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def shipped(kind: Kind) -> dict[str, str]:
    """Return name and description of everything of a kind, by name."""
    match kind:
        case "scenarios":
            return {path.stem: _scenario(json.loads(path.read_text())) for path in _sorted(paths.SCENARIOS, "*.json")}
        case "profiles":
            return {name: _first_comment(paths.PROFILES / "_base" / f"{name}.yml") for name in shipped_profiles()}
        case "pages":
            return {name: web_target.load(name).title for name in job_host.pages()}
        case "jobs":
            return {name: _sentence(job.description) for name, job in descriptor.load_jobs(paths.JOBS).items()}
        case "suites":
            return {path.stem: yaml_text.load(path.read_text())["source"] for path in _sorted(paths.BASELINES, "*.yml")}


def scenario_file(named: Path) -> Path:
    """Return the file of a scenario: a path, or the name of a shipped one.

    Raises:
        ConfigError: there is neither; the hint has the nearest names.
    """
    is_name = named.name == str(named) and not named.suffix
    file = paths.SCENARIOS / f"{named}.json"
    if named.exists() or not is_name:
        return named
    if not file.exists():
        raise ConfigError(f"{named}: no such file or scenario", hint=f"scenarios: {', '.join(shipped('scenarios'))}")
    return file


def _scenario(document: dict[str, Any]) -> str:
    arguments = ", ".join(document.get("arguments", ()))
    return f"{document['description']} [{arguments}]" if arguments else str(document["description"])


def _sorted(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _first_comment(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("#").strip()


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")
