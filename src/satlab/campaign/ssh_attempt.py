# SPDX-License-Identifier: GPL-3.0-or-later
"""The other end of `ssh_dispatch`: one attempt on this host, `satlab campaign attempt`
(docs/campaigns.md).

Request: one line of JSON on stdin, which stays open: its end stops the attempt. Answer: a tar
archive of the attempt's files on stdout, the last of them RESULT. Without RESULT the attempt was
not finished.
"""

import io
import os
import select
import shutil
import tarfile
import threading
import time
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import Field, ValidationError

from satlab import __version__
from satlab.campaign import attempt
from satlab.campaign.attempt import STOP_S
from satlab.campaign.campaign_folder import locked
from satlab.campaign.task_record import Ended
from satlab.campaign.task_request import Portable, Strict
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus, Fault

RESULT = "ended.json"
MAX_REQUEST = 4 << 20
REQUEST_S = 60.0
"""Longest time until the request has arrived, s."""
CHUNK = 1 << 16


class AttemptRequest(Strict):
    """The request of a task, its deadline, s, and the number of the host's slot, from 0."""

    schema_: Literal["satlab/campaign-attempt/2"] = Field(
        default="satlab/campaign-attempt/2", alias="schema"
    )
    satlab_version: Annotated[str, Field(max_length=64)] = __version__
    deadline_s: float = Field(gt=0, le=86_400)
    slot: int = Field(ge=0, lt=256)
    request: Portable

    def line(self) -> bytes:
        """Return the request as a line."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


def serve(stdin: int, stdout: BinaryIO, stop: threading.Event) -> ExitStatus:
    """Run one attempt. A slot runs one attempt at a time, so this waits for an attempt of a lost
    connection.

    `stdin` is a descriptor: a thread that waits in a buffered reader would abort the interpreter at
    its end.

    Raises:
        ConfigError: the request is invalid, of another version of satlab, or names what this host
            has not.
        HostError: the slot is held for longer than an attempt may take.
    """
    asked = _read(stdin)
    attempt.command(asked.request)
    threading.Thread(target=_stop_at_end, args=(stdin, stop), daemon=True).start()
    state = _state()
    with locked(state / f"slot-{asked.slot}.lock", asked.deadline_s + 2 * STOP_S) as lock:
        place = state / f"slot-{asked.slot}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            ended = attempt.run(asked.request, place, asked.deadline_s, lock, stop)
            if ended is None:
                return ExitStatus.INTERRUPTED
            _answer(place, ended, stdout)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return ExitStatus.OK


def _read(stdin: int) -> AttemptRequest:
    try:
        asked = AttemptRequest.model_validate_json(_line(stdin))
    except ValidationError as error:
        faults = [
            Fault(".".join(map(str, fault["loc"])) or "request", fault["msg"])
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(
            "no request for an attempt", faults, hint="satlab campaign run starts this"
        ) from error
    if asked.satlab_version != __version__:
        raise ConfigError(
            f"the request is of another satlab, this host has {__version__}", hint="update it"
        )
    return asked


def _line(stdin: int) -> bytes:
    """Return the first line. Raises ConfigError when it is too long or late."""
    line, until = bytearray(), time.monotonic() + REQUEST_S
    while b"\n" not in line[-CHUNK:]:
        ready, _, _ = select.select([stdin], [], [], max(0.0, until - time.monotonic()))
        if not ready or len(line) > MAX_REQUEST:
            raise ConfigError(
                f"no request for an attempt: more than {MAX_REQUEST} bytes, or {REQUEST_S:g} s"
            )
        data = os.read(stdin, CHUNK)
        if not data:
            break
        line += data
    return bytes(line.partition(b"\n")[0])


def _stop_at_end(stdin: int, stop: threading.Event) -> None:
    while os.read(stdin, CHUNK):
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
