# SPDX-License-Identifier: GPL-3.0-or-later
"""A reproduction as one HTML file: the conclusions, Table II and figure 2 compared with published
values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.common.files import write_atomically
from satlab.common.statistics import MIN_RUNS
from satlab.papers import result_tables
from satlab.papers.campaign import Campaign
from satlab.papers.matrix import LOSSES, ORBITS, arguments
from satlab.papers.results import STEP_S, Conclusion, FigureComparison, Results, mean_curve
from satlab.report import html
from satlab.report.figures import COLOURS, DataTable, Figure, Json, axis, line

SOURCE = (
    "Kosek, Cech, Bajpai, Ott: Exploring Proxying QUIC and HTTP/3 for Satellite Communication, IFIP"
    " Networking 2022"
)
NAMES = {
    "response_start_ms": "Response Start (ms)",
    "first_contentful_paint_ms": "First Contentful Paint (ms)",
    "page_load_time_ms": "Page Load Time (ms)",
    "connect_ms": "Connection established (ms)",
    "ttfb_ms": "Time to first byte (ms)",
    "reached_2mb_s": "2 MB received (s)",
    "reached_10mb_s": "10 MB received (s)",
}
COLUMNS = (
    "Type",
    "Loss (%)",
    "Published",
    "Ours, median",
    "95 % interval",
    "n",
    "Cut off",
    "Failed",
    "Uncalibrated",
    "Deviation",
)
NUMBERS = (3, 4, 5, 6, 7, 8, 9, 10)
CONCLUSIONS = ("Conclusion", "Loss (%)", "Verdict", "95 % interval", "n")
TOLERANCE = 0.10
"""Tolerance of a median: the paper's system and this one differ by more than their noise."""
FAR = 0.25
"""Deviation from which a median is marked."""


