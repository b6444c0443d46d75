# SPDX-License-Identifier: GPL-3.0-or-later
"""Time from a bare machine to the first figure: what runs, what is timed, and what the medians
mean.
"""

from pathlib import Path

import pytest

from satlab.common import paths
from tools import first_figure
from tools.first_figure import DEMO, INSTALL, Round


def test_p351_installation_and_demo_are_timed_apart() -> None:
    now, ran = [0.0], []

    def run(command: str) -> int:
        ran.append(command)
        now[0] += 30.0 if command == INSTALL else 70.0
        return 0

    found = first_figure.measure(run, lambda: now[0])
    assert (found, found.total_s, ran) == (Round(30.0, 70.0, 0), 100.0, [INSTALL, DEMO])
    failed = first_figure.measure(lambda _: 100, lambda: now[0])
    assert (failed.demo_s, failed.is_measured) == (None, False), (
        "without the package there is no demo"
    )


@pytest.mark.parametrize(
    ("demos", "status"),
    [
        ([(70.0, 0), (80.0, 0), (200.0, 0)], 0),
        ([(70.0, 0), (80.0, 4), (75.0, 0)], 4),
        ([(95.0, 0), (95.0, 0), (70.0, 0)], 1),
        ([(70.0, 0), (70.0, 1), (70.0, 0)], 1),
    ],
    ids=["in time", "out of calibration", "too late", "failed"],
)
def test_p351_the_median_counts_and_a_round_that_failed_fails_all(
    demos: list[tuple[float, int]], status: int
) -> None:
    found = first_figure.summary([Round(20.0, demo_s, code) for demo_s, code in demos])
    assert found["status"] == status
    assert (found["median"] is None) == (1 in [code for _, code in demos])


def test_a_command_runs_in_the_root_alone() -> None:
    argv = first_figure.inside(Path("/srv/a root"), "echo 'x y'")
    assert argv[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert "mount --rbind /proc '/srv/a root/proc' && " in argv[-1]
    assert "cd '/srv/a root' && pivot_root . . && umount --lazy . && exec /bin/sh -c " in argv[-1]
    assert "chroot" not in argv[-1], "there the kernel makes no user namespace"


def test_readme_has_the_commands_that_are_timed() -> None:
    readme = (paths.ROOT / "README.md").read_text()
    assert "apt-get install --no-install-recommends ./satlab_*.deb && satlab demo" in readme
    assert "--no-install-recommends" in first_figure.INSTALL
