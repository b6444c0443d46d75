# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses that a client takes, and when packets from them arrived."""

from satlab.flows import connection_migration
from satlab.flows.connection_migration import arrivals

ONE, OTHER = "198.18.1.2", "198.18.1.130"


def test_a_client_has_two_addresses_and_takes_one_after_the_other() -> None:
    assert connection_migration.other(ONE) == OTHER
    assert connection_migration.other(OTHER) == ONE
    assert [connection_migration.taken(ONE, index) for index in range(3)] == [OTHER, ONE, OTHER]


def test_a_migration_is_the_first_packet_from_its_address_from_its_moment_on() -> None:
    runs = [(0.1, ONE), (5.06, OTHER), (7.07, ONE)]
    assert arrivals(runs, [5, 7], ONE) == [5.06, 7.07]
    assert arrivals(runs, [5, 7, 9], ONE) == [5.06, 7.07, None]
    assert arrivals(runs[:1], [5], ONE) == [None]
    assert arrivals([], [5], ONE) == [None]


def test_a_client_that_probes_sends_from_both_addresses_for_a_while() -> None:
    runs = [(0.1, ONE), (4.98, OTHER), (5.0, ONE), (5.1, OTHER), (8.05, ONE)]
    assert arrivals(runs, [5, 8], ONE) == [4.98, 8.05]
