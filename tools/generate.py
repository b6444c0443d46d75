# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the files that are made from others:

OpenSAND profiles, synthetic pages, schemas of models, the reference, what jobs share.
"""

import fnmatch
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from satlab.campaign.campaign_file import CampaignFile
from satlab.campaign.hosts import HostsFile
from satlab.campaign.plan import Plan
from satlab.campaign.record import TaskRecord
from satlab.check import suite
from satlab.check.search.record import SearchRecord
from satlab.common import yaml_text
from satlab.common.paths import PROFILES, ROOT, SCHEMAS
from satlab.service.helper import verbs
from tools import job_files, reference, synthetic_pages

BASE = PROFILES / "_base"
CAMPAIGN_MODELS: tuple[tuple[type[BaseModel], str, str], ...] = (
    (
        CampaignFile,
        "campaign-file",
        "The YAML file of a campaign; made from satlab.campaign.campaign_file",
    ),
    (
        HostsFile,
        "campaign-hosts",
        "The YAML file of a campaign's hosts; made from satlab.campaign.hosts",
    ),
    (
        TaskRecord,
        "campaign-task",
        "task.json: the end of a campaign's task; made from satlab.campaign.record",
    ),
    (
        Plan,
        "campaign-plan",
        "plan.json of a campaign: cells and tasks; made from satlab.campaign.plan",
    ),
)
METRICS_HEAD = """# Metric reference

The metrics of `records.parquet` and of `--json` ([columns](../schemas/records.schema.json)). A row without `t_s` is a
summary of the run; with `t_s` it is one sample of a series. `stat` is a label that says which statistic a summary is.
*Clock*: whose time or count it is. Made from `collect/metrics.yml` by `make generate`.
"""
Layer = Mapping[str, Mapping[str, Any]]
"""Changes by pattern of file names: path below `root` -> text, or what is added (or a list); and
`from`, the base.
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text."""
    for overlay in sorted(BASE.glob("*.yml")):
        if overlay.name != "base.yml":
            yield from profile(overlay.stem)
    title = (
        "Request to the root helper of satlab serve, one JSON line; made from"
        " satlab.service.helper.verbs"
    )
    yield (
        SCHEMAS / "rootd-request.schema.json",
        _schema({"title": title, **verbs.REQUEST.json_schema()}),
    )
    title = "A suite of satlab check; made from satlab.check.suite"
    yield (
        SCHEMAS / "suite.schema.json",
        _schema({"$id": "satlab/suite", **suite.schema(), "title": title}),
    )
    title = "search.json of satlab check --search; made from satlab.check.search.record"
    yield (
        SCHEMAS / "search.schema.json",
        _schema(SearchRecord.model_json_schema(by_alias=True) | {"title": title}),
    )
    for model, name, title in CAMPAIGN_MODELS:
        yield SCHEMAS / f"{name}.schema.json", _schema(model.model_json_schema() | {"title": title})
    yield from metrics()
    yield from reference.files()
    yield from synthetic_pages.files()
    yield from job_files.files()


def metrics() -> Iterator[tuple[Path, str]]:
    """Yield the metric reference, and the schema of records with the names of all metrics."""
    groups = yaml_text.read(ROOT / "collect" / "metrics.yml")
    path = SCHEMAS / "records.schema.json"
    schema = json.loads(path.read_text())
    schema["properties"]["metric"]["enum"] = [name for group in groups.values() for name in group]
    yield path, json.dumps(schema, indent=2) + "\n"
    yield (
        ROOT / "docs" / "metrics.md",
        METRICS_HEAD + "".join(map(_metric_table, groups, groups.values())),
    )


def _metric_table(group: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    lines = [
        f"| `{name}` | {row['unit']} |"
        f" {row['what']}{'. stat: ' + row['stat'] if 'stat' in row else ''} | {row['source']} |"
        f" {row['clock']} |\n"
        for name, row in rows.items()
    ]
    head = "| metric | unit | definition | source | clock |\n|---|---|---|---|---|\n"
    return f"\n## {group[0].upper()}{group[1:]}\n\n{head}{''.join(lines)}"


def _schema(document: Mapping[str, Any]) -> str:
    return (
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2
        )
        + "\n"
    )


def profile(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a profile: those of the base with the changes of `base.yml` and
    `NAME.yml`.
    """
    layers: list[Layer] = [yaml_text.read(BASE / f"{each}.yml") or {} for each in ("base", name)]
    sources = {
        file: changes["from"]
        for layer in layers
        for file, changes in layer.items()
        if "from" in changes
    }
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
            added = value["add"] if isinstance(value["add"], list) else [value["add"]]
            for number, each in enumerate(added, index):
                element.insert(number, _element(last, each))
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
