# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes below `/ui`."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.service.api import access, launch
from satlab.service.api.access import Anybody, Runner, log_in, log_out
from satlab.service.api.account_store import User
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.context import Context, RequestContext
from satlab.service.api.passwords import BusyError
from satlab.service.api.queue import Instance
from satlab.service.api.request_guard import PAGES
from satlab.service.pages import forms, live_activity, live_view, pages, run_logs, run_pages
from satlab.service.pages.events import Events
from satlab.service.pages.pages import Page, render, see

router = APIRouter(route_class=Page, include_in_schema=False)
Viewer = Annotated[User, Depends(pages.viewer)]
Hop = Annotated[Literal["", "forward", "return", "terrestrial"], Query()]
"""The hop of the path whose curves are shown (path_picture.HOPS)."""

STATIC = {
    "base.css": (paths.ROOT / "src" / "satlab" / "report" / "static" / "report.css", "text/css"),
    "icon.svg": (pages.FOLDER / "static" / "icon.svg", "image/svg+xml"),
    "ui.css": (pages.FOLDER / "static" / "ui.css", "text/css"),
    "ui.js": (pages.FOLDER / "static" / "ui.js", "text/javascript"),
}


async def form_of(request: Request) -> dict[str, str]:
    """Read the text fields of a form; files are ignored."""
    async with request.form(max_files=0, max_fields=1000) as form:
        values = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        "".join((*values, *values.values())).encode()
    except UnicodeEncodeError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "The form holds text that is not Unicode") from error
    return values


Filled = Annotated[dict[str, str], Depends(form_of)]


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Return a style sheet or script."""
    if name not in STATIC:
        raise not_found("file")
    path, kind = STATIC[name]
    return FileResponse(path, media_type=kind, headers={"cache-control": "max-age=300"})


# --- session --------------------------------------------------------------------------------------


@router.get("/login")
def login_page(request: Request, user: Anybody, back: str = "") -> Response:
    if user is not None:
        return see(pages.own_path(back))
    return render(request, "login.html", back=back, login="", fault="")


@router.post("/login")
def login(request: Request, form: Filled, context: RequestContext) -> Response:
    name, back = form.get("login", "").strip(), form.get("back", "")
    try:
        user = context.logins.authenticate(
            name, form.get("password", ""), access.address_of(request)
        )
    except ApiError as error:
        fault = (
            "Login or password are wrong" if error.status == HTTPStatus.UNAUTHORIZED else str(error)
        )
        return render(request, "login.html", error.status, back=back, login=name, fault=fault)
    response = see(pages.own_path(back))
    log_in(request, response, user)
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    response = see("/login")
    log_out(request, response)
    return response


@router.get("/account")
def account(request: Request, user: Viewer, done: str = "") -> Response:
    """Show the form that sets a new password."""
    del user
    return render(request, "account.html", fault="", done=bool(done))


@router.post("/account")
def set_password(request: Request, user: Viewer, form: Filled, context: RequestContext) -> Response:
    """Change the password of one's own account. All its sessions end, and a new one begins."""
    new = form.get("password", "")
    try:
        if new != form.get("again", ""):
            raise ConfigError("the two passwords are not the same")
        context.accounts.put(user, new)
    except (ConfigError, BusyError) as error:
        return render(request, "account.html", HTTPStatus.BAD_REQUEST, fault=str(error), done=False)
    response = see("/account?done=1")
    log_in(request, response, user)
    return response


# --- scenarios ------------------------------------------------------------------------------------


@router.get("/")
def scenarios(request: Request, user: Viewer, context: RequestContext) -> Response:
    """List the scenarios that can be launched."""
    listed = [
        (project, context.catalog.scenarios(project.name))
        for project in run_pages.projects(context, user)
    ]
    return render(request, "scenarios.html", projects=listed)


@router.get("/scenarios/{project}/{name}")
def scenario(
    request: Request, project: str, name: str, user: Viewer, context: RequestContext
) -> Response:
    """Show the launch form of a scenario."""
    document, form = _form(context, user, project, name)
    given = {field.id: request.query_params.get(field.id, field.value) for field in form.fields}
    return _launch_page(request, project, document, form, given, {})


@router.post("/scenarios/{project}/{name}")
def launch_scenario(
    request: Request, project: str, name: str, user: Runner, context: RequestContext, filled: Filled
) -> Response:
    """Launch a scenario, or show the faults in the form."""
    document, form = _form(context, user, project, name)
    chosen = forms.read(form, filled)
    if chosen.faults or chosen.link is None:
        return _launch_page(request, project, document, form, filled, chosen.faults)
    try:
        used = access.project_of(context, user, project, "Scenario")
        values = chosen.arguments, chosen.link, user.login, chosen.constants
        instance = launch.scenario_instance(context, used, name, *values)
    except ApiError as error:
        return _launch_page(
            request, project, document, form, filled, {"": pages.words_of(error)}, error.status
        )
    return see(f"/runs/{instance.id}")


def _form(
    context: Context, user: User, project: str, name: str
) -> tuple[forms.Document, forms.Form]:
    scenarios = context.catalog.scenarios(
        access.project_of(context, user, project, "Scenario").name
    )
    if name not in scenarios:
        raise not_found("Scenario")
    return scenarios[name], forms.form_of(
        scenarios[name], scenarios, context.inventory.jobs(), paths.PROFILES
    )


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
    values = {
        "project": project,
        "scenario": document,
        "form": form,
        "given": given,
        "faults": faults,
    }
    return render(request, "launch.html", code, **values)


