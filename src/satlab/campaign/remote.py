# SPDX-License-Identifier: GPL-3.0-or-later
"""One attempt on a host that is reached over ssh: `satlab campaign attempt` (docs/campaigns.md).

Request: one line of JSON, then the plan's text, on stdin, which stays open: its end stops the
attempt. Answer: a tar archive of the attempt's files on stdout, the last of them RESULT. Without
RESULT the attempt was not finished.
"""

import io
import shutil
import tarfile
import threading
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import Field, ValidationError

from satlab import __version__
from satlab.campaign import attempt
from satlab.campaign import plan as plans
from satlab.campaign.attempt import STOP_S
from satlab.campaign.folder import locked
from satlab.campaign.plan import Id, Plan, Strict, Task
from satlab.campaign.record import Ended
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus

RESULT = "ended.json"
MAX_REQUEST = 10_000
MAX_PLAN = 200_000_000


class Request(Strict):
    """Which attempt: the plan's SHA-256 and length in bytes, the task, and one of the host's slots
    from 0.
    """

    schema_: Literal["satlab/campaign-attempt/1"] = Field(
        default="satlab/campaign-attempt/1", alias="schema"
    )
    plan_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    plan_bytes: int = Field(ge=1, le=MAX_PLAN)
    task: Id
    slot: int = Field(ge=0, lt=256)

    def line(self) -> bytes:
        """Return the request as the first line on stdin."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


def serve(stdin: BinaryIO, stdout: BinaryIO, stop: threading.Event) -> ExitStatus:
    """Do one attempt. A slot takes one at a time: what a lost connection left is waited for.

    Raises:
        ConfigError: the request is invalid, or the plan another one or of another version of
            satlab.
        HostError: the slot is held for longer than an attempt may take.
    """
    request, plan, task = _read(stdin)
    threading.Thread(target=_stop_at_end, args=(stdin, stop), daemon=True).start()
    state = _state()
    with locked(state / f"slot-{request.slot}.lock", plan.deadline_s + 2 * STOP_S) as lock:
        place = state / f"slot-{request.slot}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            ended = attempt.here(task, place, plan.deadline_s, lock, stop)
            if ended is None:
                return ExitStatus.INTERRUPTED
            _answer(place, ended, stdout)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return ExitStatus.OK


def _read(stdin: BinaryIO) -> tuple[Request, Plan, Task]:
    try:
        request = Request.model_validate_json(stdin.readline(MAX_REQUEST))
    except ValidationError as error:
        raise ConfigError(
            f"no request for an attempt: {error}", hint="satlab campaign run starts this"
        ) from error
    text = stdin.read(request.plan_bytes).decode(errors="replace")
    plan = plans.parse(text, "stdin", request.plan_sha256)
    if plan.satlab_version != __version__:
        raise ConfigError(
            f"the plan is of satlab {plan.satlab_version}, this host has {__version__}",
            hint="update it",
        )
    return request, plan, plan.task(request.task)


def _stop_at_end(stdin: BinaryIO, stop: threading.Event) -> None:
    while stdin.read(4096):
        pass
    stop.set()


def _state() -> Path:
    """Return the folder of attempts, which belongs to this user alone."""
    folder = paths.state_folder() / "attempts"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _answer(place: Path, ended: Ended, stdout: BinaryIO) -> None:
    """Write plain files and folders, then the result."""
    with tarfile.open(fileobj=stdout, mode="w|") as archive:
        archive.add(
            place,
            arcname=".",
            filter=lambda member: member if member.isreg() or member.isdir() else None,
        )
        result = ended.model_dump_json().encode()
        member = tarfile.TarInfo(RESULT)
        member.size = len(result)
        archive.addfile(member, io.BytesIO(result))
    stdout.flush()
