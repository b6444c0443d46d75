# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of programs that commands need on the host, and their installation.

`satlab.common.needs` calls `install` before a command starts; `./satlab --install GROUP...` does it
ahead. The launcher makes the Python environment with this module, too, so that it imports nothing
but the standard library.
"""

import functools
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common.errors import ConfigError, HostError
from satlab.common.paths import DASHJS, PICOQUIC, PICOQUIC_LOCKSTEP, ROOT

STATE = ROOT / ".satlab"
LOG = STATE / "install.log"
VENV = ROOT / ".venv"
UV = STATE / "uv" / "bin" / "uv"
LAUNCHER = ROOT / "satlab"
LOCK = ROOT / "uv.lock"
LOG_LINES = 15


@dataclass(frozen=True)
class Group:
    """The needs of a kind of command, in addition to the groups in `includes`."""

    includes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Debian packages, or names that `_choose` replaces."""
    programs: tuple[str, ...] = ()
    """Our programs in Rust."""
    python: tuple[str, ...] = ()
    """Dependency groups of pyproject.toml."""
    parts: tuple[str, ...] = ()
    """"plots", "dashjs" or "picoquic"."""
    unpacked: tuple[str, ...] = ()
    """Debian packages that are unpacked beside the system, so that no service of theirs starts."""


_COMPILERS = ("gcc", "libc6-dev", "make")
LAB_PACKAGES = """
iproute2 iputils-ping iperf3 curl nftables haproxy chromium chromium-driver fonts-dejavu-core web
ngtcp2-server wireguard-tools wireguard-go zstd
"""
WEB_SERVERS = ("h2o", "nginx-light", "nginx")
""""web": the first that Debian has serves HTTP/1.1 (docs/decisions/0003-web-servers.md)."""
TEST_PACKAGES = """
rust-lint chromium-headless-shell dpkg-dev tshark procps python3-apt apt-utils gpg git shellcheck zsh vagrant
vagrant-libvirt pkg-config libngtcp2-dev libngtcp2-crypto-gnutls-dev
"""
SLURM_PACKAGES = (
    "munge",
    "libmunge2",
    "slurm-client",
    "slurmctld",
    "slurmd",
    "slurm-wlm-basic-plugins",
    "libhwloc15",
    "liblua5.1-0",
)
GROUPS = {
    "link": Group(packages=_COMPILERS, programs=("satlink",)),
    "lab": Group(
        ("link",),
        tuple(LAB_PACKAGES.split()),
        programs=("satbox",),
        parts=("plots",),
    ),
    "quic": Group(packages=(*_COMPILERS, "cmake", "g++"), programs=("satpep", "satperf")),
    "fec": Group(packages=_COMPILERS, programs=("satfec",)),
    "virtual": Group(("link",), programs=("satvirtual",)),
    # External programs under the virtual clock: no lab, no browser.
    "lockstep": Group(("virtual",), programs=("satbox",)),
    "ngtcp2": Group(packages=("ngtcp2-client", "ngtcp2-server")),
    "picoquic": Group(packages=(*_COMPILERS, "g++", "cmake", "libssl-dev"), parts=("picoquic",)),
    "dashjs": Group(parts=("dashjs",)),
    "firefox": Group(packages=("firefox-esr", "libnss3-tools")),
    "vm": Group(python=("vm",)),
    "campaign": Group(python=("campaign",)),
    "test": Group(
        (
            "lab",
            "quic",
            "fec",
            "virtual",
            "ngtcp2",
            "picoquic",
            "firefox",
            "dashjs",
            "vm",
            "campaign",
        ),
        tuple(TEST_PACKAGES.split()),
        python=("dev",),
        unpacked=("influxdb", "openssh-server", "libwrap0", *SLURM_PACKAGES),
    ),
    "test-vm": Group(
        ("lab", "vm"),
        ("mmdebstrap", "systemd-container", "apt-utils", "gpg", "git"),
        python=("dev",),
    ),
    "test-soak": Group(("lab", "quic"), python=("dev",)),
    "docs": Group(python=("dev",)),
    "release": Group(("lab", "quic", "fec", "virtual"), ("dpkg-dev", "mmdebstrap")),
    "python": Group(),  # only the environment, as the launcher requests it
}
NOT_PACKAGED = (
    "vm",
    "campaign",
    "dashjs",
    "picoquic",
    "test",
    "test-vm",
    "test-soak",
    "docs",
    "release",
)
"""Groups that exist only in a clone, not in our Debian package."""


