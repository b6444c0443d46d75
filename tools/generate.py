# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the files that are made from others: OpenSAND profiles and schemas of the models that have one."""

import fnmatch
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from satlab.campaign.campaign_file import CampaignFile
from satlab.campaign.plan import Plan
from satlab.campaign.record import TaskRecord
from satlab.check import suite
from satlab.common.paths import PROFILES, ROOT, SCHEMAS
from satlab.rootd import verbs

BASE = PROFILES / "_base"
CAMPAIGN_MODELS: tuple[tuple[type[BaseModel], str, str], ...] = (
    (CampaignFile, "campaign-file", "The YAML file of a campaign; made from satlab.campaign.campaign_file"),
    (TaskRecord, "campaign-task", "task.json: the end of a campaign's task; made from satlab.campaign.record"),
    (Plan, "campaign-plan", "plan.json of a campaign: cells and tasks; made from satlab.campaign.plan"),
)
Layer = Mapping[str, Mapping[str, Any]]
"""Changes by pattern of file names: path below `root` -> text, or what is added; and `from`, the base file."""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text."""
    for overlay in sorted(BASE.glob("*.yml")):
        if overlay.name != "base.yml":
            yield from profile(overlay.stem)
    title = "Request to the root helper of satlab serve, one JSON line; made from satlab.rootd.verbs"
    yield SCHEMAS / "rootd-request.schema.json", _schema({"title": title, **verbs.REQUEST.json_schema()})
    title = "A suite of satlab check; made from satlab.check.suite"
    yield SCHEMAS / "suite.schema.json", _schema({"$id": "satlab/suite", **suite.schema(), "title": title})
    for model, name, title in CAMPAIGN_MODELS:
        yield SCHEMAS / f"{name}.schema.json", _schema(model.model_json_schema() | {"title": title})


def _schema(document: Mapping[str, Any]) -> str:
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2) + "\n"


def profile(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a profile: those of the base with the changes of `base.yml` and `NAME.yml`."""
    layers: list[Layer] = [yaml.safe_load((BASE / f"{each}.yml").read_text()) or {} for each in ("base", name)]
    sources = {file: changes["from"] for layer in layers for file, changes in layer.items() if "from" in changes}
    for file, source in sources.items():
        model = ET.parse(BASE / source).getroot()  # noqa: S314 - a file of this tree
        for layer in layers:
            for pattern, changes in layer.items():
                if fnmatch.fnmatch(file, pattern):
                    _apply(model, changes, f"{name}.yml: {file}")
        ET.indent(model)
        text = ET.tostring(model, encoding="unicode").replace(" />", "/>")
        yield PROFILES / name / file, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _apply(model: ET.Element, changes: Mapping[str, Any], place: str) -> None:
    for path, value in changes.items():
        if path == "from":
            continue
        parent, _, last = path.rpartition("/")
        if isinstance(value, dict):
            (element,) = model.findall(f"root/{parent}")
            names = [child.tag for child in element]
            index = names.index(value["after"]) + 1 if "after" in value else len(names)
            element.insert(index, _element(last, value["add"]))
            continue
        found = model.findall(f"root/{path}")
        if not found:
            raise KeyError(f"{place}: {path}")
        for element in found:
            element.text = _text(value)


def _element(tag: str, value: Any) -> ET.Element:
    element = ET.Element(tag)
    if isinstance(value, dict):
        element.extend(_element(name, child) for name, child in value.items())
    else:
        element.text = _text(value)
    return element


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    for path, text in files():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
