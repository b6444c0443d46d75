# SPDX-License-Identifier: GPL-3.0-or-later
"""A check from its request to its reports."""

import base64
import gzip
import hashlib
import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from typer.testing import CliRunner

from satlab.check import case_link, check_file, check_result, check_run
from satlab.check.backend import virtual_clock
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.check_result import CheckResult
from satlab.check.check_run import CheckRequest
from satlab.check.conftest import small
from satlab.check.endpoint import endpoint_options, lockstep
from satlab.check.report import check_page, check_tables, interop_result, junit
from satlab.check.samples import Sample, UnusedSource, stalled, within_limit
from satlab.check.suite import Case, Suite
from satlab.check.trace.causes import TransferTrace
from satlab.cli import app
from satlab.common import console, paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus
from satlab.report.page import Facts, Mark, Plot, Table, Text, Tile
from satlab.run.quiet_host import Patience

OUTCOME: dict[str, Any] = {
    "request": {"seed": 4, "direction": "download"},
    "samples": [],
    "transfers": [
        {
            "status": "ok",
            "reason": "",
            "started_s": 0.5,
            "duration_s": 3.0,
            "asked_ms": 975.0,
            "marks": [{"bytes": 2_000_000, "t_s": 1.5}, {"bytes": 4_000_000, "t_s": None}],
            "handshake_ms": 650.0,
            "time_to_first_byte_ms": 1300.0,
            "sender": {"sent_datagrams": 5, "lost_packets": 1},
            "receiver": {"sent_acks": 3},
        }
    ],
}


