# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of one machine take slots."""

import threading
import time
from pathlib import Path

import pytest

from satlab.campaign import attempt, lab_slots
from satlab.campaign.plan_file import Task
from satlab.common.processes import wait

GENEROUS_S = 30
ON_HOST = lab_slots.OnThisHost(takes_slot=True)


@pytest.fixture
def one_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(lab_slots, "labs", lambda: 1)


def task(lab: str) -> Task:
    clock = "real" if lab == "netns" else "virtual"
    asked = {"verb": "check", "suite": "etosat", "case": "medium", "clock": clock, "seed": 1}
    return Task.model_validate(
        {"id": "a.1", "cell": "a", "number": 1, "request": asked, "estimate_s": 1, "cores": 1}
    )


@pytest.mark.usefixtures("one_lab")
@pytest.mark.promise("P95")
def test_p262_a_second_lab_waits_for_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running: list[str] = []
    most: list[int] = []

    def here(*_: object) -> None:
        running.append("lab")
        most.append(len(running))
        time.sleep(0.05)
        running.pop()

    monkeypatch.setattr(attempt, "here", here)
    words = (task("netns"), tmp_path, 1.0, -1, threading.Event())
    both = [threading.Thread(target=ON_HOST, args=words) for _ in range(4)]
    for one in both:
        one.start()
    for one in both:
        one.join(GENEROUS_S)
    assert most == [1, 1, 1, 1]


@pytest.mark.usefixtures("one_lab")
def test_p262_the_virtual_clock_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    monkeypatch.setattr(attempt, "here", lambda *_: done.append("here"))
    with lab_slots.slot(threading.Event()):
        ON_HOST(task("virtual"), tmp_path, 1.0, -1, threading.Event())
    assert done == ["here"]


@pytest.mark.usefixtures("one_lab")
def test_p262_a_stop_ends_the_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attempt, "here", lambda *_: pytest.fail("a lab beyond what the host bears"))
    stop, found = threading.Event(), list[object]()
    with lab_slots.slot(threading.Event()):
        words = (task("netns"), tmp_path, 1.0, -1, stop)
        waiting = threading.Thread(target=lambda: found.append(ON_HOST(*words)))
        waiting.start()
        stop.set()
        assert wait(lambda: found == [None], GENEROUS_S)
        waiting.join(GENEROUS_S)
