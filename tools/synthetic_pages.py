# SPDX-License-Identifier: GPL-3.0-or-later
"""Synthetic pages of `web-targets/`: of each class of objects a number, a sum of bytes and domains,
all chosen here.

The choice is guided by the HTTP Archive's Web Almanac. 2024, median home page on a desktop: 71
requests, 2,652 kB, of which images 1,054 kB (18 requests) and scripts 613 kB (24). 2020: three
quarters of the pages have less than 4 MB.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from satlab.common.paths import WEB_TARGETS
from satlab.lab import web_target_files
from satlab.lab.web_target import WebObject

WEIGHTS = (1, 1, 2, 2, 3, 4, 6, 9)
"""Sizes within a class differ by these factors, drawn by SHAKE-256 of page, class and number:
integers alone.
"""


@dataclass(frozen=True)
class Objects:
    """A class of objects: `count` of them have `size` bytes together, and come from `hosts` in
    turn.
    """

    loaded_as: str
    count: int
    size: int
    hosts: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class SyntheticPage:
    """A page: its classes in the order of the document."""

    title: str
    source: str
    classes: tuple[Objects, ...]


PAGES = {
    "article": SyntheticPage(
        "Synthetic light article, four domains",
        "own choice: below the median page of the HTTP Archive's Web Almanac 2024; every byte is"
        " generated",
        (
            Objects("document", 1, 24_000),
            Objects("stylesheet", 3, 60_000, ("static",)),
            Objects("script", 8, 220_000, ("static", "", "static", "tags")),
            Objects("img", 18, 396_000, ("images",)),
        ),
    ),
    "shop": SyntheticPage(
        "Synthetic heavy shop, eight domains",
        "own choice: weight at the third quartile of the HTTP Archive's Web Almanac 2020; every"
        " byte is generated",
        (
            Objects("document", 1, 90_000),
            Objects("stylesheet", 8, 260_000, ("static", "", "cdn")),
            Objects("script", 31, 1_200_000, ("static", "cdn", "tags", "static", "metrics")),
            Objects("img", 80, 2_450_000, ("images-1", "images-2", "images-3", "cdn")),
        ),
    ),
}


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file of each page with its text."""
    for name, page in PAGES.items():
        objects = objects_of(name, page)
        yield (
            WEB_TARGETS / name / "page.yml",
            web_target_files.page_yml(name, page.title, page.source, objects),
        )
        yield WEB_TARGETS / name / "manifest.csv", web_target_files.manifest_csv(objects)


def objects_of(name: str, page: SyntheticPage) -> list[WebObject]:
    """Return the objects of a page."""
    orders = count(1)
    return [
        web_target_files.made(
            next(orders), each.loaded_as, size, host=each.hosts[number % len(each.hosts)]
        )
        for each in page.classes
        for number, size in enumerate(sizes(name, each))
    ]


def sizes(name: str, each: Objects) -> list[int]:
    """Divide the bytes of a class among its objects; the last one has what division leaves over."""
    drawn = hashlib.shake_256(f"{name}/{each.loaded_as}".encode()).digest(each.count)
    weights = [WEIGHTS[byte % len(WEIGHTS)] for byte in drawn]
    parts = [each.size * weight // sum(weights) for weight in weights]
    return [*parts[:-1], each.size - sum(parts[:-1])]
