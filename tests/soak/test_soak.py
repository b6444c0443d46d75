# SPDX-License-Identifier: GPL-3.0-or-later
"""Some rounds of the soak."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import serve_round
from tests.soak.soak import Round

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
ROUNDS = {
    0: ("up", "stop"),
    2: ("check", "kill"),
    4: ("run", "stop"),
    5: ("serve", "full"),
    7: ("serve", "kill"),
}


@pytest.fixture(scope="module", autouse=True)
def _no_state_left() -> Iterator[None]:
    yield
    serve_round.clean_up()


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.promise("P25")
def test_a_round_leaves_nothing_and_loses_nothing(number: int, tmp_path: Path) -> None:
    played = Round(number, tmp_path)
    assert (played.command, played.blow) == ROUNDS[number]
    assert played.play() == []
