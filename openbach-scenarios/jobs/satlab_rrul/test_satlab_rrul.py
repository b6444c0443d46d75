# SPDX-License-Identifier: GPL-3.0-or-later
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from collect import rrul


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_rrul")


def test_only_the_first_reply_to_a_packet_of_this_measurement_counts(job: ModuleType) -> None:
    probes, other = job.Probes(b"12345678"), job.Probes(b"abcdefgh")
    first, second, foreign = probes.packet(0.0), probes.packet(0.1), other.packet(0.0)
    assert probes.take(second, 0.7) == pytest.approx(600)
    assert probes.take(second, 0.8) is None, "a duplicate"
    assert probes.take(foreign, 0.7) is None
    assert probes.take(first[:-1], 0.7) is None
    assert probes.take(job.HEADER.pack(job.MARK, probes.name, 9).ljust(64, b"\0"), 1.0) is None
    assert probes.rtt_ms == [None, pytest.approx(600)]


def test_a_flood_of_replies_does_not_hold_up_the_end(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def take(probing: Any) -> None:
        taken.append(probing)
        assert len(taken) < 100_000

    monkeypatch.setattr(job.Probing, "_take", take)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        asked = iter([False, True])
        job.Probing(one, job.Probes(b"12345678"), 0.0, 0.01).until(lambda _: next(asked))
    assert taken


def test_what_iperf3_says_of_a_failure_is_bounded(job: ModuleType, tmp_path: Any) -> None:
    class Ended:
        returncode = 1

    output = tmp_path / "0.json"
    for text, fault in (
        ('{"error": "unable to connect"}', "iperf3: unable to connect"),
        ('{"end": {}}', ""),
        ("", "iperf3: iperf3 printed no JSON, exit status 1"),
        ('{"error": "' + "x" * 10_000 + '"}', "iperf3: " + "x" * 292),
    ):
        output.write_text(text)
        assert job.Transfer(Ended(), output).fault() == fault


def test_a_listening_port_is_found(job: ModuleType) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not job.is_bound(("tcp", "tcp6"), port)
        listener.listen()
        assert job.is_bound(("tcp", "tcp6"), port)


def measured(**changes: Any) -> rrul.Rrul:
    probes = [(n / 10, 50.0) for n in range(50)] + [(5 + n / 10, 80.0 + n) for n in range(100)]
    about: dict[str, Any] = {
        "schema": "satlab/rrul/1",
        "start_unix_s": 1010.0,
        "server": "198.18.4.2",
        "interval_s": 0.1,
        "idle_s": 5.0,
        "settle_s": 2.0,
        "duration_s": 10.0,
        "flows": 4,
        "load_start_s": 5.0,
        "fault": "",
        "probes": probes,
    }
    return rrul.Rrul.model_validate(about | changes)


def test_the_loaded_path_is_that_of_the_settled_load() -> None:
    found = rrul.records(measured(), {}, 1000.0)
    one = {
        (r.metric, r.labels.get("phase"), r.labels.get("stat")): r.value
        for r in found
        if r.t_s is None
    }
    assert one["probe_rtt_ms", "idle", "median"] == 50
    assert one["probe_rtt_ms", "loaded", "median"] == pytest.approx(80 + (20 + 99) / 2)
    assert one["probe_rtt_ms", "loaded", "p99"] == 80 + 99
    trimmed = 80 + (20 + 95) / 2  # 76 of 80 packets: the 95th percentile is the 76th
    assert one["responsiveness_rpm", None, None] == pytest.approx(60_000 / trimmed)
    assert one["probe_loss_ratio", "loaded", None] == 0
    first = next(r for r in found if r.t_s is not None)
    assert (first.t_s, first.value) == (10.0, 50.0)


def test_lost_packets_are_a_ratio_and_a_silent_path_is_a_failed_sample() -> None:
    lossy = [(s, None if s >= 7 and n % 2 else rtt) for n, (s, rtt) in enumerate(measured().probes)]
    found = rrul.records(measured(probes=lossy), {}, 1000.0)
    lost = {r.labels["phase"]: r.value for r in found if r.metric == "probe_loss_ratio"}
    assert lost == {"idle": 0, "loaded": 0.5}
    silent = [(s, rtt if s < 5 else None) for s, rtt in measured().probes]
    (one,) = rrul.records(measured(probes=silent), {}, 1000.0)
    assert (one.status, one.reason) == ("failed", "no reply while loaded")
    (one,) = rrul.records(measured(fault="stopped"), {}, 1000.0)
    assert (one.metric, one.status, one.reason) == ("responsiveness_rpm", "failed", "stopped")
