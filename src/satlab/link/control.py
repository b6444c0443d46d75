# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a running link: satlink's socket (schemas/link-control.schema.json), and timelines."""

import json
import socket
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from satlab.common.errors import ConfigError, Fault, HostError
from satlab.link.config import LinkSet, Steps, TimelineStep, faults_of

ANSWER_DEADLINE_S = 5.0
"""satlink answers in milliseconds, unless another connection hangs."""
MAX_FILE_BYTES = 1 << 20
_STEPS: TypeAdapter[tuple[TimelineStep, ...]] = TypeAdapter(Steps)


def change(path: Path, request: LinkSet) -> dict[str, Any]:
    """Change the link; return the answer, with the time `t_s` of the change.

    Raises:
        ConfigError: satlink refuses it.
        HostError: there is no answer at `path`.
    """
    return ask(path, {"set": request.model_dump()})


def state(path: Path) -> dict[str, Any]:
    """Return the state of the link: `directions`, `timeline` and the time `t_s`. Raises as
    `change`.
    """
    return ask(path, {"get": "state"})


def start_timeline(path: Path) -> dict[str, Any]:
    """Start a timeline that starts on request. Raises as `change`."""
    return ask(path, {"start": "timeline"})


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request and return its answer. Raises as `change`."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_DEADLINE_S)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: dict[str, Any] = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise HostError(
            f"{path}: the link does not answer: {error}", "is the lab up? satlab status"
        ) from error
    if answer.get("ok") is not True:
        texts = (text.partition(": ") for text in answer.get("faults", ()))
        faults = [Fault(where, reason) for where, _, reason in texts]
        raise ConfigError("the link refuses the change", faults, "satlab link set --help")
    return answer


EXAMPLE = 'for example: [{"at_s": 10, "set": {"direction": "both", "outage": 2}}]'


def load_steps(path: Path) -> tuple[TimelineStep, ...]:
    """Read a timeline: a list of {"at_s": seconds, "set": {...}}.

    Raises:
        ConfigError: the file cannot be read, or holds faults; all of them.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ConfigError(f"{path}: is not a file")
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: has {size} bytes, at most {MAX_FILE_BYTES} are read")
        content = path.read_bytes()
        if not content.strip():
            raise ConfigError(f"{path}: is empty", hint=EXAMPLE)
        return _STEPS.validate_json(content)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: does not exist") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        faults = faults_of(error, str(path))
        raise ConfigError(f"{path}: not a timeline", faults, EXAMPLE) from error
