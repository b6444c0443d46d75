# SPDX-License-Identifier: GPL-3.0-or-later
"""T17 of the threat table: what a compromised API process could leave in its folder for root."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.lab import privileges
from satlab.service import root_process
from satlab.service.api.account_store import Role
from satlab.service.listen import ServeRequest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def api(tmp_path: Path) -> Path:
    """The API's folder, as an earlier start has left it."""
    root_process.set_password(tmp_path / "state", "admin", Role.ADMIN, "long enough")
    return tmp_path / "state" / "api"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir(mode=0o700)
    file = tmp_path / "private" / "secret"
    file.write_text("root's")
    file.chmod(0o600)
    return file


def start(state: Path) -> None:
    stop = threading.Event()
    stop.set()
    root_process.run(ServeRequest("", state / "socket", state), ProgressLog(quiet=True), stop)


def set_password(state: Path) -> None:
    root_process.set_password(state, "other", Role.RUNNER, "long enough")


Deed = Callable[[Path], None]
DEEDS = pytest.mark.parametrize("deed", [start, set_password])


def test_t17_all_in_the_folder_is_made_by_the_api_s_user(api: Path) -> None:
    assert (api / "satlab.sqlite").exists()
    assert {path.stat().st_uid for path in (api, *api.rglob("*"))} == {privileges.API_UID}
    assert api.parent.stat().st_uid == 0


@DEEDS
def test_t17_a_file_of_root_in_it_stays_root_s(api: Path, secret: Path, deed: Deed) -> None:
    os.link(secret, api / "satlab.log")
    with pytest.raises(HostError, match=r"satlab\.log: belongs to user 0") as caught:
        deed(api.parent)
    assert secret.stat().st_uid == 0
    assert f"chown -hR {privileges.API_UID}:{privileges.API_UID} {api}" in caught.value.hint


@DEEDS
def test_t17_root_opens_no_database_there(api: Path, secret: Path, deed: Deed) -> None:
    for file in api.iterdir():
        file.unlink()
    target = secret.with_name("made")
    (api / "satlab.sqlite").symlink_to(target)
    os.chown(api / "satlab.sqlite", privileges.API_UID, privileges.API_UID, follow_symlinks=False)
    with pytest.raises(HostError, match="unable to open"):
        deed(api.parent)
    assert not target.exists()


@DEEDS
def test_t17_a_link_in_place_of_the_folder_is_refused(api: Path, secret: Path, deed: Deed) -> None:
    api.rename(api.with_name("away"))
    api.symlink_to(secret.parent)
    with pytest.raises(HostError, match=r"Not a directory|symbolic links"):
        deed(api.parent)
    assert {path.stat().st_uid for path in (secret.parent, secret)} == {0}


def test_t17_a_folder_that_root_has_just_made_is_given(tmp_path: Path) -> None:
    (tmp_path / "state" / "api").mkdir(mode=0o700, parents=True)
    set_password(tmp_path / "state")
    assert (tmp_path / "state" / "api").stat().st_uid == privileges.API_UID
