# SPDX-License-Identifier: GPL-3.0-or-later
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collect import stream
from satlab.common import paths

MS = 1_000_000


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_load")


# Standard deviation over mean, of each distribution with its default shape.
SPREAD = {
    "constant": 0.0,
    "uniform": 0.5 / 3**0.5,
    "exponential": 1.0,
    "normal": 0.25,
    "gamma": 0.5**0.5,
    "weibull": 1.462,
}


@pytest.mark.parametrize(
    "name", ["constant", "uniform", "exponential", "normal", "gamma", "pareto", "weibull"]
)
@pytest.mark.promise("P51")
def test_a_distribution_has_its_mean_and_spread(job: ModuleType, name: str) -> None:
    source = random.Random(7)  # noqa: S311
    drawn = job.quantity(name, 20.0, 3.0 if name == "pareto" else None)
    values = [drawn.draw(source) for _ in range(100_000)]
    assert statistics.fmean(values) == pytest.approx(20.0, rel=0.03)
    if name in SPREAD:
        assert statistics.pstdev(values) / 20.0 == pytest.approx(SPREAD[name], rel=0.05)
    else:  # of shape 3: the least value is two thirds of the mean, and the deviation is 0.577 of it
        assert min(values) == pytest.approx(20.0 * 2 / 3, rel=0.01)


def test_all_named_distributions_are_those_of_the_descriptor(job: ModuleType) -> None:
    assert set(SPREAD) | {"pareto"} == set(job.DISTRIBUTIONS)
    text = (paths.JOBS / "satlab_load/files/satlab_load.yml").read_text()
    assert text.count(f"choices: [{', '.join(job.DISTRIBUTIONS)}]") == 2


def test_equal_seeds_send_equal_packets(job: ModuleType) -> None:
    gap, size = job.quantity("exponential", 10.0, None), job.quantity("pareto", 600.0, None)

    def load(seed: int, flows: int = 3) -> list[Any]:
        return list(job.packets(flows, seed, gap, size, 5.0))

    assert load(1) == load(1) != load(2)
    assert [packet for packet in load(1) if packet.flow == 0] == load(1, flows=1), (
        "a flow has numbers of its own"
    )
    assert [packet.due_s for packet in load(1)] == sorted(packet.due_s for packet in load(1))
    assert all(job.MIN_BYTES <= packet.size <= job.MAX_BYTES for packet in load(1))
    assert 1200 < len(load(1)) < 1800, "three flows of 100 packets per second, 5 s"
    for flow in range(3):
        numbers = [packet.number for packet in load(1) if packet.flow == flow]
        assert numbers == list(range(len(numbers)))


def datagram(
    job: ModuleType, kind: int, flow: int, number: int, sent_ns: int, size: int = 100
) -> bytes:
    content: bytes = job.HEADER.pack(job.MARK, kind, 2, flow, number, sent_ns)
    return content.ljust(size, b"\0")


def test_delay_jitter_losses_and_rate_of_flows(job: ModuleType) -> None:
    reception = job.Reception()
    for flow, number, delay_ms in (
        (0, 0, 300),
        (1, 0, 310),
        (0, 1, 302),
        (1, 1, 310),
        (0, 3, 366),
        (0, 3, 367),
    ):
        sent_ns = 1_000_000_000 + number * 20 * MS
        assert not reception.take(
            datagram(job, job.DATA, flow, number, sent_ns), sent_ns + delay_ms * MS
        )
    assert not reception.take(datagram(job, job.END, 0, 5, 0), 0)
    assert reception.take(datagram(job, job.END, 1, 2, 0), 0), "the ends of both flows have come"
    made = reception.document(1.0)
    stream.ADAPTER.validate_python(made)
    assert (made["sent"], made["received"], made["duplicates"]) == (7, 5, 1)
    assert made["owd_ms"] == [300, 310, 302, 310, 366]
    expected = 0.0
    for difference in (2, 64):  # RFC 3550, section 6.4.1; the other flow has none
        expected += (difference - expected) / 16
    assert made["jitter_ms"] == pytest.approx(expected / 2)
    assert made["load"] == {"flows": 2, "bytes": 500, "active_s": pytest.approx(0.126)}
    assert reception.burst_ratio() == 1.0, "two single losses"


def test_bytes_that_are_no_load_are_passed_over(job: ModuleType) -> None:
    reception = job.Reception()
    hostile = [
        b"",
        b"x" * 24,
        job.HEADER.pack(job.MARK, 0, 2, 2, 0, 0),
        job.HEADER.pack(job.MARK, 0, 200, 1, 0, 0),
        job.HEADER.pack(job.MARK, 0, 2, 1, 2**60, 0),
    ]
    assert not any(reception.take(each, 1) for each in hostile)
    assert not reception.flows
    reception.take(datagram(job, job.DATA, 0, 0, 1), 2)
    assert not reception.take(job.HEADER.pack(job.MARK, job.END, 1, 0, 1, 0), 3), "of another load"
    assert reception.sent == 1


def test_a_load_from_one_process_to_another(
    udp_port: str, trial: Callable[[str], Any], tmp_path: Path
) -> None:
    test, used = trial("satlab_load"), udp_port
    receiver = test.start("-p", used, "receive", "-b", "127.0.0.1")
    test.ready()
    words = "send 127.0.0.1 -t 1 -f 2 --gap exponential --size uniform --seed 5".split()
    assert test.run("-p", used, *words, JOB_INSTANCE_ID="2")[0] == 0
    output, _ = receiver.communicate(timeout=120)
    assert receiver.returncode == 0, output
    received, sent = (
        json.loads((tmp_path / f"files/satlab_load-{n}/stream_json.json").read_text())
        for n in (1, 2)
    )
    for each in (received, sent):
        stream.ADAPTER.validate_python(each)
    assert sent["sent"] == received["sent"] == received["received"] > 50
    assert sent["load"]["bytes"] == received["load"]["bytes"]
    assert all(0 <= delay < 1000 for delay in received["owd_ms"])
    (summary,) = [record for record in test.records() if "loss_ratio" in record]
    assert summary["loss_ratio"] == 0
    assert len([record for record in test.records() if "rate_bps" in record]) == 2
    times = [record["_metadata"]["time"] for record in test.records() if "owd_ms" in record]
    assert times == sorted(times)
    assert times[-1] - times[0] > 500, "each delay at the time of its packet"
