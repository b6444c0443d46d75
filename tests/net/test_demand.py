# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots on demand through a real lab: what an idle return link costs, what others take of it, and
acknowledgements.
"""

import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from benches import quic_bench
from satlab.common import paths
from satlab.common.paths import PROFILES
from satlab.common.processes import wait
from satlab.common.topology import load
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest, OtherLoad
from tests import json_lines
from tests.net.conftest import rtts_ms

pytestmark = pytest.mark.net

TOPOLOGY = load()
SERVER = "198.18.4.2"
BUSY_HOST_MS = 10.0
SUPERFRAME_MS = 26.5
IDLE_S = 2.7
"""Between two echoes: request period, loop and the life of a request are over."""
ECHOES = 6
DOWNLOAD_S = 20
STEADY_SAMPLES = 60
"""Of 100 ms each, at the end of a download: slow start is over."""
BURST_BYTES = 194
"""Of waveform 12."""
RBDC = ("<rbdc_enabled>true</rbdc_enabled>", "<rbdc_enabled>false</rbdc_enabled>")
VBDC = ("<vbdc_enabled>true</vbdc_enabled>", "<vbdc_enabled>false</vbdc_enabled>")
KINDS = {
    "CRA": [RBDC, VBDC, ("<cra>256<", "<cra>50<")],
    "RBDC": [VBDC, ("DAMA_VBDC", "DAMA_RBDC"), ("<cra>256<", "<cra>0<")],
    "VBDC": [RBDC, ("DAMA_RBDC", "DAMA_VBDC"), ("<cra>256<", "<cra>0<")],
}


class Acknowledged(NamedTuple):
    """The return link under a download; all but the goodput per superframe."""

    goodput_bps: float
    in_packets: float
    in_bytes: float
    frames: float
    slots_assigned: float
    slots_free: float


def profile(tmp_path: Path, edits: list[tuple[str, str]]) -> Path:
    """A copy of geo-dama whose terminal's profile is edited; requests live 23 superframes."""
    folder = tmp_path / "profile"
    shutil.copytree(PROFILES / "geo-dama", folder)
    file = folder / "profile_st.xml"
    text = file.read_text()
    for old, new in [("<duration>60<", "<duration>23<"), *edits]:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return folder


def samples(the_lab: Lab) -> list[dict[str, dict[str, int]]]:
    return json_lines.read(Path(the_lab.config.metrics), "sample")


@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_on_an_idle_return_link_takes_what_the_plan_says(
    lab_id: str, satlink: Path, tmp_path: Path, kind: str
) -> None:
    the_lab = Lab.up(
        lab_id, TOPOLOGY, LinkRequest(profile=profile(tmp_path, KINDS[kind])), satlink=satlink
    )
    rtts = rtts_ms(the_lab, "client", SERVER, count=ECHOES, every_s=IDLE_S)
    slots = [sample["return"] for sample in samples(the_lab)]
    the_lab.down()
    plan = the_lab.plan
    print(
        f"{kind}: RTT {min(rtts):.0f} / {statistics.mean(rtts):.0f} / {max(rtts):.0f} ms, plan"
        f" {plan.rtt_ms}"
    )
    assert len(rtts) == ECHOES
    assert plan.rtt_ms.min - 1 <= min(rtts)
    assert statistics.median(rtts) <= plan.rtt_ms.max + BUSY_HOST_MS
    assert max(rtts) <= plan.rtt_ms.max + 10 * BUSY_HOST_MS  # one echo may meet a pause of the host
    assert plan.return_.demand is not None
    assert (
        sum(one["slots_assigned"] for one in slots) >= sum(one["frames"] for one in slots) >= ECHOES
    )
    if kind != "CRA":
        assert min(rtts) > 750
        assert sum(one["requests"] for one in slots) >= ECHOES


def test_others_leave_fewer_slots_free(lab_id: str, satlink: Path, tmp_path: Path) -> None:
    """Another terminal that starts to send takes slots of the carrier that nobody had before."""
    load = OtherLoad(terminal=4, return_kbps=1500, from_s=3.0)
    request = LinkRequest(profile=profile(tmp_path, []), others=(load,))
    the_lab = Lab.up(lab_id, TOPOLOGY, request, satlink=satlink)
    wait(lambda: len(samples(the_lab)) >= 80, 20)
    seen = samples(the_lab)
    the_lab.down()
    free = [
        sample["return"]["slots_free"] / (sample["return"]["superframes"] or 1) for sample in seen
    ]
    before, after = statistics.mean(free[10:25]), statistics.mean(free[-20:])
    print(f"free slots per superframe: {before:.1f}, then {after:.1f}")
    # The constant rates are 5 and 3 bursts; 1500 kbit/s are 25.6 bursts, those above 3 granted once
    # a second.
    assert abs(before - (791 - 5 - 3)) < 2
    assert 18 < before - after < 28


def steady(the_lab: Lab, folder: Path, ask: list[str]) -> Acknowledged:
    """Download over QUIC with the ACK frequency that the server asks for; look at the last seconds
    of it.
    """
    folder.mkdir()
    sender = ["--initial-window", "600", *ask]
    with quic_bench.server(the_lab, "server", ["--once", *sender], folder) as connect:
        done = connect("client", [], ["--duration", str(DOWNLOAD_S)], 60)
    summary = done.summary()
    assert summary is not None, done.said
    seen = [sample["return"] for sample in samples(the_lab)[-STEADY_SAMPLES - 5 : -5]]
    total = {
        name: sum(sample[name] for sample in seen)
        for name in ("superframes", *Acknowledged._fields[1:])
    }
    assert total["superframes"]
    each = {name: total[name] / total["superframes"] for name in Acknowledged._fields[1:]}
    return Acknowledged(goodput_bps=summary["goodput_bps"], **each)


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["RBDC", "VBDC"])
def test_fewer_acknowledgements_leave_more_slots_free(
    lab_id: str, satlink: Path, tmp_path: Path, kind: str
) -> None:
    """A download acknowledged less often takes as many bursts less as those acknowledgements
    filled.
    """
    if not paths.SATPERF.exists():
        pytest.skip(f"{paths.SATPERF} is not built")
    request = LinkRequest(profile=profile(tmp_path, KINDS[kind]))
    labs = [Lab.up(name, TOPOLOGY, request, satlink=satlink) for name in (lab_id, f"{lab_id}-b")]
    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            folders = (tmp_path / "often", tmp_path / "seldom")
            often, seldom = pool.map(steady, labs, folders, ([], ["--ack-threshold", "20"]))
    finally:
        for each in labs:
            each.down()
    print(f"{kind}, per superframe:\n  {often}\n  {seldom}")
    assert seldom.in_packets < often.in_packets / 3
    # What nobody asks for is free: the other terminal has its 3 bursts all the time.
    assert (
        abs(often.slots_free + often.slots_assigned - seldom.slots_free - seldom.slots_assigned) < 1
    )
    # Bursts are granted whole, and some leave half empty; what came last has yet to leave.
    arithmetic = (often.in_bytes - seldom.in_bytes) / BURST_BYTES
    assert 0.7 * arithmetic < seldom.slots_free - often.slots_free < 2 * arithmetic
