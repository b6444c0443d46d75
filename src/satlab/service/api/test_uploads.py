# SPDX-License-Identifier: GPL-3.0-or-later
"""T4 and T15 of the threat table: archives of jobs, names that become paths."""

import errno
import gzip
import io
import tarfile
import time
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.common.errors import ConfigError
from satlab.service.api import uploads
from satlab.service.api.conftest import HOST, FakeHelper
from satlab.service.api.dependencies import Context
from satlab.service.app import create_app
from tests.archives import archive, descriptor

DESCRIPTOR = descriptor(
    b"optional: [{name: word, type: str, count: 1, flag: -w, description: A word}]"
)
GOOD = {"files/extra.yml": DESCRIPTOR, "files/extra.py": b"print()"}


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def bomb() -> bytes:
    return archive({"files/x": b"\0" * (34 << 20)})


def pax(count: int, size: int) -> bytes:
    """Return an archive whose only member has so many extended headers of so many bytes, one before
    the other.
    """
    record = tarfile.TarInfo._create_pax_generic_header(  # type: ignore[attr-defined]
        {"comment": "x" * size}, tarfile.XHDTYPE, "utf-8"
    )
    return gzip.compress(record * count + tarfile.TarInfo("x").tobuf() + b"\0" * 1024)


HOSTILE = {
    "large header": pax(1, 20 << 20),
    "many headers": pax(20_000, 10),
    "outside": archive({"../outside": b"x"}),
    "absolute": archive({"/etc/outside": b"x"}),
    "inner": archive({"files/../../outside": b"x"}),
    "symlink": archive({}, link("files", "/etc", tarfile.SYMTYPE)),
    "hardlink": archive({}, link("x", "/etc/passwd", tarfile.LNKTYPE)),
    "device": archive({}, link("x", "", tarfile.CHRTYPE)),
    "fifo": archive({}, link("x", "", tarfile.FIFOTYPE)),
    "hidden": archive({".hidden": b"x"}),
    "long": archive({"x" * 65: b"x"}),
    "look-alike": archive({"f\u0456les": b"x"}),
    "deep": archive({"/".join("abcdefghij"): b"x"}),
    "many": archive({f"f{number}": b"" for number in range(201)}),
    "twice": archive({"x": b"1", "./x": b"2"}),
    "no archive": b"PK\x03\x04 a zip",
    "cut": archive(GOOD)[:60],
    "empty": b"",
    "nothing": gzip.compress(b"\0" * 10240),
}


@pytest.mark.parametrize("content", [*HOSTILE.values(), bomb()], ids=[*HOSTILE, "bomb"])
def test_t04_hostile_archives_write_nothing(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "jobs" / "extra"
    with pytest.raises(ConfigError):
        uploads.unpack(io.BytesIO(content), target, lambda _: None)
    assert [path for path in tmp_path.rglob("*") if path != tmp_path / "jobs"] == []


def test_t30_headers_of_an_archive_are_limited_before_they_are_read(tmp_path: Path) -> None:
    before = time.process_time()
    for content in (pax(1, 20 << 20), pax(20_000, 10), pax(400, 60_000)):
        with pytest.raises(ConfigError, match=r"too many or too large headers|more than"):
            uploads.unpack(io.BytesIO(content), tmp_path / "extra", lambda _: None)
    assert time.process_time() - before < 10


def send(
    client: TestClient, name: str, content: bytes, origin: str | None = f"http://{HOST}"
) -> int:
    headers = {"origin": origin} if origin else {}
    answer = client.post(
        "/job/", data={"name": name}, files={"file": ("x.tar.gz", content)}, headers=headers
    )
    return answer.status_code


def test_t04_a_job_is_uploaded_and_known(admin: TestClient, context: Context) -> None:
    assert send(admin, "extra", archive(GOOD)) == 200
    assert (context.settings.jobs / "extra" / "files" / "extra.py").read_bytes() == b"print()"
    assert admin.get("/job/extra/").json()["arguments"]["optional"][0]["name"] == "word"
    assert admin.get("/job/extra/?type=help").json() == {"job_name": "extra", "help": "More"}


@pytest.mark.parametrize(
    "name", ["../extra", "..", ".extra", "a/b", "x" * 65, "\u0435xtra", "a\0b", ""]
)
def test_t04_names_of_jobs_are_checked(admin: TestClient, context: Context, name: str) -> None:
    assert send(admin, name, archive(GOOD)) == 400
    assert not context.settings.jobs.exists()


def test_t04_a_shipped_job_cannot_be_replaced(admin: TestClient) -> None:
    assert send(admin, "satlab_ping", archive(GOOD)) == 409


def test_t01_uploads_need_the_origin_of_our_own_pages(
    admin: TestClient, runner: TestClient, app: FastAPI
) -> None:
    del app
    assert send(admin, "extra", archive(GOOD), "http://evil.example") == 403
    assert send(admin, "extra", archive(GOOD), None) == 403
    assert send(runner, "extra", archive(GOOD)) == 403


MERGES = b"a0: &a0 {k: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (n, n, b"*a%d, " % (n - 1) * 9) for n in range(1, 12)
)
"""Nine times as many keys on each line: a reader that follows merge keys does not end."""
BAD = {
    "no descriptor": {"files/extra.py": b"print()"},
    "not valid": {"files/extra.yml": b"general: {name: extra}"},
    "deep": {"files/extra.yml": b"[" * 100_000},
    "merges": {"files/extra.yml": MERGES + DESCRIPTOR},
    "tagged date": {"files/extra.yml": DESCRIPTOR.replace(b"'1.0'", b"!!timestamp 2001-13-45")},
}


