# SPDX-License-Identifier: GPL-3.0-or-later
"""Each lost packet is in one account, and the accounts add up."""

import struct
from ipaddress import IPv4Address
from typing import Any

import pytest

from satlab.check.trace import packet_ledger
from satlab.check.trace.packet_ledger import Ledger
from satlab.check.trace.pcap import Packet

SERVER, CLIENT = IPv4Address("198.18.4.2"), IPv4Address("198.18.1.2")
WHOLE = {
    "sent": 100,
    "entered": 100,
    "dropped": 0,
    "lost": 0,
    "left": 100,
    "arrived": 100,
    "buffer_errors": 0,
}


def counted(**change: Any) -> Ledger:
    return Ledger(**WHOLE | change)


@pytest.mark.parametrize(
    ("change", "by_host", "spurious", "words"),
    [
        ({}, 0, None, "of 100: none lost"),
        ({"dropped": 3, "left": 97, "arrived": 97}, 0, None, "queue 3"),
        ({"lost": 4, "left": 96, "arrived": 96, "reported": 4}, 0, 0, "link 4"),
        ({"entered": 98, "left": 98, "arrived": 98}, 2, None, "host before the link 2"),
        ({"arrived": 95}, 5, None, "host after the link 5"),
        ({"buffer_errors": 6, "reported": 6}, 6, 0, "full socket buffer 6"),
        ({"duplicated": 5, "left": 105, "arrived": 105}, 0, None, "of 100: none lost"),
        ({"corrupted": 5, "reported": 5}, 0, 0, "corrupted 5"),
        ({"left": 93, "arrived": 93, "lost_between_links": 7}, 7, None, "host between the links 7"),
        ({"reported": 7}, 0, 7, "spurious 7"),
        # The field case: the server reports 2968 lost, satlink lost and dropped nothing.
        ({"buffer_errors": 30, "reported": 31}, 30, 1, "full socket buffer 30, spurious 1"),
    ],
)
def test_a_planted_loss_goes_into_its_own_account(
    change: dict[str, Any], by_host: int, spurious: int | None, words: str
) -> None:
    found = counted(**change)
    assert (found.by_host, found.spurious, found.unaccounted) == (by_host, spurious, 0)
    assert words in found.text
    document = found.document()
    parts = (
        "lost_before_link",
        "dropped",
        "lost",
        "lost_between_links",
        "unaccounted",
        "lost_after_link",
    )
    lost = sum(document[name] for name in (*parts, "buffer_errors"))
    sent = found.sent + found.duplicated
    assert lost == sent - (found.arrived - found.buffer_errors)


def test_a_packet_that_the_link_neither_lost_nor_released_is_unaccounted() -> None:
    assert counted(left=99, arrived=99).unaccounted == 1


@pytest.mark.parametrize(
    ("change", "is_host"),
    [
        ({}, False),
        ({"dropped": 3, "left": 97, "arrived": 97}, False),
        ({"buffer_errors": 3}, True),
        ({"arrived": 96}, True),
        ({"dropped": 3, "left": 97, "arrived": 97, "buffer_errors": 3}, False),
    ],
)
def test_the_host_is_blamed_when_it_lost_most(change: dict[str, Any], is_host: bool) -> None:
    assert (
        packet_ledger.blames_host({"forward": counted(**change).document()}, "forward") is is_host
    )
    assert not packet_ledger.blames_host({"forward": counted(**change).document()}, "return")
    assert not packet_ledger.blames_host(None, "forward")


def packet(source: IPv4Address, length: int, protocol: int = 17) -> Packet:
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, protocol, 0, source.packed, CLIENT.packed
    )
    return Packet(0, length, head)


def test_the_packets_of_a_source_are_counted() -> None:
    packets = [packet(SERVER, 1280), packet(SERVER, 84, 1), packet(CLIENT, 80), Packet(0, 90, b"")]
    assert packet_ledger.packets_from(packets, SERVER) == 2
    assert packet_ledger.packets_from(packets, CLIENT) == 1


def test_a_direction_is_counted_on_both_of_its_links() -> None:
    def line(taken: int, released: int, dropped: int = 0, lost: int = 0) -> dict[str, int]:
        return {
            "in_packets": taken,
            "out_packets": released,
            "dropped_packets": dropped,
            "lost_packets": lost,
        }

    sample = {
        "terrestrial_down": line(10, 9, lost=1),
        "forward": line(9, 6, dropped=2, lost=1),
        "return": line(5, 5),
        "terrestrial_up": line(5, 4, lost=1),
    }
    down = packet_ledger.of("forward", 22, 12, [sample, sample], 1, reported=3)
    assert (down.entered, down.dropped, down.lost, down.left) == (20, 4, 4, 12)
    assert down.unaccounted == 0
    assert (down.lost_before_link, down.by_host) == (2, 3)
    up = packet_ledger.of(
        "return", 10, 8, [sample, sample, {"return": None, "terrestrial_up": None}], 0
    )
    assert (up.entered, up.lost, up.left, up.by_host) == (10, 2, 8, 0)
