# SPDX-License-Identifier: GPL-3.0-or-later
"""What a link carries over time."""

from satlab.link import modcods
from satlab.report import capacity


def test_what_is_carried_follows_the_modcod_and_its_mean_the_time() -> None:
    forward = {"rate_bps": 2e6, "tcp_goodput_bps": 1e6, "modcod_id": 4}
    one = (modcods.forward_rate_bps(forward, 1) or 0) / 2
    assert capacity.over_time([(-1, 4), (0, 4), (5, 4)], forward) == [(0, 1e6)]
    assert capacity.over_time([(-1, 1), (0, 4), (2, 1), (3, 1), (4, 4)], forward) == [
        (0, 1e6),
        (2, one),
        (4, 1e6),
    ]
    assert capacity.over_time([(0, 4), (1, 99)], forward) == []
    assert capacity.mean_bps([(0, 1e6), (2, one)], [0, 1, 2, 3]) == (1e6 + one) / 2
    assert capacity.mean_bps([(0, 1e6)], []) is capacity.mean_bps([], [1]) is None
