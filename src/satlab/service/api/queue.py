# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of scenario instances: one runs at a time.

An instance is marked `Running` before the helper is asked to start it, so each is started at most
once, even if the server is killed. The next server marks instances that were running as ended, and
runs those that waited.

A failure of one instance ends only that instance. While the queue itself fails (the disk is full),
it retries, and launches are refused.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Row
from typing import Any, Literal, Protocol, cast

from satlab.common.errors import ExitStatus, SatlabError
from satlab.openbach.engine import JobStatus, ScenarioStatus
from satlab.run.run_id import new_run_id
from satlab.service.api.counters import Counters
from satlab.service.api.database import Store, dumps
from satlab.service.root_helper.progress_file import Progress, Scenario
from satlab.service.root_helper.protocol import (
    HelperError,
    RefusedError,
    RunStatus,
    ScenarioRequest,
)

POLL_S = 0.2
"""Period at which the queue polls the helper, s."""
MAX_PAUSE_S = 10.0
"""Longest pause between two tries of a queue that fails, s; it doubles from `POLL_S`."""
MOST_BYTES = 32 << 20
"""Requests of instances that wait; and requests and progress of those that have ended and are not
pinned: of these, the oldest of the account that has most are forgotten at the next launch.
"""
LEAST_BYTES = 16 << 10
"""What an instance counts at least, so that at most 2000 have ended."""
_FORGET = """
    WITH ended AS (
        SELECT id, user, max(:least, length(request) + coalesce(length(progress), 0)) AS size
        FROM instances WHERE status NOT IN (:waiting, :running)
        AND id NOT IN (SELECT instance FROM marks WHERE pinned = 1)
    ), of_account AS (
        SELECT id, size, sum(size) OVER (PARTITION BY user ORDER BY id DESC) AS place FROM ended
    ), kept AS (
        SELECT id, sum(size) OVER (ORDER BY place, id DESC) AS total FROM of_account
    )
    DELETE FROM instances WHERE id IN (SELECT id FROM kept WHERE total > :most)
"""
"""Newer ones come first, each behind as many bytes of its account."""
MAX_ID = (1 << 63) - 1
"""Largest integer that SQLite holds."""
OUTCOMES = {
    ScenarioStatus.FINISHED_OK: "ok",
    ScenarioStatus.FINISHED_KO: "failed",
    ScenarioStatus.STOPPED: "stopped",
}
"""Outcomes of instances that have ended, as they are counted."""
LOST = "the server ended while it ran"
_LOG = logging.getLogger("satlab.service.api")

Kind = Literal["scenario", "job"]


class QueueFullError(SatlabError):
    """The largest number of instances wait already."""


class QueueFailedError(SatlabError):
    """The queue fails at present and accepts no launch."""


class Helper(Protocol):
    """The root helper.

    Each method may raise HelperError (it does not answer) or RefusedError (it answers an error).
    """

    def start(self, run_id: str, request: ScenarioRequest) -> None: ...

    def stop(self, run_id: str) -> None: ...

    def status(self, run_id: str) -> RunStatus: ...


@dataclass(frozen=True)
class LaunchRequest:
    """A launch. The queue sets `request.first_scenario_id` and `request.first_job_id`.

    `subs`, `jobs`: largest number of sub-scenario and job instances that it can start.
    """

    project: str
    user: str
    request: ScenarioRequest
    subs: int
    jobs: int
    kind: Kind = "scenario"


@dataclass(frozen=True)
class Instance:
    """One launch. Times are s since the epoch; `progress` is the latest document of its run.

    `fault`: why the stored request cannot be read (another version wrote it); `request` is then an
    empty scenario, and `progress` is None.
    """

    id: int
    subs: int
    first_job: int
    jobs: int
    kind: Kind
    project: str
    scenario: str
    user: str
    request: ScenarioRequest
    status: ScenarioStatus
    reason: str
    launched: float
    stopped: float | None
    stop_requested: bool
    run_id: str | None
    progress: Progress | None
    fault: str = ""

    @property
    def tree(self) -> Scenario | None:
        """Return the progress of the scenario with everything below it; None before its start."""
        return self.progress.get("instance") if self.progress else None

    @property
    def ended(self) -> bool:
        return self.status not in (ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)


