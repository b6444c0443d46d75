# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage owns its lab: one at a time on a host, taken down however the stage ends, swept by the
next if it was killed.

The owner holds a lock on `/run/satlab-stage-<lab id>`, in which the folder of its mounts is
written; the kernel releases the lock when the process ends.
"""

import contextlib
import fcntl
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from satlab.common import processes
from satlab.common.errors import HostError
from satlab.lab import netns

RUN = Path("/run")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
END_DEADLINE_S = 30.0
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextlib.contextmanager
def owned(lab_id: str, folder: Path) -> Iterator[Path | None]:
    """Own a lab as long as the block lasts; yield the folder of a stage that did not end well, None
    if there is none.

    A signal that asks the stage to end interrupts the block.

    Raises:
        HostError: another stage owns it.
    """
    with (RUN / f"satlab-stage-{lab_id}").open("a+") as note:
        note.seek(0)
        left = note.read()
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(
                f"the stage {lab_id} runs already, in {left}", "wait for its end"
            ) from None
        note.truncate(0)
        note.write(str(folder))
        note.flush()
        with _handled(_interrupt):
            yield Path(left) if left else None
        note.truncate(0)


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Let no signal interrupt the block: what takes a lab down has deadlines of its own."""
    with _handled(signal.SIG_IGN):
        yield


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def end_processes(lab_id: str) -> None:
    """End whatever is inside the namespaces of a lab, and remove them.

    Raises:
        HostError: a process does not end.
    """

    def none_left() -> bool:
        processes.send(netns.occupants(lab_id), lambda: netns.occupants(lab_id), signal.SIGKILL)
        return not netns.occupants(lab_id)

    if not processes.wait(none_left, END_DEADLINE_S):
        raise HostError(
            f"processes of the stage {lab_id} do not end: {sorted(netns.occupants(lab_id))}"
        )
    netns.remove(lab_id)
