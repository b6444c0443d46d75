# SPDX-License-Identifier: GPL-3.0-or-later
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Linux 6.1; the columns are those of proc(5).
STAT = """\
cpu  {user} 100 2000 8000 50 0 30 20 0 0
cpu0 1 1 1 1 1 1 1 1 0 0
ctxt {switches}
"""
NET_DEV = """\
Inter-|   Receive                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 99 9 0 0 0 0 0 0 99 9 0 0 0 0 0 0
  lan0:{rx} 10 0 1 0 0 0 0 5000 20 0 2 0 0 0 0
"""
Load = Callable[[str], ModuleType]


def proc(folder: Path, user: int, switches: int, rx: int) -> Path:
    (folder / "net").mkdir(exist_ok=True)
    (folder / "stat").write_text(STAT.format(user=user, switches=switches))
    (folder / "net" / "dev").write_text(NET_DEV.format(rx=rx))
    return folder


def test_figures_are_those_of_the_interval(module: Load, tmp_path: Path) -> None:
    job = module("satlab_system_load")
    before = job.read(proc(tmp_path, 1000, 500, 1_000_000), 10.0)
    after = job.read(proc(tmp_path, 1200, 900, 1_500_000), 12.0)
    figures = job.load(before, after)
    assert figures["cpu_user_ratio"] == 1.0
    assert figures["context_switches_per_s"] == 200
    assert sum(
        value for name, value in figures.items() if name.startswith("cpu_")
    ) == pytest.approx(1)
    rates = job.traffic(before, after)
    assert list(rates) == ["lan0"]
    assert (rates["lan0"]["rx_bps"], rates["lan0"]["tx_bps"], rates["lan0"]["dropped_packets"]) == (
        2e6,
        0,
        0,
    )


def test_shares_are_distinguished(module: Load, tmp_path: Path) -> None:
    job = module("satlab_system_load")
    zero = job.Sample(0.0, dict.fromkeys(job._CPU, 0), 0, {})
    spent = {
        "user": 30,
        "nice": 10,
        "system": 15,
        "irq": 5,
        "softirq": 20,
        "steal": 4,
        "idle": 10,
        "iowait": 6,
    }
    figures = job.load(zero, job.Sample(1.0, spent, 0, {}))
    assert [
        round(figures[f"cpu_{name}_ratio"], 3)
        for name in ("user", "system", "softirq", "steal", "idle")
    ] == [0.4, 0.2, 0.2, 0.04, 0.16]


def test_an_interface_made_anew_has_no_figure(module: Load, tmp_path: Path) -> None:
    job = module("satlab_system_load")
    before = job.read(proc(tmp_path, 1, 1, 1_000_000), 10.0)
    after = job.read(proc(tmp_path, 2, 2, 10), 11.0)
    assert job.traffic(before, after) == {}
    assert job.load(before, before) == {}


def test_it_samples_until_it_is_stopped(trial: Callable[[str], Any]) -> None:
    job = trial("satlab_system_load")
    process = job.start("-i", "0.1")
    deadline = time.monotonic() + 120
    while (
        sum("load_1min" in record for record in job.records()) < 3 and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    process.terminate()
    assert process.wait(120) == 0, process.stdout.read()
    whole = [record for record in job.records() if "load_1min" in record]
    assert len(whole) >= 3
    assert all(
        0 <= record["cpu_user_ratio"] <= 1 and record["memory_available_bytes"] > 0
        for record in whole
    )
    times = [record["_metadata"]["time"] for record in whole]
    assert 90 <= (times[-1] - times[0]) / (len(times) - 1) < 1000
