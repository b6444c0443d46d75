# SPDX-License-Identifier: GPL-3.0-or-later
"""Job descriptors as OpenBACH's own jobs have them, brought into the form of 2.7 that `descriptor`
reads.

The controller reads the entries that it knows and passes over the rest. So what it passes over is a
warning here: unknown keys, a flag of a positional argument, misspelt types, and the list of
platforms of releases up to 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from satlab.common import yaml_text
from satlab.common.errors import ConfigError

RELEASES = {
    "11": "bullseye",
    "12": "bookworm",
    "13": "trixie",
    "18.04": "bionic",
    "20.04": "focal",
    "22.04": "jammy",
    "24.04": "noble",
}
"""Names of the releases that descriptors up to 2.6 name by version."""
TYPES = {
    "string": "str",
    "text": "str",
    "integer": "int",
    "number": "float",
    "double": "float",
    "none": "None",
    "bool": "None",
    "boolean": "None",
    "address": "ip",
}
"""Types that OpenBACH does not know, and their meaning."""
_COPY = ("copy", "ansible.builtin.copy")
_LOOP = ("loop", "with_items")
APT = ("apt", "ansible.builtin.apt", "package", "ansible.builtin.package")
"""Modules that install packages."""
PIP = ("pip", "ansible.builtin.pip")
"""Modules that install Python packages."""
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+", re.ASCII)
"""Names of packages (Debian policy, section 5.6.7)."""
_PYTHON_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
"""Names of Python packages (core metadata, field Name)."""
_OWN_BUILD = "-openbach"
"""Ending of packages of OpenBACH's own archive; Debian's has the program without it."""
_PAIR = re.compile(r"(\w+)=((?:\{\{.*?\}\}|\S)+)")
LONGEST_CALL = 4096
"""Longest call in one line, characters."""
_SRC = re.compile(r"(?:^|\s)src=(\{\{.*?\}\}|\S+)")
_GENERAL = ("name", "description", "job_version", "keywords", "persistent", "need_privileges")
_PLATFORM = (
    "ansible_system",
    "ansible_distribution",
    "ansible_distribution_release",
    "command",
    "command_stop",
)
_ARGUMENT = (
    "name",
    "type",
    "count",
    "description",
    "password",
    "default",
    "choices",
    "flag",
    "repeatable",
)
_LEVEL = ("required", "optional", "subcommand")
_PLOTS = (
    "reads the InfluxDB of a collector, which the embedded lab has not",
    "satlab_postprocess, satlab report, or --influx and its dashboard",
)
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "tc_configure_link": (
        "needs netem and ifb of the kernel for delay, jitter and losses",
        "satlab_shape for a rate; satlab_link or satlab link set for delay and losses",
    ),
    "ip_scheduler": (
        "needs qdiscs that many kernels lack",
        "marks (satlab_set_tos) and the FIFOs of the profile",
    ),
    **dict.fromkeys(("time_series", "histogram", "comparison", "pseudo_cdf_comparison"), _PLOTS),
    **dict.fromkeys(("temporal_binning_histogram", "temporal_binning_statistics"), _PLOTS),
    **dict.fromkeys(("summary_agent_comparison", "summary_time_period"), _PLOTS),
}
"""Upstream jobs that need something that the embedded lab lacks: the reason, and a replacement."""
Warn = Callable[[str, str], None]
"""Notes a warning: place and reason."""
Entry = dict[str, Any]


def find_jobs(folder: Path) -> Iterator[Path]:
    """Yield the job folders at or below a folder, those that hold `files/<name of the folder>.yml`;
    not hidden ones.
    """
    for path in sorted(folder.rglob("files")):
        is_hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if not is_hidden and (path / f"{path.parent.name}.yml").is_file():
            yield path.parent


def playbook(folder: Path) -> Any:
    """Return the tasks that install a job. An unreadable playbook counts as empty; `validate`
    reports the fault.
    """
    try:
        return yaml_text.read(folder / f"install_{folder.name}.yml")
    except (OSError, ConfigError):
        return []


def programs(folder: Path) -> dict[str, str]:
    """Return where a job's playbook copies files from, below `files/`, by their name on the agent:
    from sub-folders.
    """
    return {
        Path(source).name: source
        for source in copied(playbook(folder))
        if "/" in source and ".." not in source.split("/")
    }


def packages(folder: Path) -> list[str]:
    """Return the Debian packages that a job's playbook installs, as far as they are written out."""
    return list(dict.fromkeys(packages_of(playbook(folder))))


