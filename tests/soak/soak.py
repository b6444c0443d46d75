# SPDX-License-Identifier: GPL-3.0-or-later
"""Random ends of `satlab up`, `run`, `check` and `serve`:

SIGKILL, SIGSTOP and a full disk; then what is left, or lost.

    python -m tests.soak.soak --rounds 500 --minutes 60 --state /tmp/soak.jsonl

Each round draws a command, a moment and a blow from its number, so that it can be repeated
(`--first N --rounds 1`). Rounds that `--state` has are left out: a soak that was stopped goes on.
Needs root.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from satlab.common import netns_names, paths, scratch
from satlab.common.processes import wait
from satlab.lab import lab, lab_owners, netns
from tests import process_search
from tests.soak import serve_round

COMMANDS = {
    "up": ["up", "--profile", "leo", "--lab"],
    "run": "run ping --profile leo --set count=2 --runs".split(),
    "check": ["check", "--clock", "real", "--cases", "small-download", "--runs", "1", "--out"],
}
BLOWS = ("kill", "stop", "full")
LONGEST_S = 12.0
"""Latest moment of a blow; short ones are as frequent as long ones, since a command starts with its
namespaces.
"""
STOPPED_S = 1.0
CLEAN_S = 60.0
SMALL = "size=64k,nr_inodes=60"
"""The disk that is full (tmpfs)."""
ENDS = (0, 1, 3, 4)
"""Exit statuses of a command that was left to end by itself."""


class Round:
    """One command, and what happens to it."""

    def __init__(self, number: int, folder: Path) -> None:
        rng = random.Random(number)  # noqa: S311 - which blow, not a secret
        self.number, self.folder = number, folder
        self.command, self.blow = rng.choice(sorted([*COMMANDS, "serve"])), rng.choice(BLOWS)
        self.after_s = min(rng.uniform(0.0, LONGEST_S), rng.uniform(0.0, LONGEST_S))
        self.lab_id, self._rng = f"soak{number}", rng

    def play(self) -> list[str]:
        """Start the command, strike, clean up as a user would; return what is wrong afterwards."""
        small = self.folder / "small"
        small.mkdir()
        if self.blow == "full":
            size = serve_round.SMALL if self.command == "serve" else SMALL
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "satlab-soak", small], check=True)
        try:
            if self.command == "serve":
                return serve_round.ServiceRound(
                    self._rng, self.blow, small, self.folder / "log"
                ).play()
            return self._strike(small) + self._left() + _torn(small)
        finally:
            if self.blow == "full":
                subprocess.run(["umount", "-l", small], check=True)

    def _strike(self, place: Path) -> list[str]:
        target = {"up": self.lab_id, "run": str(place), "check": str(place / "check")}[self.command]
        argv = [sys.executable, "-m", "satlab", *COMMANDS[self.command], target]
        environment = os.environ | {"PYTHONPATH": paths.PYTHONPATH, "SATLAB_TEST_MARK": self.lab_id}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ended = wait(lambda: process.poll() is not None, self.after_s)
        if not ended and self.blow == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)  # how long it is stopped is the test
            process.send_signal(signal.SIGCONT)
        if not ended and self.blow != "full":
            process.kill()
        in_time = wait(lambda: process.poll() is not None, CLEAN_S)
        process.kill()
        status = process.wait()
        if not in_time:
            return [f"it did not end within {CLEAN_S} s"]
        has_ended_itself = ended or self.blow == "full"
        return [f"it ended with status {status}"] if has_ended_itself and status not in ENDS else []

    def _left(self) -> list[str]:
        """Clean as the next command does, and look for what stays."""
        lab_owners.sweep()
        if self.command == "up":
            lab.down(self.lab_id)
        mark, faults = f"SATLAB_TEST_MARK={self.lab_id}", []
        if not wait(lambda: not process_search.having(mark, "environ"), 5.0):
            faults.append(f"processes: {process_search.having(mark, 'environ')}")
        if netns.present(self.lab_id) or netns_names.user_path(self.lab_id).exists():
            faults.append("namespaces")
        if Path("/run/satlab", self.lab_id).exists():
            faults.append("its record")
        return faults + self._traces()

    def _traces(self) -> list[str]:
        log = (self.folder / "log").read_text(errors="replace")
        return [f"a traceback: {log[-600:]}"] if "Traceback" in log else []


def _torn(folder: Path) -> list[str]:
    """Name documents that are not whole: a reader sees the old one or the new one."""
    faults = []
    names = ("manifest.json", "plan.json", "check.json")
    for path in (path for name in names for path in folder.rglob(name)):
        try:
            json.loads(path.read_text())
        except ValueError as error:
            faults.append(f"{path.name}: {error}")
    return faults


def main() -> int:
    """Play rounds; 1 when one left something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--state", type=Path, default=Path("soak.jsonl"))
    options = parser.parse_args()
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    done = {json.loads(line)["round"]: json.loads(line)["faults"] for line in lines}
    end = time.monotonic() + 60 * options.minutes
    for number in range(options.first, options.first + options.rounds):
        if number in done or time.monotonic() > end:
            continue
        folder = Path(tempfile.mkdtemp(prefix="satlab-soak-"))
        played = Round(number, folder)
        done[number] = played.play()
        about = {
            "round": number,
            "command": played.command,
            "blow": played.blow,
            "after_s": round(played.after_s, 3),
        }
        with options.state.open("a") as file:
            file.write(json.dumps(about | {"faults": done[number]}) + "\n")
        if not done[number]:
            scratch.remove(folder)
    serve_round.clean_up()
    bad = [number for number, faults in done.items() if faults]
    print(f"{len(done)} rounds, {len(bad)} left something: {bad[:20]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
