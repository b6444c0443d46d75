# SPDX-License-Identifier: GPL-3.0-or-later
"""The appliance as one Debian package, and as an OCI image with it: `make release` writes both into
dist/.

The package has the tracked files that run, Python's packages as uv.lock pins them for each Python
of `PYTHONS`, and the programs. Made on Debian 12 it runs on Debian 12 and 13; the programs need the
C library of the host that built them, or a newer one. The same commit results in the same bytes of
the package; the image has the packages of Debian's mirror of its day.
"""

import gzip
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit

from satlab import __version__
from satlab.cli import completion
from satlab.cli.completion import Shell
from satlab.common import install, paths
from satlab.common.errors import HostError
from satlab.report import html
from satlab.vm import box, debian_packages
from tools import man_page

LIBRARY = Path("usr/lib/satlab")
DOC = Path("usr/share/doc/satlab")
KEPT = (
    "src",
    "collect",
    "schemas",
    "openbach-scenarios",
    "opensand-profiles",
    "web-targets",
    "suites",
    "papers",
    "vagrant/lab.yml",
    "docs",
    "LICENSE",
    "README.md",
)
PROGRAMS = ("satbox", "satfec", "satlink", "satpep", "satperf", "satvirtual")
PYTHONS = ("3.11", "3.12", "3.13")
"""Those of Debian 12 and 13, and what lies between them."""
DEPENDS = (
    f"python3 (>= {PYTHONS[0]})",
    "python3 (<< 3.14)",
    *(
        " | ".join(install.WEB_SERVERS) if name == "web" else name
        for name in install.LAB_PACKAGES.split()
    ),
    "ngtcp2-client",
)
SUMMARY = "SATCOM testbed: page load, QUIC, HTTP/3, TCP over an emulated satellite link"
DESCRIPTION = (
    "satlab builds a satellite path (DVB-S2, DVB-RCS2; GEO and LEO) on one host, calibrates it, and",
    "measures real programs over it: browsers (page load time over HTTP/1.1 and HTTP/3), QUIC",
    "stacks, TCP, proxies (PEP), video and voice. Scenarios are OpenBACH's, link profiles OpenSAND's.",
    "Regression targets for QUIC stacks run under a virtual clock, and published papers are repeated.",
)
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: satlab

Files: *
Copyright: the satlab authors
License: GPL-3.0-or-later
 On Debian systems the full text of the GNU General Public License version 3 is in
 /usr/share/common-licenses/GPL-3.

