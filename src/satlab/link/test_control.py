# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to a running link, and timelines."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from satlab.common.errors import ConfigError, HostError
from satlab.common.paths import ROOT
from satlab.link import control
from satlab.link.change_options import LinkChange
from satlab.link.config import LinkSet
from satlab.link.options import LinkOptions


def answered(path: Path, answer: bytes) -> tuple[threading.Thread, list[bytes]]:
    """Serve one connection at `path` with a fixed answer; return the thread and the list that
    receives the request.
    """
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    asked: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with server, connection:
            asked.append(connection.makefile("rb").readline())
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, asked


def test_change_sends_what_was_chosen_alone(tmp_path: Path) -> None:
    """Fields left out do not reach the link."""
    thread, asked = answered(tmp_path / "s", b'{"ok": true, "t_s": 1.5}\n')
    request = LinkSet.model_validate({"direction": "both", "delay_ms": 5, "outage": 1})
    assert control.change(tmp_path / "s", request) == {"ok": True, "t_s": 1.5}
    thread.join()
    assert json.loads(asked[0]) == {"set": {"direction": "both", "delay_ms": 5.0, "outage": 1.0}}


def test_refusal_lists_every_fault(tmp_path: Path) -> None:
    """The user has to fix what satlink refuses."""
    thread, _ = answered(
        tmp_path / "s", b'{"ok": false, "faults": ["set.x: is unknown", "set.y: is unknown"]}\n'
    )
    with pytest.raises(ConfigError) as caught:
        control.state(tmp_path / "s")
    thread.join()
    assert [fault.place for fault in caught.value.faults] == ["set.x", "set.y"]


@pytest.mark.parametrize("answer", [b"", b"{\n", b"nonsense\n"])
def test_silence_and_nonsense_are_the_hosts_fault(tmp_path: Path, answer: bytes) -> None:
    """A link that has ended is reported by one message."""
    thread, _ = answered(tmp_path / "s", answer)
    with pytest.raises(HostError, match="does not answer"):
        control.start_timeline(tmp_path / "s")
    thread.join()
    with pytest.raises(HostError, match="does not answer"):
        control.state(tmp_path / "absent")


def test_timeline_is_read(tmp_path: Path) -> None:
    """A timeline becomes part of the configuration."""
    file = tmp_path / "t.json"
    file.write_text('[{"at_s": 2, "set": {"direction": "return", "outage": 1}}]')
    request = LinkOptions(timeline=file).request(timeline_starts="on-request")
    assert request.timeline is not None
    assert request.timeline.model_dump(by_alias=True) == {
        "starts": "on-request",
        "steps": ({"at_s": 2.0, "set": {"direction": "return", "outage": 1.0}},),
    }


def test_shipped_time_lines_are_read() -> None:
    """The fade falls and recovers to where it was."""
    steps = control.load_steps(ROOT / "openbach-scenarios" / "timelines" / "fade.json")
    levels = [step.set_.attenuation_db or 0.0 for step in steps]
    assert (max(levels), levels[-1]) == (6.0, 0.0)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("{", 1),
        ("{}", 1),
        ('[{"at_s": -1, "set": {"direction": "up", "delay_ms": 1}}, {"at_s": 1}]', 3),
        ('[{"at_s": 1, "set": {"direction": "both"}}]', 1),
        ('[{"at_s": 1, "set": {"direction": "terrestrial_up", "queue": {"bdp": 1}}}]', 1),
        ('[{"at_s": 1, "set": {"direction": "both", "colour": 1}}]', 1),
        ('[{"at_s": 1, "set": {"direction": "both", "modcod": 4}}]', 1),
        ('[{"at_s": 1, "set": {"direction": "terrestrial_up", "attenuation_db": 4}}]', 1),
    ],
)
def test_faulty_time_lines_are_refused_whole(tmp_path: Path, text: str, places: int) -> None:
    """Every fault has its place."""
    file = tmp_path / "t.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="not a timeline") as caught:
        control.load_steps(file)
    assert len(caught.value.faults) == places
    with pytest.raises(ConfigError, match="not a file"):
        control.load_steps(tmp_path)


def test_command_line_becomes_a_set() -> None:
    """Options that were not given leave the link as it is."""
    sets = [
        LinkChange(loss=0.1, jitter_ms=2.0, outage="off").link_set("forward"),
        LinkChange(queue="9packets", aqm="pie", delay_ms=5.0, outage="1").link_set("both"),
        LinkChange(attenuation_db=6.0, modcod="4", symbol_rate_baud=2e7).link_set("forward"),
        LinkChange(queue="1bdp", delay_ms=16.0, handover="flush").link_set("both"),
        LinkChange(loss=0.0, loss_unit="frame").link_set("return"),
        LinkChange(gateway=6, terminal=2, outage="0.5").link_set("both"),
        LinkChange(gateway=0, handover="drop").link_set("both"),
        LinkChange(reorder=0.0, duplicate=0.1, corrupt=0.0).link_set("terrestrial_up"),
    ]
    assert [one.model_dump() for one in sets] == [
        {
            "direction": "forward",
            "loss": {"ratio": 0.1, "unit": "packet"},
            "jitter": {"uniform_ms": 2.0},
            "outage": False,
        },
        {
            "direction": "both",
            "delay_ms": 5.0,
            "outage": 1.0,
            "queue": {"packets": 9, "aqm": "pie"},
        },
        {"direction": "forward", "attenuation_db": 6.0, "modcod": 4, "symbol_rate_baud": 20000000},
        {
            "direction": "both",
            "handover": {"waiting": "flush", "delay_ms": 16.0, "queue": {"bdp": 1.0}},
        },
        {"direction": "return", "loss": {"ratio": 0.0, "unit": "frame"}},
        {
            "direction": "both",
            "terminal": 2,
            "outage": 0.5,
            "gateway": {"id": 6, "waiting": "keep"},
        },
        {"direction": "both", "gateway": {"id": 0, "waiting": "drop"}},
        {
            "direction": "terrestrial_up",
            "reorder": {"ratio": 0.0, "packets": 2, "ms": 50.0},
            "duplicate": 0.1,
            "corrupt": 0.0,
        },
    ]


def test_a_change_of_one_direction_has_no_gateway() -> None:
    with pytest.raises(ConfigError) as caught:
        LinkChange(gateway=6).link_set("forward")
    assert "one gateway for both directions" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aqm": "pie"},
        {"outage": "soon"},
        {"modcod": "acm"},
        {"symbol_rate_baud": 1.5},
        {"handover": "hold"},
    ],
)
def test_a_change_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LinkChange.of(**options).link_set("both")
