# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages for guests: same bytes from the same tree, all that jobs need, nothing that cannot run
there.
"""

import hashlib
import subprocess
from pathlib import Path

import pytest

from satlab.common.errors import HostError
from satlab.vm import debian_packages


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """Build twice, with a stand-in for the emulator that has debug information: it is packed, not
    run.
    """
    built = tmp_path_factory.mktemp("built")
    argv = ["gcc", "-g", "-x", "c", "-o", str(built / "satlink"), "-"]
    subprocess.run(argv, input=b"int main(void) { return 0; }", check=True)
    assert b".debug_info" in (built / "satlink").read_bytes()
    first, second = (tmp_path_factory.mktemp(name) / "dist" for name in ("a", "b"))
    return debian_packages.build(first, built), debian_packages.build(second, built)


def listing(deb: Path) -> dict[str, str]:
    """Return the files of a package, path to mode."""
    text = subprocess.run(
        ["dpkg-deb", "-c", str(deb)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in text.splitlines()]
    assert {row[1] for row in rows} == {"root/root"}
    return {row[5]: row[0] for row in rows}


@pytest.mark.promise("P99")
def test_the_same_tree_results_in_the_same_bytes(packages: tuple[list[Path], list[Path]]) -> None:
    first, second = (
        [(p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in each] for each in packages
    )
    assert first == second
    assert [name.split("_")[0] for name, _ in first] == [
        "satlink",
        "satlab-jobs",
        "satlab-web-targets",
    ]


def test_programs_are_packed_without_debug_information(
    tmp_path: Path, packages: tuple[list[Path], list[Path]]
) -> None:
    subprocess.run(["dpkg-deb", "-x", str(packages[0][0]), str(tmp_path)], check=True)
    assert b".debug_info" not in (tmp_path / "usr/bin/satlink").read_bytes()
    assert subprocess.run([tmp_path / "usr/bin/satlink"], check=False).returncode == 0


def test_jobs_come_with_their_modules_and_launcher(packages: tuple[list[Path], list[Path]]) -> None:
    files = listing(packages[0][1])
    assert files["./usr/lib/satlab/run-job"] == "-rwxr-xr-x"
    for part in (
        "jobs/satlab_page_load/files/satlab_page_load.py",
        "python/collect_agent.py",
        "python/selenium/__init__.py",
    ):
        assert files[f"./usr/lib/satlab/{part}"].startswith("-rw")
    assert not [
        name
        for name in files
        if name.endswith((".exe", ".pyc")) or "test_" in name.rsplit("/", 1)[-1]
    ]


def test_pages_are_those_of_the_manifest(packages: tuple[list[Path], list[Path]]) -> None:
    files = listing(packages[0][2])
    assert "./srv/satlab/www/kepler/manifest.csv" in files
    assert sum(mode.startswith("-") for mode in files.values()) >= 75


def test_packages_of_other_versions_are_replaced(
    tmp_path: Path, packages: tuple[list[Path], list[Path]]
) -> None:
    folder = packages[0][0].parent
    assert len(list(folder.glob("*.deb"))) == len(packages[0])
    with pytest.raises(HostError, match="is not built"):
        debian_packages.build(tmp_path / "dist", tmp_path)