Files: usr/lib/satlab/.venv/*
Copyright: the authors of each Python distribution
License: other
 The licence of each distribution is in its .dist-info folder.
"""
UNIT = """\
[Unit]
Description=satlab: web pages and REST API of a satellite testbed
After=network.target

[Service]
ExecStart=/usr/bin/satlab serve
StateDirectory=satlab
KillMode=mixed
TimeoutStopSec=60
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
"""Not enabled by the package: `systemctl enable --now satlab`. The link for the first login is in
the journal.
"""
USED_ALONE = {"plotly": html.PLOTLY}
"""Of these distributions one file is used: nothing else of them is packed, nor what their modules
need.
"""
SCRIPTS = {
    "postinst": """\
#!/bin/sh
# Byte code is that of the system's Python. Without it satlab works, and starts more slowly.
set -e
if [ "$1" = configure ]; then
  python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/satlab || true
  [ ! -d /run/systemd/system ] || systemctl daemon-reload
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --no-reload disable --now satlab.service || true
fi
find /usr/lib/satlab -name __pycache__ -prune -exec rm -rf {} +
""",
}
HOOKS = "/usr/share/mmdebstrap/hooks/file-mirror-automount"
"""Makes a package of this host visible to apt in the new root."""
START = """\
#!/bin/sh
# Everything that the appliance has is installed. Snakemake, Ansible and picoquic are not in this package.
lib=/usr/lib/satlab
export SATLAB_LAUNCHER=/usr/bin/satlab SATLAB_PROGRAMS="$lib/bin" PYTHONPATH="$lib/src:$lib" PYTHONDONTWRITEBYTECODE=1
python=$lib/.venv/bin/python
[ "$1" != --install ] || { shift && exec "$python" -m satlab.common.install "$@"; }
exec "$python" -m satlab "$@"
"""


def main() -> int:
    """Build what the arguments name."""
    folder, image = Path(sys.argv[1]), "--image" in sys.argv[2:]
    try:
        if image and not shutil.which("mmdebstrap"):
            raise HostError(
                "mmdebstrap is missing: it makes the image",
                "run: make release",
            )
        deb = package(folder)
        print(deb)
        if image:
            print(oci_image(folder, deb))
    except HostError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    return 0


def package(folder: Path, programs: Path = paths.PROGRAMS) -> Path:
    """Build the Debian package into a folder, in place of an older one.

    Raises:
        HostError: a program is not built, or dpkg-deb is missing or fails.
    """
    missing = [name for name in PROGRAMS if not (programs / name).is_file()]
    if missing:
        raise HostError(f"not built: {', '.join(missing)}", "run: make release")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("satlab_*.deb"):
        old.unlink()
    when = debian_packages.commit_time()
    with tempfile.TemporaryDirectory(prefix="satlab-release-") as scratch:
        tree = Path(scratch, "library")
        _gather(tree, programs, Path(scratch))
        files = dict(_of_system(Path(scratch), when))
        files |= {
            LIBRARY / path.relative_to(tree): path
            for path in sorted(tree.rglob("*"))
            if path.is_file()
        }
        venv = LIBRARY / ".venv"
        links = {venv / f"lib/python{version}": "python3" for version in PYTHONS}
        links |= {DOC / name: f"/{LIBRARY / name}" for name in ("README.md", "docs")}
        libraries = _libraries([programs / name for name in PROGRAMS], Path(scratch))
        return debian_packages.pack(
            debian_packages.Package(
                "satlab",
                debian_packages.architecture(),
                ", ".join((*DEPENDS, *libraries)),
                SUMMARY,
                files,
                links | {venv / "bin/python": "/usr/bin/python3"},
                DESCRIPTION,
                _homepage(),
                SCRIPTS,
            ),
            f"{__version__}+{when}",
            when,
            folder,
            Path(scratch, "package"),
        )


def _libraries(programs: list[Path], scratch: Path) -> list[str]:
    """Return what programs need of Debian's libraries, with the oldest versions that have it."""
    control = scratch / "debian/control"
    control.parent.mkdir()
    control.write_text("Source: satlab\n\nPackage: satlab\nArchitecture: any\n")
    argv = ["dpkg-shlibdeps", "-O", *(f"-e{program}" for program in programs)]
    try:
        done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise HostError("dpkg-shlibdeps is missing", "apt-get install dpkg-dev") from error
    except subprocess.CalledProcessError as error:
        raise HostError(f"dpkg-shlibdeps: {error.stderr.strip()}") from error
    return done.stdout.strip().removeprefix("shlibs:Depends=").split(", ")


def _homepage() -> str:
    """Return where the clone came from if that is a public address, else nothing."""
    argv = ["git", "-C", str(paths.ROOT), "config", "--get", "remote.origin.url"]
    url = subprocess.run(argv, capture_output=True, check=False, text=True).stdout.strip()
    return url.removesuffix(".git") if urlsplit(url).scheme == "https" and "@" not in url else ""


def _of_system(scratch: Path, when: int) -> Iterator[tuple[Path, Path]]:
    """Yield the files outside of the library: launcher, unit, completion, manual, copyright."""
    date = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d")
    packed = {"mtime": 0, "compresslevel": 9}
    texts = {
        "usr/bin/satlab": START.encode(),
        "usr/lib/systemd/system/satlab.service": UNIT.encode(),
        "usr/share/bash-completion/completions/satlab": completion.script(Shell.BASH).encode(),
        "usr/share/man/man1/satlab.1.gz": gzip.compress(man_page.page(date).encode(), **packed),
        "usr/share/doc/satlab/copyright": COPYRIGHT.encode(),
        "usr/share/doc/satlab/changelog.gz": gzip.compress(
            (paths.ROOT / "CHANGELOG.md").read_bytes(), **packed
        ),
    }
    for name, content in texts.items():
        file = scratch / "system" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        yield Path(name), file


def _gather(tree: Path, programs: Path, scratch: Path) -> None:
    """Lay out what /usr/lib/satlab holds."""
    for path in _tracked():
        _copy(paths.ROOT / path, tree / path)
    for name in PROGRAMS:
        _copy(programs / name, tree / "bin" / name)
    site = tree / ".venv/lib/python3/site-packages"
    for version in PYTHONS:
        _pack_distributions(_install_wheels(version, scratch / f"wheels-{version}"), site)
    for name, used in USED_ALONE.items():
        for text, source in debian_packages.files_of(distribution(name)):
            if text == used or ".dist-info/" in text:
                _copy(source, site / text)
    (tree / ".venv/pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = false\n"
    )


def _install_wheels(python: str, folder: Path) -> Path:
    """Install the wheels of uv.lock for a Python, which this host need not have.

    Raises:
        HostError: there is no wheel, or the registry cannot be reached.
    """
    listed, uv = folder.with_suffix(".txt"), str(install.UV)
    pruned = [word for name in USED_ALONE for word in ("--prune", name)]
    export = ["export", "--frozen", "--no-default-groups", "--no-emit-project", *pruned]
    into = ["pip", "install", "--target", str(folder), "--python-version", python]
    into += ["--python-platform", f"{platform.machine()}-manylinux_2_36", "--link-mode", "copy"]
    into += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(listed)]
    for argv in ([*export, "--output-file", str(listed)], into):
        done = subprocess.run(
            [uv, "--quiet", *argv], cwd=paths.ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HostError(f"uv: {done.stderr.strip()}", "is the package registry reachable?")
    return folder


def _pack_distributions(wheels: Path, site: Path) -> None:
    """Add the distributions of one Python to those of others: modules in C have its name.

    Raises:
        HostError: another file has the same name and differs.
    """
    for source in sorted(wheels.rglob("*")):
        path = source.relative_to(wheels)
        target = site / path
        if not source.is_file() or path.parts[0] == "bin" or not debian_packages.runs_here(path):
            continue
        if not target.exists():
            _copy(source, target)
        elif ".dist-info" not in str(path) and source.read_bytes() != target.read_bytes():
            raise HostError(
                f"{path} differs between {', '.join(PYTHONS)}", "make a package of one Python"
            )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _tracked() -> Iterator[Path]:
    """Yield the files of the repository that run, relative to its root."""
    argv = ["git", "-C", str(paths.ROOT), "ls-files", "-z", *KEPT]
    for name in subprocess.run(argv, capture_output=True, check=True, text=True).stdout.split("\0"):
        path = Path(name)
        is_test = (
            path.name.startswith("test_") or path.name == "conftest.py" or "fixtures" in path.parts
        )
        if name and not is_test:
            yield path


def oci_image(folder: Path, deb: Path) -> Path:
    """Make a Debian root with the package, and write it as an OCI archive (image-spec 1.1), as
    root.

    Raises:
        HostError: mmdebstrap is missing, or the mirror cannot be reached.
    """
    made = folder / f"satlab_{__version__}_{debian_packages.architecture()}.oci.tar"
    with tempfile.TemporaryDirectory(prefix="satlab-image-", dir=folder) as scratch:
        root = Path(scratch, "root.tar")
        argv = [
            "mmdebstrap",
            "--variant=minbase",
            '--aptopt=Acquire::Languages "none"',
            f"--hook-dir={HOOKS}",
        ]
        include = f"--include=ca-certificates,{deb.resolve()}"
        box.run([*argv, include, box.SUITE, str(root), *box.MIRRORS])
        oci_archive(root, Path(scratch, "layout"), made)
    return made


def oci_archive(root: Path, layout: Path, made: Path) -> None:
    """Write an image of one layer, whose command is satlab."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    plain = digest(root)
    layer = layout / "layer"
    with root.open("rb") as source, gzip.GzipFile(layer, "wb", compresslevel=6, mtime=0) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    root.unlink()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": ["satlab"], "Cmd": ["--help"], "WorkingDir": "/srv"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
    }
    kind = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": _json_blob(blobs, config, f"{kind}.config.v1+json"),
        "layers": [_blob(blobs, layer, f"{kind}.layer.v1.tar+gzip")],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [_json_blob(blobs, manifest, f"{kind}.manifest.v1+json")],
    }
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    with tarfile.open(made, "w") as archive:
        for path in sorted(layout.rglob("*")):
            archive.add(path, path.relative_to(layout), recursive=False)


def _json_blob(blobs: Path, content: object, media_type: str) -> dict[str, object]:
    path = blobs.parent / "scratch"
    path.write_text(json.dumps(content, sort_keys=True))
    return _blob(blobs, path, media_type)


def _blob(blobs: Path, path: Path, media_type: str) -> dict[str, object]:
    """Move a file to its place by digest; return its descriptor."""
    name, size = digest(path), path.stat().st_size
    path.rename(blobs / name)
    return {"mediaType": media_type, "digest": f"sha256:{name}", "size": size}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
