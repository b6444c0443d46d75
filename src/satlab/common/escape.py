# SPDX-License-Identifier: GPL-3.0-or-later
"""Escaping of untrusted text, with one function for each kind of output.

Programs, their logs and qlogs, images, servers and hosts write the text. Whatever it holds, it
stays text: it cannot control a terminal, become markup, name someone in a pull request, or make a
file that its readers refuse.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from rich.text import Text

LONGEST = 4096
"""Longest text in a message or a cell, characters; a longer text is cut off, with a mark."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode: control, formatting (bidirectional, too), surrogates, private, unassigned,
line separators.
"""
_ALWAYS_PLAIN = re.compile(r"[ -~]*")
_PLAIN_MARKDOWN = re.compile(
    r"(?!.*(?://|www\.|GH-\d|mailto:|xmpp:))[\w .,;:()/%=\u00b1\u00d7\u221e\u2212\u2013+-]*",
    re.IGNORECASE,
)
"""Texts that GitHub shows unchanged: without underscores, links, mentions and references to issues.
"""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def visible(text: str, *, keep: str = "", most: int | None = LONGEST) -> str:
    """Return text with hidden characters as `\\x1b` and the like, but for those of `keep`, and cut
    off after `most`.

    The result has only characters that XML 1.0 allows (section 2.2) and that UTF-8 can encode.
    """
    left = 0 if most is None else len(text) - most
    if left > 0:
        text = text[:most]
    if not _ALWAYS_PLAIN.fullmatch(text):
        text = "".join(one if one in keep else _shown(one) for one in text)
    return f"{text}… ({left} characters more)" if left > 0 else text


def _shown(one: str) -> str:
    if unicodedata.category(one) not in _HIDDEN:
        return one
    code = ord(one)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def terminal(text: str) -> "Text":
    """Return text for a cell or a line of rich, which reads no markup in it."""
    from rich.text import Text

    return Text(visible(text))


def lines(text: str) -> str:
    """Return text of several lines for stdout or a file that is read on a terminal, whole."""
    return visible(text, keep="\n\t", most=None)


def html(value: object) -> object:
    """Return text for a template, as jinja's `finalize`: autoescape leaves control characters."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(str(value), keep="\n\t", most=None) if is_text else value


def markdown(text: str) -> str:
    """Return text for a table cell or a heading of Markdown on GitHub; anything but plain words
    becomes code.

    In code, GitHub makes no links, mentions, references or HTML. Backticks and vertical bars, which
    would end the code or the cell, are replaced, because not every reader accepts backslashes
    before them.
    """
    shown = visible(text).strip()
    if _PLAIN_MARKDOWN.fullmatch(shown) and "_" not in shown:
        return shown
    return f"`{shown.replace('`', chr(0x2BC)).replace('|', chr(0xA6))}`"


def xml(text: str) -> str:
    """Return text that XML 1.0 allows; the writer of the XML escapes its markup."""
    return visible(text, keep="\n\t")


def csv(value: object) -> object:
    """Return a cell: text with a quote in front if a spreadsheet would compute it."""
    if not isinstance(value, str):
        return value
    shown = visible(value, keep="\n\r\t", most=None)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def csv_row(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row for `csv.DictWriter`."""
    return {name: csv(value) for name, value in row.items()}
