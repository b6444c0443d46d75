# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that are made from code and data: commands, link options, files, results."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from satlab.campaign import kept_runs
from satlab.cli import app
from satlab.common.paths import PAPERS, ROOT, SCHEMAS
from satlab.link.change_options import LinkChange
from satlab.link.option_model import GROUPS, Option, options_of
from satlab.link.options import LinkOptions
from satlab.papers import paper, result_tables
from satlab.papers.results import PaperResults
from satlab.report import text_tables

TYPES = {
    "str": "text",
    "list[str]": "text",
    "list[Path]": "path",
    "int": "integer",
    "float": "number",
    "int range": "integer",
    "float range": "number",
    "list[int]": "integer",
}
"""Types as typer names them, in words."""
MADE = "Made by `make generate`.\n"
CLI_HEAD = f"""# Commands

Every command of satlab with its arguments and options, as `--help` prints them. In a clone `satlab` is `./satlab`.
Summary records go to stdout (`--json`: JSON lines), messages to stderr, files to `runs/ID/`. An error is one line
`error: what, where, why` and a hint. {MADE}
| exit status | meaning |
|---|---|
| 0 | done |
| 1 | the run failed: a job, a page load or a target |
| 2 | usage or configuration (profile, scenario, arguments, lab.yml) |
| 3 | the host cannot do it (not root, no namespaces, no TUN device, port in use, disk full) |
| 4 | measured, but out of calibration: figures are kept and marked |
| 5 | `satlab check`: the programs support none of the cases |
| 6 | nothing was decided: no conclusion of a paper, or no comparison of a `check`; the report says what is missing |
| 130 | interrupted; the lab was removed |
"""
LINK_HEAD = f"""# Options of a link

`satlab run` and `satlab up` take these options. Web forms, the REST API (`link` of a launch) and campaigns (`options`)
take the same values by their names. With `--emulator opensand` only options that are marked in the column *OpenSAND*
work. In a run, impairments and drop lists start with the scenario: the calibration before it meets a link without them.
{MADE}"""
CHANGE_HEAD = """
## Changes of a link that is up

`satlab link set DIRECTION` takes these options. The job satlab_link takes all of them except `--terminal`, `--gateway`
and `--aqm-target-ms`. The `set` of a timeline has objects instead
([schema](../schemas/link-control.schema.json)), e.g.
`{"direction": "forward", "loss": {"ratio": 0.01, "unit": "packet"}, "queue": {"packets": 200}}`.
"""
RESULTS = ROOT / "docs" / "results"
RESULTS_HEAD = f"""# Measured figures

The figures of a table were measured on one host: compare ratios rather than absolute values. Each table names the
command that measures it again, and comes from a file of `docs/results/`. The READMEs of `papers/` explain deviations
from a paper. If a table names no host, the host is a quiet virtual machine with 2 cores (AMD EPYC), Debian 12
and Linux 6.18. {MADE}"""
USUAL_HOST = "2 cores (AMD EPYC, nested virtualisation), Debian 12, Linux 6.18, quiet"
PAPER_HEAD = f"""# {{name}}: what was measured

{{title}}. The runs are in `runs.json`, with their dates, hosts and commits.

- A cell is orbit/loss in %/type. Types: `quic` and `tcp` are transfers, `h3` and `h1` page loads over
  HTTP/3 and HTTP/1.1; those in `-pep` pass the proxies.
- *Ours* is the median of the runs, for goodput and received bytes the mean, with its 95 % interval.
- Only runs in calibration are judged; n is their number. Runs out of calibration, if any, are counted
  in the last column, with their figure in brackets.
- Deviations in brackets are of too few runs. A dash: no figure. Cut off: not reached before the
  transfer or the page load was ended.

{MADE}
"""
AGREEMENT_COLUMNS = (
    "Figure",
    "Published figures measured",
    "Median deviation",
    "At most",
    "Verdict",
)
PAPER_COLUMNS = (
    "Cell",
    "Figure",
    "Published",
    "Ours",
    "Deviation",
    "95 % interval",
    "n",
    "Out of calibration",
)
FILES_HEAD = f"""# Files

## A run: `runs/ID/`

| file | content |
|---|---|
| `manifest.json` | versions, hashes, seed, host, status and reason |
| `plan.json` | the scenario with its values; the link with the figures of the frame arithmetic |
| `raw/jobs.jsonl` | job instances that ended |
| `raw/stats.jsonl` | statistics of jobs |
| `raw/files/JOB-ID/` | what a job stored |
| `raw/link.jsonl` | samples of the link, and its changes |
| `raw/lan.jsonl` | samples of the client's LAN |
| `raw/calibration.json` | the measured link, compared with its plan |
| `raw/logs/` | logs of satlink, of OpenSAND and of each job |
| `records.parquet` | all figures ([metrics](metrics.md)) |
| `report/index.html` | the report |

`satlab report runs/ID` makes records and report again from the files in `raw/`.

## Other folders

| place | content |
|---|---|
| `runs/check-SUITE-DATE/` | a check: `check.json`, `check.html`, `grew.svg`, and `raw/CASE-SEED/` (packets, qlog) |
| `runs/flows-DATE/` | flows: `flows.json`, `outcome.json`, its page; in real time also logs, `link.jsonl` |
| `runs/CAMPAIGN/`, `.../report/` | a campaign or a paper: plan, tasks, one dataset, its page |
| `/run/satlab/LAB/` | a lab that is up: `link.json`, `plan.json`, `control.sock`, `link.jsonl`, `satlink.log` |
| `/var/lib/satlab/` | `satlab serve`: `api/` (accounts, queue, uploads), `runs/`, `logs/` of runners, `progress/` |
| `.satlab/`, `.venv/`, `target/` | in a clone: log and state of the installation; Python environment; programs |

## Formats

The JSON schemas in `schemas/` describe fields, units and bounds. {MADE}
| schema | content |
|---|---|
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    yield (
        ROOT / "docs" / "cli.md",
        CLI_HEAD + "".join(_commands(typer.main.get_command(app), ("satlab",))),
    )
    yield ROOT / "docs" / "link-options.md", _link_options()
    areas = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    yield ROOT / "docs" / "results.md", RESULTS_HEAD + "".join(map(_area, areas))
    schemas = sorted(SCHEMAS.glob("*.schema.json"))
    rows = (
        f"| [{path.name}](../schemas/{path.name}) |"
        f" {_cell(json.loads(path.read_text())['title'])} |\n"
        for path in schemas
    )
    yield ROOT / "docs" / "files.md", FILES_HEAD + "".join(rows)
    for file in sorted(PAPERS.glob("*/runs.json")):
        yield file.with_name("measured.md"), _paper(file)


def _paper(file: Path) -> str:
    """Return a paper's tables over its kept runs."""
    about = paper.load(file.parent.name, "real")
    kept = kept_runs.load(file, about.name).runs
    asked = {cell.id for cell in about.cells if not cell.on_request}
    runs = {name: [one.run() for one in kept if one.cell == name] for name in sorted(asked)}
    results = PaperResults(about, runs, [cell for cell in about.cells if cell.id in asked])
    figures = result_tables.comparisons(results)
    tables = [
        *result_tables.deviations(results),
        result_tables.agreements(results).columns(*AGREEMENT_COLUMNS),
        result_tables.conclusions(results.judgements),
        figures.columns(*(name for name in PAPER_COLUMNS if name in figures.head)),
    ]
    head = PAPER_HEAD.format(name=about.known_as, title=about.title)
    text = "\n".join(map(text_tables.markdown, tables))
    return head + text.replace("#### ", "## ").rstrip() + "\n"


