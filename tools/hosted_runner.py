# SPDX-License-Identifier: GPL-3.0-or-later
"""Try docs/ci/github-actions.yml on what a hosted runner has: `python -m tools.hosted_runner FOLDER`, as root.

A fresh Debian container for each job: compilers, Python, Rust, and a user with sudo. The commit that is checked out is
cloned there; the stack under test is tests/endpoints/planted. FOLDER keeps the container's root and the caches.
`--programs FOLDER` are programs of this commit that the first job finds built, which otherwise takes it minutes.
Prints a JSON line for each job; status 1: a job did not end as it must.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from satlab.common import paths
from satlab.vm import box

TEMPLATE = paths.ROOT / "docs" / "ci" / "github-actions.yml"
PLANTED = "satlab/tests/endpoints/planted/lockstep.py"
PACKAGES = (
    "sudo", "git", "ca-certificates", "curl", "procps", "iproute2", "xz-utils", "python3", "python3-venv",
    "gcc", "g++", "make", "cmake", "pkg-config", "libc6-dev",
)  # fmt: skip
"""Debian packages that the images of hosted runners have as well."""
HOME = "/home/vagrant"
"""Of the user that box.make_root makes, who may use sudo without a password."""
CACHED = ("satlab/target", "satlab/.venv", "satlab/.satlab")
PROGRAMS = ("satlink", "satvirtual", "satbox")
"""Of the launcher's group lockstep."""
DEADLINE_S = 3600.0


@dataclass(frozen=True)
class Job:
    """A run of the workflow: the stack's fault, whether it is of main, whether caches are restored, its status."""

    name: str
    fault: str
    is_main: bool
    has_cache: bool
    status: int


JOBS = (
    Job("first run of main", "none", is_main=True, has_cache=False, status=0),
    Job("no change", "none", is_main=False, has_cache=True, status=0),
    Job("planted slowdown", "static", is_main=False, has_cache=True, status=1),
)


def steps() -> dict[str, str]:
    """Return the commands of the workflow: the check, and what keeps the baseline."""
    [job] = yaml.safe_load(TEMPLATE.read_text())["jobs"].values()
    [check] = [step["run"] for step in job["steps"] if step.get("name") == "satellite suite"]
    [keep] = [step["run"] for step in job["steps"] if step.get("if") == "github.event_name == 'push'" and "run" in step]
    return {"check": check, "keep": keep}


def root_of(folder: Path) -> Path:
    """Return the root of all containers, made if it is missing."""
    root, archive = folder / "root", folder / "root.tar"
    if not root.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        box.make_root(archive, PACKAGES)
        root.mkdir()
        box.unpack(archive, root)
        archive.unlink()
        tools = root / HOME.strip("/") / ".cargo" / "bin"
        tools.mkdir(parents=True)
        for name in ("cargo", "rustc"):
            (tools / name).symlink_to(f"/opt/rust/bin/{name}")
        subprocess.run(["chown", "-R", "1000:1000", str(tools.parent)], check=True)
    return root


def inside(root: Path, work: Path, script: str) -> tuple[int, float]:
    """Run a script as the user in a container whose changes are thrown away; return its status and duration, s."""
    rust = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    argv = [
        "systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay", "--register=no", "--keep-unit",
        "--link-journal=no", "--console=pipe", "--resolv-conf=replace-host", "--bind-ro=/etc/ssl/certs",
        "--capability=all", "--system-call-filter=@known",  # a hosted runner is a virtual machine
        f"--bind={work}:{HOME}/work", f"--bind-ro={rust}:/opt/rust", "--as-pid2",
        "runuser", "-u", "vagrant", "--", "env", f"HOME={HOME}", f"PATH=/opt/rust/bin:{paths.STANDARD_PATH}",
        "bash", "-eo", "pipefail", "-c", f"cd {HOME}/work\n{script}",
    ]  # fmt: skip
    began = time.monotonic()
    with (work / "log").open("ab") as log:
        done = subprocess.run(
            argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False
        )  # fmt: skip
    return done.returncode, round(time.monotonic() - began, 1)


def checked_out(folder: Path, job: Job) -> Path:
    """Return the job's folder: satlab's commit, the stack's build, and what the caches hold."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "build").mkdir(parents=True)
    source = f"file://{paths.ROOT}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, str(work / "satlab")], check=True)
    program = work / "build" / "lockstep"
    program.write_text(f'#!/bin/sh\nexec /usr/bin/python3 "$(dirname "$0")/planted.py" {job.fault}\n')
    program.chmod(0o755)
    shutil.copy(work / PLANTED, work / "build" / "planted.py")
    if job.has_cache:
        for name in (*CACHED, "baseline"):
            subprocess.run(["cp", "-a", str(folder / "cache" / name), str(work / name)], check=True)
    subprocess.run(["chown", "-R", "1000:1000", str(work)], check=True)
    return work


def put_programs(work: Path, programs: Path) -> None:
    """Put programs into a checkout as the launcher would have built them, with the sum of their sources."""
    target, state = work / "satlab" / "target" / "release", work / "satlab" / ".satlab"
    for place in (target, state):
        place.mkdir(parents=True)
    command = "find crates Cargo.toml Cargo.lock -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    done = subprocess.run(["bash", "-c", command], cwd=work / "satlab", capture_output=True, text=True, check=True)
    for name in PROGRAMS:
        shutil.copy(programs / name, target / name)
        (state / f"release-{name}.sources").write_text(done.stdout)
    subprocess.run(["chown", "-R", "1000:1000", str(work)], check=True)


def keep(folder: Path, work: Path) -> None:
    """Put what the workflow caches into the cache."""
    for name in (*CACHED, "baseline"):
        target = folder / "cache" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(work / name), str(target)], check=True)


def main(folder: Path, programs: Path | None) -> int:
    root, commands = root_of(folder), steps()
    shutil.rmtree(folder / "cache", ignore_errors=True)
    is_good = True
    for job in JOBS:
        work = checked_out(folder, job)
        if programs is not None and not job.has_cache:
            put_programs(work, programs)
        status, duration_s = inside(root, work, commands["check"])
        if job.is_main and status == 0:
            inside(root, work, commands["keep"])
            keep(folder, work)
        shutil.copy(work / "log", folder / f"{job.name.replace(' ', '-')}.log")
        compared = json.loads((work / "check.json").read_text())["compared"] or ()
        grew = sorted({one["grew"] for one in compared if one["is_slower"]})
        is_expected = status == job.status and bool(grew) is (job.status == 1)
        is_good &= is_expected
        line = {"job": job.name, "status": status, "duration_s": duration_s, "grew": grew, "as_expected": is_expected}
        print(json.dumps(line), flush=True)
        if job.is_main and status != 0:
            return 1
    return 0 if is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=Path)
    asked = parser.parse_args()
    sys.exit(main(asked.folder.absolute(), asked.programs))
