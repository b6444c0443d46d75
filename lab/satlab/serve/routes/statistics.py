# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of job instances, and what OpenBACH's clients ask for in vain here: logs, files, databases."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from satlab.serve import export
from satlab.serve.accounts import User
from satlab.serve.api_errors import ApiError, not_found
from satlab.serve.context import Context, Here
from satlab.serve.export import Record, statistics
from satlab.serve.identity import Admin, Viewer
from satlab.serve.routes import access

router = APIRouter()

MOST_INSTANCES = 50
"""How many of the latest instances of a project are looked through for names of statistics."""


@router.get("/statistics/{project}/")
def of_project(project: str, user: Viewer, here: Here) -> dict[str, list[str]]:
    """Name the statistics that the jobs of a project have sent, by job."""
    access.project_of(here, user, project)
    found: dict[str, set[str]] = {}
    for instance in here.queue.instances(project, limit=MOST_INSTANCES):
        for record in export.records(here, instance):
            if not record["_metadata"]["is_file"]:
                found.setdefault(record["_metadata"]["job_name"], set()).update(statistics(record))
    return {job: sorted(names) for job, names in sorted(found.items())}


@router.get("/statistic/{number}/")
def of_job(
    number: int,
    request: Request,
    user: Viewer,
    here: Here,
    name: str | None = None,
    suffix: str | None = None,
    histogram: Annotated[int | None, Query(ge=1, le=1000)] = None,
) -> Any:
    """Return names, the origin, or the samples of one statistic: as they are, as a histogram, as mean and variance."""
    asked = request.query_params
    found = list(_of(here, user, number))
    if name is None and "origin" in asked:
        return min((record["_metadata"]["time"] for record in found), default=None)
    if name is None:
        names = {name for record in found for name in statistics(record)}
        suffixes = {record["_metadata"]["suffix"] for record in found if "suffix" in record["_metadata"]}
        return {"statistics": sorted(names), "suffixes": sorted(suffixes)}
    samples = [(r["_metadata"]["time"], r[name]) for r in found if name in r and _has(r, suffix)]
    if histogram is not None:
        return _histogram([float(value) for _, value in samples if _is_number(value)], histogram)
    if "comparative" in asked:
        return _comparative([float(value) for _, value in samples if _is_number(value)])
    origin = _whole(asked.get("origin"))
    if not samples:
        return []
    return {name: [value for _, value in samples], "time": [when - origin for when, _ in samples]}


def _of(here: Context, user: User, number: int) -> Iterator[Record]:
    instance = here.queue.find_job(number)
    if instance is None:
        raise not_found("JobInstance")
    access.check_instance(here, user, instance)
    for record in export.records(here, instance):
        meta = record["_metadata"]
        if meta["job_instance_id"] == number and not meta["is_file"]:
            yield record


def _has(record: Record, suffix: str | None) -> bool:
    return suffix is None or record["_metadata"].get("suffix") == suffix


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(text: str | None) -> int:
    if not text:
        return 0
    if not text.lstrip("-").isdecimal() or len(text) > 20:
        raise ApiError(HTTPStatus.BAD_REQUEST, "origin is a number of ms")
    return int(text)


def _histogram(values: list[float], buckets: int) -> dict[str, list[float]]:
    """Count values in buckets of equal width; `buckets` holds their middles."""
    if not values:
        return {"counts": [], "buckets": []}
    low, high = min(values), max(values)
    width = (high - low) / buckets or 1.0
    counts = [0.0] * buckets
    for value in values:
        counts[min(int((value - low) / width), buckets - 1)] += 1
    return {"counts": counts, "buckets": [low + (number + 0.5) * width for number in range(buckets)]}


def _comparative(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    mean = sum(values) / len(values)
    return {"mean": mean, "variance": sum((value - mean) ** 2 for value in values) / len(values)}


@router.get("/logs/")
def logs(user: Viewer) -> list[Any]:
    """Return the logs that belong to no instance: none, each job's log is in its run folder."""
    del user
    return []


@router.get("/databases/")
def databases(user: Viewer) -> dict[str, Any]:
    """Tell that there are no databases: statistics lie in the run folders."""
    del user
    return {"influxdb": None, "elasticsearch": None}


@router.post("/file/")
@router.post("/reboot/")
@router.delete("/databases/")
def not_here(user: Admin) -> None:
    """Refuse what would reach into nodes, or has no meaning here."""
    del user
    raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "The nodes of the embedded lab are made anew for every run")
