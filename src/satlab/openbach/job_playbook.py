# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and files that the playbook of an upstream job puts on an agent. The playbook is read,
never run: packages of apt and pip tasks, and files of copy and template tasks. Other tasks are
named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from satlab.openbach import upstream_descriptors

PLACES = ("usr", "etc", "opt")
"""Folders of the root that files may be put below."""
MAX_FILES, MAX_FILE_BYTES, MAX_PACKAGES = 200, 16 << 20, 50
MAX_BYTES = 64 << 20
"""Limits of all files of a job. They are checked before a file is read or filled in."""
LONGEST_VALUE = 64 << 10
"""Longest value with expressions, characters."""
LONGEST_PATH = 1024
"""Longest path of a file, characters."""
_COPY = ("copy", "ansible.builtin.copy")
_TEMPLATE = ("template", "ansible.builtin.template")
_HARMLESS = (
    "file",
    "ansible.builtin.file",
    "stat",
    "ansible.builtin.stat",
    "debug",
    "ansible.builtin.debug",
)
"""Modules whose absence a job does not notice: folders are made with what is in them."""
_WORDS = (
    "name",
    "when",
    "become",
    "become_user",
    "become_method",
    "remote_user",
    "register",
    "changed_when",
    "failed_when",
    "notify",
    "tags",
    "vars",
    "environment",
    "loop",
    "with_items",
    "loop_control",
    "ignore_errors",
    "delegate_to",
    "until",
    "retries",
    "delay",
    "no_log",
    "check_mode",
    "args",
    "listen",
    "block",
    "rescue",
    "always",
    "run_once",
)
"""Keys of a task that are not its module."""
_EXPRESSION = re.compile(r"\{\{\s*([a-z_]+)(?:\.([a-z_]+)|\[['\"]([a-z_]+)['\"]\])?\s*\}\}")


@dataclass(frozen=True)
class PlacedFile:
    """A file: its content, its absolute path, its access rights (mode_t)."""

    content: bytes
    target: PurePosixPath
    mode: int


@dataclass(frozen=True)
class Contents:
    """Needs of a job on its node. `packages`: names of Debian packages. `maybe`: packages of tasks
    with a condition, which is not evaluated. `python`: names of Python packages. `left_out`: other
    tasks, one line each.
    """

    packages: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    files: tuple[PlacedFile, ...] = ()
    left_out: tuple[str, ...] = ()


def contents(folder: Path) -> Contents:
    """Read the playbook of a job's folder."""
    tasks = list(_tasks(upstream_descriptors.playbook(folder), conditional=False))
    packages = _packages(task for task, conditional in tasks if not conditional)
    maybe = [
        name
        for name in _packages(task for task, conditional in tasks if conditional)
        if name not in packages
    ]
    python = list(
        dict.fromkeys(upstream_descriptors.python_packages_of([task for task, _ in tasks]))
    )
    if (
        len(packages) + len(maybe) + len(python) > MAX_PACKAGES
        or sum(len(_items(task)) for task, _ in tasks) > MAX_FILES
    ):
        return Contents(
            left_out=(
                f"names more than {MAX_PACKAGES} packages or {MAX_FILES} files: none is used",
            )
        )
    left_out: list[str] = []
    room = _Room(MAX_BYTES)
    files = [found for task, _ in tasks for found in _files(task, folder, room, left_out)]
    left_out += [f"tasks of {module} are not done" for module in _others(task for task, _ in tasks)]
    return Contents(
        tuple(packages),
        tuple(maybe),
        tuple(python),
        tuple(files),
        tuple(dict.fromkeys(left_out)),
    )


