# SPDX-License-Identifier: GPL-3.0-or-later
import base64
import csv
import hashlib
import html
import io
import json
import random
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import collect
from collect import Collected, browser_yardstick
from collect.browser_yardstick import BrowserYardsticks
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from collect.records import Record
from collect.records_table import Identity, tables
from collect.test_browser_yardstick import KEPLER
from satlab import report
from satlab.common.errors import ConfigError
from satlab.link import modcods
from satlab.report import html as html_page
from satlab.report import measurements as read
from satlab.report import page as page_data
from satlab.report import (
    plot_svg,
    plotly,
    reported_run,
    run_names,
    run_plots,
    run_tables,
    waterfall,
)
from satlab.report.measurements import SummaryRecord
from satlab.report.page import Cell, Plot, Series, Table, per_second
from satlab.report.published_page_metrics import published_ms
from satlab.report.run_names import RunSettings
from satlab.report.run_plots import RunSeries
from satlab.report.run_report import RunReport

HOSTILE = (
    "</script><script>window.owned=1</script><img src=x"
    " onerror=window.owned=1>{{7*7}}\x1b[31m\u202e<b>&amp;"
)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    examples = [
        Example(run_id="20261121-120000-bulk_tcp-geo-0001", duration_s=6.0),
        Example(
            run_id="20261121-120100-page_load-geo-0002",
            scenario="page_load",
            duration_s=0,
            loads={"h1": 3},
        ),
        Example(
            run_id="20261121-120200-page_load-geo-0003",
            scenario="page_load",
            duration_s=0,
            loads={"h3": 3},
            censored=1,
            calibrated=False,
            seed=3,
        ),
    ]
    return [example_run.write(tmp_path, example) for example in examples]


def page(runs: list[Path], title: str = "demo") -> str:
    return report.build(gathered(runs), runs[0] / "report" / "index.html", title).read_text()


def gathered(runs: Iterable[Path]) -> dict[Path, Collected]:
    return {run: Collected(collect.gather(run), collect.stored(run)) for run in runs}


def see(*runs: Path) -> RunReport:
    content = [reported_run.read_run(run, frame) for run, frame in gathered(runs).items()]
    return RunReport("demo", content)


def plots_of(report: RunReport) -> dict[str, Plot]:
    return {plot.key: plot for plot in report.page().plots}


def series_of(plot: Plot) -> dict[str, Series]:
    return {one.name: one for one in plot.series if isinstance(one, Series)}


def named(table: Table) -> list[dict[str, str]]:
    """Return the rows of a table by their columns, as texts."""
    return [dict(zip(table.head, map(str, row), strict=True)) for row in table.rows]


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def seal(run: Path) -> None:
    """Renew the digests after a change that stands for what a run itself wrote."""
    about = json.loads((run / "manifest.json").read_text())
    files = {
        str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in run.glob("raw/**/*.json*")
    }
    change(run / "manifest.json", **{"files": {name: files[name] for name in about["files"]}})


def fade(run: Path, adapts_at: int = 20) -> None:
    """Let the forward link of a run fade from 10 dB by 0.1 dB a sample, and adapt at a sample."""
    path = run / "raw" / "link.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for number, sample in enumerate(line for line in lines if line["type"] == "sample"):
        modcod_id, name, needed = (
            (13, "8PSK 2/3", 6.62) if number < adapts_at else (4, "QPSK 1/2", 1.0)
        )
        sample["forward"] |= {
            "es_n0_db": 10 - number / 10,
            "threshold_db": needed,
            "modcod_id": modcod_id,
            "lost_frames": 0,
            "frames_by_modcod": {name: 100},
            **{"queue_p50_ms": 2.0 * number, "queue_p95_ms": 3.0 * number},
            **{"queue_p99_ms": 4.0 * number, "waits_us": []},
        }
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal(run)


# --- one file -------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Collects what a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script" and dict(attrs).get("type") is None:
            self.scripts.append("")
            self._in_script = True

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


def test_report_needs_no_second_file_and_no_network(runs: list[Path]) -> None:
    for tag, attributes in elements(page(runs)).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        assert not {"href", "action"} & attributes.keys()
        assert "src" not in attributes or (attributes["src"] or "").startswith(
            "data:image/jpeg;base64,"
        )


