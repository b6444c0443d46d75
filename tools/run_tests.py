# SPDX-License-Identifier: GPL-3.0-or-later
"""`./satlab test`: installs what the tests need and runs the verbs of the Makefile, several at once.

Nothing: everything but the VM lab. `--quick`: lint and the tests beside the code. `vm`: the VM lab
in containers. `all`: everything, as CI does. `soak`: the soak test. What follows goes to pytest.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from satlab.common import install
from satlab.common.errors import ConfigError, HostError
from satlab.common.paths import ROOT


@dataclass(frozen=True)
class Mode:
    """What a word behind `./satlab test` runs."""

    groups: tuple[str, ...]
    first: tuple[str, ...]
    """Verbs of the Makefile that run side by side, as the owner of the clone."""
    tests: str
    """The verb that gets pytest's arguments, as root."""


DEFAULT = Mode(("test",), ("lint", "rust"), "python")
MODES = {
    "--quick": Mode(("test",), ("lint",), "unit"),
    "vm": Mode(("test-vm",), (), "vm-nspawn"),
    "all": Mode(("test", "test-vm"), ("rust",), "python"),
    "soak": Mode(("test-soak",), (), "soak"),
}
MAKE = ("make", "--no-print-directory", "-C", str(ROOT))
SIDE_BY_SIDE = ("-j", "2", "--output-sync=target")


@dataclass
class Suite:
    """A run of the tests: what took how long, and what runs in the background."""

    durations: list[str] = field(default_factory=list)
    background: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def run(self, mode: Mode, words: Sequence[str], *, is_all: bool) -> None:
        """Run a mode. Raises HostError or CalledProcessError at the first failure."""
        arguments = f"ARGS={' '.join(words)}"
        began = self._begin()
        install.install(*mode.groups, profile="ci")
        self._end("installation", began)
        owner = install.owner()
        compiling = self._compile(mode)
        if is_all:
            self._start("vm-nspawn", 5, [*MAKE, "vm-nspawn", arguments])
        if mode.first:
            began = self._begin()
            subprocess.run([*MAKE, *SIDE_BY_SIDE, *mode.first], check=True, **owner)
            self._end(" ".join(mode.first), began)
        for child in compiling:
            child.wait()
        if is_all:  # after the crates' tests: both lock cargo's folder
            self._start("lint", 15, [*MAKE, *SIDE_BY_SIDE, "lint"], **owner)
        began = self._begin()
        subprocess.run([*MAKE, mode.tests, arguments], check=True)
        self._end(mode.tests, began)
        if self.background:
            began, names = self._begin(), sorted(self.background)
            failed = self.wait()
            self._end(f"{' and '.join(names)}, the rest", began)
            if failed:
                raise subprocess.CalledProcessError(1, failed)

    def wait(self) -> list[str]:
        """Wait for the background, show what it printed; return the names of what failed."""
        failed = []
        for name, child in self.background.items():
            if child.wait():
                failed.append(name)
            sys.stdout.buffer.write((install.STATE / f"{name}.log").read_bytes())
            sys.stdout.flush()
        self.background.clear()
        return failed

    def _compile(self, mode: Mode) -> list["subprocess.Popen[bytes]"]:
        """Start to compile what hundreds of Pythons would, and each worker of pytest."""
        settings = install.owner()
        settings["env"]["PYTHONDONTWRITEBYTECODE"] = ""
        settings |= {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        python = [sys.executable, "-m"]
        argv = [*python, "compileall", "-q", "-x", "/(test_|conftest)", "src", "collect"]
        children = [subprocess.Popen(argv, **settings)]
        if mode.tests in ("python", "unit"):
            argv = [*python, "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
            children.append(subprocess.Popen(argv, **settings))
        return children

    def _start(self, name: str, niceness: int, argv: list[str], **settings: Any) -> None:
        """Start a command whose weight of CPU time is below that of the tests, never none."""
        with (install.STATE / f"{name}.log").open("wb") as log:
            self.background[name] = subprocess.Popen(
                ["nice", "-n", str(niceness), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **settings,
            )

    def _begin(self) -> tuple[float, float]:
        sys.stdout.flush()
        return time.monotonic(), _cpu_s()

    def _end(self, name: str, began: tuple[float, float]) -> None:
        took, cpu = time.monotonic() - began[0], _cpu_s() - began[1]
        self.durations.append(f"{name} {took:.0f} s (CPU {cpu:.0f} s)")


def _cpu_s() -> float:
    """Return the CPU time of this process and of its children that have ended, s."""
    return sum(os.times()[:4])


def main() -> int:
    """Run what the arguments name."""
    words = sys.argv[1:]
    mode = MODES.get(words[0]) if words else None
    suite = Suite()
    try:
        if os.geteuid() != 0:
            why = "the tests need root (network namespaces)"
            if (sudo := shutil.which("sudo")) is None:
                raise HostError(why, f"run as root: {install.LAUNCHER} test")
            install.say(f"{why}: continuing with sudo")
            argv = [sudo, "--preserve-env=CI", str(install.LAUNCHER), "test", *words]
            os.execv(sudo, argv)  # noqa: S606 - argv, no shell
        suite.run(mode or DEFAULT, words[1:] if mode else words, is_all=words[:1] == ["all"])
    except subprocess.CalledProcessError as error:
        install.say(f"failed: {error.cmd if isinstance(error.cmd, str) else ' '.join(error.cmd)}")
        return 1
    except (ConfigError, HostError) as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    finally:
        for child in suite.background.values():
            child.terminate()
        suite.wait()
        if suite.durations:
            install.say(f"durations: {'; '.join(suite.durations)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
