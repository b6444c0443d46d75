# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of the jobs install what they say, twice without a change, and take it away again.

They run for real, as OpenBACH's role would include them, on a copy-on-write layer over this host:
with the packages that it has, those of `make dist`, and a stand-in for OpenSAND's repository.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from satlab.common import paths
from satlab.vm import debian_packages, provision
from tests.vm import standin_repository

pytestmark = pytest.mark.net

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
JOBS = sorted(paths.JOBS.glob("satlab_*/install_*.yml"))
# One of each kind: files alone, with a package, with a Python package; and each that brings more
# than files.
TRIED = (
    "satlab_link",
    "satlab_capture",
    "satlab_page_load",
    "satlab_opensand",
    "satlab_pep",
    "satlab_satperf",
    "satlab_web_server",
    "satlab_packet_filter",
    "satlab_postprocess",
)
STANDIN = Path(__file__).with_name("standin_opensand.py")
OWN_PROGRAMS = {"satlab_pep": "satpep", "satlab_satperf": "satperf"}
SERVICES = ("h2o", "haproxy", "nginx", "ngtcp2d")
# A copy-on-write host: no systemd, an /opt with the agent's Python, and one package repository,
# whose lists are fresh. What the real host has is installed there, too.
PRIVATE = """
set -eu
host=$1/layers/host
mount -t tmpfs tmpfs "$1/layers"
mkdir "$1/layers/upper" "$1/layers/work" "$host"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layers/upper,workdir=$1/layers/work" "$host"
mount -t proc proc "$host/proc"
for place in /dev /dev/pts "$1" "$2"; do
  mkdir -p "$host$place"
  mount --bind "$place" "$host$place"
done
for place in /run /opt /etc/apt/sources.list.d /var/lib/apt/periodic; do
  mkdir -p "$host$place"
  mount -t tmpfs tmpfs "$host$place"
done
mkdir -p "$host/opt/openbach/agent/jobs"
ln -s "$1/virtualenv" "$host/opt/openbach/virtualenv"
cp "$1/standin.list" "$host/etc/apt/sources.list.d/"
: > "$host/etc/apt/sources.list"
echo 'APT::Sandbox::User "root";' > "$host/etc/apt/apt.conf.d/99-standin"  # to whom the repository's folder is open
chroot "$host" apt-get -q update
touch "$host/var/lib/apt/periodic/update-success-stamp"
for verb in install install uninstall; do
  chroot "$host" "$2/bin/ansible-playbook" -i localhost, "$1/$verb.yml"
  find "$host/opt/openbach/agent/jobs" -type f -printf 'file %P %m\\n'
  chroot "$host" dpkg-query -W -f '${db:Status-Status} ${Package}\\n'
  find "$host/etc/systemd/system" -path '*.wants/*.service' -printf 'starts %f\\n'
done
"""


def packages(playbook: Path) -> list[str]:
    """Return the packages that a playbook names; a template is none, it chooses among those that
    there are.
    """
    tasks = yaml.safe_load(playbook.read_text())
    named = [
        task["ansible.builtin.apt"].get("pkg", [])
        for task in tasks
        if "ansible.builtin.apt" in task
    ]
    return [name for names in named if isinstance(names, list) for name in names]


def installed(package: str) -> bool:
    argv = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout == "installed"


