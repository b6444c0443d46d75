# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that the lab serves: a manifest of sizes is read and checked, and a synthetic replica is
generated from it.

A page lies in `web-targets/<name>/`: `page.yml` (title, host name, totals) and `manifest.csv` (one
row an object, in document order). The replica keeps the properties that make a page load slow or
fast: order, loading element, pixels, size, compressibility and domain of each object. The contents
are generated from SHAKE-256 alone, so the same manifest makes the same bytes on every machine and
with every version of Python and zlib.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from satlab.common import yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import WEB_TARGETS

COLUMNS = ("order", "path", "loaded_as", "mime", "group", "pixels", "bytes", "zlib6_bytes")
WITH_HOST = (*COLUMNS, "host")
"""A page of several domains has a further column: the prefix of the object's domain before the
page's host; empty for that host.
"""
MIMES = {
    "document": ("text/html",),
    "stylesheet": ("text/css",),
    "script": ("text/javascript",),
    "iframe": ("text/plain", "text/html"),
    "img": ("image/jpeg", "image/gif"),
}
SCHEMA = "satlab/web-target/1"
_TITLE_LIMIT = 70
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SIDE = r"(?:[1-9]\d{0,2}|1\d{3})"
_DOCUMENT = "the first object, and no other, is the document, which is on the page's own host"


def _number(text: object) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", str(text), re.ASCII):
        raise ValueError("must be a positive integer of at most 9 digits")
    return int(str(text))


Number = Annotated[int, BeforeValidator(_number), Field(ge=1)]


class Settings(BaseModel):
    """web-targets/<page>/page.yml."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    schema_: Literal["satlab/web-target/1"] = Field(alias="schema")
    title: str = Field(max_length=_TITLE_LIMIT)
    source: str
    host: str = Field(
        pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*\.test$",
        description="host name of the page, below .test (RFC 6761)",
    )
    objects: int = Field(ge=1)
    bytes: int = Field(ge=1, description="sum of the body bytes of all objects")


class Row(BaseModel):
    """One row of manifest.csv of a page."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    order: Number
    path: str = Field(
        pattern=r"^(?:[a-z0-9][a-z0-9_-]*/)*[a-z0-9][a-z0-9_-]*\.[a-z0-9]+$",
        description="path relative to the page's root; the server sends the document for the root itself",
    )
    loaded_as: Literal["document", "stylesheet", "script", "iframe", "img"]
    mime: Literal[
        "text/html", "text/css", "text/javascript", "text/plain", "image/jpeg", "image/gif"
    ]
    group: str
    pixels: str = Field(
        pattern=rf"^({_SIDE}x{_SIDE})?$",
        description="WIDTHxHEIGHT (up to 1999) for iframe and img, else empty",
    )
    bytes: Number
    zlib6_bytes: Number
    host: str = Field(
        default="",
        max_length=170,  # with the page's name, at most 253 characters (RFC 1035)
        pattern=rf"^(?:(?:{_LABEL}\.)*{_LABEL})?$",
        description="labels before the page's host name in the object's domain; empty for that"
        " name. Pages of one domain have no such column",
    )

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.mime not in MIMES[self.loaded_as]:
            allowed = " or ".join(MIMES[self.loaded_as])
            raise ValueError(f"mime of a {self.loaded_as} is {self.mime!r}, must be {allowed}")
        if (self.loaded_as in ("iframe", "img")) != bool(self.pixels):
            raise ValueError(f"pixels is {self.pixels!r}: iframe and img have them, no other")
        return self


@dataclass(frozen=True)
class WebObject:
    """One row of a manifest.

    `path` is relative to the page's root; the document is the root itself.

    `host` is the prefix before the page's host name, without the dot; empty for that name. All
    domains have one root.
    """

    order: int
    path: str
    loaded_as: str
    mime: str
    group: str
    pixels: tuple[int, int] | None
    size_bytes: int
    zlib6_bytes: int
    host: str = ""

    def url(self, page_host: str) -> str:
        """Return the URL by which the document of `page_host` names this object."""
        return f"//{self.host}.{page_host}/{self.path}" if self.host else self.path


