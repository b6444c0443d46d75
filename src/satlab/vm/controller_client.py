# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH's REST API (2.7) as its client: requests, and the meaning of its refusals."""

import contextlib
import http.client
import io
import json
import re
import secrets
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from satlab.common import paths, service_url
from satlab.common.errors import ConfigError, Fault, HostError, RunError

PORT = 8000
LOOK_DEADLINE_S = 20.0
UPDATE_S_PER_AGENT = 12.0
"""Further time for an answer about each agent: an update is an Ansible run (12.6 to 24.8 s for 5
agents, 2.7.0).
"""
WORK_DEADLINE_S = 300.0
"""Longest time for one answer, s. When an entity is added, the controller requests facts of every
agent of the project; an export is made on request.
"""
TRIES = 5
"""Tries of a GET whose connection breaks: the controller's HTTP server resets connections now and
then. Only GET is repeated.
"""
INSTALL_DEADLINE_S = 900.0
REGISTERED_S = 180.0
"""Longest time from the registration of a job to the end of its installation (a playbook whose last
request timed out: 150 s).
"""
POLL_S = 1.0
MOST_BYTES, MOST_JSON_BYTES = 1 << 30, 64 << 20
"""Largest file that is read (captures), and largest answer in JSON."""
LONGEST_TEXT = 1000
"""Longest text of a controller that a message holds, characters."""
_LOGIN = "name its account: SATLAB_OPENBACH=http://LOGIN:PASSWORD@HOST:8000"


_OF_DATABASE = re.compile(r" violates |\nDETAIL:")


class _BrokenError(Exception):
    """The connection was refused, reset or too slow."""


