# SPDX-License-Identifier: GPL-3.0-or-later
"""A plain wire as changes of a lab's link."""

from typing import Any

import pytest

from satlab.common import paths, topology
from satlab.flows.wire import Wire, most_in_flight, queue_samples, totals
from satlab.link.config import LinkRequest, build_config
from satlab.link.plan import LinkPlan, plan_link


def wire(*timeline: dict[str, Any], **forward: Any) -> Wire:
    half = {"rate_mbps": 10, "delay_ms": 30, "queue": {"bdp": 1}}
    return Wire({"forward": half | forward, "return": half, "timeline": list(timeline)})


def sets(one: Wire) -> list[tuple[float, dict[str, Any]]]:
    return [(step.at_s, step.set_.model_dump()) for step in one.steps()]


def test_a_lab_s_link_becomes_the_wire_with_its_queue_in_bytes() -> None:
    forward, back = (change.model_dump() for change in wire().at_first())
    # One BDP: 10 Mbit/s and 60 ms.
    new = {"waiting": "keep", "rate_mbps": 10, "delay_ms": 30, "queue": {"bytes": 75_000}}
    assert forward == {"direction": "forward", "handover": new}
    assert back["direction"] == "return"


def test_management_of_a_queue_stays_with_it() -> None:
    queue = {"bdp": 0.5, "aqm": "codel", "target_ms": 5, "interval_ms": 100}
    change = wire(queue=queue).at_first()[0].model_dump()["handover"]["queue"]
    assert change == {"bytes": 37_500, "aqm": "codel", "target_ms": 5, "interval_ms": 100}


def test_losses_begin_with_the_flows() -> None:
    lossy = wire(loss={"ratio": 0.01, "unit": "packet"})
    assert sets(lossy) == [(0, {"direction": "forward", "loss": {"ratio": 0.01, "unit": "packet"}})]
    assert "loss" not in str([change.model_dump() for change in lossy.at_first()])


def test_impairments_begin_with_the_flows_and_change() -> None:
    order = {"ratio": 0.1, "packets": 2, "ms": 50}
    later = {"at_s": 3, "direction": "forward", "corrupt": 0.2, "rate_mbps": 20}
    impaired = wire(later, reorder=order, duplicate=0.1)
    (_, first), (at_s, changed) = sets(impaired)
    assert first == {"direction": "forward", "reorder": order, "duplicate": 0.1}
    assert at_s == 3 and changed["corrupt"] == 0.2 and "reorder" not in changed
    assert "reorder" not in str([change.model_dump() for change in impaired.at_first()])


def test_a_delay_step_keeps_queue_and_rate() -> None:
    changed = wire({"at_s": 90, "direction": "both", "rate_mbps": 10, "delay_ms": 60})
    expected = [(90, {"direction": name, "delay_ms": 60}) for name in ("forward", "return")]
    assert sets(changed) == expected
    assert changed.rates("forward") == [(0, 10e6)]
    faster = wire({"at_s": 5, "direction": "forward", "rate_mbps": 20})
    assert (faster.rates("forward"), faster.rates("return")) == (
        [(0, 10e6), (5, 20e6)],
        [(0, 10e6)],
    )


def test_another_rate_is_a_handover_that_keeps_what_waits() -> None:
    (_, change), *_ = sets(
        wire({"at_s": 5, "direction": "forward", "rate_mbps": 50, "outage_s": 0.5})
    )
    new = {"waiting": "keep", "rate_mbps": 50, "delay_ms": 30, "queue": {"bytes": 75_000}}
    assert change == {"direction": "forward", "handover": new, "outage": 0.5}


def test_a_handover_takes_the_new_product_for_its_queue() -> None:
    changes = sets(wire({"at_s": 5, "direction": "both", "delay_ms": 60, "waiting": "drop"}))
    assert [change["handover"]["queue"] for _, change in changes] == [{"bytes": 150_000}] * 2
    assert {change["handover"]["waiting"] for _, change in changes} == {"drop"}


def test_steps_follow_each_other_by_their_times() -> None:
    later = {"at_s": 9, "direction": "return", "delay_ms": 30}
    earlier = {"at_s": 3, "direction": "return", "delay_ms": 99}
    assert [(at_s, change["delay_ms"]) for at_s, change in sets(wire(later, earlier))] == [
        (3, 99),
        (9, 30),
    ]


