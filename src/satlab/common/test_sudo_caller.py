# SPDX-License-Identifier: GPL-3.0-or-later
import os
from pathlib import Path

import pytest

from satlab.common import scratch
from satlab.common.sudo_caller import chown_to_caller, make_folder

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")


@ROOT_ONLY
def test_results_belong_to_the_caller_of_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    folder = tmp_path / "runs" / "one"
    make_folder(folder)
    (folder / "file").touch()
    chown_to_caller(folder)
    assert {
        (p.stat().st_uid, p.stat().st_gid) for p in (folder.parent, folder, folder / "file")
    } == {(1234, 1235)}
    assert tmp_path.stat().st_uid == os.geteuid()
    with pytest.raises(FileExistsError):
        make_folder(folder)


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
        chown_to_caller(folder)
    finally:
        owners = (folder.stat().st_uid, (folder / "link").lstat().st_uid, os.fstat(here).st_uid)
        os.close(here)
        scratch.remove(folder)  # pytest's own removal is recursive
    assert owners == (1234, 1234, 1234)
    assert {path.stat().st_uid for path in (tmp_path / "victim", tmp_path / "victim" / "file")} == {
        0
    }
