# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a lab up as a process of its own, killed at a call of a function if asked to.

Arguments: lab id, satlink, profile, emulator, number of terminals; then `MODULE NAME CALL` for the
SIGKILL at the CALL-th call of that function of `satlab.lab`.
"""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, cast

from satlab.common import paths
from satlab.common.terminals import with_terminals
from satlab.common.topology import load
from satlab.lab import lab
from satlab.link.config import LinkRequest


def start(
    lab_id: str,
    satlink: Path,
    profile: Path,
    *kill: str | int,
    emulator: str = "satlink",
    terminals: int = 1,
) -> "subprocess.Popen[str]":
    """Begin to bring a lab up; `kill`: module, name and call."""
    words = (lab_id, satlink, profile, emulator, terminals, *kill)
    argv = [sys.executable, __file__, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": paths.PYTHONPATH}
    return subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL, text=True)


def _kill_at(module: str, name: str, call: str) -> None:
    place = importlib.import_module(f"satlab.lab.{module}")
    real, calls = getattr(place, name), []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if len(calls) == int(call):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(place, name, counted)


def main() -> int:
    lab_id, satlink, profile, emulator, terminals, *kill = sys.argv[1:]
    if kill:
        _kill_at(*kill)
    request = LinkRequest(
        profile=Path(profile), emulator=cast("Literal['satlink', 'opensand']", emulator)
    )
    topology = with_terminals(load(), int(terminals)) if terminals != "1" else load()
    try:
        lab.Lab.up(lab_id, topology, request, satlink=Path(satlink))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
