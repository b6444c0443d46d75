# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs with several terminals: each client has its own way over the shared link, and one does not
take another's.
"""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collect import summaries
from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.processes import wait
from satlab.common.terminals import clients
from satlab.flows import udp_traffic
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link import control, prometheus
from satlab.link.config import LinkSet
from satlab.link.options import LinkOptions
from satlab.run.metrics_file import MetricsFile
from tests.net import lab_up_process
from tests.net.conftest import AsPlanned, Up, measured_run, rtts_ms

pytestmark = pytest.mark.net

SERVER = "198.18.4.2"
LEO = paths.PROFILES / "leo"


@contextlib.contextmanager
def flood(the_lab: Lab, client: str) -> Iterator[None]:
    """Send a client three times what the forward link carries."""
    program = [sys.executable, udp_traffic.__file__, "send"]
    to = the_lab.topology.nodes[client].address
    argv = [*the_lab.enter_argv("server"), *program, to, "9", "1200", "60"]
    with subprocess.Popen(argv) as sender:
        try:
            yield
        finally:
            sender.kill()


def fifos_of(the_lab: Lab, direction: str, terminal: int) -> dict[str, dict[str, Any]]:
    """Return packets sent and dropped by each FIFO of a terminal, added up, and the largest 99th
    percentile, ms.
    """
    found: dict[str, dict[str, Any]] = {}
    for sample in MetricsFile(Path(the_lab.config.metrics)).samples():
        for one in sample[direction]["terminals"][terminal - 1].get("fifos", ()):
            own = found.setdefault(
                one["fifo"], {"sent_packets": 0, "dropped_packets": 0, "queue_p99_ms": 0.0}
            )
            for name in ("sent_packets", "dropped_packets"):
                own[name] += one[name]
            own["queue_p99_ms"] = max(own["queue_p99_ms"], one["queue_p99_ms"] or 0.0)
    return found


def terminals_of(the_lab: Lab, direction: str) -> dict[int, dict[str, Any]]:
    """Return the counters of each terminal, added up over all samples."""
    sums: dict[int, dict[str, Any]] = {}
    for sample in MetricsFile(Path(the_lab.config.metrics)).samples():
        for one in sample[direction]["terminals"]:
            own = sums.setdefault(one["terminal"], {})
            for name in ("in_packets", "out_packets", "dropped_packets", "lost_packets"):
                own[name] = own.get(name, 0) + one[name]
    return sums


@pytest.mark.promise("P18")
def test_p190_each_client_has_its_own_way_and_a_change_of_one_is_not_one_of_the_others(
    up: Up,
) -> None:
    the_lab = up(profile="leo", terminals=3)
    path, nodes = Path(the_lab.config.control or ""), the_lab.topology.nodes
    assert clients(the_lab.topology) == ("client", "client-2", "client-3")
    low = the_lab.plan.rtt_ms.configured
    for client in clients(the_lab.topology):
        found = rtts_ms(the_lab, client, SERVER)
        assert len(found) == 5, client
        assert low <= min(found) < low + 40, client
    # A further ST itself answers, on the satellite link, too.
    own = nodes["st-2"].interfaces["sat0"].address
    assert len(rtts_ms(the_lab, "server", str(own))) == 5
    # From one LAN to another: over the gateway, twice the satellite's delay each way, and no
    # terrestrial segment.
    found = rtts_ms(the_lab, "client-2", nodes["client-3"].address)
    assert len(found) == 5
    assert min(found) >= 4 * the_lab.plan.forward.one_way_delay_ms
    control.change(path, LinkSet(direction="forward", terminal=2, attenuation_db=40.0))
    assert wait(lambda: not rtts_ms(the_lab, "client-2", SERVER, count=1, wait_s=1), 30)
    assert len(rtts_ms(the_lab, "client-3", SERVER)) == 5
    assert control.state(path)["directions"]["forward"]["terminals"] == {
        "2": {"attenuation_db": 40.0}
    }
    for bad in ({"terminal": 4, "attenuation_db": 1.0}, {"jitter": {"uniform_ms": 1}}):
        with pytest.raises(ConfigError):
            control.change(path, LinkSet.model_validate({"direction": "forward", **bad}))
    assert wait(lambda: terminals_of(the_lab, "forward")[2]["lost_packets"] > 0, 30)
    text = prometheus.render("x", prometheus.last_sample(Path(the_lab.config.metrics)))
    assert 'satlab_link_terminal_rate_bps{lab="x",direction="forward",terminal="3"}' in text


def test_t44_a_flood_to_one_terminal_drops_and_delays_its_own_packets_alone(up: Up) -> None:
    the_lab = up(profile="leo", terminals=3)
    quiet = min(rtts_ms(the_lab, "client-3", SERVER))
    with flood(the_lab, "client-2"):
        found = rtts_ms(the_lab, "client-3", SERVER, count=15, wait_s=1)
    assert len(found) == 15
    # A frame of the flood may be on its way, and the host is loaded; a common queue would add 150
    # ms and losses.
    assert sorted(found)[7] < quiet + 40
    assert wait(lambda: terminals_of(the_lab, "forward")[2]["dropped_packets"] > 1000, 30)
    counted = terminals_of(the_lab, "forward")
    assert counted[1]["dropped_packets"] == counted[3]["dropped_packets"] == 0


@pytest.fixture
def of_profile(up: Up) -> Lab:
    """A lab with the terminals of geo-terminals: ST 1, ST 4 in a fade, ST 5 of another category."""
    return up(profile="geo-terminals")


def test_p196_terminals_of_a_profile_have_a_client_each_and_their_own_modcod(
    of_profile: Lab,
) -> None:
    plan = of_profile.plan
    assert [one.id for one in plan.terminals] == [1, 4, 5]
    for client in clients(of_profile.topology):
        found = rtts_ms(of_profile, client, SERVER)
        assert len(found) == 5, client
        assert min(found) >= plan.rtt_ms.configured, client
    *_, sample = MetricsFile(Path(of_profile.config.metrics)).samples()
    modcods = {one["terminal"]: one["modcod_id"] for one in sample["forward"]["terminals"]}
    waveforms = {one["terminal"]: one["modcod_id"] for one in sample["return"]["terminals"]}
    # Es/N0 of 18.0, 10.6 and 18.0 dB, with a margin of 1 dB on the forward link.
    assert (modcods, waveforms) == ({1: 28, 2: 18, 3: 28}, {1: 12, 2: 9, 3: 12})


def test_p199_marked_packets_pass_a_flood_in_the_gateway(of_profile: Lab) -> None:
    path = Path(of_profile.config.control or "")
    control.change(path, LinkSet(direction="forward", terminal=1, modcod=1))
    to = of_profile.topology.nodes["client"].address
    with flood(of_profile, "client"):
        assert wait(
            lambda: terminals_of(of_profile, "forward").get(1, {}).get("dropped_packets", 0) > 100,
            8,
        )
        text = prometheus.render("x", prometheus.last_sample(Path(of_profile.config.metrics)))
        # EF has a FIFO of its own in front of that of the flood, which holds seconds.
        marked, plain = (
            rtts_ms(of_profile, "server", to, *options, count=3, wait_s=1)
            for options in (("-Q", "184"), ("-W", "5"))
        )
        fifos = fifos_of(of_profile, "forward", 1)
    # Both FIFOs of the gateway had packets: what waits in the flood's has times of its own.
    assert fifos["EF"]["sent_packets"] >= 3
    assert fifos["BE"]["dropped_packets"] > 100
    assert fifos["EF"]["queue_p99_ms"] < fifos["BE"]["queue_p99_ms"]
    assert ',direction="forward",terminal="1",fifo="BE"} ' in text
    assert len(marked) == 3
    assert max(marked) < of_profile.plan.rtt_ms.configured + 400
    assert not plain or min(plain) > max(marked) + 300


def test_up_killed_among_the_terminals_leaves_what_down_removes(lab_id: str, satlink: Path) -> None:
    child = lab_up_process.start(lab_id, satlink, LEO, "ip_commands", "addresses", 10, terminals=3)
    assert child.wait(60) == -signal.SIGKILL
    assert lab.status(lab_id).phase == "broken"
    assert lab.down(lab_id) is True


@pytest.mark.long
@pytest.mark.promise("P19")
def test_p193_fairness_has_an_index_and_the_figures_of_each_terminal(
    tmp_path: Path, as_planned: AsPlanned
) -> None:
    link = LinkOptions(profile="leo", terminals=3)
    result = measured_run(as_planned, "fairness_udp", link, duration="4")
    rows = list(summaries(result.records))
    index = {
        row["labels"]["direction"]: row["value"]
        for row in rows
        if row["metric"] == "fairness_jain_ratio"
    }
    assert index.keys() == {"download", "upload"}
    assert all(value is not None and value > 0.95 for value in index.values()), json.dumps(index)
    share = {
        r["labels"]["direction"]: r["value"] for r in rows if r["metric"] == "goodput_share_bps"
    }
    goodputs = [
        r["value"]
        for r in rows
        if r["metric"] == "goodput_bps" and r["labels"]["direction"] == "download"
    ]
    assert len(goodputs) == 3
    assert sum(goodputs) == pytest.approx(3 * share["download"], rel=0.1)
    numbers = {row["labels"]["terminal"] for row in rows if row["metric"] == "terminal_out_bytes"}
    assert numbers == {"1", "2", "3"}
    times = {
        (r["labels"]["direction"], r["labels"]["terminal"])
        for r in rows
        if r["metric"] == "terminal_queue_ms"
    }
    assert times == {
        (direction, number) for direction in ("forward", "return") for number in numbers
    }
