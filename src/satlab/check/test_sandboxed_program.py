# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from satlab.check import sandboxed_program
from satlab.check.sandboxed_program import ExitReport, NotStartedError
from satlab.common import paths, scratch
from satlab.common.errors import ExitStatus, HostError
from satlab.lab.sandbox import Sandbox, Usage


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


def satbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int) -> None:
    """Put a script in the place of satbox. Of `said`, a line of JSON is its report."""
    program = tmp_path / "satbox"
    program.write_text(
        f"""#!{sys.executable}
import json, sys
report = open(json.load(open(sys.argv[2]))["report"], "w")
said = {said!r}
print(said, file=report if said[0] == "{{" else sys.stderr)
sys.exit({status})
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(paths, "SATBOX", program)


def ended(why: str, status: int) -> str:
    used = {"lasted_s": 0.1, "cpu_s": 0.1, "peak_bytes": 1, "waited_s": 0.0}
    return json.dumps({"status": status, "why": why} | used)


@pytest.mark.parametrize(
    ("said", "status", "fault"),
    [
        ("error: unshare: Operation not permitted", 3, "unshare: Operation not permitted"),
        ("error: the variable A: satbox takes HOME", 2, "the variable A"),
        (ended("the sandbox cannot be built: /tmp: No space left on device", -9), 3, "No space"),
    ],
)
@pytest.mark.promise("P77")
def test_a_sandbox_that_cannot_be_built_is_the_host_s_error(
    said: str, status: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    satbox(tmp_path, monkeypatch, said, status)
    found = sandboxed_program.start(Sandbox(), ["true"], tmp_path / "log").poll(10)
    assert found is not None and fault in found.reason
    with pytest.raises(HostError, match="sandbox of the server cannot be built") as caught:
        found.of_program("server")
    assert fault in str(caught.value) and "user namespaces" in caught.value.hint
    assert caught.value.status == ExitStatus.HOST


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        (ended("", 3), 3, "it ended with status 3"),
        (ended("", 126), 126, "it ended with status 126"),
        (ended("more than 2 GiB of memory", -9), 3, "more than 2 GiB of memory"),
    ],
)
def test_how_a_program_ended_is_its_own_result(
    said: str, status: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    satbox(tmp_path, monkeypatch, said, status)
    found = sandboxed_program.start(Sandbox(), ["true"], tmp_path / "log").poll(10)
    assert found is not None and found.of_program("client").reason == reason


def test_a_program_that_could_not_be_confined_was_not_started() -> None:
    said = "error: /bin/true: sandbox: Operation not permitted (os error 1)"
    used = Usage(126, "", 0.1, 0.1, 1, 0.0)
    assert sandboxed_program.sandbox_fault(used, 126, said) == said
    assert not sandboxed_program.sandbox_fault(used, 126, "error: /bin/no: No such file")
    assert not sandboxed_program.sandbox_fault(replace(used, status=1), 1, said)
    assert not sandboxed_program.sandbox_fault(None, -9, said)  # killed
