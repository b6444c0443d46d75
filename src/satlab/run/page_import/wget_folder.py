# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the objects of a page from the folder of a site, such as wget makes it; it may be hostile.

The references of the document are read (`link`, `script`, `img`, `iframe`), but not those of style
sheets. A file counts with its size; if the document lies in a folder, the folders of the
top level are domains (wget --span-hosts).
"""

import os
import stat
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from satlab.common.errors import ConfigError, Fault
from satlab.run.page_import.page_objects import (
    MOST_BYTES,
    MOST_ENTRIES,
    Found,
    Item,
    LeftOutError,
    RefusedError,
    domain,
)

_MOST_OF_DOCUMENT = 4 << 20
_LINKED = {"stylesheet": "stylesheet", "icon": "img", "preload": "img"}
"""The kind of object that the browser loads for a `link` element, by `rel`."""


class _References(HTMLParser):
    """Collects what a document loads: (loaded_as, URL)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the URL of an element that loads an object."""
        values = {key: value or "" for key, value in attrs}
        if tag == "link":
            kinds = [
                _LINKED[word] for word in values.get("rel", "").lower().split() if word in _LINKED
            ]
            self._add(kinds[0] if kinds else "", values.get("href", ""))
        elif tag in ("script", "img", "iframe"):
            self._add(tag, values.get("src", ""))

    def _add(self, kind: str, url: str) -> None:
        if kind and url and len(self.found) <= MOST_ENTRIES:
            self.found.append((kind, url))


def read(folder: Path, document: PurePosixPath) -> Found:
    """Return the objects that `document` (below `folder`) loads from the folder.

    Raises:
        ConfigError: the document cannot be read, or loads too much.
    """
    found = Found()
    top = Path(os.path.realpath(folder))
    try:
        size = _size_of(top, document)
        if size is None or size > _MOST_OF_DOCUMENT:
            raise RefusedError("no such file" if size is None else "has more than 4 MiB")
    except RefusedError as why:
        hint = "name the document by --document, below the folder"
        raise ConfigError(f"{folder / document}: {why}", hint=hint) from why
    references = _References()
    text = (top / document).read_text(encoding="utf-8", errors="replace")
    try:
        references.feed(text)  # without close(), which reads the rest once for each "<" in it
    except AssertionError as error:  # html.parser's, for a broken marked section
        raise ConfigError(f"{folder / document}: is not HTML: {error}"[:200]) from error
    if len(references.found) > MOST_ENTRIES:
        raise ConfigError(f"{folder / document}: loads more than {MOST_ENTRIES} objects")
    found.items.append(Item("document", size, _domain(document) or ""))
    seen: set[PurePosixPath] = set()
    for number, (kind, url) in enumerate(references.found, start=1):
        try:
            path = _path(url, document)
            if path in seen:
                raise LeftOutError("loaded before")
            seen.add(path)
            size, name = _size_of(top, path), _domain(path)
            if name is None:
                raise RefusedError("lies in a folder whose name is not a domain")
            if not size:
                raise LeftOutError("empty, or not in the folder")
        except LeftOutError as why:
            found.left_out[str(why)] += 1
        except RefusedError as why:
            place = f"{folder / document}: reference {number}"
            found.faults.append(Fault(place, str(why), "remove it from the document"))
        else:
            found.items.append(Item(kind, size, name if _is_below(document) else ""))
    return found


def _is_below(document: PurePosixPath) -> bool:
    return len(document.parts) > 1


def _domain(path: PurePosixPath) -> str | None:
    return domain(path.parts[0]) if _is_below(path) else ""


def _path(url: str, document: PurePosixPath) -> PurePosixPath:
    """Return the path below the folder that a reference of the document names.

    Raises RefusedError, LeftOutError.
    """
    try:
        reference = urlsplit(url.strip())
    except ValueError as error:
        raise RefusedError("not a URL") from error
    if reference.scheme == "data":
        raise LeftOutError("data in the document")
    if reference.scheme not in ("", "http", "https"):
        raise RefusedError(f"has the scheme {reference.scheme[:20]!r}, must be http or https")
    if reference.netloc or not reference.path:
        raise LeftOutError("of another site, not in the folder")
    path = unquote(reference.path)
    parts = list(document.parent.parts)
    if path.startswith("/"):
        parts = list(document.parts[: 1 if _is_below(document) else 0])
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise RefusedError("leaves the folder")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return PurePosixPath(*parts)


def _size_of(top: Path, path: PurePosixPath) -> int | None:
    """Return the size of a plain file, None if it is not there. Links are not followed.

    Raises RefusedError.
    """
    place = top / path
    try:
        status = place.lstat()
    except (OSError, ValueError):
        return None
    if path.is_absolute() or ".." in path.parts:
        raise RefusedError("is not below the folder")
    if os.path.realpath(place) != str(place):
        raise RefusedError("is a link, or lies behind one")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("is not a plain file")
    if status.st_size > MOST_BYTES:
        raise RefusedError(f"has more than {MOST_BYTES >> 20} MiB")
    return status.st_size
