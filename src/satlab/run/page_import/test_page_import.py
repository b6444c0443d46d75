# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of HAR files and of folders, ordinary and hostile."""

import json
import os
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
        (
            change(3, "request", "url", value="chrome-extension://abc/x.js"),
            "scheme 'chrome-extension'",
        ),
        (change(3, "request", "url", value="https://[::1/"), "not a URL"),
        (change(3, "request", "url", value='https://a"><script>.example/'), "domain"),
        (change(3, "request", "url", value=f"https://{'a' * 64}.example/"), "domain"),
        (change(3, "request", "url", value="https://a.example:99999/"), "not a URL"),
        (change(3, "request", "url", value="https://a.example/" + "x" * 20_000), "longer than"),
        (change(3, "request", "url", value=None), "request.url is missing"),
        (change(3, "request", value=[]), "request is missing"),
        (change(3, "response", "content", value="x"), "response.content is missing"),
        (change(3, "response", "bodySize", value=1 << 40), "bodySize is not an integer"),
        (change(3, "response", "bodySize", value=-5), "bodySize is not an integer"),
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
