# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the objects of a page from a HAR file (version 1.2, J. Odvarko, 2010), which may be hostile.

Only these parts of an entry are read: method and URL of the request (path and query only to find
repetitions); status, `bodySize`, `content.size` and `content.mimeType` of the answer; and
`content.text`, to check its base64.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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
_MOST_OF_URL = 16_384
_NO_REQUEST = ("blob", "ws", "wss")
"""Schemes that browsers list although no object is fetched. The scheme data is checked before."""


def read(file: Path) -> Found:
    """Return the first page of a HAR file.

    Raises:
        ConfigError: it is not a HAR file, or too large.
    """
    found = Found()
    seen: set[str] = set()
    page: object = None
    for number, entry in enumerate(_entries(file), start=1):
        place = f"{file}: entry {number}"
        try:
            url, item = _item(entry)
        except RefusedError as why:
            found.faults.append(Fault(place, str(why), why.remedy or "remove the entry"))
            continue
        except LeftOutError as why:
            found.left_out[str(why)] += 1
            continue
        page = entry.get("pageref") if page is None else page
        if url in seen:
            found.left_out["requested before"] += 1
        elif entry.get("pageref") != page:
            found.left_out["of another page of the file"] += 1
        elif not found.items and item.loaded_as != "iframe":
            found.left_out["before the document"] += 1
        else:
            seen.add(url)
            kind = item.loaded_as if found.items else "document"
            found.items.append(Item(kind, item.size_bytes, item.domain, item.is_compressed))
    if not found.items and not found.faults:
        raise ConfigError(
            f"{file}: no entry is an HTML document that was answered",
            hint="record the page's load anew",
        )
    return found


def _entries(file: Path) -> list[Any]:
    try:
        with file.open("rb") as source:
            text = source.read(MOST_READ + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    if len(text) > MOST_READ:
        raise ConfigError(f"{file}: larger than {MOST_READ >> 20} MiB", hint=_SHORTER)
    try:
        document = json.loads(text, parse_constant=_no_number)
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
    if log.get("version") not in VERSIONS:
        raise ConfigError(
            f"{file}: log.version is not {' or '.join(VERSIONS)}", hint="export it as HAR 1.2"
        )
    if len(entries) > MOST_ENTRIES:
        raise ConfigError(
            f"{file}: {len(entries)} entries, at most {MOST_ENTRIES} are read", hint=_SHORTER
        )
    return entries


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _item(entry: object) -> tuple[str, Item]:
    request, response = _mapping(entry, "request"), _mapping(entry, "response")
    content = _mapping(response, "content", "response.content")
    url, name = _url(request.get("url"))
    method = request.get("method")
    status = response.get("status")
    mime = content.get("mimeType", "")
    if not isinstance(method, str) or type(status) is not int or not isinstance(mime, str):
        raise RefusedError(
            "method, status or MIME type is missing or of another type", "export it as HAR again"
        )
    if content.get("encoding") == "base64":
        _check_base64(content.get("text"))
    body, whole = _size(response, "bodySize"), _size(content, "size")
    if method != "GET":
        raise LeftOutError("not requested with GET")
    if status != 200:
        raise LeftOutError("not answered with status 200")
    size = next((one for one in (body, _size(response, "_transferSize"), whole) if one > 0), 0)
    if not size:
        raise LeftOutError("without a body")
    return url, Item(loaded_as(mime), size, name, is_compressed=whole > size)


def _mapping(value: object, key: str, what: str = "") -> Mapping[str, Any]:
    inner = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(inner, dict):
        raise RefusedError(f"{what or key} is missing or not an object", "export it as HAR again")
    return inner


def _url(url: object) -> tuple[str, str]:
    """Return URL and domain. A message never has path or query: these may be secret."""
    if isinstance(url, str) and url.startswith("data:"):
        raise LeftOutError("of the scheme data")
    if not isinstance(url, str) or len(url) > _MOST_OF_URL:
        raise RefusedError(
            f"request.url is missing, not a text, or longer than {_MOST_OF_URL} characters"
        )
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise RefusedError("request.url is not a URL") from error
    if parts.scheme in _NO_REQUEST:
        raise LeftOutError(f"of the scheme {parts.scheme}")
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
    size = holder.get(key, -1)
    if type(size) is not int or not -1 <= size <= MOST_BYTES:
        raise RefusedError(
            f"{key} is not an integer from -1 to {MOST_BYTES}", "correct it, or remove the entry"
        )
    return size


def _check_base64(text: object) -> None:
    try:
        if text is not None:
            base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError as error:
        raise RefusedError(
            "content.text is not base64, as content.encoding says", "export it without content"
        ) from error
