# SPDX-License-Identifier: GPL-3.0-or-later
"""A round of `satlab serve` with workers that only pretend to run a lab: launches, and a blow in
between.
"""

import contextlib
import http.client
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

from tests import process_search
from tests.polling import until
from tests.serve_process import OVER, Service, fill, launch, set_up

WHERE = "/project/trial/scenario/echo/scenario_instance/"
LIST = "/project/trial/scenario_instance/?quiet"
LAUNCHES = 6
LATEST_S = 1.0
"""Latest moment of the blow after the first launch."""
LASTS_S = 1.0
"""How long a process is stopped, or the disk full."""
AGAIN_S = 60.0
SMALL = "size=4m"
"""The disk that becomes full (tmpfs)."""


@cache
def prepared() -> Path:
    """Return a state folder with an account, a project and a scenario, to be copied."""
    state = Path(f"/tmp/satlab-soak-state-{os.getpid()}")  # noqa: S108 - root's, as those of the tests
    service = Service(state, standin=True, log=state.with_suffix(".log"))
    set_up(service.client)
    service.stop()
    return state


class ServiceRound:
    """A service over a copy of the prepared state, in the folder `state`."""

    def __init__(self, rng: random.Random, blow: str, state: Path, log: Path) -> None:
        self._blow, self._state, self._log = blow, state, log
        self._victim, self._after_s = rng.choice(("api", "helper")), rng.uniform(0.0, LATEST_S)
        self._faults: list[str] = []
        subprocess.run(["cp", "-a", f"{prepared()}/.", str(state)], check=True)

    def play(self) -> list[str]:
        """Launch, strike, start again where needed; return what is wrong."""
        service = Service(self._state, standin=True, log=self._log)
        try:
            striking = threading.Timer(self._after_s, self._strike, [service])
            striking.start()
            accepted = [
                number for _ in range(LAUNCHES) if (number := _try_launch(service)) is not None
            ]
            striking.join()
            last: list[int] = []
            until(lambda: last or _launch_again(service, last), seconds=AGAIN_S)
            until(lambda: _are_over(service), seconds=AGAIN_S)
            faults = self._faults + self._compare(service, accepted, last[0])
            if (status := service.stop()) != 0:
                faults.append(f"it ended with status {status}")
            until(lambda: not process_search.having(str(self._state), "environ"), seconds=20)
        except AssertionError as error:
            return [f"it does not go on: {error}"]
        finally:
            service.kill()
        return faults

    def _strike(self, service: Service) -> None:
        if self._blow == "full":
            fill(self._state / "filler")
            time.sleep(LASTS_S)  # how long it is full is the test
            (self._state / "filler").unlink()
            return
        with contextlib.suppress(ProcessLookupError):
            pid = service.process.pid if self._victim == "helper" else service.api_pid()
            if self._blow == "kill":
                os.kill(pid, signal.SIGKILL)
                try:
                    service.process.wait(AGAIN_S)
                except subprocess.TimeoutExpired:
                    self._faults.append(f"it did not end within {AGAIN_S:g} s of the kill")
                    service.kill()
                return
            os.kill(pid, signal.SIGSTOP)
            time.sleep(LASTS_S)
            os.kill(pid, signal.SIGCONT)

    def _compare(self, service: Service, accepted: list[int], last: int) -> list[str]:
        """Compare what was accepted with what the service lists and with what ran."""
        listed: list[dict[str, Any]] = service.client.expect(200, "GET", LIST)
        states = {each["scenario_instance_id"]: each["status"] for each in listed}
        ran = [int(line) for line in (self._state / "ran").read_text().split()]
        faults = [f"instance {number} is lost" for number in accepted if number not in states]
        if len(ran) != len(set(ran)):
            faults.append(f"an instance ran twice: {ran}")
        for number, state in states.items():
            reason = service.client.instance(number, quiet=False)["reason"]
            if state == "Finished Ok" and number not in ran:
                faults.append(f"instance {number} is {state} and did not run")
            if state != "Finished Ok" and not reason:
                faults.append(f"instance {number} is {state} without a reason")
        bad = [number for number, state in states.items() if state != "Finished Ok"]
        if self._blow != "full" and len(bad) > 1:
            faults.append(f"a blow hit more than the one that ran: {bad}")
        if states.get(last) != "Finished Ok":
            faults.append("the last launch did not run")
        return faults


def _try_launch(service: Service) -> int | None:
    with contextlib.suppress(AssertionError, OSError, http.client.HTTPException):
        return launch(service.client, WHERE, 1)
    return None


def _launch_again(service: Service, last: list[int]) -> bool:
    """Launch once more; start the service where it has ended."""
    if service.process.poll() is not None:
        service.start()
    number = _try_launch(service)
    last += [] if number is None else [number]
    return bool(last)


def _are_over(service: Service) -> bool:
    if service.process.poll() is not None:
        service.start()
    with contextlib.suppress(OSError, http.client.HTTPException):
        return all(each["status"] in OVER for each in service.client.expect(200, "GET", LIST))
    return False


def clean_up() -> None:
    """Remove the prepared state."""
    if prepared.cache_info().currsize:
        shutil.rmtree(prepared())
        prepared().with_suffix(".log").unlink()
        prepared.cache_clear()
