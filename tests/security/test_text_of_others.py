# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of programs, hosts and files on its way out: to terminals, pages, Markdown, XML, CSV and
workflows.
"""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from satlab.check import check_run
from satlab.check.check_result import CheckResult
from satlab.check.report import check_page, check_tables, junit, matrix_page
from satlab.check.report.test_matrix_page import stored
from satlab.check.samples import UnusedSource
from satlab.cli import base
from satlab.common import console, escape, paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, Fault
from satlab.flows import outcome_text
from satlab.papers import result_tables as paper_tables
from satlab.report import html, plotly
from satlab.report.export import _for_spreadsheets
from satlab.report.page import (
    Axis,
    Cell,
    Facts,
    Mark,
    Page,
    Part,
    Plot,
    Section,
    Series,
    Spans,
    Table,
    Text,
    Tile,
    Tiles,
)
from satlab.service.api import export as service_export

HOSTILE = (
    "[bold]markup[/nothing] [link=file:///etc/passwd]here[/link]",
    "\x1b]0;title\x07\x1b[2J\x1b]8;;http://evil.example\x1b\\click",
    "\x9b2J\x90q\x9d0;t\x9c",
    "\u202egnp.exe\u2066\u200b\u2028",
    "nul\x00 bell\x07 vt\x0b",
    "lone \udcff\ud800 surrogates \ufffe\uffff",
    "</script><script>owned()</script>",
    "[x](javascript:owned()) ![](http://evil.example/pixel)",
    "@org/team #1 GH-2 https://evil.example www.evil.example",
    '<img src=x onerror="owned()">',
    '=HYPERLINK("http://evil.example","x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "\t=1",
    "| --- |\n\n# heading | `code` \\` \\| `",
    "one\ntwo\r\n::error::forged\n##[error]forged",
    "M" * 1_000_000,
)
ALL = " ".join(HOSTILE[:-1])
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
LONG = 4 * escape.LONGEST
SUITE = """
schema: satlab/suite/1
name: tiny
source: by hand
link: {rtt_ms: 650, queue_bdp: 1}
marks_mb: [0.1]
cases:
  - {id: quick, forward_mbps: 10, return_mbps: 2, targets_s: [60]}
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckResult]:
    folder = tmp_path_factory.mktemp("baselines")
    (folder / "tiny.yml").write_text(SUITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "SUITES", folder)
        request = check_run.CheckRequest("tiny", out=folder / "out", runs=2)
        yield check_run.run(request, ProgressLog(quiet=True))


@pytest.fixture
def hostile(checked: CheckResult, request: pytest.FixtureRequest) -> CheckResult:
    """A check whose program, names and files say a hostile text wherever they have a say."""
    text = request.param
    said = {
        "symptoms": (text,),
        "warnings": (UnusedSource("broken", "server", text),),
        "sources": {"lost_packets": text},
        "lost_packets": 1,
        "calibration": text,
    }
    samples = {"quick": [replace(one, **said) for one in checked.samples["quick"]]}
    suite = checked.suite.model_copy(update={"source": text, "reference": text})
    verdicts = [replace(one, result="fail", died=(text,)) for one in checked.verdicts]
    return replace(
        checked,
        suite=suite,
        samples=samples,
        verdicts=verdicts,
        input=replace(checked.input, stack=text),
    )


def is_inert_on_a_terminal(text: str) -> None:
    assert not CONTROLS.search(text), ascii(CONTROLS.findall(text))
    text.encode()


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def is_inert_in_html(page: str) -> None:
    before_plotly = page.partition('<script type="application/gzip"')[0]
    assert not CONTROLS.search(before_plotly)
    page.encode()
    for tag, attributes in Tags(page).found:
        assert tag not in ("img", "iframe") and "onerror" not in attributes
        assert "javascript:" not in (attributes.get("href") or "")
    assert "<script>owned()" not in page


def is_inert_on_github(text: str, captions: str = "") -> None:
    """Outside of code nothing is left that GitHub would make more than a word of; rows keep their
    columns. Other lines are those of `captions`, which are ours.
    """
    assert not CONTROLS.search(text)
    text.encode()
    columns = 0
    for line in text.splitlines():
        prose = re.sub(r"`[^`]*`", "code", line)
        assert not re.search(
            r"[<>@`\[\]\\!_*~]|https?:|www\.|GH-\d|(?<!^)#\d", prose.lstrip("#")
        ), ascii(prose)
        if not line.startswith("|"):
            assert not line or line.startswith("#") or line in captions, ascii(line)
            columns = 0
        else:
            assert columns in (0, line.count("|"))
            columns = line.count("|")


