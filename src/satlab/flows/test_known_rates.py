# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.common import paths, topology
from satlab.flows.known_rates import MAX_AGE_S, KnownRates
from satlab.flows.wire import FlowHost, Wire
from satlab.run import link_probe
from satlab.run.lab_session import NetnsHost
from satlab.run.link_probe import Echoes, Probe, ProbePath

PATH = ProbePath("client", "server", "198.18.4.2")


def probe(rate_bps: float = 9.8e6, rtt_ms: float = 60.0) -> Probe:
    return Probe(Echoes(40, rtt_ms, rtt_ms, rtt_ms), rate_bps, 1000, 0, 0, {})


def host(rates: KnownRates, rate_mbps: float = 10) -> FlowHost:
    link: Any = None
    half = {"rate_mbps": rate_mbps, "delay_ms": 30, "queue": {"bytes": 75000}}
    return FlowHost(
        "flows-1",
        topology.load(paths.LAB_FILE),
        link,
        wire=Wire({"forward": half, "return": half}),
        rates=rates,
    )


def test_an_equal_wire_is_saturated_once_and_its_rtt_measured_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, echoes = list[float](), iter([61.0, 62.0])
    rtts = dict.fromkeys(("client",), "")

    def measured(self: Any, *_: Any) -> Probe:
        whole.append(self.wire.halves["forward"].rate_mbps)
        return probe()

    def series(*_: Any) -> Echoes:
        rtt_ms = next(echoes)
        return Echoes(40, rtt_ms, rtt_ms, rtt_ms)

    monkeypatch.setattr(NetnsHost, "_measured", measured)
    monkeypatch.setattr(link_probe, "_ping", lambda shell, path, count: rtts[path.client])
    monkeypatch.setattr(link_probe, "echoes", series)
    is_ok = True
    monkeypatch.setattr(FlowHost, "_judged", lambda *_: [SimpleNamespace(ok=is_ok)])
    lab: Any = SimpleNamespace()
    rates = KnownRates(tmp_path / "rates.json")
    first, second, third = (host(rates)._measured(lab, PATH) for _ in range(3))
    assert whole == [10]
    assert [one.rtt and one.rtt.mean_ms for one in (first, second, third)] == [60, 61, 62]
    assert second.rate_bps == first.rate_bps and "of an equal link" in second.notes["rate"]
    host(rates, 20)._measured(lab, PATH)
    assert whole == [10, 20], "another wire"
    rates.forget()
    is_ok = False
    for _ in range(2):
        host(rates)._measured(lab, PATH)
    assert whole == [10, 20, 10, 10], "what was out of its limits is not known"


def test_a_rate_is_known_for_half_an_hour_and_until_a_run_is_off(tmp_path: Path) -> None:
    now_s = 100.0
    rates = KnownRates(tmp_path / "rates.json", lambda: now_s)
    assert rates.find("wire") is None
    rates.keep("wire", probe())
    now_s += MAX_AGE_S
    assert rates.find("wire") == (MAX_AGE_S, probe()) and rates.find("other") is None
    now_s += 1
    assert rates.find("wire") is None
    rates.keep("wire", probe())
    rates.forget()
    assert rates.find("wire") is None
