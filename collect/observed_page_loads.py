# SPDX-License-Identifier: GPL-3.0-or-later
"""Observed page loads: their Speed Index, and their requests as HAR
(schemas/page-observation.schema.json).

Speed Index is WebPageTest's (P. Meenan, 2012): the integral over time, from navigation start to the
last change of the page, of 1 - visual completeness; in ms, smaller is better. HAR is version 1.2
(J. Odvarko, 2010).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, Status, of_status

STAT = "page_observation_json"
METRICS = ("speed_index_ms", "visually_complete_ms")
_UNKNOWN = -1
"""HAR's value for an unknown size, and for a phase that did not happen."""
Header = tuple[str, str]
Milliseconds = Annotated[float, Field(ge=0)]
Cores = Annotated[float, Field(ge=0, le=10_000)]


class Request(Model):
    """One request; times in ms since navigation start.

    Phases are those of HAR 1.2, except that `connect_ms` excludes `tls_ms`. null: the phase did not
    happen.
    """

    url: str
    type: str
    priority: str
    protocol: str
    status: int
    status_text: str
    mime_type: str
    connection: str
    address: str
    error: str
    start_ms: float
    end_ms: float | None
    blocked_ms: Milliseconds | None
    dns_ms: Milliseconds | None
    connect_ms: Milliseconds | None
    tls_ms: Milliseconds | None
    send_ms: Milliseconds | None
    wait_ms: Milliseconds | None
    receive_ms: Milliseconds | None
    body_bytes: int | None
    transfer_bytes: int
    request_headers: list[Header]
    response_headers: list[Header]


class Frame(Model):
    """A picture of the page, which is valid from `t_ms` (since navigation start)."""

    t_ms: Milliseconds
    visual_completeness: float = Field(ge=0, le=1)
    jpeg: str | None = Field(
        max_length=60_000,
        pattern=r"^[A-Za-z0-9+/]+={0,2}$",
        description="JPEG picture in base64; at most 20 frames have one",
    )


class Load(Model):
    """Fields that measured and observed page loads share.

    Each load has a fresh browser profile. Times are in ms since navigation start.
    """

    url: str
    protocol: Literal["h1", "h2", "h3"]
    page: str
    load_index: int = Field(ge=0)
    status: Status
    reason: str
    start_unix_s: float
    browser: str
    server: str
    response_start_ms: float | None
    first_contentful_paint_ms: float | None
    largest_contentful_paint_ms: float | None
    page_load_time_ms: float | None
    cpu_curve: list[tuple[Milliseconds, Cores, Cores]] = Field(
        default_factory=list,
        max_length=600,
        description="ms since navigation start, at the end of a step of 100 ms or more; cores that"
        " driver and browser kept busy in it; cores that all programs of the host kept busy",
    )

    def labels(self, labels: Mapping[str, str], pep: str) -> dict[str, str]:
        """Return the labels of the load's records: its job's labels, the proxy on its path, and its
        index (label load).
        """
        own = {
            "protocol": self.protocol,
            "page": self.page,
            "pep": pep,
            "load": str(self.load_index),
        }
        return {**labels, **own, "server": self.server, "browser": self.browser}


class PageObservation(Load):
    """One observed page load (job satlab_page_load): requests with their phases, pictures, long
    tasks. Its times are kept apart from the times of other loads.
    """

    schema_: Literal["satlab/page-observation/1"] = Field(alias="schema")
    long_tasks: list[tuple[float, float]] = Field(
        max_length=1000,
        description="start and duration of tasks of the page that took more than 50 ms, ms",
    )
    frames: list[Frame] = Field(
        max_length=1000, description="pictures of the page; the first one is the white page at 0"
    )
    requests: list[Request] = Field(
        max_length=2000, description="requests in the order in which they started"
    )

    @property
    def speed_index_ms(self) -> float | None:
        """Return the Speed Index, ms; None if the load is not ok."""
        return speed_index_ms(self.frames) if self.status == "ok" else None

    @property
    def visually_complete_ms(self) -> float | None:
        """Return the time at which the page first looked as at its end, ms; None if the load is not
        ok.
        """
        whole = [frame.t_ms for frame in self.frames if frame.visual_completeness >= 1]
        return min(whole, default=None) if self.status == "ok" else None