def _area(area: dict[str, Any]) -> str:
    """Return the section of an area: a table for each result, with a column for each `of`."""
    parts = [f"\n## {area['area']}\n"]
    for result in area["results"]:
        host = "" if result["host"] == USUAL_HOST else f" Host: {result['host']}."
        note = f" {result['note']}" if "note" in result else ""
        parts.append(f"\n{result['what']}: `{result['command']}` ({result['date']}).{host}{note}\n")
        columns = list(dict.fromkeys(_column(figure) for figure in result["figures"]))
        rows: dict[str, dict[str, str]] = {}
        for figure in result["figures"]:
            rows.setdefault(figure["name"], {})[_column(figure)] = _value(figure)
        parts.append(f"\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n")
        for name, cells in rows.items():
            values = " | ".join(cells.get(column, "\N{EN DASH}") for column in columns)
            parts.append(f"| {_cell(name)} | {values} |\n")
    return "".join(parts)


def _column(figure: dict[str, Any]) -> str:
    """Return the head of a figure's column: its `of` with its unit, or none."""
    return ", ".join(filter(None, (figure["of"], figure["unit"]))) if "of" in figure else "value"


def _value(figure: dict[str, Any]) -> str:
    """Return a figure with its unit, its interval, and whether it is out of calibration."""
    unit = "" if "of" in figure else f" {figure['unit']}"
    interval = f" ({' to '.join(map(str, figure['interval']))})" if "interval" in figure else ""
    mark = "" if figure.get("calibrated", True) else ", not calibrated"
    return f"{figure['value']}{interval}{unit}{mark}"


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    below = {
        name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden
    }
    if len(words) > 1:
        yield f"\n{'#' * len(words)} {' '.join(words)}\n\n{_text(command.help or '')}\n"
    if not below:
        yield _parameters(command, words)
    if command.epilog:
        example = command.epilog.removeprefix("Example: ")
        yield f"\n```sh\n{example}\n```\n" if example != command.epilog else f"\n{_text(example)}\n"
    for name, each in below.items():
        yield from _commands(each, (*words, name))


