# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes below `/ui` of one run: its page while it runs and after, stop, logs, note, removal."""

import re
import shlex
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator

from satlab.common.errors import ConfigError
from satlab.run import scenario_run
from satlab.service.api import access
from satlab.service.api.access import RunInstance
from satlab.service.api.api_answers import ApiError
from satlab.service.api.dependencies import Context, RequestContext
from satlab.service.api.queue import Instance
from satlab.service.api.request_guard import PAGES
from satlab.service.pages import (
    launch_form,
    link_view,
    live_activity,
    path_picture,
    rendering,
    run_list,
    run_logs,
    run_pages,
    time_left,
)
from satlab.service.pages.rendering import Filled, Page, Viewer, render, see
from satlab.service.pages.server_sent_events import Events

router = APIRouter(route_class=Page, include_in_schema=False)
Hop = Annotated[Literal["", "forward", "return", "terrestrial"], Query()]
"""The hop of the path whose curves are shown (path_picture.HOPS)."""


def _time(text: str) -> str:
    if not re.fullmatch(r"(-?[0-9]{1,7}(\.[0-9]{0,3})?)?", text):
        raise ValueError("a number of seconds, with at most 7 digits and 3 decimals")
    return text


Time = Annotated[str, AfterValidator(_time)]
"""A time in s, negative: from the last one; '' for the first or last one (link_view.Shown)."""


@dataclass(frozen=True)
class CurveChoice:
    """The hop whose curves are shown, and the time range."""

    hop: Hop = ""
    since: Time = ""
    until: Time = ""

    @property
    def shown(self) -> link_view.Shown:
        """Return the times that are shown."""
        since, until = (float(text) if text else None for text in (self.since, self.until))
        return (since, until)

    @property
    def zoom(self) -> str:
        """Return the times as the end of an address."""
        given = {"since": self.since, "until": self.until}
        chosen = urlencode({name: text for name, text in given.items() if text})
        return f"&{chosen}" if chosen else ""


Choice = Annotated[CurveChoice, Depends()]


def _viewed(number: int, user: Viewer, context: RequestContext) -> Instance:
    return access.scenario_instance(context, user, number)


Viewed = Annotated[Instance, Depends(_viewed)]
"""The instance of the path's number; without a session the log-in is shown."""


@router.get("/runs/{number}")
def run(request: Request, instance: Viewed, context: RequestContext, choice: Choice) -> Response:
    """Show the progress or the results of one instance."""
    folder = run_pages.folder_of(context, instance)
    view = run_pages.results([folder], instance.scenario) if folder and instance.ended else None
    return render(
        request,
        "run.html",
        view=view,
        has_report=rendering.report_file(folder) is not None,
        has_files=folder is not None and instance.ended,
        arguments=run_list.values_of(context, instance),
        link={"profile": instance.request.link.profile, **run_list.changed(instance)},
        relaunch=_relaunch(context, instance),
        note=context.run_notes.of(instance.id),
        logs=run_logs.logs(run_logs.files(context, folder, instance.run_id), instance),
        **_live(request, context, instance, choice),
    )


def _relaunch(context: Context, instance: Instance) -> str:
    """Return the path of the launch page with the values of an instance."""
    given = {
        f"link.{name}": launch_form.form_text(value)
        for name, value in run_list.changed(instance).items()
    }
    for name, value in run_list.values_of(context, instance).items():
        group = "argument" if name in instance.request.arguments else "constant"
        given[f"{group}.{name}"] = value
    place = (
        f"{PAGES}/scenarios/{quote(instance.project, safe='')}/{quote(instance.scenario, safe='')}"
    )
    return f"{place}?{urlencode(given)}" if given else place


@router.get("/runs/{number}/live")
def live(request: Request, instance: Viewed, context: RequestContext, choice: Choice) -> Response:
    """Return the part of an instance's page that changes while it runs."""
    return render(request, "live.html", **_live(request, context, instance, choice))


