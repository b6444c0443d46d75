# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples from satperf's output, and its commands."""

from pathlib import Path
from typing import Any

import pytest

from satlab.check import case_link, suite
from satlab.check.conftest import transfer_request
from satlab.check.endpoint import satperf
from satlab.check.endpoint.pair import TransferRequest
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.sandboxed_program import ExitReport
from satlab.check.suite import Case


def request(**case: Any) -> TransferRequest:
    return transfer_request(Path("endpoints"), 1, 2, **case)


def lines(
    receiver: str, *, status: str = "ok", reason: str = "done", equal: bool | None = True
) -> list[dict[str, Any]]:
    """satperf's output for 2 MB in two intervals; the server starts 0.5 s after the client."""
    found: list[dict[str, Any]] = []
    for side, start in (("client", 100.0), ("server", 100.5)):
        role = "receiver" if side == receiver else "sender"
        found.append({"type": "start", "side": side, "role": role, "t_unix_s": start})
        if role == "receiver":
            for end, count in ((1.0, 500_000), (1.1, 1_000_000), (1.2, 500_000)):
                found.append(
                    {
                        "type": "interval",
                        "side": side,
                        "t_s": end,
                        "interval_s": 0.1,
                        "bytes": count,
                    }
                )
        found.append(
            {
                "type": "summary",
                "side": side,
                "status": status,
                "reason": reason,
                "handshake_ms": 650.0,
                "time_to_first_byte_ms": 1300.0,
                "reached_2mb_s": 1.2 if role == "receiver" else None,
                "sent_packets": 9,
                "lost_packets": 1,
                "acks_sent": 4,
                "data_equal": equal,
            }
        )
    return found


def test_a_download_is_timed_by_the_client() -> None:
    found = satperf.sample_of(request(), lines("client"), "")
    assert found.status == "ok" and found.times_s == pytest.approx((1.05, 1.2))
    assert found.handshake_ms == 650.0
    assert found.sent_datagrams == 9
    assert found.lost_packets == 1
    assert found.acks == 4


def test_an_upload_is_timed_by_the_server_from_the_client_s_start() -> None:
    assert satperf.sample_of(
        request(direction="upload"), lines("server"), ""
    ).times_s == pytest.approx((1.55, 1.7))


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        (
            {"status": "failed", "reason": "timeout after 300 s"},
            "censored",
            "timeout after 300 s: nothing arrived after 1.2 s",
        ),
        ({"status": "failed", "reason": "reset by peer"}, "failed", "reset by peer"),
        ({"equal": False}, "failed", "the received data differs from the sent data"),
    ],
)
def test_an_incomplete_transfer_has_its_reason(
    changes: dict[str, Any], status: str, reason: str
) -> None:
    found = satperf.sample_of(request(), lines("client", **changes), "")
    assert (found.status, found.reason) == (status, reason)


def test_a_client_without_a_summary_fails_with_its_reason(tmp_path: Path) -> None:
    assert satperf.sample_of(request(), lines("client")[:3], "killed").reason == "killed"
    nothing = SatperfPair("quinn").sample(request(), 0, ExitReport(-9, "", 0.1, 1, ""), None)
    assert (nothing.status, nothing.reason) == ("failed", "it ended with signal 9")


def test_commands_have_options_and_request() -> None:
    pair = SatperfPair("quiche", ({"initial_window": 32}, {"congestion_control": "bbr"}))
    client = pair.client(request(second_after_s=10, direction="upload"), 0).argv
    server = pair.server(request()).argv
    for flag, value in (
        ("--initial-window", "32"),
        ("--bytes", "2000000"),
        ("--zero-rtt", "endpoints/client/session"),
    ):
        assert client[client.index(flag) + 1] == value
    assert server[server.index("--congestion-control") + 1] == "bbr"
    assert "--initial-window" not in server
    assert not pair.unsupported_reason(request(second_after_s=10).case)
    assert SatperfPair("quinn").unsupported_reason(request(second_after_s=10).case)


def words(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_a_case_s_options_reach_satperf_and_those_of_the_command_line_are_stronger() -> None:
    pair = SatperfPair("quinn", ({}, {"initial_window": 16}))
    one = request(
        server={"initial_window": 32, "congestion_control": "reno"}, source_mbps=20, zero_rtt=False
    )
    server, client = pair.server(one).argv, pair.client(one, 0).argv
    assert words(server, "--initial-window") == "16"
    assert words(server, "--congestion-control") == "reno"
    assert words(client, "--source-mbps") == "20" and "--resume-state" not in server


def test_what_careful_resume_knows_is_in_a_folder_that_a_sample_s_connections_share() -> None:
    pair = SatperfPair("quinn", ({}, {"careful_resume": "on"}))
    one = request(second_after_s=10, zero_rtt=False)
    server, client = pair.server(one).argv, pair.client(one, 1).argv
    assert words(server, "--careful-resume") == "on" and "--careful-resume" not in client
    assert words(server, "--resume-state") == "endpoints/server/paths.json"
    assert "--resume-state" not in client
    # Who sends remembers: at an upload the client, whose process is another one each time.
    upload = request(
        second_after_s=10, zero_rtt=False, direction="upload", client={"careful_resume": "on"}
    )
    first, second = (
        words(SatperfPair("quinn").client(upload, number).argv, "--resume-state")
        for number in (0, 1)
    )
    assert first == second == "endpoints/client/paths.json"


def test_the_sender_s_phases_are_by_the_client_s_clock_and_in_words() -> None:
    phase = {
        "t_s": 1.25,
        "phase": "unvalidated",
        "trigger": "cwnd_limited",
        "cwnd_bytes": 1,
        "pipe_size_bytes": 1,
    }
    resumed = {"jump_bytes": 2_000_000, "lost_bytes": 0, "retreated": False, "phases": [phase]}
    output = lines("client")
    for line in output:
        if line["type"] == "summary":
            line["careful_resume"] = resumed if line["side"] == "server" else None
    found = satperf.sample_of(request(), output, "")
    assert found.symptoms == ("careful resume: a jump to 2.00 MB",)
    # The server started 0.5 s after the client.
    assert found.careful_resume == resumed | {"phases": [phase | {"t_s": 1.75}]}
    assert satperf.sample_of(request(), lines("client"), "").careful_resume is None


def test_a_library_without_careful_resume_does_not_support_the_case() -> None:
    case = request(second_after_s=10, zero_rtt=False, server={"careful_resume": "on"}).case
    assert "with quiche" in SatperfPair("quiche").unsupported_reason(case)
    assert not SatperfPair("quinn").unsupported_reason(case)
    off = SatperfPair("quiche", ({}, {"careful_resume": "off"}))
    assert not off.unsupported_reason(case)


def test_the_timeline_of_a_lab_starts_with_the_transfer(tmp_path: Path) -> None:
    case: Case = request(changes=[{"at_s": 5, "forward_mbps": 2}]).case
    read: suite.Suite = request().suite
    link_request = case_link.for_lab(
        case_link.build(read, case, tmp_path), case, 3, tmp_path / "link.jsonl"
    )
    assert link_request.timeline is not None and link_request.seed == 3
    assert (link_request.timeline.starts, link_request.timeline.steps[0].at_s) == ("on-request", 5)
