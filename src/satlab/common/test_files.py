# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are replaced as a whole."""

import stat
from pathlib import Path

import pytest

from satlab.common.files import new_folder, write_atomically


def test_a_file_is_replaced_with_its_mode_and_no_other_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_atomically(path, "ne\N{LATIN SMALL LETTER U WITH DIAERESIS}")
    assert path.read_bytes() == b"ne\xc3\xbc"
    write_atomically(path, "private", mode=0o600)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("private", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_who_reads_while_it_is_written_sees_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"
    with pytest.raises(TypeError):
        write_atomically(path, 7)  # type: ignore[arg-type]
    assert path.read_text() == "new"
    write_atomically(path, "newer")  # what a write that failed has left does not stand in the way
    assert path.read_text() == "newer"


def test_folders_of_one_second_are_different_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20261126-091635")
    made = [new_folder(tmp_path / "runs", "flows") for _ in range(3)]
    assert [folder.name for folder in made] == [
        f"flows-20261126-091635{end}" for end in ("", "-2", "-3")
    ]
    assert all(folder.is_dir() for folder in made)