class RefusedError(RunError):
    """The controller refuses a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = status


@dataclass
class Controller:
    """A controller; `prefix` is the path before the API's own. Keeps the session's cookie."""

    host: str
    port: int = PORT
    prefix: str = ""
    login: str = ""
    password: str = field(default="", repr=False)
    secure: bool = False
    _cookie: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str) -> "Controller":
        """Read `http[s]://[login:password@]host[:8000][/openbach]`. Raises ConfigError."""
        found = service_url.parse(url, PORT)
        if found is None:
            raise ConfigError(
                "the controller is not a URL",
                hint="write http://[login:password@]host[:8000][/openbach]",
            )
        return cls(
            found.host, found.port, found.path.rstrip("/"), found.user, found.password, found.secure
        )

    def __str__(self) -> str:
        """Return the place without account and password."""
        return f"{self._origin}{self.prefix}"

    @property
    def _origin(self) -> str:
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}"

    def request(self, method: str, path: str, body: Any = None, more_s: float = 0.0) -> Any:
        """Send JSON; return what the answer holds, None for an empty one.

        `more_s`: time beyond the usual deadline.

        Raises:
            HostError: it does not answer, or not in JSON.
            RefusedError: it refuses.
        """
        content = b"" if method == "GET" else json.dumps({} if body is None else body).encode()
        deadline_s = more_s + (LOOK_DEADLINE_S if method == "GET" else WORK_DEADLINE_S)
        answer = self._send(method, path, content, "application/json", deadline_s, MOST_JSON_BYTES)
        try:
            return json.loads(answer) if answer else None
        except (ValueError, RecursionError) as error:
            raise HostError(f"{self}{path}: no JSON", "is it an OpenBACH controller?") from error

    def read(self, path: str) -> bytes:
        """Return a file that the controller makes. Raises as `request`."""
        return self._send("GET", path, b"", "application/json", WORK_DEADLINE_S, MOST_BYTES)

    def enter(self) -> None:
        """Log in, if there is an account.

        Raises as `request`; HostError where the account is not known.
        """
        if not self.login:
            return
        try:
            self.request("POST", "/login/", {"login": self.login, "password": self.password})
        except RefusedError as error:
            if (
                error.http_status != HTTPStatus.CONFLICT
            ):  # which means that we are logged in already
                raise HostError(f"{self}: {error}", _LOGIN) from error

    def _send(
        self,
        method: str,
        path: str,
        content: bytes,
        kind: str,
        deadline_s: float,
        most_bytes: int,
    ) -> bytes:
        for left in range(TRIES if method == "GET" else 1, 0, -1):
            try:
                status, answer = self._exchange(method, path, content, kind, deadline_s, most_bytes)
            except _BrokenError as error:
                if left == 1:
                    raise HostError(
                        f"{self} does not answer: {error}", "is it up? satlab vm status"
                    ) from error
                time.sleep(POLL_S)
                continue
            if len(answer) > most_bytes:
                raise HostError(f"{self}{path}: the answer has more than {most_bytes >> 20} MiB")
            if status < HTTPStatus.BAD_REQUEST:
                return answer
            raise RefusedError(status, f"{method} {path}: {_refusal(status, answer)}")
        raise AssertionError("unreachable")

    def _exchange(
        self,
        method: str,
        path: str,
        content: bytes,
        kind: str,
        deadline_s: float,
        most_bytes: int,
    ) -> tuple[int, bytes]:
        """Make one request on a new connection; read one byte more than `most_bytes` at most."""
        protocol = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = protocol(self.host, self.port, timeout=deadline_s)
        try:
            headers = {"content-type": kind, "origin": self._origin} | (
                {"cookie": self._cookie} if self._cookie else {}
            )
            connection.request(method, self.prefix + path, content, headers)
            answer = connection.getresponse()
            received = answer.read(most_bytes + 1)
            self._cookie = (answer.headers["set-cookie"] or self._cookie).partition(";")[0]
            return answer.status, received
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenError(str(error) or type(error).__name__) from error
        finally:
            connection.close()

    # --- what a scenario needs --------------------------------------------------------------------

    def agents(self, names: set[str]) -> dict[str, str]:
        """Return the addresses of the agents with these names.

        Raises:
            HostError: there is none with a name, or it is not available.
        """
        count = len(self.request("GET", "/agent/"))
        updated = self.request("GET", "/agent/?update", more_s=UPDATE_S_PER_AGENT * count)
        found = {agent["name"]: agent for agent in updated}
        lacking = sorted(names - found.keys())
        away = sorted(
            name for name in names - set(lacking) if not found[name].get("available", True)
        )
        if lacking or away:
            reasons = [f"no agent {', '.join(lacking)}"] if lacking else []
            states = {name: str(found[name].get("status", "not available")) for name in away}
            reasons += [f"{name} is {state[:LONGEST_TEXT]}" for name, state in states.items()]
            raise HostError(f"{self}: {'; '.join(reasons)}", "install them: satlab vm provision")
        return {name: found[name]["address"] for name in names}

    def put_entities(self, project: str, agents: Mapping[str, str]) -> None:
        """Make a project have these entities, each with its agent.

        Raises:
            HostError: an agent belongs to another project.
        """
        try:
            known = self.request("GET", f"/project/{quote(project)}/")
        except RefusedError as error:
            if error.http_status != HTTPStatus.NOT_FOUND:
                raise
            owners = [self.login] if self.login else []
            about = {
                "name": project,
                "description": "satlab",
                "owners": owners,
                "entity": [],
                "network": [],
            }
            known = self.request("POST", "/project/", about)
        attached = {
            entity["name"]: (entity.get("agent") or {}).get("address") for entity in known["entity"]
        }
        place = f"/project/{quote(project)}/entity/"
        for name, address in sorted(agents.items()):
            entity = {"name": name, "description": "", "agent": {"address": address}}
            if attached.get(name) == address:
                continue
            try:
                if name in attached:
                    self.request("PUT", f"{place}{quote(name)}/", entity)
                else:
                    self.request("POST", place, entity)
            except RefusedError as error:
                owner = str(self.request("GET", f"/agent/{quote(address)}/").get("project") or "")
                if owner in ("", project):
                    raise
                if name not in attached:  # it was made, without its agent
                    with contextlib.suppress(RefusedError):
                        self.request("DELETE", f"{place}{quote(name)}/")
                raise HostError(
                    f"{self}: the agent {name} ({address}) belongs to the project {owner[:64]!r}",
                    "an agent has one project: remove its entity there",
                ) from error

    def install(self, jobs: Mapping[str, set[str]]) -> None:
        """Add the jobs that the controller lacks, and install them where they are missing; jobs by
        agent's address.
        """
        known = {job["general"]["name"] for job in self.request("GET", "/job/")}
        # Asked before a job is added: an agent that still lists it would count as having it.
        lists = {address: self._installed(address) for address in sorted(jobs)}
        for address, listed in lists.items():
            missing = sorted(
                name
                for name in jobs[address]
                if name not in listed or self._is_removed(name, address)
            )
            for name in missing:
                if name not in known:
                    self.add_job(name, paths.JOBS / name)
                    known.add(name)
            earlier = {name: self._states(name, address)["install"] for name in missing}
            if missing:
                self.request(
                    "POST", "/job/", {"action": "install", "names": missing, "addresses": [address]}
                )
            for name in missing:
                self._await_end(name, address, earlier[name], was_listed=name in listed)
            if missing:
                self._await_listed(set(missing), address)

    def _installed(self, address: str) -> set[str]:
        """Return the jobs that an agent lists itself, which may differ from what the controller has
        noted.
        """
        query = f"{urlencode({'address': address})}&update"
        listed = self.request("GET", f"/job/?{query}", more_s=UPDATE_S_PER_AGENT)
        return {job["name"] for job in listed["installed_jobs"]}

    def _states(self, name: str, address: str) -> dict[str, dict[str, Any] | None]:
        """Return the states of the latest operations with a job on an agent, `install` and
        `uninstall` among them.
        """
        place = f"/job/{quote(name)}/state/?{urlencode({'address': address})}"
        found: dict[str, dict[str, Any] | None] = self.request("GET", place)
        return found

    def _is_removed(self, name: str, address: str) -> bool:
        """Return whether a job was uninstalled last: the agent lists it until it is restarted,
        without its files.
        """
        states = self._states(name, address)
        added, removed = (
            str((states.get(key) or {}).get("last_operation_date") or "")
            for key in ("install", "uninstall")
        )
        return removed > added  # ISO 8601 in one zone

    def add_job(self, name: str, folder: Path) -> None:
        """Add a job's folder (needs an administrator's account)."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for file in sorted(folder.rglob("*")):
                if (
                    file.is_file()
                    and "__pycache__" not in file.parts
                    and not file.name.startswith("test_")
                ):
                    archive.add(file, str(file.relative_to(folder)))
        boundary = secrets.token_hex(16)
        head = (
            f"--{boundary}\r\nContent-Disposition: form-data;"
            f' name="name"\r\n\r\n{name}\r\n--{boundary}\r\n'
        )
        head += f'Content-Disposition: form-data; name="file"; filename="{name}.tar.gz"\r\n'
        head += "Content-Type: application/gzip\r\n\r\n"
        content = head.encode() + packed.getvalue() + f"\r\n--{boundary}--\r\n".encode()
        kind = f"multipart/form-data; boundary={boundary}"
        self._send("POST", "/job/", content, kind, WORK_DEADLINE_S, MOST_JSON_BYTES)

    def _await_end(
        self, name: str, address: str, earlier: dict[str, Any] | None, *, was_listed: bool
    ) -> None:
        """Wait for the end of an installation: 200, 204 or a failure.

        The playbook registers the job through an installation of its own, whose success (204; 200
        for a job that is listed already) is read before the files are there. The agent's list
        proves nothing meanwhile, as it may hold a job that was removed; and to ask for it removes
        the registration, so that the end is 204 in place of 200.

        `earlier`: the state before this installation was requested, which may still be read.
        """
        success = (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
        end = time.monotonic() + INSTALL_DEADLINE_S
        registered: dict[str, Any] | None = None
        was_running, registered_by = False, end
        while time.monotonic() < min(end, registered_by):
            state = self._states(name, address)["install"]
            if state is not None and state not in (earlier, registered):
                code = state["returncode"]
                registers = success if was_listed else (HTTPStatus.NO_CONTENT,)
                if code == HTTPStatus.ACCEPTED:
                    was_running = True
                elif code not in success:
                    raise RunError(
                        f"{self}: {name} cannot be installed on {address}:"
                        f" {str(state['response'])[:LONGEST_TEXT]}"
                    )
                elif not was_running or registered is not None or code not in registers:
                    return
                else:
                    registered, registered_by = state, time.monotonic() + REGISTERED_S
            time.sleep(POLL_S)
        if registered is None:
            raise RunError(
                f"{self}: {name} is not installed on {address} after {INSTALL_DEADLINE_S:g} s"
            )

    def _await_listed(self, names: set[str], address: str) -> None:
        """Wait until an agent lists jobs whose installation is over."""
        end = time.monotonic() + WORK_DEADLINE_S
        while lacking := names - self._installed(address):
            if time.monotonic() > end:
                raise RunError(
                    f"{self}: the agent {address} does not list {', '.join(sorted(lacking))}"
                    f" {WORK_DEADLINE_S:g} s after the installation"
                )
            time.sleep(POLL_S)

    def save(self, project: str, document: Mapping[str, Any]) -> None:
        """Store a scenario, as a new version where there is one of its name.

        Raises:
            ConfigError: the controller does not accept it, with its place.
        """
        place = f"/project/{quote(project)}/scenario/"
        names = {known["name"] for known in self.request("GET", place)}
        name = str(document["name"])
        try:
            if name in names:
                self.request("PUT", f"{place}{quote(name)}/", document)
            else:
                self.request("POST", place, document)
        except RefusedError as error:
            if error.http_status != HTTPStatus.BAD_REQUEST:
                raise
            raise ConfigError(
                f"{self} does not accept the scenario", [Fault(name, str(error))]
            ) from error

    def launch(self, project: str, scenario: str, arguments: Mapping[str, str]) -> int:
        """Launch a scenario; return the id of its instance."""
        place = f"/project/{quote(project)}/scenario/{quote(scenario)}/scenario_instance/"
        return int(
            self.request("POST", place, {"arguments": dict(arguments)})["scenario_instance_id"]
        )

    def instance(self, number: int) -> dict[str, Any]:
        """Return a scenario instance with its functions, jobs and sub-scenarios."""
        found: dict[str, Any] = self.request("GET", f"/scenario_instance/{number}/")
        return found

    def stop(self, number: int) -> None:
        """Stop a scenario instance."""
        self.request("POST", f"/scenario_instance/{number}/")


def _refusal(status: int, answer: bytes) -> str:
    """Return the reason of a refusal: `error` of the conductor, `msg` of the view, with place and
    details.
    """
    try:
        body = json.loads(answer)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return f"HTTP {status}"
    reasons = [str(body[key]) for key in ("error", "msg", "message") if body.get(key)][:1] or [
        f"HTTP {status}"
    ]
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and _OF_DATABASE.search(reasons[0]):
        reasons = ["the controller's database refuses it"]
    detail = body.get("error_message")
    if isinstance(detail, dict):
        reasons.append(f"{detail.get('offending_entry', '')}: {detail.get('error', '')}")
    elif detail:
        reasons.append(str(detail))
    entities = body.get("entities")
    if isinstance(entities, dict):
        reasons += [
            f"{name}: {', '.join(map(str, lacking.get('jobs', [])))}"
            for name, lacking in entities.items()
        ]
    elif entities:
        reasons.append(", ".join(map(str, entities)))
    reasons += [str(fault) for fault in body.get("faults", [])]
    return "; ".join(reasons)[:LONGEST_TEXT]
