# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for tests: answers as a real OpenBACH 2.7.0 was recorded to answer, races and delays
included.

Forms and sequences are those of the recording, the measured figures those of an example run. What
was seen: `GET /agent/?update` takes seconds for each agent; an installation is reported as done
(204) when the job is registered, and later ends with 200, with 204 if `GET /job/?update` was asked
in between, or with 422; an agent lists a job that was removed, without its files; a launch without
the files ends `Finished Ko` with a function in `Error`; a job that is stopped is `Unknown` before it
is `Stopped`; an archive holds one `ENTITY.JOB_(INSTANCE).STATISTIC.RANDOM.tar.gz` for each stored
file; an agent that belongs to another project is refused with the database's text.
"""

import csv
import http.server
import io
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from tests.archives import archive

BEGAN = 1_795_331_960.0
REGISTERED, OVER = 2, 4
"""How often the state of an installation reads as running, and until its end."""
_PARIS = ZoneInfo("Europe/Paris")
Answer = tuple[int, Any]


@dataclass
class Replayed:
    """What the controller knows.

    `stored`: job instance, statistic and path of files; `agents`: addresses by name.
    """

    agents: Mapping[str, str]
    stored: Sequence[tuple[int, str, Path]]
    first_job: int = 1
    update_s: float = 0.0
    """Of `GET /agent/?update`."""
    ends_with: int = 200
    """Code of the end of an installation."""
    remembered: set[tuple[str, str]] = field(default_factory=set)
    """(job, address) of removed jobs that an agent still lists."""
    removed: dict[tuple[str, str], str] = field(default_factory=dict)
    """Dates of their removals."""
    launches_without_job: int = 0
    """How many launches fail because an agent lacks a job that the controller lists."""
    owner: str | None = None
    """Another project that the agents belong to."""
    asks_before_settled: int = 2
    """How often an instance that is over is read before its stopped jobs are no longer `Unknown`.
    """
    jobs: set[str] = field(default_factory=set)
    project: dict[str, Any] | None = None
    scenarios: dict[str, Any] = field(default_factory=dict)
    installed: dict[tuple[str, str], int] = field(default_factory=dict)
    """(job, address): how often the state was asked since the request."""
    unregistered: set[tuple[str, str]] = field(default_factory=set)
    """Jobs whose registration `GET /job/?update` has removed."""
    asked: list[str] = field(default_factory=list)
    launched: str = ""
    lacks: bool = False
    """Whether an agent lacks a job of the instance."""
    polls: int = 0

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Answer one request: status, and JSON or bytes."""
        self.asked.append(f"{method} {path}")
        place, query = (
            urlsplit(path).path,
            dict(parse_qsl(urlsplit(path).query, keep_blank_values=True)),
        )
        match [method, *place.strip("/").split("/")]:
            case ["POST", "login"]:
                return 200, {"username": body["login"]}
            case ["GET", "agent", *rest]:
                time.sleep(self.update_s if "update" in query else 0.0)
                about = [
                    {"name": name, "address": at, "available": True, "project": self.owner}
                    for name, at in self.agents.items()
                    if not rest or at in rest
                ]
                return 200, about[0] if rest else about
            case [_, "project", *rest]:
                return self._project(method, rest, body)
            case [_, "job", *rest]:
                return self._job(method, rest, query, body)
            case ["GET", "scenario_instance", "3", *rest]:
                return self._instance(rest, query)
        return 404, {"error": "The requested page is not here"}

    def _project(self, method: str, rest: list[str], body: Any) -> Answer:
        answer: Any = None
        match [method, *rest]:
            case ["GET", _]:
                answer = self.project
            case ["POST"]:
                answer = self.project = body
            case ["POST", _, "entity"] if self.owner:
                detail = "DETAIL:  Key (agent_id)=(2) already exists.\n"
                error = f'duplicate key value violates unique constraint "a_key"\n{detail}'
                return 500, {"message": "Unexpected exception appeared", "error": error}
            case ["DELETE", _, "entity", _]:
                return 204, b""
            case ["POST", _, "entity"] if self.project:
                self.project["entity"].append(body)
                answer = self.project
            case ["GET", _, "scenario"]:
                answer = list(self.scenarios.values())
            case ["POST", _, "scenario"]:
                answer = self.scenarios[body["name"]] = body
            case ["POST", _, "scenario", name, "scenario_instance"]:
                return self._launch(name)
        return (
            (404, {"error": "The requested Project is not in the database"})
            if answer is None
            else (200, answer)
        )

    def _job(self, method: str, rest: list[str], query: dict[str, str], body: Any) -> Answer:
        if rest[1:] == ["state"]:
            return 200, self._states((rest[0], query["address"]))
        if method == "GET" and "address" in query:
            return 200, {"agent": query["address"], **self._listed(query["address"])}
        if method == "GET":
            return 200, [{"general": {"name": name}} for name in sorted(self.jobs)]
        if isinstance(body, bytes):
            found = re.search(rb'name="name"\r\n\r\n(\w+)\r\n', body)
            self.jobs.add(found[1].decode() if found else "")
            return 200, {}
        for name in body["names"]:
            self.installed |= dict.fromkeys(((name, address) for address in body["addresses"]), 0)
        return 202, {}

    def _states(self, key: tuple[str, str]) -> dict[str, Any]:
        """Return 202, the registration's success, and the end, one after the other."""
        removed = self.removed.get(key)
        states: dict[str, Any] = {"install": None, "uninstall": None}
        if removed:
            states["uninstall"] = {"returncode": 204, "last_operation_date": removed}
        if key in self.installed:
            self.installed[key] += 1
            asked = self.installed[key]
            code = 202 if asked <= REGISTERED else 204 if asked <= OVER else self.ends_with
            if asked > OVER and code == 200 and key in self.unregistered:
                code = 204
            date = f"2026-11-29T09:00:{0 if asked <= REGISTERED else 5 if asked <= OVER else 9:02}Z"
            states["install"] = {"returncode": code, "last_operation_date": date, "response": code}
        return states

    def _listed(self, address: str) -> dict[str, Any]:
        self.unregistered |= {
            key for key, asked in self.installed.items() if REGISTERED < asked <= OVER
        }
        there = {job for (job, at) in self.installed if at == address and self._has((job, at))}
        known = {job for (job, at) in self.remembered if at == address}
        listed = {"installed_jobs": [{"name": job} for job in sorted(there | known & self.jobs)]}
        message = "A Job on the Agent is not found in the database"
        errors = [{"message": message, "job_name": job} for job in sorted(known - self.jobs)]
        return listed | ({"errors": errors} if errors else {})

    def _has(self, key: tuple[str, str]) -> bool:
        """Return whether the files of a job are on an agent."""
        return self.installed.get(key, 0) > OVER

    def _starts(self) -> list[dict[str, Any]]:
        functions = self.scenarios[self.launched]["openbach_functions"]
        return [each for each in functions if "start_job_instance" in each]

    def _launch(self, name: str) -> Answer:
        self.launched, self.lacks = name, False
        for start in self._starts():
            entity, job = _started(start)
            key = (job, self.agents[entity])
            if not self._has(key) and key not in self.remembered:
                lacking = {"entities": {entity: {"agent": {}, "jobs": [job]}}}
                return 422, lacking | {
                    "error": f"Cannot start scenario {name}: some jobs are missing on agents."
                }
            self.lacks |= not self._has(key)
        self.lacks |= self.launches_without_job > 0
        self.launches_without_job -= 1
        self.polls = 0
        return 200, {"scenario_instance_id": 3}

    def _instance(self, rest: list[str], query: dict[str, str]) -> Answer:
        if rest == ["csv"]:
            return 200, self._csv().encode()
        if rest == ["archive"]:
            return 200, self._archive(query)
        if "files_count" in query:
            counts: dict[str, dict[str, int]] = {}
            for number, statistic, _ in self.stored:
                count = counts.setdefault(self._names()[number][1], {})
                count[statistic] = count.get(statistic, 0) + 1
            return 200, counts
        self.polls += 1
        over = self.polls > 1
        stopped = {
            number
            for each in self.scenarios[self.launched]["openbach_functions"]
            for number in each.get("stop_job_instances", {}).get("openbach_function_ids", [])
        }
        functions: list[dict[str, Any]] = []
        for number, each in enumerate(self._starts(), self.first_job):
            if self.lacks:
                functions.append(each | {"status": "Error", "job": None})
                continue
            status = "Running" if not over else "Not Running"
            if over and each["id"] in stopped:
                status = "Unknown" if self.polls - 1 <= self.asks_before_settled else "Stopped"
            dates = {"start_date": _utc(1), "stop_date": _utc(18) if over else "Not programmed yet"}
            job = {"id": number, "name": _started(each)[1], "status": status, **dates}
            functions.append(each | {"status": "Finished", "job": job})
        status = "Running" if not over else "Finished Ko" if self.lacks else "Finished Ok"
        about = {"scenario_instance_id": 3, "scenario_name": self.launched, "status": status}
        return 200, about | {"openbach_functions": functions}

    def _names(self) -> dict[int, tuple[str, str]]:
        """Return entity and job of each job instance."""
        return {
            number: _started(each) for number, each in enumerate(self._starts(), self.first_job)
        }

    def _csv(self) -> str:
        statistics = sorted({statistic for _, statistic, _ in self.stored})
        columns = [
            "@agent_name",
            "@job_instance_id",
            "@job_instance_start_date",
            "@job_instance_stop_date",
            "@job_name",
            "@owner_scenario_instance_id",
            "@scenario_instance_id",
            "@scenario_start_date",
            "@scenario_stop_date",
            "@stored_file",
            "@suffix",
            *statistics,
            "time",
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="")
        writer.writeheader()
        for number, statistic, path in self.stored:
            entity, job = self._names()[number]
            kept = f"/opt/openbach/agent/collect_agent/{job}/{number}/1795331980771/{path.name}"
            row = {
                "@agent_name": entity,
                "@job_instance_id": number,
                "@job_name": job,
                "@stored_file": "true",
            }
            row |= {"@owner_scenario_instance_id": 3, "@scenario_instance_id": 3, statistic: kept}
            row |= {"@job_instance_start_date": _utc(1), "@job_instance_stop_date": _utc(18)}
            row |= {"@scenario_start_date": _utc(0), "@scenario_stop_date": _utc(20)}
            writer.writerow(
                row | {"time": datetime.fromtimestamp(BEGAN + 18, _PARIS).isoformat(" ")}
            )
        return text.getvalue()

    def _archive(self, query: dict[str, str]) -> bytes:
        members = {"scenario_instance_3.csv": self._csv().encode()}
        for number, statistic, path in self.stored:
            entity, job = self._names()[number]
            if query.get(job) == statistic:
                inner = archive({f"{statistic.removesuffix('_json')}.json": path.read_bytes()})
                members[f"{entity}.{job}_({number}).{statistic}.m0krqcl{len(members)}.tar.gz"] = (
                    inner
                )
        return archive(members)


def _started(function: dict[str, Any]) -> tuple[str, str]:
    start = function["start_job_instance"]
    return start["entity_name"], next(
        key for key in start if key not in ("entity_name", "offset", "interval")
    )


def _utc(after_s: float) -> str:
    return datetime.fromtimestamp(BEGAN + after_s, UTC).isoformat(" ")


@contextmanager
def serve(replayed: Replayed) -> Iterator[int]:
    """Serve until the block ends; yield the port, on 127.0.0.1."""
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _handle(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"] or 0))
            is_json = self.headers["content-type"] == "application/json"
            with lock:
                status, said = replayed.answer(
                    self.command, self.path, json.loads(content or b"{}") if is_json else content
                )
            answer = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()