each_text = pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
hostile_texts = pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)), indirect=True)


@hostile_texts
def test_t63_nothing_breaks_out_of_the_reports_of_a_check(
    hostile: CheckResult, capsys: pytest.CaptureFixture[str]
) -> None:
    check_tables.show(hostile)
    is_inert_on_a_terminal(capsys.readouterr().out)
    markdown = check_tables.markdown(hostile)
    is_inert_on_github(markdown, " ".join(one.caption for one in check_tables.tables(hostile)))
    xml = junit.junit(hostile)
    ElementTree.fromstring(xml.encode())  # noqa: S314 - our own text
    assert not CONTROLS.search(xml) and len(markdown) < 12 * LONG and len(xml) < 12 * LONG
    is_inert_in_html(check_page.write(hostile).read_text())


@each_text
def test_t63_nothing_breaks_out_of_the_matrix_of_checks(tmp_path: Path, text: str) -> None:
    for name in ("a", "b"):
        file = stored(tmp_path, name, 20.0, 4.0)
        content = json.loads(file.read_text())
        content |= dict.fromkeys(("version", "suite", "source", "stack"), text)
        (case,) = content["cases"]
        case["id"] = text
        case["verdicts"][0]["died"] = [text]
        case["samples"][0] |= {"case": text, "reason": text}
        (tmp_path / name).write_text(json.dumps(content))
    if "\ud800" in text:
        with pytest.raises(ConfigError, match=r"is no check\.json"):
            matrix_page.read([tmp_path / "a"])
        return
    matrix = matrix_page.read([tmp_path / "a", tmp_path / "b"])
    matrix_page.write(matrix, tmp_path / "matrix.html")
    is_inert_in_html((tmp_path / "matrix.html").read_text())
    badge = ElementTree.fromstring(matrix_page.badge(matrix).encode())  # noqa: S314 - our own text
    assert {one.tag.rpartition("}")[2] for one in badge.iter()} == {"svg", "rect", "g", "text"}


