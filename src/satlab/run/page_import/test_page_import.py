# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of HAR files and of folders, ordinary and hostile."""

import gzip
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from satlab.cli import app
from satlab.common.errors import ConfigError, HostError, SatlabError
from satlab.lab import web_target
from satlab.run.page_import import har, page_folder, page_objects

SECRET = "s3cr3t-0f-a-s3ss10n"  # noqa: S105 - of nobody
INDEX = PurePosixPath("index.html")


def entry(
    url: str, mime: str, size: int, *, whole: int | None = None, **changes: Any
) -> dict[str, Any]:
    """Return an entry as a browser writes it, with secrets in all places that may have some."""
    made: dict[str, Any] = {
        "pageref": "page_1",
        "startedDateTime": "2026-01-01T00:00:00Z",
        "request": {
            "method": "GET",
            "url": url,
            "cookies": [{"name": "id", "value": SECRET}],
            "headers": [{"name": "Authorization", "value": SECRET}],
            "queryString": [{"name": "t", "value": SECRET}],
        },
        "response": {
            "status": 200,
            "bodySize": size,
            "headers": [{"name": "Set-Cookie", "value": SECRET}],
            "content": {
                "size": size if whole is None else whole,
                "mimeType": mime,
                "text": f"<b>{SECRET}</b>",
            },
        },
    }
    made["response"].update(changes)
    return made


def entries() -> list[dict[str, Any]]:
    return [
        entry("http://example.com/", "text/html", 0, status=301),
        entry(
            f"https://www.example.com/{SECRET}?token={SECRET}",
            "text/html; charset=utf-8",
            9_000,
            whole=40_000,
        ),
        entry("https://static.example.com/a.css", "text/css", 12_000),
        entry(
            f"https://static.example.com/a.js?key={SECRET}",
            "application/javascript",
            30_000,
            whole=90_000,
        ),
        entry("https://static.example.com/a.css", "text/css", 12_000),
        entry("https://images.example.com/1.webp", "image/webp", 50_000),
        entry("https://fonts.example.net:8443/f.woff2", "font/woff2", 20_000),
        entry("https://www.example.com/frame", "text/html", 3_000),
        entry("https://count.example.net/p.gif", "image/gif", 20),
        entry(f"data:image/png;base64,{SECRET}", "image/png", 500),
        entry("wss://www.example.com/chat", "", 0, status=101),
        entry("https://www.example.com/none", "text/plain", 0, status=204),
    ]


def har_file(folder: Path, listed: Any) -> Path:
    file = folder / "page.har"
    document = {"log": {"version": "1.2", "creator": {}, "pages": [], "entries": listed}}
    file.write_text(json.dumps(document))
    return file


@pytest.mark.promise("P44")
def test_a_har_becomes_a_page_of_its_types_sizes_domains_and_order(tmp_path: Path) -> None:
    imported = page_folder.run(har_file(tmp_path, entries()), "example", INDEX, tmp_path)
    page = web_target.load("example", tmp_path)
    assert imported.page == page
    assert [(o.loaded_as, o.size_bytes, o.host) for o in page.objects] == [
        ("document", 9_000, ""),
        ("stylesheet", 12_000, "static.example.com"),
        ("script", 30_000, "static.example.com"),
        ("img", 50_000, "images.example.com"),
        ("img", 20_000, "p8443.fonts.example.net"),
        ("iframe", 3_000, ""),
        ("img", page.objects[-1].size_bytes, "count.example.net"),
    ]
    assert 20 < page.objects[-1].size_bytes < 100
    assert imported.notes == (
        "left out: 2 not answered with status 200",
        "left out: 1 of the scheme data",
        "left out: 1 of the scheme wss",
        "left out: 1 requested before",
        "enlarged to the least size of their type: 1",
    )
    built = web_target.build(page, tmp_path / "built")
    assert [(built.site / o.path).stat().st_size for o in page.objects] == [
        o.size_bytes for o in page.objects
    ]
    assert not list(tmp_path.glob(".import-*"))


