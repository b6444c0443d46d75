# SPDX-License-Identifier: GPL-3.0-or-later
"""One rule for all papers: what is out of calibration, too little, failed or substituted leaves a
conclusion undecided, with the reason in the table, on the page and in JSON.
"""

import html
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import jsonschema
import pytest

from satlab.common import console
from satlab.papers import cell_run, flow_request, paper, paper_report, result_tables
from satlab.papers.cell_run import Run
from satlab.papers.results import PaperResults
from satlab.papers.shipped_papers import Clock
from satlab.papers.test_paper import outcome, schema
from satlab.papers.test_seed_002 import H1, H3, load, record, results_of, run

PEP, NONE = "test3/bbr2", "test3/newreno"


def loads(first_ms: float, count: int, *, off: bool = False, failed: bool = False) -> list[Run]:
    """Return runs of a page load; with `failed` all without a figure."""
    rows = [[record("run_ok", None, status="failed")]] * count
    if not failed:
        rows = [load(first_ms / 2, first_ms + n, 3 * first_ms) for n in range(count)]
    return [run(n, row, off=off) for n, row in enumerate(rows, start=1)]


def flows(
    cells: Sequence[str],
    count: int,
    *,
    name: str = "seed-003",
    clock: Clock = "real",
    off: bool = False,
    status: str = "ok",
) -> PaperResults:
    """Return runs of flows, of BBR 9.5 and of others 9.0 Mbit/s."""
    about = paper.load(name, clock)
    chosen = about.select(cells, quick=False)

    def made(cell: paper.Cell, number: int) -> Run:
        is_bbr = str(cell.control).startswith("bbr")
        request = flow_request.request(about, cell, number)
        found = outcome(request, status, reno=9.5 if is_bbr else 9.0)
        return cell_run.of_flows(number, found | {"calibration": ["rtt_ms"] if off else []})

    done = {cell.id: [made(cell, n + 1) for n in range(count)] for cell in chosen}
    return PaperResults(about, done, chosen, len(chosen) * count)


def everywhere(
    results: PaperResults, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the verdicts of the JSON document, and what it, the terminal and the page say."""
    document = results.document()
    jsonschema.validate(document, schema("paper-results"))
    result_tables.show(results)
    page = paper_report.write(tmp_path, results, tmp_path / "index.html").read_text()
    verdicts = {one["id"]: one["verdict"] for one in document["conclusions"]}  # type: ignore[attr-defined]
    said = json.dumps(document, ensure_ascii=False), capsys.readouterr().out, html.unescape(page)
    return verdicts, list(said)


PLANTED: dict[str, tuple[Callable[[], PaperResults], tuple[str, str, str]]] = {
    "all runs of a cell of pages marked": (
        lambda: results_of({H1: loads(3000, 5, off=True), H3: loads(2000, 5)}),
        ("fcp/0", "undecided", f"{H1} has 0 of 5 runs, 5 out of calibration"),
    ),
    "all runs of flows marked": (
        lambda: flows([PEP, NONE], 5, off=True),
        ("small-queue", "undecided", f"{NONE} has 0 of 5 runs, 5 out of calibration"),
    ),
    "every connection in runs out of calibration": (
        lambda: flows([PEP, NONE], 5, off=True),
        ("survives", "undecided", f"no run in calibration: {NONE}, {PEP}"),
    ),
    "one run of pages": (
        lambda: results_of({H1: loads(3000, 1), H3: loads(2000, 1)}),
        ("fcp/0", "undecided", f"{H3} has 1 of 5 runs"),
    ),
    "one run of flows": (
        lambda: flows([PEP, NONE], 1),
        ("small-queue", "undecided", f"{PEP} has 1 of 5 runs"),
    ),
    "one run under the virtual clock": (
        lambda: flows(["test[46]/newreno", "test7/bbr3"], 1, clock="virtual"),
        ("codel", "undecided", "test4/newreno has 1 of 3 runs"),
    ),
    "one run without a failure": (
        lambda: flows([PEP], 1),
        ("survives", "undecided", "0 of 1 runs failed; 5 runs are needed"),
    ),
    "all loads failed": (
        lambda: results_of({H1: loads(3000, 5, failed=True), H3: loads(2000, 5)}),
        ("fcp/0", "undecided", f"{H1} has 0 of 5 runs, 5 failed"),
    ),
    "all flows failed": (
        lambda: flows([PEP, NONE], 5, status="failed"),
        ("small-queue", "undecided", f"{PEP} has 5 of 5 runs, 5 failed"),
    ),
    "another algorithm than the paper's": (
        lambda: flows(["test3/*"], 5, clock="virtual"),
        ("small-queue", "undecided", "BBRv3 in place of the paper's BBRv2"),
    ),
    "what the paper's algorithms decide alone": (
        lambda: flows(["test4/newreno", "test6/newreno"], 3, clock="virtual"),
        ("codel", "does not hold", "Goodput +0.00 Mbit/s"),
    ),
    "no run": (lambda: results_of({H1: []}), ("fcp/0", "not measured", "not measured")),
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.promise("P34")
@pytest.mark.promise("P90")
def test_verdict_and_reason_are_on_page_table_and_json(
    planted: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "FILE_WIDTH", 2000)  # no cell is broken
    made, (conclusion, verdict, words) = PLANTED[planted]
    verdicts, said = everywhere(made(), tmp_path, capsys)
    assert verdicts[conclusion] == verdict
    for text in said:
        assert verdict in text and words in text


def test_figures_of_hosts_with_unequal_browsers_say_so() -> None:
    def of_host(first_ms: float, yardstick_ms: float) -> list[Run]:
        known = record("browser_yardstick_ms", yardstick_ms, protocol="h3", stamp="a")
        rows = [[*load(first_ms / 2, first_ms + n, 3 * first_ms), known] for n in range(5)]
        return [run(n, row) for n, row in enumerate(rows, start=1)]

    def evidence(yardstick_ms: float) -> str:
        found = results_of({H1: of_host(3000, 400), H3: of_host(2000, yardstick_ms)})
        return next(j.evidence[0] for j in found.judgements if j.conclusion.id == "fcp/0")

    assert "equally fast" not in evidence(430)
    assert "from hosts whose browsers are not equally fast: h3: 400 to 690 ms" in evidence(690)


def test_a_marked_run_does_not_change_a_verdict() -> None:
    alone = results_of({H1: loads(3000, 5), H3: loads(2000, 5)})
    beside = results_of({H1: loads(3000, 5), H3: [*loads(2000, 5), *loads(9000, 9, off=True)]})
    (one, other) = (
        next(j for j in found.judgements if j.conclusion.id == "fcp/0") for found in (alone, beside)
    )
    assert (one.verdict, one.evidence) == (other.verdict, other.evidence)
    assert one.verdict == "holds"
    row = next(c for c in beside.comparisons if c.cell.id == H3).row(("whole",))
    assert (row["n"], row["Out of calibration"]) == ("5", "9 (4500)")
