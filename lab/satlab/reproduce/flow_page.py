# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's reproduction by flows as one HTML file: conclusions, figures next to the published ones, and the plots."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from satlab.common.files import write_atomically
from satlab.report import html
from satlab.report.figures import COLOURS, SYMBOLS, DataTable, Figure, Json, Points, axis, line, per_second, text
from satlab.reproduce.flow_campaign import FlowCampaign, Run
from satlab.reproduce.flow_results import COLUMNS, METRICS, FlowResults
from satlab.reproduce.paper import BIN_MS, Cell

NUMBERS = (5, 8, 9, 10, 11, 12)
BIN_S = BIN_MS / 1000
SERIES = (("Goodput", "Mbit/s"), ("Congestion window", "kB"), ("RTT", "ms"))


@dataclass(frozen=True)
class FlowPage:
    """What the template shows."""

    campaign: FlowCampaign
    results: FlowResults

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        runs = [run for runs in self.results.runs.values() for run in runs]
        planned = len(self.campaign.cells) * self.campaign.plan.runs
        verdicts = [j.verdict for j in self.results.judgements]
        failed = sum(run.failed for run in runs)
        state = "bad" if "does not hold" in verdicts else "good" if set(verdicts) == {"holds"} else ""
        return [
            (f"{len(runs)}/{planned}", "runs done, under the virtual clock", ""),
            *self._deviations(),
            (f"{verdicts.count('holds')}/{len(verdicts)}", "conclusions that hold here", state),
            (str(failed), "connections that ended before their time, counted below", "bad" if failed else "good"),
        ]

    def _deviations(self) -> list[tuple[str, str, str]]:
        tiles = []
        for metric, (name, _, _) in METRICS.items():
            for algorithm in sorted({c.cell.published for c in self.results.comparisons if c.cell.published}):
                found = [
                    abs(c.deviation)
                    for c in self.results.comparisons
                    if c.metric == metric and c.cell.published == algorithm and c.deviation is not None
                ]
                if found:
                    tiles.append((f"{median(found):.1%}", f"median deviation of {name} from {algorithm}", ""))
        return tiles

    def conclusions(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return text, verdict, evidence."""
        return [(j.conclusion.text, j.verdict, j.evidence) for j in self.results.judgements]

    def figures_by_cell(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return rows as in `COLUMNS`, cells of the paper first."""
        groups: dict[str, list[tuple[str, ...]]] = {}
        for one in self.results.comparisons:
            name = f"Test {one.cell.test}" if one.cell.test else "Not in the paper"
            groups.setdefault(name, []).append(one.row(self.results.paper.phases))
        return list(groups.items())

    def command(self) -> str:
        """Return the command that made it."""
        return f"./satlab reproduce {self.campaign.plan.paper} --clock virtual --resume {self.campaign.folder}"


def write(campaign: FlowCampaign, results: FlowResults, path: Path) -> Path:
    """Write the page atomically and return its path."""
    shown = [(cell, runs[0]) for cell in results.cells if (runs := results.runs[cell.id])]
    by_test: dict[str, list[tuple[Cell, Run]]] = {}
    for cell, run in shown:
        by_test.setdefault(cell.id.rsplit("/", 1)[0], []).append((cell, run))
    drawn = [_over_time(name, group) for name, group in by_test.items()]
    areas = [_working_area(cell, run, campaign) for cell, run in shown if cell.test]
    page = FlowPage(campaign, results)
    content = html.page(
        "paper.html", [*drawn, *areas], page=page, paper=results.paper, columns=COLUMNS, numbers=NUMBERS,
        over_time=drawn, areas=areas,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def series(run: Run) -> tuple[Points, Points, Points]:
    """Return goodput (Mbit/s), window (kB) and RTT (ms) over time, means over 1 s."""
    bins = run.flow["bins"]

    def points(name: str, scale: float) -> Points:
        values = enumerate(bins[name])
        return per_second([((n + 1) * BIN_S, value * scale) for n, value in values if value is not None])

    return points("received_bytes", 8e-6 / BIN_S), points("cwnd_bytes", 1e-3), points("rtt_ms", 1.0)


def _over_time(name: str, group: Sequence[tuple[Cell, Run]]) -> Figure:
    """Draw goodput, window and RTT of the first run of each cell, one below the other."""
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for style, (cell, run) in enumerate(group):
        label = f"{cell.stack} {cell.control}"
        for index, points in enumerate(series(run)):
            suffix = "" if index == 0 else str(index + 1)
            more = {"yaxis": f"y{suffix}", "legendgroup": label, "showlegend": index == 0}
            data.append(line(points, label, style, **more))
            rows += [(SERIES[index][0], label, f"{t:.1f}", f"{value:.3f}") for t, value in points[::5]]
    share = 1 / len(SERIES)
    layout: Json = {"xaxis": axis("Time (s)", anchor="y3")}
    for index, (title, unit) in enumerate(SERIES):
        suffix = "" if index == 0 else str(index + 1)
        top = 1 - index * share
        layout[f"yaxis{suffix}"] = axis(f"{title} ({unit})", domain=[top - share + 0.04, top], rangemode="tozero")
    caption = "The first run of each cell, means over 1 s: goodput at the receiver, window and RTT at the sender."
    table = DataTable(("series", "cell", "time (s)", "value"), tuple(rows))
    key = f"time-{name.replace('/', '-')}"
    return Figure(key, f"{name}: goodput, window and RTT", caption, {"data": data, "layout": layout}, 560, table)


def _working_area(cell: Cell, run: Run, campaign: FlowCampaign) -> Figure:
    """Draw delivery rate over RTT, one mark a second, coloured by link."""
    goodput, _, rtt = series(run)
    rates = dict(goodput)
    edges = [*campaign.paper.phases_s, campaign.paper.duration_s]
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for phase, name in enumerate(campaign.paper.phases):
        start = 0.0 if phase == 0 else edges[phase - 1]
        marks = [(value, rates[t]) for t, value in rtt if start <= t < edges[phase] and t in rates]
        colour = COLOURS[phase % len(COLOURS)]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text(name),
                "x": [round(x, 2) for x, _ in marks], "y": [round(y, 3) for _, y in marks],
                "marker": {"color": colour, "symbol": SYMBOLS[phase % len(SYMBOLS)], "size": 6, "opacity": 0.7},
            }
        )  # fmt: skip
        rows += [(name, f"{x:.1f}", f"{y:.3f}") for x, y in marks[::5]]
    links = campaign.paper.links.values()
    shapes: list[Json] = [
        {"type": "line", "xref": "x", "yref": "paper", "x0": link.rtt_ms, "x1": link.rtt_ms, "y0": 0, "y1": 1,
         "line": {"color": "--text", "width": 1, "dash": "dot"}}
        for link in links
    ]  # fmt: skip
    top = max(link.rate_mbps for link in links)
    layout = {
        "xaxis": axis("RTT at the sender (ms)", rangemode="tozero"),
        "yaxis": axis("Delivery rate at the receiver (Mbit/s)", range=[0, top * 1.1]),
        "shapes": shapes,
    }
    caption = (
        "Working area: one mark a second of the first run. Dotted: the round trip of each link without a queue. Top "
        "left is the optimum, right of it a standing queue, below it an unused link."
    )
    key = f"area-{cell.id.replace('/', '-')}"
    table = DataTable(("link", "RTT (ms)", "rate (Mbit/s)"), tuple(rows))
    return Figure(key, f"{cell.id}: working area", caption, {"data": data, "layout": layout}, 340, table)
