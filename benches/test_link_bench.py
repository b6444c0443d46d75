# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark's arithmetic, without measurements."""

from pathlib import Path

import pytest

from benches import bench_promises, link_bench, loaded_lab


def flow(received_bps: float, us_per_packet: float | None) -> dict[str, object]:
    return {
        "offered_bps": received_bps,
        "received_bps": received_bps,
        "packets": 1000,
        "lost_packets": 3,
        "emulator_cores": 0.25,
        "emulator_us_per_packet": us_per_packet,
    }


def result() -> dict[str, object]:
    late = {"p50_us": 10.0, "p99_us": 90.0, "max_us": 300.0}
    rate = {
        "rate_mbps": 250.0,
        "planned_goodput_bps": 240e6,
        "load": flow(230e6, 12.0),
        "counted_loss_packets": 0,
        "rtt_ms": 581.0,
        "rtt_above_model_ms": 0.4,
        "late": {"forward": late},
        "rss_mb": 47.0,
        "out_of_calibration": [],
        "failure": "",
    }
    return {
        "host": {"cores": 2, "cpu": "a CPU", "system": "a system", "load_1min": 0.5},
        "load_1min_end": 1.0,
        "baseline": {
            "wakes": {"late": late, "cpu_us_per_wake": 20.0},
            "veth_most": flow(2e9, None),
            "tun_copy_most": flow(1e9, 6.0),
            "tun_copy": [flow(230e6, 6.0)],
            "failure": "",
        },
        "rates": [rate],
        "labs": [[], ["rtt_ms not measured ms"]],
        "promises": [],
    }


def test_a_result_is_reported_with_its_ratios() -> None:
    text = "\n".join(link_bench.lines(result()))
    assert "rate 1.00, CPU per packet 2.00" in text
    assert "1 of 2 at 20 Mbit/s" in text
    assert "satlink 25% of a core, 12.00 us per packet" in text
    assert "RTT 581.00 ms, +0.40 ms" in text


def test_promises_are_held_against_the_figures() -> None:
    measured = result()
    measured["labs"] = [[]] * 7 + [["rtt_ms not measured ms"]]
    measured["rates"][0]["late"] |= {  # type: ignore[index]
        "terrestrial_down": {"p50_us": 10.0, "p99_us": 101.0, "max_us": 300.0}
    }
    verdicts = {
        promise.name: (promise.measured, promise.met) for promise in link_bench.promises(measured)
    }
    assert verdicts == {
        "250 Mbit/s: emulator": (0.25, True),
        "250 Mbit/s: release error p99": (101.0, False),
        "250 Mbit/s: RTT above the frame model": (0.4, True),
        "labs of 20 Mbit/s at once with green calibration": (7, False),
    }


@pytest.mark.parametrize(
    ("own_us", "host_us", "kept"), [(101, 90, "MISSED"), (101, 102, "HOST"), (99, 102, "kept")]
)
def test_a_release_error_is_the_host_s_where_a_bare_thread_is_late_too(
    own_us: int, host_us: int, kept: str
) -> None:
    promise = bench_promises.released("20 Mbit/s", 100, own_us, host_us)
    [line] = bench_promises.lines({"promises": [vars(promise)]})
    assert line.split()[0] == kept


@pytest.mark.parametrize(("labs", "judged"), [(1, False), (7, False), (8, True), (9, True)])
def test_labs_at_once_are_judged_only_where_as_many_were_asked_for(labs: int, judged: bool) -> None:
    asked = result() | {"labs": [[]] * labs}
    found = [promise for promise in link_bench.promises(asked) if promise.name.startswith("labs")]
    assert [promise.met for promise in found] == ([True] if judged else [])


def test_a_promise_that_was_not_measured_is_not_met() -> None:
    failed = result()
    failed["rates"][0] |= {"rate_mbps": 1100.0, "load": None, "counted_loss_packets": None}  # type: ignore[index]
    fast = link_bench.promises(failed)[:2]
    assert [(promise.measured, promise.met) for promise in fast] == [(None, False), (None, False)]
    failed["promises"] = [vars(promise) for promise in fast]
    assert "MISSED     1100 Mbit/s: received: not measured (>= 1000 Mbit/s)" in list(
        link_bench.lines(failed)
    )


def test_a_failed_flow_is_reported_not_omitted() -> None:
    failed = result()
    failed["rates"][0] |= {  # type: ignore[index]
        "load": None,
        "failure": "no route",
        "counted_loss_packets": None,
        "rtt_ms": None,
    }
    assert "250 Mbit/s: no route" in "\n".join(link_bench.lines(failed))


def test_profiles_differ_from_geo_in_their_rates_alone(tmp_path: Path) -> None:
    text = (loaded_lab.profile_of(250, tmp_path) / "topology.xml").read_text()
    assert "<wave_form>28<" in text
    assert "<bandwidth>70177<" in text
    assert "<bandwidth>50000<" in (loaded_lab.profile_of(20, tmp_path) / "topology.xml").read_text()
    assert "<cra>100000<" in (loaded_lab.profile_of(1000, tmp_path) / "profile_st.xml").read_text()
