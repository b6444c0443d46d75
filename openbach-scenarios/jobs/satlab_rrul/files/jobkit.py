# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make generate` from openbach-scenarios/_kit/jobkit.py: change it there.
"""Functions that satlab's OpenBACH jobs share: start and end, readiness, stored files, programs,
arguments.

It needs only the standard library and `collect_agent`. OpenBACH installs each job's folder by
itself, so `make generate` copies this file into the folder of each job that imports it.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import collect_agent

COMMAND_S = 10.0
"""Deadline of a short command, s."""
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin"
"""Debian has servers and network tools in /usr/sbin, which is not in every PATH."""


# --- start and end --------------------------------------------------------------------------------


class JobError(Exception):
    """An expected end of the job: what happened, what to do about it, the exit status.

    Status 1: the measurement failed. 2: arguments. 3: the host cannot do it.
    """

    def __init__(self, message: str, hint: str = "", status: int = 3) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


def run_job(program: str, main: Callable[[], int | None]) -> NoReturn:
    """Register with the collector, run `main`, and exit with its status (None: 0).

    `program` is the job's `__file__`. A JobError is printed and gives the exit status.
    """
    path = Path(program)
    with collect_agent.use_configuration(str(path.with_name(f"{path.stem}_rstats_filter.conf"))):
        try:
            status = main() or 0
        except JobError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            print(f"error: {error}{hint}", file=sys.stderr)
            status = error.status
        sys.exit(status)


class Stopped(Exception):  # noqa: N818 - an ordinary end
    """SIGTERM or SIGINT came."""


def stop_event() -> threading.Event:
    """Return an event that SIGTERM or SIGINT sets from now on."""
    stop = threading.Event()
    on_stop(lambda *_: stop.set())
    return stop


def raise_on_stop() -> None:
    """Raise Stopped in the main thread when SIGTERM or SIGINT comes."""

    def stop(*_: object) -> None:
        raise Stopped

    on_stop(stop)


def start_stoppable(
    argv: Sequence[str], stop: threading.Event, number: int = signal.SIGTERM, **options: Any
) -> "subprocess.Popen[Any]":
    """Start a program that gets the signal `number` when the job is stopped, even if that was while
    it started.

    `stop`: from `stop_event`, requested before; `options` are Popen's.
    """
    program = subprocess.Popen(argv, **options)

    def end_program(*_: object) -> None:
        stop.set()
        program.send_signal(number)

    on_stop(end_program)
    if stop.is_set():
        program.send_signal(number)
    return program


def ignore_stops() -> None:
    """Ignore SIGTERM and SIGINT from now on, while the record of the measurement is written."""
    on_stop(signal.SIG_IGN)


def on_stop(handler: Any) -> None:
    """Set the handler of SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


# --- what the job reports -------------------------------------------------------------------------


def ready(job: str) -> socket.socket:
    """Send the statistic `ready` and announce the job."""
    collect_agent.send_stat(collect_agent.now(), ready=1)
    return announce(job)


def announce(job: str) -> socket.socket:
    """Tell satlab_await on this node that the job is ready, until the socket is closed.

    The socket is bound to the abstract name of the job, which the kernel removes with it (unix(7)).
    """
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind(f"\0{job}")
    return door


def store_json(statistic: str, document: Mapping[str, Any], indent: int | None = None) -> str:
    """Store a document as a JSON file under the name of a statistic, such as `ping_json`.

    Returns the collector's answer, "OK" if it is stored.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{statistic.removesuffix('_json')}.json"
        path.write_text(json.dumps(document, indent=indent) + "\n", encoding="utf-8")
        return collect_agent.store_files(collect_agent.now(), **{statistic: str(path)})


def must_store_json(statistic: str, document: Mapping[str, Any]) -> None:
    """Store a document. Raises JobError if the collector refuses it."""
    if (answer := store_json(statistic, document, indent=1)) != "OK":
        name = f"{statistic.removesuffix('_json')}.json"
        raise JobError(f"the collector refused {name}: {answer}", "see the collector's log", 1)


# --- programs -------------------------------------------------------------------------------------


def find(program: str) -> str | None:
    """Return the path of a program, None if it is not installed."""
    return shutil.which(program, path=PATH)


def need(program: str, hint: str) -> str:
    """Return the path of a program. Raises JobError if it is not installed."""
    found = find(program)
    if not found:
        raise JobError(f"{program} is not installed", hint)
    return found


def run(*argv: str, text: str | None = None, hint: str = "") -> str:
    """Run a short command with `text` as its input and return its output.

    Raises JobError, with `hint`, if it cannot be started, fails or takes longer than COMMAND_S.
    """
    try:
        done = subprocess.run(
            [find(argv[0]) or argv[0], *argv[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{argv[0]}: {error}", hint) from error
    if done.returncode:
        raise JobError(f"{' '.join(argv)}: {done.stderr.strip()}", hint)
    return done.stdout


def end(child: "subprocess.Popen[bytes]", within_s: float) -> int:
    """Ask a child to end, kill it after `within_s`, and return its status."""
    child.terminate()
    try:
        return child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


# --- arguments ------------------------------------------------------------------------------------


def argument_parser(doc: str | None, **more: Any) -> argparse.ArgumentParser:
    """Return a parser whose description is the first paragraph of a module's docstring."""
    first = (doc or "").split("\n\n")[0]
    return argparse.ArgumentParser(description=" ".join(first.split()), **more)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def real(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of numbers from `least` to `most`."""

    def read(text: str) -> float:
        number = float(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be {least:g} to {most:g}")
        return number

    return read


def matching(pattern: str, what: str) -> Callable[[str], str]:
    """Return a reader of texts that match a pattern as a whole; `what` names such a text."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"is not {what}")
        return text

    return read


port = whole(1, 65535)
interface = matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "the name of an interface")
page_name = matching(r"[a-z0-9][a-z0-9-]{0,62}", "the name of a page: a-z, 0-9 and '-'")
congestion_control = matching(r"[a-z][a-z0-9_]{0,15}", "a congestion control, such as cubic")
