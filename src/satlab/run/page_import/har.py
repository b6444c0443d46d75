# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the objects of a page from a HAR file (version 1.2, J. Odvarko, 2010), which may be hostile,
also compressed: gzip, or the only HAR file of a zip archive.

Only these parts of an entry are read: start; method and URL of the request (path and query only to
find repetitions and the document) and its header Sec-Fetch-Dest; status, sizes and
`content.mimeType` of the answer; and `content.text`, to check its base64. Of a page its title,
which is the document's URL in Chromium.
"""

import base64
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from satlab.common.archive import GZIP, ArchiveError, Gunzip
from satlab.common.errors import ConfigError, Fault
from satlab.run.page_import.page_objects import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_READ,
    Found,
    Item,
    LeftOutError,
    RefusedError,
    domain,
    loaded_as,
)

VERSIONS = ("1.1", "1.2")
_SHORTER = "export one page load, without content"
_AGAIN = "record the page's load anew, with the browser's cache disabled"
_MOST_OF_URL = 2 << 20
"""Chromium's limit."""
_MOST_OF_TIME = 40
_NO_REQUEST = (
    "about",
    "blob",
    "chrome",
    "chrome-extension",
    "chrome-untrusted",
    "data",
    "devtools",
    "edge",
    "filesystem",
    "moz-extension",
    "ms-browser-extension",
    "resource",
    "safari-extension",
    "safari-web-extension",
    "view-source",
    "ws",
    "wss",
)
"""Schemes that browsers list although no object is fetched."""
_FRAMES = ("embed", "fencedframe", "frame", "iframe", "object")
"""Values of Sec-Fetch-Dest (Fetch Metadata) for documents in a document."""
_ZIP = b"PK\3\4"
_ZIP_ENTRY = b"PK\1\2"
_MOST_IN_ZIP = 10_000


@dataclass(frozen=True)
class _Entry:
    """An entry with its number in the file; `started_s` is None where it has no readable time."""

    number: int
    content: Any
    started_s: float | None

    @property
    def page(self) -> object:
        return self.content.get("pageref") if isinstance(self.content, dict) else None

    @property
    def destination(self) -> str:
        """Return the request's Sec-Fetch-Dest, '' without one."""
        headers = self.content["request"].get("headers")
        for header in headers if isinstance(headers, list) else ():
            if isinstance(header, dict) and str(header.get("name")).lower() == "sec-fetch-dest":
                return str(header.get("value")).lower()
        return ""

    def is_before(self, other: "_Entry") -> bool:
        """Return whether it is known to have started before another one."""
        if self.started_s is None or other.started_s is None:
            return False
        return self.started_s < other.started_s


@dataclass(frozen=True)
class _Answered:
    """An entry that may be an object of the page."""

    entry: _Entry
    url: str
    item: Item

    @property
    def may_be_document(self) -> bool:
        """Return whether it is HTML, and not known to be that of a frame."""
        return self.item.loaded_as == "iframe" and self.entry.destination not in _FRAMES


@dataclass(frozen=True)
class _Unused:
    """HTML that was left out, and why."""

    entry: _Entry
    url: str
    reason: str


def read(file: Path) -> Found:
    """Return the first page of a HAR file, its document first, the other objects by their start.

    Raises:
        ConfigError: it is not a HAR file, or too large, or has no document.
    """
    log = _log(file)
    entries = _by_time(log["entries"])
    found = Found()
    answered: dict[str, _Answered] = {}
    unused: list[_Unused] = []
    page: object = None
    # An entry need not name a page. If the file has one page, it is of that.
    has_pages = len({repr(one.page) for one in entries if one.page is not None}) > 1
    for entry in entries:
        place = f"{file}: entry {entry.number}"
        try:
            url, item = _item(entry.content)
        except RefusedError as why:
            found.faults.append(Fault(place, str(why), why.remedy or "remove the entry"))
            continue
        except LeftOutError as why:
            found.left_out[str(why)] += 1
            if _is_document_in_vain(entry):
                url = entry.content["request"]["url"].partition("#")[0]
                unused.append(_Unused(entry, url, str(why)))
            continue
        page = entry.page if page is None else page
        if entry.page is None and has_pages:
            found.left_out["of no page of the file"] += 1
        elif entry.page not in (None, page):
            found.left_out["of another page of the file"] += 1
        elif url in answered:
            found.left_out["requested before"] += 1
        else:
            answered[url] = _Answered(entry, url, item)
    document = _document(answered, _title(log, page))
    if document is not None:
        _check_first(file, document, unused)
        found.items = list(_objects(document, answered, found))
    elif not found.faults:
        raise ConfigError(f"{file}: no entry is an HTML document that was answered", hint=_AGAIN)
    return found


def _document(answered: Mapping[str, _Answered], title: str) -> _Answered | None:
    """Return the document of the navigation: the one that the browser names, else the first."""
    documents = [one for one in answered.values() if one.may_be_document]
    named = [one for one in documents if one.entry.destination == "document"]
    named += [one for one in documents if one.url == title]
    return next(iter([*named, *documents]), None)


