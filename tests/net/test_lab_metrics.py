# SPDX-License-Identifier: GPL-3.0-or-later
"""The link metrics of a lab that stays up: bounded, and readable at any time."""

import contextlib
import time
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.topology import load
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link import prometheus
from satlab.link.config import LinkRequest

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("satlink")]
MOST_BYTES = 1 << 20
NEW_FILE_BYTES = 20_000
"""A new file with its first sample is there before the oldest one goes."""


def sizes(folder: Path, name: str) -> dict[int, int]:
    """Return the sizes of a metrics file and of those next to it, by inode."""
    found: dict[int, int] = {}
    for file in folder.glob(f"{name}*"):
        with contextlib.suppress(FileNotFoundError):
            about = file.stat()
            found[about.st_ino] = about.st_size
    return found


def test_link_metrics_of_a_lab_that_stays_up_are_bounded(
    lab_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 samples a second in place of 10, and 1 MiB in place of 64: seconds take the place of
    hours.
    """
    monkeypatch.setattr(lab, "METRICS_MAX_BYTES", MOST_BYTES)
    request = LinkRequest(profile=paths.PROFILES / "leo", metrics_interval_ms=10, lan_loss=0.001)
    the_lab = Lab.up(lab_id, load(), request)
    assert the_lab.config.metrics_max_bytes == MOST_BYTES
    assert the_lab.lan is not None
    folder, end = Path(the_lab.config.metrics).parent, time.monotonic() + 60
    written: dict[str, dict[int, int]] = {"link.jsonl": {}, "lan.jsonl": {}}
    while not all(sum(each.values()) > 2 * MOST_BYTES for each in written.values()):
        assert time.monotonic() < end, written
        time.sleep(0.1)
        for name, each in written.items():
            now = sizes(folder, name)
            assert sum(now.values()) <= MOST_BYTES + NEW_FILE_BYTES
            each.update(now)
            assert prometheus.last_sample(folder / name)["type"] == "sample"
    the_lab.down()
