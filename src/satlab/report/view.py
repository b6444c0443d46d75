# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of the report, as plain values for the template: answers, then figures, then their
origin.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collect
from satlab.report import capacity, figures, film, published, shares
from satlab.report import rows as read
from satlab.report.figures import Bulk, Figure
from satlab.report.rows import (
    PAGE_METRICS,
    BulkTransfer,
    PageFigure,
    PageGroup,
    Row,
    StreamFigure,
    VideoFigure,
)
from satlab.report.terminal import CHECKS, mbits, quantity


@dataclass(frozen=True)
class ReportRun:
    """One run folder, read: its manifest, link plan, records, stored loads, and what is wrong with
    its raw files.

    `loads`, `observations`: kind (rows.kind_of_load) and load.
    """

    manifest: collect.Manifest
    link: Mapping[str, Any] | None
    options: tuple[str, ...]
    frame: collect.Table
    rows: tuple[Row, ...]
    loads: tuple[tuple[str, collect.PageLoad], ...]
    altered: tuple[str, ...]
    observations: tuple[tuple[str, collect.PageObservation], ...] = ()

    @property
    def is_calibrated(self) -> bool:
        whole = [row.value == 1 for row in self.rows if row.metric == "calibration_ok"]
        return bool(whole) and all(whole)

    @property
    def jobs_start_s(self) -> float:
        """Return when the first job began, seconds since the start of the run; 0 when none did."""
        starts = [float(row.labels["start_s"]) for row in self.rows if "start_s" in row.labels]
        return min(starts, default=0.0)


def read_run(folder: Path, run: collect.Collected) -> ReportRun:
    """Complete what was collected of a run folder. Raises `collect.RunFolderError`."""
    about = collect.manifest(folder)
    loads = [(read.kind_of_load(one.load.protocol, one.pep), one.load) for one in run.stored.loads]
    seen = [
        (read.kind_of_load(one.load.protocol, one.pep), one.load) for one in run.stored.observations
    ]
    altered = collect.verify(folder) if about.ended_unix_s is not None else []
    return ReportRun(
        about,
        _link_plan(read.plan(folder)),
        _options(read.plan(folder)) or ("--profile", about.profile),
        run.records,
        tuple(read.summaries([run.records])),
        tuple(loads),
        tuple(altered),
        tuple(seen),
    )


