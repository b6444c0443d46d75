# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of terminals in Prometheus' text."""

import json
from pathlib import Path

from satlab.link import prometheus

FIGURES = {"rate_bps": 3e6, "frames_by_modcod": {}}


def test_p228_each_terminal_has_a_label(tmp_path: Path) -> None:
    of = [{"terminal": number, "rate_bps": number * 1e6, "slots_assigned": None} for number in (1, 2)]
    sample = {"type": "sample", "t_unix_s": 1.0, "forward": {**FIGURES, "terminals": of}, "return": FIGURES}
    text = prometheus.render("x", sample)
    assert 'satlab_link_rate_bps{lab="x",direction="forward"} 3000000.0' in text
    assert 'satlab_link_terminal_rate_bps{lab="x",direction="forward",terminal="2"} 2000000.0' in text
    assert "terminal_slots_assigned" not in text
    assert "terminal" not in prometheus.render("x", {**sample, "forward": FIGURES})


def test_the_sample_of_64_terminals_is_found(tmp_path: Path) -> None:
    of = [{"terminal": number, **dict.fromkeys(prometheus.OF_TERMINAL, 123456.789)} for number in range(1, 65)]
    line = json.dumps({"type": "sample", "t_unix_s": 1.0, "forward": {"terminals": of}, "return": {"terminals": of}})
    file = tmp_path / "link.jsonl"
    file.write_text((line + "\n") * 3)
    assert len(prometheus.last_sample(file)["forward"]["terminals"]) == 64
