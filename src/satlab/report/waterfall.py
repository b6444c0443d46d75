# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests of a page load over time, and what is below them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collect import PageLoad
from satlab.report import page
from satlab.report.page import Axis, Mark, Plot, Points, Series, Spans, all_but, line

SINCE_NAVIGATION = "Time since navigation start (s)"


@dataclass(frozen=True)
class RequestKind:
    """What a browser asked for: in words, with the colour and pattern of its bars."""

    label: str
    colour: str
    pattern: str


KINDS = {
    "navigation": RequestKind("document", "--c4", ""),
    "link": RequestKind("style sheet", "--c2", "/"),
    "iframe": RequestKind("iframe", "--c1", "."),
    "img": RequestKind("image", "--c3", "x"),
    "other": RequestKind("other", "--c5", "-"),
}
"""By the initiator type of Resource Timing."""


@dataclass(frozen=True)
class Below:
    """Curves below the requests of a page load, s since navigation start: of the forward link
    (Mbit/s), of the cores that the browser and all programs of the host keep busy; and times of
    handovers in words. What is unknown is empty.
    """

    rate: Points = ()
    browser: Points = ()
    host: Points = ()
    handovers: Sequence[tuple[float, str]] = ()

    @property
    def rows(self) -> list[tuple[Axis, list[Series]]]:
        """Return the axis and the series of each row."""
        rate = replace(line("forward link (Mbit/s)", self.rate), colour="--muted", width=1.5)
        own = replace(line("browser (cores)", self.browser), colour="--c1", width=1.5)
        host = replace(line("host (cores)", self.host), colour="--muted", width=1, dash="solid")
        found = [
            (Axis("Mbit/s", from_zero=True, heading="Forward link"), [rate] if self.rate else []),
            (Axis("cores", from_zero=True, heading="CPU"), [host, own] if self.browser else []),
        ]
        return [
            (axis, [replace(s, row=row, shape="steps", in_legend=False) for s in series])
            for row, (axis, series) in enumerate((f for f in found if f[1]), start=1)
        ]

    @property
    def series(self) -> list[Series]:
        return [one for _, series in self.rows for one in series]

    @property
    def marks(self) -> list[Mark]:
        return [Mark("x", t, label=what) for t, what in self.handovers]

    @property
    def caption(self) -> str:
        """Return the words that explain the rows below the requests; empty without such rows."""
        rate = " Below: what the forward link carries." if self.rate else ""
        cpu = " CPU: cores that driver and browser keep busy; grey: all programs of the host."
        return rate + (cpu if self.browser else "")


def waterfall(load: PageLoad, name: str, number: int, until_s: float, below: Below) -> Plot:
    """Draw the requests of one load in the order in which they started, and what is below them."""
    objects = sorted(load.resources, key=lambda r: (r.start_ms, r.response_end_ms, r.name))
    bars = []
    for initiator, kind in KINDS.items():
        own = [
            (place, r)
            for place, r in enumerate(objects, start=1)
            if (r.initiator_type if r.initiator_type in KINDS else "other") == initiator
        ]
        bars.append(
            Spans(
                kind.label,
                [place for place, _ in own],
                [r.start_ms / 1000 for _, r in own],
                [(r.response_end_ms - r.start_ms) / 1000 for _, r in own],
                kind.colour,
                kind.pattern,
                texts=[
                    f"{short_name(r.name)}: {r.encoded_body_bytes:,} bytes, complete after"
                    f" {r.response_end_ms:,.0f} ms"
                    for _, r in own
                ],
                in_legend=bool(own),
            )
        )
    moments = {
        "RS": load.response_start_ms,
        "FCP": load.first_contentful_paint_ms,
        "PLT": load.page_load_time_ms,
    }
    rows = [
        (
            short_name(r.name),
            r.initiator_type,
            r.next_hop_protocol,
            milliseconds(r.start_ms),
            milliseconds(r.response_end_ms),
            f"{r.encoded_body_bytes:,}",
        )
        for r in objects
    ]
    head = ("request", "kind", "protocol", "start (ms)", "end (ms)", "body (bytes)")
    return Plot(
        key=f"waterfall-{number}",
        title=f"Requests over {name}",
        caption=f"Load {load.load_index} of {name}, the one nearest the median Page Load Time:"
        f" {load.objects} objects, {load.body_bytes:,} bytes. A bar begins when the browser asks"
        " for the object, so it includes waiting for a free connection. RS, FCP, PLT: the page"
        " metrics of this load." + below.caption,
        x=Axis(SINCE_NAVIGATION, range=(0, until_s * 1.03)),
        y=request_axes([r.name for r in objects], below),
        series=[*bars, *below.series],
        height=request_height(len(objects), below),
        table=page.Table(head, rows, numbers=all_but(head, 1)),
        marks=[
            *(
                Mark("x", value / 1000, label=label)
                for label, value in moments.items()
                if value is not None
            ),
            *below.marks,
        ],
        bars="overlay",
    )


LINE_PX, MOST_PX = 16, 1600
"""Height of a request, and largest height of all of them, px."""
ROW_PX = 120
"""Height of a row below the requests, px."""
URL = 24
"""Characters of a URL on an axis: its end tells requests apart."""


def request_height(count: int, below: Below) -> int:
    """Return the height of a plot of requests, px."""
    return min(max(420, 110 + LINE_PX * count), MOST_PX) + ROW_PX * len(below.rows)


def request_axes(urls: Sequence[str], below: Below) -> tuple[Axis, ...]:
    """Return an axis with the URLs of requests, numbered from 1, and those of what is below."""
    every = math.ceil(len(urls) * LINE_PX / MOST_PX) or 1
    names = [short_name(url) for url in urls]
    ticks = {
        float(place): each if len(each) <= URL else f"\N{HORIZONTAL ELLIPSIS}{each[1 - URL :]}"
        for place, each in enumerate(names, start=1)
        if place % every == 0
    }
    share = ROW_PX / request_height(len(urls), below)
    own = 1 - share * len(below.rows)
    requests = Axis("", is_reversed=True, is_bare=True, ticks=ticks, share=own)
    return (requests, *(replace(axis, share=share) for axis, _ in below.rows))


def milliseconds(value: float | None) -> str:
    """Return ms without decimals, "" for None."""
    return "" if value is None else f"{value:,.0f}"


def short_name(url: str) -> str:
    """Return the path of a URL."""
    rest = url.split("://", 1)[-1]
    return "/" + rest.split("/", 1)[1] if "/" in rest else rest
