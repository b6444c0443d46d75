# SPDX-License-Identifier: GPL-3.0-or-later
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from satlab.common import paths

Started = Callable[[str], Any]
IDLE: dict[str, Any] = {
    "delay_ms": 250.0,
    "loss": {"model": "bernoulli", "ratio": 0.0, "unit": "packet"},
    "outage": False,
}


def valid(request: object) -> None:
    names = ("link-control", "link-config")
    documents = [json.loads((paths.SCHEMAS / f"{name}.schema.json").read_text()) for name in names]
    registry: Registry[Any] = Registry().with_resources(
        [(d["$id"], Resource.from_contents(d)) for d in documents]
    )
    jsonschema.Draft202012Validator(documents[0], registry=registry).validate(request)


class Link:
    """Stands in for satlink: takes changes over at the second look, as its threads do."""

    def __init__(self, path: Path) -> None:
        self.directions: dict[str, Any] = {
            "forward": dict(IDLE),
            "return": dict(IDLE),
            "terrestrial_down": None,
        }
        self.asked: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self._late: dict[str, Any] = {}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                request = json.loads(connection.makefile("rb").readline())
                valid(request)
                connection.sendall(json.dumps(self._answer(request)).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        if self.faults:
            return {"ok": False, "faults": self.faults}
        if "get" not in request:
            self._late = dict(request.get("set", {}))
            self._late |= self._late.pop("handover", {})
            return {"ok": True, "t_s": 1.0}
        answer = {
            "ok": True,
            "t_s": 1.0,
            "timeline": None,
            "directions": json.loads(json.dumps(self.directions)),
        }
        direction = self._late.pop("direction", None)
        for name in (
            ("forward", "return") if direction == "both" else (direction,) if direction else ()
        ):
            self.directions[name] |= self._late
        return answer


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    found = Link(tmp_path / "control.sock")
    yield found
    found.close()


def test_a_change_is_asked_for_awaited_and_reported(trial: Started, link: Link) -> None:
    job = trial("satlab_link")
    arguments = ["set", "both", "-d", "100.0", "-l", "0.01", "-u", "frame", "-j", "2.0"]
    assert job.run(*arguments, SATLAB_CONTROL=str(job.raw / "control.sock"))[0] == 0
    changed = {
        "delay_ms": 100.0,
        "loss": {"ratio": 0.01, "unit": "frame"},
        "jitter": {"uniform_ms": 2.0},
    }
    assert link.asked[0] == {"set": {"direction": "both", **changed}}
    sent = {record["_metadata"]["suffix"]: record for record in job.records()}
    assert set(sent) == {"forward", "return"}
    figures = {"delay_ms": 100.0, "loss_ratio": 0.01, "jitter_ms": 2.0, "outage": 0}
    assert all(figures.items() <= record.items() for record in sent.values())


@pytest.mark.parametrize(
    ("arguments", "asked", "sent"),
    [
        (["-a", "6.5"], {"attenuation_db": 6.5}, {"attenuation_db": 6.5}),
        (["-c", "4"], {"modcod": 4}, {"modcod": 4}),
        (["-c", "acm"], {"modcod": "acm"}, {"modcod": 0}),
        (["-b", "10000000"], {"symbol_rate_baud": 10_000_000}, {"symbol_rate_baud": 10_000_000}),
        (
            ["-m", "bursts:1000,50"],
            {"loss": {"model": "bursts", "period_ms": 1000, "duration_ms": 50}},
            {},
        ),
        (
            ["-m", "gilbert-elliott:0.01,0.2"],
            {"loss": {"model": "gilbert-elliott", "p": 0.01, "r": 0.2}},
            {},
        ),
        (
            ["-m", "gilbert-elliott:0.01,0.167,1,10"],
            {
                "loss": {
                    "model": "gilbert-elliott",
                    "p": 0.01,
                    "r": 0.167,
                    "step_ms": 1,
                    "min_burst_ms": 10,
                }
            },
            {},
        ),
        (
            ["-r", "0.02", "-D", "0.1", "-C", "0.01"],
            {
                "reorder": {"ratio": 0.02, "packets": 2, "ms": 50.0},
                "duplicate": 0.1,
                "corrupt": 0.01,
            },
            {"reorder_ratio": 0.02, "duplicate_ratio": 0.1, "corrupt_ratio": 0.01},
        ),
        (
            ["-r", "0.02", "-t", "20"],
            {"reorder": {"ratio": 0.02, "ms": 20.0}},
            {"reorder_ratio": 0.02},
        ),
        (
            ["-r", "0", "-n", "5"],
            {"reorder": {"ratio": 0.0, "packets": 5, "ms": 50.0}},
            {"reorder_ratio": 0.0},
        ),
        (
            ["-q", "1.2bdp", "-A", "codel", "-i", "650", "-e"],
            {"queue": {"bdp": 1.2, "aqm": "codel", "interval_ms": 650, "ecn": True}},
            {},
        ),
        (
            ["-H", "keep", "-d", "16", "-b", "5000000", "-q", "200packets"],
            {
                "handover": {
                    "waiting": "keep",
                    "delay_ms": 16,
                    "symbol_rate_baud": 5_000_000,
                    "queue": {"packets": 200},
                }
            },
            {"delay_ms": 16, "symbol_rate_baud": 5_000_000},
        ),
    ],
)
def test_the_radio_link_is_changed(
    trial: Started, link: Link, arguments: list[str], asked: dict[str, Any], sent: dict[str, Any]
) -> None:
    job = trial("satlab_link")
    assert (
        job.run("set", "forward", *arguments, SATLAB_CONTROL=str(job.raw / "control.sock"))[0] == 0
    )
    if "loss" in asked:
        asked["loss"]["unit"] = "packet"
    assert link.asked[0] == {"set": {"direction": "forward", **asked}}
    assert sent.items() <= job.records()[0].items()


def test_losses_of_two_kinds_add_up(trial: Started, link: Link) -> None:
    job = trial("satlab_link")
    arguments = ["-l", "0.01", "-m", "bursts:1000,50", "-u", "frame"]
    assert (
        job.run("set", "forward", *arguments, SATLAB_CONTROL=str(job.raw / "control.sock"))[0] == 0
    )
    burst = {"model": "bursts", "period_ms": 1000, "duration_ms": 50, "unit": "frame"}
    assert link.asked[0]["set"]["loss"] == [{"ratio": 0.01, "unit": "frame"}, burst]


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("2.5", 2.5)])
def test_outages(trial: Started, link: Link, text: str, value: object) -> None:
    job = trial("satlab_link")
    assert job.run("-s", str(job.raw / "control.sock"), "set", "forward", "-o", text)[0] == 0
    assert link.asked[0] == {"set": {"direction": "forward", "outage": value}}
    assert job.records()[0]["outage"] == int(value is not False)


