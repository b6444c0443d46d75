# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for all tests: no skip in CI, generous deadlines there, parallel workers that do not meet,
few repeats.
"""

import contextlib
import ctypes
import fcntl
import functools
import gc
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

IN_CI = os.environ.get("CI", "") not in ("", "0", "false")
ALLOWED_SKIPS = {
    r"no limit of CPU time here: ": "a container without a cgroup of its own",
    r"no library of ngtcp2 0.12 here: [1-9]": "Debian 13, whose ngtcp2 has another interface",
}
"""What a platform of CI may lack, as the start of a skip's reason: why.

Anything else that is skipped fails in CI.
"""
REPEATED = ("net", "browser", "timing")
"""Tests with a clock of their host, which does other things, too: such a test is repeated once if
it fails. The output names each repeat; `--max-suite-reruns` bounds them, so that a test that often
fails, or many tests, fail the suite.
"""
TIMING_PLACES = 3
"""How many tests marked `timing` run at once."""
PLACE = pytest.StashKey[int]()
CLONE_NEWNS = 0x20000  # linux/sched.h; `os.unshare` is Python 3.12's
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

hypothesis.settings.register_profile(
    "satlab",
    deadline=None,  # a busy host is no fault of an example
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("satlab")


def pytest_configure(config: pytest.Config) -> None:
    if is_worker(config) and os.geteuid() == 0:
        own_run_folder()


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is one of several of pytest-xdist."""
    return hasattr(config, "workerinput")


def own_run_folder() -> None:
    """Put an empty `/run` in place of the host's, for this process and its children.

    Labs, their owners and their namespaces lie there: a worker neither sees those of another one
    nor sweeps them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    # Mounts that only we still had would keep other people's namespaces alive.
    subprocess.run(
        ["umount", "--recursive", "--lazy", "/run/netns"], check=False, stderr=subprocess.DEVNULL
    )
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "satlab-test", "/run"], check=True)
    Path("/run/lock").mkdir(mode=0o1777)


# --- which worker, and when -----------------------------------------------------------------------


class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Any worker takes any test, but one worker takes all tests of a scope."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return scope(self.config.rootpath / file) or nodeid


@functools.cache
def scope(file: Path) -> str:
    """Return the scope of a file's tests: what its `SCOPE` says, the file if it has a fixture for
    all, else none.
    """
    text = file.read_text()
    if named := re.search(r'^SCOPE = "(\w+)"', text, re.MULTILINE):
        return named[1]
    return str(file) if 'scope="module"' in text else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put last what is in real time, and after it what measures closely.

    What is in real time may fail once.

    What one worker takes as a whole comes before single tests, and of these what is long before the
    others, so that no worker is left with it at the end.
    """
    items.sort(key=order)
    for number, item in enumerate(filter(is_timing, items)):
        item.stash[PLACE] = number % TIMING_PLACES
    for item in items:
        if any(item.get_closest_marker(name) for name in REPEATED):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    """Take what was collected out of every later garbage collection, which would look at all tests
    each time.
    """
    gc.collect()
    gc.freeze()


def order(item: pytest.Item) -> tuple[bool, bool, bool, bool]:
    """Return the place of a test among all; equal ones keep theirs."""
    is_net, is_long = (item.get_closest_marker(name) is not None for name in ("net", "long"))
    return is_timing(item), is_net, not scope(item.path), not is_long


def is_timing(item: pytest.Item) -> bool:
    return item.get_closest_marker("timing") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test marked `timing` run when none without this mark runs.

    Its time limit starts afterwards.

    The file has a byte for each place. A test with the mark locks one, of the VM lab's tests as
    well; any other test of a worker shares all of them.
    """
    if not (is_timing(item) or is_worker(item.config)):
        return (yield)
    folder = item.config.rootpath / ".satlab"
    folder.mkdir(exist_ok=True)
    # A lock of lockf(3), unlike one of flock(2), is not kept by a process that a test forked.
    shared = os.open(folder / "timing.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if is_timing(item):
            fcntl.lockf(shared, fcntl.LOCK_EX, 1, item.stash[PLACE])
        else:
            fcntl.lockf(shared, fcntl.LOCK_SH, TIMING_PLACES)
        return (yield)
    finally:
        os.close(shared)


# --- what tests leave -----------------------------------------------------------------------------

STARTED_BY = os.environ["SATLAB_STARTED_BY"] = uuid.uuid4().hex
"""In the environment of this process's children, which are known by it when this process ends."""
END_S = 10
ENDS_BY_ITSELF = "multiprocessing.resource_tracker"
"""Python's own, which ends with the process that has used multiprocessing."""
SHOWN_REASON = 300
"""Characters at both ends of why a test was repeated: a program's log has its fault at its end."""
left_processes: list[str] = []
"""Command lines of what still ran after the last test, of all workers."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were repeated, and what they left."""
    for report in terminalreporter.stats.get("rerun", ()):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else "no reason is known"
        reason = (
            reason
            if len(reason) <= 2 * SHOWN_REASON
            else f"{reason[:SHOWN_REASON]} ... {reason[-SHOWN_REASON:]}"
        )
        terminalreporter.line(f"repeated: {report.nodeid}: {' '.join(reason.split())}")
    for command in left_processes:
        terminalreporter.line(f"left by tests: {command[:SHOWN_REASON]}", red=True)


@pytest.hookimpl(trylast=True)  # after xdist has ended its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what tests have started and left, and fail for it."""
    deadline = time.monotonic() + END_S
    while (found := children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, command in found.items():
        left_processes.append(command)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if is_worker(session.config):
        session.config.workeroutput["left"] = left_processes  # type: ignore[attr-defined]
    elif left_processes:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_processes.extend(getattr(node, "workeroutput", {}).get("left", ()))


def children() -> dict[int, str]:
    """Return the command lines of living processes that were started by this one or by its
    descendants.
    """
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"SATLAB_STARTED_BY={STARTED_BY}".encode() in (place / "environ").read_bytes().split(
                b"\0"
            ):
                found[int(place.name)] = (
                    (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return {pid: command for pid, command in found.items() if ENDS_BY_ITSELF not in command}


# --- skips ----------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return refuse_skip((yield))


def refuse_skip(report: Report, *, in_ci: bool = IN_CI) -> Report:
    """Turn a skip into a failure in CI, unless its reason is one of `ALLOWED_SKIPS`."""
    if not in_ci or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return report
    place: Any = report.longrepr
    reason = place[2].removeprefix("Skipped: ") if isinstance(place, tuple) else str(place)
    if not any(re.match(allowed, reason) for allowed in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped in CI: {reason}"
    return report
