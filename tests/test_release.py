# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian package and the image that `make release` makes, with stand-ins of the programs and
one library.
"""

import gzip
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from satlab.common.errors import HostError
from satlab.vm import debian_packages
from tools import release


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in release.PROGRAMS:
        (folder / name).write_text("#!/bin/sh\n")
    return folder


@pytest.mark.promise("P99")
def test_the_package_starts_satlab_without_pip_and_compiler(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_requirements", lambda: ["PyYAML", "plotly"])
    monkeypatch.setattr(debian_packages, "commit_time", lambda: 1_790_000_000)
    deb = release.package(tmp_path / "one", programs)
    subprocess.run(["dpkg-deb", "-x", str(deb), str(tmp_path / "root")], check=True)
    library = tmp_path / "root" / release.LIBRARY
    assert {path.name for path in (library / "bin").iterdir()} == set(release.PROGRAMS)
    assert (library / ".venv/bin/python").readlink() == Path("/usr/bin/python3")
    assert (library / "vagrant/lab.yml").is_file() and (
        library / "src/satlab/cli/__init__.py"
    ).is_file()
    assert list((library / "src/satlab/cli/__pycache__").glob("__init__.*.pyc"))
    assert not list(library.rglob("test_*.py"))
    (plotly,) = (
        path for path in library.glob(".venv/lib/*/site-packages/plotly/**/*") if path.is_file()
    )
    assert plotly.name == "plotly.min.js", "of Plotly's package nothing else is used"
    system = {
        "lib/systemd/system/satlab.service": b"ExecStart=/usr/bin/satlab serve",
        "share/bash-completion/completions/satlab": b"complete -o default",
        "share/man/man1/satlab.1.gz": b".SS satlab reproduce",
        "share/doc/satlab/copyright": b"GPL-3.0-or-later",
        "share/doc/satlab/changelog.gz": b"## 0.2.0",
    }
    for name, part in system.items():
        content = (tmp_path / "root/usr" / name).read_bytes()
        assert part in (gzip.decompress(content) if name.endswith(".gz") else content), name
    about = subprocess.run(["dpkg-deb", "-f", str(deb)], capture_output=True, text=True, check=True)
    for word in ("satellite", "SATCOM", "HTTP/3", "page load"):
        assert word in about.stdout, "apt-cache search finds it"
    start = tmp_path / "root/usr/bin/satlab"
    start.write_text(start.read_text().replace("lib=/", f"lib={tmp_path}/root/"))
    assert subprocess.run([str(start), "--install", "lab", "quic"], check=False).returncode == 0
    refused = subprocess.run(
        [str(start), "--install", "vm"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 3 and "hint:" in refused.stderr
    again = release.package(tmp_path / "two", programs)
    assert again.name == deb.name and again.read_bytes() == deb.read_bytes()


def test_a_program_that_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="not built: satbox"):
        release.package(tmp_path, tmp_path)


def test_an_image_holds_its_layer_by_digest(tmp_path: Path) -> None:
    root, made = tmp_path / "root.tar", tmp_path / "image.oci.tar"
    (tmp_path / "file").write_text("x")
    with tarfile.open(root, "w") as archive:
        archive.add(tmp_path / "file", "file")
    plain = release.digest(root)
    release.oci_archive(root, tmp_path / "layout", made)
    with tarfile.open(made) as archive:
        texts = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        blobs = {name: file.read() for name, file in texts.items() if file is not None}

    def blob(descriptor: dict[str, str]) -> bytes:
        return blobs[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]

    manifest = json.loads(blob(json.loads(blobs["index.json"])["manifests"][0]))
    assert json.loads(blob(manifest["config"]))["rootfs"]["diff_ids"] == [f"sha256:{plain}"]
    layer = gzip.decompress(blob(manifest["layers"][0]))
    assert len(blob(manifest["layers"][0])) == manifest["layers"][0]["size"] and b"file" in layer
