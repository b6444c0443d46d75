# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of terminals in Prometheus' text."""

import json
from pathlib import Path

import pytest

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


def test_the_sample_of_64_terminals_is_found(tmp_path: Path) -> None:
    of = [
        {"terminal": number, **dict.fromkeys(prometheus.OF_TERMINAL, 123456.789)}
        for number in range(1, 65)
    ]
    line = json.dumps(
        {
            "type": "sample",
            "t_unix_s": 1.0,
            "forward": {"terminals": of},
            "return": {"terminals": of},
        }
    )
    file = tmp_path / "link.jsonl"
    file.write_text((line + "\n") * 3)
    assert len(prometheus.last_sample(file)["forward"]["terminals"]) == 64
