# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics and link metrics of a run to InfluxDB 1.x as line protocol, under OpenBACH's names.

Measurement = job, or `satlink`; tags `@agent_name`, `@job_instance_id`, `@scenario_instance_id`,
`@owner_scenario_instance_id`, `@stored_file`, `@suffix` (of the link: its direction); fields = the
statistics; times in ms (OpenBACH 2.7). One tag is ours: `@run_id`, since the instances of every run
are numbered from 1. The run folder stays the record. Points that the database does not accept are
reported and can be sent later.
"""

import base64
import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from collect import raw
from satlab.common import service_url
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.link import prometheus

VARIABLE = "SATLAB_INFLUX"
"""Environment variable with the URL of the database."""
STATISTICS, LINK = "raw/stats.jsonl", "raw/link.jsonl"
PERIOD_S = 1.0
"""Period at which new records of a run are sent."""
DEADLINE_S = 5.0
"""For each answer of the database, as a whole."""
ANSWER_BYTES = 1 << 20
"""Of an answer; more is not read."""
BATCH_BYTES = 1 << 20
"""Bytes read at a time; InfluxDB 1.6 takes 25 MB in a request."""

_PORT = 8086
_OTHER_DURATION = "retention policy conflicts with an existing policy"
_UNFIT = "\N{REPLACEMENT CHARACTER}"
_TAGS = (
    "agent_name",
    "job_instance_id",
    "scenario_instance_id",
    "owner_scenario_instance_id",
    "suffix",
)


class RefusedError(Exception):
    """The database refuses the points; a repetition cannot succeed."""


# --- line protocol --------------------------------------------------------------------------------


def line(record: Mapping[str, Any], run_id: str) -> str:
    """Return the point of one record (schemas/stats.schema.json); '' when it holds no field."""
    about = record["_metadata"]
    fields = [
        f"{_key(name)}={text}"
        for name, value in record.items()
        if name
        and name not in ("_metadata", "time")  # `time` is InfluxDB's own
        and (text := _field(value)) is not None
    ]
    if not fields:
        return ""
    tags = {"@run_id": run_id, "@stored_file": "true" if about["is_file"] else "false"}
    tags |= {f"@{name}": str(about[name]) for name in _TAGS if about.get(name) not in (None, "")}
    head = ",".join(
        [
            _key(about["job_name"]),
            *(f"{_key(name)}={_key(text)}" for name, text in sorted(tags.items())),
        ]
    )
    return f"{head} {','.join(fields)} {int(about['time'])}"


def link_points(sample: Mapping[str, Any], run_id: str) -> list[str]:
    """Return a point for each direction of a line of the link (schemas/link-metrics.schema.json)
    that is a sample.
    """
    if sample["type"] != "sample":
        return []
    about = {
        "time": 1000 * sample["t_unix_s"],
        "is_file": False,
        "job_name": "satlink",
        "agent_name": "sat",
    }
    records = [
        {field: figures.get(field) for field in prometheus.HELP}
        | {"_metadata": about | {"suffix": direction}}
        for direction, figures in sample.items()
        if isinstance(figures, dict)  # null: another emulator carries it
    ]
    return [point for record in records if (point := line(record, run_id))]


def _key(text: str) -> str:
    """Escape a measurement, tag or field key.

    Backslashes and control characters, which these cannot contain, are replaced.
    """
    fit = "".join(_UNFIT if c == "\\" or not c.isprintable() else c for c in text)
    return fit.replace(",", r"\,").replace("=", r"\=").replace(" ", r"\ ")


def _field(value: Any) -> str | None:
    """Write every number as a float: InfluxDB refuses one in a field that began with an integer.

    None: the line protocol cannot carry the value (null, NaN, infinity, or beyond a float).
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        return repr(number) if math.isfinite(number) else None
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\0", _UNFIT) + '"'


# --- the database ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Database:
    """A database for statistics. `policy` is the retention policy; both names are `openbach`, as
    OpenBACH's.
    """

    host: str
    port: int = _PORT
    name: str = "openbach"
    policy: str = "openbach"
    user: str = ""
    password: str = ""
    secure: bool = False

    @classmethod
    def of(cls, url: str) -> "Database":
        """Read `http[s]://[user:password@]host[:port][/database]`. Raises ConfigError."""
        parts = service_url.parse(url, _PORT)
        if parts is None or parts.path.count("/") > 1:
            raise ConfigError(
                "the InfluxDB is not a URL",
                hint="write http://[user:password@]host[:8086][/openbach]",
            )
        name = unquote(parts.path.strip("/")) or cls.name
        return cls(
            parts.host, parts.port, name, cls.policy, parts.user, parts.password, parts.secure
        )

    def __str__(self) -> str:
        """Return the place without user and password."""
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}/{quote(self.name)}"

    def prepare(self) -> None:
        """Create the database if it is missing; one with another retention time is not changed.

        Raises HostError.
        """
        name, policy = (
            text.replace("\\", "\\\\").replace('"', '\\"') for text in (self.name, self.policy)
        )
        try:
            self.query(f'CREATE DATABASE "{name}" WITH DURATION INF REPLICATION 1 NAME "{policy}"')
        except HostError as error:
            if _OTHER_DURATION not in str(error):
                raise

    def query(self, text: str) -> list[dict[str, Any]]:
        """Run an InfluxQL statement and return its series. Raises HostError."""
        try:
            body = self._post(
                "/query", {"db": self.name, "rp": self.policy, "epoch": "ms", "q": text}, b""
            )
            result = dict(json.loads(body)["results"][0])
            series: list[dict[str, Any]] = list(result.get("series", []))
        except (RefusedError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise HostError(
                f"{self}: {error}", "look at the database's log, or leave --influx out"
            ) from error
        if "error" in result:
            raise HostError(f"{self}: {result['error']}", "grant the user the privilege")
        return series

    def write(self, points: Sequence[str]) -> None:
        """Store points.

        Raises HostError when the database does not answer, RefusedError when it refuses them.
        """
        if points:
            self._post(
                "/write",
                {"db": self.name, "rp": self.policy, "precision": "ms"},
                "\n".join(points).encode(errors="replace"),  # a lone surrogate
            )

    def _post(self, path: str, parameters: Mapping[str, str], body: bytes) -> bytes:
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=DEADLINE_S)
        # The time-out is that of one read.
        late = threading.Timer(DEADLINE_S, _end, [connection])
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        try:
            headers = {"Authorization": f"Basic {login}"} if self.user else {}
            connection.connect()
            end = time.monotonic() + DEADLINE_S
            late.start()
            connection.request("POST", f"{path}?{urlencode(parameters)}", body, headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES)
            if time.monotonic() >= end:  # what came may be the beginning
                raise TimeoutError(f"no whole answer within {DEADLINE_S:g} s")
        except (OSError, http.client.HTTPException) as error:
            raise HostError(
                f"{self} does not answer: {error}", "is it running? or leave --influx out"
            ) from error
        finally:
            late.cancel()
            connection.close()
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise HostError(
                f"{self}: {answer.status} {body.decode(errors='replace')[:200].strip()}"
            )
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(f"{answer.status} {body.decode(errors='replace')[:200].strip()}")
        return body


