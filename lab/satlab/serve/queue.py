# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenario instances: they queue for the machine, one runs at a time, and none is lost or run twice.

An instance is marked `Running` before the helper hears of it. So whatever ends the server, each instance was started at
most once; those that were running are told as what they are at the next start, those that waited run then.

What goes wrong with one instance ends that instance alone. While the queue itself cannot go on (the disk is full), it
tries again, and launches are refused.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Row
from typing import Any, Literal, Protocol

from satlab.common.errors import ExitStatus, SatlabError
from satlab.experiment.run_id import new_run_id
from satlab.openbach.engine import JobStatus, ScenarioStatus
from satlab.rootd.verbs import HelperError, RefusedError, RunStatus, ScenarioRequest
from satlab.serve.store import Store, dumps

POLL_S = 0.2
"""How often the queue looks at what runs, s."""
MOST_PAUSE_S = 10.0
"""Longest pause between two tries of a queue that cannot go on, s; it doubles from `POLL_S`."""
_LOG = logging.getLogger("satlab.serve")
LOST = "the server ended while it ran"

Progress = dict[str, Any]
Kind = Literal["scenario", "job"]


class QueueFullError(SatlabError):
    """As many instances wait as may."""


class StuckError(SatlabError):
    """The queue cannot go on for now, so nothing more is taken."""


class Helper(Protocol):
    """The root helper, as the queue sees it. Each call may raise HelperError, `start` RefusedError."""

    def start(self, run_id: str, order: ScenarioRequest) -> None:
        """Start a run."""

    def stop(self, run_id: str) -> None:
        """Ask a run to end."""

    def status(self, run_id: str) -> RunStatus:
        """Return how a run is."""


@dataclass(frozen=True)
class LaunchRequest:
    """What is asked for. `order.first_scenario_id` and `first_job_id` are given by the queue.

    `subs`, `jobs`: how many sub-scenario and job instances can come of it at the most.
    """

    project: str
    user: str
    order: ScenarioRequest
    subs: int
    jobs: int
    kind: Kind = "scenario"


@dataclass(frozen=True)
class Instance:
    """One launch. Times are s since the epoch; `progress` is the last word of its run."""

    id: int
    subs: int
    first_job: int
    jobs: int
    kind: Kind
    project: str
    scenario: str
    user: str
    order: ScenarioRequest
    status: ScenarioStatus
    reason: str
    launched: float
    stopped: float | None
    stop_asked: bool
    run_id: str | None
    progress: Progress | None

    @property
    def over(self) -> bool:
        """Return whether it has ended."""
        return self.status not in (ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)


