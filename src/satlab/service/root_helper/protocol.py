# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to the root helper (schemas/rootd-request.schema.json) and its responses, one JSON line
each.

Everything that a user wrote arrives as data with limits: documents, texts and names. No path, no
command, no program.
"""

import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from satlab.common.errors import ExitStatus, SatlabError
from satlab.link.options import (
    DropOptions,
    ImpairmentOptions,
    LabOptions,
    LinkOptions,
    LossOptions,
    PathOptions,
    QueueOptions,
)

MAX_REQUEST = 16 << 20
"""Largest request, bytes: a scenario with all its sub-scenarios."""
MAX_TEXT = 65536
"""Longest value of an argument, characters; Linux takes 128 KiB in one element of argv."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$")]
Title = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]([A-Za-z0-9_. -]{0,62}[A-Za-z0-9_.-])?$")]
"""Name of a scenario, which becomes the name of a file."""
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Id = Annotated[int, Field(ge=1, lt=1 << 53)]


class HelperError(SatlabError):
    """The root helper is absent, or its answer is invalid."""

    status = ExitStatus.HOST


class RefusedError(HelperError):
    """The root helper has refused a request."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunLink(LabOptions, QueueOptions, ImpairmentOptions, DropOptions, LossOptions, PathOptions):
    """The link of a run. Its options name no files, and its profile ships with satlab."""

    profile: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")] = "geo"
    loss_model: Annotated[
        str | None, Field(pattern=r"^(gilbert-elliott|bursts):[0-9.,e-]{1,64}$")
    ] = None

    def options(self) -> LinkOptions:
        """Return the options that `run` takes."""
        return LinkOptions(**self.model_dump())


class ScenarioRequest(_Model):
    """A scenario to run with all its subscenarios, by name, and the nodes of its entities.

    Instances of this run are numbered from `first_scenario_id` and `first_job_id`.
    """

    scenario: Title
    documents: Annotated[dict[Title, dict[str, Any]], Field(min_length=1, max_length=101)]
    arguments: Annotated[dict[Text, Text], Field(max_length=1000)] = {}
    entities: Annotated[dict[Text, Name], Field(max_length=1000)]
    link: RunLink = RunLink()
    first_scenario_id: Id
    first_job_id: Id
    deadline_s: Annotated[float, Field(gt=0, le=86400)] = 3600.0
    endless: bool = False


class StartRequest(_Model):
    """Start a run. Refused while another run is active."""

    verb: Literal["start"] = "start"
    run_id: Name
    order: ScenarioRequest


class StopRequest(_Model):
    """Stop a run, as an interrupt does. Has no effect on a run that is over."""

    verb: Literal["stop"] = "stop"
    run_id: Name


class StatusRequest(_Model):
    """Return the status of a run."""

    verb: Literal["status"] = "status"
    run_id: Name


Request = Annotated[
    StartRequest | StopRequest | StatusRequest,
    Field(
        discriminator="verb",
        description="Request to the root helper of satlab serve, one JSON line",
    ),
]
REQUEST: TypeAdapter[StartRequest | StopRequest | StatusRequest] = TypeAdapter(Request)


class RunStatus(_Model):
    """Status of a run.

    `progress`: schemas/run-progress.schema.json, None until it is first written.
    """

    phase: Literal["running", "ended"]
    exit_status: int | None = None
    progress: dict[str, Any] | None = None


class Response(_Model):
    """Response: `error` is empty on success."""

    error: str = ""
    status: RunStatus | None = None


def faults_of(error: ValidationError) -> list[str]:
    """Return each fault with its place."""
    faults = error.errors(include_input=False)
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults]


def read_request(line: bytes) -> StartRequest | StopRequest | StatusRequest:
    """Read a request. Raises RefusedError with every fault."""
    try:
        return REQUEST.validate_json(line)
    except ValidationError as error:
        raise RefusedError(f"invalid request: {'; '.join(faults_of(error))[:1000]}") from error
    except RecursionError as error:
        raise RefusedError("the request is nested too deeply") from error


def read_line(connection: socket.socket) -> bytes | None:
    """Read a line. Return None if the connection ends before the line does, or if the line is too
    long.
    """
    data = bytearray()
    while not data.endswith(b"\n"):
        chunk = connection.recv(65536)
        data += chunk
        if not chunk or len(data) > MAX_REQUEST:
            return None
    return bytes(data)


ANSWER_S = 30.0
"""Longest pause of the helper, s: it removes what a killed run has left before it answers."""


class HelperClient:
    """Each method raises RefusedError with the helper's reason, or HelperError if it does not
    answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, run_id: str, request: ScenarioRequest) -> None:
        self._send(StartRequest(run_id=run_id, order=request))

    def stop(self, run_id: str) -> None:
        self._send(StopRequest(run_id=run_id))

    def status(self, run_id: str) -> RunStatus:
        answer = self._send(StatusRequest(run_id=run_id))
        if answer.status is None:
            raise HelperError("the root helper's answer lacks the status")
        return answer.status

    def _send(self, request: StartRequest | StopRequest | StatusRequest) -> Response:
        data = request.model_dump_json().encode() + b"\n"
        if len(data) > MAX_REQUEST:
            raise RefusedError(
                f"the request has {len(data)} bytes, the root helper accepts {MAX_REQUEST}"
            )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_S)
                connection.connect(str(self._path))
                connection.sendall(data)
                line = read_line(connection)
        except OSError as error:
            raise HelperError(
                f"the root helper does not answer: {error}", "start satlab serve again"
            ) from error
        if line is None:
            raise HelperError(
                "the root helper has closed the connection", "start satlab serve again"
            )
        try:
            answer = Response.model_validate_json(line)
        except ValidationError as error:
            raise HelperError("the root helper's answer is invalid") from error
        if answer.error:
            raise RefusedError(answer.error)
        return answer
