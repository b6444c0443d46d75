# SPDX-License-Identifier: GPL-3.0-or-later
import os
import sys
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.errors import HostError
from satlab.lab import job_overlay, job_packages, mount_namespace
from satlab.lab.job_overlay import Layers
from satlab.lab.job_packages import Apt

SIMULATED = """\
Inst libthing2 (2.0-1 Debian:12/stable [amd64])
Inst fping [5.0-1] (5.1-1 Debian:12/stable [amd64])
Conf libthing2 (2.0-1 Debian:12/stable [amd64])
"""


def layered(folder: Path, *stacked: bool) -> Layers:
    for below in ("packages/usr/bin", "files/usr/share", "files/etc", "packages/var/lib"):
        (folder / below).mkdir(parents=True)
    return Layers(folder, *stacked)


def test_layers_are_stacked_on_the_host_s_folders_the_files_uppermost(tmp_path: Path) -> None:
    made = layered(tmp_path, True)
    assert [(str(mount.source), mount.target) for mount in made.mounts()] == [
        (f"{tmp_path}/mounts/usr", "/usr"),
        (f"{tmp_path}/mounts/etc", "/etc"),
    ]
    assert [mount.writable for mount in made.mounts()] == [False, True]
    argv = made.argv(["satbox", "run"], 4711)
    assert argv[-3:] == ["--", "satbox", "run"]
    assert argv[argv.index("stack") + 1 : argv.index("--")] == [
        f"{tmp_path}/mounts/usr:{tmp_path}/files/usr:{tmp_path}/packages/usr:/usr",
        f"4711:{tmp_path}/mounts/etc:{tmp_path}/files/etc:/etc",
    ]


def test_folders_that_everybody_may_read_are_the_job_s(tmp_path: Path) -> None:
    for folder in ("a/open/deep/deeper/deepest", "b/open/other", "a/closed/below"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a/closed").chmod(0o750)
    (tmp_path / "b/way").symlink_to(tmp_path / "a")
    (tmp_path / "b/file").touch()
    upper = tmp_path / "upper"
    mount_namespace.own_folders([f"{tmp_path}/a", f"{tmp_path}/b"], str(upper), os.geteuid())
    made = sorted(str(path.relative_to(upper)) for path in upper.rglob("*"))
    assert made == ["open", "open/deep", "open/deep/deeper", "open/other"]


def test_a_link_in_a_package_is_not_stacked(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/etc").symlink_to("/root")
    made = Layers(tmp_path, stacked=True)
    assert [mount.target for mount in made.mounts()] == ["/etc"]
    assert made.argv(["satbox"], 4711)[-3:] == [f"4711:{tmp_path}/mounts/etc:/etc", "--", "satbox"]


def test_without_overlayfs_variables_lead_to_the_layers(tmp_path: Path) -> None:
    made = layered(tmp_path, False)
    assert [mount.target for mount in made.mounts()] == [
        "/run/satlab/files",
        "/run/satlab/packages",
    ]
    assert made.argv(["satbox", "run"], 4711) == ["satbox", "run"]
    values = made.variables()
    assert values["PATH"].startswith("/run/satlab/files/usr/local/bin:")
    assert values["PATH"].endswith(paths.STANDARD_PATH)
    assert "/run/satlab/packages/usr/bin" in values["PATH"].split(":")
    assert values["PYTHONPATH"].split(":")[0] == str(paths.SHIM)
    assert "/run/satlab/packages/usr/lib" in values["LD_LIBRARY_PATH"].split(":")


def test_a_kernel_that_stacks_nothing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "helper.py"
    failing.write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(mount_namespace, "ARGV", (sys.executable, failing))
    assert not job_overlay.of(tmp_path).stacked
    assert (tmp_path / "files").is_dir()


@pytest.mark.parametrize("name", ["a:b", "a,b", "a\\b"])
def test_paths_that_are_options_of_a_mount_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(HostError, match="cannot be mounted"):
        job_overlay.of(tmp_path / name)


def test_names_of_python_packages_in_debian() -> None:
    names = ("pyftpdlib", "python-dateutil", "Some_Thing")
    found = [job_packages.debian_name(name) for name in names]
    assert found == ["python3-pyftpdlib", "python3-dateutil", "python3-some-thing"]


def standin(folder: Path, text: str, status: int = 0) -> Apt:
    """Return an apt-get that prints a text."""
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\necho 'E: why' >&2\nexit {status}\n")
    program.chmod(0o755)
    return Apt({"PATH": f"{folder}:{paths.STANDARD_PATH}"})


def test_what_the_host_lacks_is_read_from_a_simulation(tmp_path: Path) -> None:
    assert standin(tmp_path, SIMULATED).missing(["fping"]) == {
        "libthing2": "2.0-1",
        "fping": "5.1-1",
    }
    assert standin(tmp_path, SIMULATED).missing([]) == {}


def test_t42_a_name_that_is_none_never_reaches_apt(tmp_path: Path) -> None:
    for name in ("-y", "a b", "/tmp/x.deb", "X"):
        with pytest.raises(HostError, match="is not the name of a package"):
            standin(tmp_path, SIMULATED).missing([name])


def test_faults_of_apt_are_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot install fping: why"):
        standin(tmp_path, "", 100).missing(["fping"])
    (tmp_path / "into").mkdir()
    with pytest.raises(HostError, match="packages of jobs cannot be fetched: why"):
        standin(tmp_path, "", 100).fetch({"fping": "1"}, tmp_path / "into")
    with pytest.raises(HostError, match="apt-get is missing"):
        Apt({"PATH": str(tmp_path / "nothing")}).missing(["fping"])


def test_t43_packages_are_limited_in_number_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = f"'http://x/a.deb' a_1_all.deb {job_packages.MAX_FETCHED_BYTES + 1} SHA256:0\n"
    with pytest.raises(HostError, match="1 packages of 500 MB: more than"):
        standin(tmp_path, large).fetch({"a": "1"}, tmp_path)
    monkeypatch.setattr(job_packages, "MAX_PACKAGES", 1)
    with pytest.raises(HostError, match="2 packages of 0 MB: more than 1 packages"):
        standin(tmp_path, "").fetch({"a": "1", "b": "1"}, tmp_path)
