# SPDX-License-Identifier: GPL-3.0-or-later
"""satperf over the emulated link: the large link of draft-kuhn-quic-4-sat-07, and 0-RTT where it
saves 580 ms.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benches import quic_bench
from benches.quic_bench import Case, Transfer
from satlab.common import paths, topology
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest

pytestmark = pytest.mark.net


@pytest.fixture(autouse=True)
def _needs_satperf(satlink: Path) -> None:
    if not paths.SATPERF.exists():
        pytest.skip(f"{paths.SATPERF} is not built")


@pytest.mark.parametrize(
    ("stack", "congestion_control", "loss"),
    [
        ("quinn", "cubic", 0.0),
        ("quiche", "cubic", 0.0),
        ("quiche", "bbr", 0.0),
        ("quiche", "bbr", 0.01),
    ],
)
@pytest.mark.promise("P84")
def test_100_mb_cross_the_large_link_unharmed(
    stack: str, congestion_control: str, loss: float, tmp_path: Path
) -> None:
    leg = ["--stack", stack, "--congestion-control", congestion_control]
    with (
        quic_bench.large(tmp_path, loss) as up,
        quic_bench.server(up, "server", ["--once", *leg], tmp_path) as connect,
    ):
        done = connect("client", leg, ["--bytes", "100000000"], 400)
    assert done.status == 0, done.said
    summary = done.summary()
    assert summary is not None
    assert (summary["bytes"], summary["data_equal"], summary["reason"]) == (
        100_000_000,
        True,
        "done",
    )


@pytest.mark.promise("P69")
def test_p381_with_losses_bbr3_between_the_proxies_outruns_cubic() -> None:
    cases = [
        Case("quinn", "cubic", 0.01, pep="quic", between=control) for control in ("bbr3", "cubic")
    ]
    with ThreadPoolExecutor(2) as pool:  # at once: the host is as busy for both
        transfers = list(pool.map(lambda case: quic_bench.transfer(case, 5_000_000, 300), cases))
    rates = []
    for done in transfers:
        summary = done.summary()
        assert done.status == 0 and summary is not None, done.said
        assert (summary["bytes"], summary["data_equal"]) == (5_000_000, True)
        rates.append(summary["goodput_bps"])
    assert rates[0] > 3 * rates[1], rates


def test_a_session_saves_a_round_trip(lab_id: str, satlink: Path, tmp_path: Path) -> None:
    up = Lab.up(
        lab_id, topology.load(), LinkRequest(profile=paths.PROFILES / "geo"), satlink=satlink
    )
    client = ["--bytes", "10000", "--zero-rtt", str(tmp_path / "session")]
    first = [0.0, 0.0]
    with quic_bench.server(up, "server", ["--stack", "quiche"], tmp_path) as connect:
        for run in range(2):
            done: Transfer = connect("client", ["--stack", "quiche"], client, 60)
            summary = done.summary()
            assert summary is not None, done.said
            first[run] = summary["time_to_first_byte_ms"]
            assert summary["zero_rtt"] == ("not_asked", "accepted")[run]
    up.down()
    assert 450 < first[0] - first[1] < 750, first
