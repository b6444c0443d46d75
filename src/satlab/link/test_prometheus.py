# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of terminals in Prometheus' text."""

import json
from pathlib import Path
from typing import Any

import pytest

from satlab.common.errors import HostError
from satlab.link import prometheus

FIGURES = {"rate_bps": 3e6, "frames_by_modcod": {}}


def test_p192_each_terminal_has_a_label(tmp_path: Path) -> None:
    of = [
        {"terminal": number, "rate_bps": number * 1e6, "slots_assigned": None} for number in (1, 2)
    ]
    sample = {
        "type": "sample",
        "t_unix_s": 1.0,
        "forward": {**FIGURES, "terminals": of},
        "return": FIGURES,
    }
    text = prometheus.render("x", sample)
    assert 'satlab_link_rate_bps{lab="x",direction="forward"} 3000000.0' in text
    assert (
        'satlab_link_terminal_rate_bps{lab="x",direction="forward",terminal="2"} 2000000.0' in text
    )
    assert "terminal_slots_assigned" not in text
    assert "terminal" not in prometheus.render("x", {**sample, "forward": FIGURES})


@pytest.mark.promise("P20")
def test_p299_each_fifo_has_its_name_as_a_label() -> None:
    fifo = {
        "fifo": "EF",
        "queue_bytes": 7,
        "queue_p99_ms": 1.5,
        "sent_packets": 2,
        "queue_p50_ms": None,
    }
    of = [{"terminal": 2, "queue_p99_ms": 9.5, "fifos": [fifo]}]
    back = {
        **FIGURES,
        "queue_p95_ms": 4.5,
        "slots_requested": 12,
        "fifos": [{**fifo, "fifo": "BE"}],
    }
    sample = {
        "type": "sample",
        "t_unix_s": 1.0,
        "forward": {**FIGURES, "terminals": of},
        "return": back,
    }
    text = prometheus.render("x", sample)
    assert 'satlab_link_queue_p95_ms{lab="x",direction="return"} 4.5' in text
    assert 'satlab_link_slots_requested{lab="x",direction="return"} 12' in text
    assert 'satlab_link_terminal_queue_p99_ms{lab="x",direction="forward",terminal="2"} 9.5' in text
    assert (
        'satlab_link_fifo_queue_p99_ms{lab="x",direction="forward",terminal="2",fifo="EF"} 1.5'
        in text
    )
    assert 'satlab_link_fifo_queue_bytes{lab="x",direction="return",fifo="BE"} 7' in text
    assert "fifo_queue_p50_ms" not in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_p299_a_sample_of_any_length_is_found(tmp_path: Path) -> None:
    waits = [[number, 1] for number in range(4000)]
    fifos = [{"fifo": str(number), "waits_us": waits} for number in range(30)]
    line = json.dumps({"type": "sample", "t_unix_s": 1.0, "forward": {"fifos": fifos}})
    assert len(line) > prometheus.TAIL_BYTES[1]
    file = tmp_path / "link.jsonl"
    file.write_text((line + "\n") * 2 + line[:1000])
    assert len(prometheus.last_sample(file)["forward"]["fifos"]) == 30


SAMPLE = {"type": "sample", "t_unix_s": 5.5, "forward": None}


def test_exposition_names_lab_and_direction(tmp_path: Path) -> None:
    """The last whole sample counts, whatever comes after it."""
    figures: dict[str, Any] = {
        **dict.fromkeys(prometheus.HELP, 1),
        "rate_bps": 2e6,
        "frame_fill_ratio": None,
    }
    figures["frames_by_modcod"] = {"QPSK 1/2": 7}
    file = tmp_path / "link.jsonl"
    change = {"type": "change", "set": {}}
    rows = [{"type": "header"}, SAMPLE | {"t_unix_s": 1.0}, SAMPLE | {"return": figures}, change]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"type": "sam')
    text = prometheus.render("lab", prometheus.last_sample(file))
    assert 'satlab_link_sample_time_seconds{lab="lab"} 5.5\n' in text
    assert (
        '# TYPE satlab_link_rate_bps gauge\nsatlab_link_rate_bps{lab="lab",direction="return"}'
        " 2000000.0\n" in text
    )
    assert 'satlab_link_modcod_frames{lab="lab",direction="return",modcod="QPSK 1/2"} 7\n' in text
    assert "frame_fill" not in text
    assert "forward" not in text


def test_absent_samples_are_reported(tmp_path: Path) -> None:
    """A missing file, or one without samples, is reported."""
    file = tmp_path / "link.jsonl"
    file.write_text('{"type": "header"}\n')
    for path in (file, tmp_path / "absent"):
        with pytest.raises(HostError):
            prometheus.last_sample(path)
