# SPDX-License-Identifier: GPL-3.0-or-later
"""Page loads to Response Start, First Contentful Paint, Page Load Time
(schemas/page-load.schema.json).

Definitions follow Kosek et al., "Exploring Proxying QUIC and HTTP/3 for Satellite Communication",
IFIP Networking 2022, section III: ms since navigation start; Page Load Time is the navigation
entry's `loadEventStart`.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from collect import observed_page_loads
from collect.observed_page_loads import Load
from collect.percentile import percentile
from collect.raw import Model
from collect.records import Record, failed, of_status

STAT = "page_load_json"
MAIN_METRICS = ("response_start_ms", "first_contentful_paint_ms", "page_load_time_ms")
HOST_METRICS = ("cpu_wait_s", "cpu_wait_longest_s", "yardstick_ms", "long_tasks_ms")
"""Effects of the host on the browser: waits for a core (all threads together, and one thread), the
time of a known task, tasks above 50 ms.
"""
METRICS = (*MAIN_METRICS, "largest_contentful_paint_ms")
LAYOUT_SHIFT, INTERACTION = "cumulative_layout_shift", "interaction_to_next_paint_ms"
"""Not every browser reports layout shifts, and an interaction must have been asked for: loads
without them have no such records.
"""
HOST_PART = "browser_host_ms"
"""The part of a Page Load Time that is the host's (`browser_yardstick.host_ms`)."""
SUMMARISED = (*METRICS, LAYOUT_SHIFT, INTERACTION, *observed_page_loads.METRICS, HOST_PART)
"""Metrics whose median over loads is a record, too."""
PERCENTILES = (75, 95)
MIN_FOR_PERCENTILES = 20
"""Fewest loads for a 95th percentile: with fewer it would be the slowest load, or a guess beyond
it.
"""


class Resource(Model):
    """One object of a page; times in ms since navigation start."""

    name: str
    initiator_type: str
    next_hop_protocol: str
    response_status: int
    start_ms: float
    response_end_ms: float
    encoded_body_bytes: int
    transfer_bytes: int


class PageLoad(Load):
    """One measured page load in one fresh browser profile (job satlab_page_load)."""

    schema_: Literal["satlab/page-load/1"] = Field(alias="schema")
    wall_s: float
    connect_start_ms: float | None = Field(
        default=None, description="start of the connection for the document, since navigation start"
    )
    connect_end_ms: float | None = Field(
        default=None, description="end of the handshakes of that connection: TCP and TLS, or QUIC"
    )
    load_event_end_ms: float | None
    cumulative_layout_shift: float | None = Field(
        default=None,
        ge=0,
        description="largest sum of layout shifts in a session window up to the load event;"
        " null: the browser does not report them",
    )
    clicked: bool = Field(default=False, description="whether a click followed the load event")
    interaction_to_next_paint_ms: float | None = Field(
        default=None, ge=0, description="longest duration of the click's events"
    )
    expected_objects: int
    expected_bytes: int
    objects: int
    body_bytes: int
    protocols: dict[str, int]
    driver: str
    cpu_user_s: float | None
    cpu_system_s: float | None
    cpu_wait_s: float | None = Field(
        default=None,
        description="time in which threads of driver and browser could run and had no core,"
        " together; null: the kernel has no schedstat",
    )
    cpu_wait_longest_s: float | None = Field(
        default=None,
        description="time in which the thread that waited most was runnable and had no core",
    )
    yardstick_ms: float | None = Field(
        default=None,
        description="duration of a fixed task in the browser: the longer of one before and one after the load",
    )
    cpu_slowdown: float = Field(
        default=1.0, ge=1, description="by how much the browser's main thread was slowed down"
    )
    long_tasks_ms: float | None = Field(
        default=None, description="total duration of tasks of the page that took more than 50 ms"
    )
    resources: list[Resource]


