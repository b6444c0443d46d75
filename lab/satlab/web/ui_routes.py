# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes below `/ui`."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.report.html import render as render_report
from satlab.report.view import BULK_COLUMNS
from satlab.serve import launch
from satlab.serve.accounts import User
from satlab.serve.api_errors import ApiError, not_found
from satlab.serve.context import Context, Here
from satlab.serve.identity import Anybody, Runner, log_in, log_out
from satlab.serve.queue import Instance
from satlab.serve.request_guard import PAGES
from satlab.serve.routes import access
from satlab.serve.routes.login import authenticate
from satlab.web import forms, pages, run_pages
from satlab.web.events import Events
from satlab.web.pages import Page, render, see

router = APIRouter(route_class=Page, include_in_schema=False)
Viewer = Annotated[User, Depends(pages.viewer)]

MOST_SHOWN = 50
MOST_COMPARED = 8
STATIC = {
    "base.css": (paths.ROOT / "lab" / "satlab" / "report" / "static" / "report.css", "text/css"),
    "icon.svg": (pages.HERE / "static" / "icon.svg", "image/svg+xml"),
    "ui.css": (pages.HERE / "static" / "ui.css", "text/css"),
    "ui.js": (pages.HERE / "static" / "ui.js", "text/javascript"),
}


async def form_of(request: Request) -> dict[str, str]:
    """Read a form; files in it are passed over."""
    async with request.form(max_files=0, max_fields=1000) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