def _packages(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the packages that tasks install; those of an absent state are removed on an agent."""
    installing = [task for task in tasks if not _is_removal(task)]
    return list(dict.fromkeys(upstream_descriptors.packages_of(installing)))


def _is_removal(task: Mapping[str, Any]) -> bool:
    calls = (upstream_descriptors.call_of(task.get(key)) for key in upstream_descriptors.APT)
    return any(call.get("state") == "absent" for call in calls)


def _tasks(document: Any, *, conditional: bool) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the tasks of a playbook and of its blocks, and whether each has a condition."""
    for task in document if isinstance(document, list) else ():
        if isinstance(task, dict):
            decided = conditional or "when" in task
            yield {key: value for key, value in task.items() if key != "block"}, decided
            yield from _tasks(task.get("block"), conditional=decided)


def _others(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the modules that tasks call and that have no counterpart here."""
    installing = (*upstream_descriptors.APT, *upstream_descriptors.PIP)
    known = {*installing, *_COPY, *_TEMPLATE, *_HARMLESS, *_WORDS}
    return list(
        dict.fromkeys(
            key for task in tasks for key in task if isinstance(key, str) and key not in known
        )
    )


@dataclass
class _Room:
    """Bytes that are left for files."""

    left: int

    def take(self, size: int) -> None:
        """Raises _LeftOutError."""
        if size > min(self.left, MAX_FILE_BYTES):
            raise _LeftOutError(
                f"files have more than {MAX_FILE_BYTES} bytes, or {MAX_BYTES} in all"
            )
        self.left -= size


def _module(task: Mapping[str, Any]) -> str | None:
    return next((key for key in (*_COPY, *_TEMPLATE) if key in task), None)


def _items(task: Mapping[str, Any]) -> list[Any]:
    """Return the items of a task that copies, one for each file; [None] without a loop."""
    if _module(task) is None:
        return []
    return next(
        (task[name] for name in ("loop", "with_items") if isinstance(task.get(name), list)), [None]
    )


def _files(
    task: Mapping[str, Any], folder: Path, room: _Room, left_out: list[str]
) -> Iterator[PlacedFile]:
    """Yield the files that a task copies."""
    key = _module(task)
    call = upstream_descriptors.call_of(None if key is None else task[key])
    if not call:
        return
    for item in _items(task):
        try:
            filled = {name: _filled(value, item, folder.name) for name, value in call.items()}
            yield _file(filled, folder, room, is_template=key in _TEMPLATE)
        except _LeftOutError as why:
            left_out.append(f"{str(call.get('dest', call.get('src', 'a file')))[:200]}: {why}")


class _LeftOutError(Exception):
    """A file is left out."""


def _filled(value: Any, item: Any, job: str) -> Any:
    """Fill the expressions whose values are in the playbook: the job's name and the item of a loop.

    Raises _LeftOutError: it would become too long.
    """
    left = LONGEST_VALUE

    def fill(found: re.Match[str]) -> str:
        name, key = found[1], found[2] or found[3]
        if name == "job_name" and key is None:
            return job
        if name == "item":
            value = (
                item.get(key)
                if isinstance(item, Mapping) and key
                else item
                if key is None
                else None
            )
            if isinstance(value, str | int):
                nonlocal left
                left -= len(str(value))
                if left < 0:
                    raise _LeftOutError(f"what fills it has more than {LONGEST_VALUE} characters")
                return str(value)
        return found[0]

    return _EXPRESSION.sub(fill, value) if isinstance(value, str) else value


def _file(call: Mapping[str, Any], folder: Path, room: _Room, *, is_template: bool) -> PlacedFile:
    """Return the file of a task. Raises _LeftOutError."""
    source, dest = call.get("src"), call.get("dest")
    if not isinstance(dest, str) or "{{" in dest:
        raise _LeftOutError("its place is not written out")
    if len(dest) > LONGEST_PATH or not dest.isprintable():
        raise _LeftOutError("its place is not the name of a file")
    if isinstance(call.get("content"), str):
        content = call["content"].encode(errors="replace")
        room.take(len(content))
    else:
        content = _content(source, folder, room, is_template=is_template)
    if is_template and any(mark in content for mark in (b"{{", b"{%", b"{#")):
        raise _LeftOutError("it is a template with expressions")
    if dest.endswith("/") and isinstance(source, str):
        dest += PurePosixPath(source).name
    target = PurePosixPath(dest)
    if (
        target.parts[:1] != ("/",)
        or ".." in target.parts
        or len(target.parts) < 3
        or target.parts[1] not in PLACES
    ):
        raise _LeftOutError(
            f"files are put below {', '.join(f'/{place}' for place in PLACES)} alone"
        )
    return PlacedFile(content, target, _mode(call.get("mode")))


def _content(source: object, folder: Path, room: _Room, *, is_template: bool) -> bytes:
    """Return what is in a file of the job. Raises _LeftOutError."""
    if (
        not isinstance(source, str)
        or "{{" in source
        or source.startswith("/")
        or len(source) > LONGEST_PATH
        or not source.isprintable()
    ):
        raise _LeftOutError("its source is not a file of the job")
    for place in ("templates", "files") if is_template else ("files",):
        with suppress(OSError):  # no file has such a name
            path = (folder / place / source).resolve()
            if path.is_relative_to(folder.resolve()) and path.is_file():
                size = path.stat().st_size
                room.take(size)
                with path.open("rb") as file:
                    return file.read(size)
    raise _LeftOutError("its source is not a file of the job")


def _mode(given: Any) -> int:
    """Return access rights: octal text, or a number that YAML has read as octal; nobody else may
    ever write.
    """
    if isinstance(given, str) and re.fullmatch(r"[0-7]{3,4}", given):
        return int(given, 8) & 0o755
    return (
        given & 0o755
        if isinstance(given, int) and not isinstance(given, bool) and given > 0
        else 0o644
    )
