# SPDX-License-Identifier: GPL-3.0-or-later
"""`make generate`: writes the files that are made from others.

These are OpenSAND profiles, synthetic pages, schemas of models, the reference, and what jobs share.
"""

import fnmatch
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from collect import (
    browser_yardstick,
    calibration,
    curl,
    fec,
    ftp,
    jobs,
    observed_page_loads,
    page_loads,
    pep,
    ping,
    records_table,
    rrul,
    run_manifest,
    stream,
    tcp_parameters,
    video,
)
from satlab.campaign import kept_runs
from satlab.campaign.campaign_file import CampaignFile
from satlab.campaign.hosts_file import HostsFile
from satlab.campaign.plan_file import Plan
from satlab.campaign.task_record import TaskRecord
from satlab.check import suite
from satlab.check.check_file import CheckFile
from satlab.check.search.search_file import SearchRecord
from satlab.common import yaml_text
from satlab.common.paths import PROFILES, ROOT, SCHEMAS
from satlab.common.topology import Topology
from satlab.lab import web_target
from satlab.openbach.stats_file import Statistic
from satlab.service.root_helper import protocol
from satlab.service.root_helper.progress_file import Progress
from tools import generated_docs, job_files, synthetic_pages

BASE = PROFILES / "_base"
RECORDS: Mapping[str, Any] = {
    "browser-yardsticks": browser_yardstick.BrowserYardsticks,
    "calibration": calibration.Calibration,
    "campaign-file": CampaignFile,
    "campaign-hosts": HostsFile,
    "campaign-plan": Plan,
    "campaign-task": TaskRecord,
    "check": CheckFile,
    "curl": curl.Curl,
    "fec": fec.Fec,
    "ftp": ftp.Transfer,
    "jobs": jobs.Job,
    "lab": Topology,
    "manifest": run_manifest.Manifest,
    "page-load": page_loads.PageLoad,
    "page-observation": observed_page_loads.PageObservation,
    "paper-runs": kept_runs.KeptRuns,
    "pep": pep.Pep,
    "ping": ping.Ping,
    "rootd-request": protocol.Request,
    "rrul": rrul.Rrul,
    "run-progress": Progress,
    "search": SearchRecord,
    "stats": Statistic,
    "stream": stream.Stream,
    "suite": suite.Suite,
    "tcp-conf": tcp_parameters.TcpConf,
    "video": video.Video,
    "web-target": web_target.Settings,
    "web-target-object": web_target.Row,
}
"""The one definition of each record, by the name of its schema."""
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
    for name, definition in RECORDS.items():
        yield _schema_file(name, schema(name, definition))
    yield from metrics()
    yield from generated_docs.files()
    yield from synthetic_pages.files()
    yield from job_files.files()


def metrics() -> Iterator[tuple[Path, str]]:
    """Yield the metric reference, and the schema of records with the names of all metrics."""
    groups = yaml_text.read(ROOT / "collect" / "metrics.yml")
    row = schema("records", records_table.Row)
    row["properties"]["metric"]["enum"] = [name for group in groups.values() for name in group]
    yield _schema_file("records", row)
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


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, *_: object) -> bool:
        return False  # a title would repeat the name


def schema(name: str, definition: Any) -> dict[str, Any]:
    """Return the JSON schema of a record; its title is the summary of the definition's docstring."""
    found = TypeAdapter(definition).json_schema(schema_generator=_Untitled)
    title, _, text = found.pop("description").partition("\n\n")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"satlab/{name}",
        **found,
        "title": " ".join(title.split()).removesuffix("."),
        **({"description": text} if text else {}),
    }


def _schema_file(name: str, document: Mapping[str, Any]) -> tuple[Path, str]:
    return SCHEMAS / f"{name}.schema.json", json.dumps(document, indent=2) + "\n"


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