@dataclass(frozen=True)
class ReproductionPage:
    """What the template shows."""

    campaign: Campaign
    measured: Results

    @property
    def title(self) -> str:
        """Return the page's title."""
        return "Proxying QUIC and HTTP/3 for satellites: the evaluation, repeated"

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        lines = [
            one for one in (*self.measured.pages, *self.measured.bulk) if one.deviation is not None
        ]
        near = sum(abs(one.deviation or 0) <= TOLERANCE for one in lines)
        done = sum(len(result.runs) for result in self.measured.cells.values())
        planned = len(self.campaign.cells) * self.campaign.plan.runs
        bad = sum(one.censored + one.failed for one in lines)
        off = sum(result.uncalibrated for result in self.measured.cells.values())
        return [
            (f"{done}/{planned}", "runs done, each in a fresh lab", ""),
            (f"{near}/{len(lines)}", "medians within 10 % of the published ones", ""),
            _verdicts_tile(
                [one.verdict for one in self.measured.conclusions if one.verdict != "not measured"]
            ),
            (str(bad), "samples cut off or failed, counted below", "bad" if bad else "good"),
            (str(off), "runs out of calibration: kept and counted", "bad" if off else "good"),
        ]

    def conclusions(self) -> list[tuple[str, ...]]:
        """Return the conclusions' rows, as in `CONCLUSIONS`: those measured, and one for each that
        was not at all.
        """
        return [
            (c.claim, c.loss, c.verdict, c.evidence or result_tables.NOTHING, str(c.runs))
            for c in _telling(self.measured.conclusions)
        ]

    def pages(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return Table II by orbit and metric, rows as in `COLUMNS`."""
        return _grouped(self.measured.pages)

    def bulk(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return the bulk transfers' times likewise."""
        return _grouped([one for one in self.measured.bulk if one.n or one.failed])

    def heat(self) -> tuple[tuple[str, ...], list[tuple[str, list[tuple[str, str]]]]]:
        """Return the places (orbit and loss), and by measurement type and metric a (deviation,
        nearness) of each.

        Nearness: `near` within `TOLERANCE`, `far` beyond `FAR`, else ''.
        """
        lines = [
            one for one in (*self.measured.pages, *self.measured.bulk) if one.deviation is not None
        ]
        places = [(orbit, loss) for orbit in ORBITS for loss in LOSSES]
        places = [
            at for at in places if any((one.cell.orbit, one.cell.loss) == at for one in lines)
        ]
        found = {
            (one.cell.kind, one.metric, (one.cell.orbit, one.cell.loss)): one.deviation or 0.0
            for one in lines
        }
        rows = [
            (f"{kind}, {metric}", [_nearness(found.get((kind, metric, at))) for at in places])
            for kind, metric in dict.fromkeys((kind, metric) for kind, metric, _ in found)
        ]
        return tuple(f"{orbit.upper()}, {loss} % loss" for orbit, loss in places), rows

    def figures(self) -> list[Figure]:
        """Draw figure 2, one plot per orbit and loss that was measured."""
        drawn = (_curves(self.measured, orbit, loss) for orbit in ORBITS for loss in LOSSES)
        return [figure for figure in drawn if figure]

    def commands(self) -> list[str]:
        """Return the command that makes the first run of each cell."""
        folder = Path("runs")
        return [
            f"./satlab {' '.join(arguments(cell.request(1, folder)))}"
            for cell in self.campaign.cells
        ]


def _telling(conclusions: Sequence[Conclusion]) -> list[Conclusion]:
    measured = {one.name for one in conclusions if one.runs}
    first = {one.name: one for one in reversed(conclusions)}
    return [
        one
        for one in conclusions
        if one.runs or (one.name not in measured and one is first[one.name])
    ]


def _nearness(deviation: float | None) -> tuple[str, str]:
    if deviation is None:
        return result_tables.NOTHING, ""
    text = f"{deviation:+.0%}".replace("-", "\N{MINUS SIGN}")
    return text, "near" if abs(deviation) <= TOLERANCE else "far" if abs(deviation) > FAR else ""


def _verdicts_tile(judged: Sequence[str]) -> tuple[str, str, str]:
    """Return the tile of the measured conclusions: without a decided one there is no count of those
    that hold.
    """
    decided = [one for one in judged if one != "undecided"]
    undecided = len(judged) - len(decided)
    if judged and not decided:
        return (
            "undecided",
            f"all {undecided} measured conclusions: {MIN_RUNS} runs of each type are needed",
            "",
        )
    more = f"; {undecided} undecided" if undecided else ""
    return (
        f"{decided.count('holds')}/{len(decided)}",
        f"decided conclusions that hold{more}",
        _state(decided),
    )


def _state(verdicts: Sequence[str]) -> str:
    return (
        "bad"
        if "does not hold" in verdicts
        else "good"
        if verdicts and set(verdicts) == {"holds"}
        else ""
    )


def _grouped(lines: Sequence[FigureComparison]) -> list[tuple[str, list[tuple[str, ...]]]]:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for orbit in ORBITS:
        for one in (one for one in lines if one.cell.orbit == orbit):
            row = (one.cell.kind, one.cell.loss, *result_tables.figures(one))
            groups.setdefault(f"{orbit.upper()}: {NAMES[one.metric]}", []).append(row)
    return list(groups.items())


def write(campaign: Campaign, measured: Results, path: Path) -> Path:
    """Write the page atomically and return its path."""
    page = ReproductionPage(campaign, measured)
    drawn = page.figures()
    text = html.page(
        "reproduction.html",
        drawn,
        page=page,
        figures=drawn,
        source=SOURCE,
        columns=COLUMNS,
        numbers=NUMBERS,
        conclusion_columns=CONCLUSIONS,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return path


# --- figure 2 -------------------------------------------------------------------------------------

STYLES = {"quic": 0, "quic-pep": 1, "tcp": 2, "tcp-pep": 3, "quic-warm": 4}
PAIRS = (("quic-pep", "quic"), ("quic-warm", "quic"), ("tcp-pep", "tcp"))
"""Types with a PEP, and without."""


def _curves(measured: Results, orbit: str, loss: str) -> Figure | None:
    """Draw the ratio of bytes received, PEP to no PEP, and the goodput of all bulk types, over
    time.
    """
    cells = {kind: measured.of(orbit, loss, kind) for kind in STYLES}
    means = {kind: mean_curve(result.curves) for kind, result in cells.items() if result.curves}
    if not means:
        return None
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for split, plain in PAIRS:
        if split in means and plain in means:
            both = zip(means[split], means[plain], strict=True)
            ratio = [
                (step * STEP_S, more / less)
                for step, (more, less) in enumerate(both, start=1)
                if less
            ]
            data.append(line(ratio, f"{split} / {plain}", STYLES[split]))
            rows += [
                ("ratio", f"{split} / {plain}", f"{t:.1f}", f"{value:.3f}")
                for t, value in ratio[9::10]
            ]
    for kind, mean in means.items():
        rates = _rates(mean)
        data.append(
            line(
                rates,
                f"{kind}, n = {len(cells[kind].curves)}",
                STYLES[kind],
                xaxis="x2",
                yaxis="y2",
            )
        )
        rows += [("goodput (Mbit/s)", kind, f"{t:.1f}", f"{value:.3f}") for t, value in rates[4::5]]
    return Figure(
        f"fig2-{orbit}-{loss}",
        f"{orbit.upper()}, {loss} % loss",
        CAPTION,
        {"data": data, "layout": _layout()},
        380,
        DataTable(("plot", "type", "time (s)", "value"), tuple(rows)),
    )


CAPTION = (
    "Left: bytes received with PEP over bytes received without, means over all runs; above 1 the"
    " PEP is ahead. Right: goodput in order, means over all runs and 0.5 s; data behind a gap"
    " waited for a retransmission. Time runs from the first byte (QUIC) or the start of the"
    " transfer (TCP)."
)


def _rates(mean: Sequence[float]) -> list[tuple[float, float]]:
    """Return Mbit/s over half a second, dated at its end, each 0.1 s."""
    width = 5
    padded = [0.0] * width + list(mean)
    return [
        (
            (step + 1) * STEP_S,
            (padded[step + width] - padded[step]) * 8 / (min(step + 1, width) * STEP_S) / 1e6,
        )
        for step in range(len(mean))
    ]


def _layout() -> Json:
    return {
        "xaxis": axis("Time (s)", domain=[0, 0.46], rangemode="tozero"),
        "yaxis": axis("Bytes received, PEP / no PEP", rangemode="tozero"),
        "xaxis2": axis("Time (s)", domain=[0.56, 1], rangemode="tozero", anchor="y2"),
        "yaxis2": axis("Goodput (Mbit/s)", rangemode="tozero", anchor="x2"),
        "shapes": [
            {
                "type": "line",
                "xref": "x domain",
                "x0": 0,
                "x1": 1,
                "yref": "y",
                "y0": 1,
                "y1": 1,
                "line": {"color": COLOURS[4], "dash": "dash", "width": 1},
            }
        ],
    }