def speed_index_ms(frames: Sequence[Frame]) -> float | None:
    """Return the Speed Index of frames in the order of time, ms; None if the page never changed."""
    if len(frames) < 2:
        return None
    return sum((b.t_ms - a.t_ms) * (1 - a.visual_completeness) for a, b in pairwise(frames))


def records(load: PageObservation, labels: Mapping[str, str], pep: str) -> list[Record]:
    """Return the metrics of an observed load (label load: its index); failed records if the load is
    not ok.
    """
    own = load.labels(labels, pep)
    reason, absent = load.reason or "the load failed", "the browser recorded no picture"
    return [
        of_status(metric, getattr(load, metric), own, load.status, reason, absent)
        for metric in METRICS
    ]


# --- HAR ------------------------------------------------------------------------------------------


def har(loads: Sequence[tuple[str, PageObservation]], version: str) -> dict[str, Any]:
    """Return named observed loads as one HAR 1.2 document. `version` is satlab's."""
    browser, _, number = (loads[0][1].browser if loads else "").partition(" ")
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "satlab", "version": version},
            "browser": {"name": browser, "version": number},
            "pages": [_page(name, load) for name, load in loads],
            "entries": [_entry(name, load, one) for name, load in loads for one in load.requests],
        }
    }


def _page(name: str, load: PageObservation) -> dict[str, Any]:
    timings = {"onContentLoad": _UNKNOWN, "onLoad": _known(load.page_load_time_ms)}
    own = {
        "_firstContentfulPaint": load.first_contentful_paint_ms,
        "_speedIndex": load.speed_index_ms,
    }
    return {
        "startedDateTime": _date(load.start_unix_s),
        "id": name,
        "title": f"{load.page} over {load.protocol}",
        "pageTimings": timings | {key: value for key, value in own.items() if value is not None},
    }


def _entry(name: str, load: PageObservation, one: Request) -> dict[str, Any]:
    connect = None if one.connect_ms is None else one.connect_ms + (one.tls_ms or 0)
    optional = {"blocked": one.blocked_ms, "dns": one.dns_ms, "connect": connect, "ssl": one.tls_ms}
    needed = {"send": one.send_ms, "wait": one.wait_ms, "receive": one.receive_ms}
    timings = {key: _known(value) for key, value in optional.items()} | {
        k: v or 0 for k, v in needed.items()
    }
    return {
        "pageref": name,
        "startedDateTime": _date(load.start_unix_s + one.start_ms / 1000),
        "time": sum(value for key, value in timings.items() if key != "ssl" and value > 0),
        "request": {
            "method": "GET",
            "url": one.url,
            "httpVersion": one.protocol,
            "cookies": [],
            "queryString": [],
            "headers": _headers(one.request_headers),
            "headersSize": _UNKNOWN,
            "bodySize": 0,
        },
        "response": {
            "status": one.status,
            "statusText": one.status_text,
            "httpVersion": one.protocol,
            "cookies": [],
            "headers": _headers(one.response_headers),
            "redirectURL": "",
            "headersSize": _UNKNOWN,
            "bodySize": _known(one.body_bytes),
            "content": {"size": one.body_bytes or 0, "mimeType": one.mime_type},
            "_transferSize": one.transfer_bytes,
            "_error": one.error,
        },
        "cache": {},
        "timings": timings,
        "serverIPAddress": one.address,
        "connection": one.connection,
        "_priority": one.priority,
    }


def _known(value: float | None) -> float:
    return _UNKNOWN if value is None else value


def _headers(headers: Sequence[Header]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
