# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH's `collect_agent` for the embedded lab: same calls, but records go to files of the run.

Statistics become lines of `$SATLAB_RAW/stats.jsonl`, in the form in which rstats sends them to the
collector; stored files are copied to `$SATLAB_RAW/files/<job>-<instance>/`. Needs the standard
library alone. Times are ms since the epoch.

A call with arguments that the C++ module of OpenBACH's agents (2.2.2) does not take raises here what
it raises there: a job that works here must not fail on an agent.
"""

import configparser
import contextlib
import fcntl
import json
import operator
import os
import re
import shutil
import signal
import sys
import syslog
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MAX_BYTES = 16 * 1024
"""Largest message that rstats takes."""

_STORE, _BROADCAST = 1, 2
_YEAR_MS = 366 * 24 * 3600 * 1000
_NAME = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,64}", re.ASCII)
_ABSENT: Any = object()
_SEVERITIES = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")


class _RefusedError(Exception):
    """A request that rstats would answer with `KO`."""


class _Connection:
    """The state that `register_collect` sets up: sender, destination, filter."""

    def __init__(self, config_file: str, environment: Mapping[str, str]) -> None:
        self.raw = Path(_needed(environment, "SATLAB_RAW"))
        self.config_file = config_file
        self.sender = {
            "job_name": _name(_needed(environment, "JOB_NAME"), "job"),
            "agent_name": _needed(environment, "SATLAB_AGENT"),
            "job_instance_id": int(_needed(environment, "JOB_INSTANCE_ID")),
            "scenario_instance_id": int(_needed(environment, "SCENARIO_INSTANCE_ID")),
            "owner_scenario_instance_id": int(_needed(environment, "OWNER_SCENARIO_INSTANCE_ID")),
        }
        self.reload()

    def reload(self) -> None:
        """Read the filter file; without one, everything is stored and broadcast, as in rstats."""
        self.default = _STORE | _BROADCAST
        self.filters: dict[str, int] = {}
        parser = configparser.ConfigParser(interpolation=None)
        if not parser.read(self.config_file, encoding="utf-8"):
            return
        if parser.has_section("default"):
            self.default = _flag(parser["default"], self.default)
        self.filters = {
            name: _flag(parser[name], self.default)
            for name in parser.sections()
            if name != "default"
        }

    def send(
        self,
        timestamp: int,
        suffix: str,
        statistics: Mapping[str, Any],
        file_names: Mapping[str, str] | None = None,
    ) -> None:
        """Write statistics, those of one flag in one record.

        `file_names`: the names that stored files had, where the statistics are their places.
        """
        _check_time(timestamp)
        groups: dict[int, dict[str, Any]] = {}
        for name, value in statistics.items():
            if name == "_metadata":
                raise _RefusedError("a statistic cannot be called _metadata")
            groups.setdefault(self.filters.get(name, self.default), {})[name] = value
        metadata = {"time": timestamp, "is_file": file_names is not None, **self.sender}
        if file_names:
            metadata["file_names"] = dict(file_names)
        if suffix:
            metadata["suffix"] = suffix
        for flag, group in groups.items():
            if flag:
                self._append({**group, "_metadata": {**metadata, "flag": flag}})

    def _append(self, record: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(record, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise _RefusedError(f"statistics are not JSON: {error}") from error
        if len(line) > MAX_BYTES:
            raise _RefusedError(f"a record is limited to {MAX_BYTES} bytes")
        handle = os.open(
            self.raw / "stats.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:  # the lock keeps lines whole even where a write is cut short
            fcntl.flock(handle, fcntl.LOCK_EX)
            while line:
                line = line[os.write(handle, line) :]
        finally:
            os.close(handle)

    def store(self, statistic: str, source: Path) -> str:
        """Copy a file into the run; return its path relative to `raw`."""
        folder = Path("files") / f"{self.sender['job_name']}-{self.sender['job_instance_id']}"
        (self.raw / folder).mkdir(parents=True, exist_ok=True)
        extension = source.suffix if _NAME.fullmatch(f"x{source.suffix}") else ""
        number = 1
        while True:
            relative = folder / f"{statistic}{f'-{number}' if number > 1 else ''}{extension}"
            try:  # exclusive, so that a file stored twice gets a number and nothing is overwritten
                with source.open("rb") as original, _new(self.raw / relative, source) as target:
                    shutil.copyfileobj(original, target)
            except FileExistsError:
                number += 1
                continue
            return str(relative)


def _new(path: Path, source: Path) -> BinaryIO:
    """Open a new file with the access rights of `source`, less the umask: a private file stays
    private.
    """
    mode = source.stat().st_mode & 0o666
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def _needed(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise _RefusedError(
            f"{name} is not set; jobs are started by satlab or by an OpenBACH agent"
        )
    return environment[name]


def _name(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise _RefusedError(
            f"{text!r} is not the name of a {what}: letters, digits, '_', '-', '.', at most 64"
        )
    return text


def _flag(section: configparser.SectionProxy, default: int) -> int:
    storage = section.getboolean("storage", fallback=bool(default & _STORE))
    broadcast = section.getboolean("broadcast", fallback=bool(default & _BROADCAST))
    return (_STORE if storage else 0) | (_BROADCAST if broadcast else 0)


def _check_time(timestamp: int) -> None:
    if timestamp < _YEAR_MS:
        raise _RefusedError(f"{timestamp!r} lies in 1970: pass the timestamp in milliseconds")


def _taken(timestamp: Any, suffix: Any, named: dict[str, Any]) -> tuple[int, str]:
    """Return timestamp and suffix of a call, '' without one, and take them out of `named`.

    None counts as absent by name only.
    """
    position = {"timestamp": timestamp, "suffix": suffix}
    for name, given in position.items():
        value = named.pop(name, None)
        if value is not None:
            if given is not _ABSENT:
                raise TypeError(f"{name} is given by position and by name")
            position[name] = value
    timestamp, suffix = position.values()
    if timestamp is _ABSENT:
        raise TypeError("the timestamp is missing")
    moment = operator.index(timestamp)  # refuses floats
    _check_range(moment, "the timestamp")
    if suffix is _ABSENT:
        return moment, ""
    if not isinstance(suffix, str):
        raise TypeError(f"the suffix must be str, not {type(suffix).__name__}")
    return moment, suffix


def _check_range(number: int, what: str) -> None:
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{what} has more than 64 bits")


def _check_value(value: Any, what: str) -> None:
    """Refuse what the agents' module cannot turn into JSON."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{what}: a key must be str, not {type(key).__name__}")
            _check_value(each, f"{what}.{key}")
    elif isinstance(value, list | tuple):
        for each in value:
            _check_value(each, what)
    elif isinstance(value, int):
        _check_range(value, what)
    elif value is not None and not isinstance(value, str | float):
        raise ValueError(f"{what}: {type(value).__name__} is no type of JSON")


