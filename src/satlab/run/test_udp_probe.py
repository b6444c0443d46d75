# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of a train, and the programs over loopback."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from satlab.run import udp_probe
from satlab.run.udp_probe import END, ENDS, TRAIN, TRAIN_BYTES, Endpoint, Train

KEY = bytes(range(8))
TOTAL = 2000
FRAME_NS = 800_000


def arrived(train: Train, *, lost: int = 0, pause_ns: int = 0) -> Train:
    """Give a train two packets at the end of each frame: 2500 packets/s. `lost`: each such packet;
    `pause_ns`: how much later the first half arrives.
    """
    for number in range(TOTAL):
        if not lost or number % lost:
            at_ns = 10**18 + number // 2 * FRAME_NS + (pause_ns if 2 * number < TOTAL else 0)
            train.add(number, TOTAL, at_ns)
    return train


@pytest.mark.parametrize(("lost", "share"), [(0, 1.0), (10, 0.9)])
def test_the_rate_is_that_of_the_second_half(lost: int, share: float) -> None:
    train = arrived(Train(), lost=lost, pause_ns=10**7)
    assert train.rate_bps() == pytest.approx(2500 * TRAIN_BYTES * 8 * share, rel=2e-3)
    assert train.received == TOTAL * share


def test_duplicates_and_numbers_beyond_the_train_do_not_count() -> None:
    train = arrived(Train())
    rate_bps = train.rate_bps()
    for number in (0, TOTAL - 1, TOTAL, 2**32 - 1):
        train.add(number, TOTAL, 2 * 10**18)
    assert (train.received, train.rate_bps()) == (TOTAL, rate_bps)
    huge = Train()
    huge.add(1, 2**62, 1)
    assert huge.received == 1, "and what the datagram says of its train takes no memory"


def test_a_train_of_one_instant_has_no_rate() -> None:
    train = Train()
    for number in range(TOTAL):
        train.add(number, TOTAL, 10**18)
    assert (train.received, train.rate_bps()) == (TOTAL, None)


@pytest.fixture
def ends() -> Iterator[tuple[Endpoint, Endpoint]]:
    one, other = (Endpoint(KEY, "127.0.0.1", 0) for _ in range(2))
    with closing(one.socket), closing(other.socket):
        yield one, other


def test_echoes_come_back_and_all_of_a_train_arrives(ends: tuple[Endpoint, Endpoint]) -> None:
    here, there = ends
    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(udp_probe.answer, there, 20.0)
        sent = udp_probe.send(here, there.socket.getsockname(), 3, 0.001, 20e6, 0.05, 20.0)
        got = answering.result()
    assert sent.sent == got.received == 84
    assert len(sent.rtts_ms) == 3 and None not in sent.rtts_ms


def test_the_time_for_which_an_echo_was_held_is_no_part_of_its_rtt(
    ends: tuple[Endpoint, Endpoint],
) -> None:
    here, there = ends
    held_ns = 5 * 10**12
    reply = here.datagram(udp_probe.REPLY, 0, held_ns)
    there.socket.sendto(reply, here.socket.getsockname())
    found = udp_probe.send(here, there.socket.getsockname(), 1, 0, 0, 0, 1.0)
    [rtt_ms] = found.rtts_ms
    assert rtt_ms is not None and rtt_ms < -held_ns / 1e6 + 1e6


def test_t82_datagrams_without_the_key_are_neither_answered_nor_counted(
    ends: tuple[Endpoint, Endpoint],
) -> None:
    here, there = ends
    stranger = Endpoint(KEY[::-1], "127.0.0.1", 0)
    to = there.socket.getsockname()
    with closing(stranger.socket):
        for kind in (udp_probe.ECHO, TRAIN, *[END] * ENDS):
            stranger.socket.sendto(stranger.datagram(kind, ENDS - 1, 10), to)
        here.socket.sendto(b"short", to)
        here.socket.sendto(here.datagram(TRAIN, 1, 10), to)
        here.socket.sendto(here.datagram(END, ENDS - 1, 10), to)
        assert udp_probe.answer(there, 20.0).received == 1
        with pytest.raises(BlockingIOError):
            stranger.socket.recv(1, socket.MSG_DONTWAIT)


def test_who_hears_nothing_ends_by_itself(ends: tuple[Endpoint, Endpoint]) -> None:
    _, there = ends
    assert udp_probe.answer(there, 0.001) == (0, None)