def _check_first(file: Path, document: _Answered, unused: list[_Unused]) -> None:
    """Raise ConfigError if an earlier document was not usable: then this one is that of a frame."""
    if document.entry.destination == "document":
        return
    for one in unused:
        pages = {repr(each.page) for each in (one.entry, document.entry) if each.page is not None}
        if one.entry.is_before(document.entry) and one.url != document.url and len(pages) < 2:
            raise ConfigError(
                f"{file}: entry {one.entry.number}: the document is {one.reason}", hint=_AGAIN
            )


def _objects(
    document: _Answered, answered: Mapping[str, _Answered], found: Found
) -> Iterator[Item]:
    """Yield the document and what was not requested before it."""
    first = document.item
    yield Item("document", first.size_bytes, first.domain, first.is_compressed)
    for one in answered.values():
        if one.entry.is_before(document.entry):
            found.left_out["before the document"] += 1
        elif one is not document:
            yield one.item


def _is_document_in_vain(entry: _Entry) -> bool:
    """Return whether an entry that is left out is HTML of an address, and no redirect."""
    response = entry.content.get("response")
    content = response.get("content") if isinstance(response, dict) else None
    mime = content.get("mimeType") if isinstance(content, dict) else None
    if not isinstance(mime, str) or loaded_as(mime) != "iframe" or entry.destination in _FRAMES:
        return False
    url, status = entry.content["request"].get("url"), response.get("status")
    is_redirect = type(status) is int and 300 <= status < 400 and status != 304
    return isinstance(url, str) and _scheme(url) in ("http", "https") and not is_redirect


def _title(log: Mapping[str, Any], page: object) -> str:
    pages = log.get("pages")
    for one in pages if isinstance(pages, list) else ():
        if isinstance(one, dict) and one.get("id") == page:
            return str(one.get("title"))[:_MOST_OF_URL].partition("#")[0]
    return ""


def _by_time(entries: list[Any]) -> list[_Entry]:
    """Return the entries in the order of their start: browsers do not sort them.

    An entry without a readable time keeps its place behind the one before it in the file.
    """
    listed = [
        _Entry(number, content, _started_s(content))
        for number, content in enumerate(entries, start=1)
    ]
    order: dict[int, float] = {}
    last_s = min((one.started_s for one in listed if one.started_s is not None), default=0.0)
    for one in listed:
        last_s = last_s if one.started_s is None else one.started_s
        order[one.number] = last_s
    return sorted(listed, key=lambda one: order[one.number])