class _State:
    """The one connection of this process; a holder, so that no `global` is needed."""

    connection: _Connection | None = None


def _connection() -> _Connection:
    if _State.connection is None:
        raise _RefusedError("register_collect was not called")
    return _State.connection


def _answer(action: Callable[[], None]) -> str:
    """Answer as rstats does: a failure is a text, never an exception in the job."""
    try:
        action()
    except (_RefusedError, OSError, configparser.Error, ValueError) as error:
        answer = f"KO: {error}"
        send_log(syslog.LOG_ERR, answer)
        return answer
    return "OK"


def register_collect(
    config_file: str | bytes | os.PathLike[str],
    log_option: int = syslog.LOG_PID,
    log_facility: int = syslog.LOG_USER,
    new: bool = False,
) -> bool:
    """Get ready to send; False (with the reason on stderr) when the environment or the filter file
    is wrong.
    """
    path = os.fsdecode(config_file)
    for number in (log_option, log_facility):
        operator.index(number)
    del new

    def connect_now() -> None:
        _State.connection = _Connection(path, os.environ)

    return _answer(connect_now) == "OK"


def connect(config_file: str | bytes | os.PathLike[str], /) -> None:
    """Register, and exit the job with status 1 when that fails."""
    if not register_collect(config_file):
        print("cannot register with collect_agent", file=sys.stderr)
        sys.exit(1)


