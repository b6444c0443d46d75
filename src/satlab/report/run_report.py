# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of one or more runs: answers, tables and plots, then where they come from."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import collect
from satlab.common.errors import ConfigError
from satlab.report import (
    html,
    link_tables,
    observed_page_loads,
    reported_run,
    run_names,
    run_plots,
    run_tables,
)
from satlab.report import measurements as read
from satlab.report.measurements import (
    PAGE_METRICS,
    BulkTransfer,
    MediaFigure,
    PageFigure,
    PageGroup,
    SummaryRecord,
)
from satlab.report.observed_page_loads import NamedLoad
from satlab.report.page import (
    Cell,
    Facts,
    Filmstrip,
    Page,
    Part,
    Plot,
    Row,
    Section,
    Table,
    Text,
    Tile,
    Tiles,
    all_but,
)
from satlab.report.published_page_metrics import SOURCE as PUBLISHED_SOURCE
from satlab.report.published_page_metrics import published_ms
from satlab.report.reported_run import ReportedRun
from satlab.report.run_plots import Bulk, RunSeries
from satlab.report.run_tables import STATUS, mbits
from satlab.report.waterfall import Below, waterfall


def build(runs: Mapping[Path, collect.Collected], out_html: Path, title: str) -> Path:
    """Write the report of runs (folder: what was collected of it) to `out_html`, atomically, and
    return that path.

    Raw files that have changed since their run are named at the top. The same runs result in the
    same bytes.

    Raises:
        ConfigError: a folder holds no run, or there is none.
    """
    if not runs:
        raise ConfigError("a report needs at least one run folder")
    try:
        content = [reported_run.read_run(folder, run) for folder, run in runs.items()]
    except collect.RunFolderError as error:
        raise ConfigError(
            str(error), hint="a run folder holds manifest.json, plan.json and raw/"
        ) from error
    return html.write(RunReport(title, content).page(), out_html)


