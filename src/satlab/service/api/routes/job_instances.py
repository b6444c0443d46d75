# SPDX-License-Identifier: GPL-3.0-or-later
"""Job instances: jobs of scenarios, and jobs without a scenario. Each job without a scenario runs
in its own lab.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from satlab.service.api import access, instance_json, launch
from satlab.service.api.access import Runner, Viewer
from satlab.service.api.account_store import Role
from satlab.service.api.api_answers import ApiError, ViewError, accepted, completed, not_found
from satlab.service.api.dependencies import Body, Context, RequestContext, list_in

router = APIRouter()


@router.post("/job_instance/")
def act(user: Runner, body: Body, context: RequestContext) -> Response:
    """Start a job, stop jobs, or stop everything (administrators)."""
    match body.get("action"):
        case "start":
            return _start(context, user, body)
        case "stop":
            for number in list_in(body, "job_instance_ids", int):
                _stop(context, user, number)
            return accepted()
        case "kill":
            if user.role is not Role.ADMIN:
                raise access.forbidden("This needs the role admin", user.login)
            for instance in context.queue.live():
                context.queue.stop(instance.id)
            return Response(status_code=HTTPStatus.NO_CONTENT)
        case action:
            raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")


def _start(context: Context, user: Viewer, body: dict[str, Any]) -> Response:
    agent, job, arguments = (body.get(key) for key in ("agent_ip", "job_name", "instance_args"))
    if (
        not isinstance(agent, str)
        or not isinstance(job, str)
        or not isinstance(arguments or {}, dict)
    ):
        raise ViewError(
            HTTPStatus.BAD_REQUEST, "Missing parameter: agent_ip, job_name or instance_args"
        )
    instance = launch.job_instance(context, agent, job, arguments or {}, user.login)
    return JSONResponse({"job_instance_id": instance.first_job}, HTTPStatus.ACCEPTED)


def _stop(context: Context, user: Viewer, number: int) -> None:
    """Stop a job without a scenario; the job of a scenario ends with its scenario."""
    instance = access.job_instance(context, user, number)
    if instance.kind == "scenario":
        raise ApiError(
            HTTPStatus.CONFLICT, "The job belongs to a scenario: stop the scenario_instance"
        )
    context.queue.stop(instance.id)


@router.get("/job_instance/")
def running(
    user: Viewer, context: RequestContext, address: Annotated[list[str], Query()]
) -> Response:
    """List the job instances that run on agents."""
    live, names = list(_live(context, user)), context.inventory.jobs()
    listed = [
        {
            "address": each,
            "installed_jobs": [
                {
                    "job_name": name,
                    "instances": [
                        job for job in live if (job["agent"], job["name"]) == (each, name)
                    ],
                }
                for name in names
            ],
        }
        for each in address
    ]
    return JSONResponse({"instances": listed}, HTTPStatus.ACCEPTED)


def _live(context: Context, user: Viewer) -> Iterator[dict[str, Any]]:
    for instance in context.queue.live():
        if not access.may_see(context, user, instance):
            continue
        for progress in instance_json.job_progress(instance):
            job = instance_json.job(context, instance, progress["id"])
            if job is not None and job["status"] == "Running":
                yield job


@router.get("/job_instance/{number}/")
def one(number: int, user: Viewer, context: RequestContext) -> dict[str, Any]:
    job = instance_json.job(context, access.job_instance(context, user, number), number)
    if job is None:
        raise not_found("Job Instance", job_instance_id=number)
    return job


@router.post("/job_instance/{number}/")
def act_on(number: int, user: Runner, body: Body, context: RequestContext) -> Response:
    """Stop a job, or restart it with equal or other arguments."""
    instance = access.job_instance(context, user, number)
    match body.get("action"):
        case "stop":
            _stop(context, user, number)
        case "restart":
            job = instance_json.job(context, instance, number)
            if job is None:
                raise not_found("Job Instance", job_instance_id=number)
            arguments = body.get("instance_args")
            return _start(
                context,
                user,
                {
                    "agent_ip": job["agent"],
                    "job_name": job["name"],
                    "instance_args": job["arguments"] if arguments is None else arguments,
                },
            )
        case action:
            raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")
    return accepted()


@router.get("/job_instance/{number}/state/")
def state(number: int, user: Viewer, context: RequestContext) -> dict[str, Any]:
    """Report every operation as completed."""
    access.job_instance(context, user, number)
    return {key: completed(context.clock()) for key in ("start", "stop", "restart")}
