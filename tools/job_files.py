# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that each OpenBACH job has because its folder is installed alone: copies of the modules of
openbach-scenarios/_kit that the job imports, its filter of statistics, and its playbooks.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from satlab.common.paths import JOBS

KIT = JOBS.parent / "_kit"
LICENSE = "# SPDX-License-Identifier: GPL-3.0-or-later\n"
MADE = "# Made by `make generate` from openbach-scenarios/_kit/{}: change it there.\n"
FILTER = "[default]\nstorage=true\nbroadcast=false\n"
FOLDER = "/opt/openbach/agent/jobs/{{ job_name }}"
INTERNET = '  become: true\n  environment: "{{ openbach_proxies }}"\n'


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text."""
    kit = {path.stem: path.read_text() for path in KIT.glob("*.py")}
    table = yaml.safe_load((KIT / "playbooks.yml").read_text())
    for name, needs in table.items():
        folder = JOBS / name
        modules = imported(folder / "files", kit)
        for module in modules:
            made = LICENSE + MADE.format(f"{module}.py") + kit[module].removeprefix(LICENSE)
            yield folder / "files" / f"{module}.py", made
        filter_file = f"{name}_rstats_filter.conf"
        yield folder / "files" / filter_file, FILTER
        there = {path.name for path in (folder / "files").iterdir() if path.is_file()}
        there -= {f"{name}.py", f"{name}.yml", *(f"{module}.py" for module in kit)}
        copied = {file for file in there if not file.endswith(".deb")}
        copied |= {filter_file, *(f"{module}.py" for module in modules)}
        head = LICENSE + MADE.format("playbooks.yml") + "---\n"
        tasks = "\n".join(install_tasks(name, needs, sorted(copied)))
        yield folder / f"install_{name}.yml", head + tasks
        yield (
            folder / f"uninstall_{name}.yml",
            head + folder_task("Remove the job folder", "absent"),
        )


def imported(folder: Path, kit: Mapping[str, str]) -> list[str]:
    """Return the modules of the kit that the programs of a folder import, and what these import."""
    sources = [path.read_text() for path in folder.glob("*.py") if path.stem not in kit]
    found: set[str] = set()
    while sources:
        names = set(re.findall(r"^(?:from|import) (\w+)", sources.pop(), re.MULTILINE))
        sources += [kit[name] for name in (names & kit.keys()) - found]
        found |= names & kit.keys()
    return sorted(found)


def install_tasks(name: str, needs: Mapping[str, Any], copied: list[str]) -> Iterator[str]:
    """Yield the tasks that install a job, from its entry in playbooks.yml."""
    if "first" in needs:
        yield needs["first"]
    if packages := needs.get("packages"):
        recommends = "" if needs.get("recommends", True) else "    install_recommends: false\n"
        yield (
            "- name: Install packages\n"
            "  ansible.builtin.apt:\n"
            f"    pkg: [{', '.join(packages)}]\n"
            "    state: present\n"
            f"{recommends}"
            "    update_cache: true\n"
            "    cache_valid_time: 3600\n"
            f"{INTERNET}"
        )
    for package in needs.get("pip", ()):
        yield (
            f"- name: Install {package.partition('==')[0]} for the agent's Python\n"
            "  ansible.builtin.pip:\n"
            f"    name: {package}\n"
            "    virtualenv: /opt/openbach/virtualenv\n"
            f"{INTERNET}"
        )
    for service in needs.get("stopped", ()):
        yield (
            f"- name: Keep the package's own service {service} down\n"
            "  ansible.builtin.service:\n"
            f"    name: {service}\n"
            "    state: stopped\n"
            "    enabled: false\n"
            "  become: true\n"
        )
    yield folder_task("Create the job folder", "directory")
    if package := needs.get("own_package"):
        yield (
            f"# The package of `make dist`, if files/ holds it; else the host has {package} already.\n"
            "- name: Copy our package\n"
            "  ansible.builtin.copy:\n"
            '    src: "{{ item }}"\n'
            f'    dest: "{FOLDER}/{package}.deb"\n'
            "    mode: '0644'\n"
            f"  with_fileglob: {package}_*.deb\n"
            f"  register: {name}_package\n"
            "  become: true\n"
        )
        yield (
            "- name: Install our package\n"
            "  ansible.builtin.apt:\n"
            f'    deb: "{FOLDER}/{package}.deb"\n'
            f"  when: {name}_package.results | length > 0\n"
            "  become: true\n"
        )
    if command := needs.get("must_run"):
        yield (
            f"- name: See whether {command[0]} is installed\n"
            "  ansible.builtin.command:\n"
            f"    argv: [{', '.join(command)}]\n"
            "  changed_when: false\n"
        )
    others = "".join(f"    - {{file: {file}, mode: '0644'}}\n" for file in copied)
    yield (
        "- name: Copy the job\n"
        "  ansible.builtin.copy:\n"
        '    src: "{{ item.file }}"\n'
        f'    dest: "{FOLDER}/"\n'
        '    mode: "{{ item.mode }}"\n'
        "  loop:\n"
        f"    - {{file: {name}.py, mode: '0755'}}\n"
        f"{others}"
        "  become: true\n"
    )
    if needs.get("npm"):
        yield (
            "- name: Install what package-lock.json names, where the agent has npm\n"
            "  ansible.builtin.command:\n"
            f'    argv: [npm, ci, --ignore-scripts, --no-audit, --no-fund, --prefix, "{FOLDER}"]\n'
            f'    creates: "{FOLDER}/node_modules"\n'
            "  failed_when: false # the job does without\n"
            f"{INTERNET}"
        )


def folder_task(title: str, state: str) -> str:
    """Return the task that makes the job's folder on the agent or removes it."""
    mode = "    mode: '0755'\n" if state == "directory" else ""
    return (
        f"- name: {title}\n"
        "  ansible.builtin.file:\n"
        f'    path: "{FOLDER}"\n'
        f"    state: {state}\n"
        f"{mode}"
        "  become: true\n"
    )
