# SPDX-License-Identifier: GPL-3.0-or-later
"""What network tests share: lab ids of their own, a stand-in for satlink, and proof that nothing is
left behind.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from pyroute2 import IPRoute

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.topology import load
from satlab.lab import lab, netns
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.run_folder import RunResult
from tests import process_search
from tests.calibration import calibrated, faults

MARK = "SATLAB_TEST_MARK"
STANDIN = Path(__file__).with_name("standin_satlink.py")
Result = TypeVar("Result")


class Up(Protocol):
    def __call__(self, **link: Any) -> Lab: ...


class AsPlanned(Protocol):
    def __call__(self, attempt: Callable[[Path], Result]) -> Result: ...


@pytest.fixture(autouse=True)
def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def standin(tmp_path: Path) -> Path:
    """An executable that stands in for satlink."""
    file = tmp_path / "satlink"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
    file.chmod(0o755)
    return file


@pytest.fixture
def satlink() -> Path:
    """The emulator itself."""
    if not paths.SATLINK.exists():
        pytest.skip(f"{paths.SATLINK} is not built")
    return paths.SATLINK


def built_ngtcp2(folder: Path, *targets: str) -> Path:
    """Build programs of tests/endpoints/ngtcp2, for ngtcp2 0.12 of Debian 12, into a new folder."""
    version = subprocess.run(
        ["pkg-config", "--modversion", "libngtcp2"], capture_output=True, text=True, check=False
    )
    if not version.stdout.startswith("0.12."):
        pytest.skip(f"no library of ngtcp2 0.12 here: {version.stdout.strip() or 'none'}")
    folder.mkdir()
    source = paths.ROOT / "tests/endpoints/ngtcp2"
    subprocess.run(["make", "-s", "-C", source, f"OUT={folder}", *targets], check=True)
    return folder


@pytest.fixture
def as_planned(tmp_path: Path) -> AsPlanned:
    """Return a function that calls another one with a folder for its runs, and returns what that
    returns.

    RTT, rate and loss of each run must be as planned; if they are not, all is done once more.
    """

    def as_planned(attempt: Callable[[Path], Result]) -> Result:
        results: list[Result] = []

        def run() -> Path:
            runs = tmp_path / f"attempt-{len(results) + 1}"
            results.append(attempt(runs))
            folders = [file.parents[1] for file in runs.rglob("raw/calibration.json")]
            assert folders, "nothing was calibrated"
            return max(folders, key=lambda folder: len(faults(folder)))

        calibrated(run)
        return results[-1]

    return as_planned


def satlab(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of satlab, whose calibration may fail: `as_planned` says what is excused."""
    done = subprocess.run(
        [sys.executable, "-m", "satlab", *words],
        env=os.environ | {"PYTHONPATH": paths.PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (ExitStatus.OK, ExitStatus.UNCALIBRATED), done.stderr
    return done


def executed(request: scenario_run.RunRequest) -> RunResult:
    """Carry a run out, quietly."""
    prepared = scenario_run.prepare(request)
    return scenario_run.execute(prepared, ProgressLog(quiet=True), threading.Event())


def measured_run(
    as_planned: AsPlanned,
    scenario: str | Path,
    link: LinkOptions,
    *,
    report: bool = False,
    **settings: str,
) -> RunResult:
    """Run a scenario, a shipped one by its name, in a lab as planned; it must not have failed."""
    file = paths.SCENARIOS / f"{scenario}.json" if isinstance(scenario, str) else scenario

    def attempt(runs: Path) -> RunResult:
        return executed(scenario_run.RunRequest(file, link, settings, runs=runs, report=report))

    outcome = as_planned(attempt)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    return outcome


def rtts_ms(
    the_lab: Lab,
    node: str,
    to: object,
    *options: str,
    count: int = 5,
    every_s: float = 0.2,
    wait_s: int = 5,
) -> list[float]:
    """Ping; return the round-trip times of the answers, ms."""
    argv = f"ping -n -c {count} -i {every_s} -W {wait_s}".split()
    done = subprocess.run(
        [*the_lab.enter_argv(node), *argv, *options, str(to)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return [float(found) for found in re.findall(r"time=([0-9.]+)", done.stdout)]


@pytest.fixture
def lab_id(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A lab id that nobody else has. When the test ends, the host must bear no trace of the lab."""
    name = f"t{secrets.token_hex(4)}"
    monkeypatch.setenv(MARK, name)
    before = traces(name)
    with _link_events() as seen:
        yield name
        left = traces(name)
        lab.down(name)
    assert left == before
    assert not seen & _interfaces(), "links of a lab showed up in the host's namespace"


@pytest.fixture
def up(lab_id: str, satlink: Path) -> Iterator[Up]:
    """Return a function that brings the test's lab up with options of the link, and the terminals
    of its profile; the lab goes down with the test.
    """

    def up(**link: Any) -> Lab:
        options = LinkOptions(**link)
        further = options.profile_terminals(satlink)
        request = options.request(terminals=further)
        return Lab.up(lab_id, options.topology(further), request, satlink=satlink)

    yield up
    lab.down(lab_id)


@pytest.fixture
def up_as_asked(lab_id: str, satlink: Path) -> Iterator[Callable[..., Lab]]:
    """As `up`, with fields of a request, which options do not have, over a shipped profile."""

    def up(profile: str, **request: Any) -> Lab:
        asked = LinkRequest(profile=paths.PROFILES / profile, **request)
        return Lab.up(lab_id, load(), asked, satlink=satlink)

    yield up
    lab.down(lab_id)


def traces(name: str) -> dict[str, list[str]]:
    """Return all traces of a lab on this host, and the host's own routes and packet filter."""
    nft = shutil.which("nft")
    with IPRoute() as ip:
        links = {str(link.get("ifname")) for link in ip.get_links()} & _interfaces()
        routes = [
            str((r.get("dst"), r["dst_len"], r["table"], r.get("oif"))) for r in ip.get_routes()
        ]
    return {
        "namespaces": netns.present(name),
        "links": sorted(links),
        "routes": sorted(routes),
        "nft": subprocess.run(
            [nft, "list", "ruleset"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if nft
        else [],
        # What a test starts, directly or not, inherits its environment.
        "processes": list(map(str, process_search.having(f"{MARK}={name}", "environ"))),
        "files": sorted(str(file) for file in Path("/run").glob(f"satlab*/**/{name}*")),
    }


def _interfaces() -> set[str]:
    return {name for node in load().nodes.values() for name in node.interfaces}


class _link_events:  # noqa: N801
    """Collect the names of all links that show up in the host's namespace."""

    def __enter__(self) -> set[str]:
        self._names: set[str] = set()
        self._monitor: Any = subprocess.Popen(
            ["ip", "-o", "monitor", "link"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {MARK: "monitor"},
        )
        return self._names

    def __exit__(self, *_: object) -> None:
        self._monitor.terminate()
        output, _ = self._monitor.communicate()
        for line in output.splitlines():
            self._names.add(line.removeprefix("Deleted ").split(": ")[1].partition("@")[0])