class Queue:
    """The queue; `step` carries it on. `clock` gives s since the epoch."""

    def __init__(self, store: Store, helper: Helper, clock: Callable[[], float], most_queued: int) -> None:
        self._store, self._helper, self._clock, self._most_queued = store, helper, clock, most_queued
        self._trouble = ""

    def launch(self, launch: LaunchRequest) -> Instance:
        """Put an instance at the end of the queue. Raises QueueFullError, and StuckError while it cannot go on."""
        if self._trouble:
            raise StuckError(f"the queue cannot go on: {self._trouble}", "try again later; see the server's log")
        with self._store.transaction() as connection:
            (waiting,) = connection.execute(
                "SELECT COUNT(*) FROM instances WHERE status = ?", (ScenarioStatus.SCHEDULING,)
            ).fetchone()
            if waiting >= self._most_queued:
                raise QueueFullError(f"{waiting} instances wait already", "stop some, or wait")
            number = self._store.reserve("scenario_instance", 1 + launch.subs)
            first_job = self._store.reserve("job_instance", launch.jobs)
            order = launch.order.model_copy(update={"first_scenario_id": number, "first_job_id": first_job})
            connection.execute(
                "INSERT INTO instances (id, subs, first_job, jobs, kind, project, scenario, user, request, status,"
                " launched) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(number, launch.subs, first_job, launch.jobs, launch.kind, launch.project, order.scenario),
                    *(launch.user, order.model_dump_json(), ScenarioStatus.SCHEDULING, self._clock()),
                ),
            )
            return self._get(number)

    def stop(self, number: int) -> None:
        """Stop an instance: at once while it waits, as soon as its run has ended otherwise."""
        with self._store.transaction() as connection:
            where = "WHERE id = ? AND status = ?"
            connection.execute(
                f"UPDATE instances SET status = ?, stopped = ?, reason = 'stopped before it ran' {where}",  # noqa: S608
                (ScenarioStatus.STOPPED, self._clock(), number, ScenarioStatus.SCHEDULING),
            )
            connection.execute(
                f"UPDATE instances SET stop_asked = 1 {where}",  # noqa: S608
                (number, ScenarioStatus.RUNNING),
            )

    def remove(self, number: int) -> bool:
        """Forget an instance that is over; False when it is not."""
        sql = "DELETE FROM instances WHERE id = ? AND status NOT IN (?, ?)"
        return bool(self._store.write(sql, number, ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING))

    def find(self, number: int) -> Instance | None:
        """Return the instance that a scenario instance id belongs to: its own, or one of a sub-scenario."""
        row = self._store.row("SELECT * FROM instances WHERE id <= ? AND ? <= id + subs", number, number)
        return _instance(row) if row else None

    def find_job(self, number: int) -> Instance | None:
        """Return the instance that a job instance id belongs to."""
        sql = "SELECT * FROM instances WHERE first_job <= ? AND ? < first_job + jobs"
        row = self._store.row(sql, number, number)
        return _instance(row) if row else None

    def instances(
        self, project: str | None = None, scenario: str | None = None, offset: int = 0, limit: int = -1
    ) -> list[Instance]:
        """Return scenario instances, the newest first; `limit` -1: all of them."""
        sql = (
            "SELECT * FROM instances WHERE kind = 'scenario' AND (?1 IS NULL OR project = ?1)"
            " AND (?2 IS NULL OR scenario = ?2) ORDER BY id DESC LIMIT ?3 OFFSET ?4"
        )
        return [_instance(row) for row in self._store.rows(sql, project, scenario, limit, offset)]

    def live(self) -> list[Instance]:
        """Return what runs or waits, of every kind, the oldest first."""
        sql = "SELECT * FROM instances WHERE status IN (?, ?) ORDER BY id"
        return [_instance(row) for row in self._store.rows(sql, ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)]

    def recover(self) -> None:
        """After a start: tell what was running as ended. The helper has removed what was left of it."""
        while (instance := self._oldest(ScenarioStatus.RUNNING)) is not None:
            status = ScenarioStatus.STOPPED if instance.stop_asked else ScenarioStatus.FINISHED_KO
            self._end(instance, status, LOST, instance.progress)

    def step(self) -> None:
        """Look at what runs; start what is next when nothing does. Raises HelperError when the helper is gone."""
        running = self._oldest(ScenarioStatus.RUNNING)
        if running is None or self._watch(running):
            self._start_next()

    def run_until(self, over: threading.Event) -> None:
        """Step until `over` is set. Raises HelperError when the helper is gone."""
        pause_s = POLL_S
        while not over.wait(pause_s):
            pause_s = self.step_or_wait(pause_s)

    def step_or_wait(self, pause_s: float) -> float:
        """Step, and give the pause before the next one, s: longer than `pause_s` after one that went wrong."""
        try:
            self.step()
        except HelperError:
            raise
        except Exception as error:  # noqa: BLE001 - without the queue nothing runs, whatever the reason
            trouble = _why(error)
            if trouble != self._trouble:
                _LOG.error("the queue cannot go on: %s", trouble, exc_info=error)
            self._trouble = trouble
            return min(2 * pause_s, MOST_PAUSE_S)
        if self._trouble:
            _LOG.warning("the queue goes on")
        self._trouble = ""
        return POLL_S

    def _start_next(self) -> None:
        with self._store.transaction() as connection:
            waiting = self._oldest(ScenarioStatus.SCHEDULING)
            if waiting is None:
                return
            run_id = self._new_run_id(waiting)
            connection.execute(
                "UPDATE instances SET status = ?, run_id = ? WHERE id = ?",
                (ScenarioStatus.RUNNING, run_id, waiting.id),
            )
        try:
            self._helper.start(run_id, waiting.order)
        except RefusedError as error:
            self._end(waiting, ScenarioStatus.FINISHED_KO, str(error), None)
        except HelperError:
            raise
        except Exception as error:  # noqa: BLE001 - the next one may start
            _LOG.error("instance %s does not start", waiting.id, exc_info=error)
            self._end(waiting, ScenarioStatus.FINISHED_KO, _why(error), None)

    def _new_run_id(self, instance: Instance) -> str:
        """Return an id that no run had before: ids of the same second differ by four random digits alone."""
        while True:
            run_id = new_run_id(instance.scenario, instance.order.link.profile)
            if self._store.row("SELECT 1 FROM instances WHERE run_id = ?", run_id) is None:
                return run_id

    def _oldest(self, status: ScenarioStatus) -> Instance | None:
        """Return the oldest instance of a status. Those that cannot be read (of another version) end."""
        while (
            row := self._store.row("SELECT * FROM instances WHERE status = ? ORDER BY id LIMIT 1", status)
        ) is not None:
            try:
                return _instance(row)
            except ValueError as error:
                sql = "UPDATE instances SET status = ?, reason = ?, stopped = ? WHERE id = ?"
                self._store.write(sql, ScenarioStatus.FINISHED_KO, _why(error), self._clock(), row["id"])
        return None

    def _watch(self, instance: Instance) -> bool:
        """Take in how a run is; tell whether it has ended. What cannot be taken in is stopped, and has failed."""
        if instance.run_id is None:
            raise AssertionError("a running instance has a run")
        if instance.stop_asked:
            self._helper.stop(instance.run_id)
        try:
            return self._take_in(instance, instance.run_id)
        except (HelperError, sqlite3.OperationalError):
            raise
        except Exception as error:  # noqa: BLE001 - the next one may go well
            _LOG.error("instance %s", instance.id, exc_info=error)
            self._helper.stop(instance.run_id)
            over = self._helper.status(instance.run_id).phase == "ended"
            if over:
                self._end(instance, ScenarioStatus.FINISHED_KO, _why(error), None)
            return over

    def _take_in(self, instance: Instance, run_id: str) -> bool:
        now = self._helper.status(run_id)
        if now.phase == "ended":
            self._end(instance, *_verdict(now, instance.stop_asked), now.progress or instance.progress)
        elif now.progress != instance.progress:
            self._store.write("UPDATE instances SET progress = ? WHERE id = ?", dumps(now.progress), instance.id)
        return now.phase == "ended"

    def _end(self, instance: Instance, status: ScenarioStatus, reason: str, progress: Progress | None) -> None:
        sql = "UPDATE instances SET status = ?, reason = ?, stopped = ?, progress = ? WHERE id = ?"
        text = None if progress is None else dumps(_settled(progress))
        self._store.write(sql, status, reason, self._clock(), text, instance.id)

    def _get(self, number: int) -> Instance:
        row = self._store.row("SELECT * FROM instances WHERE id = ?", number)
        if row is None:
            raise AssertionError("the row was just written")
        return _instance(row)