def send_stat(timestamp: int = _ABSENT, suffix: str = _ABSENT, /, **statistics: Any) -> str:
    """Record statistics; answers "OK" or "KO: reason".

    `timestamp` and `suffix` may be given by name. A value is a type of JSON; `metadatas` (which
    rstats puts in place of the sender) is checked and left out.

    Raises:
        TypeError: the timestamp is no integer, the suffix no text (None by position included).
        ValueError, OverflowError: a value is no type of JSON, or an integer of more than 64 bits.
    """
    moment, mark = _taken(timestamp, suffix, statistics)
    for name, value in statistics.items():
        _check_value(value, name)
    statistics.pop("metadatas", None)
    return _answer(lambda: _connection().send(moment, mark, statistics))


def store_files(
    timestamp: int = _ABSENT, suffix: str = _ABSENT, /, *, copy: object = True, **statistics: Any
) -> str:
    """Store one file per statistic and record where it lies. "OK" or "KO: reason".

    On an agent, a file with `copy=False` stays where it is until the controller fetches it; here
    each file is copied.

    Raises:
        TypeError: as `send_stat`; or what should be a path is none.
        RuntimeError: a file cannot be copied.
    """
    moment, mark = _taken(timestamp, suffix, statistics)
    _check_value(statistics.pop("metadatas", None), "metadatas")
    sources = {name: Path(os.fsdecode(path)) for name, path in statistics.items()}
    del copy

    def store_all() -> None:
        connection = _connection()
        _check_time(moment)
        for name in sources:
            _name(name, "statistic")
        try:
            stored = {name: connection.store(name, source) for name, source in sources.items()}
        except OSError as error:
            raise RuntimeError(str(error)) from error
        names = {name: source.name for name, source in sources.items()}
        connection.send(moment, mark, stored, names)

    return _answer(store_all)


def send_log(priority: int, log: str) -> None:
    """Write a line to stderr, which the runner keeps as the job's log."""
    if not isinstance(log, str):
        raise TypeError(f"the message must be str, not {type(log).__name__}")
    severity = _SEVERITIES[operator.index(priority) & 7]
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in log)
    print(f"{time.time():.3f} {severity}: {printable}", file=sys.stderr, flush=True)


def reload_stat() -> str:
    """Read the filter file again."""
    return _answer(lambda: _connection().reload())


def remove_stat() -> str:
    """End the connection."""
    _State.connection = None
    return "OK"


def reload_all_stats() -> str:
    """Do as `reload_stat`: a process has one connection."""
    return reload_stat()


def restart_rstats() -> str:
    """Do nothing: there is no daemon here."""
    return "OK"


def change_config(storage: bool = True, broadcast: bool = True) -> str:
    """Change the default rule of this connection."""

    def change() -> None:
        connection = _connection()
        connection.default = (_STORE if storage else 0) | (_BROADCAST if broadcast else 0)

    return _answer(change)


def now() -> int:
    """Return the time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def use_configuration(config_file: str) -> Iterator[None]:
    """Register, log the start and a crash, and end the connection; exits the job when it cannot
    register.
    """
    if not register_collect(config_file):
        sys.exit("cannot register with collect_agent")
    send_log(syslog.LOG_DEBUG, "started")
    try:
        yield
    except Exception:
        send_log(syslog.LOG_CRIT, traceback.format_exc())
        raise
    finally:
        remove_stat()


def wait_for_signal(handler: Callable[[int, Any], Any] | None = None) -> None:
    """Block until SIGTERM or SIGINT, then call `handler(signal, None)`."""
    signals = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        signum = signal.sigwait(signals)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if handler is not None:
        handler(signum, None)
