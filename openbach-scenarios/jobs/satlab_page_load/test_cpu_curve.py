# SPDX-License-Identifier: GPL-3.0-or-later
import subprocess
import sys
from itertools import pairwise

import pytest

from tests import job_programs

cpu_curve = job_programs.load("satlab_page_load").sys.modules["cpu_curve"]
BURN = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
NESTED = (
    f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {BURN!r}]).returncode)"
)


def curve_of_a_burning_grandchild() -> list[tuple[float, float, float]]:
    """Return the curve while a process that starts with it uses 0.5 s of CPU time."""
    curve = cpu_curve.CpuCurve()
    with curve:
        child = subprocess.Popen(
            [sys.executable, "-c", NESTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout
        child.stdout.readline()
    child.communicate(b"\n")
    assert child.returncode == 0
    return list(curve.samples)


def seconds(samples: list[tuple[float, float, float]], place: int) -> float:
    ends = [0.0, *(sample[0] for sample in samples)]
    lengths = [(b - a) / 1000 for a, b in pairwise(ends)]
    return sum(s[place] * length for s, length in zip(samples, lengths, strict=True))


def test_cores_of_processes_below_this_one_are_counted_and_of_others_are_the_host_s() -> None:
    samples = curve_of_a_burning_grandchild()
    assert [a[0] < b[0] for a, b in pairwise(samples)] == [True] * (len(samples) - 1)
    assert 0.4 < seconds(samples, 1) < 1, "it burns 0.5 s, and starts"
    assert seconds(samples, 2) > 0.3, "the host counts in ticks"
    with (idle := cpu_curve.CpuCurve()):
        sum(range(10_000_000))  # this process is the job, not the browser
    assert all(own == 0 for _, own, _ in idle.samples)


def test_a_step_counts_by_its_length() -> None:
    steps = cpu_curve.Sample(300, 1, 2), cpu_curve.Sample(600, 0, 2)
    assert cpu_curve.joined(200, steps) == (600, 0.25, 2)


def test_a_long_curve_has_longer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_curve, "MOST", 4)
    samples = curve_of_a_burning_grandchild()
    assert len(samples) < 4, "at 100 ms it would be five at least"
    assert samples[-1][0] > 450, "the whole time is in it"
    assert 0.3 < seconds(samples, 1) < 1