def install(*names: str, profile: str = "release") -> None:
    """Install and build the missing parts of groups. Does nothing if all are there. Progress is on
    stderr.

    `profile` is Cargo's: with `ci` the tests of the programs are built as well.

    Raises:
        ConfigError: there is no such group.
        HostError: something cannot be installed here.
        SystemExit: sudo has done it, and failed; it has printed why.
    """
    wanted = _flatten(names)
    if not LOCK.exists():
        if refused := [name for name in names if name in NOT_PACKAGED]:
            raise HostError(
                f"the Debian package has no group {refused[0]}",
                "use a clone of the repository for it",
            )
        return
    work = _Installation(names, profile)
    stale = [name for name in wanted.programs if not work.is_fresh(name)]
    packages = [*wanted.packages, *(("rust",) if stale else ())]
    python = work.missing_python(wanted.python)
    if python and not UV.exists():
        packages.append("python3-venv")
    if work.debian_packages(packages):
        return  # sudo has installed everything

    def others() -> None:
        if python:
            work.python_environment(python)
        if "plots" in wanted.parts:
            work.plots()
        if "dashjs" in wanted.parts:
            work.dashjs()
        if "picoquic" in wanted.parts:
            work.picoquic()
        for package in wanted.unpacked:
            work.unpack(package)

    # apt runs alone, above. Compiling takes longest: everything else is installed meanwhile.
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(others)
        if stale:
            work.build(stale)
        done.result()


def _flatten(names: tuple[str, ...]) -> Group:
    """Return groups and all that they include as one, without repetition."""
    found: dict[str, Group] = {}

    def add(name: str) -> None:
        if name not in GROUPS:
            raise ConfigError(f"no group {name}", hint=f"groups: {', '.join(GROUPS)}")
        for included in GROUPS[name].includes:
            add(included)
        found[name] = GROUPS[name]

    for name in names:
        add(name)
    every = found.values()
    return Group(
        packages=tuple(dict.fromkeys(word for group in every for word in group.packages)),
        programs=tuple(dict.fromkeys(word for group in every for word in group.programs)),
        python=tuple(dict.fromkeys(word for group in every for word in group.python)),
        parts=tuple(dict.fromkeys(word for group in every for word in group.parts)),
        unpacked=tuple(word for group in every for word in group.unpacked),
    )


def owner() -> dict[str, Any]:
    """Return how subprocess runs a command as the owner of the clone, so that root leaves no files
    of root's in a user's tree.
    """
    uid = ROOT.stat().st_uid
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:  # the owner of a folder that a container has mounted
        home = "/"
    changed = os.geteuid() == 0 and uid != 0
    if not changed:
        home = os.environ.get("HOME", home)
    path = f"{home}/.cargo/bin:{os.environ.get('PATH', os.defpath)}"
    who = {"user": uid, "group": ROOT.stat().st_gid, "extra_groups": ()} if changed else {}
    return {"env": os.environ | {"HOME": home, "PATH": path}, **who}