@each_text
def test_t63_nothing_breaks_out_of_tables_of_flows_and_papers(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = {
        "phases": [],
        "id": text,
        "library": text,
        "status": text,
        "reason": text,
        "goodput_mbps": 1.0,
    }
    group = dict.fromkeys(("group", "direction", "flows", "failed"), text) | {
        "jain": None,
        "utilisation": None,
    }
    queue = {"direction": text, "phases": []}
    outcome = {
        "flows": [flow | {"lost_packets": 0}],
        "groups": [group],
        "queues": [queue],
        "calibration": [text],
    }
    for line in outcome_text.lines(outcome):
        console.say(line)
    cell = SimpleNamespace(id=text, test="")
    compared = SimpleNamespace(
        cell=cell,
        metric="page_load_time_ms",
        published=True,
        deviation=0.2,
        row=lambda _: {"Cell": text, "Ours": text},
    )
    agreement = SimpleNamespace(
        agreement=SimpleNamespace(figure=compared.metric, at_most=0.1),
        lacking=(),
        row=lambda: {"Figure": text, "Verdict": text},
    )
    judged = SimpleNamespace(conclusion=SimpleNamespace(text=text), verdict=text, evidence=[text])
    results: Any = SimpleNamespace(
        paper=SimpleNamespace(phases=(), groups={}),
        comparisons=[compared],
        grids=[Table((text,), [(text,)], title=text)],
        agreements=[agreement],
        judgements=[judged],
    )
    paper_tables.show(results)
    base.print_json_lines([{text: text}])
    is_inert_on_a_terminal(capsys.readouterr().out)


@each_text
def test_t63_messages_and_progress_are_bounded_text(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base.report_error(ConfigError(text, [Fault(text, text, text)], hint=text))
    ProgressLog().line(text)
    with ProgressLog().step(text) as step:
        step.outcome = text
        step.now(text)
    said = capsys.readouterr().err
    is_inert_on_a_terminal(said)
    assert len(said) < 4 * LONG
    assert not re.search(r"^\s*(::|##\[)", said, re.MULTILINE)


@each_text
def test_t63_nothing_breaks_out_of_pages(text: str) -> None:
    table = Table((text,), ((Cell(text, small=text),),), caption=text, title=text)
    grouped = Table((text,), groups={text: ((text,),), f"{text}, empty": ()})
    cards = Table((text, "b"), ((text, text),), numbers=(text,), cards=True, keys=1)
    axis = Axis(text, categories=(text,))
    series = (
        Series(text, (text,), (1.0,)),
        Spans(text, (text,), (), (1.0,), "--c1", texts=(text,)),
    )
    marks = (Mark("y", 1.0, label=text),)
    plot = Plot("key", text, text, axis, (axis,), series, 100, table, marks)
    parts: list[Part] = [
        Tiles([Tile(text, text, text)]),
        table,
        grouped,
        cards,
        plot,
        replace(plot, folded=True),
        *(Text(text, kind, (text,)) for kind in ("plain", "note", "alert", "code")),
        Facts(((text, text),), text),
    ]
    is_inert_in_html(html.render(Page(text, text, parts, [Section(text, parts)])))
    drawn = json.dumps(plotly.document(plot))
    assert not CONTROLS.search(drawn) and "<img" not in drawn and "<script" not in drawn


@dataclass(frozen=True)
class Cells:
    """A CSV as a spreadsheet would read it."""

    rows: list[list[str]]

    def are_inert(self) -> None:
        for row in self.rows:
            for cell in row:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")), ascii(cell[:80])
                assert not CONTROLS.search(cell.replace("\r", ""))


def test_t63_no_cell_of_a_csv_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv.field_size_limit(2_000_000)
    texts = [text for text in HOSTILE if text.isascii() or not re.search("[\ud800-\udfff]", text)]
    frame = pl.DataFrame({"reason": [*texts, None], "value": [-1.0] * (len(texts) + 1)})
    _for_spreadsheets(frame).drop("value").write_csv(tmp_path / "export.csv")
    Cells(list(csv.reader((tmp_path / "export.csv").open(newline="")))).are_inert()
    monkeypatch.setattr(service_export, "records", lambda *_: iter(()))
    monkeypatch.setattr(
        service_export, "_rows", lambda *_, **__: ({"@job_name": text} for text in HOSTILE)
    )
    nothing: Any = None
    written = list(
        csv.reader(io.StringIO("".join(service_export.csv_lines(nothing, nothing)), newline=""))
    )
    Cells(written[1:]).are_inert()
    assert escape.csv(-5) == -5 and escape.csv("a,b") == "a,b"


def test_t63_plain_words_stay_as_they_are() -> None:
    plain = "95 % interval: 1.5 to 2.25 s (n 10), S(2,100), ünïcode \N{MINUS SIGN}3"
    assert (
        escape.visible(plain)
        == escape.markdown(plain)
        == escape.csv(plain)
        == escape.xml(plain)
        == plain
    )
    assert escape.visible("\x1b[2J\u202eabc\x00") == "\\x1b[2J\\u202eabc\\x00"
    assert escape.visible("a" * 5000) == "a" * 4096 + "… (904 characters more)"


def test_t63_tables_lines_and_templates_are_made_in_one_place() -> None:
    """No module writes to stdout, makes a table or an environment of templates in another way."""
    elsewhere = {
        r"(?<![\w.])print\((?!.*file=sys\.stderr)": {
            "common/console.py",
            "cli/base.py",
            "cli/completion.py",
        },
        r"\badd_row\(|\bTable\(\"|rich\.markup|[^(]Console\(": {
            "common/console.py",
        },
        r"csv\.(DictWriter|writer)\(": {
            "report/console_tables.py",
            "service/api/export.py",
            "lab/web_target_files.py",
        },
        r"jinja2\.Environment\(": {"report/html.py"},
    }
    programs = {"openbach/shim/collect_agent.py", "run/udp_probe.py"}
    root = paths.ROOT / "src" / "satlab"
    for file in root.rglob("*.py"):
        name = str(file.relative_to(root))
        if file.name.startswith("test_") or file.name == "conftest.py" or name in programs:
            continue
        text = file.read_text()
        for pattern, allowed in elsewhere.items():
            assert name in allowed or not re.search(pattern, text), f"{name}: {pattern}"
        for found in re.finditer(r"jinja2\.Environment\((.*?)\n    \)", text, re.DOTALL):
            assert "autoescape=True" in found[1] and "finalize=escape.html" in found[1], name


def test_t63_a_hostile_argument_is_a_message() -> None:
    argv = [sys.executable, "-m", "satlab", "check", "--suite", "\x1b[2J[/x]"]
    environment = {
        "PYTHONPATH": paths.PYTHONPATH,
        "PATH": paths.STANDARD_PATH,
        "SATLAB_PROGRAMS": str(paths.PROGRAMS),
    }
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "error: " in done.stderr
    is_inert_on_a_terminal(done.stderr)
