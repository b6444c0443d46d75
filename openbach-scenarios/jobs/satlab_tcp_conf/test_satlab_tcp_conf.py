# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path
from types import ModuleType

import pytest

from tests import job_programs

PROGRAM = Path(__file__).parent / "files" / "satlab_tcp_conf.py"


@pytest.fixture(scope="module")
def job() -> ModuleType:
    return job_programs.load("satlab_tcp_conf")


# `ss -tinOH state established`, iproute2 6.1: an idle connection, the same one sending, one of the
# host with itself.
IDLE = (
    "0 0 198.18.4.2:5201 198.18.1.2:41170 ts sack reno wscale:10,10 rto:204 rtt:0.02/0.01 mss:1448"
    " cwnd:100 bytes_acked:1 segs_out:1 minrtt:0.02\n"
)
SENDING = IDLE.replace(
    "cwnd:100 bytes_acked:1", "cwnd:240 bytes_sent:90000 bytes_acked:80001 retrans:0/2"
)
OWN = IDLE.replace("198.18.1.2:41170", "198.18.4.2:41170").replace("cwnd:100", "cwnd:7")


def watch(job: ModuleType, **asked: object) -> object:
    requested = {"client": job.Side(**asked), "server": job.Side()}
    interfaces = {"198.18.1.2": "lan0", "198.19.0.1": "eth0", "198.18.4.2": "lo"}
    return job.Watch(frozenset({"lan0"}), {"lan0": "client"}, requested, interfaces)


def test_a_connection_shows_its_first_window_and_its_largest(job: ModuleType) -> None:
    seen = watch(job, congestion_control="reno", initial_window=100)
    for listing in (IDLE + OWN, SENDING):
        seen.take(listing)  # type: ignore[attr-defined]
    (connection,) = seen.connections.values()  # type: ignore[attr-defined]
    assert (connection.initial_window, connection.cwnd_max, connection.retransmits) == (100, 240, 2)
    assert (connection.side, connection.rtt_min_ms, connection.bytes_acked) == (
        "client",
        0.02,
        80001,
    )
    assert seen.fault() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"congestion_control": "cubic"}, "uses reno, not cubic"),
        ({"initial_window": 10}, "starts with a window of 100, not 10"),
        ({}, ""),
    ],
)
def test_what_differs_from_what_was_asked_for_is_named(
    job: ModuleType, asked: dict[str, object], said: str
) -> None:
    seen = watch(job, **asked)
    seen.take(IDLE)  # type: ignore[attr-defined]
    assert said in seen.fault() if said else seen.fault() == ""  # type: ignore[attr-defined]


def test_a_session_on_the_control_network_is_not_judged(job: ModuleType) -> None:
    ssh = IDLE.replace(
        "198.18.4.2:5201 198.18.1.2:41170", "198.19.0.17:22 198.19.0.1:50112"
    ).replace("reno", "bbr")
    seen = watch(job, congestion_control="reno", initial_window=100)
    seen.take(ssh + IDLE)  # type: ignore[attr-defined]
    assert [c.interface for c in seen.connections.values()] == ["lan0"]  # type: ignore[attr-defined]
    assert seen.fault() == ""  # type: ignore[attr-defined]


