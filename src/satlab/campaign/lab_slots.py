# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots of labs on one host: the number that `satlab bench host` found or, without that, half of
the cores.

A cluster may start several jobs on one machine, also through several nodes that share it. Without
slots their labs would take CPU time from each other and be out of calibration.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from satlab.campaign import attempt
from satlab.campaign.plan_file import Task
from satlab.campaign.task_record import Ended
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.locks import open_lock, try_lock
from satlab.run import host_stamp, quiet_host

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Identifies the machine: nodes with equal content share its cores (random(4))."""
POLL_S = 0.2


def labs() -> int:
    """Return the number of labs that this host can run at once."""
    measured = host_stamp.known(host_stamp.stamp()[0])
    return max(1, measured["labs"] if measured else (os.cpu_count() or 1) // 2)


@contextlib.contextmanager
def slot(stop: threading.Event) -> Iterator[None]:
    """Wait until this host can run one more lab, and hold its slot during the block; `stop` ends
    the waiting.
    """
    folder = paths.state_folder() / "labs"
    folder.mkdir(parents=True, exist_ok=True)
    boot_id = BOOT_ID.read_text().strip()
    with contextlib.ExitStack() as stack:
        places = []
        for number in range(labs()):
            places.append(open_lock(folder / f"{boot_id}-{number}.lock"))
            stack.callback(os.close, places[-1])
        while not stop.is_set() and not any(try_lock(place) for place in places):
            stop.wait(POLL_S)
        yield


@dataclass(frozen=True)
class OnThisHost:
    """Runs a task's command on this host (`attempt.Measure`). A lab waits for a slot, if it
    `takes_slot`, and for a quiet host up to `wait_quiet_s`; its deadline counts from then.
    """

    takes_slot: bool = False
    wait_quiet_s: float = 0.0

    def __call__(
        self, task: Task, place: Path, deadline_s: float, lock: int, stop: threading.Event
    ) -> Ended | None:
        """Run the command; None if `stop` was set first."""
        is_lab = task.lab == "netns"
        with slot(stop) if is_lab and self.takes_slot else contextlib.nullcontext():
            if is_lab:
                quiet_host.wait_until_quiet(self.wait_quiet_s, ProgressLog(), stop)
            return None if stop.is_set() else attempt.here(task, place, deadline_s, lock, stop)
