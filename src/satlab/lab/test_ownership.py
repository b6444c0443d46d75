# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns labs and results."""

import fcntl
import os
from pathlib import Path

import pytest

from satlab.common import locks, scratch
from satlab.lab import lab, ownership

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")


@pytest.fixture(autouse=True)
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ownership, "OWNERS", tmp_path / "owners")
    return tmp_path / "owners"


def test_a_lab_that_is_owned_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "down", lambda _: pytest.fail("took it down"))
    with ownership.owned("run-a"):
        assert ownership.sweep() == []
    assert not ownership.OWNERS.exists()


def test_an_owner_whose_file_was_swept_before_its_lock_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab, "down", lambda _: None)
    plain, swept = locks.open_lock, list[str]()

    def open_and_lose(path: Path) -> int:
        descriptor = plain(path)
        if not swept:
            swept.extend(ownership.sweep())
        return descriptor

    monkeypatch.setattr(locks, "open_lock", open_and_lose)
    with ownership.owned("run-c"):
        assert swept == ["run-c"]
        assert (ownership.OWNERS / "run-c").exists()
        assert ownership.sweep() == []


def test_a_lab_whose_owner_died_is_swept(owners: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    monkeypatch.setattr(lab, "down", gone.append)
    owners.mkdir()
    (owners / "run-b").touch()
    assert ownership.sweep() == ["run-b"] == gone
    assert ownership.sweep() == []


def test_a_file_that_another_owner_made_anew_is_not_swept(
    owners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "down", lambda _: pytest.fail("took it down"))
    owners.mkdir()
    (owners / "run-d").touch()
    plain = fcntl.flock

    def replace_and_lock(descriptor: int, operation: int) -> None:
        (owners / "run-d").unlink()
        (owners / "run-d").touch()
        plain(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replace_and_lock)
    assert ownership.sweep() == []
    assert (owners / "run-d").exists()


def test_a_lab_that_cannot_be_taken_down_is_an_error_and_can_be_swept_again(
    owners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise FileNotFoundError("ip")

    monkeypatch.setattr(lab, "down", fails)
    owners.mkdir()
    (owners / "run-e").touch()
    with pytest.raises(FileNotFoundError, match="ip"):
        ownership.sweep()
    assert (owners / "run-e").exists()


@ROOT_ONLY
def test_results_belong_to_the_caller_of_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    folder = tmp_path / "runs" / "one"
    ownership.make_folder(folder)
    (folder / "file").touch()
    ownership.chown_to_caller(folder)
    assert {
        (p.stat().st_uid, p.stat().st_gid) for p in (folder.parent, folder, folder / "file")
    } == {(1234, 1235)}
    assert tmp_path.stat().st_uid == os.geteuid()
    with pytest.raises(FileExistsError):
        ownership.make_folder(folder)


@ROOT_ONLY
def test_t17_results_are_given_to_the_caller_however_deep_and_without_what_links_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").touch()
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "victim")
    here = os.open(folder, os.O_PATH)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_PATH, dir_fd=here), here
        os.close(above)
    try:
        ownership.chown_to_caller(folder)
    finally:
        owners = (folder.stat().st_uid, (folder / "link").lstat().st_uid, os.fstat(here).st_uid)
        os.close(here)
        scratch.remove(folder)  # pytest's own removal is recursive
    assert owners == (1234, 1234, 1234)
    assert {path.stat().st_uid for path in (tmp_path / "victim", tmp_path / "victim" / "file")} == {
        0
    }
