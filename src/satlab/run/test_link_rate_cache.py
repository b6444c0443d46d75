# SPDX-License-Identifier: GPL-3.0-or-later
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collect.fixtures.example_run import link_plan
from satlab.link.plan import LinkPlan
from satlab.run import calibrate, link_probe, link_rate_cache
from satlab.run.lab_session import NetnsHost
from satlab.run.link_probe import Echoes, Measured, Probe, ProbePath
from satlab.run.link_rate_cache import MAX_AGE_S, KnownRates

PATH = ProbePath("client", "198.18.1.2", "server", "198.18.4.2")
PLAN = LinkPlan.model_validate(link_plan("geo"))
OTHER = PLAN.model_copy(update={"terrestrial_one_way_delay_ms": 1.0})


def probe(rate_bps: float = 9.8e6, rtt_ms: float = 60.0) -> Probe:
    return Probe(Echoes(20, rtt_ms, rtt_ms, rtt_ms), rate_bps, 1000, 3, 3, {})


@pytest.fixture
def rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownRates:
    found = KnownRates(tmp_path / "rates.json", "s1")
    monkeypatch.setattr(link_rate_cache, "of_host", lambda: found)
    return found


def test_an_equal_link_is_saturated_once_and_its_rtt_measured_each_time(
    monkeypatch: pytest.MonkeyPatch, rates: KnownRates
) -> None:
    trains, is_ok, host = list[float](), True, NetnsHost("x", None, None)  # type: ignore[arg-type]

    def measure(enter: Any, path: ProbePath, bps: float, seconds: float, *_: Any) -> Measured:
        trains.append(seconds)
        sent = 4000 if seconds else 0
        return Measured([580.0 + len(trains)] * 23, sent, sent, 19e6 if seconds else None)

    monkeypatch.setattr(link_probe, "measure", measure)
    monkeypatch.setattr(NetnsHost, "_judged", lambda *_: [SimpleNamespace(ok=is_ok)])
    monkeypatch.setattr("satlab.run.lab_session.metrics_of", lambda _: None)

    def measured(plan: LinkPlan, emulator: str = "satlink") -> Probe:
        lab: Any = SimpleNamespace(
            enter_argv=None, plan=plan, config=SimpleNamespace(emulator=emulator)
        )
        return host._measured(lab, PATH)

    again = PLAN.model_copy(update={"seed": 7, "profile": "/elsewhere/geo"})
    first, second = measured(PLAN), measured(again)
    assert trains == [link_probe.PROBE_S, 0]
    assert [one.rtt and one.rtt.mean_ms for one in (first, second)] == [581, 582]
    assert replace(second, rtt=first.rtt, notes={}) == first
    assert second.notes["rate"] == "of an equal link 0 s before, on this host (stamp s1)"
    measured(OTHER)
    monkeypatch.setattr(link_probe, "_drain", lambda *_: None)
    measured(PLAN, "opensand")
    assert trains[2:] == [link_probe.PROBE_S] * 2, "another link, another emulator"
    rates.forget()
    is_ok = False
    measured(PLAN)
    measured(PLAN)
    assert trains[4:] == [link_probe.PROBE_S] * 2, "what was out of its limits is not known"


def test_a_rate_is_known_for_half_an_hour_on_a_host_with_the_same_stamp(tmp_path: Path) -> None:
    now_s, file = 100.0, tmp_path / "state" / "rates.json"
    rates = KnownRates(file, "s1", lambda: now_s)
    assert rates.find(PLAN) is None
    rates.keep(PLAN, probe())
    now_s += MAX_AGE_S
    found = rates.find(PLAN)
    assert found and replace(found, notes={}) == probe()
    assert rates.find(OTHER) is None
    assert KnownRates(file, "s2", lambda: now_s).find(PLAN) is None
    now_s += 1
    assert rates.find(PLAN) is None
    rates.keep(OTHER, probe())
    assert len(json.loads(file.read_text())) == 1, "a rate that is too old is not kept"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"KEY": 1}', '{"KEY": {"unix_s": 1, "probe": {}}}']
)
def test_a_file_of_another_version_holds_no_rates(tmp_path: Path, text: str) -> None:
    rates = KnownRates(tmp_path / "rates.json", "s1")
    (tmp_path / "rates.json").write_text(text.replace("KEY", rates._link(PLAN)))
    assert rates.find(PLAN) is None
    rates.keep(PLAN, probe())
    assert rates.find(PLAN) is not None


def test_a_measurement_out_of_calibration_ends_what_is_known(
    tmp_path: Path, rates: KnownRates
) -> None:
    def check(measured: float) -> Any:
        return calibrate.check("cpu_others_ratio", "", 0, measured, 0, 0.05)

    rates.keep(PLAN, probe())
    calibrate.write(tmp_path / "calibration.json", "r1", [check(0.01)])
    assert rates.find(PLAN) is not None
    calibrate.write(tmp_path / "calibration.json", "r1", [check(0.2)])
    assert rates.find(PLAN) is None


def test_rates_are_used_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(link_rate_cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    link_rate_cache.use(False)
    assert link_rate_cache.of_host() is None
    monkeypatch.setenv(link_rate_cache.VARIABLE, "")
    link_rate_cache.use(True)
    kept = link_rate_cache.of_host()
    assert kept is not None
    kept.keep(PLAN, probe())
    assert [file.parent for file in tmp_path.rglob("rates-*.json")] == [tmp_path / "satlab"]