# --- runs -----------------------------------------------------------------------------------------


@router.get("/runs/{number}")
def run(
    request: Request, number: int, user: Viewer, context: RequestContext, hop: Hop = ""
) -> Response:
    """Show the progress or the results of one instance."""
    instance = access.scenario_instance(context, user, number)
    folder = run_pages.folder_of(context, instance)
    view = run_pages.results([folder], instance.scenario) if folder and instance.ended else None
    has_report = folder is not None and (folder / "report" / "index.html").is_file()
    link = instance.request.link
    shown = {"profile": link.profile, **link.model_dump(exclude_defaults=True)}
    values: dict[str, object] = {"view": view, "has_report": has_report, "link": shown}
    values |= {"relaunch": _relaunch(context, instance)}
    values |= {
        "note": context.run_notes.of(instance.id),
        "has_files": folder is not None and instance.ended,
    }
    values |= {"logs": run_logs.logs(run_logs.files(context, folder, instance.run_id), instance)}
    return render(
        request,
        "run.html",
        **values,
        **_live(request, context, instance, hop),
    )


def _relaunch(context: Context, instance: Instance) -> str:
    """Return the path of the launch page with the values of an instance."""
    usual = (context.catalog.scenario(instance.project, instance.scenario) or {}).get(
        "constants", {}
    )
    constants = instance.request.documents[instance.scenario].get("constants", {})
    link = instance.request.link.model_dump(exclude_defaults=True)
    given = {f"link.{name}": forms.form_text(value) for name, value in link.items()}
    given |= {f"argument.{name}": value for name, value in instance.request.arguments.items()}
    given |= {
        f"constant.{name}": value for name, value in constants.items() if value != usual.get(name)
    }
    place = (
        f"{PAGES}/scenarios/{quote(instance.project, safe='')}/{quote(instance.scenario, safe='')}"
    )
    return f"{place}?{urlencode(given)}" if given else place


@router.get("/runs/{number}/live")
def live(
    request: Request, number: int, user: Viewer, context: RequestContext, hop: Hop = ""
) -> Response:
    """Return the part of an instance's page that changes while it runs."""
    instance = access.scenario_instance(context, user, number)
    return render(request, "live.html", **_live(request, context, instance, hop))


@router.get("/runs/{number}/events")
def events(
    request: Request, number: int, user: Viewer, context: RequestContext, hop: Hop = ""
) -> Response:
    """Send that part as server-sent events while the instance runs and the account may see it."""
    access.scenario_instance(context, user, number)

    def current() -> tuple[str, bool] | None:
        try:
            instance = access.scenario_instance(context, pages.viewer(request), number)
        except (ApiError, pages.LoginNeededError):
            return None  # the session has ended, or the account may no longer see the instance
        page = render(request, "live.html", **_live(request, context, instance, hop))
        return bytes(page.body).decode(), instance.ended

    return Events(current, request.app.state.listeners)


def _live(request: Request, context: Context, instance: Instance, hop: str) -> dict[str, object]:
    folder = run_pages.folder_of(context, instance)
    curves = request.app.state.link_curves.curves(folder) if folder else None
    ahead = (
        sum(other.id < instance.id for other in context.queue.live()) if not instance.ended else 0
    )
    link = None
    if folder is not None and curves is not None and curves.start_unix_s is not None:
        start_s = live_view.scenario_start_s(curves, instance)
        plan, ended = live_view.plan_of(folder), instance.ended
        activity = live_activity.of(instance.progress, ended=ended)
        link = live_view.link_view(curves, plan, start_s, ended=ended, hop=hop, activity=activity)
    now = context.clock()
    return {
        "instance": instance,
        "tone": run_pages.TONES.get(instance.status, "bad"),
        "phase": run_pages.phase(instance, ahead),
        "steps": run_pages.steps(instance, instance.stopped or now),
        "path_view": link,
        "hop": hop,
        "elapsed": (instance.stopped or now) - instance.launched,
        "left": live_view.time_left(request.app.state.earlier_runs, instance, now),
        "pressure": None if instance.ended else live_view.host_pressure(),
    }


@router.get("/runs/{number}/logs/{name}")
def log(number: int, name: str, user: Viewer, context: RequestContext) -> Response:
    """Return a log of an instance as a file."""
    instance = access.scenario_instance(context, user, number)
    return run_logs.attachment(
        run_logs.files(context, run_pages.folder_of(context, instance), instance.run_id), name
    )


@router.post("/runs/{number}/stop")
def stop(number: int, user: Runner, context: RequestContext) -> Response:
    """Stop an instance."""
    context.queue.stop(access.scenario_instance(context, user, number).id)
    return see(f"/runs/{number}")


@router.get("/runs/{number}/report")
def one_report(number: int, user: Viewer, context: RequestContext) -> Response:
    """Return the report of an instance."""
    folder = run_pages.folder_of(context, access.scenario_instance(context, user, number))
    path = folder / "report" / "index.html" if folder else None
    if path is None or not path.is_file():
        raise not_found("report")
    return pages.report(path.read_text(encoding="utf-8"))
