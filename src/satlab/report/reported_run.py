# SPDX-License-Identifier: GPL-3.0-or-later
"""A run folder as a report reads it: its records, link plan and manifest, and facts."""

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import collect
from satlab.common import paths
from satlab.link import modcods
from satlab.report import measurements as read
from satlab.report import run_names
from satlab.report.measurements import BulkTransfer, SummaryRecord
from satlab.report.page import Points
from satlab.report.run_names import RunSettings


@dataclass(frozen=True)
class ReportedRun:
    """The content of one run folder: manifest, link plan, records, stored loads, and faults of its
    raw files.
    """

    folder: Path
    manifest: collect.Manifest
    link: Mapping[str, Any] | None
    options: tuple[str, ...]
    frame: collect.Table
    rows: tuple[SummaryRecord, ...]
    stored: collect.Stored
    altered: tuple[str, ...]

    @property
    def settings(self) -> RunSettings:
        return run_names.settings_of(self.manifest, self.options)

    @property
    def is_calibrated(self) -> bool:
        whole = [row.value == 1 for row in self.rows if row.metric == "calibration_ok"]
        return bool(whole) and all(whole)

    @property
    def out_of_calibration(self) -> str:
        """Return why the run is out of calibration in a sentence; empty if it is not."""
        if self.is_calibrated:
            return ""
        reasons = (row.reason for row in self.rows if row.metric == "calibration_ok")
        return next(filter(None, reasons), "the link was not calibrated")

    @property
    def jobs_start_s(self) -> float:
        """Return when the first job began, seconds since the start of the run; 0 when none did."""
        starts = [float(row.labels["start_s"]) for row in self.rows if "start_s" in row.labels]
        return min(starts, default=0.0)

    @cached_property
    def carried(self) -> Points:
        """Return the rates that the forward link carries, bit/s of TCP payload, each with its
        start; empty if they are not known.
        """
        if self.link is None:
            return ()
        modcod_ids = read.series(self.frame, "link_modcod_id", direction="forward")
        since_jobs = [(t_s - self.jobs_start_s, value) for t_s, value in modcod_ids]
        return capacity_over_time(since_jobs, self.link["forward"])

    def carried_by(self, one: BulkTransfer) -> Points:
        """Return the rates that the forward link carries, for a transfer on the forward link;
        otherwise nothing.
        """
        kind = one.labels.get("transport"), one.labels.get("direction")
        return self.carried if kind == ("TCP", "download") else ()

    def carried_bps(self, one: BulkTransfer) -> float | None:
        """Return the TCP payload rate that the link carries, the mean while payload arrived."""
        if self.link is None or one.labels.get("transport") != "TCP":
            return None
        transfer = one.labels.get("transfer")  # those of FTP have no series
        arrived: Points = []
        if transfer is not None:
            arrived = read.series(self.frame, "goodput_bps", transfer=transfer)
        measured = mean_capacity_bps(
            self.carried_by(one), (t_s - self.jobs_start_s for t_s, _ in arrived)
        )
        direction = "forward" if one.labels.get("direction") == "download" else "return"
        return float(self.link[direction]["tcp_goodput_bps"]) if measured is None else measured

    def command(self) -> str:
        """Return the command that repeats the run."""
        about = self.manifest
        scenario = f"{about.scenario}.json"
        if (shipped := paths.SCENARIOS / scenario).is_file():
            scenario = str(shipped.relative_to(paths.ROOT))
        argv = ["./satlab", "run", scenario, *self.options]
        for name, value in sorted(about.arguments.items()):
            argv += ["--set", f"{name}={value}"]
        return shlex.join(argv)

    def facts(self) -> list[tuple[str, str]]:
        """Return where the run comes from, by names in words."""
        about = self.manifest
        facts = [
            ("status", about.status + (f": {about.reason}" if about.reason else "")),
            ("scenario", f"{about.scenario}, SHA-256 {about.scenario_sha256}"),
            ("profile", f"{about.profile}, SHA-256 {about.profile_sha256}"),
            ("lab, emulator, seed", f"{about.lab}, {about.emulator}, {about.seed}"),
            ("arguments", ", ".join(f"{k}={v}" for k, v in sorted(about.arguments.items()))),
            ("host", ", ".join(f"{k} {_fact(v)}" for k, v in sorted(about.host.items()))),
            ("versions", ", ".join(f"{k} {v}" for k, v in sorted(about.versions.items()))),
            ("raw files", self._raw_files()),
        ]
        if self.link is not None:
            facts.insert(3, ("link", _link_in_words(self.link)))
        return [(name, text or "none") for name, text in facts]

    def _raw_files(self) -> str:
        """Return the number of raw files and whether they are as the run wrote them."""
        if self.manifest.ended_unix_s is None:  # the manifest gets their digests at the end
            return "not verified"
        return f"{len(self.manifest.files)}, {'changed since' if self.altered else 'as written'}"


def read_run(folder: Path, run: collect.Collected) -> ReportedRun:
    """Read the parts of a run folder that `collect` does not read. Raises `collect.RunFolderError`."""
    about = collect.manifest(folder)
    return ReportedRun(
        folder,
        about,
        _link_plan(read.plan(folder)),
        tuple(run_names.options_of(read.plan(folder))) or ("--profile", about.profile),
        run.records,
        tuple(read.summaries([run.records])),
        run.stored,
        tuple(collect.verify(folder) if about.ended_unix_s is not None else []),
    )


def capacity_over_time(modcod_ids: Points, forward: Mapping[str, Any]) -> Points:
    """Return (s, bit/s of TCP payload) at the start and at each change; empty if the rate of a
    MODCOD is unknown.

    `modcod_ids`: (s since the first job, MODCOD); what is before the first job counts at 0.
    `forward`: the link's plan.
    """
    points: list[tuple[float, float]] = []
    for t_s, number in modcod_ids:
        rate_bps = modcods.forward_rate_bps(forward, int(number))
        if rate_bps is None:
            return []
        carried_bps = float(forward["tcp_goodput_bps"]) * rate_bps / float(forward["rate_bps"])
        if t_s <= 0:
            points = [(0.0, carried_bps)]
        elif not points or points[-1][1] != carried_bps:
            points.append((t_s, carried_bps))
    return points


def mean_capacity_bps(points: Points, times_s: Iterable[float]) -> float | None:
    """Return the mean of the capacity at these times; None without points or times."""
    if not points:
        return None
    starts = [t_s for t_s, _ in points]
    found = [points[max(0, bisect_right(starts, t_s) - 1)][1] for t_s in times_s]
    return fmean(found) if found else None


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


def _fact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _link_in_words(link: Mapping[str, Any]) -> str:
    forward, back = link["forward"], link["return"]
    return (
        f"forward {forward['modcod']}, {forward['rate_bps'] / 1e6:.2f} Mbit/s,"
        f" {forward['one_way_delay_ms']:g} ms; return {back['rate_bps'] / 1e6:.2f} Mbit/s;"
        f" terrestrial {link['terrestrial_one_way_delay_ms']:g} ms; RTT"
        f" {link['rtt_ms']['configured']:g} ms; forward queue {forward['queue_bytes']:,} bytes;"
        f" loss {forward['loss_ratio']:g} per {forward['loss_unit']}"
    )