def packages_of(tasks: Any) -> Iterator[str]:
    """Yield the Debian packages that tasks install, as far as they are written out, without
    versions.
    """
    for name in _installed(tasks, APT):
        if _PACKAGE.fullmatch(name):
            yield name.removesuffix(_OWN_BUILD)


def python_packages_of(tasks: Any) -> Iterator[str]:
    """Yield the Python packages that tasks install, as far as they are written out, without
    versions.
    """
    for name in _installed(tasks, PIP):
        if _PYTHON_PACKAGE.fullmatch(name):
            yield name


def _installed(tasks: Any, modules: tuple[str, ...]) -> Iterator[str]:
    """Yield what tasks of some modules name, without versions."""
    for task in tasks if isinstance(tasks, list) else ():
        if isinstance(task, dict):
            yield from _installed(task.get("block"), modules)
            call = next((call_of(task[key]) for key in modules if key in task), {})
            items: Any = next((call[key] for key in ("name", "pkg", "package") if key in call), [])
            items = items if isinstance(items, list) else str(items).split(",")
            if items == ["{{ item }}"]:
                items = next((task[key] for key in _LOOP if isinstance(task.get(key), list)), [])
            for each in items:
                if isinstance(each, str):
                    yield re.split("[=<>!~ ]", each.strip(), maxsplit=1)[0]


def call_of(call: Any) -> Mapping[str, Any]:
    """Return the parameters of a task, in YAML or as `name=x state=y`."""
    if isinstance(call, str):
        return dict(_PAIR.findall(call[:LONGEST_CALL]))
    return call if isinstance(call, Mapping) else {}


def copied(tasks: Any) -> Iterator[str]:
    """Yield the files that tasks copy, as far as they are written out: `src: x`, `copy: src=x`,
    loops, blocks.
    """
    for task in tasks if isinstance(tasks, list) else ():
        if isinstance(task, dict):
            yield from copied(task.get("block"))
            call = next((task[key] for key in _COPY if key in task), None)
            source = _source(call)
            items: list[Any] = next(
                (task[key] for key in _LOOP if isinstance(task.get(key), list)), []
            )
            if source is not None and "{{" in source:
                sources = [
                    item.get("file", item.get("src")) if isinstance(item, dict) else item
                    for item in items
                ]
            else:
                sources = [source]
            yield from (
                name
                for name in sources
                if isinstance(name, str) and "{{" not in name and not name.startswith("/")
            )


def _source(call: Any) -> str | None:
    """Return the source of a copy, in YAML or as `src=x dest=y`."""
    if isinstance(call, str):
        found = _SRC.search(call)
        return found[1] if found else None
    return call["src"] if isinstance(call, dict) and isinstance(call.get("src"), str) else None


def adapt(document: Mapping[str, Any], warn: Warn) -> Entry:
    """Return a descriptor in the form of 2.7.

    What is neither right nor ignored by a controller is left as it is.
    """
    adapted = _known(
        document, ("general", "platform_configuration", "arguments", "statistics"), "", warn
    )
    general = adapted.get("general")
    if isinstance(general, Mapping):
        general = _known(general, _GENERAL, "general", warn)
        # A hint only: most upstream jobs carry it, and most of them end by themselves.
        general["persistent"] = False
        if not isinstance(general.get("job_version"), str | None):
            general["job_version"] = str(general["job_version"])
            warn("general.job_version", "is not a string")
        adapted["general"] = general
    if "platform_configuration" in adapted:
        adapted["platform_configuration"] = _platforms(adapted["platform_configuration"], warn)
    if isinstance(adapted.get("arguments"), Mapping):
        adapted["arguments"] = _level(adapted["arguments"], "arguments", warn)
    return adapted


