# SPDX-License-Identifier: GPL-3.0-or-later
"""Job instances: those of scenarios, and jobs that are started by themselves, each in a lab of its own."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from satlab.serve import instance_view, launch
from satlab.serve.accounts import Role, User
from satlab.serve.api_errors import ApiError, ViewError, not_found
from satlab.serve.context import Body, Context, Here
from satlab.serve.identity import Runner, Viewer, forbidden
from satlab.serve.queue import Instance
from satlab.serve.routes import access
from satlab.serve.routes.agents import accepted, done

router = APIRouter()


@router.post("/job_instance/")
def act(user: Runner, body: Body, here: Here) -> Response:
    """Start a job, stop jobs, or stop everything (administrators)."""
    match body.get("action"):
        case "start":
            return _start(here, user, body)
        case "stop":
            for number in _numbers(body, "job_instance_ids"):
                _stop(here, user, number)
            return accepted()
        case "kill":
            if user.role is not Role.ADMIN:
                raise forbidden("This needs the role admin", user.login)
            for instance in here.queue.live():
                here.queue.stop(instance.id)
            return Response(status_code=HTTPStatus.NO_CONTENT)
        case action:
            raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")


def _start(here: Context, user: User, body: dict[str, Any]) -> Response:
    agent, job, arguments = (body.get(key) for key in ("agent_ip", "job_name", "instance_args"))
    if not isinstance(agent, str) or not isinstance(job, str) or not isinstance(arguments or {}, dict):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: agent_ip, job_name or instance_args")
    instance = launch.job_instance(here, agent, job, arguments or {}, user.login)
    return JSONResponse({"job_instance_id": instance.first_job}, HTTPStatus.ACCEPTED)


def _numbers(body: dict[str, Any], key: str) -> list[int]:
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"Missing parameter: {key}")
    return value


def _stop(here: Context, user: User, number: int) -> None:
    """Stop a job that was started by itself; one of a scenario ends with its scenario."""
    instance = _known(here, user, number)
    if instance.kind == "scenario":
        raise ApiError(HTTPStatus.CONFLICT, "The job belongs to a scenario: stop the scenario_instance")
    here.queue.stop(instance.id)


@router.get("/job_instance/")
def running(user: Viewer, here: Here, address: Annotated[list[str], Query()]) -> Response:
    """List the job instances that run on agents."""
    found = [
        {
            "address": each,
            "installed_jobs": [
                {"job_name": name, "instances": [job for job in _live(here, user) if _is(job, each, name)]}
                for name in launch.jobs(here)
            ],
        }
        for each in address
    ]
    return JSONResponse({"instances": found}, HTTPStatus.ACCEPTED)


def _is(job: dict[str, Any], address: str, name: str) -> bool:
    return bool(job["agent"] == address and job["name"] == name)


def _live(here: Context, user: User) -> Iterator[dict[str, Any]]:
    for instance in here.queue.live():
        if not access.may_see(here, user, instance):
            continue
        for progress in instance_view.job_progress(instance):
            job = instance_view.job(here, instance, progress["id"])
            if job is not None and job["status"] == "Running":
                yield job


@router.get("/job_instance/{number}/")
def one(number: int, user: Viewer, here: Here) -> dict[str, Any]:
    """Return a job instance."""
    found = instance_view.job(here, _known(here, user, number), number)
    if found is None:
        raise not_found("JobInstance")
    return found


@router.post("/job_instance/{number}/")
def act_on(number: int, user: Runner, body: Body, here: Here) -> Response:
    """Stop a job, or start it again with other arguments."""
    instance = _known(here, user, number)
    match body.get("action"):
        case "stop":
            _stop(here, user, number)
        case "restart":
            found = instance_view.job(here, instance, number)
            if found is None:
                raise not_found("JobInstance")
            arguments = body.get("instance_args")
            return _start(
                here,
                user,
                {
                    "agent_ip": found["agent"],
                    "job_name": found["name"],
                    "instance_args": found["arguments"] if arguments is None else arguments,
                },
            )
        case action:
            raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")
    return accepted()


@router.get("/job_instance/{number}/state/")
def state(number: int, user: Viewer, here: Here) -> dict[str, Any]:
    """Tell that everything asked of a job instance is done."""
    _known(here, user, number)
    return {key: done(here) for key in ("start", "stop", "restart")}


def _known(here: Context, user: User, number: int) -> Instance:
    instance = here.queue.find_job(number)
    if instance is None:
        raise not_found("JobInstance")
    access.check_instance(here, user, instance)
    return instance
