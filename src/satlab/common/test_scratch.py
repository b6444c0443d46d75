# SPDX-License-Identifier: GPL-3.0-or-later
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.common import paths, scratch
from satlab.common.errors import HostError


@pytest.fixture(autouse=True)
def _nothing_deep_stays(tmp_path: Path) -> Iterator[None]:
    """Remove what a failed test leaves: pytest's own removal is recursive."""
    yield
    subprocess.run(["rm", "-rf", "--", str(tmp_path)], check=True)


def nest(folder: Path, depth: int) -> None:
    """Make folders in each other, deeper than a path or Python's recursion reaches."""
    here = os.open(folder, os.O_PATH)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_t18_a_deep_tree_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    nest(tmp_path / "tree", 3000)
    scratch.remove(tmp_path / "tree")
    assert not list(tmp_path.iterdir())
    scratch.remove(tmp_path / "tree")  # nothing to do


def test_t18_links_are_removed_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "-rf").mkdir()
    (tmp_path / "-rf" / "link").symlink_to(tmp_path / "kept")
    scratch.remove(tmp_path / "-rf")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_t18_what_cannot_be_removed_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stays = tmp_path / ("x" * 300)
    with pytest.raises(HostError, match="File name too long"):
        scratch.remove(stays)
    scratch.try_remove(stays)
    assert str(stays) in caplog.text
    (tmp_path / "slow").mkdir()
    with pytest.raises(HostError, match="is not removed after 0 s"):
        scratch.remove(tmp_path / "slow", within_s=0)


def test_t18_a_temporary_folder_goes_with_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch.folder("test", mode=0o711) as folder:
        assert folder.stat().st_mode & 0o777 == 0o711
        nest(folder, 3000)
    assert not folder.exists()


def test_t18_the_lock_goes_when_unmounting_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with scratch.folder("test") as folder:
        monkeypatch.setattr(scratch, "MOUNT_S", 0.0)
        monkeypatch.setattr(scratch, "_mounted_below", lambda _: [folder])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert "not done after 0 s" in caplog.text


KILLED = """
import os, sys
from satlab.common import scratch
with scratch.folder("test") as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_t09_what_a_killed_program_left_is_removed_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": paths.PYTHONPATH}
    argv = [sys.executable, "-c", KILLED]
    left = Path(
        subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    assert left.is_dir()
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(victim)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch.folder("test") as folder:
        assert scratch.sweep() == [left]
        assert folder.is_dir() and victim.is_dir() and not left.exists()
    if os.geteuid() == 0:
        os.chown(victim, 1, 1)
        theirs = victim.rename(tmp_path / f"{scratch.PREFIX}theirs")
        assert scratch.sweep() == [] and theirs.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t25_a_sized_folder_holds_no_more_and_goes_with_its_folder() -> None:
    """The name has characters that mountinfo escapes."""
    with scratch.folder("test") as place:
        folder = place / "a b\\c"
        folder.mkdir()
        scratch.sized(folder, 1 << 20, 10)
        with pytest.raises(OSError, match="No space left"):
            (folder / "large").write_bytes(b"x" * (2 << 20))
        (folder / "large").unlink()
        with pytest.raises(OSError, match="No space left"):
            for number in range(10):
                (folder / str(number)).touch()
    assert not place.exists() and str(place) not in Path("/proc/self/mountinfo").read_text()


def test_t25_what_is_copied_out_keeps_its_links_and_holes(tmp_path: Path) -> None:
    folder, target = tmp_path / "from", tmp_path / "to"
    (folder / "deep").mkdir(parents=True)
    target.mkdir()
    (folder / "deep" / "link").symlink_to("/etc/passwd")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    scratch.copy_out(folder, target)
    assert (target / "deep" / "link").is_symlink()
    found = (target / "sparse").stat()
    assert (found.st_size, found.st_blocks) == (1 << 40, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t25_a_full_disk_is_an_error_of_who_copies_out() -> None:
    with scratch.folder("test") as place:
        folder, target = place / "from", place / "to"
        for made in (folder, target):
            made.mkdir()
        scratch.sized(target, 1 << 20, 10)
        (folder / "large").write_bytes(b"x" * (2 << 20))
        with pytest.raises(OSError, match="No space left"):
            scratch.copy_out(folder, target)
