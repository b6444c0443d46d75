# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a run will still take, from equal runs and from its argument `duration`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from satlab.openbach.engine import ScenarioStatus
from satlab.service.api.conftest import SCENARIO_REQUEST, Clock, FakeHelper
from satlab.service.api.database import Store
from satlab.service.api.queue import Instance, LaunchRequest, Queue
from satlab.service.pages.time_left import EarlierRuns, time_left
from satlab.service.root_helper.protocol import RunLink


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    store = Store(tmp_path / "db")
    yield Queue(store, FakeHelper(), Clock(), 100)
    store.close()


def run(
    queue: Queue, start: float, stop: float | None, *, duration: str = "15", loss: float = 0.0
) -> Instance:
    """Add a run that began its scenario at `start`; without `stop` it goes on."""
    link = RunLink(loss=loss)
    request = SCENARIO_REQUEST.model_copy(
        update={"arguments": {"duration": duration}, "link": link}
    )
    number = queue.launch(LaunchRequest("satlab", "runner", request, 0, 1)).id
    queue.step()
    top: dict[str, Any] = {"start_unix_s": start, "stop_unix_s": stop, "functions": []}
    instance = queue.find(number)
    assert instance is not None
    if stop is not None:
        helper = queue._helper
        assert isinstance(helper, FakeHelper)
        helper.end(str(instance.run_id), 0, phase="ended", instance=top)
        queue.step()
        instance = queue.find(number)
        assert instance is not None
        assert instance.status is ScenarioStatus.FINISHED_OK
        return instance
    progress: Any = {"phase": "scenario", "instance": top}
    return dataclasses.replace(instance, progress=progress)


def test_the_time_left_is_that_of_equal_runs(queue: Queue) -> None:
    for took in (40, 50, 90):
        run(queue, 100, 100 + took)
    run(queue, 100, 1100, duration="16")
    run(queue, 100, 1100, loss=0.1)
    now, earlier = run(queue, 2000, None), EarlierRuns(queue)
    assert time_left(earlier, now, 2020) == "about 30 s left, as in 3 equal runs"
    assert time_left(earlier, now, 2100) == "longer than 3 equal runs took"


def test_without_an_equal_run_the_requested_duration_counts(queue: Queue) -> None:
    now, earlier = run(queue, 2000, None, duration="80"), EarlierRuns(queue)
    assert time_left(earlier, now, 2010) == "at least 1 min 10 s left of the requested 80 s"
    assert time_left(earlier, now, 2090) == ""
    assert time_left(earlier, dataclasses.replace(now, progress=None), 2010) == ""
