# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of both ends of a flow."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError, HostError
from satlab.flows import endpoint_commands, udp_traffic
from satlab.flows.endpoint_commands import Place, first_program, second_program
from satlab.lab.pki import Pki


def place(**flow: Any) -> Place:
    given = {
        "id": "a",
        "from": "server1",
        "to": "client1",
        "stack": "quinn",
        "congestion_control": "cubic",
        "start_s": 1,
    }
    folder = Path("/private/0")
    addresses = {"server": "198.18.4.2", "client": "198.18.1.2"}
    keys = Pki(folder / "keys", "")
    return Place(
        3,
        given | flow,
        8.5,
        addresses,
        keys,
        folder / "ca",
        folder,
        Path("/private/www/payload"),
        1 << 20,
    )


def test_options_are_those_of_the_end_that_has_them() -> None:
    flow = place(ack_threshold=9, window_bytes=70_000, initial_window=32)
    server, client = first_program(flow).argv, second_program(flow).argv
    assert server[server.index("--ack-threshold") + 1] == "9"
    assert client[client.index("--receive-window") + 1] == "70000"
    assert "--receive-window" not in server
    assert "--initial-window" not in client
    assert client[client.index("--duration") + 1] == "8.500"
    assert server[server.index("--listen") + 1] == "198.18.4.2:4436"


def test_an_upload_sends_at_the_client_s_side() -> None:
    flow = place(**{"from": "client1", "to": "server1", "bytes": 5000})
    client = second_program(flow).argv
    assert (flow.sender, flow.receiver) == ("client", "server")
    assert client[client.index("--direction") + 1] == "upload"
    assert client[client.index("--bytes") + 1] == "5000"


def test_ngtcp2_takes_its_control_size_and_acknowledgements() -> None:
    if shutil.which("gtlsclient") is None:
        pytest.skip("ngtcp2 is not installed")
    flow = place(stack="ngtcp2", congestion_control="bbr2", datagram_bytes=1200, ack_threshold=9)
    server, client = first_program(flow).argv, second_program(flow).argv
    assert {"--cc=bbr2", "--max-udp-payload-size=1200", "--no-pmtud"} <= set(server)
    assert "--ack-thresh=10" in client
    assert not any(word.startswith("--ack-thresh") for word in server)
    assert client[-1].endswith(":4436/payload")


def test_picoquic_has_its_own_names_and_writes_in_its_folder_alone() -> None:
    flow = place(stack="picoquic", congestion_control="bbr")
    server, client = first_program(flow).argv, second_program(flow).argv
    for argv, side in ((server, "server"), (client, "client")):
        assert argv[argv.index("-G") + 1] == "bbr1"
        written = [argv[argv.index(name) + 1] for name in ("-q", "-T", "-N")]
        assert all(word.startswith(f"{flow.folder / side}/") for word in written)
    assert server[server.index("-p") + 1] == "4436"
    assert client[-3:] == ("198.18.4.2", "4436", "/payload")


def test_picoquic_that_is_not_built_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "PICOQUIC", tmp_path / "none")
    with pytest.raises(HostError, match="none is missing") as caught:
        endpoint_commands.check({"flows": [{"stack": "picoquic", "congestion_control": "bbr"}]})
    assert caught.value.hint == "build it: ./satlab --install picoquic"


def test_a_client_takes_its_addresses_after_its_start() -> None:
    flow = place(migrate_s=[4, 6.5])
    client = second_program(flow).argv
    assert [client[at + 1] for at, word in enumerate(client) if word == "--migrate"] == [
        "3.000:198.18.1.130",
        "5.500:198.18.1.2",
    ]
    assert "--migrate" not in first_program(flow).argv


def test_ngtcp2_counts_its_change_of_address_from_the_handshake_on() -> None:
    if shutil.which("gtlsclient") is None:
        pytest.skip("ngtcp2 is not installed")
    flow = dataclasses.replace(place(stack="ngtcp2", migrate_s=[4]), handshake_s=0.08)
    assert "--change-local-addr=2920ms" in second_program(flow).argv
    assert not any(word.startswith("--change-local-addr") for word in first_program(flow).argv)


def test_tcp_has_the_congestion_control_at_both_ends() -> None:
    flow = place(stack="tcp", congestion_control="bbr")
    client = second_program(flow).argv
    assert client[client.index("--congestion") + 1] == "bbr"
    assert "--reverse" in client
    assert second_program(flow).capabilities == ("net_admin",)
    upload = place(stack="tcp", **{"from": "client1", "to": "server1"})
    assert "--reverse" not in second_program(upload).argv


def test_of_datagrams_the_receiver_starts_first() -> None:
    forward = place(stack="udp", rate_mbps=2.5)
    back = place(stack="udp", rate_mbps=2, **{"from": "client1", "to": "server1"})
    assert (endpoint_commands.first_side(forward), endpoint_commands.second_side(forward)) == (
        "client",
        "server",
    )
    assert (endpoint_commands.first_side(back), endpoint_commands.second_side(back)) == (
        "server",
        "client",
    )
    assert first_program(forward).argv[-3:] == ("receive", "198.18.1.2", "4436")
    assert second_program(forward).argv[-5:] == (
        "send",
        "198.18.1.2",
        "4436",
        "1200",
        "2.5",
    )


def test_a_rate_is_that_of_ip_packets() -> None:
    # 1228 bytes at 9.824 Mbit/s: 1000 packets a second, and the first one at once.
    assert [udp_traffic.due(t_s, 1228, 9.824) for t_s in (0, 0.0105, 1.0005)] == [1, 11, 1001]


def test_a_congestion_control_that_the_kernel_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "controls").write_text("reno cubic\n")
    monkeypatch.setattr(endpoint_commands, "CONTROLS", tmp_path / "controls")
    flow = {"stack": "tcp", "congestion_control": "bbr"}
    with pytest.raises(
        ConfigError, match=r"flows\[0\]\.congestion_control: bbr is not loaded"
    ) as caught:
        endpoint_commands.check({"flows": [flow]})
    assert "modprobe tcp_bbr" in (caught.value.hint or "")


def test_segments_of_tcp_have_the_size_of_the_others_packets() -> None:
    client = second_program(place(stack="tcp", datagram_bytes=1372)).argv
    assert client[client.index("--set-mss") + 1] == "1360"  # 1360 + 20 + 20 = 1372 + 8 + 20
    assert "--set-mss" not in second_program(place(stack="tcp")).argv
