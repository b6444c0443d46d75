# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH's `collect_agent` for the embedded lab: same calls, but records go to files of the run.

Statistics become lines of `$SATLAB_RAW/stats.jsonl`, in the form in which rstats sends them to the
collector; stored files are copied to `$SATLAB_RAW/files/<job>-<instance>/`. Needs the standard
library alone. Times are ms since the epoch.
"""

import configparser
import contextlib
import fcntl
import json
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
        self, timestamp: int, suffix: str | None, statistics: Mapping[str, Any], *, is_file: bool
    ) -> None:
        """Write statistics, those of one flag in one record."""
        _check_time(timestamp)
        groups: dict[int, dict[str, Any]] = {}
        for name, value in statistics.items():
            if name == "_metadata":
                raise _RefusedError("a statistic cannot be called _metadata")
            groups.setdefault(self.filters.get(name, self.default), {})[name] = value
        metadata = {"time": int(timestamp), "is_file": is_file, **self.sender}
        if suffix is not None:
            metadata["suffix"] = str(suffix)
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

    def store(self, statistic: str, source: Path, *, copy: bool) -> str:
        """Put a file into the run; return its path relative to `raw`."""
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
            if not copy:
                source.unlink()
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
    if (
        isinstance(timestamp, bool)
        or not isinstance(timestamp, int | float)
        or timestamp < _YEAR_MS
    ):
        raise _RefusedError(f"{timestamp!r} lies in 1970: pass the timestamp in milliseconds")


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
    config_file: str,
    log_option: int = syslog.LOG_PID,
    log_facility: int = syslog.LOG_USER,
    new: bool = False,
) -> bool:
    """Get ready to send; False (with the reason on stderr) when the environment or the filter file
    is wrong.
    """

    def connect_now() -> None:
        _State.connection = _Connection(config_file, os.environ)

    return _answer(connect_now) == "OK"


def connect(config_file: str) -> bool:
    """Do as `register_collect`."""
    return register_collect(config_file)


def send_stat(timestamp: int, suffix: str | None = None, **statistics: Any) -> str:
    """Record statistics; answers "OK" or "KO: reason"."""
    return _answer(lambda: _connection().send(timestamp, suffix, statistics, is_file=False))


def store_files(
    timestamp: int, suffix: str | None = None, copy: bool = True, **statistics: str
) -> str:
    """Store one file per statistic and record where it lies; with `copy=False` it is moved. "OK" or
    "KO: reason".
    """

    def store_all() -> None:
        connection = _connection()
        _check_time(timestamp)
        sources = {_name(name, "statistic"): Path(path) for name, path in statistics.items()}
        stored = {
            name: connection.store(name, source, copy=copy) for name, source in sources.items()
        }
        connection.send(timestamp, suffix, stored, is_file=True)

    return _answer(store_all)


def send_log(priority: int, message: str) -> None:
    """Write a line to stderr, which the runner keeps as the job's log."""
    severity = _SEVERITIES[priority & 7]
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(message))
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
