# SPDX-License-Identifier: GPL-3.0-or-later
"""T17 of the threat table: which files root hands over, and what it refuses to."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from satlab.common.errors import HostError
from satlab.lab import privileges

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
UID = privileges.new_uid()


def test_t17_a_folder_is_given_without_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "inside").touch()
    privileges.chown(tmp_path / "given", UID)
    assert (tmp_path / "given").stat().st_uid == (tmp_path / "given").stat().st_gid == UID
    assert (tmp_path / "given" / "inside").stat().st_uid == 0


def test_t17_a_new_tree_is_given_whole(tmp_path: Path) -> None:
    (tmp_path / "given" / "deep").mkdir(parents=True)
    (tmp_path / "given" / "deep" / "file").touch()
    privileges.chown_tree(tmp_path / "given", UID)
    given = [tmp_path / "given", *(tmp_path / "given").rglob("*")]
    assert [each.stat().st_uid for each in given] == [UID] * 3
    assert tmp_path.stat().st_uid == 0


@pytest.mark.parametrize("chown", [privileges.chown, privileges.chown_tree])
def test_t17_no_link_is_followed(tmp_path: Path, chown: Callable[[Path, int], None]) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret").touch()
    (tmp_path / "link").symlink_to(victim)
    for path in (tmp_path / "link", tmp_path / "link" / "secret"):
        with pytest.raises((HostError, NotADirectoryError)):
            chown(path, UID)
    assert victim.stat().st_uid == (victim / "secret").stat().st_uid == 0


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_t17_nothing_is_given_where_others_can_replace_it(tmp_path: Path, mode: int) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    theirs.chmod(mode)
    if mode == 0o700:
        os.chown(theirs, UID, UID)
    for chown in (privileges.chown, privileges.chown_tree):
        with pytest.raises(HostError, match="jobs can write"):
            chown(theirs / "file", privileges.API_UID)
    with pytest.raises(HostError, match="jobs can write"):
        privileges.chown_tree(theirs, privileges.API_UID)
    assert (theirs / "file").stat().st_uid == 0
