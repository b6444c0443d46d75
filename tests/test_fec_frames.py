# SPDX-License-Identifier: GPL-3.0-or-later
"""What the FEC tunnel sends, decoded by a decoder that is not its own (`rlc_decoder`).

`crates/fec/examples/frames.rs` writes the frames of a stream and says which are lost.
"""

import subprocess

import pytest

from satlab.common import paths
from tests import rlc_decoder

FRAMES = paths.PROGRAMS / "examples" / "frames"


def test_the_second_decoder_has_the_values_of_the_rfcs() -> None:
    """RFC 8682 figure 2 and RFC 8681 appendix A, seed 1; and the field's polynomial."""
    state = rlc_decoder.tinymt32(1)
    first = [2545341989, 981918433, 3715302833, 2387538352, 3591001365]
    assert [rlc_decoder.draw(state) for _ in first] == first
    assert rlc_decoder.coefficients(1, rlc_decoder.FULL_DENSITY, 10) == [
        37,
        225,
        177,
        176,
        21,
        246,
        54,
        139,
        168,
        237,
    ]
    assert rlc_decoder.times(0x80, 2) == 0x1D


@pytest.mark.parametrize("code", ["10,100", "5,100", "2,30", "1,4", "3,9"])
def test_a_second_decoder_recovers_the_same_packets(code: str) -> None:
    assert FRAMES.exists(), f"{FRAMES} is not built: cargo build --release --examples"
    recovered, lost = 0, 0
    for seed in range(3):
        done = subprocess.run(
            [FRAMES, code, str(seed)], check=True, capture_output=True, text=True, timeout=60
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        decoder = rlc_decoder.Decoder()
        for _, frame in (line for line in lines if line[0] == "kept"):
            decoder.take(bytes.fromhex(frame))
        gone = rlc_decoder.Decoder()
        for _, frame in (line for line in lines if line[0] == "lost"):
            gone.take(bytes.fromhex(frame))
        found = decoder.recover()
        assert found.items() <= gone.packets.items()
        assert sorted(found) == sorted(int(number) for kind, number in lines if kind == "recovered")
        recovered, lost = recovered + len(found), lost + len(gone.packets)
    assert 0 < recovered <= lost