class _Installation:
    """One installation: commands whose output goes to the log, for the owner of the clone."""

    def __init__(self, groups: tuple[str, ...], profile: str) -> None:
        self._groups, self._profile = groups, profile

    # --- files and commands

    def _own_the_tree(self, what: str) -> None:
        """Only the owner, or root for the owner, may install into the tree."""
        uid = ROOT.stat().st_uid
        if os.geteuid() not in (0, uid):
            name = _output("stat", "-c", "%U", ROOT).strip()
            users = "root" if uid == 0 else f"{name} or root"
            raise HostError(
                f"{what} is missing, and {ROOT} belongs to {name}",
                f"run once as {users}: {LAUNCHER} --install {' '.join(self._groups)}",
            )
        STATE.mkdir(exist_ok=True)
        LOG.touch()
        self._give(STATE, LOG)

    def _give(self, *files: Path) -> None:
        if os.geteuid() == 0:
            for file in files:
                os.chown(file, ROOT.stat().st_uid, ROOT.stat().st_gid)

    def _note(self, file: Path, text: str) -> None:
        file.write_text(text)
        self._give(file)

    def _run(self, what: str, *commands: list[str], as_root: bool = False, **settings: Any) -> None:
        """Run commands with their output in the log; at a failure, show its end.

        Raises HostError.
        """
        say(f"{what} ...")
        began = time.monotonic()
        settings = {**({} if as_root else owner()), **settings}
        if "input" not in settings:
            settings["stdin"] = subprocess.DEVNULL
        for argv in commands:
            with LOG.open("ab") as log:
                done = subprocess.run(
                    argv, stdout=log, stderr=subprocess.STDOUT, check=False, **settings
                )
            if done.returncode:
                lines = LOG.read_text(errors="replace").splitlines()[-LOG_LINES:]
                print(*lines, sep="\n", file=sys.stderr)
                raise HostError(
                    f"{what} failed", f"read {LOG}, fix the cause, run the same command again"
                )
        say(f"{what}: done in {time.monotonic() - began:.0f} s")

    # --- Debian packages

    def debian_packages(self, names: list[str]) -> bool:
        """Install those of `names` that are missing; return whether sudo did the whole
        installation, as we are not root.
        """
        there = _installed()
        missing = [name for name in names if not _is_there(name, there)]
        if not missing:
            return False
        words = " ".join(missing)
        if os.geteuid() != 0:
            sudo = shutil.which("sudo")
            argv = [str(LAUNCHER), "--install", *self._groups]
            if sudo is None:
                raise HostError(
                    f"these Debian packages are missing: {words}", f"run as root: {' '.join(argv)}"
                )
            say(f"Debian packages are missing ({words}): continuing with sudo")
            if status := subprocess.run([sudo, *argv], check=False).returncode:
                raise SystemExit(status)
            return True
        if not shutil.which("apt-get"):
            raise HostError(
                f"no apt-get here, and these are missing: {words}",
                "satlab supports Debian 12 and 13",
            )
        self._own_the_tree("a Debian package")
        self._run("reading the package lists", ["apt-get", "update", "-q"], as_root=True)
        chosen = [package for name in missing for package in _choose(name)]
        argv = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *chosen]
        self._run(
            f"installing Debian packages ({' '.join(chosen)})",
            argv,
            as_root=True,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
        return False

    def unpack(self, package: str) -> None:
        """Unpack a Debian package where tests look for it."""
        place = STATE / "packages" / package
        if place.is_dir():
            return
        if not _candidate(package):
            say(
                f"this system has no package {package}: tests that need it are skipped, which CI"
                " takes for a failure"
            )
            return
        self._own_the_tree(package)
        new = place.with_name(f"{package}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        self._give(new.parent)
        script = 'apt-get download "$0" && dpkg -x ./*.deb . && rm ./*.deb && chown -R --reference="$1" .'
        self._run(
            f"unpacking the Debian package {package} for the tests",
            ["sh", "-c", script, package, str(ROOT)],
            as_root=True,
            cwd=new,
        )
        new.rename(place)

    # --- Python

    def missing_python(self, groups: tuple[str, ...]) -> list[str]:
        """Return the dependency groups to install: all that the environment is to have if one of
        them is missing or uv.lock has changed.
        """
        locked, *known = _read(STATE / "python").split() or [""]
        wanted = sorted({"build", *groups, *known})
        is_current = (VENV / "bin/python").exists() and locked == _environment_sum()
        return [] if is_current and wanted == known else wanted

    def python_environment(self, groups: list[str]) -> None:
        """Install dependency groups of uv.lock, whose hashes uv checks, into .venv. Groups that it
        already has stay, because another command may be using them.
        """
        self._own_the_tree("the Python environment")
        self._uv()
        if str(VENV) not in _read(VENV / "bin/activate"):
            shutil.rmtree(VENV, ignore_errors=True)  # its programs name the clone's former place
        argv = [str(UV), "sync", "--frozen", "--inexact", "--no-default-groups"]
        argv += [word for group in groups for word in ("--group", group)]
        if not (VENV / "bin/python").exists():
            argv += ["--python", str(_python())]
        settings = owner()
        # Root writes no byte code into a user's tree, so that it is written now.
        settings["env"] |= {"UV_PROJECT_ENVIRONMENT": str(VENV), "UV_COMPILE_BYTECODE": "1"}
        settings["env"]["UV_COMPILE_BYTECODE_TIMEOUT"] = (
            "600"  # uv's 60 s are too few on a busy host
        )
        self._run(f"installing Python packages ({', '.join(groups)})", argv, cwd=ROOT, **settings)
        self._note(STATE / "python", " ".join((_environment_sum(), *groups)) + "\n")

    def _uv(self) -> None:
        """Install uv from PyPI, as uv.lock pins it, with pip, which checks the hashes."""
        uv = _locked("uv")
        if UV.exists() and _output(UV, "--version").split()[1:2] == [uv["version"]]:
            return
        hashes = [f"--hash={wheel['hash']}" for wheel in uv["wheels"]]
        pinned = STATE / "uv.txt"
        self._note(pinned, " ".join((f"uv=={uv['version']}", *hashes)) + "\n")
        pip = [str(UV.with_name("pip")), "install", "--disable-pip-version-check", "--no-input"]
        self._run(
            "installing uv",
            [str(_python()), "-m", "venv", "--clear", str(UV.parents[1])],
            [*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(pinned)],
        )

    # --- parts

    def plots(self) -> None:
        """Install npm's bundle of Plotly, half the size of the Python package's
        (docs/decisions/0002-dependencies.md); if that fails, reports are larger.
        """
        try:
            if shutil.which("npm"):
                self._npm("the library of plots", STATE / "plots", ROOT / "src/satlab/report/plots")
        except HostError:
            say("npm has no library of plots here: reports have 2 MB")

    def dashjs(self) -> None:
        """Install npm's dash.js, the player of the job satlab_video. Raises HostError."""
        if not shutil.which("npm"):
            raise HostError("npm is not installed", "apt-get install npm")
        self._npm("dash.js", DASHJS, ROOT / "openbach-scenarios/jobs/satlab_video/files")

    def _npm(self, what: str, place: Path, locked: Path) -> None:
        """Install into `place` what package-lock.json of the folder `locked` names with its hashes.

        Raises HostError, and leaves nothing, if npm cannot.
        """
        lock = locked / "package-lock.json"
        stamp, sum_ = place.with_suffix(".sha256"), _sha256(lock.read_bytes())
        if _read(stamp).strip() == sum_:
            return
        self._own_the_tree(what)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self._give(place)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(lock.with_name(name), place)
            self._give(place / name)
        argv = ["npm", "ci", "--prefix", str(place), "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            self._run(f"installing {what}", argv)
        except HostError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._note(stamp, sum_)

    def picoquic(self) -> None:
        """Build picoquic from the source archive of its Python binding
        (docs/decisions/0016-picoquic.md), and its adapter for the virtual clock; what picoquic was
        built from is removed.
        """
        archive, adapter = _locked("aiopquic")["sdist"], ROOT / "tests" / "endpoints" / "picoquic"
        sources = [adapter / "Makefile", adapter / "lockstep.c", adapter.with_name("lockstep.h")]
        sum_ = _sha256(archive["hash"].encode() + b"".join(map(Path.read_bytes, sources)))
        stamp, place = STATE / "picoquic.sha256", PICOQUIC.parent
        programs = (PICOQUIC, PICOQUIC_LOCKSTEP)
        if all(program.exists() for program in programs) and _read(stamp).strip() == sum_:
            return
        self._own_the_tree("picoquic")
        shutil.rmtree(place, ignore_errors=True)
        (place / "sources").mkdir(parents=True)
        self._give(place, place / "sources")
        say("downloading picoquic's sources ...")
        try:
            with urllib.request.urlopen(archive["url"], timeout=60) as answer:  # noqa: S310 - https
                content = answer.read()
        except OSError as error:
            raise HostError(
                f"{archive['url']}: {error}", "check the network, run the same command again"
            ) from error
        if f"sha256:{_sha256(content)}" != archive["hash"]:
            raise HostError(
                f"{archive['url']} has not the hash of uv.lock", "run the same command again"
            )
        unpack = ["tar", "-xz", "-C", "sources", "--strip-components=1", "--no-same-owner"]
        self._run("unpacking picoquic's sources", unpack, cwd=place, input=content)
        tls, release = "sources/third_party/picotls", "-DCMAKE_BUILD_TYPE=Release"
        libraries = [f"-DPTLS_INCLUDE_DIR={place}/{tls}/include"]
        libraries += [
            f"-DPTLS_{kind}_LIBRARY={place}/tls/libpicotls-{kind.lower()}.a"
            for kind in ("CORE", "OPENSSL", "MINICRYPTO")
        ]
        targets = ("picotls-core", "picotls-openssl", "picotls-minicrypto")
        configure = ["cmake", "-S", "sources/third_party/picoquic", "-B", "built"]
        build = ["cmake", "--build"]
        self._run(
            "building picoquic",
            ["cmake", "-S", tls, "-B", "tls", release, "-DWITH_FUSION=OFF", "-DWITH_DTRACE=OFF"],
            [*build, "tls", "--parallel", "--target", *targets],
            [*configure, release, "-Dpicoquic_BUILD_TESTS=OFF", "-DBUILD_PICO_SIM=OFF", *libraries],
            [*build, "built", "--parallel", "--target", PICOQUIC.name],
            ["mv", f"built/{PICOQUIC.name}", "."],
            [
                *("make", "-C", str(adapter), f"OUT={place}"),
                *(f"PICOQUIC={place}/sources/third_party/picoquic", f"BUILT={place}/built"),
                *(f"PICOTLS={place}/{tls}", f"TLS={place}/tls"),
            ],
            ["rm", "-rf", "sources", "tls", "built"],
            cwd=place,
        )
        self._note(stamp, sum_)

    # --- our programs

    def is_fresh(self, program: str) -> bool:
        """Return whether a program was built after the last change of the sources, or from the same
        ones: a checkout is newer than CI's cache.
        """
        binary = ROOT / "target" / self._profile / program
        if not os.access(binary, os.X_OK):
            return False
        newest = max(file.stat().st_mtime for file in _sources(ROOT))
        stamp = STATE / f"{self._profile}-{program}.sources"
        return newest <= binary.stat().st_mtime or _read(stamp).strip() == sources_sum(ROOT)

    def build(self, programs: list[str]) -> None:
        """Build programs, all in one go: they share dependencies."""
        self._own_the_tree(" ".join(programs))
        oldest = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        if not _is_there("rust", set()):
            raise HostError(
                f"Rust is older than {oldest['rust-version']}",
                "install a newer one (rustup, or Debian's cargo/cargo-web) and try again",
            )
        noq = _version("rustc") >= (1, 88)  # docs/decisions/0010-noq.md
        settings = owner()
        argv = ["cargo", "build", "--profile", self._profile, "--locked"]
        if self._profile == "ci":  # and their tests, by clippy's compiler, as in the Makefile
            clippy = shutil.which("clippy-driver", path=settings["env"]["PATH"])
            settings["env"] |= {"RUSTC_WORKSPACE_WRAPPER": clippy or ""}
            argv += ["--workspace", "--bins", "--tests", "--examples"]
        with_noq = ("satpep", "satperf", "satvirtual")
        if self._profile == "ci" or "satperf" in programs:
            argv += ["--features", "satperf/quiche"]
        for program in programs:
            argv += ["-p", program] if self._profile != "ci" else []
        for program in with_noq:
            if noq and (self._profile == "ci" or program in programs):
                argv += ["--features", f"{program}/noq"]
        sum_ = sources_sum(ROOT)
        self._run(f"building {' '.join(programs)}", argv, cwd=ROOT, **settings)
        for program in programs:
            (ROOT / "target" / self._profile / program).touch()
            self._note(STATE / f"{self._profile}-{program}.sources", sum_)


# --- what is there --------------------------------------------------------------------------------


def _installed() -> set[str]:
    if not shutil.which("dpkg-query"):
        return set()
    lines = _output("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n").splitlines()
    return {line.split()[0] for line in lines if line.endswith(" installed")}


def _is_there(name: str, installed: set[str]) -> bool:
    """Return whether a package is installed, or the program for a name that `_choose` replaces."""
    match name:
        case "web":
            return any(map(shutil.which, ("h2o", "nginx", "/usr/sbin/nginx")))
        case "rust":
            return min(_version("cargo"), _version("rustc")) >= _oldest_rust()
        case "rust-lint":
            return bool(_version("cargo", "clippy") and _version("cargo", "fmt"))
        case _:
            return name in installed


def _choose(name: str) -> list[str]:
    """Return this distribution's packages for a name of the table."""
    if name == "web":
        return [package for package in WEB_SERVERS if _candidate(package)][:1]
    if name == "rust-lint":
        if _candidate("rust-web-clippy") and not _candidate("rust-all"):
            return ["rust-web-clippy", "rustfmt-web"]
        return ["rust-clippy", "rustfmt"]
    if name == "rust":  # Debian 13 has it; Debian 12 as the tool chain of its web browsers
        suffixes = [
            suffix
            for suffix in ("", "-web")
            if _numbers(_candidate(f"rustc{suffix}")) >= _oldest_rust()
        ]
        return [f"{program}{suffix}" for suffix in suffixes[:1] for program in ("cargo", "rustc")]
    return [name]


def _candidate(package: str) -> str:
    """Return the version of a package that apt would install, or nothing."""
    for line in _output("apt-cache", "policy", package).splitlines():
        key, _, version = line.strip().partition(": ")
        if key == "Candidate" and not version.startswith("("):
            return version
    return ""


def _oldest_rust() -> tuple[int, ...]:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return _numbers(cargo["workspace"]["package"]["rust-version"])


def _version(*command: str) -> tuple[int, ...]:
    """Return the version that a command of the owner's prints, or nothing."""
    words = _output(*command, "--version", **owner()).split()
    return _numbers(words[1]) if len(words) > 1 else ()


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, without its Debian revision."""
    numbers: list[int] = []
    for part in version.partition("-")[0].partition("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _output(*argv: str | Path, **settings: Any) -> str:
    """Return what a command prints; nothing if it fails or is missing."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **settings)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _python() -> Path:
    """Return Debian's Python or, without it, the running one."""
    debian = Path("/usr/bin/python3")
    return debian if debian.exists() else Path(sys.executable).resolve()


@functools.cache
def _locked(name: str) -> dict[str, Any]:
    """Return a package of uv.lock: version, sdist, wheels."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    found: dict[str, Any] = next(package for package in packages if package["name"] == name)
    return found


def _environment_sum() -> str:
    """Return the SHA-256 of the inputs of the environment, as the launcher computes it. They
    include the clone's path: a moved clone needs a new environment.
    """
    return _sha256(f"{ROOT}\n".encode() + LOCK.read_bytes())


def picoquic_archive() -> str:
    """Return name and version of picoquic's source archive."""
    return f"aiopquic {_locked('aiopquic')['version']}"


def _sources(root: Path) -> list[Path]:
    """Return the files that programs are built from."""
    crates = sorted(file for file in (root / "crates").rglob("*") if file.is_file())
    return [*crates, root / "Cargo.toml", root / "Cargo.lock"]


def sources_sum(root: Path) -> str:
    """Return the SHA-256 of the sources of a checkout's programs."""
    sums = [f"{_sha256(file.read_bytes())} {file.relative_to(root)}" for file in _sources(root)]
    return _sha256("\n".join(sums).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def say(text: str) -> None:
    """Print a line about progress."""
    print(f"satlab: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Install the groups that are the arguments."""
    try:
        install(*sys.argv[1:])
    except (ConfigError, HostError) as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
