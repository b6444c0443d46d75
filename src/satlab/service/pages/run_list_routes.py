# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes below `/ui` of several runs: the list, pins, export, comparison, and runs of the command
line.
"""

import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode

import polars as pl
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator

import collect
from satlab.common.errors import ConfigError, HostError
from satlab.report.export import export as export_records
from satlab.report.html import render as render_report
from satlab.run import sandboxed_reader
from satlab.service.api import access, export
from satlab.service.api.access import Runner
from satlab.service.api.account_store import User
from satlab.service.api.api_answers import ApiError, attachment, not_found
from satlab.service.api.dependencies import Context, RequestContext
from satlab.service.pages import comparison, link_view, rendering, run_list, run_logs, run_pages
from satlab.service.pages.rendering import Filled, Page, Viewer, render, see
from satlab.service.pages.run_list import Listed

router = APIRouter(route_class=Page, include_in_schema=False)

MAX_SHOWN = 50
MAX_COMPARED = 20
MAX_ROWS = 4_000_000
"""Rows of one exported table; each takes 200 bytes of memory meanwhile."""

Number = Annotated[int, Query(ge=1, le=100000)]
Text = Annotated[str, Query(max_length=200)]


def _sort(text: str) -> str:
    if text.removeprefix("-") not in ("", *run_list.SORTED_BY):
        raise ValueError(f"{', '.join(run_list.SORTED_BY)}, or one of them with - in front")
    return text


Sort = Annotated[str, AfterValidator(_sort)]
Columns = Annotated[list[str] | None, Query(max_length=len(run_list.COLUMNS))]
Keys = Annotated[list[str] | None, Query(max_length=MAX_COMPARED)]
Format = Literal["csv", "parquet"]
_MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


@router.get("/runs")
def listed(
    request: Request,
    user: Viewer,
    context: RequestContext,
    page: Number = 1,
    q: Text = "",
    status: Text = "",
    sort: Sort = "",
    column: Columns = None,
) -> Response:
    """List runs: pinned runs first, then the newest; or sorted by a column."""
    visible = run_list.all_runs(context, user)
    found = run_list.ordered(run_list.matching(visible, q, status), sort)
    shown = found[(page - 1) * MAX_SHOWN : page * MAX_SHOWN]
    chosen = [each for each in run_list.COLUMNS if each in (column or run_list.USUAL_COLUMNS)]

    def again(**changed: str) -> str:
        """Return the query of this list, with changes."""
        asked = {"q": q, "status": status, "sort": sort} | changed
        given = [(name, text) for name, text in asked.items() if text]
        return urlencode(given + [("column", each) for each in column or ()])

    return render(
        request,
        "runs.html",
        runs=shown,
        figures=request.app.state.key_figures.of(shown),
        page=page,
        more=len(found) > page * MAX_SHOWN,
        most=MAX_COMPARED,
        total=len(visible),
        count=len(found),
        q=q,
        status=status,
        statuses=[
            each.word for each in run_pages.STATES if any(run.state == each for run in visible)
        ],
        sort=sort,
        sorted_by=run_list.SORTED_BY,
        columns=chosen,
        all_columns=run_list.COLUMNS,
        again=again,
    )


@router.post("/runs/pin")
def pin(user: Runner, context: RequestContext, filled: Filled) -> Response:
    """Pin an instance to the top of the list."""
    try:
        context.run_notes.pin(_instance_of(context, user, filled))
    except ConfigError as error:
        raise ApiError(HTTPStatus.CONFLICT, str(error)) from error
    return _back(filled)


@router.post("/runs/unpin")
def unpin(user: Runner, context: RequestContext, filled: Filled) -> Response:
    """Unpin an instance."""
    context.run_notes.unpin(_instance_of(context, user, filled))
    return _back(filled)


def _instance_of(context: Context, user: User, filled: dict[str, str]) -> int:
    number = filled.get("run", "")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise ApiError(HTTPStatus.BAD_REQUEST, "The form names no run")
    return access.scenario_instance(context, user, int(number)).id


def _back(filled: dict[str, str]) -> Response:
    """Lead back to the list as it was filtered and sorted."""
    query = urlencode(parse_qsl(filled.get("back", "")[:2000]))
    return see(f"/runs?{query}" if query else "/runs")


# --- runs of the command line ---------------------------------------------------------------------


@router.get("/folders/{run_id}")
def other(request: Request, run_id: str, user: Viewer, context: RequestContext) -> Response:
    """Show the results of a run of the command line."""
    run = _other(context, user, run_id)
    view = run_pages.results([run.folder], run.scenario) if run.folder else None
    return render(
        request,
        "folder.html",
        run=run,
        view=view,
        has_report=rendering.report_file(run.folder) is not None,
        logs=run_logs.logs(run_logs.files(context, run.folder, None)),
    )


@router.get("/folders/{run_id}/logs/{name}")
def other_log(run_id: str, name: str, user: Viewer, context: RequestContext) -> Response:
    """Return a log of a run of the command line as a file."""
    return run_logs.attachment(
        run_logs.files(context, _other(context, user, run_id).folder, None), name
    )


@router.get("/folders/{run_id}/report")
def other_report(run_id: str, user: Viewer, context: RequestContext) -> Response:
    """Return the report of a run of the command line."""
    return rendering.stored_report(_other(context, user, run_id).folder)


def _other(context: Context, user: User, run_id: str) -> Listed:
    folder = run_list.other_folder(context, user, run_id)
    run = run_list.of_folder(context, folder) if folder else None
    if run is None:
        raise not_found("run")
    return run


# --- export ---------------------------------------------------------------------------------------


@router.get("/export/records.{kind}")
def records(kind: Format, user: Viewer, context: RequestContext, run: Keys = None) -> Response:
    """Return the records of runs as one table:

    CSV with the summaries, Parquet with the series, too.
    """
    folders = [folder for _, folder in _chosen(context, user, run or [], least=1)]
    try:
        tables = {
            folder: sandboxed_reader.without_writing(folder, is_own=True).records
            for folder in folders
        }
        if kind == "parquet" and (count := sum(map(_rows, tables.values()))) > MAX_ROWS:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"These runs have {count} records, a table has at most {MAX_ROWS}: choose fewer",
            )
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / f"records.{kind}"
            export_records(tables, path, has_series=kind == "parquet")
            content = path.read_bytes()
    except (collect.RunFolderError, HostError, OSError) as error:
        raise ApiError(
            HTTPStatus.CONFLICT, "The records of at least one of these runs cannot be read"
        ) from error
    name = f"records-{'-'.join(run or [])}"[:100]
    return Response(content, media_type=_MEDIA[kind], headers=attachment(f"{name}.{kind}"))


def _rows(table: collect.Table) -> int:
    return int(table.lazy().select(pl.len()).collect(engine="streaming").item())


@router.get("/export/archive")
def archive(user: Viewer, context: RequestContext, run: Keys = None) -> Response:
    """Return the folder of a run as .tar.gz."""
    ((_, folder),) = _chosen(context, user, (run or [])[:1], least=1)
    packed = export.folder_archive(context, folder.resolve())
    return StreamingResponse(
        packed, media_type="application/gzip", headers=attachment(f"{folder.name}.tar.gz")
    )


# --- comparison -----------------------------------------------------------------------------------


def _chosen(
    context: Context, user: User, keys: list[str], least: int = 2
) -> list[tuple[Listed, Path]]:
    """Return runs and their folders by key.

    Raises ApiError: 400 for their number, 404, 403, 409 without results.
    """
    if not least <= len(set(keys)) <= MAX_COMPARED:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"Choose {least} to {MAX_COMPARED} runs")
    chosen = []
    for key in dict.fromkeys(keys):
        run = _by_key(context, user, key)
        if run.folder is None:
            raise ApiError(HTTPStatus.CONFLICT, f"Run {run.number} has no results")
        chosen.append((run, run.folder))
    return chosen


def _by_key(context: Context, user: User, key: str) -> Listed:
    if not (key.isascii() and key.isdecimal() and len(key) < 20):
        return _other(context, user, key)
    instance = access.scenario_instance(context, user, int(key))
    return run_list.of_instance(
        context, instance, context.run_notes.of(instance.id), context.clock()
    )


@router.get("/compare")
def compare(request: Request, user: Viewer, context: RequestContext, run: Keys = None) -> Response:
    """Compare the results of several runs: figures with differences and intervals, curves in one
    chart.
    """
    chosen = _chosen(context, user, run or [])
    view = run_pages.results([folder for _, folder in chosen], "compared")
    values: dict[str, object] = {"differences": None, "samples": (), "charts": (), "names": ()}
    if view is not None:
        compared = [
            comparison.Compared(
                found.key, found.number if found.instance else "", run.settings, run.rows
            )
            for (found, _), run in zip(chosen, view.runs, strict=True)
        ]
        groups = comparison.groups(compared)
        colours = {key: (group.number - 1) % 6 + 1 for group in groups for key in group.keys}
        drawn = [
            link_view.Overlaid(
                view.names[run.manifest.run_id],
                colours[found.key],
                request.app.state.link_curves.curves(folder),
                run,
            )
            for (found, folder), run in zip(chosen, view.runs, strict=True)
        ]
        values = {
            "differences": comparison.differences(compared, groups),
            "samples": comparison.samples(compared, groups),
            "charts": link_view.overlaid(drawn),
            "names": [view.names[run.manifest.run_id] for run in view.runs],
        }
    values["query"] = urlencode([("run", found.key) for found, _ in chosen])
    return render(request, "compare.html", runs=[found for found, _ in chosen], view=view, **values)


@router.get("/compare/report")
def compared_report(user: Viewer, context: RequestContext, run: Keys = None) -> Response:
    """Return one report of several runs."""
    chosen = _chosen(context, user, run or [])
    title = f"Runs {', '.join(found.number for found, _ in chosen)}"
    view = run_pages.results([folder for _, folder in chosen], title)
    if view is None:
        raise not_found("report")
    return rendering.report(render_report(view.page()))
