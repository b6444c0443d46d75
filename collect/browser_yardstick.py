# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's browser takes for a page over a bare wire, and the part of a page load that is the
host's (schemas/browser-yardsticks.schema.json).
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from collect.page_loads import PageLoad
from collect.raw import Model

FILE = "yardsticks.json"
"""In a run's raw folder."""
METRIC = "browser_yardstick_ms"
ALIKE = 0.1
"""Yardsticks that differ by at most this share are those of equal hosts."""


class BrowserYardstick(Model):
    """A page in the browser of a host over a wire without delay, loss or limit of its rate: medians
    of `loads` loads. Times in ms since navigation start.
    """

    stamp: str = Field(description="digest of the properties of the host")
    browser: str
    page: str
    protocol: Literal["h1", "h2", "h3"]
    measured_unix_s: float
    loads: int = Field(ge=1)
    response_start_ms: float = Field(gt=0)
    first_contentful_paint_ms: float = Field(gt=0)
    page_load_time_ms: float = Field(gt=0)
    task_ms: float = Field(
        gt=0, description="duration of the known task (yardstick_ms of page-load.json)"
    )


class BrowserYardsticks(Model):
    """The yardsticks of one host, one for each page and protocol."""

    schema_: Literal["satlab/browser-yardsticks/1"] = Field(
        default="satlab/browser-yardsticks/1", alias="schema"
    )
    yardsticks: list[BrowserYardstick] = Field(default_factory=list)

    def of(self, page: str, protocol: str) -> BrowserYardstick | None:
        """Return the yardstick of a page."""
        return next(
            (one for one in self.yardsticks if (one.page, one.protocol) == (page, protocol)), None
        )


def host_ms(load: PageLoad, known: BrowserYardsticks) -> float | None:
    """Return how much of the Page Load Time is the host's: the yardstick, as much longer as the
    known task took next to this load. None if one of them is unknown.

    A requested slow-down of the browser is not the host's. Yardsticks are those of Chromium.
    """
    yardstick = known.of(load.page, load.protocol)
    if yardstick is None or load.yardstick_ms is None or "Firefox" in load.browser:
        return None
    slower = load.yardstick_ms / (yardstick.task_ms * load.cpu_slowdown)
    return yardstick.page_load_time_ms * slower


def unequal(values_ms: Iterable[tuple[str, float]]) -> list[str]:
    """Return the pages whose yardsticks are those of different hosts, each with its range in words.
    `values_ms`: name of a page, and a yardstick of it.
    """
    found: dict[str, list[float]] = {}
    for page, value in values_ms:
        found.setdefault(page, []).append(value)
    return [
        f"{page}: {min(values):.0f} to {max(values):.0f} ms"
        for page, values in found.items()
        if max(values) > (1 + ALIKE) * min(values)
    ]
