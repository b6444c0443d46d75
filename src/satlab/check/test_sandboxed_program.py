# SPDX-License-Identifier: GPL-3.0-or-later
import os
from pathlib import Path

import pytest

from satlab.check import sandboxed_program
from satlab.check.sandboxed_program import ExitReport, NotStartedError
from satlab.common import scratch
from satlab.lab.sandbox import Sandbox


def kept(tmp_path: Path) -> list[str]:
    sandboxed_program.keep(tmp_path / "theirs", tmp_path / "kept")
    found = (tmp_path / "kept").rglob("*")
    return sorted(str(file.relative_to(tmp_path / "kept")) for file in found if file.is_file())


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs"


def test_links_pipes_and_large_files_of_a_program_are_not_kept(
    tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_program, "KEPT_FILE_BYTES", 10)
    (theirs / "logs").mkdir(parents=True)
    (theirs / "logs" / "keys.log").write_text("keys")
    (theirs / "large").write_text("x" * 11)
    (theirs / "link").symlink_to("/etc/passwd")
    os.mkfifo(theirs / "pipe")
    assert kept(tmp_path) == ["logs/keys.log"]


def test_t25_many_small_and_sparse_files_of_a_program_stay_within_bounds(
    tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_program, "KEPT_BYTES", 2500)
    for number in range(5):
        with (theirs / f"sparse{number}").open("wb") as file:
            file.truncate(1000)
    assert kept(tmp_path) == ["sparse0", "sparse1"]
    monkeypatch.setattr(sandboxed_program, "KEPT_FILES", 1)
    (tmp_path / "kept" / "sparse1").unlink()
    assert kept(tmp_path) == ["sparse0"]


def test_t25_deep_folders_of_a_program_are_left_out(
    tmp_path: Path, theirs: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: scratch.remove(tmp_path))  # pytest's own removal is recursive
    place = theirs
    for _ in range(1100):
        place = place / "d"
        place.mkdir()
    (theirs / "file").touch()
    assert kept(tmp_path) == ["file"]


def test_a_program_whose_capabilities_would_be_the_host_s_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(NotStartedError, match=r"CAP_NET_ADMIN and CAP_NET_RAW.* no user namespace"):
        capabilities = ("net_admin", "net_bind_service", "net_raw")
        sandboxed_program.start(Sandbox(capabilities=capabilities), ["true"], tmp_path / "log")
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("output", "is_refusal"),
    [
        ("", True),
        ("unsupported test case: keyupdate", True),
        ("/run_endpoint.sh: line 9: /quic-go/client: No such file or directory", False),
        ("starting | run.sh: line 3: picoquicdemo: command not found", False),
        ("/bin/sh: 1: client: not found", False),
    ],
)
def test_a_missing_program_is_not_an_unsupported_test_case(
    output: str, *, is_refusal: bool
) -> None:
    ended = ExitReport(127, "", 0.1, 1, output)
    assert ended.is_refusal is is_refusal
    assert ended.reason.startswith(
        "it ended with status 127" if is_refusal else "a program is missing: "
    )
    assert not ExitReport(1, "", 0.1, 1, output).is_refusal
    assert not ExitReport(127, "it took too long", 0.1, 1, "").is_refusal
