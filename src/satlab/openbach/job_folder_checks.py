# SPDX-License-Identifier: GPL-3.0-or-later
"""A job folder without its descriptor: playbooks that OpenBACH can include, and the files that they
and it name.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from pathlib import Path

from satlab.common import yaml_text
from satlab.common.errors import Fault
from satlab.openbach.descriptor import AGENT_JOBS, Descriptor
from satlab.openbach.upstream_descriptors import copied

_PLAY = ("hosts", "import_playbook", "ansible.builtin.import_playbook")


def check_folder(job: Descriptor) -> list[Fault]:
    """Return the faults that would prevent a controller from installing the job, or an agent from
    starting it.

    The controller reads only the descriptor when a job is added, so it would find them late.
    """
    folder = job.files.parent
    faults = [
        fault
        for verb in ("install", "uninstall")
        for fault in _playbook(folder / f"{verb}_{job.name}.yml")
    ]
    return [*faults, *_commands(job), *_filter(job.files / f"{job.name}_rstats_filter.conf")]


def _playbook(path: Path) -> Iterator[Fault]:
    try:
        tasks = yaml_text.read(path)
    except OSError as error:
        yield Fault(
            str(path),
            f"cannot be read: {error.strerror}",
            "OpenBACH needs it to put the job on an agent",
        )
        return
    except yaml_text.YamlError as error:
        yield error.fault
        return
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        yield Fault(str(path), "is not a list of tasks", "OpenBACH's role includes it")
        return
    for position, task in enumerate(tasks):
        if any(key in task for key in _PLAY):
            yield Fault(
                f"{path}: {position}",
                "is a play, not a task",
                "OpenBACH's role includes a list of tasks",
            )
        for source in copied([task]):
            if not (path.parent / "files" / source).exists():
                yield Fault(
                    f"{path}: {position}",
                    f"copies {source}, which is not in files/",
                    "add it, or fix the name",
                )


def _commands(job: Descriptor) -> Iterator[Fault]:
    """Find programs of the job that are missing."""
    own = f"{AGENT_JOBS}/{job.name}/"
    words = {
        word for platform in job.platforms for word in (*platform.command, *platform.command_stop)
    }
    for word in sorted(words):
        name = word.removeprefix(own)
        if word.startswith(own) and not (job.files / job.programs.get(name, name)).is_file():
            where = f"{job.files / f'{job.name}.yml'}: platform_configuration"
            yield Fault(where, f"{word} is started, and {name} is not in files/")


def _filter(path: Path) -> Iterator[Fault]:
    """Find faults of rstats' filter file.

    It may be missing: then rstats stores and broadcasts everything.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
        for section in parser.sections():
            for key in ("storage", "broadcast"):
                parser.getboolean(section, key, fallback=True)
    except (configparser.Error, ValueError) as error:
        yield Fault(str(path), f"is not a filter: {' '.join(str(error).split())[:200]}")
