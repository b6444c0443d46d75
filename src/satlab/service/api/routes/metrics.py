# SPDX-License-Identifier: GPL-3.0-or-later
"""`/metrics`: the service and the link of the run in progress, in Prometheus' text format.

There are sums only: no names of accounts, projects, scenarios or runs.
"""

import hashlib
import hmac
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from satlab import __version__
from satlab.common.prometheus import MEDIA_TYPE, family
from satlab.openbach.engine import ScenarioStatus
from satlab.service.api.access import forbidden, user_of
from satlab.service.api.api_answers import ApiError
from satlab.service.api.counters import LABELS, Name
from satlab.service.api.dependencies import RequestContext, context_of

router = APIRouter()
COUNTERS: dict[str, tuple[Name, str]] = {
    "satlab_serve_runs_launched_total": ("runs_launched", "Instances launched."),
    "satlab_serve_runs_total": ("runs", "Instances that ended, by outcome."),
    "satlab_serve_run_seconds_total": (
        "run_seconds",
        "Seconds from start to end of runs that ended, by outcome.",
    ),
    "satlab_serve_logins_refused_total": (
        "logins_refused",
        "Logins and tokens refused, by reason.",
    ),
    "satlab_serve_requests_total": ("requests", "Requests answered, by class of the status."),
}


def may_read(request: Request) -> None:
    """Dependency: a session of any role, or the bearer of the token for metrics.

    Raises ApiError: 401, 403.
    """
    context = context_of(request)
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind:
        digest = hashlib.sha256(token.strip().encode(errors="surrogatepass")).hexdigest()
        right = context.settings.metrics_token_sha256
        if kind.lower() == "bearer" and right is not None and hmac.compare_digest(digest, right):
            return
        context.counters.add("logins_refused", "token")
        raise ApiError(HTTPStatus.UNAUTHORIZED, "The token is wrong")
    if user_of(request) is None:
        raise forbidden("You must be logged in to do this, or send the token for metrics", "")


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: Annotated[None, Depends(may_read)], context: RequestContext) -> Response:
    """Return counters of the service, and those of the link while its lab is up, in Prometheus'
    text format.
    """
    live = context.queue.live()
    running = next((each for each in live if each.status is ScenarioStatus.RUNNING), None)
    waiting = sum(each.status is ScenarioStatus.SCHEDULING for each in live)
    states = (
        ("satlab_serve_info", "Version of satlab.", {f'version="{__version__}"': 1}),
        ("satlab_serve_start_time_seconds", "Unix time of the start.", {"": context.started}),
        ("satlab_serve_queue_length", "Instances that wait.", {"": waiting}),
        ("satlab_serve_running", "1 while an instance runs.", {"": int(running is not None)}),
    )
    parts = [family(metric, text, "gauge", values) for metric, text, values in states]
    for metric, (name, text) in COUNTERS.items():
        label = LABELS[name][0]
        counts = {
            f'{label}="{value}"' if label else "": count
            for value, count in context.counters.of(name).items()
        }
        parts.append(family(metric, text, "counter", counts))
    if running is not None and running.run_id is not None:
        file = context.settings.runs / running.run_id / "raw" / "link.jsonl"
        parts.append(context.running_link.text(file))
    return Response("".join(parts), media_type=MEDIA_TYPE)