def _started_s(entry: object) -> float | None:
    text = entry.get("startedDateTime") if isinstance(entry, dict) else None
    if not isinstance(text, str) or len(text) > _MOST_OF_TIME:
        return None
    try:
        started = datetime.fromisoformat(text)
        return started.replace(tzinfo=started.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _log(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(_text(file), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file}: not JSON: {str(error)[:100]}", hint="export it as HAR again"
        ) from error
    log = document.get("log") if isinstance(document, dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(log, dict) or not isinstance(entries, list):
        raise ConfigError(
            f"{file}: not a HAR file: log.entries is not a list", hint="export it as HAR again"
        )
    if (log.get("version") or VERSIONS[0]) not in VERSIONS:  # HAR 1.2: without one it is 1.1
        raise ConfigError(
            f"{file}: log.version is not {' or '.join(VERSIONS)}", hint="export it as HAR 1.2"
        )
    if len(entries) > MOST_ENTRIES:
        raise ConfigError(
            f"{file}: {len(entries)} entries, at most {MOST_ENTRIES} are read", hint=_SHORTER
        )
    return log


def _text(file: Path) -> bytes:
    """Return the JSON of a file, unpacked if it is compressed."""
    try:
        with file.open("rb") as source:
            data = source.read(MOST_READ + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    if len(data) <= MOST_READ and data.startswith((GZIP, _ZIP)):
        data = _gunzipped(file, data) if data.startswith(GZIP) else _unzipped(file, data)
    if len(data) > MOST_READ:
        raise ConfigError(f"{file}: larger than {MOST_READ >> 20} MiB", hint=_SHORTER)
    return data


def _gunzipped(file: Path, data: bytes) -> bytes:
    """Return at most one byte more than is read."""
    source, text = Gunzip(io.BytesIO(data), free_bytes=MOST_READ + 1), bytearray()
    try:
        while len(text) <= MOST_READ and (more := source.read(MOST_READ + 1 - len(text))):
            text += more
    except (ArchiveError, zlib.error) as error:
        raise ConfigError(
            f"{file}: not a whole gzip file: {error}", hint="unpack it: gunzip"
        ) from error
    return bytes(text)


def _unzipped(file: Path, data: bytes) -> bytes:
    """Return the only HAR file in a zip archive, at most one byte more than is read."""
    if data.count(_ZIP_ENTRY) > _MOST_IN_ZIP:
        raise ConfigError(
            f"{file}: more than {_MOST_IN_ZIP} files in the archive", hint="unpack the HAR file"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            named = [one for one in archive.infolist() if _is_har(one.filename)]
            if len(named) != 1:
                raise ConfigError(
                    f"{file}: {len(named)} files in the archive are named *.har, one is read",
                    hint="unpack the HAR file of one page load",
                )
            if named[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError("its compression is not deflate")
            with archive.open(named[0]) as member:
                return member.read(MOST_READ + 1)
    # zipfile raises these for damaged, encrypted and unusual archives.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, ValueError, EOFError) as error:
        raise ConfigError(
            f"{file}: the archive cannot be read: {str(error)[:100]}", hint="unpack the HAR file"
        ) from error


def _is_har(name: str) -> bool:
    """Return whether a file of an archive is a HAR file; macOS adds one of attributes to each."""
    return name.lower().endswith(".har") and not name.rpartition("/")[2].startswith("._")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _item(entry: object) -> tuple[str, Item]:
    """Return URL and object of an entry. What is no answer with status 200 to GET is left out
    whatever its other values are.
    """
    request = _mapping(entry, "request")
    url, method = request.get("url"), request.get("method")
    if isinstance(url, str) and _scheme(url) in _NO_REQUEST:
        raise LeftOutError(f"of the scheme {_scheme(url)}")
    if isinstance(method, str) and method.upper() != "GET":
        raise LeftOutError("not requested with GET")
    if isinstance(entry, dict) and entry.get("response") is None:
        raise LeftOutError("without an answer")
    response = _mapping(entry, "response")
    status = response.get("status")
    if status not in (200, "200"):
        raise LeftOutError("not answered with status 200")
    address, name = _url(url)
    content = response.get("content")
    content = {} if content is None else _mapping(response, "content", "response.content")
    mime = content.get("mimeType")
    mime = "" if mime is None else mime
    if not isinstance(method, str) or type(status) is not int or not isinstance(mime, str):
        raise RefusedError(
            "method, status or MIME type is missing or of another type", "export it as HAR again"
        )
    body, whole = _size(response, "bodySize"), _size(content, "size")
    transferred = _size(response, "_transferSize")
    if content.get("size", -1) is None:  # no content arrived: the transfer has headers alone
        transferred = -1
    known = (body, transferred, whole, _bytes_in(entry, response))
    size = next((one for one in known if one > 0), 0)
    if not size:
        raise LeftOutError("without a body, or of unknown size")
    if content.get("encoding") == "base64":
        _check_base64(content.get("text"))
    return address, Item(loaded_as(mime), size, name, is_compressed=whole > size)


def _mapping(value: object, key: str, what: str = "") -> Mapping[str, Any]:
    inner = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(inner, dict):
        raise RefusedError(f"{what or key} is missing or not an object", "export it as HAR again")
    return inner


def _scheme(url: str) -> str:
    """Return the scheme of a URL in lower case (RFC 3986, section 3.1), '' without one."""
    scheme, colon, _ = url[:64].partition(":")
    return scheme.strip().lower() if colon else ""


def _url(url: object) -> tuple[str, str]:
    """Return URL and domain. A message never has path or query: these may be secret."""
    if not isinstance(url, str) or len(url) > _MOST_OF_URL:
        raise RefusedError(
            f"request.url is missing, not a text, or longer than {_MOST_OF_URL} characters"
        )
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise RefusedError("request.url is not a URL") from error
    if parts.scheme not in ("http", "https"):
        raise RefusedError(
            f"request.url has the scheme {parts.scheme[:20]!r}, must be http or https"
        )
    known = domain(f"p{port}.{name}" if port not in (None, 80, 443) else name)
    if known is None or any(part == ".." for part in unquote(parts.path).split("/")):
        what = "a domain that cannot be used" if known is None else "'..' in its path"
        raise RefusedError(
            f"request.url has {what}", "remove the entry, or record with a domain name"
        )
    return url.partition("#")[0], known


def _size(holder: Mapping[str, Any], key: str) -> int:
    """Return a size, -1 if it is unknown: programs that subtract headers also write less."""
    size = holder.get(key)
    if size is None:
        return -1
    if type(size) is not int or size > MOST_BYTES:
        raise RefusedError(
            f"{key} is not an integer of at most {MOST_BYTES}", "correct it, or remove the entry"
        )
    return max(size, -1)


def _bytes_in(entry: object, response: Mapping[str, Any]) -> int:
    """Return the body's size by WebPageTest's `_bytesIn`, which counts the headers too; -1 without.

    For SPDY and HTTP/2 it wrote 0 into all fields of HAR (2015).
    """
    found = entry.get("_bytesIn") if isinstance(entry, dict) else None
    if not isinstance(found, int | str) or not re.fullmatch(r"[0-9]{1,8}", str(found), re.ASCII):
        return -1
    return min(int(found), MOST_BYTES) - max(_size(response, "headersSize"), 0)


def _check_base64(text: object) -> None:
    try:
        if text is not None:
            base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError as error:
        raise RefusedError(
            "content.text is not base64, as content.encoding says", "export it without content"
        ) from error
