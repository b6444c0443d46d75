# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's yardstick is measured once, and again when it is stale."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collect
from collect.browser_yardstick import FILE, BrowserYardsticks
from collect.fixtures import example_run
from collect.page_loads import PageLoad
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.openbach import descriptor, scenario
from satlab.openbach.model import BoundScenario
from satlab.run import host_load, host_stamp, manifest, measure_browser_yardstick
from satlab.run.host_load import HostState

NODES = ("client", "proxy-st", "proxy-gw", "server")


def bound(name: str, **values: str) -> BoundScenario:
    file = paths.SCENARIOS / f"{name}.json"
    return scenario.bind(scenario.load(file, descriptor.all_jobs(()), NODES), values)


def load(plt_ms: float, status: str = "ok") -> collect.PageLoad:
    made = example_run.page_load("h3", 0, random.Random(0))  # noqa: S311
    change = {"page_load_time_ms": plt_ms, "yardstick_ms": plt_ms / 20, "status": status}
    return PageLoad.model_validate(made | change)


class Bench:
    """A host that loads pages of 400 ms over a bare wire."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raw = folder / "raw"
        self.raw.mkdir()
        self.measured: list[Any] = []
        self.stamp, self.now, self.others = "a", 1e9, 0
        self.loads: Sequence[collect.PageLoad] = [load(400)] * 3
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setattr(host_stamp, "stamp", lambda: (self.stamp, {}))
        monkeypatch.setattr(manifest, "versions", lambda _: {"chromium": "156"})
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(host_load, "state", self._state)
        monkeypatch.setattr(measure_browser_yardstick, "_loads", self._loads)
        self._state_of_host = HostState(0, 0, None, 0.0, {})

    def _state(self, *_: object) -> HostState:
        before = self._state_of_host
        self._state_of_host = replace(
            before,
            total_ticks=before.total_ticks + 200,
            uptime_s=before.uptime_s + 1,
            working_ticks=before.working_ticks + self.others,
        )
        return self._state_of_host

    def _loads(self, _: object, page: object, *__: object) -> Sequence[collect.PageLoad]:
        self.measured.append(page)
        return self.loads

    def run(self, asked: BoundScenario) -> list[float]:
        """Return the yardsticks that a run gets, ms."""
        measure_browser_yardstick.write(
            None,  # type: ignore[arg-type]  # the lab of `_loads`
            asked,
            self.raw,
            ProgressLog(quiet=True),
            threading.Event(),
        )
        file = self.raw / FILE
        if not file.exists():
            return []
        found = BrowserYardsticks.model_validate_json(file.read_text()).yardsticks
        file.unlink()
        return [one.page_load_time_ms for one in found]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


H3 = bound("page_load", protocol="h3")


def test_it_is_measured_once_for_each_page_and_protocol(bench: Bench) -> None:
    assert bench.run(H3) == bench.run(H3) == [400]
    assert bench.measured == [("kepler", "h3")]
    assert bench.run(bound("web_quic", pep="none")) == [400]
    assert bench.run(bound("page_load", protocol="h1", page="shop")) == [400]
    assert bench.measured == [("kepler", "h3"), ("shop", "h1")]


def test_it_is_measured_again_on_another_host_and_after_an_hour(bench: Bench) -> None:
    bench.run(H3)
    bench.now += measure_browser_yardstick.FRESH_S - 1
    bench.run(H3)
    assert len(bench.measured) == 1
    bench.now += 2
    bench.run(H3)
    assert len(bench.measured) == 2
    bench.stamp = "b"
    bench.run(H3)
    assert len(bench.measured) == 3


def test_a_busy_host_or_failed_loads_give_none(bench: Bench) -> None:
    bench.others = 150
    assert bench.run(H3) == []
    bench.others, bench.loads = 0, [load(400), *[load(400, "failed")] * 2]
    assert bench.run(H3) == []
    bench.loads = [*[load(400)] * 2, load(900, "failed")]
    assert bench.run(H3) == [400]


def test_a_scenario_without_page_loads_needs_none(bench: Bench) -> None:
    assert bench.run(bound("quic", pep="none")) == [] and not bench.measured
    firefox = bound("page_load", protocol="h3", browser="firefox")
    assert bench.run(firefox) == [] and not bench.measured
