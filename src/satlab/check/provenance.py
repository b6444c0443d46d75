# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check ran: its command, host, programs and baseline, as check.json keeps them."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from satlab.common import plain_files
from satlab.common.plain_files import RefusedError

MOST_BYTES = 1 << 30
"""A larger program is not hashed."""
OF_ONE_CHECK = {
    "--baseline",
    "--cases",
    "--compare-with",
    "--junit",
    "--markdown",
    "--out",
    "--result",
    "--resume",
    "--runs",
    "--seed",
    "--tolerance",
}
"""Options with a value that do not matter for a single sample, or that the sample sets."""

Side = Literal["client", "server"]


@with_config(ConfigDict(extra="forbid"))
class ProgramFile(TypedDict):
    """A file of a program under test: the executable, or a script that its command names."""

    side: Side
    path: str
    sha256: Annotated[str | None, Field(description="null: not readable, or above 1 GiB")]


@with_config(ConfigDict(extra="forbid"))
class BaselineFile(TypedDict):
    """The check.json that a check was compared with."""

    path: str
    sha256: Annotated[str | None, Field(description="null: not readable, or above 1 GiB")]
    stack: str
    version: Annotated[str, Field(description="of satlab")]
    began_unix_s: NotRequired[float]
    programs: list[ProgramFile]


@with_config(ConfigDict(extra="forbid"))
class Provenance(TypedDict):
    """Where the samples come from."""

    command: Annotated[list[str], Field(description="words after `satlab`; empty: unknown")]
    host: Annotated[
        dict[str, str | int | float | None], Field(description="kernel, system, CPU, memory, load")
    ]
    versions: Annotated[dict[str, str], Field(description="of emulator and Debian packages")]
    programs: list[ProgramFile]


def baseline_file(path: Path, content: Mapping[str, Any]) -> BaselineFile:
    """Identify a baseline: its file and hash, and what it says of its stack and programs."""
    found: BaselineFile = {
        "path": str(path),
        "sha256": _sha256(path),
        "stack": content["stack"],
        "version": content["version"],
        "programs": content.get("provenance", {}).get("programs", []),
    }
    if (began := content.get("began_unix_s")) is not None:
        found["began_unix_s"] = began
    return found


def program_files(commands: Mapping[str, Iterable[str]]) -> list[ProgramFile]:
    """Return the files that commands name, by side, with their SHA-256.

    `commands`: the words of each side's command, with whole paths.
    """
    sides: tuple[Side, ...] = ("client", "server")
    return [
        {"side": side, "path": word, "sha256": _sha256(path)}
        for side in sides
        for word in dict.fromkeys(commands.get(side, ()))
        if (path := Path(word)).is_absolute() and path.is_file()
    ]


def digest(files: Sequence[ProgramFile]) -> str:
    """Return one short digest of all files, to tell builds apart; empty without files."""
    known = [file["sha256"] or "unknown" for file in files]
    return hashlib.sha256("".join(known).encode()).hexdigest()[:8] if known else ""


def sample_command(command: Sequence[str], case: str, seed: int) -> list[str]:
    """Return the words that take one sample of a check again; empty if its command is unknown."""
    words = iter(command)
    kept = []
    for word in words:
        name, _, value = word.partition("=")
        if name in OF_ONE_CHECK:
            if not value:
                next(words, None)
        elif word != "--json":
            kept.append(word)
    return [*kept, "--cases", case, "--seed", str(seed), "--runs", "1"] if kept else []


def _sha256(path: Path) -> str | None:
    try:
        with plain_files.opened(path.resolve()) as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                return None
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RefusedError):
        return None
