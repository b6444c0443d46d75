# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of the root helper."""

import socket
from pathlib import Path

from pydantic import ValidationError

from satlab.service.helper.verbs import (
    MAX_REQUEST,
    HelperError,
    RefusedError,
    Response,
    RunStatus,
    ScenarioRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    read_line,
)

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