def _known(entry: Mapping[str, Any], names: tuple[str, ...], place: str, warn: Warn) -> Entry:
    """Return the entries with known names."""
    for name in [name for name in entry if name not in names]:
        warn(f"{place}.{name}".lstrip("."), "unknown key")
    return {name: value for name, value in entry.items() if name in names}


def _adapt_each(
    entry: Entry, name: str, place: str, change: Callable[[Mapping[str, Any], str], Entry]
) -> None:
    """Adapt the mappings of a list; `change` gets each with its place."""
    if isinstance(entry.get(name), list):
        entry[name] = [
            change(each, f"{place}.{position}") if isinstance(each, Mapping) else each
            for position, each in enumerate(entry[name])
        ]


def _platforms(section: Any, warn: Warn) -> Any:
    place = "platform_configuration"
    if isinstance(section, list):
        warn(place, "is the list form of OpenBACH 2.6: a controller of 2.7 answers HTTP 500")
        section = {"supported_platforms": section}
    if not isinstance(section, Mapping):
        return section
    adapted = _platform(section, (*_PLATFORM, "supported_platforms"), place, warn)
    _adapt_each(
        adapted, "supported_platforms", place, lambda each, at: _platform(each, _PLATFORM, at, warn)
    )
    return adapted


def _platform(entry: Mapping[str, Any], names: tuple[str, ...], place: str, warn: Warn) -> Entry:
    found = dict(entry)
    version = found.pop("ansible_distribution_version", None)
    if version is not None:
        found.setdefault(
            "ansible_distribution_release", RELEASES.get(str(version), f"release-{version}")
        )
    return _known(found, names, place, warn)


def _level(level: Mapping[str, Any], place: str, warn: Warn, more: tuple[str, ...] = ()) -> Entry:
    """Adapt the arguments of one depth; `more`: further known keys."""
    found = dict(level)
    if "subcommands" in found and "subcommand" not in found:
        found["subcommand"] = found.pop("subcommands")
        warn(f"{place}.subcommands", "is called subcommand in a descriptor")
    adapted = _known(found, (*_LEVEL, *more), place, warn)
    for section in ("required", "optional"):
        _adapt_each(
            adapted, section, f"{place}.{section}", lambda each, at: _argument(each, at, warn)
        )
    _adapt_each(
        adapted, "subcommand", f"{place}.subcommand", lambda each, at: _group(each, at, warn)
    )
    return adapted


def _group(group: Mapping[str, Any], place: str, warn: Warn) -> Entry:
    adapted = _known(group, ("group_name", "optional", "choices"), place, warn)
    _adapt_each(
        adapted, "choices", f"{place}.choices", lambda each, at: _level(each, at, warn, ("name",))
    )
    return adapted


def _argument(argument: Mapping[str, Any], place: str, warn: Warn) -> Entry:
    adapted = _known(argument, _ARGUMENT, place, warn)
    kind = adapted.get("type")
    if kind is None and "type" in adapted:
        adapted["type"] = "None"
    if isinstance(kind, str) and kind.lower() in TYPES and kind != "None":
        adapted["type"] = TYPES[kind.lower()]
        warn(f"{place}.type", f"{kind} is not a type of OpenBACH: {adapted['type']} is meant")
    if ".required." in place:
        for name in ("flag", "repeatable"):
            if adapted.pop(name, None):
                warn(f"{place}.{name}", "has no effect: a required argument is positional")
    if ".required." in place and adapted.get("type") == "str":
        adapted["remainder"] = str(adapted.get("count")) in ("+", "*")
    if adapted.get("type") == "None" and str(adapted.get("count")) != "0":
        adapted["count"] = 0
        warn(f"{place}.count", "a bare flag takes no value")
    if adapted.get("description", "") is None:
        adapted["description"] = ""
    return adapted
