# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario through an OpenBACH controller: launch, poll until it has ended, fetch its records
into the run folder.

The controller's director and agents run the jobs; the folder is the one that
`satlab.openbach.runner` writes. Exit codes of jobs stay with the agents: OpenBACH reports statuses
only.
"""

import csv
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from collect.jobs import Job, JobEnd
from satlab.common.archive import ArchiveError, Gunzip, Kind, Limits, Reader, Section
from satlab.common.errors import HostError
from satlab.openbach.engine import FunctionStatus, JobStatus, ScenarioStatus
from satlab.openbach.json_document import is_name
from satlab.openbach.model import BoundScenario, StartJob, StartScenario
from satlab.openbach.runner import JobProgress, Outcome, ScenarioResult, append_line
from satlab.vm.controller_client import LONGEST_TEXT, POLL_S, Controller, RefusedError

PROJECT = "satlab"
SETTLE_S = 20.0
"""Longest time until the status of stopped jobs is known after the end of their instance, s. The
agent is polled every 2 s.
"""
STOP_DEADLINE_S = 60.0
"""Longest time from a stop to the end of an instance, s; then the run fails."""
LIMITS = Limits(total_bytes=4 << 30, files=100_000)
"""Limits of the stored files of one job."""
LOST_S = 60.0
"""A controller that does not answer within this time is considered lost."""
OVER = (ScenarioStatus.FINISHED_OK, ScenarioStatus.FINISHED_KO, ScenarioStatus.STOPPED)
CONTROLLER_ZONE = ZoneInfo("Europe/Paris")
"""Time zone of dates without one: times of statistics in the CSV (OpenBACH 2.7's configured zone).
"""
_META = re.compile("@|time$")
Instance = Mapping[str, Any]


def documents(file: Path, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a checked scenario with the values of its constants, after all sub-scenarios that it
    starts.
    """
    found: dict[str, dict[str, Any]] = {}
    waiting = [file]
    while waiting:
        document = json.loads(waiting.pop().read_bytes())
        if document["name"] in found:
            continue
        found[document["name"]] = document
        starts = [
            f["start_scenario_instance"]
            for f in document["openbach_functions"]
            if "start_scenario_instance" in f
        ]
        waiting += [file.parent / f"{start['scenario_name']}.json" for start in starts]
    root = next(iter(found.values()))
    if "constants" in root:
        root["constants"] = {name: values[name] for name in root["constants"]}
    return [*list(found.values())[1:], root]


def jobs(scenario: BoundScenario) -> dict[str, set[str]]:
    """Return the names of the jobs that a scenario starts on each entity."""
    found: dict[str, set[str]] = {}
    for started in scenario.jobs():
        found.setdefault(started.entity, set()).add(started.job.name)
    return found


def run(
    controller: Controller,
    scenario: BoundScenario,
    file: Path,
    raw: Path,
    on_event: Callable[[JobProgress], None],
    stop: threading.Event,
    deadline_s: float,
) -> ScenarioResult:
    """Run a scenario to its end. `stop` stops it; after `deadline_s` it is stopped and has failed.

    A first launch that failed because an agent lacked a job is repeated once, after the job was
    installed again.

    Raises:
        HostError: the controller does not answer, lacks agents, or answers in another form than
        OpenBACH's.
        ConfigError, RunError: it refuses.
    """
    try:
        return _run(controller, scenario, file, raw, on_event, stop, deadline_s)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"[:LONGEST_TEXT]
        raise HostError(
            f"{controller}: an answer has another form than OpenBACH's ({said})",
            "is the controller 2.7.0?",
        ) from error


def _run(
    controller: Controller,
    scenario: BoundScenario,
    file: Path,
    raw: Path,
    on_event: Callable[[JobProgress], None],
    stop: threading.Event,
    deadline_s: float,
) -> ScenarioResult:
    for folder in ("logs", "files"):
        (raw / folder).mkdir(parents=True, exist_ok=True)
    for name in ("stats.jsonl", "jobs.jsonl"):
        (raw / name).touch()
    controller.enter()
    entities = jobs(scenario)
    agents = controller.agents(set(entities))
    controller.put_entities(PROJECT, agents)
    needed = {agents[entity]: names for entity, names in entities.items()}
    controller.install(needed)
    texts = documents(file, scenario.values)
    for document in texts:
        controller.save(PROJECT, document)
    arguments = {name: scenario.values[name] for name in texts[-1].get("arguments", {})}
    seen = _Changes(on_event)
    for is_last in (False, True):
        start_unix_s = time.time()
        try:
            number = controller.launch(PROJECT, scenario.name, arguments)
        except RefusedError as error:
            if is_last or error.http_status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
        else:
            ended, why = _watch(controller, number, seen, stop, deadline_s)
            if is_last or why or stop.is_set() or not _lacks_a_job(ended):
                break
        controller.install(needed)
    stop_unix_s = time.time()
    ended = _settled(controller, number, seen, ended)
    records = tuple(_job_records(ended, scenario, stop_unix_s))
    for record in records:
        append_line(raw / "jobs.jsonl", record.model_dump())
    _fetch(controller, number, raw)
    status = str(ended["status"])
    reason = why or _reason(ended)
    outcome: Outcome = "ok" if status == ScenarioStatus.FINISHED_OK and not reason else "failed"
    if status == ScenarioStatus.STOPPED and not why:
        outcome = "interrupted"
    return ScenarioResult(outcome, status, reason, start_unix_s, stop_unix_s, records)


# --- while it runs --------------------------------------------------------------------------------


def _watch(
    controller: Controller,
    number: int,
    seen: "_Changes",
    stop: threading.Event,
    deadline_s: float,
) -> tuple[Instance, str]:
    """Poll an instance until it is over. Return the instance, and the reason if it was stopped
    other than by `stop`.
    """
    stopping, why, over = False, "", threading.Event()
    heard = time.monotonic()
    end = heard + deadline_s
    try:
        while True:
            try:
                instance = controller.instance(number)
                heard = time.monotonic()
                seen.look(instance)
                if instance["status"] in OVER:
                    return instance, why
            except HostError:
                if time.monotonic() > heard + LOST_S:
                    raise
            now = time.monotonic()
            if stopping and now > end:
                raise HostError(
                    f"{controller}: instance {number} does not end", "look at it there, and stop it"
                )
            if not stopping and (stop.is_set() or now > end):
                why = "" if stop.is_set() else f"not over after {deadline_s:g} s"
                stopping, end = True, now + STOP_DEADLINE_S
                controller.stop(number)
            (over if stopping else stop).wait(POLL_S)
    except KeyboardInterrupt:
        controller.stop(number)
        raise


def _lacks_a_job(instance: Instance) -> bool:
    """Return whether a function could not start its job: the controller listed one that the agent
    lacked.
    """
    return instance["status"] == ScenarioStatus.FINISHED_KO and any(
        "start_job_instance" in function and function["status"] == FunctionStatus.ERROR
        for _, function in _functions(instance)
    )


def _settled(controller: Controller, number: int, seen: "_Changes", instance: Instance) -> Instance:
    """Poll an instance that is over until none of its jobs is `Unknown`, the first status of a
    stopped job.
    """
    end = time.monotonic() + SETTLE_S
    while _is_unsettled(instance) and time.monotonic() < end:
        time.sleep(POLL_S)
        instance = controller.instance(number)
        seen.look(instance)
    return instance


def _is_unsettled(instance: Instance) -> bool:
    jobs = (function.get("job") for _, function in _functions(instance))
    return any(
        job and (job["status"] == JobStatus.UNKNOWN or not JobStatus(job["status"]).ended)
        for job in jobs
    )


class _Changes:
    """Reports each change of a job's status once."""

    def __init__(self, on_event: Callable[[JobProgress], None]) -> None:
        self._on_event = on_event
        self._known: dict[int, str] = {}

    def look(self, instance: Instance) -> None:
        """Update the progress from the instance's present state."""
        for _, function in _functions(instance):
            job = function.get("job")
            if job and self._known.get(job["id"]) != job["status"]:
                self._known[job["id"]] = job["status"]
                entity = function["start_job_instance"]["entity_name"]
                label = str(function.get("label", function["id"]))
                self._on_event(
                    JobProgress(time.time(), job["id"], label, job["name"], entity, job["status"])
                )


def _functions(instance: Instance) -> Iterator[tuple[Instance, Instance]]:
    """Yield every function with the instance that it belongs to, those of sub-scenarios included."""
    waiting = [instance]
    while waiting:
        current = waiting.pop()
        for function in current["openbach_functions"]:
            yield current, function
            if function.get("scenario"):
                waiting.append(function["scenario"])


def _reason(instance: Instance) -> str:
    """Return why an instance failed: the server's reason (`satlab serve` gives one), or its failed
    parts.
    """
    failed = [
        JobStatus.ERROR,
        JobStatus.AGENT_UNREACHABLE,
        JobStatus.NOT_SCHEDULED,
        JobStatus.UNKNOWN,
    ]
    if instance["status"] == ScenarioStatus.FINISHED_KO:
        if instance.get("reason"):
            return str(instance["reason"])[:LONGEST_TEXT]
        for _, function in _functions(instance):
            job = function.get("job")
            if job and job["status"] in failed:
                return (
                    f"{job['name']} on {function['start_job_instance']['entity_name']}:"
                    f" {job['status']}"
                )
        return "the controller reports no reason"
    below = [
        each for each, _ in _functions(instance) if each["status"] == ScenarioStatus.FINISHED_KO
    ]
    return f"sub-scenario {below[0]['scenario_name']}: {_reason(below[0])}" if below else ""


# --- when it is over ------------------------------------------------------------------------------


def _job_records(instance: Instance, scenario: BoundScenario, over_unix_s: float) -> Iterator[Job]:
    """Yield the record of each job; one without an end date has ended with the scenario. `argv` has
    the command of the descriptor, as OpenBACH does not report it.
    """
    for current, function, words in _with_words(instance, scenario):
        job = function.get("job")
        if not job:
            continue
        status = JobStatus(job["status"])
        yield Job(
            job_instance_id=job["id"],
            scenario_instance_id=current["scenario_instance_id"],
            owner_scenario_instance_id=instance["scenario_instance_id"],
            function_id=function["id"],
            label=str(function.get("label", function["id"])),
            job=job["name"],
            entity=function["start_job_instance"]["entity_name"],
            argv=words,
            start_unix_s=unix_s(job.get("start_date"), over_unix_s),
            stop_unix_s=unix_s(job.get("stop_date"), over_unix_s),
            exit_code=0 if status is JobStatus.NOT_RUNNING else None,
            status=cast("JobEnd", (status if status.ended else JobStatus.UNKNOWN).value),
            log="",
        )


def _with_words(
    instance: Instance, scenario: BoundScenario
) -> Iterator[tuple[Instance, Instance, tuple[str, ...]]]:
    """Yield every function with its instance and the argv of its job, those of sub-scenarios
    included.
    """
    actions = {function.id: function.action for function in scenario.functions}
    for function in instance["openbach_functions"]:
        action = actions.get(function["id"])
        known = (*action.job.command_there(), *action.words) if isinstance(action, StartJob) else ()
        yield instance, function, tuple(word for word in known if isinstance(word, str))
        if function.get("scenario") and isinstance(action, StartScenario):
            yield from _with_words(function["scenario"], action.scenario)


def unix_s(text: Any, otherwise: float) -> float:
    """Read a date in ISO 8601, s since the epoch; anything else ("Not programmed yet") becomes
    `otherwise`.
    """
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise
    return (when if when.tzinfo else when.replace(tzinfo=CONTROLLER_ZONE)).timestamp()


def _fetch(controller: Controller, number: int, raw: Path) -> None:
    """Bring statistics and stored files into the run folder."""
    with (raw / "stats.jsonl").open("a", encoding="utf-8") as file:
        text = controller.read(f"/scenario_instance/{number}/csv/").decode()
        file.writelines(json.dumps(record) + "\n" for record in statistics(text))
    counts = controller.request("GET", f"/scenario_instance/{number}/?files_count") or {}
    for job, stored in sorted(counts.items()):
        for name in sorted(stored):
            if not (is_name(job) and is_name(name)):
                raise HostError(
                    f"{controller}: {job[:64]!r}, {name[:64]!r}: not names of a job and its"
                    " statistic"
                )
            try:
                packed = controller.read(
                    f"/scenario_instance/{number}/archive/?{urlencode({job: name})}"
                )
            except RefusedError as error:  # 404 whatever the reason
                raise HostError(
                    f"{controller}: {job} stored {name}, but the controller does not hand it over",
                    "see the log of its conductor: it fetches the files from the agent by Ansible",
                ) from error
            store(packed, job, name, raw / "files")


def statistics(text: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a CSV export (schemas/stats.schema.json).

    Rows without a time hold no statistic; those without a job are of one that the controller never
    saw start.
    """
    for row in csv.DictReader(io.StringIO(text)):
        if not row.get("time") or not row["@job_instance_id"]:
            continue
        about = {
            "time": round(unix_s(row["time"], 0.0) * 1000),
            "is_file": row["@stored_file"].lower() == "true",
            "job_name": row["@job_name"],
            "agent_name": row["@agent_name"],
            "job_instance_id": int(row["@job_instance_id"]),
            "scenario_instance_id": int(row["@scenario_instance_id"]),
            "owner_scenario_instance_id": int(row["@owner_scenario_instance_id"]),
            "flag": 1,
        }
        if row.get("@suffix"):
            about["suffix"] = _unguarded(row["@suffix"])
        found = {
            name: _value(value) for name, value in row.items() if value and not _META.match(name)
        }
        if found:
            yield {**found, "_metadata": about}


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return _unguarded(text)


def _unguarded(text: str) -> str:
    """Return text as it was before `satlab serve` guarded it against spreadsheets."""
    return text[1:] if text[:1] == "'" and text[1:2] in ("=", "+", "@", "\t", "\r") else text


def store(packed: bytes, job: str, name: str, files: Path) -> None:
    """Write the files of one statistic of one job, from an export's archive of archives, below
    `files`.

    An inner archive is called `ENTITY.JOB_(INSTANCE).STATISTIC.RANDOM.tar.gz` and holds bare files
    (OpenBACH 2.7.0). Of the names, which are the controller's, only the number of the instance and
    an extension are used.

    Raises:
        HostError: it is not such an archive.
    """
    called = re.compile(
        rf".*\.{re.escape(job)}_\(([0-9]{{1,18}})\)\.{re.escape(name)}\.[^./]+\.tar\.gz", re.DOTALL
    )
    try:
        with Section(io.BytesIO(packed), 0, len(packed)).decompressed() as source:
            outer = Reader(source, LIMITS)
            for each in outer:
                if each.kind is not Kind.FILE or not each.name.endswith(".tar.gz"):
                    continue
                found = called.fullmatch(each.name)
                if found is None:
                    raise HostError(
                        f"{each.name[:200]!r} names no instance of {job}",
                        "is the controller 2.7.0?",
                    )
                _unpack(Reader(Gunzip(outer), LIMITS), files / f"{job}-{int(found[1])}", name)
    except (ArchiveError, OSError) as error:
        raise HostError(
            f"the stored files of {job} cannot be read: {error}", "look at the controller"
        ) from error


def _unpack(inner: Reader, folder: Path, name: str) -> None:
    """Write the files of an inner archive to a folder; links and devices are left out."""
    for member in inner:
        if member.kind is Kind.FILE:
            with _place(PurePosixPath(member.name), name, folder).open("xb") as target:
                target.writelines(inner.content())


def _place(member: PurePosixPath, name: str, folder: Path) -> Path:
    """Return the place of a stored file:

    `<job>-<instance>/<statistic>[-N]<extension>`, as `collect_agent` does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    extension = (
        member.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,16}", member.suffix, re.ASCII) else ""
    )
    taken = sum(
        1
        for file in folder.iterdir()
        if re.fullmatch(rf"{re.escape(name)}(-\d+)?{re.escape(extension)}", file.name)
    )
    return folder / f"{name}{f'-{taken + 1}' if taken else ''}{extension}"