class Queue:
    """`step` is called periodically. `clock` returns s since the epoch."""

    def __init__(
        self,
        store: Store,
        helper: Helper,
        clock: Callable[[], float],
        most_queued: int,
        counters: Counters | None = None,
    ) -> None:
        self._store, self._helper, self._clock = store, helper, clock
        self._most_queued = most_queued
        self._counters, self._failure = counters or Counters(), ""
        self._began: float | None = None

    def launch(self, launch: LaunchRequest) -> Instance:
        """Append an instance to the queue. Raises QueueFullError, QueueFailedError."""
        if self._failure:
            raise QueueFailedError(
                f"the queue cannot go on: {self._failure}", "try again later; see the server's log"
            )
        with self._store.transaction() as connection:
            self._check_room(connection, launch)
            connection.execute(
                _FORGET,
                {
                    "least": LEAST_BYTES,
                    "most": MOST_BYTES,
                    "waiting": ScenarioStatus.SCHEDULING,
                    "running": ScenarioStatus.RUNNING,
                },
            )
            number = self._store.reserve("scenario_instance", 1 + launch.subs)
            first_job = self._store.reserve("job_instance", launch.jobs)
            request = launch.request.model_copy(
                update={"first_scenario_id": number, "first_job_id": first_job}
            )
            connection.execute(
                "INSERT INTO instances (id, subs, first_job, jobs, kind, project, scenario, user,"
                " request, status, launched) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    launch.subs,
                    first_job,
                    launch.jobs,
                    launch.kind,
                    launch.project,
                    request.scenario,
                    launch.user,
                    request.model_dump_json(),
                    ScenarioStatus.SCHEDULING,
                    self._clock(),
                ),
            )
            launched = self._get(number)
        self._counters.add("runs_launched")
        return launched

    def _check_room(self, connection: sqlite3.Connection, launch: LaunchRequest) -> None:
        """Check that one more may wait. One account has half of the places: others find room.

        Raises QueueFullError.
        """
        waiting, own, size, own_size = connection.execute(
            "SELECT count(*), total(user = :user), total(length(request)),"
            " total((user = :user) * length(request)) FROM instances WHERE status = :status",
            {"user": launch.user, "status": ScenarioStatus.SCHEDULING},
        ).fetchone()
        if waiting >= self._most_queued or size > MOST_BYTES:
            raise QueueFullError(f"{waiting} instances wait already", "stop some, or wait")
        if own >= max(1, self._most_queued // 2) or own_size > MOST_BYTES // 2:
            raise QueueFullError(
                f"{own:.0f} instances of {launch.user} wait already", "stop some, or wait"
            )

    def stop(self, number: int) -> None:
        """Stop an instance: at once if it waits, else when its run has ended."""
        with self._store.transaction() as connection:
            where = "WHERE id = ? AND status = ?"
            stopped = connection.execute(
                "UPDATE instances SET status = ?, stopped = ?, reason = 'stopped before it ran'"  # noqa: S608
                f" {where}",
                (ScenarioStatus.STOPPED, self._clock(), number, ScenarioStatus.SCHEDULING),
            ).rowcount
            connection.execute(
                f"UPDATE instances SET stop_asked = 1 {where}",  # noqa: S608
                (number, ScenarioStatus.RUNNING),
            )
        self._counters.add("runs", OUTCOMES[ScenarioStatus.STOPPED], stopped)

    def remove(self, number: int) -> bool:
        """Remove an instance that has ended; return False if it has not."""
        sql = "DELETE FROM instances WHERE id = ? AND status NOT IN (?, ?)"
        return bool(
            self._store.write(sql, number, ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)
        )

    def find(self, number: int) -> Instance | None:
        """Return the instance with this scenario instance id, or the instance that has a
        sub-scenario with this id.
        """
        if abs(number) > MAX_ID:
            return None
        row = self._store.row(
            "SELECT * FROM instances WHERE id <= ? AND ? <= id + subs", number, number
        )
        return _instance(row) if row else None

    def find_job(self, number: int) -> Instance | None:
        """Return the instance of a job instance id."""
        if abs(number) > MAX_ID:
            return None
        sql = "SELECT * FROM instances WHERE first_job <= ? AND ? < first_job + jobs"
        row = self._store.row(sql, number, number)
        return _instance(row) if row else None

    def instances(
        self,
        project: str | None = None,
        scenario: str | None = None,
        offset: int = 0,
        limit: int = -1,
    ) -> list[Instance]:
        """Return scenario instances, the newest first; `limit` -1: no limit."""
        sql = (
            "SELECT * FROM instances WHERE kind = 'scenario' AND (?1 IS NULL OR project = ?1)"
            " AND (?2 IS NULL OR scenario = ?2) ORDER BY id DESC LIMIT ?3 OFFSET ?4"
        )
        return [_instance(row) for row in self._store.rows(sql, project, scenario, limit, offset)]

    def live(self) -> list[Instance]:
        """Return the instances of both kinds that run or wait, the oldest first."""
        sql = "SELECT * FROM instances WHERE status IN (?, ?) ORDER BY id"
        return [
            _instance(row)
            for row in self._store.rows(sql, ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)
        ]

    def recover(self) -> None:
        """Mark the instances that ran under the last server as ended.

        The helper has removed their labs.
        """
        while (instance := self._oldest(ScenarioStatus.RUNNING)) is not None:
            status = (
                ScenarioStatus.STOPPED if instance.stop_requested else ScenarioStatus.FINISHED_KO
            )
            self._end(instance, status, LOST, instance.progress)

    def step(self) -> None:
        """Update the running instance; start the next one if none runs. Raises HelperError."""
        running = self._oldest(ScenarioStatus.RUNNING)
        if running is None or self._update(running):
            self._start_next()

    def step_or_back_off(self, pause_s: float) -> float:
        """Step; return the pause before the next step, s: longer than `pause_s` after a failure.

        Launches are refused until a step succeeds. Raises HelperError if the helper is gone.
        """
        try:
            self.step()
        except BaseException as error:
            if _is_helper_gone(error):
                raise
            failure = _describe(error)
            if failure != self._failure:
                _LOG.error("the queue cannot go on: %s", failure, exc_info=error)
            self._failure = failure
            return min(2 * pause_s, MAX_PAUSE_S)
        if self._failure:
            _LOG.warning("the queue goes on")
        self._failure = ""
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
        self._began = self._clock()
        try:
            self._helper.start(run_id, waiting.request)
        except RefusedError as error:
            self._end(waiting, ScenarioStatus.FINISHED_KO, str(error), None)
        except HelperError:
            raise
        except Exception as error:  # noqa: BLE001 - a failed start must not keep the next instance from starting
            _LOG.error("instance %s does not start", waiting.id, exc_info=error)
            self._end(waiting, ScenarioStatus.FINISHED_KO, _describe(error), None)

    def _new_run_id(self, instance: Instance) -> str:
        """Return an unused run id: two of one second differ only in four random digits."""
        while True:
            run_id = new_run_id(instance.scenario, instance.request.link.profile)
            if self._store.row("SELECT 1 FROM instances WHERE run_id = ?", run_id) is None:
                return run_id

    def _oldest(self, status: ScenarioStatus) -> Instance | None:
        """Return the oldest readable instance with a status; end the unreadable ones before it."""
        sql = "SELECT * FROM instances WHERE status = ? ORDER BY id LIMIT 1"
        while (row := self._store.row(sql, status)) is not None:
            instance = _instance(row)
            if not instance.fault:
                return instance
            change = "UPDATE instances SET status = ?, reason = ?, stopped = ? WHERE id = ?"
            self._store.write(
                change, ScenarioStatus.FINISHED_KO, instance.fault, self._clock(), instance.id
            )
            self._counters.add("runs", OUTCOMES[ScenarioStatus.FINISHED_KO])
        return None

    def _update(self, instance: Instance) -> bool:
        """Store the status of a run; return whether it has ended.

        If that fails, the run is stopped and has failed.
        """
        if instance.run_id is None:
            raise AssertionError("a running instance has a run")
        try:
            if instance.stop_requested:
                self._helper.stop(instance.run_id)
            return self._store_status(instance, instance.run_id)
        except Exception as error:
            if _is_helper_gone(error) or isinstance(error, sqlite3.OperationalError):
                raise
            _LOG.error("instance %s", instance.id, exc_info=error)
            self._helper.stop(instance.run_id)
            has_ended = self._helper.status(instance.run_id).phase == "ended"
            if has_ended:
                self._end(instance, ScenarioStatus.FINISHED_KO, _describe(error), None)
            return has_ended

    def _store_status(self, instance: Instance, run_id: str) -> bool:
        run = self._helper.status(run_id)
        progress = cast("Progress | None", run.progress) or instance.progress
        if run.phase == "ended":
            self._end(instance, *_verdict(run, instance.stop_requested), progress)
        elif progress != instance.progress:
            self._store.write(
                "UPDATE instances SET progress = ? WHERE id = ?", dumps(progress), instance.id
            )
        return run.phase == "ended"

    def _end(
        self, instance: Instance, status: ScenarioStatus, reason: str, progress: Progress | None
    ) -> None:
        sql = "UPDATE instances SET status = ?, reason = ?, stopped = ?, progress = ? WHERE id = ?"
        text = None if progress is None else dumps(_settled(progress))
        self._store.write(sql, status, reason, self._clock(), text, instance.id)
        self._counters.add("runs", OUTCOMES[status])
        if self._began is not None:  # not of a run that an earlier server started
            self._counters.add("run_seconds", OUTCOMES[status], self._clock() - self._began)
            self._began = None

    def _get(self, number: int) -> Instance:
        row = self._store.row("SELECT * FROM instances WHERE id = ?", number)
        if row is None:
            raise AssertionError("the row was just written")
        return _instance(row)


def _is_helper_gone(error: BaseException) -> bool:
    return isinstance(error, HelperError) and not isinstance(error, RefusedError)


def _describe(error: BaseException) -> str:
    """Return a message of one line."""
    is_storage = isinstance(error, sqlite3.OperationalError)
    what = "the database cannot be written" if is_storage else type(error).__name__
    return f"{what}: {error}".splitlines()[0][:1000]


def _verdict(run: RunStatus, stop_requested: bool) -> tuple[ScenarioStatus, str]:
    """Return status and reason of a run that has ended.

    Finished Ok: the run succeeded, not only its scenario.
    """
    reason = str((run.progress or {}).get("reason", ""))
    match run.exit_status:
        case ExitStatus.OK | ExitStatus.UNCALIBRATED:
            return ScenarioStatus.FINISHED_OK, reason
        case ExitStatus.INTERRUPTED:
            return ScenarioStatus.STOPPED, reason
        case None if stop_requested:
            return ScenarioStatus.STOPPED, "stopped before its lab was up"
        case None:
            return ScenarioStatus.FINISHED_KO, reason or "the run's process is gone"
        case status:
            return ScenarioStatus.FINISHED_KO, reason or f"the run ended with status {status}"


def _settled(progress: Progress) -> Progress:
    """Replace `Running` below an instance that has ended: jobs become Unknown, everything else
    Stopped.
    """

    def settle(value: Any) -> Any:
        if isinstance(value, list):
            return [settle(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        settled = {key: settle(entry) for key, entry in value.items()}
        if value.get("status") == "Running":
            is_job = "entity" in value
            settled["status"] = JobStatus.UNKNOWN if is_job else ScenarioStatus.STOPPED
        return settled

    settled: Progress = settle(progress)
    return settled


def _instance(row: Row) -> Instance:
    values = dict(row)
    del values["stop_asked"]
    values |= {"status": ScenarioStatus(row["status"]), "stop_requested": bool(row["stop_asked"])}
    try:
        values["request"] = ScenarioRequest.model_validate_json(row["request"])
        values["progress"] = json.loads(row["progress"]) if row["progress"] else None
    except ValueError as error:
        values |= {"request": _empty_request(row), "progress": None, "fault": _describe(error)}
    return Instance(**values)


def _empty_request(row: Row) -> ScenarioRequest:
    document = {"name": row["scenario"], "openbach_functions": list[Any]()}
    return ScenarioRequest.model_construct(
        scenario=row["scenario"],
        documents={row["scenario"]: document},
        entities={},
        first_scenario_id=row["id"],
        first_job_id=row["first_job"],
    )


class QueueThread:
    """Runs the queue; calls `on_helper_gone` when the root helper does not answer, since nothing
    can run without it.
    """

    def __init__(self, queue: Queue, on_helper_gone: Callable[[], None]) -> None:
        self._queue, self._on_helper_gone = queue, on_helper_gone
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = POLL_S
        try:
            while not self._stop.wait(pause_s):
                pause_s = self._queue.step_or_back_off(pause_s)
        except HelperError as error:
            _LOG.error("%s", error)
            self._on_helper_gone()