def _parameters(command: Any, words: tuple[str, ...]) -> str:
    context = command.make_context(words[-1], [], resilient_parsing=True)
    shown = [
        record
        for each in command.params
        if (record := each.get_help_record(context)) and "--help" not in record[0]
    ]
    if not shown:
        return ""
    rows = "".join(f"| `{_cell(_named(name))}` | {_cell(text)} |\n" for name, text in shown)
    return f"\n| option | effect |\n|---|---|\n{rows}"


def _named(record: str) -> str:
    """Return an option with the type of its value in words."""
    return re.sub(r"<([^<>]*)>$", lambda match: f"<{TYPES.get(match[1], match[1])}>", record)


def _text(text: str) -> str:
    return _plain(" ".join(text.split()))


def _plain(text: str) -> str:
    """Return a text whose characters Markdown would read as marks."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[").replace("]", "\\]")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _link_options() -> str:
    of_lab = {option.name for option in options_of(LinkOptions)}
    changes = [option for option in options_of(LinkChange) if option.name not in of_lab]
    both = ", ".join(
        f"`{option.flag}`" for option in options_of(LinkChange) if option.name in of_lab
    )
    parts = [LINK_HEAD]
    for group in GROUPS:
        options = [option for option in options_of(LinkOptions) if option.help.group == group]
        if options:
            parts.append(f"\n## {group}\n\n{_table(options)}")
    return "".join((*parts, CHANGE_HEAD, f"{both}, as above; and\n\n", _table(changes)))


def _table(options: list[Option]) -> str:
    head = (
        "| option | name | unit or form | bounds | default | effect | OpenSAND"
        " |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(map(_row, options))


def _choices(kind: Any) -> list[str]:
    """Return the words that a value is one of."""
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [word for each in get_args(kind) for word in _choices(each)]


def _row(option: Option) -> str:
    form = option.help.unit or option.help.metavar or " or ".join(_choices(option.kind))
    value = str(option.default).lower() if isinstance(option.default, bool) else option.default
    default = "" if value in (None, "") else f"`{value}`"
    names = f"`{option.flag}`", f"`{option.name}`"
    cells = (
        *names,
        _plain(form),
        option.range,
        default,
        _plain(option.help.text),
        "yes" if option.help.opensand else "",
    )
    return f"| {' | '.join(map(_cell, cells))} |\n"
