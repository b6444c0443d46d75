# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the commands of satlink that print an answer and exit."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from satlab.common.errors import ConfigError, ExitStatus, Fault, HostError

DEADLINE_S = 60.0
"""Each command takes milliseconds; a command that takes longer than this hangs, s."""

Answer = TypeVar("Answer", bound=BaseModel)


def ask(
    answer: type[Answer], satlink: Path, verb: str, arguments: Sequence[str], refused: str
) -> Answer:
    """Run `satlink VERB ARGUMENTS` and read the JSON it prints.

    Raises as `run`, and HostError if the answer does not fit the model `answer`.
    """
    done = run(satlink, verb, arguments, refused)
    try:
        return answer.model_validate(json.loads(done.stdout))
    except (ValueError, ValidationError) as error:
        raise HostError(
            f"satlink {verb}: answer not understood: {error}", "rebuild satlink: ./satlab builds it"
        ) from error


def run(
    satlink: Path, verb: str, arguments: Sequence[str], refused: str
) -> subprocess.CompletedProcess[str]:
    """Run `satlink VERB ARGUMENTS`. `refused` is the message if satlink refuses without giving one.

    Raises:
        ConfigError: satlink refuses what the arguments name; holds its own fault lines.
        HostError: the program is missing, hangs, or fails.
    """
    try:
        done = subprocess.run(
            [str(satlink), verb, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise HostError(
            f"{satlink}: {error.strerror}", "start through ./satlab, which builds satlink"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"satlink {verb} did not answer in {DEADLINE_S:g} s") from error
    if done.returncode == ExitStatus.USAGE:
        raise refusal(done.stderr, refused)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-3:] or ["it said nothing"]
        raise HostError(f"satlink {verb} ended with status {done.returncode}: {'; '.join(said)}")
    return done


_FAULT = re.compile(r"(?P<place>.+?:\d+: [^:]*): (?P<reason>.*?)(?: \((?P<remedy>.*)\))?")


def refusal(stderr: str, otherwise: str) -> ConfigError:
    """Read `error:` and `hint:` lines and faults `file:line: element: reason (remedy)`, in any
    order.
    """
    faults, said, hint = [], [], ""
    for line in filter(None, map(str.strip, stderr.splitlines())):
        text = line.removeprefix("error: ")
        if line.startswith("hint: "):
            hint = line.removeprefix("hint: ")
        elif match := _FAULT.fullmatch(text):
            faults.append(Fault(**match.groupdict("")))
        else:
            said.append(text)
    return ConfigError("; ".join(said) or otherwise, faults, hint)
