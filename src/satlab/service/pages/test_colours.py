# SPDX-License-Identifier: GPL-3.0-or-later
"""Contrast of texts and curves on the pages, after WCAG 2.2."""

import re

import pytest

from satlab.service.pages.session_routes import STATIC


def luminance(colour: str) -> float:
    """Relative luminance after WCAG 2.2."""
    shares = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


TEXTS = [
    (text, ground) for text in ("text", "muted", "link", "bad") for ground in ("bg", "card", "grid")
]
TEXTS += [("good", "good-bg"), ("bad", "bad-bg"), ("good", "card")]
LINES = [(curve, "card") for curve in ("c1", "c2", "c3", "c4", "c5", "c6")] + [("muted", "bg")]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_curves_stand_out(theme: int) -> None:
    """WCAG 2.2, 1.4.3: texts 4.5 to 1; 1.4.11: curves and lines 3 to 1."""
    rules = re.findall(r":root[^{]*{([^}]*)}", STATIC["base.css"][0].read_text())
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rules[theme]))
    weak = [pair for pair in TEXTS if contrast(colours[pair[0]], colours[pair[1]]) < 4.5]
    weak += [pair for pair in LINES if contrast(colours[pair[0]], colours[pair[1]]) < 3]
    assert not weak, {pair: round(contrast(*(colours[name] for name in pair)), 2) for pair in weak}
    assert contrast("#0b5cad", "#ffffff") >= 4.5, "the main button"
