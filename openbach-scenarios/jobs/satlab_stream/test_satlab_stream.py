# SPDX-License-Identifier: GPL-3.0-or-later
import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collect import stream

Module = Callable[[str], ModuleType]
MS = 1_000_000


@pytest.fixture
def job(module: Module) -> ModuleType:
    return module("satlab_stream")


# ITU-T G.107: MOS of R (annex B, table B.1: R 90 is 4.34, 80 is 4.03, 70 is 3.60, 60 is 3.10, 50 is
# 2.58).
@pytest.mark.parametrize(
    ("r", "mos"), [(90, 4.34), (80, 4.03), (70, 3.60), (60, 3.10), (50, 2.58), (0, 1.0), (100, 4.5)]
)
@pytest.mark.promise("P38")
def test_scores_are_those_of_the_standard_s_table(job: ModuleType, r: float, mos: float) -> None:
    assert job.mean_opinion_score(r) == pytest.approx(mos, abs=0.01)


def test_an_ideal_call_has_the_default_rating_of_the_standard(job: ModuleType) -> None:
    ideal = job.rating(job.CODECS["g711"], 50.0, [False] * 100)
    assert ideal == 93.2
    assert job.mean_opinion_score(ideal) == pytest.approx(4.41, abs=0.005)


# Idd grows from 100 ms on; a GEO hop alone costs some 20 of 93 points.
@pytest.mark.parametrize(
    ("delay_ms", "idd"), [(100, 0.0), (150, 0.12), (200, 2.99), (300, 14.73), (400, 24.6)]
)
def test_delay_costs_what_the_standard_s_equation_says(
    job: ModuleType, delay_ms: float, idd: float
) -> None:
    assert job.delay_impairment(delay_ms) == pytest.approx(idd, abs=0.6)


def test_losses_cost_by_their_share_and_bursts(job: ModuleType) -> None:
    # G.711 without concealment, 2 % at random: Ie,eff = 95 * 2 / (2 + 4.3).
    scattered = [number % 50 == 7 for number in range(1000)]
    assert job.burst_ratio(scattered) == 1.0
    assert 93.2 - job.rating(job.CODECS["g711"], 0, scattered) == pytest.approx(95 * 2 / 6.3)
    together = [number < 20 for number in range(1000)]
    assert job.burst_ratio(together) == pytest.approx(20 * 0.98)
    assert job.rating(job.CODECS["g711"], 0, together) < job.rating(
        job.CODECS["g711"], 0, scattered
    )
    assert job.burst_ratio([]) == 1.0
    assert job.burst_ratio([True] * 5) == 1.0


def test_delays_losses_duplicates_and_late_packets_are_counted(job: ModuleType) -> None:
    reception = job.Reception()
    for number, delay_ms in ((0, 300), (1, 302), (3, 370), (2, 304), (3, 371)):
        reception.take(number, number * 20 * MS, number * 20 * MS + delay_ms * MS)
    reception.announced = 6
    assert (reception.sent, reception.duplicates) == (6, 1)
    assert reception.lost() == [False, False, False, False, True, True]
    assert reception.lost(60.0) == [False, False, False, True, True, True]
    made = job.document(reception, "g729a", 60.0, 1.0)
    assert made["voice"]["mouth_to_ear_ms"] == 300 + 60 + 20 + 5
    assert made["voice"]["discarded"] == 1
    # RFC 3550, section 6.4.1, over the differences 2, 68 and 66 ms.
    expected = 0.0
    for difference in (2, 68, 66):
        expected += (difference - expected) / 16
    assert made["jitter_ms"] == pytest.approx(expected)


def test_a_stream_from_one_process_to_another(
    udp_port: str, trial: Callable[[str], Any], tmp_path: Path
) -> None:
    test, used = trial("satlab_stream"), udp_port
    receiver = test.start("-p", used, "-c", "g711", "receive", "-b", "127.0.0.1")
    test.ready()
    words = "-c g711 send 127.0.0.1 -t 1 -d 46".split()
    assert test.run("-p", used, *words, JOB_INSTANCE_ID="2")[0] == 0
    output, _ = receiver.communicate(timeout=120)
    assert receiver.returncode == 0, output
    received, sent = (
        json.loads((tmp_path / f"files/satlab_stream-{n}/stream_json.json").read_text())
        for n in (1, 2)
    )
    for each in (received, sent):
        stream.ADAPTER.validate_python(each)
    assert (sent["role"], sent["sent"], received["sent"], received["received"]) == (
        "sender",
        50,
        50,
        50,
    )
    assert all(0 <= delay < 1000 for delay in received["owd_ms"])
    assert 1 <= received["voice"]["mos"] <= 4.5, "1 where a busy host delays the stream"
    (summary,) = [record for record in test.records() if "mos" in record]
    assert summary["loss_ratio"] == 0
    assert len([record for record in test.records() if "owd_ms" in record]) == 50


def test_bytes_that_are_no_stream_are_passed_over(
    udp_port: str, trial: Callable[[str], Any], job: ModuleType, tmp_path: Path
) -> None:
    test, used = trial("satlab_stream"), udp_port
    receiver = test.start("-p", used, "receive", "-b", "127.0.0.1")
    test.ready()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.connect(("127.0.0.1", int(used)))
        hostile = job.HEADER.pack(job.VERSION, 96, 0, 0, 0, 0, 4_000_000_000)
        for packet in (
            b"",
            b"x",
            b"\x00" * 100,
            hostile,
            job.packet(96, 0, 0, 40),
            job.packet(job.END_TYPE, 2, 0, 32),
        ):
            stranger.send(packet)
    assert receiver.wait(120) == 0
    made = json.loads((tmp_path / "files/satlab_stream-1/stream_json.json").read_text())
    assert (made["sent"], made["received"], "voice" in made) == (2, 1, False)


def test_packets_that_nobody_takes_are_lost_and_the_sender_goes_on(
    udp_port: str, trial: Callable[[str], Any], tmp_path: Path
) -> None:
    status, output = trial("satlab_stream").run("-p", udp_port, "send", "127.0.0.1", "-t", "0.2")
    assert status == 0, output
    assert (
        json.loads((tmp_path / "files/satlab_stream-1/stream_json.json").read_text())["sent"] == 10
    )