@dataclass(frozen=True)
class Page:
    """A checked page: the fields of `page.yml` and the objects in document order, the document
    first.
    """

    name: str
    title: str
    source: str
    host: str
    objects: tuple[WebObject, ...]
    manifest: bytes

    @property
    def total_bytes(self) -> int:
        """Return the sum of the body bytes of all objects."""
        return sum(o.size_bytes for o in self.objects)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the domains of its objects, in the order of their first use."""
        return tuple(
            dict.fromkeys(f"{o.host}.{self.host}" if o.host else self.host for o in self.objects)
        )


@dataclass(frozen=True)
class Built:
    """A generated page: document root, its manifest next to it, and the SHA-256 over paths, sizes
    and contents.
    """

    site: Path
    manifest: Path
    sha256: str


def names(targets: Path = WEB_TARGETS) -> list[str]:
    """Return the names of the pages below `targets`."""
    return sorted(path.parent.name for path in targets.glob("*/page.yml"))


def check_name(name: str) -> None:
    """Raise ConfigError if a page cannot have this name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"page {name!r}: a page name is made of a-z, 0-9 and '-'")


def load(name: str, targets: Path = WEB_TARGETS) -> Page:
    """Read and check the page `name` below `targets`. Raises one `ConfigError` with every fault."""
    check_name(name)
    folder = targets / name
    try:
        settings_text = (folder / "page.yml").read_text(encoding="utf-8")
        manifest = (folder / "manifest.csv").read_bytes()
        text = manifest.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(names(targets)) or "none"
        raise ConfigError(f"page {name}: {error}", hint=f"pages in {targets}: {known}") from error
    settings, faults = _read_settings(settings_text, folder / "page.yml")
    page_host = settings.host if settings else ""
    objects, row_faults = _read_manifest(text, folder / "manifest.csv", page_host)
    faults += row_faults
    if settings is None or faults:
        raise ConfigError(f"page {name} is not usable", faults)
    found = {"objects": len(objects), "bytes": sum(o.size_bytes for o in objects)}
    faults = [
        Fault(
            f"{folder / 'page.yml'}: {key}",
            f"says {getattr(settings, key)}, the sum in manifest.csv is {value}",
            "correct one of them",
        )
        for key, value in found.items()
        if getattr(settings, key) != value
    ]
    if faults:
        raise ConfigError(f"page {name} is not usable", faults)
    return Page(name, settings.title, settings.source, settings.host, objects, manifest)


def build(page: Page, out_dir: Path) -> Built:
    """Write the replica of `page`:

    `out_dir/site/` is the document root, `out_dir/manifest.csv` lists its files.
    """
    site = out_dir / "site"
    digest = hashlib.sha256()
    for item in page.objects:
        content = _content(page, item)
        target = site / item.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        digest.update(
            f"{item.path}\0{len(content)}\0{hashlib.sha256(content).hexdigest()}\n".encode()
        )
    manifest = out_dir / "manifest.csv"
    manifest.write_bytes(page.manifest)
    return Built(site, manifest, digest.hexdigest())


# --- reading --------------------------------------------------------------------------------------


def _read_settings(text: str, place: Path) -> tuple[Settings | None, list[Fault]]:
    """Return the fields of `page.yml`, or None and its faults."""
    try:
        return Settings.model_validate(yaml_text.load(text, place)), []
    except yaml_text.YamlError as error:
        return None, [error.fault]
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        return None, [
            Fault(f"{place}: {one['loc'][0]}" if one["loc"] else str(place), _reason(one))
            for one in found
        ]


def _reason(error: ErrorDetails) -> str:
    text = error["msg"].removeprefix("Value error, ")
    name = error["loc"][0] if error["loc"] else ""
    is_given = name and error["type"] not in ("missing", "extra_forbidden")
    return f"{name} is {error['input']!r}: {text}" if is_given else text


def _read_manifest(
    text: str, place: Path, page_host: str
) -> tuple[tuple[WebObject, ...], list[Fault]]:
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) not in (COLUMNS, WITH_HOST):
        return (), [Fault(f"{place}:1", "wrong header", f"write {','.join(COLUMNS)}[,host]")]
    objects: list[WebObject] = []
    faults: list[Fault] = []
    paths: set[str] = set()
    for position, row in enumerate(reader, start=1):
        item, reasons = _read_row(row)
        faults += (Fault(f"{place}:{reader.line_num}", reason) for reason in reasons)
        if item is None:
            continue
        if item.path in paths:
            faults.append(Fault(f"{place}:{reader.line_num}", f"path {item.path} occurs twice"))
        paths.add(item.path)
        if item.order != position:
            faults.append(
                Fault(f"{place}:{reader.line_num}", f"order is {item.order}, must be {position}")
            )
        if (item.loaded_as == "document") != (item.order == 1) or (
            item.loaded_as == "document" and item.host
        ):
            faults.append(Fault(f"{place}:{reader.line_num}", _DOCUMENT))
        objects.append(item)
    if objects and not faults:
        reason = _too_small(objects[0], markup_bytes(objects, page_host))
        faults += [Fault(f"{place}:2", reason)] if reason else []
    return tuple(objects), faults


