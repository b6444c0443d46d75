# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of programs and windows of TCP connections: from the kernel's texts and messages to a
bounded sample.
"""

import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from satlab.common import processes
from satlab.run import lab_activity
from satlab.run.lab_activity import ProgramLoad, Running
from satlab.run.quic_flows import Flow

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def message(kind: int, content: bytes) -> bytes:
    whole = struct.pack("=IHHII", 16 + len(content), kind, 0, 1, 0) + content
    return whole + bytes(-len(whole) % 4)


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def about(
    source: str = "198.18.4.2", *, acked: int = 5_000_000, family: int = socket.AF_INET
) -> bytes:
    """Return what the kernel says of a connection: struct inet_diag_msg, tcp_info and the
    congestion control.
    """
    ports = socket.htons(443), socket.htons(40000)
    ends = (
        socket.inet_pton(family, each).ljust(16, b"\0")
        for each in (source, "198.18.1.2" if "." in source else "2::2")
    )
    info = bytearray(232)
    for at, value in ((16, 1400), (24, 80), (68, 601_234), (80, 100)):
        struct.pack_into("=I", info, at, value)
    struct.pack_into("=Q", info, 120, acked)
    head = struct.pack("=BBBBHH16s16s", family, 1, 0, 0, *ports, *ends).ljust(72, b"\0")
    return head + attribute(2, bytes(info)) + attribute(4, b"cubic\0")


def test_a_connection_has_window_round_trip_time_and_algorithm() -> None:
    data = message(20, about()) + message(3, bytes(4))
    (flow,) = lab_activity.parse_flows(data, socket.AF_INET, "server")
    assert flow == Flow(
        source="kernel",
        local="198.18.4.2:443",
        peer="198.18.1.2:40000",
        algorithm="cubic",
        cwnd_bytes=140_000,
        rtt_ms=601.2,
        in_flight_bytes=112_000,
        acked_bytes=5_000_000,
        node="server",
    )
    data = message(20, about("2001:2::1", family=socket.AF_INET6))
    (flow,) = lab_activity.parse_flows(data, socket.AF_INET6, "server")
    assert flow.local == "[2001:2::1]:443"


def test_connections_of_a_node_with_itself_and_foreign_messages_are_left_out() -> None:
    data = (
        message(20, about("127.0.0.1"))
        + message(20, about("198.18.1.2"))
        + message(20, b"short")
        + message(99, b"")
    )
    assert list(lab_activity.parse_flows(data, socket.AF_INET, "server")) == []


@given(st.binary(max_size=400))
def test_t50_any_bytes_are_survived(data: bytes) -> None:
    list(lab_activity.parse_flows(data, socket.AF_INET, "server"))
    list(lab_activity.parse_flows(message(20, data), socket.AF_INET6, "server"))
    lab_activity.script_of(data)


def test_the_kernel_answers_about_this_host() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.sendall(b"x")
        kinds = [kind for kind, _ in lab_activity.messages(lab_activity._asked(socket.AF_INET))]
    if 2 in kinds:
        pytest.skip("this kernel has no tcp_diag")
    assert 20 in kinds
    assert kinds[-1] == 3, "the end of the list"


def test_a_program_s_name_may_hold_anything() -> None:
    fields = ["S", "1", *["0"] * 9, "70", "30", "500", "500", *["0"] * 4, "1234"]
    found = processes.parse_process(f"7 (a) S (b c) {' '.join(fields)} 0 0")
    assert (found.name, found.start_ticks, found.own_ticks) == ("a) S (b c", 1234, 100), (
        "without the time of children"
    )
    assert lab_activity.clean("<b>ü" + "x" * 100) == "_b__" + "x" * 20
    assert lab_activity.clean("") == "_"
    assert lab_activity.script_of(b"python3\0-u\0/jobs/satlab_iperf3.py\0-c\0") == "satlab_iperf3"
    assert lab_activity.script_of(b"python3\0-c\0pass\0") == ""


def test_cpu_time_is_that_between_two_readings() -> None:
    before = {(1, 10): Running("client", "old", 500), (2, 20): Running("sat", "satlink", 1000)}
    after = {
        (1, 11): Running("client", "new", TICKS_A_SECOND),  # the same pid, another process
        (2, 20): Running("sat", "satlink", 1000 + TICKS_A_SECOND // 2),
        (3, 30): Running("sat", "satlink", TICKS_A_SECOND // 2),
        (4, 40): Running("gw", "idle", 0),
    }
    found = lab_activity.loads(before, after, 2.0)
    assert found == [ProgramLoad("client", "new", 1, 50.0), ProgramLoad("sat", "satlink", 2, 50.0)]


def test_t50_a_sample_is_bounded() -> None:
    programs = [ProgramLoad(f"client-{n}", "x", 1, float(n)) for n in range(500, 0, -1)]
    flows = [
        Flow("kernel", "a:1", f"b:{n}", "cubic", n, 1.0, n % 2, n, "client") for n in range(500)
    ]
    found = lab_activity.activity(1.0, programs, flows)
    assert [each.cpu_percent for each in found["programs"]] == [500.0 - n for n in range(40)]
    assert [each.acked_bytes for each in found["flows"]] == [499 - 2 * n for n in range(24)], (
        "data in flight first"
    )
    TypeAdapter(lab_activity.Activity).validate_python(found)
