# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of others: what is read, what is refused, and that limits hold before memory is taken."""

import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satlab.common import archive
from satlab.common.archive import ArchiveError, Gunzip, Kind, Limits, Reader

LIMITS = Limits(total_bytes=1 << 20, files=20, path_bytes=200, depth=8)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def packed(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for made, content in members:
            made.size = len(content)
            tar.addfile(made, io.BytesIO(content))
    return out.getvalue()


def extended(kind: bytes, size: int, claimed: int | None = None) -> bytes:
    """Return an extended header of so many bytes; one that claims more has no others."""
    made = member("x", kind)
    made.size = size if claimed is None else claimed
    return made.tobuf(tarfile.USTAR_FORMAT) + b"0" * (size + -size % 512)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_files_and_folders_of_every_format_are_written(form: int, tmp_path: Path) -> None:
    deep = "/".join(["folder" * 4] * 6)
    data = packed(
        (member("a", tarfile.DIRTYPE), b""),
        (member("a/b"), b"x" * 1000),
        (member(deep), b""),
        form=form,
    )
    archive.unpack(io.BytesIO(data), tmp_path, LIMITS)
    assert (tmp_path / "a" / "b").read_bytes() == b"x" * 1000
    assert (tmp_path / deep).is_file()


def test_an_archive_of_a_folder_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "in" / "runs").mkdir(parents=True)
    (tmp_path / "in" / "runs" / "ä.json").write_text("{}")
    (tmp_path / "out").mkdir()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as tar:
        tar.add(tmp_path / "in", arcname=".")
    archive.unpack(Gunzip(io.BytesIO(gzip.compress(out.getvalue()))), tmp_path / "out", LIMITS)
    assert (tmp_path / "out" / "runs" / "ä.json").read_text() == "{}"


HOSTILE = {
    "parent": packed((member("../up"), b"x")),
    "parent within": packed((member("a/../../up"), b"x")),
    "absolute": packed((member("/tmp/satlab-planted"), b"x")),
    "link": packed((member("link", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "hard link": packed((member("link", tarfile.LNKTYPE, "/etc/passwd"), b"")),
    "pipe": packed((member("pipe", tarfile.FIFOTYPE), b"")),
    "device": packed((member("device", tarfile.CHRTYPE), b"")),
    "no name": packed((member("."), b"x")),
    "twice": packed((member("a"), b"1"), (member("./a"), b"2")),
    "a file as a folder": packed((member("a"), b"1"), (member("a/b"), b"2")),
    "deep": packed((member("/".join("abcdefghij")), b"")),
    "long": packed((member("x" * 201), b"")),
    "many": packed(*((member(f"f{number}"), b"") for number in range(21))),
    "large": packed((member("a"), b"x" * (1 << 20))),
    "of a size that is not there": packed((member("a"), b"x" * 2000))[:1024],
    "sparse": extended(tarfile.GNUTYPE_SPARSE, 0),
    "unknown kind": extended(b"Z", 0),
    "negative": member("a").tobuf()[:124] + b"\xff" * 12 + member("a").tobuf()[136:],
    "damaged": b"x" * 1024,
    "pax of one byte": extended(tarfile.XHDTYPE, 1),
    "many extended headers": extended(tarfile.XGLTYPE, 10) * 6,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_t04_a_hostile_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ArchiveError):
        archive.unpack(io.BytesIO(data), tmp_path / "out", LIMITS)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not Path("/tmp/satlab-planted").exists()


def test_t04_a_link_that_another_process_puts_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("a", "b"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "other")
    for data in (packed((member("a/new"), b"x")), packed((member("b"), b"x"))):
        with pytest.raises((ArchiveError, OSError)):
            archive.unpack(io.BytesIO(data), tmp_path / "out", LIMITS)
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
def test_t54_a_header_takes_no_memory_before_its_limit(kind: bytes) -> None:
    """A pax header of 610 KiB in gzip took 1.2 GB."""
    data = gzip.compress(extended(kind, 40 << 20))
    limits = Limits(8 << 30, 1000)
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError, match="too large headers"):
            list(Reader(Gunzip(io.BytesIO(data)), limits))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_t54_what_becomes_a_thousand_times_as_large_is_refused() -> None:
    bomb = gzip.compress(bytes(96 << 20))
    source = Gunzip(io.BytesIO(bomb), ratio=100, free_bytes=1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError, match="100 times"):
            while source.read(1 << 16):
                pass
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [5, 60])
def test_a_gzip_stream_that_ends_early_is_refused(cut: int) -> None:
    data = gzip.compress(os.urandom(1000))
    with pytest.raises(ArchiveError, match="ends early"):
        while (source := Gunzip(io.BytesIO(data[:cut]))).read(1 << 16):
            list(iter(lambda source=source: source.read(1 << 16), b""))  # type: ignore[misc]


def test_links_are_yielded_to_who_asks_for_them() -> None:
    data = packed(
        (member("a", tarfile.SYMTYPE, "x" * 150), b""), (member("b", tarfile.LNKTYPE, "a"), b"")
    )
    found = [(each.name, each.kind, each.link) for each in Reader(io.BytesIO(data), LIMITS)]
    assert found == [("a", Kind.SYMLINK, "x" * 150), ("b", Kind.HARDLINK, "a")]


@given(st.data())
def test_t54_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    plain = packed(
        (member("a"), b"x" * 700),
        (member("b" * 150), b""),
        (member("c", tarfile.SYMTYPE, "a"), b""),
    )
    changed = bytearray(plain)
    start = 512 * data.draw(st.integers(0, 6))
    for at in data.draw(st.lists(st.integers(start, start + 511), max_size=8)):
        changed[at] = data.draw(st.integers(0, 255))
    changed[start + 148 : start + 156] = b" " * 8
    changed[start + 148 : start + 156] = b"%06o\0 " % sum(changed[start : start + 512])
    for source in (
        io.BytesIO(changed),
        Gunzip(io.BytesIO(gzip.compress(changed)[: data.draw(st.integers(0, 600))])),
    ):
        reader = Reader(source, LIMITS)
        try:
            for _ in reader:
                for part in reader.content():
                    assert len(part) <= archive.CHUNK
        except ArchiveError:
            pass