class RunReport:
    """Makes the parts of pages about some runs."""

    def __init__(self, title: str, runs: Sequence[ReportedRun]) -> None:
        self.title = title
        self.runs = runs
        named = run_names.names([run.settings for run in runs])
        self.names = dict(zip((run.manifest.run_id for run in runs), named, strict=True))
        self.rows = [row for run in runs for row in run.rows]
        self.transfers = [
            replace(one, carried_bps=self._run(one.run_id).carried_bps(one))
            for one in read.transfers(self.rows)
        ]
        self.page_figures = read.page_figures(self.rows)
        self.failures = read.failures(self.rows)
        self.published = {
            (f.group, f.metric): published_ms(
                f.profile, f.page, f.protocol, f.pep, f.metric, self._run(f.run_id).link
            )
            for f in self.page_figures
        }

    def page(self) -> Page:
        """Return the whole report."""
        sections = []
        if self.page_figures:
            parts: list[Part] = [self.page_loads(), Text(PAGES_NOTE, "note"), *self.films()]
            parts += [*self.page_plots(), *self.phase_plots()]
            sections.append(Section("Page loads", parts))
        if self.transfers:
            runs = self.rows_by_name()
            parts = [self.bulk(), Text(BULK_NOTE, "note")]
            if fairness := link_tables.fairness(runs):
                parts += [fairness, Text(FAIRNESS_NOTE, "note")]
            parts += self.transfer_plots()
            sections.append(Section("Bulk transfer", parts))
        if responses := read.responses(self.rows):
            table = self._of_runs(run_tables.responses(responses, self.names))
            sections.append(Section("Responsiveness", [table, Text(RESPONSES_NOTE, "note")]))
        if streams := read.streams(self.rows):
            table = self._of_runs(run_tables.streams(streams, self.names))
            sections.append(Section("Streams", [table, Text(STREAMS_NOTE, "note")]))
        if videos := read.videos(self.rows):
            table = self._of_runs(run_tables.videos(videos, self.names))
            sections.append(Section("Video", [table, Text(VIDEO_NOTE, "note")]))
        sections += self._link_sections()
        failed: Part = Text("None. Every measurement that was started has its figures.")
        if self.failures:
            failed = self.failed()
        again = shlex.join(str(run.folder) for run in self.runs)
        sections += [
            Section("Failed and cut-off samples", [failed]),
            Section(
                "How to reproduce",
                [
                    *(Text(run.command(), "code") for run in self.runs),
                    Text("Rebuild this page from raw files:", "note"),
                    Text(f"./satlab report {again}", "code"),
                ],
            ),
            Section(
                "Where this comes from",
                [Facts(run.facts(), run.manifest.run_id) for run in self.runs],
            ),
        ]
        return Page("satlab report", self.title, [self.tiles(), *self.alerts()], sections)

    def summary(self) -> list[Section]:
        """Return the answers without plots, for the pages of the service."""
        sections = []
        if self.page_figures:
            table = self.page_loads().columns(*PAGE_COLUMNS[:-1])
            sections.append(Section("Page loads", [table, *self.films()]))
        if self.transfers:
            sections.append(Section("Transfers", [self.bulk()]))
        if self.failures:
            table = self.failed().columns("Run", "Where", "Reason")
            sections.append(Section("Failed or cut off", [table]))
        return sections

    def _link_sections(self) -> list[Section]:
        """Return calibration, and what the link and its terminals did."""
        runs = self.rows_by_name()
        words = (
            "The emulated link was measured end to end before the scenario and watched during it."
        )
        note = Text(LINK_NOTE, "note")
        sections = [
            Section("Calibration", [Text(words), run_tables.calibration(runs)]),
            Section("Link", [run_tables.link(runs), note, *self.link_plots()]),
        ]
        if queues := link_tables.queues(runs):
            sections.append(Section("Queues", [queues, Text(QUEUES_NOTE, "note")]))
        shared: list[Part] = []
        if clients := link_tables.clients(runs):
            shared += [clients, Text(CLIENTS_NOTE, "note")]
        if terminals := link_tables.terminals(runs):
            shared += [terminals, Text(TERMINALS_NOTE, "note")]
        return [*sections, Section("Terminals", shared)] if shared else sections

    # --- the answer -------------------------------------------------------------------------------

    def tiles(self) -> Tiles:
        """Return the answers in large print."""
        loads = [f for f in self.page_figures if f.metric == "page_load_time_ms"]
        voice = [stream for stream in read.streams(self.rows) if stream.codec]
        found = [
            *self._goodput_tiles(),
            *(self._page_tile(figure) for figure in loads[:4]),
            *(_voice_tile(one) for one in voice[:2]),
            *(_video_tile(one) for one in read.videos(self.rows)[:2]),
        ]
        checks = [row for row in self.rows if row.metric == "calibration_check_ok"]
        count = f"{sum(row.value == 1 for row in checks)}/{len(checks)}" if checks else "none"
        if all(run.is_calibrated for run in self.runs):
            caption = "Calibration checks held: the link was what the plan says"
            found.append(Tile(count, caption, state="good"))
        else:
            caption = "Calibration checks held, not all: read the figures with care"
            found.append(Tile(count, caption, state="bad"))
        if self.failures:
            caption = "Failed or cut off: listed below with the reason"
            found.append(Tile(str(len(self.failures)), caption, state="bad"))
        else:
            found.append(Tile("0", "No measurement failed or was cut off", state="good"))
        return Tiles(found)

    def _goodput_tiles(self) -> list[Tile]:
        """Return the first transfers; of terminals that transfer at once their sum and Jain's index."""
        found: list[Tile] = []
        for row in self.rows:
            if row.metric != "fairness_jain_ratio" or row.value is None:
                continue
            alike = [one for one in self.transfers if _is_shared(one, row)]
            total = sum(one.goodput_bps or 0.0 for one in alike)
            labels = row.labels
            what = f"{labels['terminals']} terminals, {labels['transport']} {labels['direction']}"
            where = f" over {row.profile}" if len(self.runs) == 1 else f", {self.names[row.run_id]}"
            found.append(Tile(mbits(total), f"Goodput of {what}{where}, all together", "Mbit/s"))
            found.append(Tile(f"{row.value:.3f}", f"Jain's index of {what}{where}; 1: all equal"))
        if found:
            return found[:4]
        several = len(self.runs) > 1
        return [
            _goodput_tile(one, self.names[one.run_id] if several else f"over {one.profile}")
            for one in self.transfers[:2]
        ]

    def _page_tile(self, figure: PageFigure) -> Tile:
        cut_off = f", {figure.censored} cut off" if figure.censored else ""
        loads = "one load" if figure.loads == 1 else f"median of {figure.loads} loads"
        name = self._group_name(figure)
        caption = f"Page Load Time over {name}, {figure.profile}, {loads}{cut_off}"
        if figure.median is None:
            return Tile(STATUS[figure.status], f"{caption}: {figure.reason}", state="bad")
        return Tile(f"{figure.median / 1000:.2f}", caption, "s")

    def alerts(self) -> list[Text]:
        """Return the faults of raw files, the runs out of calibration, and those that have not ended."""
        altered = [
            f"{run.manifest.run_id}: {finding}" for run in self.runs for finding in run.altered
        ]
        found = [Text(ALTERED, "alert", altered)] if altered else []
        for run in self.runs:
            if run.out_of_calibration:
                words = run.out_of_calibration
                if len(self.runs) > 1:
                    words = f"{self.names[run.manifest.run_id]}: {words}"
                else:
                    words = words[:1].upper() + words[1:]
                found.append(Text(f"{words}.", "warning"))
        return found + [
            Text(f"Run {run.manifest.run_id} {NO_END}", "alert")
            for run in self.runs
            if run.manifest.ended_unix_s is None
        ]

    # --- tables -----------------------------------------------------------------------------------

    def page_loads(self) -> Table:
        """Return the page table: per metric the protocols below each other, with published medians.

        A run out of calibration has no deviation from them.
        """
        rows = [self._page_row(figure) for figure in self.page_figures]
        numbers = all_but(PAGE_COLUMNS, 2)
        caption = "Medians over all loads, ms since navigation start"
        return Table(PAGE_COLUMNS, rows, numbers=numbers, caption=caption, cards=True, keys=2)

    def _page_row(self, figure: PageFigure) -> Row:
        paper = self.published[figure.group, figure.metric]
        deviation = ""
        if paper is not None and not self._run(figure.run_id).is_calibrated:
            deviation = "not measurable"
        elif paper is not None and figure.median is not None:
            deviation = f"{figure.median / paper - 1:+.1%}".replace("-", "\N{MINUS SIGN}")
        median = STATUS[figure.status] if figure.median is None else figure.text(figure.median)
        small = figure.reason
        if figure.host_ms is not None:
            small = f"of which the host: {figure.host_ms:,.0f} ms"
        spread = ""
        if figure.low is not None and figure.high is not None:
            spread = f"{figure.text(figure.low)} to {figure.text(figure.high)}"
        percentiles = ", ".join(
            f"p{share} {STATUS['censored'] if value is None else figure.text(value)}"
            for share, value in figure.percentiles
        )
        lost = [
            f"{count} {name}"
            for count, name in ((figure.failed, "failed"), (figure.censored, "cut off"))
            if count
        ]
        ended = f"{figure.ended} of {figure.loads}" + (f" ({', '.join(lost)})" if lost else "")
        return (
            PAGE_METRICS[figure.metric],
            self._group_name(figure),
            Cell(median, is_strong=True, small=small),
            Cell(spread, small=percentiles),
            ended,
            "" if paper is None else f"{paper:,.0f}",
            deviation,
        )

    def bulk(self) -> Table:
        """Return the table of bulk transfers."""
        return self._of_runs(run_tables.bulk(self.transfers, self.names))

    def _of_runs(self, table: Table) -> Table:
        """Return a table without the names of runs where there is only one."""
        is_one = len(self.runs) == 1
        return table.columns(*(name for name in table.head if not is_one or name != "Run"))

    def failed(self) -> Table:
        """Return the table of failed and cut-off samples."""
        return run_tables.failures(self.failures, self.names)

    # --- plots ------------------------------------------------------------------------------------

    def transfer_plots(self) -> list[Plot]:
        """Draw goodput of all transfers, then for each direction window, RTT and queue."""
        bulks = [self._to_draw(one) for one in self.transfers if one.labels.get("transfer")]
        windows = (
            run_plots.window(
                [bulk for bulk in bulks if (bulk.direction == "upload") == is_upload], number
            )
            for number, is_upload in enumerate((False, True), start=1)
        )
        return [plot for plot in (run_plots.goodput(bulks), *windows) if plot]

    def _to_draw(self, one: BulkTransfer) -> Bulk:
        run = self._run(one.run_id)
        changing = run.carried_by(one)
        way = "return" if one.direction == "upload" else "forward"
        terminals = max((t.terminal for t in self.transfers if t.run_id == one.run_id), default=0)
        return Bulk(
            RunSeries(self._transfer_name(one), run.frame, run.jobs_start_s),
            one.labels["transfer"],
            one.clock_error_s,
            one.carried_bps,
            None if run.link is None else float(run.link[way]["queue_bytes"]),
            changing if len(changing) > 1 else (),
            one.direction,
            one.run_id,
            max(terminals, 1),
        )

    def _transfer_name(self, one: BulkTransfer) -> str:
        """Return what differs from other transfers: the run, the transfer, and else its number."""
        own = [other for other in self.transfers if other.run_id == one.run_id]
        parts = [self.names[one.run_id]] if len(self.runs) > 1 else []
        if len(self.runs) == 1 or len(own) > 1:
            parts.append(one.title)
        if sum(other.title == one.title for other in own) > 1:
            parts.append(f"transfer {one.labels['transfer']}")
        return ", ".join(parts)

    def page_plots(self) -> list[Plot]:
        """Draw every load, then one waterfall per protocol and run. All plots have the same time
        axis.
        """
        groups = self._page_groups()
        spread = run_plots.page_spread(self.rows, self.page_figures, self.published, groups)
        typical = {
            group: load for group in groups if (load := self._typical_load(group)) is not None
        }
        ends_ms = [load.page_load_time_ms or 0 for load in typical.values()]
        ends_ms += [r.response_end_ms for load in typical.values() for r in load.resources]
        until_s = max(ends_ms, default=0.0) / 1000
        falls = [
            waterfall(load, groups[group], number, until_s, self._below(group, load, until_s))
            for number, (group, load) in enumerate(typical.items(), start=1)
        ]
        loads = run_plots.page_distribution(self.rows, groups)
        return [plot for plot in (spread, loads, *falls) if plot]

    def _below(
        self, group: PageGroup, load: collect.PageLoad | collect.PageObservation, until_s: float
    ) -> Below:
        """Return what link and host did during a load, by s since navigation start."""
        run = self._run(group.run_id)
        start_s = load.start_unix_s - run.manifest.started_unix_s
        found = read.series(run.frame, "link_rate_bps", direction="forward")
        rate = [(t_s - start_s, bps * 1e-6) for t_s, bps in found if 0 <= t_s - start_s <= until_s]
        moved = [(t_s - start_s, what) for t_s, what in read.handovers(run.frame)]
        begins_ms = [0.0, *(ends_ms for ends_ms, *_ in load.cpu_curve)]
        steps = [
            (begin_ms / 1000, own, host)
            for begin_ms, (_, own, host) in zip(begins_ms, load.cpu_curve, strict=False)
            if begin_ms / 1000 <= until_s
        ]
        return Below(
            rate if any(mbps for _, mbps in rate) else (),
            [(t_s, own) for t_s, own, _ in steps],
            [(t_s, host) for t_s, _, host in steps],
            [(t_s, what) for t_s, what in moved if 0 <= t_s <= until_s],
        )

    def _typical_load(self, group: PageGroup) -> collect.PageLoad | None:
        """Return the load whose Page Load Time is nearest the median."""
        ended = [
            (one.load.page_load_time_ms, one.load.load_index, one.load)
            for one in self._run(group.run_id).stored.loads
            if _is_of(group, one) and one.load.page_load_time_ms is not None
        ]
        ended.sort(key=lambda found: found[:2])
        return ended[(len(ended) - 1) // 2][2] if ended else None

    def films(self) -> list[Filmstrip]:
        """Return the filmstrips of typical observed loads, one per page, protocol, proxy and run;
        none without such loads.
        """
        films = observed_page_loads.filmstrip(self._observed())
        return [films] if films else []

    def phase_plots(self) -> list[Plot]:
        """Draw the phases of the requests of typical observed loads. All plots have the same time
        axis.
        """
        loads = self._observed()
        ends_ms = [request.end_ms or 0.0 for one in loads for request in one.load.requests]
        until_s = max(ends_ms, default=0.0) / 1000
        return [
            observed_page_loads.phases(
                one, number, until_s, self._below(one.group, one.load, until_s)
            )
            for number, one in enumerate(loads, start=1)
        ]

    def _observed(self) -> list[NamedLoad]:
        found = []
        for group, name in self._page_groups().items():
            stored = self._run(group.run_id).stored.observations
            loads = [one.load for one in stored if _is_of(group, one)]
            if load := observed_page_loads.typical(loads):
                found.append(NamedLoad(name, load, group))
        return found

    def link_plots(self) -> list[Plot]:
        """Draw the MODCODs of forward links, the slots of return links on demand, and the release
        error of all runs.
        """
        named = [
            RunSeries(self.names[run.manifest.run_id], run.frame, run.jobs_start_s)
            for run in self.runs
        ]
        adapted = []
        for number, (run, series) in enumerate(zip(self.runs, named, strict=True), start=1):
            frames = {
                row.labels["modcod"]: row.value
                for row in run.rows
                if row.metric == "link_modcod_frames"
                and row.labels["direction"] == "forward"
                and row.value is not None
            }
            forward = (run.link or {}).get("forward", {})
            adapted.append(run_plots.adaptation(series, frames, forward, number))
        slots = [run_plots.slots(series, number) for number, series in enumerate(named, start=1)]
        limits = [
            row.value
            for row in self.rows
            if row.metric == "link_late_limit_us" and row.value is not None
        ]
        lateness = run_plots.lateness(named, min(limits, default=None))
        waiting = run_plots.waiting(named)
        return [plot for plot in (*adapted, *slots, waiting, lateness) if plot]

    # --- names ------------------------------------------------------------------------------------

    def rows_by_name(self) -> dict[str, Sequence[SummaryRecord]]:
        """Return the summary records of each run by its name."""
        return {self.names[run.manifest.run_id]: run.rows for run in self.runs}

    def _run(self, run_id: str) -> ReportedRun:
        return next(run for run in self.runs if run.manifest.run_id == run_id)

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


def _is_of(group: PageGroup, one: collect.StoredLoad | collect.StoredObservation) -> bool:
    kind = read.kind_of_load(one.load.protocol, one.pep)
    return (one.load.page, kind) == (group.page, group.kind)


def _is_shared(one: BulkTransfer, row: SummaryRecord) -> bool:
    """Return whether a transfer counts in a record of fairness."""
    keys = ("direction", "transport")
    return one.run_id == row.run_id and all(one.labels.get(key) == row.labels[key] for key in keys)


def _goodput_tile(one: BulkTransfer, of: str) -> Tile:
    where = f"{one.title}, {of}"
    if one.goodput_bps is None:
        return Tile(STATUS[one.status], f"Goodput, {where}: {one.reason}", state="bad")
    length = "" if one.time_s is None else f"{one.time_s:.0f} s mean"
    share = ""
    if one.carried_bps:
        share = f", {one.goodput_bps / one.carried_bps:.0%} of what the link carries"
    return Tile(mbits(one.goodput_bps), f"Goodput, {where}, {length}{share}", "Mbit/s")


def _voice_tile(one: MediaFigure) -> Tile:
    mos = one.values["mos"]
    caption = f"Voice to {one.labels.get('entity', '')}, {one.codec}, {one.profile}"
    figure = "-" if mos is None else f"{mos:.2f}"
    return Tile(figure, f"{caption}: estimated by the E-model", "MOS")


def _video_tile(one: MediaFigure) -> Tile:
    bitrate, stalls = one.values["video_bitrate_bps"], one.values.get("video_stalls_count")
    if bitrate is None:
        caption = f"{one.name}, {one.profile}: {one.reason}"
        return Tile(STATUS[one.status], caption, state="bad")
    stalled = "no stall"
    if stalls:
        stalled = f"{stalls:.0f} stalls, {one.values.get('video_stalled_s') or 0:.1f} s"
    return Tile(mbits(bitrate), f"{one.name}, {one.profile}: mean bitrate; {stalled}", "Mbit/s")


PAGE_COLUMNS = (
    "Metric",
    "Protocol",
    "Median (ms)",
    "Min to max (ms)",
    "Loads ended",
    "Published (ms)",
    "Ours vs published",
)
ALTERED = "These are not the raw files that the run wrote. Figures below rest on changed data."
NO_END = "has no end. It is still going on or was killed; nothing vouches for its raw files."
PAGES_NOTE = (
    f"Published: {PUBLISHED_SOURCE}. It is shown only where profile, round-trip time and loss are"
    " the paper's. The authors' link adds 28 to 32 ms of round-trip time of its own. A load that"
    " was cut off counts as longer than all others in the median. The host's part is the"
    " time of the same page in this host's browser over a bare wire, scaled by how much slower the"
    " host was during the load. A slower host raises the whole figure, not only this part."
)
FAIRNESS_NOTE = (
    "Jain's index of transfers at the same time: 1 if their goodputs are equal, 1/n if one of n"
    " transfers gets everything."
)
BULK_NOTE = (
    "Goodput: payload bits at the receiver divided by the time of the transfer, without connection"
    " set-up. Steady: median of the one-second means in the second half. Link carries: the TCP"
    " payload rate that framing and encapsulation leave, 1448-byte segments; the mean over the"
    " transfer, in which the MODCOD may change. What the queue drops in the last round trip is no"
    " longer retransmitted."
)
RESPONSES_NOTE = (
    "Round-trip times of small UDP packets: idle, before the transfers began; loaded, beside them"
    " without their first seconds. Round trips per minute (RPM): 60 s over the mean of the loaded"
    " ones up to their 95th percentile. The goodput of the transfers is in the table of bulk"
    " transfers."
)
STREAMS_NOTE = (
    "One-way delay of each packet, by the nodes' clocks. Jitter: RFC 3550. MOS: estimated by the"
    " E-model (ITU-T G.107) from the delay from mouth to ear, losses and packets that came too late."
)
VIDEO_NOTE = (
    "Segments of fixed length in several bitrates, chosen by the player from throughput and"
    " playback buffer. Start-up: from the first request to the first picture (dash.js), or to the"
    " end of the first segment (our own player). Figures of different players are not comparable."
)
LINK_NOTE = (
    "Counted while the jobs ran, without the calibration; the release error is over the emulator's"
    " whole life."
)
QUEUES_NOTE = (
    "Counted while the jobs ran. Queue p50 to p99: how long packets waited, from their arrival to"
    " the opening of their frame, within 3.2 %. FIFOs of the profile have a line each where there"
    " are several and packets were in them."
)
CLIENTS_NOTE = "Medians of the loads at each client; all loads together are in the table of pages."
TERMINALS_NOTE = (
    "Counted while the jobs ran. Times in the queue are those of packets, as above. Slots are per"
    " superframe."
)
