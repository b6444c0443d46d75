# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian and Python packages for one job: fetched from the host's own sources, and unpacked, never
installed.

`apt-get` names what is missing on the host, and checks signatures and hashes of what it fetches.
`pip` fetches wheels alone. `dpkg-deb` and `zipfile` unpack them in a sandbox: no script of a package
runs, nothing of the host changes.
"""

import os
import pwd
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.common import paths, scratch
from satlab.common.errors import HostError
from satlab.lab import privileges, sandbox
from satlab.lab.job_overlay import PYTHON
from satlab.lab.sandbox import Limits, Mount, Sandbox

MAX_PACKAGES, MAX_FETCHED_BYTES, MAX_UNPACKED_BYTES, MAX_FILES = (
    150,
    500_000_000,
    2_000_000_000,
    100_000,
)
APT_S, UNPACK_S = 300.0, 120.0
"""Deadlines of one call of apt-get, and of one package, s."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+", re.ASCII)
"""Names of packages (Debian policy, section 5.6.7)."""
_INSTALLS = re.compile(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+) ", re.MULTILINE)
"""A line of `apt-get --simulate`: name, perhaps the installed version, the new one."""
_URI = re.compile(r"^'[^']*' \S+ (\d+)", re.MULTILINE)
"""A line of `apt-get --print-uris`; the number is the size in bytes."""
_UNKNOWN = re.compile(
    r"Unable to locate package (\S+)|Package '?(\S+?)'? has no installation candidate"
)
_OF_PIP = re.compile(r"PIP_|https?_proxy$|no_proxy$|SSL_CERT_|REQUESTS_CA_", re.IGNORECASE)
"""Variables by which an administrator leads pip to an index."""
_OPTIONS = (
    "-q",
    "-oAcquire::http::Timeout=20",
    "-oAcquire::https::Timeout=20",
    "-oAcquire::Retries=1",
    "-oAPT::Get::AllowUnauthenticated=no",
)
_USR_MERGED = ("bin", "sbin", "lib", "lib64")
"""Links of the root to folders of /usr; an older package may still hold folders of these names."""