def _read_row(row: dict[str | None, str | None]) -> tuple[WebObject | None, list[str]]:
    """Turn a row into an object, or None if its fields cannot be read; return all its faults."""
    if None in row or None in row.values():
        return None, [f"must have {len(COLUMNS)} fields, or as many as the header"]
    try:
        read = Row.model_validate(row)
    except ValidationError as error:
        return None, [_reason(one) for one in error.errors(include_url=False)]
    width, _, height = read.pixels.partition("x")
    item = WebObject(
        read.order,
        read.path,
        read.loaded_as,
        read.mime,
        read.group,
        (int(width), int(height)) if width else None,
        read.bytes,
        read.zlib6_bytes,
        read.host,
    )
    return item, [reason] if (reason := _too_small(item, frame_bytes(item))) else []


def _too_small(item: WebObject, least: int) -> str:
    if item.size_bytes < least:
        return f"bytes is {item.size_bytes}, too small: {item.path} needs {least}"
    if item.zlib6_bytes > item.size_bytes + 64:
        return f"zlib6_bytes is {item.zlib6_bytes}, cannot exceed bytes by that much"
    return ""


# --- generating -----------------------------------------------------------------------------------

_LETTERS = "abcdefghijklmnopqrstuvwxyz    \n."  # 32 symbols: a random byte selects one without bias
_LINE = "The synthetic line which this page repeats in place of its original text.\n"
_ICON = '<link rel="icon" href="data:,">'  # the favicon must not become a request of its own


def _random(seed: str, count: int) -> bytes:
    return hashlib.shake_256(seed.encode()).digest(count)


def _seed(page: Page, item: WebObject) -> str:
    return f"{page.name}/{item.path}/{item.size_bytes}/{item.zlib6_bytes}"


def _content(page: Page, item: WebObject) -> bytes:
    """Generate one object: exactly `size_bytes` long, near `zlib6_bytes` after zlib at level 6."""
    if item.loaded_as == "document":
        return _document(page, item)
    makers: dict[str, Callable[[WebObject, str], bytes]] = {
        "text/css": _stylesheet,
        "text/javascript": _script,
        "text/plain": _plain_text,
        "text/html": _framed_html,
        "image/jpeg": _jpeg,
        "image/gif": _gif,
    }
    return makers[item.mime](item, _seed(page, item))


def _text(seed: str, size: int, fresh: int) -> str:
    """Make `size` characters:

    `fresh` random ones (5 bits each, nearly), then one line over and over.
    """
    head = "".join(_LETTERS[byte & 31] for byte in _random(seed, fresh))
    return (head + "".join(islice(cycle(_LINE), size)))[:size]


def _fresh(size: int, target: int, *, fixed: float, per_fresh: float, per_filler: float) -> int:
    """Solve `fixed + per_fresh * fresh + per_filler * (size - fresh) = target` (bytes after zlib)
    for `fresh`.
    """
    return max(0, min(size, round((target - fixed - per_filler * size) / (per_fresh - per_filler))))


def _plain_text(item: WebObject, seed: str) -> bytes:
    fresh = _fresh(item.size_bytes, item.zlib6_bytes, fixed=65, per_fresh=0.645, per_filler=0.005)
    return _text(seed, item.size_bytes, fresh).encode("iso-8859-1")


def _stylesheet(item: WebObject, seed: str) -> bytes:
    """Make rules for classes that no element has, then a comment up to the size."""
    rules, used = [], 0
    fresh = _fresh(item.size_bytes, item.zlib6_bytes, fixed=40, per_fresh=0.52, per_filler=0.006)
    noise = _random(seed, item.size_bytes)
    for at in range(0, len(noise), 13):
        source = noise[at : at + 13] if used < fresh else noise[:13]
        name, colour = base64.b32encode(source[:10]).decode().lower(), source[10:].hex()
        rule = f".k{name}{{color:#{colour}}}\n"
        if used + len(rule) > item.size_bytes - len("/**/") or len(source) < 13:
            break
        rules.append(rule)
        used += len(rule)
    comment = "/*" + " " * (item.size_bytes - used - len("/**/")) + "*/"
    return ("".join(rules) + comment).encode("ascii")