Filled = Annotated[dict[str, str], Depends(form_of)]


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Return a style sheet or script."""
    if name not in STATIC:
        raise not_found("file")
    path, kind = STATIC[name]
    return FileResponse(path, media_type=kind, headers={"cache-control": "max-age=300"})


# --- session --------------------------------------------------------------------------------------------------------


@router.get("/login")
def login_page(request: Request, user: Anybody, back: str = "") -> Response:
    """Ask who it is."""
    if user is not None:
        return see(pages.own_path(back))
    return render(request, "login.html", back=back, login="", fault="")


@router.post("/login")
def login(request: Request, form: Filled, here: Here) -> Response:
    """Log in."""
    name, back = form.get("login", "").strip(), form.get("back", "")
    try:
        user = authenticate(here, request, name, form.get("password", ""))
    except ApiError as error:
        fault = str(error) if error.status == HTTPStatus.TOO_MANY_REQUESTS else "Login or password are wrong"
        return render(request, "login.html", error.status, back=back, login=name, fault=fault)
    answer = see(pages.own_path(back))
    log_in(request, answer, user)
    return answer


@router.post("/logout")
def logout(request: Request) -> Response:
    """Log out."""
    answer = see("/login")
    log_out(request, answer)
    return answer


@router.get("/account")
def account(request: Request, user: Viewer, done: str = "") -> Response:
    """Show the form for a new password."""
    del user
    return render(request, "account.html", fault="", done=bool(done))


@router.post("/account")
def set_password(request: Request, user: Viewer, form: Filled, here: Here) -> Response:
    """Change the own password; every session ends, and this one begins anew."""
    new = form.get("password", "")
    try:
        if new != form.get("again", ""):
            raise ConfigError("the two are not the same")
        here.accounts.put(user, new)
    except ConfigError as error:
        return render(request, "account.html", HTTPStatus.BAD_REQUEST, fault=str(error), done=False)
    answer = see("/account?done=1")
    log_in(request, answer, user)
    return answer


# --- scenarios ------------------------------------------------------------------------------------------------------


@router.get("/")
def scenarios(request: Request, user: Viewer, here: Here) -> Response:
    """List the scenarios that can be launched."""
    listed = [(project, here.catalog.scenarios(project.name)) for project in run_pages.projects(here, user)]
    return render(request, "scenarios.html", projects=listed)


@router.get("/scenarios/{project}/{name}")
def scenario(request: Request, project: str, name: str, user: Viewer, here: Here) -> Response:
    """Show the form of a launch."""
    document, form = _form(here, user, project, name)
    given = {field.id: request.query_params.get(field.id, field.value) for field in form.fields}
    return _launch_page(request, project, document, form, given, {})


@router.post("/scenarios/{project}/{name}")
def launch_scenario(request: Request, project: str, name: str, user: Runner, here: Here, filled: Filled) -> Response:
    """Launch a scenario, or show what is wrong with the form."""
    document, form = _form(here, user, project, name)
    wanted = forms.read(form, filled)
    if wanted.faults or wanted.link is None:
        return _launch_page(request, project, document, form, filled, wanted.faults)
    try:
        known = access.project_of(here, user, project, "Scenario")
        values = wanted.arguments, wanted.link, user.login, wanted.constants
        instance = launch.scenario_instance(here, known, name, *values)
    except ApiError as error:
        details = error.body.get("error_message") or error.body.get("faults") or []
        said = "; ".join([str(error).rstrip("."), *([details] if isinstance(details, str) else map(str, details))])
        return _launch_page(request, project, document, form, filled, {"": said}, error.status)
    return see(f"/runs/{instance.id}")


def _form(here: Context, user: User, project: str, name: str) -> tuple[forms.Document, forms.Form]:
    known = here.catalog.scenarios(access.project_of(here, user, project, "Scenario").name)
    if name not in known:
        raise not_found("Scenario")
    return known[name], forms.form_of(known[name], known, launch.jobs(here), paths.PROFILES)


def _launch_page(
    request: Request,
    project: str,
    document: forms.Document,
    form: forms.Form,
    given: Mapping[str, str],
    faults: Mapping[str, str],
    status: int = HTTPStatus.OK,
) -> Response:
    code = HTTPStatus.BAD_REQUEST if faults and status == HTTPStatus.OK else status
    values = {"project": project, "scenario": document, "form": form, "given": given, "faults": faults}
    return render(request, "launch.html", code, **values)


# --- runs -----------------------------------------------------------------------------------------------------------


@router.get("/runs")
def listed(request: Request, user: Viewer, here: Here, page: Annotated[int, Query(ge=1, le=100000)] = 1) -> Response:
    """List scenario instances, the newest first."""
    every = [instance for instance in here.queue.instances() if access.may_see(here, user, instance)]
    shown = every[(page - 1) * MOST_SHOWN : page * MOST_SHOWN]
    values = {"page": page, "more": len(every) > page * MOST_SHOWN, "most": MOST_COMPARED, "now": here.clock()}
    return render(request, "runs.html", instances=shown, tones=run_pages.TONES, **values)


@router.get("/runs/{number}")
def run(request: Request, number: int, user: Viewer, here: Here) -> Response:
    """Show one instance: how far it is, or what it found."""
    instance = run_pages.find(here, user, number)
    folder = run_pages.folder_of(here, instance)
    view = run_pages.found([folder], instance.scenario) if folder and instance.over else None
    has_report = folder is not None and (folder / "report" / "index.html").is_file()
    link = instance.order.link
    shown = {"profile": link.profile, **link.model_dump(exclude_defaults=True)}
    values = {"view": view, "has_report": has_report, "link": shown, "again": _again(here, instance)}
    return render(request, "run.html", bulk_columns=BULK_COLUMNS, **values, **_live(request, here, instance))


def _again(here: Context, instance: Instance) -> str:
    """Return the launch page with the same values filled in."""
    usual = (here.catalog.scenario(instance.project, instance.scenario) or {}).get("constants", {})
    constants = instance.order.documents[instance.scenario].get("constants", {})
    link = instance.order.link.model_dump(exclude_defaults=True)
    given = {f"link.{name}": forms.form_text(value) for name, value in link.items()}
    given |= {f"argument.{name}": value for name, value in instance.order.arguments.items()}
    given |= {f"constant.{name}": value for name, value in constants.items() if value != usual.get(name)}
    place = f"{PAGES}/scenarios/{quote(instance.project, safe='')}/{quote(instance.scenario, safe='')}"
    return f"{place}?{urlencode(given)}" if given else place


@router.get("/runs/{number}/live")
def live(request: Request, number: int, user: Viewer, here: Here) -> Response:
    """Return the part of the page of an instance that changes while it runs."""
    return render(request, "live.html", **_live(request, here, run_pages.find(here, user, number)))


@router.get("/runs/{number}/events")
def events(request: Request, number: int, user: Viewer, here: Here) -> Response:
    """Push that part as server-sent events while the instance runs, to whom it may be shown."""
    run_pages.find(here, user, number)

    def look() -> tuple[str, bool] | None:
        try:
            instance = run_pages.find(here, pages.viewer(request), number)
        except (ApiError, pages.LoginNeededError):
            return None  # the session is over, or the project belongs to others now
        page = render(request, "live.html", **_live(request, here, instance))
        return bytes(page.body).decode(), instance.over

    return Events(look, request.app.state.listeners)


def _live(request: Request, here: Context, instance: Instance) -> dict[str, object]:
    folder = run_pages.folder_of(here, instance)
    curves = request.app.state.watcher.look(folder) if folder else None
    ahead = sum(other.id < instance.id for other in here.queue.live()) if not instance.over else 0
    return {
        "instance": instance,
        "tone": run_pages.TONES.get(instance.status, "bad"),
        "phase": run_pages.phase(instance, ahead),
        "steps": run_pages.steps(instance, instance.stopped or here.clock()),
        "charts": run_pages.charts(curves, instance) if curves and curves.start_unix_s is not None else [],
        "elapsed": (instance.stopped or here.clock()) - instance.launched,
    }


@router.post("/runs/{number}/stop")
def stop(number: int, user: Runner, here: Here) -> Response:
    """Stop an instance."""
    here.queue.stop(run_pages.find(here, user, number).id)
    return see(f"/runs/{number}")


@router.get("/runs/{number}/report")
def one_report(number: int, user: Viewer, here: Here) -> Response:
    """Return the report of an instance."""
    folder = run_pages.folder_of(here, run_pages.find(here, user, number))
    path = folder / "report" / "index.html" if folder else None
    if path is None or not path.is_file():
        raise not_found("report")
    return pages.report(path.read_text(encoding="utf-8"))


@router.get("/compare")
def compare(request: Request, user: Viewer, here: Here, run: Annotated[list[int] | None, Query()] = None) -> Response:
    """Show the results of several instances side by side."""
    instances, folders = run_pages.side_by_side(here, user, run or [], MOST_COMPARED)
    values = {"tones": run_pages.TONES, "view": run_pages.found(folders, "compared"), "bulk_columns": BULK_COLUMNS}
    return render(request, "compare.html", instances=instances, **values)


@router.get("/compare/report")
def compared_report(user: Viewer, here: Here, run: Annotated[list[int] | None, Query()] = None) -> Response:
    """Return one report of several instances."""
    instances, folders = run_pages.side_by_side(here, user, run or [], MOST_COMPARED)
    view = run_pages.found(folders, f"Runs {', '.join(str(instance.id) for instance in instances)}")
    if view is None:
        raise not_found("report")
    return pages.report(render_report(view))