def test_variables_of_programs_are_parsed_and_every_fault_is_named() -> None:
    found = endpoint_options.environment(["A=b=c", "CLIENT_PARAMS="], [])
    assert found == {"client": {"A": "b=c", "CLIENT_PARAMS": ""}}
    with pytest.raises(ConfigError) as caught:
        endpoint_options.environment(["A"], ["1=2", "B=1"])
    assert [fault.place for fault in caught.value.faults] == ["A", "1=2"]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"client_endpoint": Path("x")}, "one endpoint is missing"),
        ({"endpoint": Path("x"), "client_cmd": "true"}, "endpoints exclude"),
    ],
)
def test_programs_that_do_not_fit_together_are_refused(named: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        endpoint_options.External(**named).opened()


def test_a_sample_is_the_last_transfer() -> None:
    rate = SimpleNamespace(udp_goodput_bps=1e7)
    plan: Any = SimpleNamespace(forward=rate, return_=rate)
    found = virtual_clock.sample(small().cases[0], OUTCOME, plan)
    assert (found.times_s, found.seed, found.acks, found.simulated_s) == ((1.5, None), 4, 3, 3.5)
    second = small().cases[0].model_copy(update={"second_after_s": 10.0})
    assert virtual_clock.sample(second, OUTCOME, plan).times_s == (None, None)


@pytest.mark.parametrize(
    ("arrivals", "stalled_after_s"),
    [
        ([], 0.0),
        ([(1.0, 10), (60.5, 20), (300.0, 20)], 60.0),
        ([(1.0, 10), (299.0, 20)], None),
        # What the first of two transfers received is not the second one's.
        ([(0.1, 9), (0.4, 99), (2.5, 10), (60.5, 10)], 2.0),
    ],
)
def test_a_transfer_at_its_time_limit_is_slow_or_stalled(
    arrivals: list[tuple[float, int]], stalled_after_s: float | None
) -> None:
    rate = SimpleNamespace(udp_goodput_bps=1e7)
    plan: Any = SimpleNamespace(forward=rate, return_=rate)
    limit = "not complete within 300 s"
    [transfer] = OUTCOME["transfers"]
    outcome = {
        "request": OUTCOME["request"],
        "samples": [],
        "transfers": [{**transfer, "status": "censored", "reason": limit}],
    }
    states = [{"t_s": t_s, "received_bytes": count} for t_s, count in arrivals]
    last_s = virtual_clock._last_arrival_s(states, 0.5)
    found = stalled(virtual_clock.sample(small().cases[0], outcome, plan), last_s, 300.0)
    assert found.stalled_after_s == stalled_after_s and found.status == "censored"
    assert found.reason.startswith(limit)
    ended = virtual_clock.sample(small().cases[0], OUTCOME, plan)
    assert stalled(ended, last_s, 300.0) == ended


def test_a_transfer_beyond_its_time_limit_does_not_pass() -> None:
    case = Case.model_validate(
        {"id": "loss", "forward_mbps": 10, "return_mbps": 2, "timeout_s": 60}
    )
    late = Sample("loss", 1, "ok", "", (20.0, 78.2))
    whole = within_limit(late, case, has_marks=False)
    assert (whole.status, whole.reason) == ("failed", "it took 78.2 s, the limit is 60 s")
    marked = within_limit(late, case, has_marks=True)
    assert (marked.status, marked.times_s) == ("censored", (20.0, None))
    assert within_limit(replace(late, times_s=(20.0, 59.9)), case, has_marks=False).status == "ok"


def test_options_are_pairs() -> None:
    assert endpoint_options.options(["initial-window=32", "congestion-control=reno"]) == {
        "initial_window": 32,
        "congestion_control": "reno",
    }
    with pytest.raises(ConfigError):
        endpoint_options.options(["initial-window"])


TINY = """
schema: satlab/suite/1
name: tiny
source: the test
link: {rtt_ms: 650, queue_bdp: 1.0}
marks_mb: [0.1, 0.3]
cases:
  - {id: quick, forward_mbps: 10, return_mbps: 2, targets_s: [60, 60]}
  - {id: slow, forward_mbps: 10, return_mbps: 2, targets_s: [0.5, null], loss: {unit: packet, ratio: 0.01}}
  - {id: falling, forward_mbps: 10, return_mbps: 0.5, changes: [{at_s: 2, forward_mbps: 1}], targets_s: [null, null]}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baselines")
    (folder / "tiny.yml").write_text(TINY)
    return folder


def check(tiny: Path, monkeypatch: pytest.MonkeyPatch, out: Path, **options: Any) -> CheckResult:
    monkeypatch.setattr(paths, "SUITES", tiny)
    return check_run.run(
        check_run.CheckRequest("tiny", out=out, **options), ProgressLog(quiet=True)
    )


def test_a_check_from_suite_to_verdicts(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tiny, monkeypatch, tmp_path)
    results = [(one.case, one.result) for one in found.verdicts]
    names = ["quick", "quick", "slow", "slow", "falling", "falling"]
    assert results == list(
        zip(names, ["pass", "pass", "fail", *["to be determined"] * 3], strict=True)
    )
    assert found.status == ExitStatus.FAILED
    assert found.links["quick"].forward_mbps == pytest.approx(10, rel=0.001)
    # CRA comes in slots of 65 kbit/s.
    assert found.links["falling"].return_mbps == pytest.approx(0.5, rel=0.1)
    outcomes = list((found.folder / "raw").glob("quick-*.outcome.json"))
    assert len(outcomes) == check_run.MIN_RUNS
    outcome_schema = json.loads((paths.SCHEMAS / "virtual-outcome.schema.json").read_text())
    for outcome in outcomes:
        jsonschema.validate(json.loads(outcome.read_text()), outcome_schema)
    document = json.loads((found.folder / "check.json").read_text())
    xml = ElementTree.fromstring(junit.junit(found))  # noqa: S314 - our own text
    assert (xml.get("tests"), xml.get("failures"), xml.get("skipped")) == ("6", "1", "3")
    [missed] = [one.get("message", "") for one in xml.iter("failure")]
    assert missed.endswith("target 0.5 s, floor 1.38 s")
    assert "| quick | 10/" in check_tables.markdown(found)
    interop = interop_result.document([found])
    assert [one["abbr"] for one in interop["measurements"][0]] == ["QU", "SL", "FA"]
    assert interop_result.extension([found])["checks"] == [found.document()]
    assert interop["results"] == [[]]
    for case in document["cases"]:
        times = [sum(sample["spent_s"].values()) for sample in case["samples"]]
        assert sum(case["spent_s"].values()) == pytest.approx(sum(times) / len(times))
    assert "where the time went" in check_tables.markdown(found)
    simulated = [
        sample.simulated_s or 0 for samples in found.samples.values() for sample in samples
    ]
    assert document["simulated_s"] == pytest.approx(sum(simulated), abs=1e-3)
    assert min(simulated) > 0.65
    factor = check_tables.pace_factor(sum(simulated), found.real_s)
    assert check_tables.pace(found).endswith(f": {factor} times as fast as real time")
    assert check_tables.pace_factor(8.1, 43.5) == "0.19"


def test_symptoms_and_warnings_are_in_every_report(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tiny, monkeypatch, tmp_path, cases=["quick"], runs=2)
    warned = UnusedSource("broken", "server", "<script>line 3")
    known: Any = {
        "retransmitted_share": 0.0125,
        "sources": {
            "retransmitted_share": "qlog of the server (left out: 3 damaged records)",
            "spent_s": "qlog of the server (left out: 3 damaged records), link",
            "times_s": "packets, the last one: qlog of the client (left out: 1 unknown event)",
        },
    }
    first, second = found.samples["quick"]
    changed = [
        replace(one, symptoms=("CPU limit: it waited",), warnings=(warned,))
        for one in (first, second)
    ]
    found.samples["quick"] = [replace(changed[0], **known), changed[1]]
    text = check_tables.markdown(found)
    assert "| quick | CPU limit: it waited | 1, 2 |" in text
    assert "| quick | qlog of the client (left out: 1 unknown event) | 1 |" in text
    assert text.count("| quick | qlog of the server (left out: 3 damaged records) | 1 |") == 1
    assert "| 1.25 |" in text
    assert "reference s" not in text
    assert text.count("| unknown |") and "| qlog of the server, stack |" in text
    xml = ElementTree.fromstring(junit.junit(found))  # noqa: S314 - our own text
    assert "writes it to {qlog}" in UnusedSource("missing", "server", "no file").text
    assert "qlog of the server not used (broken): <script>line 3" in (
        xml.findtext("system-err") or ""
    )
    html = check_page.write(found).read_text()
    assert "&lt;script&gt;line 3" in html and "<script>line 3" not in html
    (tmp_path / "check.json").write_text(json.dumps(found.document()))
    again = check_file.samples(check_file.load(tmp_path / "check.json", found.suite))
    assert again["quick"][0].warnings == (warned,)


@pytest.mark.promise("P85")
def test_the_page_holds_every_verdict_and_every_transfer(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tiny, monkeypatch, tmp_path, cases=["quick", "slow"], runs=3)
    html = check_page.write(found).read_text()
    # The times of both cases, where the time went, and two plots of each of six transfers.
    assert html.count("data-figure=") == 2 + 1 + 12
    assert html.count("<details><summary>quick, seed") == 4
    # Printed: one transfer of each case.
    assert html.count('<svg class="static"') == 2 + 1 + 4
    assert "\u2717" not in html and "verdict bad" in html and "verdict good" in html
    figures = json.loads(
        gzip.decompress(base64.b64decode(html.split('id="figures">')[1].split("</script>")[0]))
    )
    band = [bar for bar in figures["run-quick-1"]["data"] if bar["type"] == "bar"]
    [outcome] = (found.folder / "raw").glob("quick-1.outcome.json")
    whole = json.loads(outcome.read_text())["transfers"][0]["duration_s"]
    assert sum(sum(bar["x"]) for bar in band) == pytest.approx(whole, abs=0.01)
    lines = {one["name"]: one for one in figures["sequence-quick-1"]["data"]}
    sent, acknowledged = (lines[name]["y"][-1] for name in ("sent", "acknowledged"))
    assert (
        sent > acknowledged > 0.5 * json.loads(outcome.read_text())["transfers"][0]["bytes"] / 1e6
    )
    assert lines["payload at the receiver"]["y"][-1] < sent
    shares = [sum(bar["x"][case] for bar in figures["spent"]["data"]) for case in (0, 1)]
    assert shares == pytest.approx([100, 100], abs=0.1)


def test_changes_of_the_link_are_marked_while_they_have_room() -> None:
    changes = [
        {"at_s": 9.5, "rtt_ms": 700},
        {"at_s": 2, "outage_s": 1.5},
        {"at_s": 2.1, "forward_mbps": 5},
        {"at_s": 99, "forward_mbps": 5},
    ]
    fields = {"id": "a", "forward_mbps": 20, "return_mbps": 2, "changes": changes}
    trace = TransferTrace(0.0, 10.0, [], began_s=0.0)
    marks = check_page.changes(Case.model_validate(fields), trace)
    assert marks == [
        Mark("x", 2, 3.5, "outage 1.5 s"),
        Mark("x", 2.1),
        Mark("x", 9.5, label="RTT 700 ms"),
    ]
    later = check_page.changes(Case.model_validate(fields), replace(trace, began_s=-2.05))
    assert [mark.at for mark in later] == pytest.approx([0.05, 7.45])
    assert not check_page.changes(Case.model_validate(fields), replace(trace, began_s=None))


def test_the_page_links_the_files_that_other_programs_read(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tiny, monkeypatch, tmp_path, cases=["quick"], runs=1)
    assert "qvis" not in check_page.write(found).read_text()
    logs = found.folder / "raw/quick-1/server/qlog"
    logs.mkdir(parents=True)
    (logs / 'a"b.sqlog').write_text("")
    (found.folder / "raw/quick-1/client-0.pcap").write_text("")
    html = check_page.write(found).read_text()
    assert '<a href="raw/quick-1/server/qlog/a%22b.sqlog" download>' in html
    assert '<a href="raw/quick-1/client-0.pcap" download>' in html
    assert 'href="https://qvis.quictools.info/" rel="noreferrer noopener"' in html


def mean_s(found: CheckResult) -> float:
    """Return the mean duration of a check's quick transfers."""
    return sum((found.spent_s("quick") or {}).values())


def assert_page_has_what_matters(slow: CheckResult, again: CheckResult) -> None:
    parts = {one.title: one.parts for one in check_page.page(slow).sections}
    assert [type(one) for one in parts["What grew since the baseline"]] == [Table, Plot]
    # Only causes that occurred are explained, and a time axis shows no differences of a thousandth.
    [facts] = [one for one in parts["Causes"] if isinstance(one, Facts)]
    assert {name for name, _ in facts.facts} == {
        cause for cause, spent_s in (slow.spent_s("quick") or {}).items() if spent_s
    }
    [samples] = [one for one in check_page.page(again).plots if one.key == "samples-quick"]
    low, high = samples.x.range or (0, 0)
    assert high - low >= 2 * check_page.LEAST_SPREAD * low


def test_a_build_is_compared_with_an_earlier_one(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check(tiny, monkeypatch, tmp_path / "1", cases=["quick"])
    file = first.folder / "check.json"
    again = check(tiny, monkeypatch, tmp_path / "2", cases=["quick"], baseline=file, seed=100)
    assert again.comparisons
    assert not any(one.is_slower for one in again.comparisons)
    assert again.status == ExitStatus.OK
    titles = [section.title for section in check_page.page(again).sections]
    assert titles[:2] == ["Comparison with the baseline", "Suite tiny: the test"]
    missed = replace(again, verdicts=[replace(one, result="fail") for one in again.verdicts])
    assert missed.status == ExitStatus.OK
    assert replace(missed, comparisons=None).status == ExitStatus.FAILED
    open_ = replace(
        again, comparisons=[replace(one, result="undecided") for one in again.comparisons]
    )
    assert open_.status == ExitStatus.UNDECIDED
    tiles = [check_page.tiles(one)[2] for one in (again, open_)]
    caption = "of 2 comparisons slower than the baseline"
    assert tiles == [
        Tile("0", caption, state="good"),
        Tile("0", f"{caption}, 2 undecided or not measurable"),
    ]
    narrow = {"stream_receive_window": 65536}
    command = ["check", "--suite", "tiny", "--runs", "2"]
    slow = check(
        tiny,
        monkeypatch,
        tmp_path / "3",
        cases=["quick"],
        baseline=file,
        client=narrow,
        command=command,
    )
    assert slow.comparisons and slow.comparisons[1].is_slower and slow.status == ExitStatus.FAILED
    assert "SLOWER" in check_tables.markdown(slow)
    # The narrow window is named as what grew: in text, page, JUnit and JSON; and nothing where
    # nothing is slower.
    assert {one.grew for one in again.comparisons} == {None}
    assert {one.grew for one in slow.comparisons if one.is_slower} == {"flow control"}
    assert (
        "| flow control |"
        in check_tables.markdown(slow).partition("what grew since the baseline")[2]
    )
    html = check_page.write(slow).read_text()
    assert_page_has_what_matters(slow, again)
    picture = (slow.folder / check_page.GREW_FILE).read_text()
    assert "quick: flow control +" in picture and "baseline" in picture and "quick: flow" in html
    assert not (again.folder / check_page.GREW_FILE).exists() and not check_tables.picture(again)
    [text] = check_tables.picture(slow)
    assert re.search(r"flow control +0\.00 +\d+\.\d\d +\+\d+\.\d\d  \u2588{30}\n", text)
    assert text in check_tables.markdown(slow)
    identity = slow.contents()["baseline"]
    assert identity is not None
    assert identity["sha256"] == hashlib.sha256(Path(identity["path"]).read_bytes()).hexdigest()
    assert identity["sha256"][:12] in html and "satlab check --suite tiny --runs 2" in html
    assert "satlab check --suite tiny --cases quick --seed 1 --runs 1" in html
    assert "; flow control +" in junit.junit(slow)
    assert sum((slow.comparisons[1].grown_s or {}).values()) == pytest.approx(
        mean_s(slow) - mean_s(first)
    )
    document = check_file.read(slow.folder / "check.json")
    assert [one["is_slower"] for one in document["compared"] or ()] == [
        one.is_slower for one in slow.comparisons
    ]
    table = check_tables.markdown(
        check(
            tiny, monkeypatch, tmp_path / "5", cases=["quick", "slow"], runs=1, compare_with=[file]
        )
    )
    [row] = [line for line in table.splitlines() if "not run" in line and "| slow | 0.1 |" in line]
    assert row.count("n 1") == 1 and "comparison with other checks" in table
    below = table.partition("comparison with other checks")[2].splitlines()
    [head] = [line for line in below if "| case |" in line][:1]
    assert "| target s | floor s |" in head and "| slow | 0.1 | 0.5 | 1.38 |" in row
    with pytest.raises(ConfigError):
        check(tiny, monkeypatch, tmp_path / "4", baseline=tiny / "tiny.yml")


def _stalls(sample: Callable[..., Sample]) -> Callable[..., Sample]:
    """Stop each transfer after its first mark."""

    def sampled(*given: Any) -> Sample:
        found = sample(*given)
        reason = "not complete within 300 s: nothing arrived after 60.0 s | of <long> output" * 9
        return replace(
            found,
            status="censored",
            reason=reason,
            times_s=(found.times_s[0], None),
            stalled_after_s=60.0,
        )

    return sampled


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.promise("P75")
def test_a_build_that_stalls_is_red_in_every_report(
    runs: int, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check(tiny, monkeypatch, tmp_path / "1", cases=["quick"], runs=2)
    monkeypatch.setattr(VirtualClock, "sample", _stalls(VirtualClock.sample))
    file = first.folder / "check.json"
    found = check(tiny, monkeypatch, tmp_path / "2", cases=["quick"], runs=runs, baseline=file)
    assert found.status == ExitStatus.FAILED
    [_, late] = found.document()["compared"]
    assert (late["result"], late["is_slower"], late["incomplete"]) == ("failed", True, runs)
    assert late["median_s"] is None and late["ratio"] is None and late["p"] is None
    check_file.read(found.folder / "check.json")
    schema = json.loads((paths.SCHEMAS / "check.schema.json").read_text())
    jsonschema.validate(found.document(), schema)
    assert check_tables.summary(found) == (
        f"tiny, quinn-proto 0.11: quick 0.3 MB FAILED, {runs} of {runs} transfers did not complete"
    )
    text = check_tables.markdown(found)
    assert text.startswith(f"### {check_tables.summary(found)}\n")
    [row] = [line for line in text.splitlines() if line.endswith("| FAILED |")]
    assert row.startswith("| quick | 0.3 | ") and "| never |" in row
    assert "transfers that did not complete" in text and "nothing arrived after 60.0 s" in text
    xml = ElementTree.fromstring(junit.junit(found))  # noqa: S314 - our own text
    [failure] = [one.get("message", "") for one in xml.iter("failure")]
    assert failure.startswith(
        f"{runs} of {runs} transfers did not complete, of the baseline 0 of 2"
    )
    assert "nothing arrived after 60.0 s" in failure
    html = check_page.write(found).read_text()
    assert ">FAILED<" in html and "&lt;long&gt; output" in html
    assert check_page.tiles(found)[2].state == "bad"


@pytest.mark.parametrize(
    ("idle_ms", "reason"), [(600_000, ": nothing arrived after"), (5_000, "timed out")]
)
def test_a_transfer_that_the_link_ends_fails_beside_one_that_ends(
    idle_ms: int, reason: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples on either side, and an outage to the end in the place of a build that stops."""
    file = check(tiny, monkeypatch, tmp_path / "1", cases=["falling"], runs=2).folder / "check.json"
    (tmp_path / "tiny.yml").write_text(
        TINY.replace("{at_s: 2, forward_mbps: 1}", "{at_s: 2, outage_s: 200}").replace(
            "{id: falling", "{timeout_s: 60, id: falling"
        )
    )
    options = {"max_idle_ms": idle_ms}
    found = check(
        tmp_path,
        monkeypatch,
        tmp_path / "2",
        cases=["falling"],
        runs=2,
        baseline=file,
        client=options,
        server=options,
    )
    assert found.status == ExitStatus.FAILED
    assert {one.result for one in found.comparisons or ()} <= {"failed", "undecided"}
    assert all(reason in one.reason for one in found.samples["falling"]), found.samples


def test_a_long_reason_has_its_own_lines_on_a_terminal(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(VirtualClock, "sample", _stalls(VirtualClock.sample))
    found = check(tiny, monkeypatch, tmp_path, cases=["quick"], runs=2)
    monkeypatch.setattr(console, "FILE_WIDTH", 80)
    check_tables.show(found)
    output = capsys.readouterr().out.splitlines()
    [line] = [line for line in output if "nothing arrived" in line]
    assert line.startswith("  quick, seeds 1, 2: not complete within 300 s")
    tables = [line for line in output if line.startswith(("\u2502", "\u2503"))]
    assert max(map(len, tables)) <= 80 and not any("nothing" in line for line in tables)
    [row] = [line for line in tables if "| 0.3 |".replace("|", "\u2502") in line][:1]
    assert "FAIL" in row and "10/2" in row


def test_a_case_whose_programs_all_fail_says_why_not_that_it_misses_a_target(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, why = VirtualClock.sample, "client: a program is missing: sh: 1: nosuch: not found"

    def sampled(*given: Any) -> Sample:
        return replace(measured(*given), status="failed", reason=why, times_s=(None, None))

    monkeypatch.setattr(VirtualClock, "sample", sampled)
    found = check(tiny, monkeypatch, tmp_path, cases=["quick", "falling"], runs=2)
    assert found.status == ExitStatus.FAILED
    said = f"tiny, quinn-proto 0.11: quick fails: {why}; falling fails: {why}"
    assert check_tables.summary(found) == said


def test_what_is_not_in_the_baseline_is_judged_by_itself(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that is new, or a test case of the interop runner, may fail beside a baseline."""
    first = check(tiny, monkeypatch, tmp_path / "1", cases=["quick"], runs=2)
    file = first.folder / "check.json"
    both = check(
        tiny, monkeypatch, tmp_path / "2", cases=["quick", "slow"], runs=2, baseline=file, seed=9
    )
    assert {one.case for one in both.comparisons or ()} == {"quick"}
    assert both.status == ExitStatus.FAILED  # "slow" misses its target of 0.5 s
    assert "slow 0.1 MB fails its target" in check_tables.summary(both)
    tests = replace(
        both,
        comparisons=[],
        verdicts=[replace(one, mark_mb=None) for one in both.verdicts if one.case == "slow"],
    )
    assert tests.status == ExitStatus.FAILED
    with pytest.raises(ConfigError, match="none of the requested cases") as caught:
        check(tiny, monkeypatch, tmp_path / "3", cases=["slow"], baseline=file)
    assert "quick" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "forward_mbps: 10, return_mbps: 2, targets_s: [60",
            "forward_mbps: 9, return_mbps: 2, targets_s: [60",
            "quick: forward_mbps was 9.99",
        ),
        ("rtt_ms: 650", "rtt_ms: 40", "quick: rtt_ms was 65"),
        ("queue_bdp: 1.0", "queue_bdp: 2.0", "quick: queue_bytes was"),
    ],
)
def test_a_baseline_over_another_link_is_refused(
    old: str, new: str, words: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = check(tiny, monkeypatch, tmp_path / "1", cases=["quick"], runs=1).folder / "check.json"
    (tmp_path / "tiny.yml").write_text(TINY.replace(old, new))
    with pytest.raises(ConfigError, match="over other links") as caught:
        check(tmp_path, monkeypatch, tmp_path / "2", cases=["quick"], baseline=file)
    assert words in "\n".join(map(str, caught.value.faults))
    (tmp_path / "tiny.yml").write_text(TINY.replace("[0.1, 0.3]", "[0.1, 0.4]"))
    with pytest.raises(ConfigError, match=r"marks at 0\.1, 0\.3 MB.*at 0\.1, 0\.4 MB"):
        check(tmp_path, monkeypatch, tmp_path / "3", cases=["quick"], baseline=file)


def test_what_a_comparison_can_detect_is_said_before_it_runs(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check(tiny, monkeypatch, tmp_path / "1", runs=3)
    said: list[str] = []
    sampled = VirtualClock.sample

    def taken(*given: Any) -> Sample:
        said.append("a sample")
        return sampled(*given)

    monkeypatch.setattr(VirtualClock, "sample", taken)
    monkeypatch.setattr(ProgressLog, "line", lambda _, text: said.append(text))
    found = check(
        tiny, monkeypatch, tmp_path / "2", runs=10, seed=50, baseline=first.folder / "check.json"
    )
    lines = [line for line in said[: said.index("a sample")] if "slowdowns from" in line]
    assert [line.split(":")[0].strip() for line in lines] == ["quick", "slow", "falling"]
    assert all("10 samples, 3 of the baseline" in line for line in lines)
    [_, of_slow, _] = lines
    # The comparison afterwards has the same figures.
    early = next(one for one in found.comparisons or () if (one.case, one.mark_mb) == ("slow", 0.1))
    assert early.detectable and f"{early.detectable:.0%} (0.1 MB)" in of_slow
    said.clear()
    check(tiny, monkeypatch, tmp_path / "3", runs=2, baseline=first.folder / "check.json")
    assert said[0].endswith("too few to show even twice the time; take 5 of each build (--runs 5)")


@pytest.mark.parametrize(
    ("in_case", "options", "words"),
    [
        ({}, {"receive_window": "1M"}, '--client receive-window: "1M" is not allowed (an integer'),
        ({}, {"window": 1}, "--client window: is unknown"),
        ({"window": 1}, {}, "case quick: client.window: is unknown"),
    ],
)
def test_a_refused_option_is_named_as_the_user_wrote_it(
    in_case: Mapping[str, int],
    options: Mapping[str, int | str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = TINY.replace("{id: quick", f"{{client: {json.dumps(in_case)}, id: quick")
    (tmp_path / "tiny.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        check(tmp_path, monkeypatch, tmp_path / "1", cases=["quick"], client=options)
    assert str(caught.value).startswith(words)


def test_a_case_has_its_own_number_of_samples(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yml").write_text(
        TINY.replace("marks_mb", "runs: 2\nmarks_mb").replace("{id: slow", "{runs: 3, id: slow")
    )
    names = ["quick", "slow"]
    found = check(tmp_path, monkeypatch, tmp_path / "1", cases=names)
    assert [len(found.samples[name]) for name in names] == [2, 3]
    fixed = check(tmp_path, monkeypatch, tmp_path / "2", cases=names, runs=1)
    assert [len(fixed.samples[name]) for name in names] == [1, 1]
    # A comparison takes what it needs, and at least that.
    file = found.folder / "check.json"
    more = check(tmp_path, monkeypatch, tmp_path / "3", cases=["quick"], baseline=file)
    assert len(more.samples["quick"]) >= check_run.BASELINE_RUNS


def test_targets_out_of_calibration_are_not_counted_as_missed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tiny, monkeypatch, tmp_path, cases=["quick"], runs=1)
    [sample] = found.samples["quick"]
    off = replace(
        found,
        verdicts=[replace(one, result="not measurable") for one in found.verdicts],
        samples={"quick": [replace(sample, calibration="cpu_wait_ratio.client")]},
    )
    count = sum(one.target_s is not None for one in found.verdicts)
    said = check_tables.summary(off)
    assert said.endswith(f": 0 of {count} targets met, {count} not measurable")
    tile = Tile(f"0/{count}", f"targets met, {count} not measurable")
    assert check_page.tiles(off)[0] == tile
    assert check_page.page(off).lead[1:] == [Text(said)]
    assert "--wait-quiet 600" in check_tables.notices(off).caption


def test_a_check_against_an_uncalibrated_baseline_is_not_measurable(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = check(tiny, monkeypatch, tmp_path / "1", cases=["quick"]).document()
    for sample in document["cases"][0]["samples"]:
        sample["times_s"] = [time / 2 for time in sample["times_s"]]
        sample["calibration"] = "release_error"
    file = tmp_path / "check.json"
    file.write_text(json.dumps(document))
    found = check(tiny, monkeypatch, tmp_path / "2", cases=["quick"], baseline=file)
    assert found.status == ExitStatus.UNCALIBRATED
    # No calibrated sample to plan with.
    assert len(found.samples["quick"]) == check_run.BASELINE_RUNS
    table = [
        line
        for line in check_tables.markdown(found).splitlines()
        if line.endswith("| not measurable |")
    ]
    assert len(table) == 2
    xml = ElementTree.fromstring(junit.junit(found))  # noqa: S314 - our own text
    assert (xml.get("failures"), xml.get("skipped")) == ("0", "2")
    check_file.read(found.folder / "check.json")


@pytest.mark.promise("P80")
def test_a_stopped_check_can_be_resumed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases are taken side by side: at the end of "slow", both samples of "quick" are there, and
    are kept.
    """
    whole = check(tiny, monkeypatch, tmp_path / "whole", cases=["quick", "slow"], runs=2)
    with monkeypatch.context() as short:
        short.setattr(
            VirtualClock, "sample", _stopped(VirtualClock.sample, "slow", after=("quick", 2))
        )
        with pytest.raises(KeyboardInterrupt):
            check(tiny, short, tmp_path / "part", cases=["quick", "slow"], runs=2, jobs=2)
    [folder] = (tmp_path / "part").iterdir()
    assert [case["id"] for case in json.loads((folder / "check.json").read_text())["cases"]] == [
        "quick"
    ]
    with monkeypatch.context() as short:
        short.setattr(VirtualClock, "sample", _stopped(VirtualClock.sample, "quick"))
        resumed = check(tiny, short, tmp_path, cases=["slow"], runs=2, resume=folder)
    assert resumed.samples == whole.samples
    assert resumed.verdicts == whole.verdicts
    assert resumed.folder == folder
    more = check(tiny, monkeypatch, tmp_path, cases=["quick"], runs=3, resume=folder)
    assert [len(samples) for samples in more.samples.values()] == [
        3,
        2,
    ] and more.real_s > resumed.real_s
    assert more.samples["quick"][:2] == whole.samples["quick"]
    with pytest.raises(ConfigError, match="seed 1"):
        check(tiny, monkeypatch, tmp_path, runs=3, seed=2, resume=folder)


def _stopped(
    sample: Callable[..., Sample], case: str, after: tuple[str, int] | None = None
) -> Callable[..., Sample]:
    """Interrupt at the samples of a case, once another one, of a case and with a seed, is there."""
    is_there = threading.Event()

    def sampled(
        backend: VirtualClock, plan: Suite, sampled_case: Case, link: Any, seed: int, raw: Path
    ) -> Sample:
        if sampled_case.id == case:
            assert after is None or is_there.wait(60)
            raise KeyboardInterrupt
        found = sample(backend, plan, sampled_case, link, seed, raw)
        if (sampled_case.id, seed) == after:
            is_there.set()
        return found

    return sampled


def test_a_wrong_option_is_refused_with_its_name(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tiny, monkeypatch, tmp_path, cases=["quick"], client={"colour": 1})
    assert "colour" in str(caught.value) + str(caught.value.faults)


def test_test_cases_under_the_virtual_clock_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interop has test cases"):
        check_run.run(CheckRequest("interop", out=tmp_path), ProgressLog(quiet=True))
    assert not list(tmp_path.iterdir())


def test_equal_checks_have_equal_samples_and_digests(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, twice = (
        check(tiny, monkeypatch, tmp_path / name, cases=["slow"], runs=2) for name in "ab"
    )
    assert once.samples == twice.samples
    assert once.samples["slow"][0].times_s != once.samples["slow"][1].times_s
    assert all(math.isfinite(time or 0) for one in once.samples["slow"] for time in one.times_s)
    # Digests and all: nothing in an outcome depends on where the check was written.
    outcomes = [sorted((one.folder / "raw").glob("*.outcome.json")) for one in (once, twice)]
    for first, second in zip(*outcomes, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_samples_out_of_calibration_are_repeated_as_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    real: Any = "real"

    class Busy(VirtualClock):
        def sample(self, plan: Suite, case: Case, link: Any, seed: int, raw: Path) -> Sample:
            taken.append(seed)
            off = "cpu_wait_ratio.client" if taken.count(seed) < 3 else ""
            return Sample(case.id, seed, "ok", "", (1.0,) * len(plan.marks_mb), calibration=off)

    monkeypatch.setattr(check_run.CheckRequest, "backend", lambda _: Busy(at_once=1, clock=real))
    monkeypatch.setattr(case_link, "build", lambda *_: None)
    monkeypatch.setattr(check_run._Check, "save", lambda self: self)
    request = check_run.CheckRequest(
        cases=("medium",), runs=2, out=tmp_path, patience=Patience(retries=3)
    )
    found: Any = check_run.run(request, ProgressLog(quiet=True))
    assert [(one.seed, one.attempts, one.calibration) for one in found.samples["medium"]] == [
        (1, 3, ""),
        (2, 3, ""),
    ]


def test_each_client_runs_with_each_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = endpoint_options.External()
    pairs = endpoint_options.each_pair(named, [Path("a"), Path("b")], [Path("c"), Path("d")])
    assert [(str(one.client_endpoint), str(one.server_endpoint)) for one in pairs] == [
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
    ]
    assert endpoint_options.each_pair(named, (), ()) == []
    assert lockstep.each_pair((), (), (), {}) == []
    assert (
        len(endpoint_options.each_pair(endpoint_options.External("client", "server"), (), ())) == 1
    )
    programs = lockstep.each_pair(["cat", "true"], ["cat"], (), {})
    assert [one.name for one in programs] == ["cat", "true to cat"]
    taken: list[CheckRequest] = []
    monkeypatch.setattr(check_run, "run", lambda request, _: taken.append(request))
    check_run.run_each(CheckRequest(out=tmp_path), programs, ProgressLog(quiet=True))
    assert [(one.out.name, one.programs) for one in taken] == [
        ("pair-1", programs[0]),
        ("pair-2", programs[1]),
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([ExitStatus.OK, ExitStatus.FAILED, ExitStatus.UNCALIBRATED], ExitStatus.FAILED),
        ([ExitStatus.UNSUPPORTED, ExitStatus.OK], ExitStatus.OK),
        ([ExitStatus.UNSUPPORTED, ExitStatus.UNSUPPORTED], ExitStatus.UNSUPPORTED),
        ([ExitStatus.OK, ExitStatus.UNCALIBRATED], ExitStatus.UNCALIBRATED),
        ([ExitStatus.OK, ExitStatus.UNDECIDED], ExitStatus.UNDECIDED),
    ],
)
def test_the_status_of_a_matrix_is_its_worst(found: list[ExitStatus], expected: ExitStatus) -> None:
    assert check_result.worst_status(found) == expected


@pytest.mark.parametrize(
    "options",
    [
        ["--virtual-client", "cat", "--virtual-server", "cat", "--clock", "real"],
        ["--virtual-client", "cat", "--virtual-server", "cat", "--stack", "quinn"],
        ["--stack", "quiche"],
        ["--search", "--stack", "ngtcp2"],
        "--virtual-client cat --virtual-server cat --client-cmd cat --server-cmd cat".split(),
        "--virtual-client cat --virtual-client true --virtual-server cat --json".split(),
        ["--client-env", "A=1"],
        ["--virtual-client", "cat"],
    ],
)
def test_options_that_exclude_each_other_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["check", *options]).exit_code == ExitStatus.USAGE