def records(
    load: PageLoad, labels: Mapping[str, str], pep: str, host_ms: float | None = None
) -> list[Record]:
    """Return the page metrics of one load (label load: its index), its completeness, its CPU time
    and the host's part of it.

    `pep` is the proxy on its path, as `pep.during` has it.

    A failed load keeps every metric as a failed row. A censored load keeps what was measured before
    the deadline; the rest are censored rows.
    """
    own = load.labels(labels, pep)
    reason = load.reason or "the load failed"
    if load.status == "censored" and not load.reason:
        reason = f"timeout {load.wall_s:.0f} s"
    absent = "the browser reported no such entry"
    found = [
        of_status(metric, getattr(load, metric), own, load.status, reason, absent)
        for metric in METRICS
    ]
    if load.expected_bytes > 0:
        found.append(Record("completeness_ratio", load.body_bytes / load.expected_bytes, own))
    found.append(Record("objects_count", load.objects, own))
    if load.cumulative_layout_shift is not None:
        found.append(Record(LAYOUT_SHIFT, load.cumulative_layout_shift, own))
    if load.clicked:
        value = load.interaction_to_next_paint_ms
        found.append(of_status(INTERACTION, value, own, load.status, reason, absent))
    if load.cpu_user_s is not None and load.cpu_system_s is not None:
        found.append(Record("cpu_s", load.cpu_user_s + load.cpu_system_s, own))
    found += [
        Record(name, value, own)
        for name in HOST_METRICS
        if (value := getattr(load, name)) is not None
    ]
    if host_ms is not None and load.status == "ok":
        found.append(Record(HOST_PART, host_ms, own))
    return found


def over_loads(per_load: Iterable[Record]) -> list[Record]:
    """Summarise the rows of single loads per protocol, page and proxy: label stat is median, min,
    max, p75 or p95.

    Labels n, censored and failed count the loads. A censored load took longer than any load that
    ended, so the median counts it as infinite: without it, the figures would look too good. Failed
    loads are not ranked.
    """
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in per_load:
        if record.metric in SUMMARISED and "load" in record.labels:
            key = (
                record.metric,
                record.labels["protocol"],
                record.labels["page"],
                record.labels["pep"],
            )
            groups.setdefault(key, []).append(record)
    return [row for key, group in groups.items() for row in _summary(*key, group)]


def _summary(
    metric: str, protocol: str, page: str, pep: str, group: Sequence[Record]
) -> list[Record]:
    values = [r.value for r in group if r.value is not None]
    censored = sum(r.status == "censored" for r in group)
    labels = {
        "protocol": protocol,
        "page": page,
        "pep": pep,
        "n": str(len(values)),
        "censored": str(censored),
        "failed": str(sum(r.status == "failed" for r in group)),
    }
    if not values and not censored:
        return [
            failed(metric, {**labels, "stat": "median"}, f"none of {len(group)} loads succeeded")
        ]
    median = statistics.median([*values, *[math.inf] * censored])
    if math.isinf(median):
        reason = f"{censored} of {len(values) + censored} loads were cut off by their deadline"
        rows = [
            Record(metric, None, {**labels, "stat": "median"}, status="censored", reason=reason)
        ]
    else:
        rows = [Record(metric, median, {**labels, "stat": "median"})]
    if values:
        rows.append(Record(metric, min(values), {**labels, "stat": "min"}))
        rows.append(Record(metric, max(values), {**labels, "stat": "max"}))
    return [*rows, *_percentiles(metric, labels, sorted([*values, *[math.inf] * censored]))]


def _percentiles(metric: str, labels: Mapping[str, str], ordered: Sequence[float]) -> list[Record]:
    if len(ordered) < MIN_FOR_PERCENTILES:
        return []
    found = {f"p{share}": percentile(ordered, share) for share in PERCENTILES}
    reason = "so many loads were cut off by their deadline"
    return [
        Record(metric, None, {**labels, "stat": stat}, status="censored", reason=reason)
        if math.isinf(value)
        else Record(metric, value, {**labels, "stat": stat})
        for stat, value in found.items()
    ]
