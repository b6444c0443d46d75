# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian package and the image that `make release` makes, with stand-ins of the programs and of
the wheels. `tools/first_figure.py` installs the real package on each release of Debian.
"""

import gzip
import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

import satlab
from satlab.common import paths
from satlab.common.errors import HostError
from satlab.vm import debian_packages
from tools import release


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in release.PROGRAMS:
        shutil.copy("/bin/true", folder / name)
    return folder


def wheels(python: str, folder: Path) -> Path:
    """Lay out a distribution with a module in C as uv does for a Python."""
    native = f"native.cpython-{python.replace('.', '')}-x86_64-linux-gnu.so"
    texts = {"one/pure.py": "x = 1\n", f"one/{native}": python, "one-1.dist-info/WHEEL": python}
    for name, text in (texts | {"bin/tool": "", "one/tests/cases.py": ""}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def stand_in_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_install_wheels", wheels)
    monkeypatch.setattr(debian_packages, "commit_time", lambda: 1_790_000_000)


@pytest.mark.promise("P99")
def test_the_package_starts_satlab_without_pip_and_compiler(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "remote.origin.url")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://example.org/owner/satlab.git")
    deb = release.package(tmp_path / "one", programs)
    subprocess.run(["dpkg-deb", "-R", str(deb), str(tmp_path / "root")], check=True)
    library = tmp_path / "root" / release.LIBRARY
    assert {path.name for path in (library / "bin").iterdir()} == set(release.PROGRAMS)
    assert (library / ".venv/bin/python").readlink() == Path("/usr/bin/python3")
    assert (library / "vagrant/lab.yml").is_file() and (
        library / "src/satlab/cli/__init__.py"
    ).is_file()
    assert not list(library.rglob("test_*.py"))
    for python in release.PYTHONS:
        site = library / f".venv/lib/python{python}/site-packages"
        assert (site / "one/pure.py").is_file() and not (site / "one/tests").exists()
        assert list(site.glob(f"one/native.cpython-{python.replace('.', '')}-*.so"))
    (plotly,) = (path for path in site.glob("plotly/**/*") if path.is_file())
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
    assert (tmp_path / "root" / release.DOC / "docs").readlink() == Path(
        "/", release.LIBRARY, "docs"
    )
    about = (tmp_path / "root/DEBIAN/control").read_text()
    for word in ("satellite", "SATCOM", "HTTP/3", "page load"):
        assert word in about, "apt-cache search finds it"
    assert "\nHomepage: https://example.org/owner/satlab\n" in about
    assert "python3 (>= 3.11), python3 (<< 3.14)" in about, "Debian 12 has 3.11, 13 has 3.13"
    assert " ngtcp2-server," in about, "Debian 13's nginx has no CUBIC over HTTP/3"
    assert re.search(r"libc6 \(>= 2\.\d+\)", about), "the oldest that the programs run with"
    scripts = [tmp_path / "root" / name for name in ("usr/bin/satlab", "DEBIAN/prerm")]
    for script in (*scripts, tmp_path / "root/DEBIAN/postinst"):
        script.write_text(script.read_text().replace("/usr/lib/satlab", str(library)))
    subprocess.run([str(tmp_path / "root/DEBIAN/postinst"), "configure"], check=True)
    assert list((library / "src/satlab/cli/__pycache__").glob("__init__.*.pyc"))
    start, remove = scripts
    assert subprocess.run([str(start), "--install", "lab", "quic"], check=False).returncode == 0
    refused = subprocess.run(
        [str(start), "--install", "vm"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 3 and "hint:" in refused.stderr
    subprocess.run([str(remove), "upgrade"], check=True)
    assert not list(library.rglob("__pycache__")), "dpkg removes folders that are empty"
    again = release.package(tmp_path / "two", programs)
    assert again.name == deb.name and again.read_bytes() == deb.read_bytes()


def test_a_package_for_several_pythons_has_each_file_once(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differing(python: str, folder: Path) -> Path:
        (wheels(python, folder) / "one/pure.py").write_text(python)
        return folder

    monkeypatch.setattr(release, "_install_wheels", differing)
    with pytest.raises(HostError, match=r"one/pure\.py differs"):
        release.package(tmp_path / "dist", programs)


def test_programs_and_package_have_one_version() -> None:
    workspace = tomllib.loads((paths.ROOT / "Cargo.toml").read_text())["workspace"]
    assert workspace["package"]["version"] == satlab.__version__
    for crate in (paths.ROOT / "crates").glob("*/Cargo.toml"):
        version = tomllib.loads(crate.read_text())["package"]["version"]
        assert version == ({"workspace": True} if crate.parent.name != "fuzz" else "0.0.0")
    assert f"\n## {satlab.__version__} (" in (paths.ROOT / "CHANGELOG.md").read_text()


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