@pytest.mark.parametrize("files", BAD.values(), ids=BAD)
def test_t21_a_refused_upload_leaves_the_earlier_version(
    admin: TestClient, context: Context, files: dict[str, bytes]
) -> None:
    assert send(admin, "extra", archive(files)) == 400
    assert list(context.settings.jobs.iterdir()) == []
    assert admin.get("/job/extra/").status_code == 404
    assert send(admin, "extra", archive(GOOD)) == 200
    assert send(admin, "extra", archive(files)) == 400
    assert [path.name for path in context.settings.jobs.iterdir()] == ["extra"]
    assert (context.settings.jobs / "extra" / "files" / "extra.py").read_bytes() == b"print()"
    assert admin.get("/job/extra/").json()["general"]["description"] == "More"


def test_a_job_has_the_name_of_its_folder(admin: TestClient) -> None:
    """As in OpenBACH, which takes the name of the request."""
    other = DESCRIPTOR.replace(b"name: extra", b"name: other")
    assert send(admin, "extra", archive({**GOOD, "files/extra.yml": other})) == 200
    assert admin.get("/job/extra/").json()["general"]["name"] == "extra"
    assert admin.get("/job/other/").status_code == 404


def test_t65_a_date_of_a_job_is_text(admin: TestClient) -> None:
    dated = DESCRIPTOR.replace(b"'1.0'", b"2001-13-45")
    assert send(admin, "extra", archive({**GOOD, "files/extra.yml": dated})) == 200
    assert admin.get("/job/extra/").json()["general"]["job_version"] == "2001-13-45"


def test_t21_a_new_version_takes_the_place_of_the_earlier_one(
    admin: TestClient, context: Context
) -> None:
    assert send(admin, "extra", archive({**GOOD, "files/old.py": b""})) == 200
    newer = DESCRIPTOR.replace(b"description: More", b"description: Newer")
    assert send(admin, "extra", archive({**GOOD, "files/extra.yml": newer})) == 200
    assert [path.name for path in context.settings.jobs.iterdir()] == ["extra"]
    assert {path.name for path in (context.settings.jobs / "extra" / "files").iterdir()} == {
        "extra.yml",
        "extra.py",
    }
    assert admin.get("/job/extra/").json()["general"]["description"] == "Newer"


def test_t21_what_is_refused_while_it_is_exchanged_leaves_the_earlier_version(
    admin: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(admin, "extra", archive(GOOD)) == 200

    def cannot(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(uploads, "_exchange", cannot)
    assert send(admin, "extra", archive({**GOOD, "files/extra.py": b"new"})) == 400
    assert [path.name for path in context.settings.jobs.iterdir()] == ["extra"]
    assert (context.settings.jobs / "extra" / "files" / "extra.py").read_bytes() == b"print()"


def test_an_uploaded_job_is_removed_with_its_files(admin: TestClient, context: Context) -> None:
    assert send(admin, "extra", archive(GOOD)) == 200
    assert admin.request("DELETE", "/job/extra/", json={}).status_code == 204
    assert list(context.settings.jobs.iterdir()) == []
    assert admin.get("/job/extra/").status_code == 404
    assert admin.request("DELETE", "/job/extra/", json={}).status_code == 404


def test_t15_what_a_crash_leaves_of_an_upload_is_removed_at_the_next_start(
    admin: TestClient, context: Context
) -> None:
    assert send(admin, "extra", archive(GOOD)) == 200
    left = context.settings.jobs / ".upload-x1y2" / "extra"
    left.mkdir(parents=True)
    (left / "large").write_bytes(b"x")
    create_app(context.store, FakeHelper(), context.settings, runs_queue=False)
    assert [path.name for path in context.settings.jobs.iterdir()] == ["extra"]


def test_t15_an_upload_is_bounded(admin: TestClient) -> None:
    assert send(admin, "extra", b"x" * (9 << 20)) == 413
