# SPDX-License-Identifier: GPL-3.0-or-later
"""The 28 MODCODs of DVB-S2: names, and the rate of a forward link when its MODCOD changes."""

from collections.abc import Mapping
from typing import Any

_CODE_RATES = {
    "1/4": 16008,
    "1/3": 21408,
    "2/5": 25728,
    "1/2": 32208,
    "3/5": 38688,
    "2/3": 43040,
    "3/4": 48408,
    "4/5": 51648,
    "5/6": 53840,
    "8/9": 57472,
    "9/10": 58192,
}
"""BCH block of a normal FECFRAME by code rate, bits (EN 302 307-1 table 5a)."""
_ORDER = (
    ("QPSK", 2, ("1/4", "1/3", "2/5", "1/2", "3/5", "2/3", "3/4", "4/5", "5/6", "8/9", "9/10")),
    ("8PSK", 3, ("3/5", "2/3", "3/4", "5/6", "8/9", "9/10")),
    ("16APSK", 4, ("2/3", "3/4", "4/5", "5/6", "8/9", "9/10")),
    ("32APSK", 5, ("3/4", "4/5", "5/6", "8/9", "9/10")),
)
"""MODCODs 1 to 28 in the order of table 12: modulation, bits per symbol, code rates."""
_FECFRAME, _SLOT, _HEADER = 64800, 90, 80
"""Bits of a normal FECFRAME, symbols of a slot, bits of a BBHEADER."""


def _efficiency(bits: int, code_rate: str) -> float:
    """Return bits per symbol without pilots (table 13): a PLFRAME has a slot of header."""
    return (_CODE_RATES[code_rate] - _HEADER) / (_FECFRAME // bits + _SLOT)


_MODCODS = tuple(
    (f"{name} {rate}", _efficiency(bits, rate)) for name, bits, rates in _ORDER for rate in rates
)


def name(modcod_id: int) -> str:
    """Return the name of a MODCOD, its number if DVB-S2 has none with it."""
    return _MODCODS[modcod_id - 1][0] if 1 <= modcod_id <= len(_MODCODS) else f"MODCOD {modcod_id}"


def efficiency(modcod_id: int) -> float:
    """Return the bits per symbol of a MODCOD with normal FECFRAMEs, without pilots. Raises
    ValueError for an unknown one.
    """
    if not 1 <= modcod_id <= len(_MODCODS):
        raise ValueError(f"DVB-S2 has no MODCOD {modcod_id}")
    return _MODCODS[modcod_id - 1][1]


def forward_rate_bps(segment: Mapping[str, Any], modcod_id: int) -> float | None:
    """Return the rate of a plan's forward link (schemas/link-plan.schema.json) with a MODCOD, bit/s
    of frame payload.

    The plan's rate is exact for its own MODCOD. For others it follows from the ratio of the
    efficiencies; short FECFRAMEs and pilots change it by some percent. None if one of the two is
    unknown.
    """
    try:
        return (
            float(segment["rate_bps"])
            * efficiency(modcod_id)
            / efficiency(int(segment["modcod_id"]))
        )
    except (KeyError, TypeError, ValueError):
        return None
