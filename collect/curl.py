# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to connection establishment time and time to first byte (schemas/curl.schema.json)."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, Status, of_status

STAT = "curl_json"
MAIN_METRICS = ("connect_ms", "ttfb_ms")


class Request(Model):
    """One request over its own connection; times in ms since its start, None = not reached."""

    start_unix_s: float
    status: Status
    reason: str
    connect_ms: float | None
    ttfb_ms: float | None
    total_ms: float | None
    bytes: int = Field(ge=0)


class Curl(Model):
    """All requests of one job satlab_curl."""

    schema_: Literal["satlab/curl/1"] = Field(alias="schema")
    url: str
    requests: list[Request]


def records(curl: Curl, labels: Mapping[str, str]) -> list[Record]:
    """Return both times of each request (label request: its number). A request that was cut off
    keeps the times that it reached.
    """
    own = {**labels, "transport": "TCP"}
    absent = "curl reported no such time"
    found = []
    for number, request in enumerate(curl.requests, start=1):
        labels = {**own, "request": str(number)}
        for metric in MAIN_METRICS:
            value = getattr(request, metric)
            found.append(of_status(metric, value, labels, request.status, request.reason, absent))
    return found
