# SPDX-License-Identifier: GPL-3.0-or-later
"""The API's side of the root helper's socket."""

import socket
from pathlib import Path

from pydantic import ValidationError

from satlab.rootd.verbs import (
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
"""How long the helper may take, s: it removes what a killed run has left before it tells of it."""


class HelperClient:
    """Asks the helper. Each call raises RefusedError with its reason, or HelperError when it does not answer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, run_id: str, order: ScenarioRequest) -> None:
        """Start a run."""
        self._ask(StartRequest(run_id=run_id, order=order))

    def stop(self, run_id: str) -> None:
        """Ask a run to end."""
        self._ask(StopRequest(run_id=run_id))

    def status(self, run_id: str) -> RunStatus:
        """Return how a run is."""
        answer = self._ask(StatusRequest(run_id=run_id))
        if answer.status is None:
            raise HelperError("the root helper's answer lacks the status")
        return answer.status

    def _ask(self, request: StartRequest | StopRequest | StatusRequest) -> Response:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_S)
                connection.connect(str(self._path))
                connection.sendall(request.model_dump_json().encode() + b"\n")
                line = read_line(connection)
        except OSError as error:
            raise HelperError(f"the root helper does not answer: {error}", "start satlab serve again") from error
        if line is None:
            raise HelperError("the root helper has closed the connection", "start satlab serve again")
        try:
            answer = Response.model_validate_json(line)
        except ValidationError as error:
            raise HelperError("the root helper's answer is not one") from error
        if answer.error:
            raise RefusedError(answer.error)
        return answer
