# SPDX-License-Identifier: GPL-3.0-or-later
"""The qlog files of flows. They are read after a run, while other labs measure, so each has a
process of its own with a low priority (check/trace/qlog_reader.py).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

from satlab.check.trace import qlog_reader
from satlab.check.trace.qlog import Side
from satlab.check.trace.qlog_transfer import QlogTransfer
from satlab.flows.endpoint_commands import Place
from satlab.flows.flow_nodes import SIDES

STACKS = ("ngtcp2", "picoquic")
"""Stacks that send a file and write qlog files."""
UNLIMITED_BYTES = 1 << 62

QlogReader = Callable[[Place, str], QlogTransfer]
"""Reads the file of one side of a flow. Raises QlogError if it is missing or unusable."""


def read(place: Place, side: str) -> QlogTransfer:
    """Read the file of a flow's side. Raises QlogError."""
    size = int(place.flow.get("bytes", UNLIMITED_BYTES))
    return qlog_reader.newest(place.qlog(side), cast("Side", side), size)


@contextmanager
def reading(places: Sequence[Place]) -> Iterator[QlogReader]:
    """Begin to read the files of all flows; the reader waits for the file that it is asked for."""
    ends = [(place, side) for place in places if place.flow["stack"] in STACKS for side in SIDES]
    if not ends:
        yield read
        return
    at_once = min(len(ends), os.cpu_count() or 1)
    with ThreadPoolExecutor(at_once) as pool:
        found = {(place.port, side): pool.submit(read, place, side) for place, side in ends}
        yield lambda place, side: found.pop((place.port, side)).result()
