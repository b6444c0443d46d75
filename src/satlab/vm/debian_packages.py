# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes Debian packages of the programs, so that guests compile nothing: `python -m
satlab.vm.debian_packages FOLDER`.

Equal trees result in equal bytes: files belong to root, have the time of the last commit, and are
in a fixed order.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from satlab import __version__
from satlab.common import paths
from satlab.common.console import say
from satlab.common.errors import HostError
from satlab.lab import web_target

LIBRARY = Path("usr/lib/satlab")
"""Places of jobs, their interpreter path and the launcher on guests."""
WWW = Path("srv/satlab/www")
PROGRAMS = ("satlink", "satperf", "satpep", "satfec")
"""satlab's compiled programs; those that are built are packed, satlink is required."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LEFT_OUT = ("windows", "macos", "arm64", ".exe", ".dll", "__pycache__", "/tests/", "/_tests/")
"""Parts of Python distributions that are for other systems or for their authors."""


@dataclass(frozen=True)
class Package:
    """A binary package: its dependencies, its files (path on the guest to path here), its links (to
    their targets). `description`: lines below the summary.
    """

    name: str
    architecture: str
    depends: str
    summary: str
    files: dict[Path, Path] = field(default_factory=dict)
    links: dict[Path, str] = field(default_factory=dict)
    description: tuple[str, ...] = ()
    homepage: str = ""
    scripts: dict[str, str] = field(default_factory=dict)


def build(folder: Path, built: Path = paths.SATLINK.parent) -> list[Path]:
    """Build every package into `folder` (made if missing) and remove those of other versions.

    Raises:
        HostError: satlink is not built, or dpkg-deb is missing or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    when = commit_time()
    version = f"{__version__}+{when}"
    with tempfile.TemporaryDirectory(prefix="satlab-dist-") as scratch:
        packages = [*_programs(built), _jobs(), _web_targets(Path(scratch) / "www")]
        for old in folder.glob("*.deb"):
            old.unlink()
        return [
            pack(package, version, when, folder, Path(scratch) / package.name)
            for package in packages
        ]


def commit_time() -> int:
    """Return the time of the last commit, s since the epoch; SOURCE_DATE_EPOCH where there is no
    repository.
    """
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    argv = ["git", "-C", str(paths.ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(
            "the tree is not a git clone, so packages have no date", "set SOURCE_DATE_EPOCH"
        )
    return int(done.stdout)


def _programs(built: Path) -> Iterator[Package]:
    here = architecture()
    for name in PROGRAMS:
        program = built / name
        if program.is_file():
            yield Package(
                name, here, "libc6, libgcc-s1", f"satlab: {name}", {Path("usr/bin") / name: program}
            )
        elif name == "satlink":
            raise HostError(
                f"{program} is not built", "run: cargo build --release --locked -p satlink"
            )


def _jobs() -> Package:
    """Pack the jobs, the recorder with OpenBACH's API, the launcher, and Selenium as the lock file
    pins it.
    """
    files = {
        LIBRARY / "jobs" / file.relative_to(paths.JOBS): file
        for file in sorted(paths.JOBS.glob("*/files/*"))
        if file.is_file()
    }
    files[LIBRARY / "python" / "collect_agent.py"] = paths.SHIM / "collect_agent.py"
    files[LIBRARY / "run-job"] = Path(__file__).with_name("guest_launcher.py")
    for found in closure("selenium"):
        files |= {LIBRARY / "python" / text: source for text, source in files_of(found)}
    depends = "python3 (>= 3.11), iperf3, iputils-ping, iproute2, wireguard-tools"
    return Package("satlab-jobs", "all", depends, "satlab: OpenBACH jobs and their launcher", files)


def files_of(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of a distribution that run here: path below site-packages, and path on this
    host.
    """
    for file in found.files or ():
        text = str(file)
        if not text.startswith("..") and runs_here(text):
            yield text, Path(str(found.locate_file(file)))


def runs_here(path: str | Path) -> bool:
    """Return whether a file of a distribution is neither for other systems nor for its authors."""
    return not any(part in str(path) for part in _LEFT_OUT)


def closure(name: str, seen: set[str] | None = None) -> Iterator[Distribution]:
    """Yield a distribution and all that it needs, as they are installed here."""
    seen = set() if seen is None else seen
    if name.lower() in seen:
        return
    seen.add(name.lower())
    found = distribution(name)
    yield found
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from closure(requirement.name, seen)


def _web_targets(scratch: Path) -> Package:
    for page in web_target.names():
        web_target.build(web_target.load(page), scratch / page)
    files = {
        WWW / file.relative_to(scratch): file
        for file in sorted(scratch.rglob("*"))
        if file.is_file()
    }
    return Package("satlab-web-targets", "all", "", "satlab: pages to be loaded", files)


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def pack(package: Package, version: str, when: int, folder: Path, tree: Path) -> Path:
    """Build one package into a folder, by way of `tree`; its files have the time `when`, s since
    the epoch.
    """
    for target, source in package.files.items():
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, tree / target)
        runs = (
            target.parts[:2] == ("usr", "bin")
            or target.name == "run-job"
            or os.access(source, os.X_OK)
        )
        (tree / target).chmod(0o755 if runs else 0o644)
        if runs and _is_program(source):
            _run("strip", "--strip-debug", str(tree / target), remedy="apt-get install binutils")
    for target, place in package.links.items():
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        (tree / target).symlink_to(place)
    control = {
        "Package": package.name,
        "Version": version,
        "Architecture": package.architecture,
        "Maintainer": "satlab <satlab@localhost>",
        "Depends": package.depends,
        "Section": "net",
        "Priority": "optional",
        "Homepage": package.homepage,
        "Description": "\n ".join((package.summary, *package.description)),
    }
    (tree / "DEBIAN").mkdir()
    text = "".join(f"{key}: {value}\n" for key, value in control.items() if value)
    (tree / "DEBIAN" / "control").write_text(text)
    for name, script in package.scripts.items():
        (tree / "DEBIAN" / name).write_text(script)
        (tree / "DEBIAN" / name).chmod(0o755)
    for path in (tree, *tree.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        os.utime(path, (when, when), follow_symlinks=False)
    deb = folder / f"{package.name}_{version}_{package.architecture}.deb"
    argv = (
        "dpkg-deb",
        "--build",
        "--root-owner-group",
        "-Zzstd",
        "-z6",
        "--threads-max=1",
        str(tree),
        str(deb),
    )
    _run(*argv, remedy="apt-get install dpkg", SOURCE_DATE_EPOCH=str(when))
    return deb


def _is_program(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def _run(*argv: str, remedy: str, **variables: str) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, env=os.environ | variables)
    except FileNotFoundError as error:
        raise HostError(f"{argv[0]} is missing", remedy) from error
    except subprocess.CalledProcessError as error:
        raise HostError(f"{Path(argv[-1]).name}: {error.stderr.strip()}") from error


if __name__ == "__main__":
    for made in build(Path(sys.argv[1])):
        say(made)
