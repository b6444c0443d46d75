# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a page of `web-targets/`, made from its objects: `page.yml` and `manifest.csv`."""

import csv
import io
import math
from collections.abc import Sequence

import yaml

from satlab.lab import web_target
from satlab.lab.web_target import COLUMNS, SCHEMA, WITH_HOST, WebObject

_HEAD = (
    "# A page that the lab serves. The objects are in manifest.csv; schema:"
    " schemas/web-target.schema.json.\n"
)
_MOST_PIXELS = 1999
_EXTENSIONS = {
    "text/html": "html",
    "text/plain": "txt",
    "text/css": "css",
    "text/javascript": "js",
    "image/jpeg": "jpg",
    "image/gif": "gif",
}
_LEAST_JPEG = 1000  # bytes; smaller images are GIFs of one pixel, as counters are
COMPRESSED = {"text/html": 0.25, "text/css": 0.2, "text/javascript": 0.3, "text/plain": 0.3}
"""Size of a text after zlib level 6, as a share of its bytes (our choice). Images do not shrink."""


def page_yml(name: str, title: str, source: str, objects: Sequence[WebObject]) -> str:
    """Return the text of `page.yml`."""
    settings = {
        "schema": SCHEMA,
        "title": title,
        "source": source,
        "host": f"{name}.satlab.test",
        "objects": len(objects),
        "bytes": sum(o.size_bytes for o in objects),
    }
    return _HEAD + yaml.safe_dump(settings, sort_keys=False, width=1000)


def manifest_csv(objects: Sequence[WebObject]) -> str:
    """Return the text of `manifest.csv`, with the column of domains if the page has several."""
    columns = WITH_HOST if any(o.host for o in objects) else COLUMNS
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    for o in objects:
        pixels = "x".join(map(str, o.pixels or ()))
        row = [o.order, o.path, o.loaded_as, o.mime, o.group, pixels, o.size_bytes, o.zlib6_bytes]
        rows.writerow([*row, o.host] if columns == WITH_HOST else row)
    return text.getvalue()


def made(
    order: int, loaded_as: str, size_bytes: int, *, host: str = "", is_compressed: bool = False
) -> WebObject:
    """Return an object with these properties; its path, pixels and compressibility are chosen here.
    The object has at least the smallest size of its type. `is_compressed`: its bytes were
    compressed on the
    way.
    """
    mime = {
        "document": "text/html",
        "stylesheet": "text/css",
        "script": "text/javascript",
        "iframe": "text/html",
        "img": "image/jpeg" if size_bytes >= _LEAST_JPEG else "image/gif",
    }[loaded_as]
    path = (
        "index.html"
        if loaded_as == "document"
        else f"{_EXTENSIONS[mime]}/{order}.{_EXTENSIONS[mime]}"
    )
    pixels = None
    if loaded_as == "img":  # 2 bits for a pixel, 4 to 3
        width = max(8, min(_MOST_PIXELS, math.isqrt(size_bytes * 16 // 3)))
        pixels = (width, width * 3 // 4) if mime == "image/jpeg" else (1, 1)
    elif loaded_as == "iframe":
        pixels = (300, 150)
    bare = WebObject(order, path, loaded_as, mime, loaded_as, pixels, size_bytes, 0, host)
    size = max(size_bytes, web_target.frame_bytes(bare))
    share = (
        0.5 if is_compressed else COMPRESSED.get(mime, 1.0)
    )  # a text of the generator keeps 0.5 at least
    kept = size if loaded_as in ("img", "iframe") else max(1, int(size * share))
    return WebObject(order, path, loaded_as, mime, loaded_as, pixels, size, kept, host)