def _link_plan(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the link's plan, or None when it is missing or not whole."""
    try:
        link = plan["link"]
        for direction in ("forward", "return"):
            for key in (
                "loss_ratio",
                "queue_bytes",
                "bdp_bytes",
                "tcp_goodput_bps",
                "one_way_delay_ms",
            ):
                float(link[direction][key])
        float(link["rtt_ms"]["configured"])
    except (ValueError, KeyError, TypeError):
        return None
    return dict(link)


def _options(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the link's options on the command line; none where the plan does not have them."""
    options = plan.get("options")
    return tuple(map(str, options)) if isinstance(options, list) else ()


@dataclass(frozen=True)
class Tile:
    """One answer: a figure with its unit and what it is."""

    figure: str
    unit: str
    caption: str
    state: str = ""


@dataclass(frozen=True)
class PageComparison:
    """One line of the page table: texts, ready to print."""

    metric: str
    protocol: str
    median: str
    spread: str
    loads: str
    published: str
    deviation: str
    note: str
    first: bool
    percentiles: str


class View:
    """Everything the template prints about some runs."""

    def __init__(self, title: str, runs: Sequence[ReportRun]) -> None:
        self.title = title
        self.runs = runs
        self.rows = [row for run in runs for row in run.rows]
        self.names = _names(runs)
        self.transfers = read.transfers(self.rows)
        self.page_figures = read.page_figures(self.rows)
        self.voice = [stream for stream in read.streams(self.rows) if stream.codec]
        self.failures = read.failures(self.rows)
        self.published = self._published()
        self.carried = {
            run_id: self._carried_by(run_id) for run_id in {one.run_id for one in self.transfers}
        }

    # --- the answer -------------------------------------------------------------------------------

    def tiles(self) -> list[Tile]:
        """Return the answers in large print."""
        found = [self._goodput_tile(one) for one in self.transfers[:2]]
        plt = [f for f in self.page_figures if f.metric == "page_load_time_ms"]
        found += [self._page_tile(figure) for figure in plt[:4]]
        found += [self._voice_tile(one) for one in self.voice[:2]]
        found += [_video_tile(one) for one in read.videos(self.rows)[:2]]
        return [*found, self._calibration_tile(), self._samples_tile()]

    def _voice_tile(self, one: StreamFigure) -> Tile:
        where = f"Voice to {one.labels.get('entity', '')}, {one.codec}, {one.profile}"
        mos = one.values["mos"]
        return Tile(
            "-" if mos is None else f"{mos:.2f}", "MOS", f"{where}: estimated by the E-model"
        )

    def _goodput_tile(self, one: BulkTransfer) -> Tile:
        where = f"{one.name} over {one.profile}"
        if one.goodput_bps is None:
            return Tile(STATUS[one.status], "", f"Goodput, {where}: {one.reason}", "bad")
        carried = self._carried_bps(one)
        share = f", {one.goodput_bps / carried:.0%} of what the link carries" if carried else ""
        length = "" if one.time_s is None else f"{one.time_s:.0f} s mean"
        return Tile(mbits(one.goodput_bps), "Mbit/s", f"Goodput, {where}, {length}{share}")

    def _page_tile(self, figure: PageFigure) -> Tile:
        name = self._group_name(figure)
        cut_off = f", {figure.censored} cut off" if figure.censored else ""
        loads = "one load" if figure.loads == 1 else f"median of {figure.loads} loads"
        caption = f"Page Load Time over {name}, {figure.profile}, {loads}{cut_off}"
        if figure.median is None:
            return Tile(STATUS[figure.status], "", f"{caption}: {figure.reason}", "bad")
        return Tile(f"{figure.median / 1000:.2f}", "s", caption)

    def _calibration_tile(self) -> Tile:
        checks = [row for run in self.runs for row in _checks(run)]
        count = f"{sum(row.value == 1 for row in checks)}/{len(checks)}"
        if all(run.is_calibrated for run in self.runs):
            return Tile(
                count, "", "Calibration checks held: the link was what the plan says", "good"
            )
        return Tile(
            count, "", "Calibration checks held, not all: read the figures with care", "bad"
        )

    def _samples_tile(self) -> Tile:
        if not self.failures:
            return Tile("0", "", "No measurement failed or was cut off", "good")
        return Tile(
            str(len(self.failures)), "", "Failed or cut off: listed below with the reason", "bad"
        )

    def altered(self) -> list[tuple[str, str]]:
        """Return (run, finding) of every raw file that is not what its run wrote."""
        return [(run.manifest.run_id, finding) for run in self.runs for finding in run.altered]

    def unfinished(self) -> list[str]:
        """Return the ids of runs without an end: their raw files have no digests."""
        return [run.manifest.run_id for run in self.runs if run.manifest.ended_unix_s is None]

    # --- tables -----------------------------------------------------------------------------------

    def comparison(self) -> list[PageComparison]:
        """Return the page table: per metric the protocols below each other, with published medians.

        A run out of calibration has no deviation from them.
        """
        lines: list[PageComparison] = []
        metric = ""
        for figure in self.page_figures:
            lines.append(self._comparison(figure, first=figure.metric != metric))
            metric = figure.metric
        return lines

    def _comparison(self, figure: PageFigure, *, first: bool) -> PageComparison:
        paper = self.published.get((figure.group, figure.metric))
        deviation = ""
        if paper is not None and not self._run(figure.run_id).is_calibrated:
            deviation = "not measurable"
        elif paper is not None and figure.median is not None:
            deviation = f"{figure.median / paper - 1:+.1%}".replace("-", "\N{MINUS SIGN}")
        spread = (
            ""
            if figure.low is None or figure.high is None
            else f"{figure.low:,.0f} to {figure.high:,.0f}"
        )
        lost = [
            f"{n} {name}"
            for n, name in ((figure.failed, "failed"), (figure.censored, "cut off"))
            if n
        ]
        return PageComparison(
            PAGE_METRICS[figure.metric],
            self._group_name(figure),
            STATUS[figure.status] if figure.median is None else f"{figure.median:,.0f}",
            spread,
            f"{figure.ended} of {figure.loads}" + (f" ({', '.join(lost)})" if lost else ""),
            "" if paper is None else f"{paper:,.0f}",
            deviation,
            figure.reason,
            first,
            ", ".join(
                f"p{share} {STATUS['censored'] if v is None else f'{v:,.0f}'}"
                for share, v in figure.percentiles
            ),
        )

    def bulk(self) -> list[tuple[str, ...]]:
        """Return the bulk table's cells, as in `BULK_COLUMNS`."""
        return [self._bulk_cells(one) for one in self.transfers]

    def _bulk_cells(self, one: BulkTransfer) -> tuple[str, ...]:
        carried = self._carried_bps(one)
        share = (
            f"{one.goodput_bps / carried:.0%}" if carried and one.goodput_bps is not None else ""
        )
        return (
            self.names[one.run_id],
            f"{one.name} {one.labels.get('direction', '')}".strip(),
            mbits(one.goodput_bps) if one.goodput_bps is not None else STATUS[one.status],
            mbits(one.steady_bps),
            mbits(carried),
            share,
            _count(one.received_bytes, 1e-6, 2),
            _count(one.time_s, 1, 1),
            one.lost or _count(one.retransmits, 1, 0),
            _count(one.cwnd_max_bytes, 1e-6, 2),
            _count(one.rtt_ms, 1, 0),
        )

    def streams(self) -> list[tuple[str, ...]]:
        """Return the cells of the streams' table, as in `STREAM_COLUMNS`."""
        return [self._stream_cells(one) for one in read.streams(self.rows)]

    def _stream_cells(self, one: StreamFigure) -> tuple[str, ...]:
        def value(metric: str, digits: int, scale: float = 1.0) -> str:
            return _count(one.values.get(metric), scale, digits)

        delays = (value(f"one_way_delay_ms {stat}", 1) for stat in ("min", "p95", "max"))
        median = value("one_way_delay_ms median", 1) if one.status == "ok" else STATUS[one.status]
        return (
            *(
                self.names[one.run_id],
                one.labels.get("function", ""),
                one.codec,
                value("mos", 2),
                median,
                *delays,
            ),
            *(
                value("stream_jitter_ms", 2),
                value("stream_loss_ratio", 2, 100),
                value("mouth_to_ear_ms", 0),
            ),
        )

    def videos(self) -> list[tuple[str, ...]]:
        """Return the cells of the videos' table, as in `VIDEO_COLUMNS`."""
        return [(self.names[one.run_id], *_video_cells(one)) for one in read.videos(self.rows)]

    def calibration(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its checks), each as in `CALIBRATION_COLUMNS`."""
        return [
            (self.names[run.manifest.run_id], [_check(row) for row in _checks(run)])
            for run in self.runs
        ]

    def link(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its directions): what the emulator counted while the jobs ran, as in
        `LINK_COLUMNS`.
        """
        return [(self.names[run.manifest.run_id], _directions(run)) for run in self.runs]

    def terminals(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its terminals) of the runs with several, as in `TERMINAL_COLUMNS`."""
        found = [
            (self.names[run.manifest.run_id], shares.terminal_rows(run.rows)) for run in self.runs
        ]
        return [(name, lines) for name, lines in found if lines]

    def queues(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its queues) of the runs with times in queues, as in `QUEUE_COLUMNS`."""
        found = [
            (self.names[run.manifest.run_id], shares.queue_rows(run.rows)) for run in self.runs
        ]
        return [(name, lines) for name, lines in found if lines]

    def fairness(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its indexes of fairness), as in `FAIRNESS_COLUMNS`."""
        found = [
            (self.names[run.manifest.run_id], shares.fairness_rows(run.rows)) for run in self.runs
        ]
        return [(name, lines) for name, lines in found if lines]

    def clients(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return (run, its clients) of the runs with page loads of several, as in `CLIENT_COLUMNS`."""
        found = [
            (self.names[run.manifest.run_id], shares.client_rows(run.rows)) for run in self.runs
        ]
        return [(name, lines) for name, lines in found if lines]

    # --- figures ----------------------------------------------------------------------------------

    def bulk_figures(self) -> list[Figure]:
        """Draw goodput of all transfers, then window and queue of each."""
        bulks = [self._bulk(one) for one in self.transfers if one.labels.get("transfer")]
        drawn = [
            figures.goodput(bulks),
            *(figures.window(bulk, n) for n, bulk in enumerate(bulks, start=1)),
        ]
        return [figure for figure in drawn if figure]

    def page_plots(self) -> list[Figure]:
        """Draw every load, then one waterfall per protocol and run, all over the same time."""
        groups = self._page_groups()
        spread = figures.page_spread(self.rows, self.page_figures, self.published, groups)
        typical = [(load, name) for group, name in groups.items() if (load := self._typical(group))]
        until_s = max(
            (r.response_end_ms / 1000 for load, _ in typical for r in load.resources), default=0.0
        )
        until_s = max([until_s, *((load.page_load_time_ms or 0) / 1000 for load, _ in typical)])
        falls = [
            figures.waterfall(load, name, n, until_s)
            for n, (load, name) in enumerate(typical, start=1)
        ]
        return ([spread] if spread else []) + falls

    def filmstrip(self) -> film.Filmstrip | None:
        """Return the filmstrips of typical observed loads, one per page, protocol, proxy and run."""
        return film.filmstrip(self._observed())

    def phase_plots(self) -> list[Figure]:
        """Draw the phases of the requests of typical observed loads, all over the same time."""
        loads = self._observed()
        until_s = (
            max((one.end_ms or 0.0 for _, load in loads for one in load.requests), default=0.0)
            / 1000
        )
        return [
            film.phases(load, name, n, until_s) for n, (name, load) in enumerate(loads, start=1)
        ]

    def _observed(self) -> list[tuple[str, collect.PageObservation]]:
        def seen(group: PageGroup) -> list[collect.PageObservation]:
            return [
                load
                for kind, load in self._run(group.run_id).observations
                if (load.page, kind) == group[1:]
            ]

        return [
            (name, load)
            for group, name in self._page_groups().items()
            if (load := film.typical(seen(group)))
        ]

    def link_figures(self) -> list[Figure]:
        """Draw the MODCODs of forward links, the slots of return links on demand, and the release
        error of all runs.
        """
        runs = list(enumerate(self.runs, start=1))
        adapted = [figures.adaptation(self._fading(run), n) for n, run in runs]
        slots = [
            figures.slots(self.names[run.manifest.run_id], run.jobs_start_s, run.frame, n)
            for n, run in runs
        ]
        return [figure for figure in (*adapted, *slots, self._lateness()) if figure]

    def _fading(self, run: ReportRun) -> figures.Fading:
        sent = {
            row.labels["modcod"]: row.value
            for row in run.rows
            if row.metric == "link_modcod_frames"
            and row.labels["direction"] == "forward"
            and row.value is not None
        }
        forward = (run.link or {}).get("forward", {})
        return figures.Fading(
            self.names[run.manifest.run_id], run.jobs_start_s, run.frame, sent, forward
        )

    def _lateness(self) -> Figure | None:
        limits = [
            row.value
            for row in self.rows
            if row.metric == "link_late_limit_us" and row.value is not None
        ]
        runs = [(self.names[run.manifest.run_id], run.jobs_start_s, run.frame) for run in self.runs]
        return figures.lateness(runs, min(limits, default=None))

    def _bulk(self, one: BulkTransfer) -> Bulk:
        run = self._run(one.run_id)
        name = f"{one.name} over {one.profile}"
        if sum((t.name, t.profile) == (one.name, one.profile) for t in self.transfers) > 1:
            name += f", {self.names[one.run_id]}, transfer {one.labels['transfer']}"
        queue = None if run.link is None else float(run.link["forward"]["queue_bytes"])
        changing = self._carried(one)
        return Bulk(
            name,
            run.frame,
            one.labels["transfer"],
            run.jobs_start_s,
            one.clock_error_s,
            self._carried_bps(one),
            queue,
            changing if len(changing) > 1 else (),
        )

    def _typical(self, group: PageGroup) -> collect.PageLoad | None:
        """Return the load whose Page Load Time is nearest the median."""
        ended = [
            (load.page_load_time_ms, load)
            for kind, load in self._run(group.run_id).loads
            if (load.page, kind) == group[1:] and load.page_load_time_ms is not None
        ]
        ended.sort(key=lambda pair: (pair[0], pair[1].load_index))
        return ended[(len(ended) - 1) // 2][1] if ended else None

    # --- where it comes from ----------------------------------------------------------------------

    def commands(self) -> list[str]:
        """Return the command that repeats each run."""
        return [_command(run) for run in self.runs]

    def provenance(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return (run, facts) of every run."""
        return [(run.manifest.run_id, _facts(run)) for run in self.runs]

    def _run(self, run_id: str) -> ReportRun:
        return next(run for run in self.runs if run.manifest.run_id == run_id)

    def _carried_bps(self, one: BulkTransfer) -> float | None:
        """Return the TCP payload rate that the link carries, the mean while payload arrived."""
        run = self._run(one.run_id)
        if run.link is None or one.labels.get("transport") != "TCP":
            return None
        transfer = one.labels.get("transfer")  # those of FTP have no series
        arrived = (
            [] if transfer is None else read.series(run.frame, "goodput_bps", transfer=transfer)
        )
        measured = capacity.mean_bps(
            self._carried(one), (t_s - run.jobs_start_s for t_s, _ in arrived)
        )
        direction = "forward" if one.labels.get("direction") == "download" else "return"
        return float(run.link[direction]["tcp_goodput_bps"]) if measured is None else measured

    def _carried(self, one: BulkTransfer) -> figures.Points:
        """Return what the forward link carries from when on; empty where that is not known."""
        is_tcp_down = (one.labels.get("transport"), one.labels.get("direction")) == (
            "TCP",
            "download",
        )
        return self.carried[one.run_id] if is_tcp_down else ()

    def _carried_by(self, run_id: str) -> figures.Points:
        run = self._run(run_id)
        if run.link is None:
            return ()
        modcod_ids = read.series(run.frame, "link_modcod_id", direction="forward")
        return capacity.over_time(
            [(t_s - run.jobs_start_s, value) for t_s, value in modcod_ids], run.link["forward"]
        )

    def _page_groups(self) -> dict[PageGroup, str]:
        return {figure.group: self._group_name(figure) for figure in self.page_figures}

    def _group_name(self, figure: PageFigure) -> str:
        """Name the loads of a figure among those of the report: page and run where there are
        several.
        """
        alike = {f.run_id for f in self.page_figures if f.group[1:] == figure.group[1:]}
        page = [figure.page] if len({f.page for f in self.page_figures}) > 1 else []
        run = [self.names[figure.run_id]] if len(alike) > 1 else []
        return ", ".join([*page, figure.kind, *run])

    def _published(self) -> dict[tuple[PageGroup, str], float | None]:
        return {
            (f.group, f.metric): published.published_ms(
                f.profile, f.page, f.protocol, f.pep, f.metric, self._run(f.run_id).link
            )
            for f in self.page_figures
        }


BULK_COLUMNS = (
    "Run",
    "Transfer",
    "Goodput (Mbit/s)",
    "Steady (Mbit/s)",
    "Link carries (Mbit/s)",
    "Share",
    "Received (MB)",
    "Time (s)",
    "Retransmitted or lost",
    "Largest window (MB)",
    "Median RTT (ms)",
)
STREAM_COLUMNS = (
    *(
        "Run",
        "Stream",
        "Codec",
        "MOS",
        "Delay, median ms",
        "Min ms",
        "95 % ms",
        "Max ms",
        "Jitter ms",
        "Loss %",
    ),
    "Mouth to ear ms",
)
VIDEO_COLUMNS = (
    "Run",
    "Video",
    "Segments",
    "Mean bitrate (Mbit/s)",
    "Start-up (s)",
    "Stalls",
    "Stalled (s)",
    "Switches",
)
LINK_COLUMNS = (
    "Direction",
    "Released (MB)",
    "Dropped, queue full (packets)",
    "Lost on the link (packets)",
    "Largest queue (MB)",
    "Release error p50 (µs)",
    "p99 (µs)",
    "max (µs)",
)
CALIBRATION_COLUMNS = ("Check", "Verdict", "Measured", "Expected", "Low", "High", "Unit", "Note")
STATUS = {"failed": "failed", "censored": "cut off", "ok": "ok"}
LINK_METRICS = {
    "link_out_bytes": 1e-6,
    "link_dropped_packets": 1,
    "link_lost_packets": 1,
    "link_queue_max_bytes": 1e-6,
    "link_release_late_p50_us": 1,
    "link_release_late_p99_us": 1,
    "link_release_late_max_us": 1,
}


def _video_tile(one: VideoFigure) -> Tile:
    bitrate, stalls = one.values["video_bitrate_bps"], one.values.get("video_stalls_count")
    if bitrate is None:
        return Tile(STATUS[one.status], "", f"{one.name}, {one.profile}: {one.reason}", "bad")
    stalled = (
        f"{stalls:.0f} stalls, {one.values.get('video_stalled_s') or 0:.1f} s"
        if stalls
        else "no stall"
    )
    return Tile(mbits(bitrate), "Mbit/s", f"{one.name}, {one.profile}: mean bitrate; {stalled}")


def _video_cells(one: VideoFigure) -> tuple[str, ...]:
    def value(metric: str, digits: int, scale: float = 1.0) -> str:
        return _count(one.values.get(f"video_{metric}"), scale, digits)

    bitrate = value("bitrate_bps", 2, 1e-6) if one.status == "ok" else STATUS[one.status]
    stalls = value("stalls_count", 0), value("stalled_s", 1)
    segments = one.labels.get("n", "")  # none where nothing was stored
    return (
        one.name,
        segments,
        bitrate,
        value("startup_ms", 2, 1e-3),
        *stalls,
        value("switches_count", 0),
    )


def _checks(run: ReportRun) -> list[Row]:
    return [row for row in run.rows if row.metric == "calibration_check_ok"]


def _check(row: Row) -> tuple[str, ...]:
    labels = row.labels
    pairs = [
        quantity(labels.get(key, "none"), labels["unit"])
        for key in ("measured", "expected", "low", "high")
    ]
    verdict = "not measured" if row.value is None else "ok" if row.value else "outside"
    name = CHECKS.get(labels["check"], labels["check"])
    return name, verdict, *(number for number, _ in pairs), pairs[1][1], labels["note"]


def _directions(run: ReportRun) -> list[tuple[str, ...]]:
    found: dict[str, dict[str, str]] = {}
    for row in run.rows:
        if row.metric in LINK_METRICS and "direction" in row.labels:
            scale = LINK_METRICS[row.metric]
            cell = _count(row.value, scale, 0 if scale == 1 else 2)
            found.setdefault(row.labels["direction"], {})[row.metric] = cell
    return [
        (direction.replace("_", " "), *(cells.get(metric, "") for metric in LINK_METRICS))
        for direction, cells in found.items()
    ]


def _names(runs: Sequence[ReportRun]) -> dict[str, str]:
    """Name runs by scenario and profile; alike ones also by what differs of emulator and arguments,
    or by their id.
    """
    short = {
        run.manifest.run_id: f"{run.manifest.scenario} over {run.manifest.profile}" for run in runs
    }
    for name in [name for name, count in Counter(short.values()).items() if count > 1]:
        alike = [run.manifest for run in runs if short[run.manifest.run_id] == name]
        settings = [{"emulator": one.emulator, **one.arguments} for one in alike]
        for about, differing in zip(alike, _differing(settings), strict=True):
            short[about.run_id] = f"{name}, {differing or about.run_id}"
    again = Counter(short.values())
    return {
        run_id: name if again[name] == 1 else f"{name}, {run_id[-4:]}"
        for run_id, name in short.items()
    }


def _differing(arguments: Sequence[Mapping[str, str]]) -> list[str]:
    keys = sorted(set().union(*arguments))
    keys = [key for key in keys if len({one.get(key) for one in arguments}) > 1]
    return [" ".join(f"{key}={one.get(key, 'unset')}" for key in keys) for one in arguments]


def _count(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{value * scale:,.{digits}f}"


def _command(run: ReportRun) -> str:
    about = run.manifest
    argv = ["./satlab", "run", f"openbach-scenarios/scenarios/{about.scenario}.json", *run.options]
    for name, value in sorted(about.arguments.items()):
        argv += ["--set", f"{name}={value}"]
    return shlex.join(argv)


def _facts(run: ReportRun) -> list[tuple[str, str]]:
    about = run.manifest
    host = ", ".join(f"{key} {_fact(value)}" for key, value in sorted(about.host.items()))
    facts = [
        ("status", about.status + (f": {about.reason}" if about.reason else "")),
        ("scenario", f"{about.scenario}, SHA-256 {about.scenario_sha256}"),
        ("profile", f"{about.profile}, SHA-256 {about.profile_sha256}"),
        ("lab, emulator, seed", f"{about.lab}, {about.emulator}, {about.seed}"),
        ("arguments", ", ".join(f"{k}={v}" for k, v in sorted(about.arguments.items())) or "none"),
        ("host", host),
        (
            "versions",
            ", ".join(f"{name} {version}" for name, version in sorted(about.versions.items())),
        ),
        ("raw files", f"{len(about.files)}, {'changed since' if run.altered else 'as written'}"),
    ]
    if run.link is not None:
        facts.insert(3, ("link", _link_text(run.link)))
    return facts


def _fact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _link_text(link: Mapping[str, Any]) -> str:
    forward, back = link["forward"], link["return"]
    return (
        f"forward {forward['modcod']}, {forward['rate_bps'] / 1e6:.2f} Mbit/s,"
        f" {forward['one_way_delay_ms']:g} ms; return {back['rate_bps'] / 1e6:.2f} Mbit/s;"
        f" terrestrial {link['terrestrial_one_way_delay_ms']:g} ms; RTT"
        f" {link['rtt_ms']['configured']:g} ms; forward queue {forward['queue_bytes']:,} bytes;"
        f" loss {forward['loss_ratio']:g} per {forward['loss_unit']}"
    )