def test_policy_allows_exactly_the_scripts_that_are_there(runs: list[Path]) -> None:
    found = elements(page(runs))
    (policy,) = [
        a["content"] or ""
        for t, a in found.tags
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    allowed = next(part for part in policy.split(";") if "script-src" in part)
    digests = [
        base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in found.scripts
    ]
    library = base64.b64encode(hashlib.sha256(html_page._library()[1].encode()).digest()).decode()
    assert re.findall(r"'sha256-([^']+)'", allowed) == [library, *digests]
    assert "unsafe" not in allowed
    assert "default-src 'none'" in policy


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand in for npm's bundle: as long as it is compressed, and random, so that it stays so."""
    path = tmp_path / "bundle.js"
    path.write_text(f"/* {random.Random(1).randbytes(440_000).hex()} */")  # noqa: S311 - of an example
    monkeypatch.setattr(html_page, "BUNDLE", path)
    html_page._library.cache_clear()
    yield path
    html_page._library.cache_clear()


@pytest.mark.promise("P26")
def test_a_report_with_filmstrips_has_at_most_a_megabyte(
    bundle: Path, runs: list[Path], tmp_path: Path
) -> None:
    example = Example(scenario="page_load", duration_s=0, loads={"h1": 3, "h3": 3}, observed=1)
    observed = example_run.write(tmp_path, example)
    for path in observed.glob("raw/files/*/page_observation_json.json"):
        content = json.loads(path.read_text())
        for frame in content["frames"]:
            frame["jpeg"] = frame["jpeg"] and "A" * 6000
        path.write_text(json.dumps(content))
    text = page([*runs, observed])
    assert html_page._library()[1] == bundle.read_text()
    assert len(text.encode()) <= 1_000_000
    assert len(text.encode()) > 640_000, "the stand-in is as large as the bundle"


def test_a_report_is_smaller_than_its_library(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without npm's bundle it is the Python package's."""
    monkeypatch.setattr(html_page, "BUNDLE", tmp_path / "nothing.js")
    html_page._library.cache_clear()
    assert html_page._library()[1] == html_page.whole_library()
    assert len(page(runs).encode()) < len(html_page.whole_library()) / 2
    html_page._library.cache_clear()


def test_the_bundle_is_of_the_version_of_the_python_package() -> None:
    lock = json.loads((Path(html_page.__file__).parent / "plots/package-lock.json").read_text())
    (locked,) = [one for name, one in lock["packages"].items() if name]
    version = re.search(r"plotly\.js v([\d.]+)", html_page.whole_library()[:200])
    assert version
    assert locked["version"] == version[1]
    assert locked["integrity"].startswith("sha512-")


def test_same_runs_result_in_the_same_bytes(runs: list[Path]) -> None:
    assert page(runs) == page(runs)


def test_rebuilding_needs_raw_files_only(runs: list[Path]) -> None:
    first = page(runs)
    for run in runs:
        (run / "records.parquet").unlink(missing_ok=True)
    assert page(runs) == first


def test_collected_figures_are_not_read_from_raw_files_again(runs: list[Path]) -> None:
    records = gathered(runs)
    row = re.search(
        r"<td>TCP cubic download</td><td class=.n.>[\d.]+</td>", page(runs).replace("\n", "")
    )
    document = next(runs[0].glob("raw/files/satlab_iperf3-*/*.json"))
    document.unlink()
    text = report.build(records, runs[0] / "report" / "index.html", "demo").read_text()
    assert f"{document.relative_to(runs[0])}: missing" in text
    assert row is not None
    assert row[0] in text.replace("\n", "")


def test_plots_over_a_run_have_one_time_zero(runs: list[Path]) -> None:
    """In the example the first job starts 0.3 s before its transfer reports; until then the link
    is idle.
    """
    fade(runs[0])
    plots = plots_of(see(runs[0]))
    titles = {plot.x.title for key, plot in plots.items() if key != "waiting"}
    assert titles == {run_plots.SINCE}
    window = series_of(plots["window-1"])["Congestion window (MB)"]
    goodput = plots["goodput"].series[0]
    assert isinstance(goodput, Series)
    assert window.x[0] == pytest.approx(goodput.x[0], abs=0.5), "the same interval of the transfer"


def test_the_capacity_of_a_fading_link_follows_its_modcod(runs: list[Path]) -> None:
    fade(runs[0], adapts_at=200)
    adapted = plots_of(see(runs[0]))["adaptation-1"]
    series = series_of(adapted)
    capacity = series["capacity (Mbit/s)"]
    assert adapted.y[capacity.row].title == "Mbit/s", "with the rate"
    used = set(series["MODCOD (id)"].y)
    planned = example_run.link_plan("geo")["forward"]
    rates = {modcods.forward_rate_bps(planned, int(number)) or 0.0 for number in used}
    assert set(capacity.y) == {rate / 1e6 for rate in rates}
    assert planned["rate_bps"] not in rates, "the example fades to another MODCOD than the plan's"
    named = adapted.y[series["MODCOD (id)"].row].ticks
    assert named == {4: "QPSK 1/2", 13: "8PSK 2/3"} and used == {4, 13}
    assert all(f">{name}</text>" in plot_svg.drawing(adapted) for name in named.values())


def test_every_plot_has_its_table_and_its_axes_have_units(runs: list[Path]) -> None:
    plots = plots_of(see(*runs))
    keys = {"goodput", "window-1", "pages", "waterfall-1", "waterfall-2", "lateness"}
    assert set(plots) == keys  # no link of these changed
    fade(runs[0])
    adapted = plots_of(see(runs[0]))["adaptation-1"]
    assert "Frames sent: QPSK 1/2 " in adapted.caption
    for plot in (*plots.values(), adapted):
        assert plot.table.rows, plot.key
        assert {len(row) for row in plot.table.rows} == {len(plot.table.head)}
        document = plotly.document(plot)["layout"]
        titles = [document[key]["title"]["text"] for key in document if "axis" in key]
        for title in [title for title in titles if title]:
            assert re.search(
                r"\((s|ms|µs|Mbit/s|%)\)$|^(MB|ms|packets|dB|id|frames|cores|Mbit/s)$", title
            ), title


def test_slots_on_demand_are_drawn_and_constant_ones_are_not() -> None:
    kinds = {"assigned": 40, "used": 30, "free": 750}
    records = [
        Record(f"link_slots_{kind}", value, {"direction": "return"}, t_s=t / 10)
        for t in range(30)
        for kind, value in kinds.items()
    ]
    identity = Identity("r", "s", "geo-dama", "lab")
    run = RunSeries("r", pl.concat(tables(identity, records)), 0.5)
    drawn = run_plots.slots(run, 1)
    assert drawn is not None
    assert list(series_of(drawn)) == list(kinds)
    assert drawn.table.rows[-1] == ("1.5", "40.000", "30.000", "750.000")
    assert run_plots.slots(replace(run, frame=pl.concat(tables(identity, []))), 1) is None


def test_no_run_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        report.build(
            {tmp_path: Collected(pl.DataFrame(), collect.Stored(loads=[], legs=[]))},
            tmp_path / "x.html",
            "none",
        )
    with pytest.raises(ConfigError, match="at least one"):
        report.build({}, tmp_path / "x.html", "none")
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "name", ["plan.json", "raw/link.jsonl", "raw/jobs.jsonl", "raw/calibration.json"]
)
def test_a_report_of_a_damaged_run_says_what_is_missing(runs: list[Path], name: str) -> None:
    (runs[0] / name).write_text("{")
    text = page(runs)
    if name != "plan.json":
        assert f"{name}: changed" in text
        assert Path(name).name in "".join(f.reason for f in see(*runs).failures)


# --- what it says ---------------------------------------------------------------------------------


def test_published_figures_are_shown_with_ours_with_the_deviation(runs: list[Path]) -> None:
    change_load(runs[2], page_load_time_ms=7669 * 1.10)
    calibrate(runs[2])
    lines = page_loads(see(*runs))
    h3 = lines["Page Load Time", "HTTP/3"]
    assert (h3["Published (ms)"], h3["Ours vs published"]) == ("7,669", "+10.0%")
    assert h3["Loads ended"] == "2 of 3 (1 cut off)"
    assert lines["Response Start", "HTTP/1.1"]["Published (ms)"] == "1,222"
    assert lines["Largest Contentful Paint", "HTTP/3"]["Published (ms)"] == ""


def page_loads(report: RunReport) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["Metric"], row["Protocol"]): row for row in named(report.page_loads())}


@pytest.mark.promise("P34")
def test_the_part_of_the_host_is_shown_with_the_page_load_time(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h3": 3}))
    cells = {row[0]: row[2] for row in see(run).page_loads().rows}
    assert isinstance(cells["Page Load Time"], Cell) and not cells["Page Load Time"].small
    known = BrowserYardsticks(yardsticks=[KEPLER]).model_dump_json(by_alias=True)
    (run / "raw" / browser_yardstick.FILE).write_text(known)
    change_load(run, yardstick_ms=30.0)
    cells = {row[0]: row[2] for row in see(run).page_loads().rows}
    whole, start = cells["Page Load Time"], cells["Response Start"]
    assert isinstance(whole, Cell) and isinstance(start, Cell)
    assert (whole.small, start.small) == ("of which the host: 600 ms", "")


def test_percentiles_are_shown_of_enough_loads(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 3, "h3": 20}))
    spreads = {
        str(protocol): spread
        for metric, protocol, _, spread, *_ in see(run).page_loads().rows
        if metric == "Page Load Time" and isinstance(spread, Cell)
    }
    assert spreads["HTTP/1.1"].small == ""
    assert re.fullmatch(r"p75 [\d,]+, p95 [\d,]+", spreads["HTTP/3"].small)


def calibrate(run: Path) -> None:
    change(run / "raw" / "calibration.json", ok=True)
    seal(run)


def test_a_run_out_of_calibration_has_no_deviation_from_the_published_figure(
    runs: list[Path],
) -> None:
    line = page_loads(see(*runs))["Response Start", "HTTP/3"]
    assert (line["Published (ms)"], line["Ours vs published"]) == ("1,314", "not measurable")


def test_a_run_with_a_proxy_is_compared_with_the_published_figure_of_that_proxy(
    tmp_path: Path,
) -> None:
    published_ms: dict[str, str] = {}
    for number, (protocol, pep) in enumerate(
        (("h3", "quic-h3-capable"), ("h3", "quic-warm"), ("h1", "haproxy"))
    ):
        example = Example(
            f"2026-pep-{number}", scenario="web", duration_s=0, loads={protocol: 3}, pep=pep
        )
        found = page_loads(see(example_run.write(tmp_path, example)))
        published_ms |= {
            protocol: row["Published (ms)"]
            for (metric, protocol), row in found.items()
            if metric == "Page Load Time"
        }
    assert published_ms == {
        "HTTP/3, PEP quic-h3-capable": "7,344",
        "HTTP/3, PEP quic-warm": "",
        "HTTP/1.1, PEP haproxy": "11,144",
    }


def test_two_pages_of_a_run_are_two_groups(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h3": 3}))
    change(min(run.glob("raw/files/satlab_page_load-*/*.json")), page="light")
    seal(run)
    has_published = {
        protocol: bool(row["Published (ms)"])
        for (metric, protocol), row in page_loads(see(run)).items()
        if metric == "Page Load Time"
    }
    assert has_published == {"kepler, HTTP/3": True, "light, HTTP/3": False}
    spread, *_ = see(run).page_plots()  # and a waterfall each
    assert [
        len(one.x) for name, one in series_of(spread).items() if name.endswith("published")
    ] == [3, 0]


def change_load(run: Path, **fields: Any) -> None:
    for path in run.glob("raw/files/satlab_page_load-*/*.json"):
        if json.loads(path.read_text())["status"] == "ok":
            change(path, **fields)
    seal(run)


LINK = example_run.link_plan("geo")


PUBLISHED: dict[str, Any] = {
    "profile": "geo",
    "page": "kepler",
    "protocol": "h3",
    "pep": "none",
    "metric": "page_load_time_ms",
    "link": LINK,
}


@pytest.mark.parametrize(
    "change",
    [
        {"link": None},
        {"link": LINK | {"forward": LINK["forward"] | {"loss_ratio": 0.01}}},
        {"link": LINK | {"return": LINK["return"] | {"loss_ratio": 0.01}}},
        {"link": LINK | {"rtt_ms": LINK["rtt_ms"] | {"configured": 700.0}}},
        {"profile": "meo"},
        {"page": "other"},
        {"protocol": "h2"},
        {"pep": "quic-warm"},
        {"protocol": "h1", "pep": "unknown"},
        {"protocol": "h1", "pep": "quic"},
    ],
)
def test_published_figures_are_not_shown_for_another_link_or_cell(change: dict[str, Any]) -> None:
    assert published_ms(**PUBLISHED) == 7669
    assert published_ms(**PUBLISHED | change) is None


def test_what_is_carried_follows_the_modcod_and_its_mean_the_time() -> None:
    forward = {"rate_bps": 2e6, "tcp_goodput_bps": 1e6, "modcod_id": 4}
    one = (modcods.forward_rate_bps(forward, 1) or 0) / 2
    assert reported_run.capacity_over_time([(-1, 4), (0, 4), (5, 4)], forward) == [(0, 1e6)]
    assert reported_run.capacity_over_time([(-1, 1), (0, 4), (2, 1), (3, 1), (4, 4)], forward) == [
        (0, 1e6),
        (2, one),
        (4, 1e6),
    ]
    assert reported_run.capacity_over_time([(0, 4), (1, 99)], forward) == []
    assert reported_run.mean_capacity_bps([(0, 1e6), (2, one)], [0, 1, 2, 3]) == (1e6 + one) / 2
    assert (
        reported_run.mean_capacity_bps([(0, 1e6)], [])
        is reported_run.mean_capacity_bps([], [1])
        is None
    )


def test_bulk_figures_compare_with_what_the_link_carries(runs: list[Path]) -> None:
    (row,) = named(see(runs[0]).bulk())
    assert row["Link carries, mean (Mbit/s)"] == "18.04"
    assert row["Share"] == f"{float(row['Goodput (Mbit/s)']) / 18.04:.0%}"
    assert float(row["Largest window (MB)"]) > 0


def test_p254_goodput_stands_next_to_what_the_link_carried_with_the_modcod_in_force(
    runs: list[Path],
) -> None:
    fade(runs[0], adapts_at=150)
    what = see(runs[0])
    goodput = plots_of(what)["goodput"]
    assert not goodput.marks, "no level of one rate"
    carried = series_of(goodput)["link carries"].y
    assert len(set(carried)) > 1
    (row,) = named(what.bulk())
    assert min(carried) <= float(row["Link carries, mean (Mbit/s)"]) <= max(carried)


def test_failed_samples_and_calibration_are_in_the_first_row(runs: list[Path]) -> None:
    good, bad = see(runs[0]), see(*runs)
    assert [tile.state for tile in good.tiles().tiles[-2:]] == ["good", "good"]
    assert [(tile.figure, tile.state) for tile in bad.tiles().tiles[-2:]] == [
        ("11/12", "bad"),
        ("1", "bad"),
    ]
    (failure,) = bad.failures
    assert (failure.status, failure.reason, failure.place) == (
        "censored",
        "timeout 33 s",
        "h3 page loads, load 3, on client",
    )


def test_changed_raw_files_are_named_at_the_top(runs: list[Path]) -> None:
    (runs[1] / "raw" / "calibration.json").unlink()
    (runs[1] / "raw" / "extra.json").write_text("{}")
    text = page(runs)
    assert "raw/calibration.json: missing" in text
    assert "raw/extra.json: foreign" in text
    assert text.index("not the raw files that the run wrote") < text.index("<main>")


def test_a_run_without_end_is_marked(runs: list[Path]) -> None:
    change(runs[0] / "manifest.json", ended_unix_s=None, status="running", files={})
    assert "has no end" in page(runs)
    assert dict(see(runs[0]).runs[0].facts())["raw files"] == "not verified"
    assert dict(see(runs[1]).runs[0].facts())["raw files"].endswith("as written")


def test_runs_are_named_by_what_differs(runs: list[Path]) -> None:
    names = list(see(*runs).names.values())
    assert names == [
        "bulk_tcp, seed=1",
        "page_load, protocol=h1, seed=1",
        "page_load, protocol=h3, seed=3",
    ]


def test_runs_are_named_by_the_emulator_that_differs(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    change(other / "manifest.json", run_id="20261121-130000-other", emulator="opensand")
    seen = see(runs[0], other)
    assert list(seen.names.values()) == [
        "emulator=satlink",
        "emulator=opensand",
    ]


def test_a_single_run_has_the_name_of_its_scenario_and_equal_ones_have_numbers() -> None:
    one = RunSettings("bulk_tcp", "geo", {"duration": "15"}, {"seed": "1"})
    assert run_names.names([one]) == ["bulk_tcp over geo"]
    assert run_names.names([one, one]) == ["bulk_tcp over geo, run 1", "bulk_tcp over geo, run 2"]
    short = replace(one, link={"seed": "1", "queue_bdp": "0.5"})
    assert run_names.names([one, short]) == ["queue_bdp=default", "queue_bdp=0.5"]
    files = ("/a/b/up.json", "/c/up.json")
    timed = [replace(one, link={"seed": "1", "timeline": file}) for file in files]
    assert run_names.names([one, timed[0]]) == ["timeline=default", "timeline=up.json"]
    assert run_names.names(timed) == ["timeline=/a/b/up.json", "timeline=/c/up.json"]
    leo = replace(one, profile="leo")
    assert run_names.names([one, leo, leo]) == ["geo", "leo, run 1", "leo, run 2"]


def test_out_of_calibration_is_one_sentence_with_its_remedy(runs: list[Path]) -> None:
    sentence = (
        "out of calibration: forward packets released late 3.1 % (at most 1 %); repeat the"
        " measurement on a quiet host, for example with --wait-quiet 600"
    )
    busy = see(runs[2])
    assert busy.runs[0].out_of_calibration == sentence
    assert [text.text for text in busy.alerts()] == [f"O{sentence[1:]}."]
    assert see(runs[0]).alerts() == []
    (shown,) = [
        one
        for one in report.terminal_tables([collect.gather(runs[2])], {})
        if str(one.title) == "Calibration"
    ]
    assert "forward packets released late 3.1 % (at most 1 %)" in map(str, shown.columns[1].cells)
    (record,) = [row for row in busy.rows if row.metric == "calibration_ok"]
    assert record.reason == sentence, "--json has it, too"


def of_terminals(run: Path) -> None:
    """Make a run's download that of terminal 2, and add an upload of terminal 1 by a copy of it."""
    jobs = [json.loads(line) for line in (run / "raw" / "jobs.jsonl").read_text().splitlines()]
    for place in run.glob("raw/files/satlab_iperf3-*"):
        number = int(place.name.rpartition("-")[2])
        copy = place.with_name(f"satlab_iperf3-{number + 50}")
        shutil.copytree(place, copy)
        for file in copy.glob("*.json"):
            content = json.loads(file.read_text())
            content["start"]["cookie"] = "upload"
            content["start"]["test_start"]["reverse"] = 0
            file.write_text(json.dumps(content))
        (job,) = [one for one in jobs if one["job_instance_id"] == number]
        jobs.append(job | {"job_instance_id": number + 50})
        if job["entity"] == "client":
            job["entity"] = "client-2"
    (run / "raw" / "jobs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in jobs))
    seal(run)


def test_transfers_of_several_terminals_have_their_names_direction_and_queue(
    runs: list[Path],
) -> None:
    of_terminals(runs[0])
    what = see(runs[0])
    assert {row["Transfer"] for row in named(what.bulk())} == {
        "TCP cubic download, terminal 2",
        "TCP cubic upload, terminal 1",
    }
    (download,) = [one for one in what.transfers if one.terminal == 2]
    down = plots_of(what)["window-1"]
    up = run_plots.window([replace(what._to_draw(download), direction="upload")], 2)
    assert up is not None
    assert [axis.heading for axis in down.y][2:] == ["Forward queue", "Drops, forward"]
    assert [axis.heading for axis in up.y][2:] == ["Return queue", "Drops, return"]
    (limit,) = down.marks
    assert (limit.label, limit.row) == ("limit of 2 terminals", 2)
    assert limit.at == pytest.approx(2 * example_run.QUEUE_BYTES / 1e6)


def test_jains_index_is_an_answer_at_the_top(runs: list[Path]) -> None:
    labels = {"direction": "download", "transport": "TCP", "terminals": "3"}
    what = see(runs[0])
    row = next(row for row in what.rows if row.metric == "goodput_bps")
    index = replace(row, metric="fairness_jain_ratio", value=0.987, labels=labels)
    shared = RunReport("demo", [replace(what.runs[0], rows=(*what.rows, index))])
    assert [tile.caption for tile in shared.tiles().tiles[:2]] == [
        "Goodput of 3 terminals, TCP download over geo, all together",
        "Jain's index of 3 terminals, TCP download over geo; 1: all equal",
    ]
    assert shared.tiles().tiles[1].figure == "0.987"


def test_runs_are_compared_in_one_plot(runs: list[Path], tmp_path: Path) -> None:
    other = example_run.write(tmp_path, Example("20261121-130000-other", duration_s=8.0))
    plots = plots_of(see(runs[0], other))
    window = plots["window-1"]
    assert [one.name for one in window.series if isinstance(one, Series) and one.row == 0] == [
        "duration=6",
        "duration=8",
    ]
    assert "window-2" not in plots


def test_a_plot_of_a_transfer_ends_with_it(runs: list[Path], tmp_path: Path) -> None:
    """The demo loads pages after its transfer."""
    run = example_run.write(tmp_path, Example("demo", duration_s=6.0, loads={"h1": 3}))
    window = plots_of(see(run))["window-1"]
    assert max(float(x) for one in window.series if isinstance(one, Series) for x in one.x) < 10
    plan = see(run).runs[0].link
    assert plan is not None
    (_, top) = plots_of(see(run))["goodput"].y[0].range or (0, 0)
    assert top == pytest.approx(1.15 * plan["forward"]["tcp_goodput_bps"] / 1e6), "of the link"


HANDOVERS = (
    (2.0, {"handover": {"waiting": "keep", "delay_ms": 20}}),
    (3.0, {"gateway": {"id": 6, "waiting": "keep"}}),
    (3.5, {"delay_ms": 30.0}),
    (99.0, {"gateway": {"id": 0, "waiting": "keep"}}),
)


def test_handovers_are_lines_in_the_plots_over_time(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=6, changes=HANDOVERS))
    fade(run)
    drawn = plots_of(see(run))
    for key in ("goodput", "window-1", "adaptation-1", "lateness"):
        lines = [mark for mark in drawn[key].marks if mark.axis == "x"]
        assert [(round(mark.at, 1), mark.label) for mark in lines] == [
            (2, "handover"),
            (3, "to GW 6"),
        ], key
        assert "Dotted lines: handovers" in drawn[key].caption
        assert "to GW 6</text>" in plot_svg.drawing(drawn[key])
    path = run / "raw" / "link.jsonl"
    refused = [json.loads(text) for text in path.read_text().splitlines()]
    refused = [line | {"error": "no"} if line["type"] == "change" else line for line in refused]
    path.write_text("".join(json.dumps(line) + "\n" for line in refused))
    seal(run)
    assert not [mark for mark in plots_of(see(run))["goodput"].marks if mark.axis == "x"]


def test_handovers_of_several_runs_are_one_line_if_all_have_them(tmp_path: Path) -> None:
    more = (*HANDOVERS, (4.5, {"gateway": {"id": 1, "waiting": "keep"}}))
    runs = [
        example_run.write(tmp_path, Example(run_id=name, duration_s=6, changes=changes))
        for name, changes in (("one", HANDOVERS), ("two", more))
    ]
    change(runs[1] / "manifest.json", arguments={"cong_control": "bbr"})
    lines = [mark for mark in plots_of(see(*runs))["goodput"].marks if mark.axis == "x"]
    assert [mark.label for mark in lines][:2] == ["handover", "to GW 6"]
    assert "to GW 1, " in lines[2].label and "bbr" in lines[2].label


def test_many_handovers_are_lines_without_labels_and_very_many_are_none() -> None:
    def lines(count: int) -> list[page_data.Mark]:
        labels = {"direction": "forward", "to": "another link"}
        found = [Record("link_handovers", 1.0, labels, t_s=n / 100) for n in range(count)]
        table = pl.concat(tables(Identity("r", "s", "leo", "lab"), found))
        whole = Series("all", [0.0, 99.0], [0.0, 0.0])
        return run_plots.handover_marks([RunSeries("r", table, 0.0)], [whole])

    assert {mark.label for mark in lines(8)} == {"handover"}
    assert [mark.label for mark in lines(9)] == [""] * 9
    assert not lines(10_000)


def test_command_repeats_the_run(runs: list[Path]) -> None:
    assert f"./satlab report {runs[0]}" in page(runs[:1])
    assert see(runs[0]).runs[0].command() == (
        "./satlab run openbach-scenarios/scenarios/bulk_tcp.json --profile geo --queue-bdp 0.5 "
        "--timeline 'a fade.json' --set duration=6"
    )
    (runs[0] / "plan.json").unlink()
    bare = "./satlab run openbach-scenarios/scenarios/bulk_tcp.json --profile geo --set duration=6"
    assert see(runs[0]).runs[0].command() == bare


def test_command_is_quoted(runs: list[Path]) -> None:
    change(runs[0] / "manifest.json", arguments={"x": "1; rm -rf /"})
    assert "--set 'x=1; rm -rf /'" in see(runs[0]).runs[0].command()


def test_waterfall_shows_the_load_in_the_middle(runs: list[Path]) -> None:
    loads = [one.load.page_load_time_ms or 0 for one in see(runs[1]).runs[0].stored.loads]
    fall = plots_of(see(runs[1]))["waterfall-1"]
    middle = loads.index(sorted(loads)[1]) + 1
    assert f"Load {middle} of HTTP/1.1" in fall.caption
    assert len(fall.table.rows) == 75
    requests = fall.y[0]
    assert list(requests.ticks or {}) == list(range(1, 76)), "a URL each"
    assert (requests.ticks or {})[1] == waterfall.short_name(str(fall.table.rows[0][0]))


def test_the_rate_of_the_link_is_below_the_requests(runs: list[Path]) -> None:
    path = runs[1] / "raw" / "link.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for sample in (line for line in lines if line["type"] == "sample"):
        sample["forward"]["rate_bps"] = 7e6
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal(runs[1])
    fall = plots_of(see(runs[1]))["waterfall-1"]
    _, link, cpu = fall.y
    rate = series_of(fall)["forward link (Mbit/s)"]
    assert (link.heading, link.title, rate.row) == ("Forward link", "Mbit/s", 1)
    assert (cpu.heading, series_of(fall)["browser (cores)"].row) == ("CPU", 2)
    assert 0 <= float(rate.x[0]) < 1, "since navigation start"
    assert set(rate.y) == {7.0}


def test_cores_and_handovers_are_beside_the_requests(tmp_path: Path) -> None:
    """The load starts with the first job; a step of the curve is drawn from its begin."""
    example = Example(duration_s=0, loads={"h1": 1}, observed=1, changes=HANDOVERS)
    drawn = plots_of(see(example_run.write(tmp_path, example)))
    for key in ("waterfall-1", "phases-1"):
        fall = drawn[key]
        requests, *_, cpu = fall.y
        own, host = (series_of(fall)[name] for name in ("browser (cores)", "host (cores)"))
        assert (cpu.heading, cpu.title, own.shape) == ("CPU", "cores", "steps")
        assert own.row == host.row == len(fall.y) - 1
        assert (own.x[0], own.y[0], own.x[7], own.y[7]) == (0, 0.1, 0.7, 0.9)
        assert set(host.y) == {1.1} and "CPU: cores that" in fall.caption
        assert requests.share > 0.8 > cpu.share
    labels = [mark.label for mark in drawn["waterfall-1"].marks]
    assert labels == ["RS", "FCP", "PLT", "handover", "to GW 6"]
    change_load(tmp_path / example.run_id, cpu_curve=[])  # of an earlier version
    assert len(plots_of(see(tmp_path / example.run_id))["waterfall-1"].y) == 1


def test_many_requests_have_some_of_their_urls_and_long_ones_their_ends() -> None:
    urls = [f"https://site/{'a' * 50}/{number}.js" for number in range(300)]
    (axis,) = waterfall.request_axes(urls, waterfall.Below())
    assert 50 < len(axis.ticks or {}) <= 100
    assert {len(name) for name in (axis.ticks or {}).values()} == {waterfall.URL}
    assert (axis.ticks or {})[300].endswith("/299.js")
    assert waterfall.request_height(300, waterfall.Below()) == waterfall.MOST_PX


def test_loads_are_drawn_as_distributions_and_a_cut_off_one_is_longer_than_all(
    tmp_path: Path,
) -> None:
    example = Example(scenario="page_load", duration_s=0, loads={"h1": 6, "h3": 2}, censored=1)
    what = see(example_run.write(tmp_path, example))
    drawn = plots_of(what)["page-load-times"]
    one = series_of(drawn)["HTTP/1.1"]
    assert len(drawn.series) == 1, "two loads are too few"
    assert list(map(float, one.x)) == sorted(map(float, one.x))
    assert one.y[-1] == pytest.approx(100 * (len(one.y) - 1) / 6) and one.y[-1] < 100


def test_times_in_the_queue_are_drawn_as_a_distribution(runs: list[Path]) -> None:
    assert "waiting" not in plots_of(see(runs[0])), "they were not measured"
    fade(runs[0])
    drawn = plots_of(see(runs[0]))["waiting"]
    forward = series_of(drawn)["forward"]
    assert (len(drawn.series), forward.y[0], forward.y[-1]) == (1, 0, 100)
    half = next(float(x) for x, y in zip(forward.x, forward.y, strict=True) if y >= 50)
    (row,) = drawn.table.rows
    assert float(str(row[drawn.table.head.index("50 % below (ms)")])) == pytest.approx(half, abs=3)


def test_means_leave_out_a_second_that_is_not_full() -> None:
    points = [(step / 10, float(step <= 10)) for step in range(1, 22)]
    assert per_second(points) == [(0.5, 1.0), (1.5, 0.0)]


# --- T14: hostile text ----------------------------------------------------------------------------


def plant(run: Path) -> None:
    """Put hostile text into every free-text field."""
    path = run / "raw" / "jobs.jsonl"
    jobs = [json.loads(line) for line in path.read_text().splitlines()]
    jobs = [job | {"label": HOSTILE, "entity": HOSTILE} for job in jobs]
    jobs.append(
        jobs[0] | {"job_instance_id": 77, "status": "Error", "exit_code": 1, "log": HOSTILE}
    )
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    for path in run.glob("raw/files/satlab_page_load-*/*.json"):
        load = json.loads(path.read_text())
        resources = [
            r | {"name": f"https://x/{HOSTILE}", "initiator_type": HOSTILE}
            for r in load["resources"]
        ]
        texts = dict.fromkeys(("reason", "page", "browser", "driver", "server", "url"), HOSTILE)
        change(path, **texts, resources=resources, protocols={HOSTILE: 75})
    checks = json.loads((run / "raw" / "calibration.json").read_text())["checks"]
    texts = dict.fromkeys(("name", "unit", "note"), HOSTILE)
    change(run / "raw" / "calibration.json", checks=[check | texts for check in checks])
    for path in run.glob("raw/files/satlab_iperf3-*/*.json"):
        change(path, end=json.loads(path.read_text())["end"] | {"sender_tcp_congestion": HOSTILE})
    seal(run)
    named = dict.fromkeys(("scenario", "profile", "reason", "emulator"), HOSTILE)
    change(
        run / "manifest.json",
        **named,
        status="failed",
        arguments={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        host={"cpu": HOSTILE},
    )


def test_t14_hostile_text_is_shown_as_text(runs: list[Path]) -> None:
    for run in runs:
        plant(run)
    text = page(runs, HOSTILE)
    found = elements(text)
    assert len(found.scripts) == 1
    assert not [
        tag for tag, attributes in found.tags if tag in {"img", "b"} or "onerror" in attributes
    ]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", without_plotly(text))
    assert html.escape("<img src=x onerror=window.owned=1>") in text
    assert "{{7*7}}" in text


def without_plotly(text: str) -> str:
    return text[: text.index('<script type="application/gzip"')]


def test_hostile_text_cannot_steer_a_terminal(runs: list[Path]) -> None:
    for run in runs:
        plant(run)
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    for one in report.terminal_tables([collect.gather(run) for run in runs], {}):
        console.print(one)
    assert isinstance(console.file, io.StringIO)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", console.file.getvalue())


def test_every_plot_is_a_picture_before_scripts_run(runs: list[Path]) -> None:
    text = page(runs)
    plots = plots_of(see(*runs))
    shown = [plot for plot in plots.values() if not plot.folded]
    assert text.count('<svg class="static"') == len(shown)
    picture = plot_svg.drawing(plots["goodput"])
    assert "link carries 18.04 Mbit/s" in picture and "var(--c1)" in picture
    assert "Goodput (Mbit/s)" in picture
    assert not re.search(r"nan|inf\b", picture)


PRINTED = """return [...document.querySelectorAll('.plot:has(.static)')].map(plot => {
  const picture = plot.querySelector('.static'), box = picture.getBoundingClientRect();
  const live = plot.querySelector('.live').getBoundingClientRect();
  return {edges: box.left >= 0 && box.right <= 701, height: box.height, live: live.height,
          scale: box.width / picture.viewBox.baseVal.width};
})"""


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [False, True])
def test_a_report_is_printed_with_its_plots(
    runs: list[Path], tmp_path: Path, scripts: bool
) -> None:
    """Before and after its scripts ran, and in a dark browser. Nothing reaches beyond the page, and
    a waterfall has most of one.
    """
    from tests.browser import chromium

    out = report.build(gathered(runs), tmp_path / "page.html", "demo")
    browser = chromium.browser(scripts=scripts)
    try:
        browser.get(out.as_uri())
        if scripts:
            drawn = "return document.querySelectorAll('.drawn').length"
            count = len(plots_of(see(*runs)))
            chromium.until(lambda: browser.execute_script(drawn) == count, "all plots")
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        media = {"media": "print", "features": [dark]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        size = {"width": 700, "height": 990, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        found = browser.execute_script(PRINTED)
        assert len(found) == sum(not one.folded for one in plots_of(see(*runs)).values())
        for one in found:
            assert one["edges"] and one["live"] == 0, one
            assert 100 < one["height"] < 900 and one["scale"] > 0.5, one
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 700
        ground = "return getComputedStyle(document.documentElement).getPropertyValue('--card')"
        assert browser.execute_script(ground).strip() == "#ffffff"
    finally:
        browser.quit()


LABELS = """return [...document.querySelectorAll('.annotation')]
  .filter(label => label.style.visibility !== 'hidden')
  .map(label => { const box = label.getBoundingClientRect();
    return [label.textContent, label.closest('.live').dataset.figure, box.left, box.right, box.top]; })"""


@pytest.mark.browser
def test_labels_of_lines_do_not_cover_each_other_on_a_phone(tmp_path: Path) -> None:
    from tests.browser import chromium

    near = tuple((2 + n / 2, {"handover": {"waiting": "keep"}}) for n in range(7))
    run = example_run.write(tmp_path, Example(duration_s=6, changes=near))
    out = report.build(gathered([run]), tmp_path / "page.html", "demo")
    browser = chromium.browser(width=390)
    try:
        browser.get(out.as_uri())
        drawn = "return document.querySelectorAll('.drawn .main-svg').length"
        chromium.until(lambda: browser.execute_script(drawn) >= 3, "the plots")
        labels = [label for label in browser.execute_script(LABELS) if label[0] == "handover"]
        of_goodput = [label for label in labels if label[1] == "goodput"]
        assert 2 <= len(of_goodput) < len(near)
        assert all(a[3] <= b[2] for a, b in pairwise(of_goodput))
    finally:
        browser.quit()


@pytest.mark.browser
def test_a_browser_draws_every_plot_and_runs_nothing_planted(
    runs: list[Path], tmp_path: Path
) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    from tests.browser import chromium

    plant(runs[1])
    out = report.build(gathered(runs), tmp_path / "page.html", HOSTILE)
    browser = chromium.browser()
    try:
        browser.get(out.as_uri())
        drawn = (
            "return [...document.querySelectorAll('.plot')].every(p =>"
            " p.querySelector('.main-svg'))"
        )
        WebDriverWait(browser, 20).until(lambda b: b.execute_script(drawn))
        assert browser.execute_script("return window.owned") is None
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert (
            browser.execute_script(
                "return document.querySelectorAll('img, .plot a, .plot script').length"
            )
            == 0
        )
        # no refused script, no error
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    finally:
        browser.quit()


# --- terminal and CSV -----------------------------------------------------------------------------


def test_terminal_tables_hold_the_answers(runs: list[Path]) -> None:
    tables = report.terminal_tables([collect.gather(run) for run in runs], {})
    titles = [str(table.title) for table in tables]
    assert titles == [
        "Bulk transfer",
        "Page loads, median ms",
        "Calibration",
        "Failed and cut-off samples",
    ]
    assert [table.row_count for table in tables] == [1, 2, 3, 1]
    assert report.terminal_tables([pl.DataFrame(schema=collect.SCHEMA)], {}) == []


def test_a_failed_transfer_is_a_row_of_the_terminal_table(runs: list[Path]) -> None:
    for path in runs[0].glob("raw/files/satlab_iperf3-*/*.json"):
        path.write_text('{"error": "unable to connect to server: Connection refused"}')
    bulk = report.terminal_tables([collect.gather(runs[0])], {})[0]
    assert [*map(str, bulk.columns[1].cells)] == ["failed", "failed"]


def test_csv_has_the_columns_of_the_records(runs: list[Path]) -> None:
    frame = collect.gather(runs[1])
    file = io.StringIO()
    report.write_csv([frame], file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert list(rows[0]) == list(collect.SCHEMA)
    assert len(rows) == len(collect.summaries(frame))
    assert all(isinstance(json.loads(row["labels"]), dict) for row in rows)


def stream(entity: str, **values: Any) -> list[SummaryRecord]:
    labels = {
        "job": "satlab_stream",
        "instance": entity,
        "entity": entity,
        "function": f"stream to {entity}",
    }
    shared = ("r1", "voip", "geo", "netns")
    rows = [
        SummaryRecord(
            *shared,
            metric,
            value,
            None,
            "ok",
            "",
            labels | ({"codec": "g711"} if metric == "mos" else {}),
        )
        for metric, value in values.items()
    ]
    stats = {"min": 290.0, "median": 291.0, "p95": 295.0, "max": 300.0}
    return rows + [
        SummaryRecord(
            *shared, "one_way_delay_ms", value, None, "ok", "", labels | {"stat": stat, "n": "5"}
        )
        for stat, value in stats.items()
    ]


def test_streams_have_delay_loss_and_quality() -> None:
    rows = [
        *stream("client", mos=3.6, stream_loss_ratio=0.02, stream_jitter_ms=0.5),
        *stream("server"),
    ]
    voice, plain = read.streams(rows)
    assert (voice.codec, voice.values["mos"], voice.values["one_way_delay_ms p95"]) == (
        "g711",
        3.6,
        295.0,
    )
    assert (plain.codec, plain.values.get("mos")) == ("", None)


def test_responses_have_round_trips_of_both_phases() -> None:
    labels = {"job": "satlab_rrul", "instance": "3", "function": "load", "flows": "4"}
    shared = ("r1", "responsiveness", "leo", "netns")
    figures = [("responsiveness_rpm", 250.0, {}), ("probe_loss_ratio", 0.01, {"phase": "loaded"})]
    for phase, value in (("idle", 114.0), ("loaded", 228.0)):
        for number, stat in enumerate(("median", "p95", "p99")):
            figures.append(("probe_rtt_ms", value + number, {"phase": phase, "stat": stat}))
    rows = [
        SummaryRecord(*shared, metric, value, None, "ok", "", labels | own)
        for metric, value, own in figures
    ]
    failed = replace(
        rows[0], value=None, status="failed", reason="stopped", labels=labels | {"instance": "4"}
    )
    table = run_tables.responses(read.responses([*rows, failed]), {"r1": "run"})
    assert table.rows[0] == (
        "run",
        "250",
        "114.0",
        "115.0",
        "116.0",
        "228.0",
        "229.0",
        "230.0",
        "1.00",
    )
    assert table.rows[1][:3] == ("run", "failed", "")


def test_a_layout_shift_has_decimals_and_no_unit() -> None:
    labels = {"job": "satlab_page_load", "page": "kepler", "protocol": "h3", "pep": "none"}
    labels |= {"stat": "median", "n": "3", "failed": "0", "censored": "0"}
    row = SummaryRecord(
        "r1", "page_load", "geo", "netns", "cumulative_layout_shift", 0.0874, None, "ok", "", labels
    )
    (one,) = read.page_figures([row])
    assert (one.median, one.text(0.0874)) == (0.0874, "0.087")


def test_videos_have_bitrate_start_and_stalls() -> None:
    labels = {
        "job": "satlab_video",
        "instance": "3",
        "function": "video",
        "page": "video",
        "protocol": "h3",
        "n": "8",
    }
    shared = ("r1", "video", "geo", "netns")
    played = {
        "bitrate_bps": 3.2e6,
        "startup_ms": 1900.0,
        "stalls_count": 1.0,
        "stalled_s": 0.5,
        "switches_count": 3.0,
    }
    rows = [
        SummaryRecord(*shared, f"video_{name}", value, None, "ok", "", labels)
        for name, value in played.items()
    ]
    failed = SummaryRecord(
        *shared, "video_bitrate_bps", None, None, "failed", "stopped", labels | {"instance": "4"}
    )
    one, other = read.videos([*rows, failed])
    assert (one.name, one.values["video_stalls_count"], one.status) == (
        "video over HTTP/3",
        1.0,
        "ok",
    )
    assert (other.values["video_bitrate_bps"], other.reason) == (None, "stopped")