def _script(item: WebObject, seed: str) -> bytes:
    """Make a script of one comment: it does nothing."""
    return b"/*" + _noise(seed, item.size_bytes - len("/**/"), item.zlib6_bytes, but=b"/") + b"*/"


_FRAMED = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta'
    ' charset="iso-8859-1"><title>Frame</title></head>\n<body><p>A framed document with a body that'
    " cannot be compressed.</p>\n<!--{}-->\n</body></html>\n"
)


def _framed_html(item: WebObject, seed: str) -> bytes:
    """Make an HTML document; bytes that are neither markup nor control characters fill a comment in
    it.
    """
    head, tail = (part.encode("ascii") for part in _FRAMED.split("{}"))
    return head + _noise(seed, item.size_bytes - frame_bytes(item), item.zlib6_bytes) + tail


def _noise(seed: str, room: int, zlib6_bytes: int, but: bytes = b"") -> bytes:
    """Return `room` bytes for a comment, `zlib6_bytes` of them random, without markup, control
    characters and the bytes of `but`.
    """
    allowed = bytes(b for b in range(256) if b not in b"\x00\r<>&-!" + but)
    fresh = min(room, zlib6_bytes)
    # Rejection instead of a modulo keeps the symbols equally likely. So we draw 4 % more bytes than
    # needed, plus a margin.
    noise = bytes(b for b in _random(seed, fresh + fresh // 20 + 64) if b in allowed)[:fresh]
    return noise.ljust(room, b".")


def _elements(objects: Iterable[WebObject], page_host: str) -> tuple[list[str], list[str]]:
    """Return the markup that loads the objects: style sheets and scripts for the head, the rest for
    the body.
    """
    head, body = [], []
    for item in objects:
        width, height = item.pixels or (0, 0)
        url = item.url(page_host)
        if item.loaded_as == "stylesheet":
            head.append(f'<link rel="stylesheet" type="text/css" href="{url}">')
        elif item.loaded_as == "script":
            head.append(f'<script src="{url}" defer></script>')
        elif item.loaded_as == "iframe":
            body.append(f'<iframe src="{url}" width="{width}" height="{height}"></iframe>')
        elif item.loaded_as == "img":
            body.append(f'<img src="{url}" width="{width}" height="{height}" alt="">')
    return head, body


def _document_parts(
    title: str, objects: Sequence[WebObject], page_host: str
) -> tuple[str, list[str], str]:
    """Return the parts of the document around its running text: head and heading, elements, end."""
    sheets, body = _elements(objects, page_host)
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">',
        '<meta http-equiv="Cache-Control" content="no-cache">',
        '<meta http-equiv="Pragma" content="no-cache">',
        '<meta http-equiv="Expires" content="0">',
        f"<title>{title}</title>",
        _ICON,
        *sheets,
        "</head>",
        "<body>",
        f"<h1>{title}</h1>",
        "<p>Generated text of the right size, no original content: \xa7 \xe9 \xfc.</p>",
        "",
    ]
    return "\n".join(head), body, "</body>\n</html>\n"


def _document(page: Page, item: WebObject) -> bytes:
    """Make the document: style sheets in the head, elements in order, the running text spread
    evenly between them.
    """
    title = page.title.replace("&", "&amp;").replace("<", "&lt;")
    head, body, tail = _document_parts(title, page.objects, page.host)
    room = item.size_bytes - len(head) - len(tail) - sum(len(element) + 1 for element in body)
    fresh = _fresh(
        room, item.zlib6_bytes, fixed=400 + 9.5 * len(page.objects), per_fresh=0.62, per_filler=0.02
    )
    text = _text(_seed(page, item), room, fresh)
    step, parts = room // max(1, len(body)), [head]
    for index, element in enumerate(body):
        parts += [text[index * step : (index + 1) * step], element, "\n"]
    parts += [text[len(body) * step :], tail]
    return "".join(parts).encode("iso-8859-1")


def markup_bytes(objects: Sequence[WebObject], page_host: str) -> int:
    """Return the smallest size of a document that loads `objects`, bytes, with room for its title,
    which occurs twice.
    """
    head, body, tail = _document_parts("", objects, page_host)
    return len(head) + len(tail) + sum(len(element) + 1 for element in body) + 2 * _TITLE_LIMIT


# --- images ---------------------------------------------------------------------------------------


def _jpeg_frame(width: int, height: int) -> tuple[bytes, bytes]:
    """Return a grey baseline JPEG (ITU-T T.81, annex B) in two parts, between which comment
    segments may stand.

    One Huffman code of one bit stands for "DC difference 0" and one for "end of block", so that a
    block is two 0 bits.
    """
    blocks = -(-width // 8) * -(-height // 8)
    used, rest = divmod(2 * blocks, 8)
    scan = bytes(used) + (bytes([0xFF >> rest]) if rest else b"")
    app0 = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    tables = b"\xff\xdb\x00\x43\x00" + bytes([16] * 64)
    frame = b"\xff\xc0\x00\x0b\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x01\x01\x11\x00"
    huffman = b"".join(
        b"\xff\xc4\x00\x14" + bytes([kind, 1, *[0] * 15, 0]) for kind in (0x00, 0x10)
    )
    return (
        b"\xff\xd8" + app0,
        tables + frame + huffman + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + scan + b"\xff\xd9",
    )


def _padding(item: WebObject, seed: str, room: int, fixed: int) -> bytes:
    """Return `room` bytes for a comment: random bytes, then zeros until the size under zlib is
    right.
    """
    fresh = _fresh(room, item.zlib6_bytes, fixed=fixed, per_fresh=1.0, per_filler=0.0)
    return _random(seed, fresh) + bytes(room - fresh)


def _jpeg(item: WebObject, seed: str) -> bytes:
    head, tail = _jpeg_frame(*item.pixels or (0, 0))
    left = item.size_bytes - len(head) - len(tail)
    data = _padding(item, seed, left, fixed=115)
    segments = []
    # a comment segment (COM) has 4 bytes of header and holds up to 65,533; never leave 1..3 bytes
    # over
    while left:
        take = left if left <= 65_537 else min(65_537, left - 4)
        segments.append(b"\xff\xfe" + (take - 2).to_bytes(2) + data[: take - 4])
        data, left = data[take:], left - take
    return head + b"".join(segments) + tail


def _gif_frame(width: int, height: int) -> tuple[bytes, bytes]:
    """Return a white GIF89a in two parts, between which comment extensions may stand.

    In the LZW stream (GIF89a, appendix F) the n-th code after the clear code stands for a run of n
    white pixels; the last one for the rest. The width of a code follows from the number of table
    entries after n - 1 codes, 4 + n.
    """
    value, bits, left, count = 4, 3, width * height, 0
    while left:
        count += 1
        run = min(count, left)
        value |= (0 if run == 1 else 4 + run) << bits
        bits += max(3, (4 + count).bit_length())
        left -= run
    value |= 5 << bits
    bits += max(3, (5 + count).bit_length())
    stream = value.to_bytes(-(-bits // 8), "little")
    blocks = b"".join(
        bytes([len(stream[at : at + 255])]) + stream[at : at + 255]
        for at in range(0, len(stream), 255)
    )
    size = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    head = b"GIF89a" + size + b"\x80\x00\x00" + b"\xff\xff\xff\x00\x00\x00"
    return head, b"\x2c\x00\x00\x00\x00" + size + b"\x00\x02" + blocks + b"\x00\x3b"


def _gif(item: WebObject, seed: str) -> bytes:
    head, tail = _gif_frame(*item.pixels or (0, 0))
    room = item.size_bytes - len(head) - len(tail)
    return head + (_gif_comment(_padding(item, seed, room, fixed=45), room) if room else b"") + tail


def _gif_comment(data: bytes, room: int) -> bytes:
    """Return one comment extension of exactly `room` bytes, cut into sub-blocks of at most 255
    bytes.
    """
    left, blocks = room - 3, b""
    while left:
        take = left if left <= 256 else min(256, left - 2)
        blocks += bytes([take - 1]) + data[: take - 1]
        data, left = data[take:], left - take
    return b"\x21\xfe" + blocks + b"\x00"


def frame_bytes(item: WebObject) -> int:
    """Return the smallest size of a valid object of this type, bytes, with room for padding."""
    if item.mime in ("image/jpeg", "image/gif") and item.pixels:
        head, tail = (_jpeg_frame if item.mime == "image/jpeg" else _gif_frame)(*item.pixels)
        frame = len(head) + len(tail)
        return frame if item.size_bytes == frame else frame + 5
    return {
        "text/html": len(_FRAMED) - 2,
        "text/css": len("/**/"),
        "text/javascript": len("/**/"),
    }.get(item.mime, 1)
