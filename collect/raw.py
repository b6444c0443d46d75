# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw files as checked objects. What cannot be read comes back as a sentence, never as an exception."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")


class Model(BaseModel):
    """A raw document whose every field is known: `collect` and the program that wrote it must agree."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Unreadable:
    """Why a raw file gave nothing."""

    reason: str


def read_json(path: Path, adapter: TypeAdapter[T]) -> T | Unreadable:
    """Read one JSON document."""
    try:
        return adapter.validate_json(path.read_bytes())
    except OSError as error:
        return Unreadable(f"{path.name}: {error.strerror or error}")
    except ValidationError as error:
        return Unreadable(f"{path.name}: {first_fault(error)}")


def read_jsonl(path: Path, adapter: TypeAdapter[T]) -> tuple[list[T], str]:
    """Read JSON lines: what was readable before the first bad line, and a note ("" when all was).

    A writer that was killed leaves an incomplete last line; the lines before it are as good as ever. After a bad
    line in the middle nothing is believed any more.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        return [], f"{path.name}: {error.strerror or error}"
    items: list[T] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items.append(adapter.validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                return items, f"{path.name}: the last line is incomplete and was left out"
            return items, f"{path.name}: line {number}: {first_fault(error)}; the rest was left out"
    return items, ""


def first_fault(error: ValidationError) -> str:
    """Name the first fault of a document and how many more there are."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"


def stored_files(folder: Path, stat: str) -> Sequence[tuple[int, Path]]:
    """Find what a job stored as statistic `stat`: `<stat>.json` (number 1), then `<stat>-N.json` by N."""
    pattern = re.compile(rf"{re.escape(stat)}(?:-(\d+))?\.json")
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = [(pattern.fullmatch(path.name), path) for path in paths]
    return sorted((int(match[1] or 1), path) for match, path in matches if match)
