# SPDX-License-Identifier: GPL-3.0-or-later
"""The thread that runs the queue. It is restarted with back-off if it ends unexpectedly."""

import logging
import threading
import time
from collections.abc import Callable

from satlab.service.api.queue import MAX_PAUSE_S, POLL_S, Queue
from satlab.service.helper.verbs import HelperError

STABLE_S = 60.0
"""Time after which the back-off starts again at `POLL_S`, s."""
_LOG = logging.getLogger("satlab.service.api")


class QueueThread:
    """Runs the queue; calls `on_helper_gone` when the root helper does not answer, since nothing
    can run without it.
    """

    def __init__(self, queue: Queue, on_helper_gone: Callable[[], None]) -> None:
        self._queue, self._on_helper_gone = queue, on_helper_gone
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="queue", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _supervise(self) -> None:
        pause_s = POLL_S
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._queue.run_until(self._stop)
            except HelperError as error:
                _LOG.error("%s", error)
                self._on_helper_gone()
                return
            except BaseException as error:  # noqa: BLE001 - without this thread nothing runs, whatever ended it
                self._queue.fail(error)
                pause_s = (
                    POLL_S
                    if time.monotonic() - started > STABLE_S
                    else min(2 * pause_s, MAX_PAUSE_S)
                )
                self._stop.wait(pause_s)