def test_interfaces_are_measured_by_their_addresses(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = (
        "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 198.19.0.17/24 brd 198.19.0.255"
        " scope global eth0\n3: inet0    inet 198.18.4.2/24 scope global inet0\n4: tun0    inet"
        " 192.0.2.1 peer 192.0.2.2/32 scope global tun0\n"
    )
    monkeypatch.setattr(
        job,
        "run",
        lambda *_, **__: listing + "5: lan1    inet6 2001:2:0:1203::1/64 scope global nodad\n",
    )
    assert job.measured_interfaces(job.MEASURED) == {"inet0", "lan1"}
    own = job.parser().parse_args(["-n", "198.19.0.0/24", "--network", "192.0.2.0/24"]).network
    assert job.measured_interfaces(own) == {"eth0", "tun0"}
    with pytest.raises(job.JobError, match=r"no interface has an address in 203\.0\.113\.0/24"):
        job.measured_interfaces(job.parser().parse_args(["-n", "203.0.113.0/24"]).network)


def test_p304_connections_of_both_ip_versions_are_judged(job: ModuleType) -> None:
    requested = {"client": job.Side("reno"), "server": job.Side("cubic")}
    interfaces = {"2001:2:0:1201::2": "lan0", "198.18.1.2": "lan0", "2001:2:0:1204::2": "inet0"}
    seen = job.Watch(frozenset({"lan0", "inet0"}), {"lan0": "client"}, requested, interfaces)
    over_ipv6 = IDLE.replace("198.18.4.2", "[2001:2:0:1204::2]").replace(
        "198.18.1.2", "[2001:2:0:1201::2]"
    )
    mapped = IDLE.replace("198.18.4.2", "[::ffff:198.18.4.2]").replace(
        "198.18.1.2", "[::ffff:198.18.1.2]"
    )
    itself = over_ipv6.replace("1201::2", "1204::2")
    seen.take(over_ipv6 + mapped + itself)
    assert [(c.interface, c.side) for c in seen.connections.values()] == [("lan0", "client")] * 2
    assert seen.fault() == ""
    seen.take(
        over_ipv6.replace("1201::2]:41170", "1204::2]:7").replace(
            "[2001:2:0:1204::2]:5201", "[2001:2::5]:5201"
        )
    )
    assert "uses reno, not cubic" in seen.fault()


def test_p304_routes_of_both_ip_versions_are_set(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {
        ("ip", "-o", "route"): "198.18.4.0/24 via 198.18.2.1 dev lan1 congctl cubic\n",
        ("ip", "-6", "-o", "route"): (
            "2001:2:0:1204::/64 via 2001:2:0:1202::1 dev lan1 metric 1024 congctl cubic pref"
            " medium\nfe80::/64 dev lan1 proto kernel metric 256 pref medium\n"
        ),
    }
    called: list[tuple[str, ...]] = []

    def run(*argv: str, hint: str) -> str:
        called.append(argv)
        return shown.get(argv, "")

    monkeypatch.setattr(job, "run", run)
    found = job.routes(frozenset({"lan1"}))
    assert [job.family(route) for route in found] == ["-4", "-6"]
    job.set_routes(found, frozenset({"lan1"}))
    replaced = [argv[1] for argv in called if "replace" in argv]
    assert replaced == ["-4", "-6"]


def test_a_window_that_was_seen_too_late_accuses_nobody(job: ModuleType) -> None:
    seen = watch(job, initial_window=10)
    seen.take(SENDING)  # type: ignore[attr-defined]
    assert seen.fault() == ""  # type: ignore[attr-defined]


def test_a_route_keeps_what_is_not_asked_for(job: ModuleType) -> None:
    route = "198.18.4.0/24 via 198.18.2.1 dev lan1 proto static initcwnd 10 congctl lock cubic"
    changed = job.with_parameters(route, job.Side("reno", None, 40))
    assert (
        changed
        == "198.18.4.0/24 via 198.18.2.1 dev lan1 proto static initcwnd 10 congctl reno initrwnd 40"
    )


def test_presets_are_those_of_table_3_and_a_window_overrides_theirs(job: ModuleType) -> None:
    assert [(p.wmem_max, p.rmem_max, p.initial_window) for p in job.PRESETS.values()] == [
        (4_000_000, 6_000_000, 10),
        (4_000_000, 6_000_000, 100),
        (33_000_000, 33_000_000, 10),
        (33_000_000, 33_000_000, 100),
    ]
    options = job.parser().parse_args(["-p", "D", "--client-side-initial-window", "20"])
    sides = job.requested_sides(options)
    assert (sides["server"].initial_window, sides["client"].initial_window) == (100, 20)
    assert (
        job.requested_sides(job.parser().parse_args(["-p", "B", "-w", "30"]))[
            "server"
        ].initial_window
        == 30
    )
