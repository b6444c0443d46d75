# SPDX-License-Identifier: GPL-3.0-or-later
"""What a sandbox shows: no link that others made, or make meanwhile, leads root to another file or
folder.
"""

import os
from pathlib import Path

import pytest

from satlab.check.endpoint import command_pair, interop_image, lockstep
from satlab.common.errors import ConfigError
from satlab.lab.sandbox import Limits, Mount, Sandbox
from tests.sandbox_place import run_to_its_end

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SMALL = Limits(seconds=20, memory_bytes=128 << 20, processes=32, disk_bytes=8 << 20)
SCRIPT = interop_image.SCRIPT


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return a folder that only root can enter, with a file that all could read."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("of root")
    return folder


@pytest.fixture
def endpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs" / "endpoint"
    folder.mkdir(parents=True)
    (folder / SCRIPT).write_text("#!/bin/sh\n")
    (folder / SCRIPT).chmod(0o755)
    return folder


def refused(box: Sandbox, tmp_path: Path) -> str:
    """Return why a sandbox is not built, and check that nothing of root is in its log."""
    ended = run_to_its_end(box, ["sh", "-c", "cat /shown /shown/*; ls /"], tmp_path / "log")
    assert "of root" not in (tmp_path / "log").read_text()
    return ended.stop_reason


@pytest.mark.parametrize("kind", ["file", "folder", "above", "base"])
def test_t60_satbox_follows_no_link_to_a_source(kind: str, closed: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    link = tmp_path / "theirs" / "link"
    link.symlink_to(closed / "secret" if kind == "file" else closed)
    shown = {"file": link, "folder": link, "above": link / "secret"}
    box = Sandbox(base=link, limits=SMALL)
    if kind != "base":
        box = Sandbox(mounts=(Mount(shown[kind], "/shown"),), limits=SMALL)
    assert "symbolic link, which is not followed" in refused(box, tmp_path)


def test_t60_a_link_that_comes_after_the_check_is_not_followed(
    endpoint: Path, closed: Path, tmp_path: Path
) -> None:
    (endpoint / "data").write_text("theirs")
    with interop_image.opened(endpoint) as image:
        (endpoint / "data").unlink()
        (endpoint / "data").symlink_to(closed / "secret")
        assert "symbolic link" in refused(Sandbox(mounts=image.mounts, limits=SMALL), tmp_path)
        (endpoint / "data").unlink()
        (endpoint / "data").write_text("theirs")
        endpoint.parent.rename(tmp_path / "away")
        endpoint.parent.symlink_to(tmp_path / "away")
        assert "symbolic link" in refused(Sandbox(mounts=image.mounts, limits=SMALL), tmp_path)


@pytest.mark.parametrize("place", ["itself", "above", "file", "folder", "script"])
def test_t60_an_endpoint_with_a_link_is_refused(
    place: str, endpoint: Path, closed: Path, tmp_path: Path
) -> None:
    link = {
        "itself": tmp_path / "link",
        "above": tmp_path / "link",
        "file": endpoint / "link",
        "folder": endpoint / "link",
        "script": endpoint / SCRIPT,
    }[place]
    link.unlink(missing_ok=True)
    link.symlink_to(
        {"itself": endpoint, "above": endpoint.parent, "file": closed / "secret"}.get(place, closed)
    )
    named = {"itself": link, "above": link / endpoint.name}.get(place, endpoint)
    with pytest.raises(ConfigError), interop_image.opened(named):
        pass


def test_t60_an_archive_behind_a_link_is_not_read(closed: Path, tmp_path: Path) -> None:
    (tmp_path / "image.tar").symlink_to(closed / "secret")
    with (
        pytest.raises(ConfigError, match="is not a plain file"),
        interop_image.opened(tmp_path / "image.tar"),
    ):
        pass


def test_t60_a_root_file_system_keeps_its_links_which_lead_inside_it(
    endpoint: Path, closed: Path
) -> None:
    (endpoint / "usr").mkdir()
    (endpoint / "bin").symlink_to("usr/bin")
    (endpoint / "out").symlink_to(closed)
    with interop_image.opened(endpoint) as image:
        assert image.base == endpoint and image.mounts == ()


def test_t60_a_program_behind_a_link_shows_no_folder_of_another(
    closed: Path, tmp_path: Path
) -> None:
    (closed / "program").write_text("#!/bin/sh\n")
    (closed / "program").chmod(0o755)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "program").symlink_to(closed / "program")
    with pytest.raises(ConfigError) as refusal:
        command_pair.parse(str(tmp_path / "theirs" / "program"), "cat")
    (fault,) = refusal.value.faults
    assert "which the sandbox would not show" in str(fault)
    (tmp_path / "link").symlink_to(closed)
    for parse in (command_pair.parse, lockstep.parse):
        with pytest.raises(ConfigError) as refusal:
            parse(str(tmp_path / "link" / "program"), "cat", [tmp_path / "link"])
        assert len(refusal.value.faults) == 2 and "symbolic link" in str(refusal.value.faults[0])


def test_t60_a_program_directly_below_a_folder_of_the_root_shows_itself_alone() -> None:
    assert command_pair.programs_folder(Path("/home/program")) == Path("/home/program")
    assert command_pair.programs_folder(Path("/program")) == Path("/program")
    assert command_pair.programs_folder(Path("/home/user/program")) == Path("/home/user")