def _end(connection: http.client.HTTPConnection) -> None:
    """End a connection in use by another thread, whose call then fails."""
    with suppress(OSError, AttributeError):  # it has ended meanwhile
        connection.sock.shutdown(socket.SHUT_RDWR)


# --- a run ----------------------------------------------------------------------------------------


def _statistics_points(record: Mapping[str, Any], run_id: str) -> list[str]:
    point = line(record, run_id)
    return [point] if point else []


@dataclass
class Feed:
    """Sends a file of a run folder as it grows; points that were not accepted are repeated.

    `points`: those of a line.
    """

    database: Database
    folder: Path
    name: str
    run_id: str
    points: Callable[[Mapping[str, Any], str], list[str]] = _statistics_points
    sent: int = 0
    refused: str = ""
    _offset: int = 0

    def step(self) -> bool:
        """Send one batch of new points; return whether there may be more.

        Raises HostError; then no point was sent.
        """
        try:
            with raw.open_plain(self.folder, self.name, raw.LINES_BYTES) as file:
                file.seek(self._offset)
                read = file.read(BATCH_BYTES)
        except FileNotFoundError:
            return False
        except (OSError, raw.RefusedError) as error:
            self.refused = str(error)
            return False
        data = read[: read.rfind(b"\n") + 1]
        if not data and len(read) == BATCH_BYTES:
            data = read  # part of a line that is too long for a record
        points = [point for text in data.splitlines() for point in self._points(text)]
        try:
            self.database.write(points)
            self.sent += len(points)
        except RefusedError as error:
            self.refused = str(error)
        self._offset += len(data)
        return bool(data)

    def _points(self, text: bytes) -> list[str]:
        """Return the points of a line; empty if it is not a record, because jobs write the file."""
        try:
            return self.points(json.loads(text), self.run_id)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return []

    def drain(self) -> None:
        """Send all remaining points. Raises HostError."""
        while self.step():
            pass


def feeds(database: Database, folder: Path, run_id: str) -> list[Feed]:
    """Return the feeds of a run folder: its statistics and its link."""
    return [
        Feed(database, folder, STATISTICS, run_id),
        Feed(database, folder, LINK, run_id, link_points),
    ]


@contextmanager
def feeding(url: str | None, folder: Path, run_id: str, log: ProgressLog) -> Iterator[None]:
    """Send a run's figures while it runs, and the rest at its end; a failure is logged, and never
    fails the run.
    """
    if url is None:
        yield
        return
    every, over = feeds(Database.of(url), folder, run_id), threading.Event()

    def carry_on() -> None:
        while not over.wait(PERIOD_S):
            with suppress(HostError):  # logged at the end
                for feed in every:
                    feed.step()

    thread = threading.Thread(target=carry_on, name="influx", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        try:
            for feed in every:
                feed.drain()
        except HostError as error:
            log.line(f"note: {error}; send it later: satlab influx {folder} --to URL")
        for feed in every:
            if feed.refused:
                log.line(
                    f"note: {feed.database}: points of {feed.name} are left out: {feed.refused}"
                )


def send(folders: Sequence[Path], url: str) -> int:
    """Send statistics and link of runs, which may have been sent before; returns the number of
    points.

    Raises HostError, or ConfigError for a folder that holds no run.
    """
    database = Database.of(url)
    for folder in folders:
        if not (folder / "manifest.json").is_file():
            raise ConfigError(
                f"{folder} holds no run", hint="a run folder holds manifest.json and raw/"
            )
    run_ids = [_run_id(folder) for folder in folders]
    database.prepare()
    total = 0
    for folder, run_id in zip(folders, run_ids, strict=True):
        for feed in feeds(database, folder, run_id):
            feed.drain()
            if feed.refused:
                raise HostError(
                    f"{database}: points of {folder / feed.name} are left out: {feed.refused}"
                )
            total += feed.sent
    return total


def _run_id(folder: Path) -> str:
    """Return the id of a run, whose folder may be somebody else's. Raises ConfigError."""
    try:
        with raw.open_plain(folder, "manifest.json", raw.DOCUMENT_BYTES) as file:
            return str(json.load(file)["run_id"])
    except (OSError, raw.RefusedError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(f"{folder}: manifest.json: {error}") from error
