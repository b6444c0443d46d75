# SPDX-License-Identifier: GPL-3.0-or-later
"""A collector of OpenSAND's probes listens to a lab; it is written from the format alone."""

import socket
from itertools import pairwise

import pytest

from tests.net.conftest import Up

pytestmark = pytest.mark.net


def decoded(datagram: bytes) -> tuple[int, str, dict[str, float]]:
    """Read `<epoch ms> <probe> <value> ... entity <name>`."""
    time_ms, *words = datagram.decode("ascii").split(" ")
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    entity = pairs.pop("entity")
    return int(time_ms), entity, {name: float(value) for name, value in pairs.items()}


def heard_from(up: Up, profile: str, count: int) -> list[tuple[int, str, dict[str, float]]]:
    """Bring a lab up with a collector; return so many of its datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(5)
        up(profile=profile, probes=f"127.0.0.1:{collector.getsockname()[1]}")
        return [decoded(collector.recv(65536)) for _ in range(count)]


def test_a_collector_reads_the_probes_of_both_entities(up: Up) -> None:
    """Each sample is a datagram of ST and one of GW, with time, names and values as OpenSAND's."""
    heard = heard_from(up, "geo-acm", 6)
    assert [entity for _, entity, _ in heard] == ["st1", "gw0"] * 3
    times = [time_ms for time_ms, entity, _ in heard if entity == "st1"]
    assert [later - earlier for earlier, later in pairwise(times)] == [100, 100]
    (_, _, st), (_, _, gw) = heard[-2:]
    assert st["spot_0.st.phy.total_cn"] == pytest.approx(17.99, abs=0.01)
    assert st["spot_0.st.phy.minimal_condition"] == 16.05
    assert st["spot_0.st.queue_size.packets.be"] == 0
    assert gw["spot_0.gw.up_forward_modcod.sent_modcod"] == 28
    assert gw["spot_0.gw.standard.queue_size.capacity.be"] == 0
    assert gw["spot_0.gw.phy.drops"] == 0


def test_p382_each_terminal_of_a_profile_is_an_entity(up: Up) -> None:
    heard = heard_from(up, "geo-terminals", 8)
    assert [entity for _, entity, _ in heard] == ["st1", "st4", "st5", "gw0"] * 2
    es_n0_db = [probes["spot_0.st.phy.total_cn"] for _, entity, probes in heard[:3]]
    assert es_n0_db[1] < es_n0_db[0], "ST 4 is in a fade"
    gw = heard[-1][2]
    assert gw["spot_0.gw.global.st_number"] == 3
    assert {name.split(".")[2] for name in gw if ".queue_size." in name} == {"standard", "premium"}
