# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of the jobs install what they say, twice without a change, and take it away again.

They run for real, as OpenBACH's role would include them, in a mount namespace with an empty /opt.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from satlab import paths

pytestmark = pytest.mark.net

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
JOBS = sorted(paths.JOBS.glob("satlab_*/install_*.yml"))
# One of each kind: files alone, with a package, with a Python package.
TRIED = ("satlab_link", "satlab_capture", "satlab_page_load")
# A private /opt with our Python in the place of the agent's, and package lists that pass for fresh.
PRIVATE = """
set -eu
mount -t tmpfs tmpfs /opt
mkdir -p /opt/openbach/agent/jobs /var/lib/apt/periodic
ln -s "$1" /opt/openbach/virtualenv
mount -t tmpfs tmpfs /var/lib/apt/periodic
touch /var/lib/apt/periodic/update-success-stamp
for file in "$2" "$2" "$3"; do
  "$4" -i localhost, "$file"
  find /opt/openbach/agent/jobs -type f -printf 'file %P %m\\n'
done
"""


def packages(playbook: Path) -> list[str]:
    """Give the packages that a playbook names; a template is none that this host could have."""
    tasks = yaml.safe_load(playbook.read_text())
    names = [task["ansible.builtin.apt"].get("pkg", []) for task in tasks if "ansible.builtin.apt" in task]
    return [name for found in names for name in (found if isinstance(found, list) else [found])]


def installed(package: str) -> bool:
    argv = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout == "installed"


def play(folder: Path, verb: str, jobs: list[str]) -> Path:
    file = folder / f"{verb}.yml"
    tasks = [
        {
            "name": job,
            "ansible.builtin.import_tasks": str(paths.JOBS / job / f"{verb}_{job}.yml"),
            "vars": {"job_name": job},
        }
        for job in jobs
    ]
    variables = {"openbach_proxies": {}, "ansible_python_interpreter": "/usr/bin/python3"}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}
    file.write_text(yaml.safe_dump([play]))
    return file


@pytest.mark.parametrize("playbook", JOBS, ids=lambda path: path.parent.name)
def test_playbooks_are_understood(playbook: Path, tmp_path: Path) -> None:
    for verb in ("install", "uninstall"):
        file = play(tmp_path, verb, [playbook.parent.name])
        argv = [str(ANSIBLE), "-i", "localhost,", "--syntax-check", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}


def test_jobs_are_installed_twice_and_removed(tmp_path: Path) -> None:
    """Nothing is installed on the host: those jobs are tried whose packages it has."""
    if shutil.which("unshare") is None or not installed("python3-apt"):
        pytest.skip("needs unshare and python3-apt")
    jobs = [job for job in TRIED if all(map(installed, packages(paths.JOBS / job / f"install_{job}.yml")))]
    assert "satlab_link" in jobs
    files = play(tmp_path, "install", jobs), play(tmp_path, "uninstall", jobs)
    argv = ["unshare", "-m", "sh", "-c", PRIVATE, "sh", sys.prefix, *map(str, files), str(ANSIBLE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment(tmp_path), timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, removed = re.split(r"^PLAY RECAP.*\n", done.stdout, flags=re.MULTILINE)[1:]
    assert "failed=0" in first
    assert "changed=0" in second
    expected = {f"file {job}/{name}" for job in jobs for name in (f"{job}.py 755", f"{job}_rstats_filter.conf 644")}
    assert {line for line in second.splitlines() if line.startswith("file")} == expected
    assert not [line for line in removed.splitlines() if line.startswith("file")]
