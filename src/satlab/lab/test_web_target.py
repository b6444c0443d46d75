# SPDX-License-Identifier: GPL-3.0-or-later
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from satlab.common.errors import ConfigError
from satlab.common.paths import WEB_TARGETS
from satlab.lab import web_target
from satlab.lab.web_target import Built, Page

KEPLER_SHA256 = "3d03ff742e35597c5222b5a3333cbbd8b382f4a4428d85e6177ed030323d4912"
COMPRESSION_TOLERANCE = 0.03


@pytest.fixture(scope="module")
def page() -> Page:
    return web_target.load("kepler")


@pytest.fixture(scope="module")
def built(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return web_target.build(page, tmp_path_factory.mktemp("kepler"))


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    shutil.copytree(WEB_TARGETS / "kepler", tmp_path / "kepler")
    return tmp_path


def test_kepler_has_the_sizes_of_the_reference_page(page: Page) -> None:
    assert len(page.objects) == 75
    assert page.total_bytes == 815_804
    assert sum(o.zlib6_bytes for o in page.objects) == 476_452
    kinds = [o.loaded_as for o in page.objects]
    assert [kinds.count(k) for k in ("document", "stylesheet", "iframe", "img")] == [1, 9, 33, 32]


def test_every_object_has_its_size_and_compressibility(page: Page, built: Built) -> None:
    for item in page.objects:
        content = (built.site / item.path).read_bytes()
        assert len(content) == item.size_bytes, item.path
        allowed = max(40, COMPRESSION_TOLERANCE * item.zlib6_bytes)
        assert abs(len(zlib.compress(content, 6)) - item.zlib6_bytes) <= allowed, item.path


@pytest.mark.promise("P41")
def test_the_replica_is_the_same_bytes_everywhere(page: Page, built: Built, tmp_path: Path) -> None:
    again = web_target.build(page, tmp_path)
    assert again.sha256 == built.sha256 == KEPLER_SHA256


def test_nothing_else_lies_in_the_site(page: Page, built: Built) -> None:
    files = {str(p.relative_to(built.site)) for p in built.site.rglob("*") if p.is_file()}
    assert files == {o.path for o in page.objects}


def test_document_loads_the_objects_in_order_and_by_their_elements(
    page: Page, built: Built
) -> None:
    text = (built.site / "index.html").read_text(encoding="iso-8859-1")
    elements = {"link": "stylesheet", "iframe": "iframe", "img": "img"}
    found = re.findall(
        r'<(link|iframe|img) (?:rel="stylesheet" type="text/css" )?(?:href|src)="([^"]+)"', text
    )
    assert [(elements[e], path) for e, path in found] == [
        (o.loaded_as, o.path) for o in page.objects[1:]
    ]
    head, _, body = text.partition("<body>")
    assert head.count('rel="stylesheet"') == 9
    assert body.startswith("\n<h1>"), "text must paint first"
    assert 'http-equiv="Cache-Control" content="no-cache"' in head
    assert 'rel="icon" href="data:,"' in head
    assert not re.search(r"<script|onload|charset=utf", text, re.IGNORECASE)
    assert any(ord(c) > 127 for c in text), "ISO-8859-1 must matter"


def test_iframes_have_their_pixels(built: Built) -> None:
    text = (built.site / "index.html").read_text(encoding="iso-8859-1")
    assert text.count('width="100" height="30"></iframe>') == 32
    assert text.count('width="800" height="200"></iframe>') == 1


def test_style_sheets_are_rules_for_classes_that_no_element_has(page: Page, built: Built) -> None:
    for item in page.objects:
        if item.loaded_as == "stylesheet":
            text = (built.site / item.path).read_text(encoding="ascii")
            assert re.fullmatch(r"(?:\.k[a-z2-7]{16}\{color:#[0-9a-f]{6}\}\n)*/\* *\*/", text), (
                item.path
            )


def test_incompressible_document_has_one_comment_that_does_not_end_early(built: Built) -> None:
    content = (built.site / "doc/noncompressible.html").read_bytes()
    assert content.count(b"<!--") == content.count(b"-->") == 1
    assert content.rstrip().endswith(b"</body></html>")
    assert b"\x00" not in content


def test_images_are_valid_and_have_their_pixels(page: Page, built: Built) -> None:
    for item in page.objects:
        if item.loaded_as == "img":
            decode = decode_jpeg if item.mime == "image/jpeg" else decode_gif
            assert decode((built.site / item.path).read_bytes()) == item.pixels, item.path


def decode_jpeg(data: bytes) -> tuple[int, int]:
    """Read a baseline JPEG of one component strictly, its scan included; return width and height."""
    assert data[:2] == b"\xff\xd8"
    at, size, seen = 2, (0, 0), []
    while True:
        assert data[at] == 0xFF
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        body = data[at + 4 : at + 2 + length]
        assert len(body) == length - 2
        seen.append(marker)
        at += 2 + length
        if marker == 0xDB:
            assert len(body) == 65
            assert all(body[1:])
        elif marker == 0xC0:
            assert (body[0], body[5]) == (8, 1)
            size = int.from_bytes(body[3:5]), int.from_bytes(body[1:3])
        elif marker == 0xC4:
            assert body[1:17] == bytes([1, *[0] * 15])  # one code, of one bit: "0"
            assert body[17:] == b"\x00"  # DC category 0, or end of block
        elif marker == 0xDA:
            break
    assert seen.count(0xC4) == 2
    assert {0xE0, 0xDB, 0xC0, 0xDA} <= set(seen)
    scan = data[at:-2]
    assert data[-2:] == b"\xff\xd9"
    bits = "".join(f"{byte:08b}" for byte in scan)
    blocks = -(-size[0] // 8) * -(-size[1] // 8)
    assert bits[: 2 * blocks] == "0" * 2 * blocks
    assert set(bits[2 * blocks :]) <= {"1"}
    assert len(bits) - 2 * blocks < 8
    return size


def sub_blocks(data: bytes, at: int) -> tuple[bytes, int]:
    joined = b""
    while length := data[at]:
        joined += data[at + 1 : at + 1 + length]
        at += 1 + length
    return joined, at + 1


def decode_gif(data: bytes) -> tuple[int, int]:
    """Read a GIF of one image strictly, its LZW stream included; return width and height."""
    assert data[:6] == b"GIF89a"
    screen = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    assert data[10] == 0x80, "a global colour table of 2 entries"
    at, pixels = 19, 0
    while data[at] != 0x3B:
        if data[at : at + 2] == b"\x21\xfe":
            _, at = sub_blocks(data, at + 2)
            continue
        assert data[at] == 0x2C
        assert data[at + 5 : at + 9] == data[6:10]
        code_size = data[at + 10]
        stream, at = sub_blocks(data, at + 11)
        pixels = lzw_length(stream, code_size)
    assert at == len(data) - 1
    assert pixels == screen[0] * screen[1]
    return screen


def lzw_length(stream: bytes, code_size: int) -> int:
    clear, end = 1 << code_size, (1 << code_size) + 1
    bits = int.from_bytes(stream, "little")
    lengths: dict[int, int] = {}
    previous, width, total = None, code_size + 1, 0
    while True:
        code = bits & ((1 << width) - 1)
        bits >>= width
        if code == clear:
            lengths, previous, width = dict.fromkeys(range(clear), 1), None, code_size + 1
            continue
        if code == end:
            assert bits == 0
            return total
        following = end + 1 + len(lengths) - clear
        if previous is not None:
            assert code < following or code == following, "code not in the table yet"
            lengths[following] = lengths[previous] + 1
            if following + 1 == 1 << width and width < 12:
                width += 1
        total += lengths[code]
        previous = code


@pytest.mark.parametrize("pixels", [(1, 1), (4, 6), (16, 16), (300, 200)])
def test_gifs_of_other_sizes_are_valid(pixels: tuple[int, int]) -> None:
    head, tail = web_target._gif_frame(*pixels)
    assert decode_gif(head + tail) == pixels


@pytest.mark.parametrize("room", [*range(5, 20), 258, 259, 260, 261, 514, 515, 516, 517, 518, 1000])
def test_gif_comments_have_any_size(room: int) -> None:
    comment = web_target._gif_comment(bytes(room), room)
    assert len(comment) == room
    assert sub_blocks(comment, 2)[1] == room


@pytest.mark.parametrize(
    "extra", [5, 6, 65_536, 65_537, 65_538, 65_540, 65_541, 65_542, 65_543, 200_000]
)
def test_jpegs_have_any_size(extra: int) -> None:
    frame = sum(map(len, web_target._jpeg_frame(20, 15)))
    item = web_target.WebObject(
        2, "a.jpg", "img", "image/jpeg", "pic", (20, 15), frame + extra, frame + extra
    )
    content = web_target._jpeg(item, "seed")
    assert len(content) == item.size_bytes
    assert decode_jpeg(content) == (20, 15)


@pytest.mark.parametrize(
    ("name", "objects", "size", "domains", "sha256"),
    [
        (
            "article",
            30,
            700_000,
            4,
            "58deb65056992a06bf70ad1471d2accd77021cffee99b2b9e1fac3d1e98d5277",
        ),
        (
            "shop",
            120,
            4_000_000,
            8,
            "0e4957f28c80f654b0a608c2457d9e64f2a4e2d6d0b81ce02ef3b09cbdb87715",
        ),
    ],
)
@pytest.mark.promise("P41")
def test_pages_of_several_domains_are_the_same_bytes_everywhere(
    tmp_path: Path, name: str, objects: int, size: int, domains: int, sha256: str
) -> None:
    page = web_target.load(name)
    made = web_target.build(page, tmp_path)
    assert (len(page.objects), page.total_bytes, len(page.hosts)) == (objects, size, domains)
    assert [(made.site / o.path).stat().st_size for o in page.objects] == [
        o.size_bytes for o in page.objects
    ]
    assert made.sha256 == sha256
    text = (made.site / "index.html").read_text(encoding="iso-8859-1")
    for item in page.objects[1:]:
        assert f'"{item.url(page.host)}"' in text
    assert f'<img src="//images{"-1" if name == "shop" else ""}.{page.host}/jpg/' in text


def test_a_script_is_one_comment(tmp_path: Path) -> None:
    page = web_target.load("article")
    site = web_target.build(page, tmp_path).site
    for item in page.objects:
        if item.loaded_as == "script":
            content = (site / item.path).read_bytes()
            assert content.startswith(b"/*")
            assert content.find(b"*/") == len(content) - 2, item.path


@pytest.mark.parametrize(
    "host", ["Static", "a..b", "-a", "a.", "static/x", '"><script>', "a" * 64, ".".join("ab" * 61)]
)
def test_the_domain_of_an_object_is_checked(tmp_path: Path, host: str) -> None:
    shutil.copytree(WEB_TARGETS / "article", tmp_path / "article")
    edit(
        tmp_path / "article" / "manifest.csv",
        lambda text: text.replace("5333,static", f'5333,"{host}"', 1),
    )
    with pytest.raises(ConfigError) as caught:
        web_target.load("article", tmp_path)
    assert any(":3" in f.place and "host is" in f.reason for f in caught.value.faults), (
        caught.value.faults
    )


def edit(path: Path, change: Callable[[str], str]) -> None:
    old = path.read_text()
    new = change(old)
    assert new != old
    path.write_text(new)


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("css/c2.css,stylesheet", "css/c1.css,stylesheet", ":4", "occurs twice"),
        ("css/c2.css,stylesheet", "../c2.css,stylesheet", ":4", "path"),
        ("css/c2.css,stylesheet", "css/c2.css,object", ":4", "loaded_as"),
        ("c2.css,stylesheet,text/css", "c2.css,stylesheet,text/plain", ":4", "mime"),
        ("4x6,46,47", "4x6,40,47", ":74", "too small"),
        ("20x15,743,580", "20x15,120,580", ":47", "too small"),
        (",,17323,4541", ",,3000,2541", ":2", "too small"),
        (",,644,350", ",,645,350", "page.yml: bytes", "815805"),
        (",,644,350", ",,-644,350", ":3", "positive integer"),
        (",,644,350", ",,644", ":3", "8 fields"),
        ("74,img/p32", "76,img/p32", ":75", "order"),
        ("img,image/gif,pic,4x6,98", "img,image/gif,pic,,98", ":75", "pixels"),
        ("order,path", "nr,path", ":1", "header"),
        (
            "2,css/c1.css,stylesheet,text/css,css,,",
            "2,css/c1.html,document,text/html,css,,",
            ":3",
            "no other",
        ),
    ],
)
def test_a_fault_in_the_manifest_is_named_with_its_line(
    targets: Path, old: str, new: str, place: str, reason: str
) -> None:
    edit(targets / "kepler" / "manifest.csv", lambda text: text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        web_target.load("kepler", targets)
    assert any(place in f.place and reason in f.reason for f in caught.value.faults), (
        caught.value.faults
    )


def test_every_fault_is_reported_at_once(targets: Path) -> None:
    folder = targets / "kepler"
    edit(
        folder / "manifest.csv",
        lambda text: text.replace("20x15,743,580", "0x15,743,x").replace("4x6,46", "4x6,1"),
    )
    edit(
        folder / "page.yml",
        lambda text: text.replace("kepler.satlab.test", "example.org") + "colour: red\n",
    )
    with pytest.raises(ConfigError) as caught:
        web_target.load("kepler", targets)
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("name", ["nowhere", "../kepler", "", "a/b", ".hidden"])
def test_an_unknown_page_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        web_target.load(name)