def test_show_and_timeline(trial: Started, link: Link) -> None:
    job = trial("satlab_link")
    assert job.run("-s", str(job.raw / "control.sock"), "show")[0] == 0
    assert job.run("-s", str(job.raw / "control.sock"), "timeline")[0] == 0
    assert link.asked == [{"get": "state"}, {"start": "timeline"}, {"get": "state"}]
    assert len(job.records()) == 4


def test_a_refusal_fails_with_every_fault(trial: Started, link: Link) -> None:
    link.faults = ["set.delay_ms: is negative", "set.x: is unknown"]
    job = trial("satlab_link")
    status, said = job.run("-s", str(job.raw / "control.sock"), "set", "forward", "-d", "1.0")
    assert status == 1
    assert (
        "error: the link refuses the change: set.delay_ms: is negative; set.x: is unknown" in said
    )
    assert job.records() == []


def test_a_change_that_does_not_hold_fails(trial: Started, link: Link) -> None:
    job = trial("satlab_link")
    link._answer = lambda request: {  # type: ignore[method-assign]
        "ok": True,
        "t_s": 1.0,
        "timeline": None,
        "directions": link.directions,
    }
    status, said = job.run("-s", str(job.raw / "control.sock"), "set", "forward", "-d", "1.0")
    assert status == 1
    assert "does not hold" in said


def test_nobody_there_fails(trial: Started, tmp_path: Path) -> None:
    status, said = trial("satlab_link").run("-s", str(tmp_path / "none"), "show")
    assert status == 1
    assert "the link does not answer" in said
