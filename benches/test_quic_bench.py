# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of the QUIC benchmark, without measurements."""

from typing import Any

import pytest

from benches import quic_bench
from benches.quic_bench import Transfer
from satlab.common import paths
from satlab.common.errors import HostError

SUMMARY: dict[str, Any] = {
    "type": "summary",
    "status": "ok",
    "reason": "done",
    "goodput_bps": 56.1e6,
    "t_s": 14.9,
    "data_equal": True,
    "acks_sent": 3432,
    "cpu_s": 0.4,
    "retransmitted_share": 0.01,
}


def output(client: dict[str, Any] | None, said: str = "") -> str:
    host = {"cores": 2, "cpu": "a CPU", "system": "a system", "load_1min": 0.5}
    case = {
        "name": "quinn cubic loss 1%",
        "client": client,
        "server": SUMMARY if client else None,
        "said": said,
    }
    return "\n".join(quic_bench.lines({"host": host, "load_1min_end": 1.0, "cases": [case]}))


def test_a_transfer_is_reported_with_its_check() -> None:
    text = output(SUMMARY)
    assert (
        "quinn cubic loss 1%: 56.1 Mbit/s, 14.9 s, data equal, 1.0% retransmitted, 3432 ACKs"
        in text
    )
    assert "DATA DIFFERS" in output(SUMMARY | {"data_equal": False})


def test_a_failed_transfer_is_reported_with_its_reason() -> None:
    assert "failed: timed out" in output(SUMMARY | {"status": "failed", "reason": "timed out"})
    assert "failed: error: UDP socket" in output(None, "error: UDP socket")


def test_summaries_are_found_by_side() -> None:
    lines = [
        {"type": "start", "side": "client"},
        SUMMARY | {"side": "server"},
        SUMMARY | {"side": "client"},
    ]
    done = Transfer(0, "", lines)
    assert (done.summary(), done.summary("server")) == (lines[2], lines[1])
    assert Transfer(1, "", []).summary() is None


def test_every_offered_congestion_control_is_measured_with_and_without_loss() -> None:
    offered = {
        ("quinn", "cubic"),
        ("quinn", "reno"),
        ("quiche", "cubic"),
        ("quiche", "reno"),
        ("quiche", "bbr"),
    }
    for loss in (0.0, 0.01):
        assert {
            (case.stack, case.congestion_control) for case in quic_bench.CASES if case.loss == loss
        } == offered


def test_a_program_that_is_not_built_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "SATPERF", paths.ROOT / "nonexistent")
    with (
        pytest.raises(HostError, match="missing") as caught,
        quic_bench.server(None, "server", [], paths.ROOT),  # type: ignore[arg-type]
    ):
        pass
    assert "satlab --install quic" in str(caught.value.hint)


def test_names_of_cases_are_unique() -> None:
    names = [case.name for case in quic_bench.CASES]
    assert len(set(names)) == len(names)
    assert {"quinn reno loss 1% pep quic", "quinn cubic loss 1% pep quic bbr3"} < set(names)


def test_a_proxy_without_the_control_between_leaves_its_reason_in_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> Transfer:
        raise HostError("satlab_pep: satpep ended with status 2: built without noq")

    monkeypatch.setattr(quic_bench, "transfer", refuse)
    case = next(case for case in quic_bench.CASES if case.between)
    result = quic_bench.measure(case)
    assert result["client"] is None and "built without noq" in result["said"]
    with pytest.raises(HostError):
        quic_bench.measure(quic_bench.CASES[0])
