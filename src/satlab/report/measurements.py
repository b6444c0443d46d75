# SPDX-License-Identifier: GPL-3.0-or-later
"""Transfers, streams, videos, page metrics and failures of runs, joined from their records."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import collect
from collect import iperf3, page_loads, raw

PAGE_METRICS = {
    "response_start_ms": "Response Start",
    "first_contentful_paint_ms": "First Contentful Paint",
    "largest_contentful_paint_ms": "Largest Contentful Paint",
    page_loads.LAYOUT_SHIFT: "Cumulative Layout Shift (no unit)",
    page_loads.INTERACTION: "Interaction to Next Paint of a click",
    "speed_index_ms": "Speed Index",
    "page_load_time_ms": "Page Load Time",
}
"""Page metrics, in ms; `LAYOUT_SHIFT` has no unit."""
PLAN_BYTES = 16 << 20
PROTOCOLS = {"h1": "HTTP/1.1", "h2": "HTTP/2", "h3": "HTTP/3"}


def plan(folder: Path) -> Mapping[str, Any]:
    """Return plan.json of a run folder, which may be somebody else's; empty if it is none."""
    try:
        with raw.open_plain(folder, "plan.json", PLAN_BYTES) as file:
            found = json.load(file)
    except (OSError, raw.RefusedError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class SummaryRecord:
    """One summary record."""

    run_id: str
    scenario: str
    profile: str
    lab: str
    metric: str
    value: float | None
    t_s: float | None
    status: str
    reason: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class BulkTransfer:
    """One bulk transfer. Rates in bit/s of payload; None where nothing was measured.

    `carried_bps`: the TCP payload rate that the link carried while payload arrived, where its plan
    is known. `terminal`: its number, 0 where all transfers of the run have one client.
    """

    run_id: str
    profile: str
    labels: Mapping[str, str]
    goodput_bps: float | None
    steady_bps: float | None
    received_bytes: float | None
    time_s: float | None
    retransmits: float | None
    cwnd_max_bytes: float | None
    rtt_ms: float | None
    clock_error_s: float
    lost: str
    status: str
    reason: str
    carried_bps: float | None = None
    terminal: int = 0

    @property
    def direction(self) -> str:
        return self.labels.get("direction", "")

    @property
    def title(self) -> str:
        """Return name and direction, and the terminal where there are several."""
        title = f"{self.name} {self.direction}".strip()
        return f"{title}, terminal {self.terminal}" if self.terminal else title

    @property
    def name(self) -> str:
        """Return the transport and its congestion control. A failed transfer without these labels
        has the name of its function in the scenario.
        """
        if "transport" not in self.labels:
            return self.labels.get("function", "")
        return f"{self.labels['transport']} {self.labels['congestion_control']}".strip()


@dataclass(frozen=True)
class MediaFigure:
    """One stream of packets, adaptive video, or measurement of responsiveness.

    Keys of `values` are the metric, followed by the statistic if the metric is a delay. Units: bit/s,
    ms, s, ratios, counts, MOS.
    """

    run_id: str
    profile: str
    labels: Mapping[str, str]
    values: Mapping[str, float | None]
    status: str
    reason: str
    codec: str = ""

    @property
    def name(self) -> str:
        """Name the function, and the protocol of a video."""
        function, protocol = self.labels.get("function", ""), self.labels.get("protocol", "")
        return f"{function} over {PROTOCOLS[protocol]}" if protocol in PROTOCOLS else function


class PageGroup(NamedTuple):
    """What the loads behind one figure have in common; `kind` as in `kind_of_load`."""

    run_id: str
    page: str
    kind: str


@dataclass(frozen=True)
class PageFigure:
    """One metric of a page over all loads of a run with one protocol through one PEP (`none`:
    without), ms.
    """

    run_id: str
    profile: str
    page: str
    protocol: str
    pep: str
    metric: str
    median: float | None
    low: float | None
    high: float | None
    ended: int
    failed: int
    censored: int
    status: str
    reason: str
    percentiles: tuple[tuple[int, float | None], ...] = ()
    """(75, ms) and so on, of enough loads alone; None: cut off."""
    host_ms: float | None = None
    """The part of a Page Load Time that is the host's, median; None: unknown."""

    @property
    def kind(self) -> str:
        return kind_of_load(self.protocol, self.pep)

    @property
    def group(self) -> PageGroup:
        return PageGroup(self.run_id, self.page, self.kind)

    def text(self, value: float) -> str:
        """Return a value of this metric as text, without its unit."""
        return f"{value:.3f}" if self.metric == page_loads.LAYOUT_SHIFT else f"{value:,.0f}"

    @property
    def loads(self) -> int:
        """Return the number of loads that were started."""
        return self.ended + self.failed + self.censored


@dataclass(frozen=True)
class Failure:
    """Failed or cut-off samples: the metrics, place, reason."""

    run_id: str
    metrics: tuple[str, ...]
    status: str
    place: str
    reason: str


def summaries(frames: Iterable[collect.Table]) -> list[SummaryRecord]:
    """Return the summary records of several runs."""
    return [SummaryRecord(**row) for frame in frames for row in collect.summaries(frame)]


def series(frame: collect.Table, metric: str, **labels: str) -> list[tuple[float, float]]:
    """Return (t_s, value) of one metric, of the rows that carry all of `labels`, in their order."""
    rows = frame.lazy().filter(
        (pl.col("metric") == metric) & pl.col("t_s").is_not_null() & pl.col("value").is_not_null()
    )
    for key, value in labels.items():
        needle = json.dumps({key: value}, ensure_ascii=False)[1:-1]
        rows = rows.filter(pl.col("labels").str.contains(needle, literal=True))
    found = rows.select("t_s", "value").collect(engine="streaming")
    return list(zip(found["t_s"].to_list(), found["value"].to_list(), strict=True))


def series_by(
    frame: collect.Table, metric: str, key: str, **labels: str
) -> dict[str, list[tuple[float, float]]]:
    """Return the series of one metric for each value of label `key`, as `series` does."""
    values = (
        frame.lazy()
        .filter((pl.col("metric") == metric) & pl.col("t_s").is_not_null())
        .select(pl.col("labels").str.json_path_match(f"$.{key}").unique(maintain_order=True))
        .collect(engine="streaming")
    )
    found = {
        each: series(frame, metric, **labels, **{key: each}) for each in values["labels"] if each
    }
    return {each: points for each, points in found.items() if points}


def handovers(frame: collect.Table) -> list[tuple[float, str]]:
    """Return (t_s, what in words) of each handover of the link; of both directions once."""
    found = (
        frame.lazy()
        .filter((pl.col("metric") == "link_handovers") & pl.col("t_s").is_not_null())
        .select("t_s", "labels")
        .collect(engine="streaming")
    )
    moved: dict[tuple[float, str], set[str]] = defaultdict(set)
    for t_s, text in zip(found["t_s"].to_list(), found["labels"].to_list(), strict=True):
        labels = json.loads(text)
        moved[round(t_s, 2), labels["to"]].add(labels.get("terminal", ""))
    return sorted((t_s, _handover(to, terminals)) for (t_s, to), terminals in moved.items())


def _handover(to: str, terminals: Collection[str]) -> str:
    """Word a handover; `terminals`: numbers, "" for all."""
    if not to.startswith("GW"):
        return "handover"
    (first, *others) = terminals
    return f"terminal {first} to {to}" if first and not others else f"to {to}"


def transfers(rows: Iterable[SummaryRecord]) -> list[BulkTransfer]:
    """Return all bulk transfers: totals from the client's records, window and RTT from the
    sender's.
    """
    found: dict[tuple[str, str], dict[str, SummaryRecord]] = defaultdict(dict)
    for row in rows:
        if (
            row.labels.get("job") in ("satlab_ftp", "satlab_satperf", *iperf3.JOBS)
            and row.labels.get("stat", "median") == "median"
        ):
            key = row.run_id, row.labels.get("transfer") or f"instance {row.labels['instance']}"
            found[key][row.metric] = row
    made = [_transfer(group) for group in found.values() if "goodput_bps" in group]
    clients = {(one.run_id, one.labels.get("entity", "")) for one in made}
    several = {run_id for run_id, count in Counter(run for run, _ in clients).items() if count > 1}
    return [
        replace(one, terminal=_terminal(one.labels)) if one.run_id in several else one
        for one in made
    ]


def _terminal(labels: Mapping[str, str]) -> int:
    """Return the number of the terminal of a client: client-2 is behind terminal 2."""
    found = re.fullmatch(r"client(?:-(\d{1,3}))?", labels.get("entity", ""))
    return int(found[1] or 1) if found else 0


def _transfer(group: Mapping[str, SummaryRecord]) -> BulkTransfer:
    def value(metric: str) -> float | None:
        return group[metric].value if metric in group else None

    head = group["goodput_bps"]
    lost, sent = value("udp_lost_packets"), value("udp_sent_packets")
    return BulkTransfer(
        head.run_id,
        head.profile,
        head.labels,
        head.value,
        value("goodput_steady_bps"),
        value("received_bytes"),
        value("transfer_time_s"),
        value("retransmits_count"),
        value("cwnd_max_bytes"),
        value("tcp_rtt_ms"),
        value("series_clock_error_s") or 0.0,
        f"{lost / sent:.2%}" if sent and lost is not None else "",
        head.status,
        head.reason,
    )


def streams(rows: Iterable[SummaryRecord]) -> list[MediaFigure]:
    """Return the streams of packets and loads."""
    found: dict[tuple[str, str], dict[str, SummaryRecord]] = defaultdict(dict)
    for row in rows:
        if row.labels.get("job") in ("satlab_load", "satlab_stream"):
            stat = row.labels.get("stat", "")
            found[row.run_id, row.labels["instance"]][f"{row.metric} {stat}".strip()] = row
    # The delay of a stream that failed has no statistic.
    return _media(found.values(), "one_way_delay_ms median", "one_way_delay_ms")


def responses(rows: Iterable[SummaryRecord]) -> list[MediaFigure]:
    """Return the measurements of responsiveness under load. Keys of `values` are the metric, then
    the phase, then the statistic.
    """
    found: dict[tuple[str, str], dict[str, SummaryRecord]] = defaultdict(dict)
    for row in rows:
        if row.metric.startswith("probe_") or row.metric == "responsiveness_rpm":
            key = " ".join((row.metric, row.labels.get("phase", ""), row.labels.get("stat", "")))
            found[row.run_id, row.labels["instance"]][key.strip()] = row
    return _media(found.values(), "responsiveness_rpm")


def videos(rows: Iterable[SummaryRecord]) -> list[MediaFigure]:
    """Return the adaptive videos."""
    found: dict[tuple[str, str], dict[str, SummaryRecord]] = defaultdict(dict)
    for row in rows:
        if row.metric.startswith("video_"):
            found[row.run_id, row.labels["instance"]][row.metric] = row
    return _media(found.values(), "video_bitrate_bps")


def _media(groups: Iterable[Mapping[str, SummaryRecord]], *metrics: str) -> list[MediaFigure]:
    """Return the figure of each group that has one of `metrics`: the first one has its status."""
    figures = []
    for group in groups:
        head = next((group[metric] for metric in metrics if metric in group), None)
        if head is not None:
            values = {name: row.value for name, row in group.items()}
            codec = group["mos"].labels["codec"] if "mos" in group else ""
            about = head.run_id, head.profile, head.labels, values
            figures.append(MediaFigure(*about, head.status, head.reason, codec))
    return figures


def page_figures(rows: Iterable[SummaryRecord]) -> list[PageFigure]:
    """Return the page metrics in the order metric, profile, protocol, run."""
    found: dict[tuple[str, str, str, str, str], dict[str, SummaryRecord]] = defaultdict(dict)
    for row in rows:
        if row.metric in (*PAGE_METRICS, page_loads.HOST_PART) and "stat" in row.labels:
            key = (
                row.metric,
                row.run_id,
                row.labels["page"],
                row.labels["protocol"],
                row.labels["pep"],
            )
            found[key][row.labels["stat"]] = row
    order = list(PAGE_METRICS)
    figures = []
    for key, group in found.items():
        if key[0] == page_loads.HOST_PART:
            continue
        is_whole = key[0] == "page_load_time_ms"
        host = found.get((page_loads.HOST_PART, *key[1:]), {}) if is_whole else {}
        host_ms = host["median"].value if "median" in host else None
        figures.append(replace(_page_figure(group), host_ms=host_ms))
    return sorted(
        figures, key=lambda f: (order.index(f.metric), f.profile, f.page, f.kind, f.run_id)
    )


def _page_figure(group: Mapping[str, SummaryRecord]) -> PageFigure:
    def value(stat: str) -> float | None:
        return group[stat].value if stat in group else None

    head = group["median"]
    count = {key: int(head.labels[key]) for key in ("n", "failed", "censored")}
    return PageFigure(
        head.run_id,
        head.profile,
        head.labels["page"],
        head.labels["protocol"],
        head.labels["pep"],
        head.metric,
        value("median"),
        value("min"),
        value("max"),
        count["n"],
        count["failed"],
        count["censored"],
        head.status,
        head.reason,
        tuple(
            (share, value(f"p{share}")) for share in page_loads.PERCENTILES if f"p{share}" in group
        ),
    )


def kind_of_load(protocol: str, pep: str) -> str:
    """Return the kind of a load: its protocol, and the PEP if there is one. Only loads of the same
    kind are compared.
    """
    name = PROTOCOLS.get(protocol, protocol)
    return name if pep == collect.NO_PEP else f"{name}, PEP {pep}"


def group_of(load: SummaryRecord) -> PageGroup:
    """Return the group of a row of a page load."""
    return PageGroup(
        load.run_id, load.labels["page"], kind_of_load(load.labels["protocol"], load.labels["pep"])
    )


def loads(rows: Iterable[SummaryRecord], metric: str) -> Iterator[SummaryRecord]:
    """Yield one metric of single page loads."""
    return (row for row in rows if row.metric == metric and "load" in row.labels)


def failures(rows: Iterable[SummaryRecord]) -> list[Failure]:
    """Return the failed and cut-off samples; metrics that failed together are one line."""
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row.status != "ok" and "censored" not in row.labels:  # summaries of page loads have that
            groups[row.run_id, row.status, _place(row.labels), row.reason].append(row.metric)
    return [
        Failure(run_id, tuple(dict.fromkeys(metrics)), status, place, reason)
        for (run_id, status, place, reason), metrics in groups.items()
    ]


def _place(labels: Mapping[str, str]) -> str:
    parts = [
        labels.get("function", ""),
        labels.get("file", ""),
        labels.get("direction", ""),
        labels.get("check", ""),
    ]
    parts += [f"{key} {labels[key]}" for key in ("terminal", "fifo") if key in labels]
    parts.append(f"load {labels['load']}" if "load" in labels else "")
    parts.append(f"on {labels['entity']}" if "entity" in labels else "")
    return ", ".join(part for part in parts if part)
