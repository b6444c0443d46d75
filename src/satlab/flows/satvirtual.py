# SPDX-License-Identifier: GPL-3.0-or-later
"""`satvirtual flows`: check a file of flows, simulate it, or compute figures from measurements."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus, Fault, HostError
from satlab.link.satlink import refusal

HINT = "fields and ranges: schemas/virtual-flows.schema.json"
DEADLINE_S = 900.0
"""Longest real time for one file; a simulation takes some seconds."""


def simulated(file: Path) -> str:
    """Return the outcome of the flows of a file under the virtual clock, as text.

    Raises ConfigError, HostError.
    """
    return ask([str(file)])


def checked(file: Path) -> dict[str, Any]:
    """Return the flows of a file, defaults filled in, for the real clock.

    Raises ConfigError, HostError.
    """
    request: dict[str, Any] = json.loads(ask([str(file), "--clock", "real"]))
    return request


def figures(file: Path, measured: Path) -> str:
    """Compute the outcome from measurements on the real clock, as text.

    Raises ConfigError, HostError.
    """
    return ask([str(file), "--clock", "real", "--measured", str(measured)])


def ask(words: Sequence[str]) -> str:
    """Return the output of `satvirtual flows`. Status 1 means that a flow failed.

    Raises:
        ConfigError: it refuses the file, with every fault.
        HostError: it is missing, hangs or dies.
    """
    argv = [str(paths.SATVIRTUAL), "flows", *words]
    hint = "build it: ./satlab --install virtual"
    try:
        # Ctrl-C is for the caller, who lets it end: without a session of its own it would die and
        # count as a fault.
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise HostError(f"{argv[0]}: {error.strerror}", hint) from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"satvirtual did not end within {DEADLINE_S:g} s ({words[0]})") from error
    text = done.stderr.decode(errors="replace")
    if done.returncode == ExitStatus.USAGE:
        raise _refusal(words[0], text)
    if done.returncode not in (ExitStatus.OK, ExitStatus.FAILED):
        raise HostError(f"satvirtual ended with status {done.returncode}: {text[-300:]}")
    return done.stdout.decode()


def _refusal(file: str, text: str) -> ConfigError:
    """Read the lines of a refusal: `FILE: fault` each, their number, and a hint."""
    lines = [line.removeprefix("error: ") for line in text.splitlines()]
    own = f"{file}: "
    faults = [
        Fault(file, line.removeprefix(own).removeprefix(": "))
        for line in lines
        if line.startswith(own)
    ]
    if not faults:
        return refusal(text, "satvirtual refuses the flows")
    return ConfigError(f"{file} is no file of flows that can run", faults, HINT)
