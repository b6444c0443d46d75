# SPDX-License-Identifier: GPL-3.0-or-later
import fcntl
from pathlib import Path

import pytest

from satlab.common import locks
from satlab.lab import lab, lab_owners


@pytest.fixture(autouse=True)
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lab_owners, "OWNERS", tmp_path / "owners")
    return tmp_path / "owners"


def test_a_lab_that_is_owned_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "down", lambda _: pytest.fail("took it down"))
    with lab_owners.owned("run-a"):
        assert lab_owners.sweep() == []
    assert not lab_owners.OWNERS.exists()


def test_an_owner_whose_file_was_swept_before_its_lock_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab, "down", lambda _: None)
    plain, swept = locks.open_lock, list[str]()

    def open_and_lose(path: Path) -> int:
        descriptor = plain(path)
        if not swept:
            swept.extend(lab_owners.sweep())
        return descriptor

    monkeypatch.setattr(locks, "open_lock", open_and_lose)
    with lab_owners.owned("run-c"):
        assert swept == ["run-c"]
        assert (lab_owners.OWNERS / "run-c").exists()
        assert lab_owners.sweep() == []


def test_a_lab_whose_owner_died_is_swept(owners: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    monkeypatch.setattr(lab, "down", gone.append)
    owners.mkdir()
    (owners / "run-b").touch()
    assert lab_owners.sweep() == ["run-b"] == gone
    assert lab_owners.sweep() == []


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
    assert lab_owners.sweep() == []
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
        lab_owners.sweep()
    assert (owners / "run-e").exists()
