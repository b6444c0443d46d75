# SPDX-License-Identifier: GPL-3.0-or-later
"""Phases of Careful Resume: from a sender's qlog, in words, and never from nonsense."""

from pathlib import Path
from typing import Any

import pytest

from satlab.check.samples import Sample
from satlab.check.trace import careful_resume, qlog_figures
from satlab.check.trace.qlog import Event
from satlab.check.trace.test_qlog import captured, here, ngtcp2, sequence

NAME = "recovery:careful_resume_phase_updated"
JUMP: tuple[tuple[float, dict[str, Any]], ...] = (
    (
        91,
        {
            "new_phase": "reconnaissance",
            "restored_data": {"saved_congestion_window": 4_000_000, "saved_rtt": 650},
        },
    ),
    (
        745,
        {
            "old_phase": "reconnaissance",
            "new_phase": "unvalidated",
            "trigger": "cwnd_limited",
            "state_data": {"pipesize": 12_000, "congestion_window": 2_000_000},
        },
    ),
    (
        790,
        {
            "old_phase": "unvalidated",
            "new_phase": "safe_retreat",
            "trigger": "packet_loss",
            "state_data": {},
        },
    ),
)


def with_phases(*phases: tuple[float, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a server's qlog with events, by their times in ms."""
    events = [{"time": time, "name": NAME, "data": data} for time, data in phases]
    return sorted([*ngtcp2(), *events], key=lambda one: float(one["time"]))


def sampled(folder: Path, records: list[dict[str, Any]]) -> Sample:
    server = folder / "server"
    server.mkdir()
    (server / "x.sqlog").write_bytes(sequence(records))
    sample = Sample("a", 1, "ok", "", (2.0,), symptoms=("small initial window",))
    return qlog_figures.add(sample, {"server": server}, 3000, folder, captured(), 0.3, here)


def test_phases_of_a_sender_s_qlog_have_the_client_s_clock_and_words(tmp_path: Path) -> None:
    found = sampled(tmp_path, with_phases(*JUMP))
    assert found.careful_resume is not None
    assert found.sources["careful_resume"] == "qlog of the server"
    phases = found.careful_resume["phases"]
    assert [one["phase"] for one in phases] == ["reconnaissance", "unvalidated", "safe_retreat"]
    assert [one["trigger"] for one in phases] == [None, "cwnd_limited", "packet_loss"]
    assert phases[1]["t_s"] - phases[0]["t_s"] == pytest.approx(0.654) and phases[0]["t_s"] > 0.3
    assert (found.careful_resume["jump_bytes"], phases[1]["pipe_size_bytes"]) == (2_000_000, 12_000)
    # How much of the jump was lost is not in the event.
    assert found.symptoms == (
        "small initial window",
        "careful resume: a jump to 2.00 MB, taken back",
    )
    line = careful_resume.line(found.careful_resume)
    assert line.startswith("Careful Resume: reconnaissance from ") and "safe retreat from" in line
    assert "(packet_loss)" in line


def test_a_sender_that_made_no_jump_says_why(tmp_path: Path) -> None:
    normal = {"old_phase": "reconnaissance", "new_phase": "normal", "trigger": "rtt_not_validated"}
    found = sampled(tmp_path, with_phases(JUMP[0], (745, normal)))
    assert found.symptoms[1:] == ("careful resume: no jump (rtt_not_validated)",)


def test_a_qlog_without_the_event_says_nothing(tmp_path: Path) -> None:
    found = sampled(tmp_path, ngtcp2())
    assert found.careful_resume is None
    assert len(found.symptoms) == 1
    assert careful_resume.line(None) == ""


def test_what_the_programs_report_is_kept(tmp_path: Path) -> None:
    own: careful_resume.Resumed = {
        "jump_bytes": None,
        "lost_bytes": 0,
        "retreated": False,
        "phases": [],
    }
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "x.sqlog").write_bytes(sequence(with_phases(*JUMP)))
    sample = Sample("a", 1, "ok", "", (2.0,), careful_resume=own)
    found = qlog_figures.add(
        sample, {"server": tmp_path / "server"}, 3000, tmp_path, captured(), 0.3, here
    )
    assert found.careful_resume == own and found.symptoms == ()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"new_phase": "x" * 1000},
        {"new_phase": ["unvalidated"]},
        {"new_phase": None, "state_data": 5},
    ],
)
def test_t11_nonsense_in_the_event_is_ignored(data: dict[str, Any]) -> None:
    assert careful_resume.of_events([Event(1.0, careful_resume.EVENT, data)], 0.5) is None


def test_t11_a_hostile_event_leaves_no_text_and_no_endless_list(tmp_path: Path) -> None:
    state = {"congestion_window": -1, "pipesize": "x"}
    hostile = {"new_phase": "unvalidated", "trigger": "<script>", "state_data": state}
    found = sampled(tmp_path, with_phases(*[(91 + n, hostile) for n in range(500)]))
    assert found.careful_resume is not None
    phases = found.careful_resume["phases"]
    assert len(phases) == careful_resume.MAX_PHASES
    assert phases[0]["trigger"] is None
    assert phases[0]["cwnd_bytes"] is None
    assert phases[0]["pipe_size_bytes"] is None
    assert found.symptoms[1:] == ("careful resume: a jump",)


@pytest.mark.parametrize(
    ("resumed", "text"),
    [
        (None, None),
        ({"phases": []}, None),
        (
            {"phases": [{"trigger": "rtt_not_validated"}], "jump_bytes": None},
            "no jump (rtt_not_validated)",
        ),
        ({"phases": [{"trigger": None}], "jump_bytes": None}, "no jump (nothing to gain)"),
        (
            {"phases": [{}], "jump_bytes": 2_030_000, "retreated": False, "lost_bytes": 0},
            "a jump to 2.03 MB",
        ),
        (
            {"phases": [{}], "jump_bytes": 2_030_000, "retreated": True, "lost_bytes": 310_000},
            "a jump to 2.03 MB, taken back, 0.31 MB of it lost",
        ),
    ],
)
def test_the_symptoms_say_what_careful_resume_did(
    resumed: careful_resume.Resumed | None, text: str | None
) -> None:
    expected = () if text is None else (f"careful resume: {text}",)
    assert careful_resume.symptoms(resumed) == expected
