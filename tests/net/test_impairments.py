# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose link reorders, duplicates and corrupts: what arrives at a socket."""

import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from satlab.lab import netns
from satlab.run.metrics_file import MetricsFile
from tests.net.conftest import Up

pytestmark = pytest.mark.net

CLIENT, PORT = "198.18.1.2", 7003
COUNT, WORDS = 500, 100
NAMES = ("reordered_packets", "duplicated_packets", "corrupted_packets", "lost_packets")


def payload(number: int) -> bytes:
    """Return a payload that shows its number also with a flipped bit."""
    return number.to_bytes(4, "big") * WORDS


def number_of(got: bytes) -> int:
    [(word, _)] = Counter(got[at : at + 4] for at in range(0, len(got), 4)).most_common(1)
    return int.from_bytes(word, "big")


def flipped_bits(got: bytes, sent: bytes) -> int:
    return sum((one ^ other).bit_count() for one, other in zip(got, sent, strict=True))


@pytest.mark.promise("P5")
def test_datagrams_arrive_out_of_order_twice_and_with_a_flipped_bit(up: Up, lab_id: str) -> None:
    """The kernel takes the checksums of all of them; nothing is lost."""
    the_lab = up(profile="leo", reorder=0.1, duplicate=0.2, corrupt=0.3)
    sender = netns.inside(lab_id, "server", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    receiver = netns.inside(lab_id, "client", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    got: list[bytes] = []
    with sender, receiver:
        receiver.bind((CLIENT, PORT))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
        receiver.settimeout(2)
        for number in range(COUNT):
            sender.sendto(payload(number), (CLIENT, PORT))
            time.sleep(0.001)
        try:
            while True:
                got.append(receiver.recv(2000))
        except TimeoutError:
            pass
    the_lab.down()
    numbers = [number_of(one) for one in got]
    samples = MetricsFile(Path(the_lab.config.metrics)).samples()
    counted = {name: sum(one["forward"][name] for one in samples) for name in NAMES}
    bits = {
        number: flipped_bits(one, payload(number)) for one, number in zip(got, numbers, strict=True)
    }
    assert set(numbers) == set(range(COUNT)) and counted["lost_packets"] == 0
    assert len(numbers) - COUNT == counted["duplicated_packets"] > 50
    assert set(bits.values()) == {0, 1}
    assert sum(bits.values()) == counted["corrupted_packets"] > 90
    first = list(dict.fromkeys(numbers))
    overtaken = [one for at, one in enumerate(first) if one < max(first[:at], default=-1)]
    assert len(overtaken) == counted["reordered_packets"] > 20
