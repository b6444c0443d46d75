# SPDX-License-Identifier: GPL-3.0-or-later
import pytest

from satlab.link import modcods


@pytest.mark.parametrize(
    ("number", "name", "bits_per_symbol"),
    [
        (1, "QPSK 1/4", 0.490243),
        (11, "QPSK 9/10", 1.788612),
        (12, "8PSK 3/5", 1.779991),
        (18, "16APSK 2/3", 2.637201),
        (24, "32APSK 3/4", 3.703295),
        (28, "32APSK 9/10", 4.453027),
    ],
)
def test_names_and_efficiencies_are_those_of_table_13(
    number: int, name: str, bits_per_symbol: float
) -> None:
    assert modcods.name(number) == name
    assert modcods.efficiency(number) == pytest.approx(bits_per_symbol, abs=1e-6)


def test_a_rate_follows_the_modcod() -> None:
    segment = {"rate_bps": 19_609_726.0, "modcod_id": 1}
    assert modcods.forward_rate_bps(segment, 1) == 19_609_726.0
    assert modcods.forward_rate_bps(segment, 4) == pytest.approx(
        19_609_726.0 * 0.988858 / 0.490243, rel=1e-5
    )


@pytest.mark.parametrize("number", [0, 29, -1])
def test_an_unknown_modcod_has_no_rate(number: int) -> None:
    assert modcods.forward_rate_bps({"rate_bps": 1.0, "modcod_id": 1}, number) is None
    assert modcods.forward_rate_bps({"rate_bps": 1.0, "modcod_id": number}, 1) is None
    assert modcods.forward_rate_bps({}, 1) is None
    assert modcods.name(number) == f"MODCOD {number}"
