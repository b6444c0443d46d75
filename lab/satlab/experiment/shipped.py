# SPDX-License-Identifier: GPL-3.0-or-later
"""What ships with satlab and can be named on the command line: one line each."""

import json
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from satlab.common import paths
from satlab.common.errors import ConfigError

Kind = Literal["scenarios", "profiles", "pages", "jobs", "suites"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def shipped(kind: Kind) -> dict[str, str]:
    """Return name and description of everything of a kind, by name."""
    match kind:
        case "scenarios":
            return {path.stem: _scenario(json.loads(path.read_text())) for path in _sorted(paths.SCENARIOS, "*.json")}
        case "profiles":
            return {path.stem: _first_comment(path) for path in _sorted(paths.PROFILES / "_base", "*.yml")[1:]}
        case "pages":
            return {path.parent.name: _yaml(path)["title"] for path in _sorted(paths.WEB_TARGETS, "*/page.yml")}
        case "jobs":
            folders = {path.parents[1].name: path for path in _sorted(paths.JOBS, "*/files/*.yml")}
            return {name: _sentence(_yaml(path)["general"]["description"]) for name, path in folders.items()}
        case "suites":
            return {path.stem: _yaml(path)["source"] for path in _sorted(paths.BASELINES, "*.yml")}


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


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _first_comment(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("#").strip()


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".")