def _why(error: Exception) -> str:
    """Say in one sentence what went wrong."""
    is_storage = isinstance(error, sqlite3.OperationalError)
    what = "the database cannot be written" if is_storage else type(error).__name__
    return f"{what}: {error}".splitlines()[0][:1000]


def _verdict(run: RunStatus, stop_asked: bool) -> tuple[ScenarioStatus, str]:
    """Return the label of a run that has ended: Finished Ok only where all of it, not the scenario alone, was good."""
    reason = str((run.progress or {}).get("reason", ""))
    match run.exit_status:
        case ExitStatus.OK | ExitStatus.UNCALIBRATED:
            return ScenarioStatus.FINISHED_OK, reason
        case ExitStatus.INTERRUPTED:
            return ScenarioStatus.STOPPED, reason
        case None if stop_asked:
            return ScenarioStatus.STOPPED, "stopped before its lab was up"
        case None:
            return ScenarioStatus.FINISHED_KO, reason or "the run's process is gone"
        case status:
            return ScenarioStatus.FINISHED_KO, reason or f"the run ended with status {status}"


def _settled(progress: Progress) -> Progress:
    """Leave nothing that is said to run in an instance that is over: what became of it is not known."""

    def settle(value: Any) -> Any:
        if isinstance(value, list):
            return [settle(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        return {key: settle(entry) for key, entry in value.items()} | _end_of(value)

    def _end_of(value: dict[str, Any]) -> dict[str, str]:
        if value.get("status") != "Running":
            return {}
        return {"status": JobStatus.UNKNOWN if "entity" in value else ScenarioStatus.STOPPED}

    settled: Progress = settle(progress)
    return settled


def _instance(row: Row) -> Instance:
    values = {key: row[key] for key in row.keys() if key != "request"}  # noqa: SIM118 - a Row iterates over values
    values |= {"status": ScenarioStatus(row["status"]), "stop_asked": bool(row["stop_asked"])}
    values["progress"] = json.loads(row["progress"]) if row["progress"] else None
    return Instance(order=ScenarioRequest.model_validate_json(row["request"]), **values)