@router.get("/runs/{number}/events", dependencies=[Depends(_viewed)])
def events(request: Request, number: int, context: RequestContext, choice: Choice) -> Response:
    """Send that part as server-sent events while the instance runs and the account may see it."""

    def current() -> tuple[str, bool] | None:
        try:
            instance = access.scenario_instance(context, rendering.viewer(request), number)
        except (ApiError, rendering.LoginNeededError):
            return None  # the session has ended, or the account may no longer see the instance
        page = render(request, "live.html", **_live(request, context, instance, choice))
        return bytes(page.body).decode(), instance.ended

    return Events(current, request.app.state.listeners)


def _live(
    request: Request, context: Context, instance: Instance, choice: CurveChoice
) -> dict[str, object]:
    folder = run_pages.folder_of(context, instance)
    curves = request.app.state.link_curves.curves(folder) if folder else None
    ahead = (
        sum(other.id < instance.id for other in context.queue.live()) if not instance.ended else 0
    )
    link = None
    if folder is not None and curves is not None and curves.start_unix_s is not None:
        start_s = link_view.scenario_start_s(curves, instance)
        plan, ended = link_view.plan_of(folder), instance.ended
        activity = live_activity.of(instance.progress, ended=ended)
        link = link_view.link_view(
            curves,
            plan,
            start_s,
            ended=ended,
            hop=choice.hop,
            shown=choice.shown,
            activity=activity,
        )
    now = context.clock()
    return {
        "instance": instance,
        "state": run_pages.state(instance),
        "position": run_pages.position(context, instance),
        "phase": run_pages.phase(instance, ahead),
        "steps": run_pages.steps(instance, instance.stopped or now),
        "path_view": link,
        "hop": choice.hop,
        "zoom": choice.zoom,
        "shells": [] if link is None or instance.ended else _shells(instance),
        "elapsed": (instance.stopped or now) - instance.launched,
        "left": time_left.time_left(request.app.state.earlier_runs, instance, now),
        "pressure": None if instance.ended else run_pages.host_pressure(),
    }


def _shells(instance: Instance) -> list[str]:
    """Return the commands that open a shell in the nodes of an instance's lab."""
    lab = scenario_run.lab_id(instance.run_id or "")
    nodes = (name.lower() for name in path_picture.NODES if name != "SAT")
    return [shlex.join(["sudo", "./satlab", "shell", node, "--lab", lab]) for node in nodes]


@router.get("/runs/{number}/logs/{name}")
def log(name: str, instance: Viewed, context: RequestContext) -> Response:
    """Return a log of an instance as a file."""
    folder = run_pages.folder_of(context, instance)
    return run_logs.attachment(run_logs.files(context, folder, instance.run_id), name)


@router.post("/runs/{number}/stop")
def stop(number: int, instance: RunInstance, context: RequestContext) -> Response:
    """Stop an instance."""
    context.queue.stop(instance.id)
    return see(f"/runs/{number}")


@router.get("/runs/{number}/report")
def one_report(instance: Viewed, context: RequestContext) -> Response:
    """Return the report of an instance."""
    return rendering.stored_report(run_pages.folder_of(context, instance))


@router.post("/runs/{number}/note")
def set_note(instance: RunInstance, context: RequestContext, filled: Filled) -> Response:
    """Set the note of an instance."""
    try:
        context.run_notes.set_note(instance.id, filled.get("note", ""))
    except ConfigError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return see(f"/runs/{instance.id}")


@router.get("/runs/{number}/remove")
def ask_to_remove(request: Request, instance: RunInstance, context: RequestContext) -> Response:
    """Ask whether an instance is to be removed."""
    if not instance.ended:
        raise ApiError(HTTPStatus.CONFLICT, "This run has not ended. Stop it first.")
    return render(request, "remove.html", instance=instance, note=context.run_notes.of(instance.id))


@router.post("/runs/{number}/remove")
def remove(instance: RunInstance, context: RequestContext) -> Response:
    """Remove an instance that has ended, with its note.

    Its run folder is removed when there are too many newer ones.
    """
    if not context.queue.remove(instance.id):
        raise ApiError(HTTPStatus.CONFLICT, "This run has not ended. Stop it first.")
    return see("/runs")
