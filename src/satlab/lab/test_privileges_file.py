# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

from satlab.common.errors import ConfigError
from satlab.lab import privileges, privileges_file


def test_an_operator_grants_to_jobs_that_are_not_shipped(tmp_path: Path) -> None:
    file = tmp_path / "privileges.yml"
    file.write_text("fping: [net_raw]\nip_route: [net_admin, net_raw]\nquiet: []\n")
    assert privileges_file.load(file) == {
        "fping": ("net_raw",),
        "ip_route": ("net_admin", "net_raw"),
        "quiet": (),
    }
    file.write_text("")
    assert privileges_file.load(file) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("satlab_ping: [net_admin]", "is a shipped job"),
        ("fping: [sys_admin]", "'sys_admin' cannot be granted"),
        ("fping: net_raw", "is not a list of privileges"),
        ("[fping]", "is not a mapping"),
        ("fping: [", "is not YAML"),
        ("fping: [net_raw]\n" + 66_000 * "#", "has more than 65536 bytes"),
    ],
)
def test_what_cannot_be_granted_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "privileges.yml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        privileges_file.load(file)
    assert said in " ".join([str(refused.value), *map(str, refused.value.faults)])


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "privileges.yml"
    file.write_text("fping: [net_raw]")
    file.chmod(0o664)
    with pytest.raises(ConfigError, match="others may write"):
        privileges_file.load(file)
    with pytest.raises(ConfigError, match="No such file"):
        privileges_file.load(tmp_path / "nothing.yml")


def test_shipped_jobs_are_known_by_name() -> None:
    assert set(privileges.CAPABILITIES) <= privileges.SHIPPED
