# SPDX-License-Identifier: GPL-3.0-or-later
"""The forward link of a lab adapts its MODCOD to attenuation while traffic crosses it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from satlab.common.processes import wait
from satlab.lab.lab import Lab
from satlab.link import control
from satlab.link.config import LinkSet, Timeline, TimelineStep
from satlab.run import link_probe
from satlab.run.link_probe import ProbePath
from satlab.run.metrics_file import MetricsFile

pytestmark = [pytest.mark.net, pytest.mark.timing]

CLIENT, SERVER = "198.18.1.2", "198.18.4.2"
RAMP_S, RAMP_DB = 6.0, 3.0


def ramp() -> Timeline:
    """0.5 dB/s, which the profile's margin of 1 dB covers at a loop of 1.5 s, and 3 dB from then
    on.
    """
    steps = [
        {
            "at_s": 1 + RAMP_S * i / 24,
            "set": {"direction": "forward", "attenuation_db": RAMP_DB * i / 24},
        }
        for i in range(1, 25)
    ]
    return Timeline(starts="on-request", steps=tuple(map(TimelineStep.model_validate, steps)))


@contextmanager
def loaded(the_lab: Lab, offered_bps: int, seconds: float) -> Iterator[MetricsFile]:
    """Send UDP to the client for so long, from the moment on at which it arrives."""
    metrics = MetricsFile(Path(the_lab.config.metrics))
    path = ProbePath("client", CLIENT, "server", SERVER)
    arguments = (the_lab.enter_argv, path, offered_bps, seconds)
    flow = threading.Thread(target=link_probe.measure, args=arguments)
    flow.start()
    try:
        assert wait(
            lambda: any(s["forward"]["rate_bps"] > offered_bps / 2 for s in metrics.samples()[-5:]),
            15,
        )
        yield metrics
    finally:
        flow.join()


def since(metrics: MetricsFile, start: float, stop: float) -> list[dict[str, Any]]:
    return [s["forward"] for s in metrics.samples() if start <= s["t_unix_s"] <= stop]


def test_a_ramp_under_saturated_udp_moves_the_rate_without_lost_frames(
    up_as_asked: Callable[..., Lab],
) -> None:
    """17.99 dB is 32APSK 9/10 with a margin of 1 dB; 14.99 dB is 32APSK 4/5, with 89 % of the rate."""
    the_lab = up_as_asked("geo-acm", timeline=ramp())
    assert the_lab.plan.forward.modcod == "32APSK 9/10"
    with loaded(the_lab, 50_000_000, 13) as metrics:
        began = time.time()
        control.start_timeline(Path(the_lab.config.control or ""))
        assert wait(lambda: metrics.samples()[-1]["t_unix_s"] > began + 10.5, 15)
    during = since(metrics, began, began + 10.5)
    assert sum(s["lost_frames"] for s in during) == 0
    assert all(s["es_n0_db"] >= s["threshold_db"] for s in during)
    ids = list(dict.fromkeys(s["modcod_id"] for s in during))
    assert ids == sorted(ids, reverse=True)
    assert (ids[0], ids[-1]) == (28, 25)
    # Of 10 Mbaud, less the headers of GSE; the emulator's own rate is exact, a busy host's
    # sender is not.
    for efficiency, seconds in (
        (4.453027, since(metrics, began, began + 1)),
        (3.951571, during[-15:]),
    ):
        assert fmean(s["rate_bps"] for s in seconds) == pytest.approx(
            10e6 * efficiency * 0.99, rel=0.05
        )


def test_a_sudden_fade_costs_frames_until_the_loop_has_followed(
    up_as_asked: Callable[..., Lab],
) -> None:
    """The control socket takes 10 dB off at once: frames are lost for a loop's time, then none."""
    the_lab = up_as_asked("geo-acm")
    path = Path(the_lab.config.control or "")
    with loaded(the_lab, 2_000_000, 6) as metrics:
        began = time.time()
        control.change(path, LinkSet.model_validate({"direction": "forward", "attenuation_db": 10}))
        assert wait(lambda: metrics.samples()[-1]["t_unix_s"] > began + 4, 10)
    assert sum(s["lost_frames"] for s in since(metrics, began, began + 2)) > 0
    assert sum(s["lost_frames"] for s in since(metrics, began + 2, began + 4)) == 0
    assert metrics.samples()[-1]["forward"]["modcod_id"] == 13
    assert control.state(path)["directions"]["forward"]["attenuation_db"] == 10