def test_a_document_that_is_too_small_for_its_objects_is_enlarged(tmp_path: Path) -> None:
    listed = [entry("https://a.example/", "text/html", 500)]
    listed += [entry(f"https://a.example/{n}.png", "image/png", 2_000) for n in range(100)]
    imported = page_folder.run(har_file(tmp_path, listed), "many", INDEX, tmp_path)
    assert imported.page.objects[0].size_bytes > 5_000
    assert imported.notes[-1].startswith("the document has ")


def test_t48_secrets_of_a_har_are_not_copied(tmp_path: Path) -> None:
    source = har_file(tmp_path, entries())
    imported = page_folder.run(source, "example", INDEX, tmp_path / source.parent)
    web_target.build(imported.page, tmp_path / "built")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != source]
    assert len(files) == 2 + 1 + len(imported.page.objects)
    assert not [
        path for path in files if SECRET.encode() in path.read_bytes() or SECRET in str(path)
    ]
    assert SECRET not in "".join(imported.notes)


def at(time: object, made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return an entry that started at a time of 10:00, or at any other value."""
    text = f"2026-03-01T10:00:{time:06.3f}Z" if isinstance(time, float) else time
    return {**made, "startedDateTime": text, **changes}


DOCUMENT = entry("https://www.example.org/", "text/html", 9_000)
STYLE = entry("https://www.example.org/a.css", "text/css", 12_000)
IMAGE = entry("https://static.example.org/c.webp", "image/webp", 50_000)
FRAME = entry("https://ads.example.net/frame.html", "text/html", 3_000)


def to(destination: str, made: dict[str, Any]) -> dict[str, Any]:
    """Return an entry whose request has a Sec-Fetch-Dest."""
    headers = [{"name": "Sec-Fetch-Dest", "value": destination}]
    return {**made, "request": {**made["request"], "headers": headers}}


def kinds(folder: Path, *listed: Any, pages: Any = ()) -> tuple[list[str], dict[str, int]]:
    """Return the objects of a page, each by its kind and size, and what was left out."""
    file = har_file(folder, list(listed))
    document = json.loads(file.read_text())
    document["log"]["pages"] = pages
    file.write_text(json.dumps(document))
    found = har.read(file)
    assert not found.faults
    return [f"{one.loaded_as} {one.size_bytes}" for one in found.items], dict(found.left_out)


WHOLE = ["document 9000", "stylesheet 12000", "img 50000"]


@pytest.mark.parametrize(
    "listed",
    [
        [at(0.3, STYLE), at(0.5, IMAGE), at(0.0, DOCUMENT)],
        [at(0.5, IMAGE), at(0.3, STYLE), at(0.0, DOCUMENT)],
        # Firefox writes local time, Fiddler seven digits.
        [
            at("2026-03-01T11:00:00.3000000+01:00", STYLE),
            at("2026-03-01T02:00:00.500-08:00", IMAGE),
            at("2026-03-01T10:00:00Z", DOCUMENT),
        ],
        # Without readable times the order of the file stays, and nothing was before the document.
        [at(None, STYLE), at("yesterday", IMAGE), at(1772359200000, DOCUMENT)],
        [{key: one[key] for key in ("pageref", "request", "response")}
         for one in (DOCUMENT, STYLE, IMAGE)],
        # A time that is missing: behind the entry before it in the file.
        [at(0.3, STYLE), at("", IMAGE), at(0.0, DOCUMENT)],
        [at("9" * 50, STYLE), at(0.5, IMAGE), at(0.0, DOCUMENT)],
        [at(0.0, STYLE), at(0.0, DOCUMENT), at(0.0, IMAGE)],
    ],
)  # fmt: skip
def test_objects_of_a_har_are_in_the_order_of_time(tmp_path: Path, listed: list[Any]) -> None:
    assert kinds(tmp_path, *listed) == (WHOLE, {})


@pytest.mark.promise("P44")
@pytest.mark.parametrize(
    "listed",
    [
        [at(0.7, FRAME), at(0.0, DOCUMENT), at(0.3, STYLE), at(0.5, IMAGE)],
        # The browser says which request is a frame's or the document's.
        [at(None, to("iframe", FRAME)), at(None, DOCUMENT), at(None, STYLE), at(None, IMAGE)],
        [at(None, FRAME), at(None, to("document", DOCUMENT)), at(None, STYLE), at(None, IMAGE)],
    ],
)
def test_the_frame_of_an_advertisement_is_not_the_document(
    tmp_path: Path, listed: list[Any]
) -> None:
    objects, left_out = kinds(tmp_path, *listed)
    assert (objects[0], sorted(objects[1:]), left_out) == (
        "document 9000",
        sorted([*WHOLE[1:], "iframe 3000"]),
        {},
    )


def test_an_entry_without_a_page_is_of_the_only_one(tmp_path: Path) -> None:
    style, image = without(STYLE, "pageref"), {**IMAGE, "pageref": None}
    assert kinds(tmp_path, DOCUMENT, style, image) == (WHOLE, {})
    assert kinds(tmp_path, style, DOCUMENT, image) == (WHOLE, {})
    other = {**entry("https://www.example.com/", "text/html", 700), "pageref": "page_2"}
    assert kinds(tmp_path, DOCUMENT, STYLE, image, other) == (
        WHOLE[:2],
        {"of no page of the file": 1, "of another page of the file": 1},
    )


def test_the_title_of_chromium_s_page_names_the_document(tmp_path: Path) -> None:
    pages = [7, {"id": "page_2"}, {"id": "page_1", "title": "https://www.example.org/#top"}]
    objects, _ = kinds(tmp_path, *(at(None, one) for one in (FRAME, STYLE, DOCUMENT)), pages=pages)
    assert objects == ["document 9000", "iframe 3000", "stylesheet 12000"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": 304}, "not answered with status 200"),
        ({"status": 503}, "not answered with status 200"),
        ({"bodySize": None, "content": {"mimeType": "text/html", "size": None}}, "unknown size"),
    ],
)
def test_a_frame_does_not_replace_a_document_that_is_not_usable(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    missing = at(0.0, {**DOCUMENT, "response": {**DOCUMENT["response"], **changes}})
    with pytest.raises(ConfigError, match=f"entry 2: the document is .*{reason}") as caught:
        har.read(har_file(tmp_path, [at(0.7, FRAME), missing]))
    assert "cache disabled" in caught.value.hint
    # Asked again, or of another address that redirects.
    assert kinds(tmp_path, missing, at(0.1, DOCUMENT))[0] == ["document 9000"]
    only_frames = [missing, at(0.7, to("iframe", FRAME))]
    with pytest.raises(ConfigError, match="no entry is an HTML document"):
        har.read(har_file(tmp_path, only_frames))


def test_what_was_requested_before_the_document_is_left_out_and_counted(tmp_path: Path) -> None:
    listed = [at(0.2, DOCUMENT), at(0.1, STYLE), at(0.3, IMAGE)]
    assert kinds(tmp_path, *listed) == (
        ["document 9000", "img 50000"],
        {"before the document": 1},
    )


def without(made: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name != key}


UNKNOWN = "without a body, or of unknown size"
NOT_200 = "not answered with status 200"


@pytest.mark.promise("P44")
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (entry("about:blank", "x-unknown", 0, status=0), "of the scheme about"),
        (entry("chrome-extension://abc/x.css", "text/css", 812), "of the scheme chrome-extension"),
        (entry("moz-extension://1-2/x.js", "text/javascript", 812), "of the scheme moz-extension"),
        (
            entry("safari-web-extension://1-2/x.js", "text/javascript", 812),
            "of the scheme safari-web-extension",
        ),
        (entry("DATA:image/gif;base64,R0lG", "image/gif", 14), "of the scheme data"),
        (entry(f"data:{'x' * 20_000}", "image/gif", 14), "of the scheme data"),
        (entry("blob:https://a.example/1-2", "image/png", 900), "of the scheme blob"),
        (entry("https://a.example/p.gif", "image/gif", -1, content={"size": None}), UNKNOWN),
        (entry("https://a.example/p.gif", "image/gif", -1, content=None), UNKNOWN),
        (
            entry(
                "https://a.example/p.gif",
                "image/gif",
                -1,
                _transferSize=9000,
                content={"mimeType": "image/gif", "size": None},
            ),
            UNKNOWN,
        ),
        (
            entry("https://a.example/p", "", 0, status=204, content={"mimeType": None, "size": 0}),
            NOT_200,
        ),
        (entry("https://a.example/p", "", 0, status="error"), NOT_200),
        (entry("https://a.example/p", "", 0, status=None), NOT_200),
        (entry("https://a.example/v.mp4", "video/mp4", 1, whole=94_371_840, status=206), NOT_200),
        (entry("https://a.example/v.mp4", "video/mp4", -412, status=304), NOT_200),
        (entry("https://a.example:99999/", "", 0, status=0), NOT_200),
        (without(IMAGE, "response"), "without an answer"),
        ({**IMAGE, "response": None}, "without an answer"),
        (
            {**IMAGE, "request": {"method": "POST", "url": None}, "response": "x"},
            "not requested with GET",
        ),
    ],
)
def test_what_is_left_out_anyway_does_not_refuse_the_file(
    tmp_path: Path, more: Any, reason: str
) -> None:
    listed = [at(0.0, DOCUMENT), at(0.3, STYLE), at(0.4, more), at(0.5, IMAGE)]
    assert kinds(tmp_path, *listed) == (WHOLE, {reason: 1})


def test_an_unknown_type_is_an_image_of_its_size(tmp_path: Path) -> None:
    data = entry("https://a.example/p", "", 900, content={"mimeType": None, "size": None})
    assert kinds(tmp_path, DOCUMENT, data)[0] == ["document 9000", "img 900"]


@pytest.mark.parametrize(
    ("image", "size"),
    [
        # Chrome HAR Capturer: no byte of a cached object was received, less its headers.
        (entry("https://a.example/i.gif", "image/gif", -384, whole=900, _transferSize=0), 900),
        # WebPageTest in 2015 with SPDY: the bytes with headers, as text, beside zeros.
        (
            {
                **entry("https://a.example/i.gif", "image/gif", 0, headersSize=484),
                "_bytesIn": "7740",
            },
            7256,
        ),
        (entry("https://a.example/i.gif?" + "x" * 20_000, "image/gif", 900), 900),
    ],
)
def test_sizes_and_urls_of_other_programs(tmp_path: Path, image: dict[str, Any], size: int) -> None:
    assert kinds(tmp_path, DOCUMENT, image) == (["document 9000", f"img {size}"], {})


def test_an_object_of_another_page_is_counted_as_that(tmp_path: Path) -> None:
    again = {**STYLE, "pageref": "page_2"}
    found = kinds(tmp_path, DOCUMENT, at(0.1, STYLE), at(9.0, again))
    assert found[1] == {"of another page of the file": 1}


def test_a_har_without_version_is_one_of_1_1(tmp_path: Path) -> None:
    file = tmp_path / "x.har"
    file.write_text(json.dumps({"log": {"entries": [DOCUMENT]}}))
    assert len(har.read(file).items) == 1


def zipped(file: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def test_a_har_may_be_compressed(tmp_path: Path) -> None:
    """As sitespeed.io, Playwright and macOS do it."""
    text = har_file(tmp_path, [DOCUMENT, STYLE, IMAGE]).read_bytes()
    (tmp_path / "page.har.gz").write_bytes(gzip.compress(text))
    zipped(tmp_path / "a.zip", {"har.har": text, "0123.css": b"p {}"})
    zipped(tmp_path / "b.zip", {"x/page.HAR": text, "__MACOSX/x/._page.HAR": b"\0"})
    for name in ("page.har.gz", "a.zip", "b.zip"):
        assert len(har.read(tmp_path / name).items) == 3
    imported = page_folder.run(tmp_path / "a.zip", "example", INDEX, tmp_path)
    assert len(imported.page.objects) == 3


def test_t48_a_hostile_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = har_file(tmp_path, [DOCUMENT]).read_bytes()
    good = zipped(tmp_path / "good.zip", {"page.har": text}).read_bytes()
    refused = {
        "two": (zipped(tmp_path / "x.zip", {"a.har": text, "b.har": text}).read_bytes(), "2 files"),
        "none": (zipped(tmp_path / "x.zip", {"a.txt": text}).read_bytes(), "0 files"),
        "cut": (good[:-30], "cannot be read"),
        "torn": (good.replace(b"PK\1\2", b"PK\1\3"), "cannot be read"),
        "locked": (
            good.replace(b"PK\1\2\x14\x03\x14\0\0", b"PK\1\2\x14\x03\x14\0\1"),
            "cannot be read",
        ),
        "many": (good + b"PK\1\2" * 10_001, "more than 10000 files"),
        "early": (gzip.compress(text)[:-20], "not a whole gzip file"),
        "no gzip": (b"\x1f\x8b" + text, "not a whole gzip file"),
    }
    monkeypatch.setattr(har, "MOST_READ", 1 << 20)
    bomb = bytes(2 << 20)
    refused["bomb.zip"] = (
        zipped(tmp_path / "x.zip", {"a.har": bomb}).read_bytes(),
        "larger than 1",
    )
    refused["bomb.gz"] = (gzip.compress(bomb), "larger than 1 MiB")
    for name, (data, reason) in refused.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=reason) as caught:
            har.read(tmp_path / name)
        assert caught.value.hint


def change(number: int, *keys: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def apply(listed: list[dict[str, Any]]) -> None:
        holder: Any = listed[number - 1]
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            change(3, "request", "url", value="https://a.example/../../etc/passwd"),
            "'..' in its path",
        ),
        (change(3, "request", "url", value="https://a.example/%2e%2e/x"), "'..' in its path"),
        (change(3, "request", "url", value=f"javascript:alert('{SECRET}')"), "scheme 'javascript'"),
        (change(3, "request", "url", value="file:///etc/passwd"), "scheme 'file'"),
        (change(3, "request", "url", value="ftp://a.example/x.js"), "scheme 'ftp'"),
        (change(3, "request", "url", value="https://[::1/"), "not a URL"),
        (change(3, "request", "url", value='https://a"><script>.example/'), "domain"),
        (change(3, "request", "url", value=f"https://{'a' * 64}.example/"), "domain"),
        (change(3, "request", "url", value="https://a.example:99999/"), "not a URL"),
        (change(3, "request", "url", value="https://a.example/" + "x" * (2 << 20)), "longer than"),
        (change(3, "request", "url", value=None), "request.url is missing"),
        (change(3, "request", value=[]), "request is missing"),
        (change(3, "response", "content", value="x"), "response.content is missing"),
        (change(3, "response", "bodySize", value=1 << 40), "bodySize is not an integer"),
        (change(3, "response", "bodySize", value=1e3), "bodySize is not an integer"),
        (change(3, "response", "content", "size", value=True), "size is not an integer"),
        (change(3, "response", "status", value="200"), "of another type"),
        (
            change(
                3,
                "response",
                "content",
                value={
                    "size": 9,
                    "mimeType": "image/png",
                    "encoding": "base64",
                    "text": f"!{SECRET}!",
                },
            ),
            "not base64",
        ),
        (
            change(3, "response", "content", value={"size": 9, "encoding": "base64", "text": 7}),
            "not base64",
        ),
    ],
)
def test_t48_a_hostile_entry_is_refused_by_its_number(
    tmp_path: Path, damage: Callable[[list[dict[str, Any]]], None], reason: str
) -> None:
    listed = entries()
    damage(listed)
    with pytest.raises(ConfigError) as caught:
        page_folder.run(har_file(tmp_path, listed), "example", INDEX, tmp_path)
    (fault,) = caught.value.faults
    assert fault.place.endswith("page.har: entry 3")
    assert reason in fault.reason
    assert fault.remedy
    assert SECRET not in str(fault)
    assert [path.name for path in tmp_path.iterdir()] == ["page.har"]


def test_t48_every_hostile_entry_is_named_up_to_a_limit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        page_folder.run(har_file(tmp_path, [None, 7, *entries(), "x"]), "example", INDEX, tmp_path)
    assert [fault.place.rpartition(" ")[2] for fault in caught.value.faults] == ["1", "2", "15"]
    with pytest.raises(ConfigError) as caught:
        page_folder.run(har_file(tmp_path, [None] * 1000), "example", INDEX, tmp_path)
    assert len(caught.value.faults) == 21
    assert caught.value.faults[-1].reason == "980 further faults"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\xff\xfe", "not JSON"),
        ('{"log": {"version": "1.2", "entries": [NaN]}}', "NaN is not a number"),
        ("[]", "not a HAR file"),
        ('{"log": {"version": "1.2", "entries": {}}}', "not a HAR file"),
        ('{"log": {"version": "9", "entries": []}}', "log.version"),
        ('{"log": {"version": "1.2", "entries": []}}', "no entry is an HTML document"),
        ('{"log": {"version": "1.2", "entries": [' + "0," * 99_999 + "0]}}", "100000 entries"),
    ],
)
def test_t48_a_file_that_is_not_a_har_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "x.har"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=reason):
        har.read(file)


def test_t48_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "x.har"
    with file.open("wb") as large:
        large.truncate(page_objects.MOST_READ + 1)
    with pytest.raises(ConfigError, match="larger than 32 MiB"):
        har.read(file)


@pytest.mark.parametrize(
    ("listed", "what"),
    [
        ([entry(f"https://a.example/{n}", "image/png", 2_000) for n in range(250)], "251 objects"),
        (
            [
                entry(f"https://a.example/{n}", "image/png", page_objects.MOST_BYTES)
                for n in range(2)
            ],
            "bytes",
        ),
        ([entry(f"https://a{n}.example/", "image/png", 2_000) for n in range(64)], "65 domains"),
    ],
)
def test_t48_a_page_that_is_too_large_is_refused(
    tmp_path: Path, listed: list[Any], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        page_folder.run(
            har_file(tmp_path, [entry("https://z.example/", "text/html", 9_000), *listed]),
            "x",
            INDEX,
            tmp_path,
        )
    assert what in caught.value.faults[0].reason


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [
    ("pageref",),
    ("request",),
    ("request", "url"),
    ("request", "method"),
    ("response",),
    ("response", "status"),
    ("response", "bodySize"),
    ("response", "_transferSize"),
    ("response", "content"),
    ("response", "content", "size"),
    ("response", "content", "mimeType"),
    ("response", "content", "encoding"),
    ("response", "content", "text"),
]


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(1, 10), st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=3
    )
)
def test_t48_whatever_an_entry_has_the_import_ends_with_a_page_or_a_message(
    tmp_path: Path, damages: list[tuple[int, tuple[str, ...], Any]]
) -> None:
    listed = entries()
    for number, keys, value in damages:
        if not any(
            other != keys and number == one and keys[: len(other)] == other
            for one, other, _ in damages
        ):
            change(number, *keys, value=value)(listed)
    try:
        found_page = har.read(har_file(tmp_path, listed))
    except SatlabError as error:
        assert str(error)
    else:
        assert found_page.items or found_page.faults


def site(folder: Path, document: str, **files: int) -> Path:
    top = folder / "site"
    (top / "www.example.com").mkdir(parents=True)
    (top / "cdn.example.com").mkdir()
    (top / "www.example.com" / "index.html").write_text(document)
    for name, size in files.items():
        place = top / name.replace("__", "/").replace("_", ".")
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(SECRET.encode().ljust(size, b"x"))
    return top


WGET = PurePosixPath("www.example.com/index.html")


def test_the_folder_of_a_site_becomes_a_page(tmp_path: Path) -> None:
    document = f"""<!doctype html><title>{SECRET}</title><!-- <img src="not.png"> -->
<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://www.example.com/">
<script src="../cdn.example.com/a.js?v={SECRET}"></script><script>let {SECRET!r};</script>
<img src="/b.png"><img src="b.png"><img src="data:image/png;base64,AAAA"><img src="https://other.example/c.png">
<img src="missing.png"><iframe src="frame.html"></iframe>"""
    files = {
        "www.example.com__a.css": 5_000,
        "cdn.example.com__a.js": 7_000,
        "www.example.com__b.png": 8_000,
    }
    top = site(
        tmp_path,
        document,
        **files,
        **{"www.example.com__frame.html": 900, "www.example.com__other.png": 9},
    )
    imported = page_folder.run(top, "folder", WGET, tmp_path)
    assert [(o.loaded_as, o.size_bytes, o.host) for o in imported.page.objects[1:]] == [
        ("stylesheet", 5_000, ""),
        ("script", 7_000, "cdn.example.com"),
        ("img", 8_000, ""),
        ("iframe", 900, ""),
    ]
    assert imported.notes[:4] == (
        "left out: 1 data in the document",
        "left out: 1 empty, or not in the folder",
        "left out: 1 loaded before",
        "left out: 1 of another site, not in the folder",
    )
    web_target.build(imported.page, tmp_path / "built")
    made = [
        path
        for name in ("folder", "built")
        for path in (tmp_path / name).rglob("*")
        if path.is_file()
    ]
    assert not [path for path in made if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("../../../etc/passwd", "leaves the folder"),
        ("..%2f..%2f..%2fetc%2fpasswd", "leaves the folder"),
        ("linked.png", "is a link"),
        ("linked/x.png", "is a link"),
        ("pipe.png", "not a plain file"),
        ("../cdn.example.com", "not a plain file"),
        ("large.png", "more than 64 MiB"),
        ("javascript:alert(1)", "scheme 'javascript'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("http://[", "not a URL"),
    ],
)
def test_t48_a_hostile_reference_is_refused_by_its_number(
    tmp_path: Path, reference: str, reason: str
) -> None:
    top = site(
        tmp_path, f'<img src="b.png"><img src="{reference}">', **{"www.example.com__b.png": 5_000}
    )
    here = top / "www.example.com"
    (here / "linked.png").symlink_to("/etc/passwd")
    (here / "linked").symlink_to("../cdn.example.com")
    (top / "cdn.example.com" / "x.png").write_bytes(b"x")
    os.mkfifo(here / "pipe.png")
    with (here / "large.png").open("wb") as large:
        large.truncate(page_objects.MOST_BYTES + 1)
    with pytest.raises(ConfigError) as caught:
        page_folder.run(top, "folder", WGET, tmp_path)
    (fault,) = caught.value.faults
    assert fault.place.endswith("index.html: reference 2")
    assert reason in fault.reason
    assert fault.remedy


@pytest.mark.parametrize(
    "document", ["/etc/passwd", "../page.har", "www.example.com", "nothing.html"]
)
def test_t48_the_document_lies_in_the_folder(tmp_path: Path, document: str) -> None:
    har_file(tmp_path, [])
    with pytest.raises(ConfigError):
        page_folder.run(site(tmp_path, ""), "site", PurePosixPath(document), tmp_path)


@pytest.mark.parametrize("name", ["../x", "", "X", "a/b"])
def test_t48_the_name_of_a_page_is_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a page name"):
        page_folder.run(har_file(tmp_path, entries()), name, INDEX, tmp_path)


def test_the_command_prints_how_to_load_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pages").mkdir()
    monkeypatch.setattr(page_folder.run, "__defaults__", (tmp_path / "pages",))
    done = CliRunner().invoke(
        app, ["page", "import", str(har_file(tmp_path, entries())), "--name", "example"]
    )
    assert done.exit_code == 0, done.output
    assert "example: 7 objects, " in done.stdout
    assert "--set page=example" in done.stdout
    refused = CliRunner().invoke(
        app, ["page", "import", str(har_file(tmp_path, [None])), "--name", "other"]
    )
    assert refused.exit_code == 2
    assert "entry 1: request is missing" in refused.output


def test_a_page_is_not_replaced(tmp_path: Path) -> None:
    source = har_file(tmp_path, entries())
    page_folder.run(source, "example", INDEX, tmp_path)
    with pytest.raises(ConfigError, match="there already"):
        page_folder.run(source, "example", INDEX, tmp_path)


def test_a_folder_of_pages_that_is_not_there_is_a_fault_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(HostError):
        page_folder.run(har_file(tmp_path, entries()), "example", INDEX, tmp_path / "none")