def play(folder: Path, verb: str, jobs: list[str], where: Path = paths.JOBS) -> Path:
    file = folder / f"{verb}.yml"
    tasks = [
        {
            "name": job,
            "ansible.builtin.import_tasks": str(where / job / f"{verb}_{job}.yml"),
            "vars": {"job_name": job},
        }
        for job in jobs
    ]
    variables = {
        "openbach_proxies": {},
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_become": False,
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": variables,
        "tasks": tasks,
    }
    file.write_text(yaml.safe_dump([play]))
    return file


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_playbooks_are_understood(verb: str, tmp_path: Path) -> None:
    """All jobs in one play: Ansible names the file that it does not understand."""
    assert len(JOBS) >= 10
    file = play(tmp_path, verb, [playbook.parent.name for playbook in JOBS])
    argv = [str(ANSIBLE), "-i", "localhost,", "--syntax-check", str(file)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr


def playbook_of(job: str) -> Path:
    return paths.JOBS / job / f"install_{job}.yml"


def environment(folder: Path) -> dict[str, str]:
    file = folder / "ansible.cfg"
    # As in ansible/ansible.cfg: Ansible looks for results 1000 times a second by default.
    file.write_text("[defaults]\ninternal_poll_interval = 0.01\n")
    ansible = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(file)}
    return (
        {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        | ansible
        | provision.strategy()
    )


def outfit(folder: Path, jobs: list[str]) -> None:
    """Put into a folder what `PRIVATE` looks for: plays, jobs with our packages, the line of the
    repository.
    """
    repository = standin_repository.build(folder / "repository", STANDIN)
    source = (
        f"deb [signed-by={repository.key}]"
        f" file:{repository.folder}/net4sat/{standin_repository.SUITE}"
    )
    (folder / "standin.list").write_text(f"{source} {standin_repository.SUITE} stable\n")
    copies, built = folder / "jobs", folder / "built"
    shutil.copytree(paths.JOBS, copies)
    built.mkdir()
    for program in debian_packages.PROGRAMS:
        (built / program).write_text(f"#!/bin/sh\necho {program} stand-in\n")
    for package in debian_packages.build(folder / "dist", built):
        for job, program in OWN_PROGRAMS.items():
            if package.name.startswith(f"{program}_"):
                shutil.copy(package, copies / job / "files")
    agent = folder / "virtualenv"
    venv.create(agent, with_pip=True)
    # pip finds there what the host has, and fetches nothing
    (site_packages,) = agent.glob("lib/python*/site-packages")
    (site_packages / "host.pth").write_text(sysconfig.get_path("purelib"))
    (folder / "layers").mkdir()
    for verb in ("install", "uninstall"):
        play(folder, verb, jobs, copies)


@pytest.mark.promise("P48")
def test_jobs_are_installed_twice_and_removed(tmp_path: Path) -> None:
    """Nothing comes over a network: those jobs are tried whose packages the host has."""
    needed = ("unshare", "apt-ftparchive", "gpg", "git")
    if not all(map(shutil.which, needed)) or not installed("python3-apt"):
        pytest.skip(f"needs python3-apt, {', '.join(needed)}")
    own = {"opensand", *OWN_PROGRAMS.values()}
    missing = {
        job: [p for p in packages(playbook_of(job)) if p not in own and not installed(p)]
        for job in TRIED
    }
    jobs = [job for job in TRIED if not missing[job]]
    assert {"satlab_link", "satlab_opensand", "satlab_satperf"} <= set(jobs)
    outfit(tmp_path, jobs)
    argv = [*"unshare --mount --pid --fork sh -c".split(), PRIVATE, "sh", str(tmp_path), sys.prefix]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=environment(tmp_path), timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, removed = (
        part.splitlines() for part in re.split(r"^PLAY RECAP.*\n", done.stdout, flags=re.M)[1:]
    )
    assert "failed=0" in first[0]
    assert "changed=0" in second[0], done.stdout
    expected = {
        f"file {job}/{name}"
        for job in jobs
        for name in (f"{job}.py 755", f"{job}_rstats_filter.conf 644")
    }
    expected |= {
        f"file {job}/{module.name} 644"
        for job in jobs
        for module in (paths.JOBS / job / "files").glob("*.py")
        if module.stem != job
    }
    expected |= {
        f"file {job}/{program}.deb 644" for job, program in OWN_PROGRAMS.items() if job in jobs
    }
    assert {line for line in second if line.startswith("file")} == expected
    expected = {"opensand", *(OWN_PROGRAMS[job] for job in jobs if job in OWN_PROGRAMS)}
    assert {f"installed {name}" for name in expected} <= set(second)
    if "satlab_pep" in jobs and "satlab_web_server" in jobs:
        assert not {f"starts {name}.service" for name in SERVICES} & set(second), (
            "services of packages are kept down"
        )
    assert not [line for line in removed if line.startswith("file")]
    if left_out := {job: names for job, names in missing.items() if names}:
        pytest.skip(f"jobs whose packages are missing were not tried: {left_out}")