@dataclass(frozen=True)
class Apt:
    """apt-get of this host; `environment`: further variables, such as another APT_CONFIG."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run apt-get; the caller checks its status. Raises HostError: apt-get is missing, or
        hangs.
        """
        variables = {"PATH": paths.STANDARD_PATH, "LC_ALL": "C", **self.environment}
        try:
            return subprocess.run(
                ["apt-get", *_OPTIONS, *words],
                cwd=cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=APT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise HostError(
                "apt-get is missing: packages of jobs come from Debian's archive", _HINT
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HostError(f"apt-get {words[0]} did not end within {APT_S:g} s", _HINT) from error

    def missing(self, names: Sequence[str]) -> dict[str, str]:
        """Return the packages, including dependencies, that the host lacks: name to version.

        Raises HostError: a name is unknown, or they cannot be installed together with what the host
        has.
        """
        for name in names:
            if not NAME.fullmatch(name):
                raise HostError(f"{name!r} is not the name of a package")
        if not names:
            return {}
        options = ("--simulate", "--no-install-recommends", "--no-upgrade", "--no-remove")
        done = self.run(*options, "install", "--", *names)
        if done.returncode:
            raise HostError(f"apt-get cannot install {' '.join(names)}: {_reason(done)}", _HINT)
        return dict(_INSTALLS.findall(done.stdout))

    def known(self, names: Sequence[str]) -> list[str]:
        """Return the names that the host's package lists contain."""
        known = []
        for name in names:
            done = self.run("--simulate", "--no-install-recommends", "install", "--", name)
            if not (done.returncode and _UNKNOWN.search(done.stderr + done.stdout)):
                known.append(name)
        return known

    def fetch(self, packages: Mapping[str, str], folder: Path) -> list[Path]:
        """Fetch packages into an empty folder, as apt's own user if the host has it; return the
        files. Raises HostError.
        """
        words = [f"{name}={version}" for name, version in packages.items()]
        done = self.run("--print-uris", "download", "--", *words)
        size = sum(map(int, _URI.findall(done.stdout)))
        if len(packages) > MAX_PACKAGES or size > MAX_FETCHED_BYTES:
            bounds = f"{MAX_PACKAGES} packages and {MAX_FETCHED_BYTES // 10**6} MB"
            raise HostError(
                f"{len(packages)} packages of {size // 10**6} MB: more than {bounds}", _HINT
            )
        try:
            user = pwd.getpwnam("_apt").pw_uid
        except KeyError:
            user = os.geteuid()
        with _writable_for(user, folder):
            done = self.run("download", "--", *words, cwd=folder)
        files = sorted(
            path
            for path in folder.iterdir()
            if path.suffix == ".deb" and stat.S_ISREG(path.lstat().st_mode)
        )
        if done.returncode or len(files) != len(packages):
            raise HostError(
                f"packages of jobs cannot be fetched: {_reason(done)}", f"apt-get update; {_HINT}"
            )
        return files


@dataclass(frozen=True)
class Pip:
    """pip of the host's Python; `options`: further ones, such as another index."""

    options: tuple[str, ...] = ()

    def fetch(self, name: str, folder: Path) -> list[Path]:
        """Fetch the wheel of a Python package, and those that it needs, into an empty folder.

        Raises HostError: there is none, pip is missing, or they exceed the bounds.
        """
        limits = ["prlimit", f"--fsize={MAX_FETCHED_BYTES}", "--"]
        argv = [*limits, "/usr/bin/python3", "-m", "pip", "download", "-q", "--only-binary=:all:"]
        argv += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", *self.options]
        own = {"PATH": paths.STANDARD_PATH, "HOME": str(folder), "TMPDIR": str(folder)}
        configured = {key: value for key, value in os.environ.items() if _OF_PIP.match(key)}
        user, drop = os.geteuid(), dict[str, Any]()
        if user == 0:
            user = privileges.new_uid()
            drop = {"user": user, "group": user, "extra_groups": []}
        try:
            with _writable_for(user, folder):
                done = subprocess.run(
                    [*argv, "--dest", str(folder), "--", name],
                    cwd=folder,
                    env=own | configured,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=APT_S,
                    check=False,
                    **drop,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"pip: {error}", _HINT) from error
        files = sorted(path for path in folder.glob("*.whl") if stat.S_ISREG(path.lstat().st_mode))
        size = sum(file.stat().st_size for file in files)
        if len(files) > MAX_PACKAGES or size > MAX_FETCHED_BYTES:
            raise HostError(f"{name}: {len(files)} wheels of {size} bytes are too many", _HINT)
        if done.returncode or not files:
            lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise HostError(f"pip: {lines[-1][:300]}", _HINT)
        return files


def debian_name(python_package: str) -> str:
    """Return the name that Debian's package of a Python package usually has."""
    return f"python3-{python_package.lower().removeprefix('python-').replace('_', '-')}"


_HINT = "install them on the host, or leave --job-packages out"


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    """Return apt-get's error messages on one line."""
    lines = [
        line.removeprefix("E: ") for line in done.stderr.splitlines() if line.startswith("E: ")
    ]
    return "; ".join(dict.fromkeys(lines))[:300] or f"status {done.returncode}"


@contextmanager
def _writable_for(user: int, folder: Path) -> Iterator[None]:
    """Let a user write to the folder for the time of the block, so that a program fetches without
    root's rights.
    """
    if os.geteuid() == 0:
        os.chown(folder, user, -1)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            os.chown(folder, 0, -1)  # nobody else can replace the files that are checked next


def unpack(files: Sequence[Path], target: Path, place: Path) -> None:
    """Unpack packages into the empty folder `target` of a scratch folder, each in a sandbox whose
    user has no rights. `place`: root's folder for the specs of sandboxes.

    Raises HostError: a package is not sound, or all together exceed the bounds.
    """
    memory_bytes = MAX_UNPACKED_BYTES + (512 << 20)  # the unpacked files are in memory
    limits = Limits(
        UNPACK_S,
        memory_bytes,
        processes=32,
        disk_bytes=MAX_UNPACKED_BYTES,
        files=MAX_FILES,
        grace_s=1.0,
    )
    shown = (
        *(Mount(file, f"/run/{file.name}") for file in files),
        Mount(target, "/run/target", writable=True),
    )
    box = Sandbox(mounts=shown, name="unpack", variables={"LC_ALL": "C"}, limits=limits)
    scratch.sized(target, limits.disk_bytes, limits.files)
    privileges.chown(target, box.uid)
    (place / "root").mkdir(mode=0o700, exist_ok=True)
    for file in files:
        argv = ["dpkg-deb", "--extract", f"/run/{file.name}", "/run/target"]
        if file.suffix == ".whl":
            argv = ["python3", "-m", "zipfile", "-e", f"/run/{file.name}", f"/run/target/{PYTHON}"]
        _confined(box, place, argv, file.name)
    for name in _USR_MERGED:
        if (target / name).is_dir() and not (target / name).is_symlink():
            _confined(box, place, ["mkdir", "-p", f"/run/target/usr/{name}"], name)
            _confined(
                box, place, ["cp", "-a", f"/run/target/{name}/.", f"/run/target/usr/{name}"], name
            )


def _confined(box: Sandbox, place: Path, argv: Sequence[str], what: str) -> None:
    """Run a command in the sandbox. Raises HostError."""
    spec, report = place / "unpack.json", place / "unpack.report"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [*box.argv(spec, place / "root", report), *argv],
        env=sandbox.ENVIRONMENT,
        cwd=sandbox.HOME,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=UNPACK_S + 10,
        check=False,
    )
    if done.returncode:
        used = sandbox.read_report(report)
        why = (
            (used.why if used else "") or done.stderr.strip()[-300:] or f"status {done.returncode}"
        )
        raise HostError(f"{what} cannot be unpacked: {why}", _HINT)