@pytest.fixture
def plan(tmp_path: Any) -> LinkPlan:
    if not paths.SATLINK.exists():
        pytest.skip("satlink is not built")
    here = topology.load(paths.LAB_FILE)
    return plan_link(
        build_config(
            here, "t", LinkRequest(paths.PROFILES / "leo"), metrics=tmp_path / "link.jsonl"
        )
    )


def test_the_plan_is_that_of_the_wire(plan: LinkPlan) -> None:
    found = wire().plan(plan)
    assert found.forward.udp_goodput_bps == pytest.approx(10e6 * 1472 / 1500)
    assert (found.forward.queue_bytes, found.forward.bdp_bytes) == (75_000, 75_000)
    assert found.rtt_ms.mean == pytest.approx(60 + 2 * 84 * 8 / 10_000)
    assert found.return_.demand is None
    assert (found.forward.queue_discipline, found.return_.queue_discipline) == (
        "drop-tail",
        "drop-tail",
    )
    codel = wire(queue={"bytes": 75_000, "aqm": "codel"}).plan(plan)
    assert codel.forward.queue_discipline == "codel"


def test_queues_are_sampled_as_under_the_virtual_clock() -> None:
    full = {"queue_bytes": 12_500, "queue_packets": 10}
    empty = {"queue_bytes": 0, "queue_packets": 0}
    samples = [{"t_s": 0.051, "forward": full, "return": empty}]
    rates = {"forward": [(0.0, 10e6), (0.1, 20e6)], "return": [(0.0, 1e6)]}
    forward, back = queue_samples(samples, rates, 0.2)  # type: ignore[arg-type]
    assert [one["delay_ms"] for one in forward] == pytest.approx([10, 5, 5, 5])
    assert [one["rate_bps"] for one in forward] == [10e6, 20e6, 20e6, 20e6]
    assert [one["delay_ms"] for one in back] == [0] * 4


def test_the_header_of_each_packet_counts() -> None:
    ethernet = wire({"at_s": 1, "direction": "forward", "rate_mbps": 50}, header_bytes=14)
    assert ethernet.header_bytes == {"forward": 14, "return": 0}
    assert [one.handover and one.handover.header_bytes for one in ethernet.at_first()] == [14, None]
    assert [change["handover"]["header_bytes"] for _, change in sets(ethernet)] == [14]
    sample = {"queue_bytes": 12_360, "queue_packets": 10}
    samples = [{"t_s": 0.051, "forward": sample, "return": sample}]
    rates = {"forward": [(0.0, 10e6)], "return": [(0.0, 10e6)]}
    forward, _ = queue_samples(samples, rates, 0.1, ethernet.header_bytes)  # type: ignore[arg-type]
    assert [one["delay_ms"] for one in forward] == [10, 10]


def test_the_plan_counts_the_header_of_each_packet(plan: LinkPlan) -> None:
    found = wire(header_bytes=14).plan(plan)
    assert found.forward.udp_goodput_bps == pytest.approx(10e6 * 1472 / 1514)
    assert found.forward.tcp_goodput_bps == pytest.approx(10e6 * 1448 / 1514)
    assert found.rtt_ms.mean == pytest.approx(60 + (98 + 84) * 8 / 10_000)


def test_totals_are_those_of_all_samples() -> None:
    names = (
        "in_packets",
        "in_bytes",
        "out_packets",
        "out_bytes",
        "dropped_packets",
        "lost_packets",
    )
    one = dict.fromkeys(names, 2)
    forward, back = totals([{"forward": one, "return": one}, {"forward": one, "return": None}])
    assert (forward["in_packets"], back["in_packets"]) == (4, 2)


def test_a_sender_keeps_what_can_be_on_the_way() -> None:
    changed = wire({"at_s": 1, "direction": "both", "delay_ms": 300})
    flows: list[dict[str, Any]] = [{}, {}]
    # Of two flows twice: 75,000 bytes of queue, and 10 Mbit/s for 0.6 s.
    assert most_in_flight({"wire": changed.fields, "flows": flows}) == 2 * (75_000 + 750_000)
    assert most_in_flight({"wire": wire().fields, "flows": flows}) == 1 << 20
    assert most_in_flight({"link": "link.json", "flows": [{}] * 8}) == 24 << 20
