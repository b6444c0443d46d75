# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that reads a qlog file: `python -m satlab.check.trace.qlog_process OUT SIDE SIZE`.

The file is its standard input, opened by its parent (`qlog_reader`); the answer is a file in the
folder OUT. So it needs no right to the file's folder and can run as any user, and a hostile file harms
only this process.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, cast

from pydantic import ConfigDict, TypeAdapter, with_config

from satlab.check.trace import qlog, qlog_transfer
from satlab.check.trace.qlog import Kind, QlogError, Side
from satlab.check.trace.qlog_transfer import QlogTransfer


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class Fault:
    """Why a file cannot be used: the arguments of a QlogError."""

    kind: Kind
    reason: str


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class Answer:
    """What the process writes.

    `version` is that of this form.
    """

    found: QlogTransfer | Fault
    version: Literal[1] = 1


ANSWER = TypeAdapter(Answer)
ANSWER_FILE = "answer.json"


def transfer(file: BinaryIO, side: Side, size: int) -> QlogTransfer:
    """Read a file of `side`, which may also be nobody's. Raises QlogError."""
    log = qlog.of_file(file, side)
    if log.side not in (None, side):
        raise QlogError("does not fit", f"its vantage point is the {log.side}")
    return qlog_transfer.read(replace(log, side=side), size)


def answer(file: BinaryIO, side: Side, size: int) -> Answer:
    try:
        return Answer(transfer(file, side, size))
    except QlogError as error:
        return Answer(Fault(error.kind, str(error)))


if __name__ == "__main__":
    written = answer(sys.stdin.buffer, cast("Side", sys.argv[2]), int(sys.argv[3]))
    (Path(sys.argv[1]) / ANSWER_FILE).write_bytes(ANSWER.dump_json(written))
