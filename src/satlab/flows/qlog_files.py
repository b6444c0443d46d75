# SPDX-License-Identifier: GPL-3.0-or-later
"""The qlog files of flows, read in separate processes with a low priority. They are read after a
run, while other labs measure. Threads of this process would wait for each other, and the programs
of the labs would wait for the reader's core.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from satlab.check.trace import qlog, qlog_transfer
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.qlog_transfer import QlogTransfer
from satlab.flows.endpoint_commands import Place
from satlab.flows.flow_nodes import SIDES

STACKS = ("ngtcp2", "picoquic")
"""Stacks that send a file and write qlog files."""
NICENESS = 10
UNLIMITED_BYTES = 1 << 62

QlogReader = Callable[[Place, str], QlogTransfer]
"""Reads the file of one side of a flow. Raises QlogError if it is missing or unusable."""


def read(place: Place, side: str) -> QlogTransfer:
    """Read the file of a flow's side in this process. Raises QlogError."""
    return _read(place.qlog(side), _size(place))


@contextmanager
def reading(places: Sequence[Place]) -> Iterator[QlogReader]:
    """Begin to read the files of all flows; the reader waits for the file that it is asked for."""
    ends = [(place, side) for place in places if place.flow["stack"] in STACKS for side in SIDES]
    if not ends:
        yield read
        return
    at_once = min(len(ends), os.cpu_count() or 1)
    with ProcessPoolExecutor(
        at_once, mp_context=get_context("spawn"), initializer=_stand_back
    ) as pool:
        found = {
            (place.port, side): pool.submit(_read, place.qlog(side), _size(place))
            for place, side in ends
        }

        def take(place: Place, side: str) -> QlogTransfer:
            try:
                return found.pop((place.port, side)).result()
            except BrokenExecutor as error:
                raise QlogError("broken", "the process that read it ended") from error

        yield take


def _stand_back() -> None:
    os.nice(NICENESS)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # of a terminal: the run that waits for this process ends it


def _size(place: Place) -> int:
    return int(place.flow.get("bytes", UNLIMITED_BYTES))


def _read(folder: Path, size: int) -> QlogTransfer:
    file = qlog.newest(folder)
    if file is None:
        raise QlogError("missing", "no file")
    return qlog_transfer.read(qlog.opened(file), size)
