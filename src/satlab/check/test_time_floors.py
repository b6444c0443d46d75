# SPDX-License-Identifier: GPL-3.0-or-later
"""The shortest times over a link, and samples that are faster."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from satlab.check import case_link, suite, time_floors
from satlab.check.case_link import CaseLink
from satlab.check.conftest import one, small
from satlab.check.samples import Sample
from satlab.check.suite import Case
from satlab.check.trace.captured_transfer import CapturedTransfer, transfer_of
from satlab.check.trace.conftest import PORT, SERVER, long_packet, short_packet, udp
from satlab.common import paths

LINK = cast(
    "CaseLink",
    SimpleNamespace(
        plan=SimpleNamespace(
            model_dump=lambda **_: {
                "rtt_ms": {"min": 650.0},
                "forward": {"rate_bps": 49e6, "tcp_goodput_bps": 47e6, "udp_goodput_bps": 48e6},
                "return": {"rate_bps": 9.9e6, "tcp_goodput_bps": 9.4e6, "udp_goodput_bps": 9.6e6},
            },
        )
    ),
)


@pytest.mark.parametrize(
    ("changes", "case_changes", "words"),
    [
        ({}, {}, ""),
        ({"handshake_ms": 640.0}, {}, "handshake 640.0 ms"),
        ({"time_to_first_byte_ms": 1290.0}, {}, "first byte"),
        ({"time_to_first_byte_ms": 660.0}, {"second_after_s": 1}, ""),
        ({"times_s": (1.29, 9.0)}, {}, "time to 0.1 MB"),
        ({"times_s": (1.5, 8.9)}, {}, "time to 10 MB"),
        ({"times_s": (1.5, 5.4)}, {"changes": [{"at_s": 1, "forward_mbps": 20}]}, ""),
        ({"times_s": (1.5, 5.3)}, {"changes": [{"at_s": 1, "forward_mbps": 20}]}, "time to 10 MB"),
        ({"times_s": (1.1, 9.2)}, {"direction": "upload", "return_mbps": 10}, ""),
        ({"times_s": (1.1, 9.1)}, {"direction": "upload", "return_mbps": 10}, "time to 10 MB"),
        ({"status": "failed", "handshake_ms": 1.0}, {}, ""),
    ],
)
def test_a_sample_faster_than_its_link_has_failed(
    changes: dict[str, Any], case_changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    plan = small({"targets_s": [None, None]} | case_changes, marks_mb=[0.1, 10])
    link = case_link.build(plan, plan.cases[0], tmp_path)
    sample = replace(Sample("a", 1, "ok", "", (1.5, 9.5), 660.0, 1310.0), **changes)
    found = time_floors.possible(sample, plan.cases[0], (100_000, 10_000_000), link)
    assert words in found.reason and (found.times_s == sample.times_s) is not bool(words)
    if words:
        assert (found.status, found.times_s) == ("failed", (None, None))
        if "handshake" in words:
            through_proxies = time_floors.possible(
                sample, plan.cases[0], (), link, has_proxies=True
            )
            assert (through_proxies.status, through_proxies.times_s) == ("ok", sample.times_s)


def test_the_floors_that_are_shown_are_those_that_are_judged(tmp_path: Path) -> None:
    """A proxy before the link saves the round trip of the handshake."""
    plan = small()
    link = case_link.build(plan, plan.cases[0], tmp_path)
    for has_proxies, trips in ((False, 2), (True, 1)):
        at = one("a", 0.0)
        least = time_floors.possible(
            at, plan.cases[0], (2_000_000,), link, has_proxies=has_proxies
        ).floors_s[0]
        assert least == pytest.approx(
            trips * link.plan.rtt_ms.min / 1e3 + 16e6 / link.plan.forward.udp_goodput_bps
        )
        for time_s, status in ((least, "ok"), (least * 0.99, "failed")):
            at = one("a", time_s)
            found = time_floors.possible(
                at, plan.cases[0], (2_000_000,), link, has_proxies=has_proxies
            )
            assert (found.status, found.floors_s) == (status, (least,))


def picoquic(padding: bytes, *, answer_s: float = 1.315) -> CapturedTransfer:
    """Build a download like those captured from picoquic. The client repeats its Initial packet. The
    server sends connection ids and a probe of the path's MTU with its first flight; the probe
    arrives after the request. Datagrams with Initial packets end in `padding`.
    """
    client, server = b"CLIENT01", b"SERVER01"
    asked = long_packet("initial", client, 300, destination=b"original") + padding
    flight = (
        long_packet("initial", server, 120, destination=client)
        + long_packet("handshake", server, 700, destination=client)
        + padding
    )
    finished = long_packet("handshake", client, 60, destination=server) + short_packet(server, 300)
    sent = [
        (0.0, False, asked),
        (0.25, False, asked),
        (0.6560, True, flight),
        (0.6563, True, short_packet(client, 430)),
        (0.6570, False, finished),
        (0.6575, True, short_packet(client, 1431)),
        (0.6580, False, short_packet(server, 46)),
        (answer_s, True, short_packet(client, 1431)),
        (answer_s + 0.01, True, short_packet(client, 700)),
        (answer_s + 0.02, False, short_packet(server, 32)),
        (answer_s + 0.68, True, short_packet(client, 20)),
    ]
    packets = [udp(data, t_ns=round(t_s * 1e9), from_server=side) for t_s, side, data in sent]
    wire = transfer_of(packets, SERVER, PORT)
    assert wire is not None
    return wire


@pytest.mark.parametrize("padding", [b"", bytes(400), b"\x41" * 400, b"\xf0" * 400])
@pytest.mark.parametrize("answer_s", [1.315, 1.29])
@pytest.mark.promise("P77")
def test_a_probe_of_the_mtu_is_not_faster_than_physics(
    padding: bytes, answer_s: float, tmp_path: Path
) -> None:
    """An answer that is faster is found as before."""
    wire, size = picoquic(padding, answer_s=answer_s), 1800
    assert wire.handshake_s == pytest.approx(0.657)
    assert wire.first_byte_s == pytest.approx(answer_s)
    assert wire.times_s((1000, size), size) == pytest.approx((answer_s, answer_s + 0.01))
    sample = Sample(
        "a",
        1,
        "ok",
        "",
        wire.times_s((1000, size), size),
        wire.handshake_ms,
        wire.first_byte_s and wire.first_byte_s * 1000,
    )
    plan = small()
    link = case_link.build(plan, plan.cases[0], tmp_path)
    found = time_floors.possible(sample, plan.cases[0], (1000, size), link)
    assert found.floors_s[0] == pytest.approx(2 * link.plan.rtt_ms.min / 1e3, abs=0.01)
    assert (found.status, "better than physics" in found.reason) == (
        ("ok", False) if answer_s > 1.3 else ("failed", True)
    )


@pytest.mark.parametrize(
    ("fields", "size", "expected_s"),
    [
        ({}, 2_000_000, 1.3 + 16 / 48),
        ({"second_after_s": 10}, 2_000_000, 0.65 + 16 / 48),
        ({"second_after_s": 10, "zero_rtt": False}, 2_000_000, 1.3 + 16 / 48),
        ({"direction": "upload"}, 2_000_000, 0.975 + 16 / 9.6),
        # 4.025 s at 48 Mbit/s, the rest at a fifth of it: what was released before the change still
        # arrives.
        (
            {"changes": [{"at_s": 5, "forward_mbps": 10}]},
            30_000_000,
            5.325 + (240 - 4.025 * 48) / 9.6,
        ),
        ({"changes": [{"at_s": 5, "forward_mbps": 100}]}, 6_000_000, 1.3 + 48 / 96),
        ({"changes": [{"at_s": 5, "forward_mbps": 10}]}, 2_000_000, 1.3 + 16 / 48),
        (
            {"changes": [{"at_s": 45, "forward_mbps": 25}], "second_after_s": 60},
            3_000_000,
            0.65 + 24 / 24,
        ),
        ({"changes": [{"at_s": 45, "rtt_ms": 260}], "second_after_s": 60}, 6_000_000, 0.26 + 1.0),
    ],
)
def test_the_floor_is_round_trips_and_bytes(
    fields: dict[str, Any], size: int, expected_s: float
) -> None:
    case = Case.model_validate({"id": "a", "forward_mbps": 50, "return_mbps": 10} | fields)
    found = time_floors.possible(one("a", None, status="failed"), case, [size], LINK)
    assert found.floors_s == pytest.approx((expected_s,))


def test_a_target_of_our_own_is_not_below_its_floor(tmp_path: Path) -> None:
    second = suite.load(paths.SUITES / "second.yml")
    marks = [round(mark * suite.MB) for mark in second.marks_mb]
    for case in second.cases:
        link = case_link.build(second, case, tmp_path)
        failed = one(case.id, None, status="failed")
        floors_s = time_floors.possible(failed, case, marks, link).floors_s
        for target_s, floor_s in zip(case.targets_s, floors_s, strict=True):
            assert target_s is None or floor_s < target_s, case.id
