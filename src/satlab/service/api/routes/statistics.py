# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of job instances; and logs, files and databases of OpenBACH, which this server does
not have.
"""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from satlab.service.api import access, export
from satlab.service.api.access import NEEDS_ADMIN, NEEDS_VIEWER, Viewer
from satlab.service.api.api_answers import ApiError
from satlab.service.api.dependencies import RequestContext
from satlab.service.api.export import statistics

router = APIRouter()

MAX_INSTANCES = 50
"""Number of a project's latest instances that are searched for names of statistics."""

MAX_VALUE = 1e150
"""Largest number in a histogram or variance; its square is a float."""


@router.get("/statistics/{project}/")
def of_project(project: str, user: Viewer, context: RequestContext) -> dict[str, list[str]]:
    """Return the names of the statistics that the jobs of a project have sent, by job: those of
    the latest instances, up to the limits.
    """
    access.project_of(context, user, project)
    names: dict[str, set[str]] = {}
    left = export.MAX_STATISTICS
    for instance in context.queue.instances(project, limit=MAX_INSTANCES):
        left -= export.statistics_bytes(context, instance)
        if left < 0:
            break
        for record in export.records(context, instance):
            if not record["_metadata"]["is_file"]:
                _add(names.setdefault(record["_metadata"]["job_name"], set()), record)
    return {job: sorted(names[job]) for job in sorted(names)}


def _add(names: set[str], record: export.Record) -> None:
    """Add the names of a record's statistics; jobs choose them."""
    if len(names) < export.MAX_COLUMNS:
        names.update(statistics(record))


@router.get("/statistic/{number}/")
def of_job(
    number: int,
    request: Request,
    user: Viewer,
    context: RequestContext,
    name: str | None = None,
    suffix: str | None = None,
    histogram: Annotated[int | None, Query(ge=1, le=1000)] = None,
) -> Any:
    """Return names of statistics, the earliest time, or one statistic: samples, a histogram, or
    mean and variance.
    """
    options = request.query_params
    sent = (
        record
        for record in export.records(context, access.job_instance(context, user, number))
        if record["_metadata"]["job_instance_id"] == number and not record["_metadata"]["is_file"]
    )
    if name is None and "origin" in options:
        return min((record["_metadata"]["time"] for record in sent), default=None)
    if name is None:
        names, suffixes = set[str](), set[str]()
        for record in sent:
            _add(names, record)
            if "suffix" in record["_metadata"] and len(suffixes) < export.MAX_COLUMNS:
                suffixes.add(record["_metadata"]["suffix"])
        return {"statistics": sorted(names), "suffixes": sorted(suffixes)}
    samples = [
        (r["_metadata"]["time"], r[name])
        for r in sent
        if name in r and suffix in (None, r["_metadata"].get("suffix", ""))
    ]
    if histogram is not None:
        return _histogram([float(value) for _, value in samples if _is_number(value)], histogram)
    if "comparative" in options:
        return _comparative([float(value) for _, value in samples if _is_number(value)])
    origin = 0
    if text := options.get("origin"):
        if not text.lstrip("-").isdecimal() or len(text) > 20:
            raise ApiError(HTTPStatus.BAD_REQUEST, "origin is a number of ms")
        origin = int(text)
    if not samples:
        return []
    return {name: [value for _, value in samples], "time": [when - origin for when, _ in samples]}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_VALUE
    )


def _histogram(values: list[float], buckets: int) -> dict[str, list[float]]:
    """Count values in buckets of equal width; `buckets` holds their middles."""
    if not values:
        return {"counts": [], "buckets": []}
    low, high = min(values), max(values)
    width = (high - low) / buckets or 1.0
    counts = [0.0] * buckets
    for value in values:
        counts[min(int((value - low) / width), buckets - 1)] += 1
    return {
        "counts": counts,
        "buckets": [low + (number + 0.5) * width for number in range(buckets)],
    }


def _comparative(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    mean = sum(values) / len(values)
    return {"mean": mean, "variance": sum((value - mean) ** 2 for value in values) / len(values)}


@router.get("/logs/", dependencies=NEEDS_VIEWER)
def logs() -> list[Any]:
    """Return no logs: the log of each job is in its run folder."""
    return []


@router.get("/databases/", dependencies=NEEDS_VIEWER)
def databases() -> dict[str, Any]:
    """Return no databases: statistics are in the run folders."""
    return {"influxdb": None, "elasticsearch": None}


@router.post("/file/", dependencies=NEEDS_ADMIN)
@router.post("/reboot/", dependencies=NEEDS_ADMIN)
@router.delete("/databases/", dependencies=NEEDS_ADMIN)
def unsupported() -> None:
    """Refuse operations on nodes and databases."""
    raise ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Not supported: the nodes of the embedded lab are created for each run",
    )
