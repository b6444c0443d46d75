# SPDX-License-Identifier: GPL-3.0-or-later
"""Client and server as programs in lock-step with the virtual time (docs/virtual-interface.md),
each in a sandbox.

A sandbox has no network: file descriptor 0 of a program is a socket to satvirtual. Root can make
sandboxes, and ordinary users can if the kernel allows user namespaces (`needs_root`). No program
runs without a sandbox.
"""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from satlab.check import sandboxed_program
from satlab.check.endpoint import command_pair
from satlab.check.endpoint.pair import CLIENT, SERVER, Environment
from satlab.check.samples import Sample
from satlab.check.suite import Case
from satlab.common import plain_files, scratch
from satlab.common.errors import ConfigError
from satlab.lab import sandbox
from satlab.lab.sandbox import Limits, Mount, Sandbox

LIMIT_S = 3600.0
"""Longest real time of a program, s, should satvirtual not end it. A suspended host counts here."""
TAIL_CHARACTERS = 300
LOG_END_BYTES = 16 << 10
TRIAL_S = 10.0
REPORT = ".report"
"""Suffix of satbox's report on a program, next to its log."""


@dataclass(frozen=True)
class LockstepPair:
    """The words of both commands, by side; files and folders that they need besides the host's
    programs; variables.
    """

    words: Mapping[str, tuple[str, ...]]
    allow_read: tuple[Path, ...] = ()
    environment: Environment = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name both programs: by their scripts, if they are run by an interpreter."""
        client, server = (_name(self.words[side]) for side in (CLIENT, SERVER))
        return client if client == server else f"{client} to {server}"

    def commands(self) -> Mapping[str, Sequence[str]]:
        """Return the words of both commands, by side."""
        return self.words

    def options(self) -> list[str]:
        """Return the options of `satlab check` that name these programs, without their variables."""
        known = [
            each
            for words in self.words.values()
            for each in (command_pair.programs_folder(Path(words[0])), *map(Path, words[1:]))
        ]
        return [
            *("--virtual-client", shlex.join(self.words[CLIENT])),
            *("--virtual-server", shlex.join(self.words[SERVER])),
            *(
                word
                for path in self.allow_read
                if path not in known
                for word in ("--allow-read", str(path))
            ),
        ]

    def unsupported_reason(self, case: Case, request: Mapping[str, Any]) -> str:
        """Return why programs cannot run a case; empty if they can."""
        if case.source_mbps is not None:
            return "programs send as fast as they can: the case sets the rate of the application"
        if case.neighbour:
            return "the case has a second client behind the same address"
        if request["client"] or request["server"]:
            return "the case sets options of satperf"
        return ""

    @contextlib.contextmanager
    def running(self, raw: Path, name: str) -> Iterator[dict[str, Any]]:
        """Yield both commands as satvirtual takes them; their logs are NAME.SIDE.log in `raw`,
        where it runs.
        """
        with scratch.folder("lockstep") as own:
            root = own / "root"
            root.mkdir()
            yield {
                side: self._command(side, own, root, raw.resolve() / f"{name}.{side}")
                for side in (CLIENT, SERVER)
            }

    def _command(self, side: str, own: Path, root: Path, place: Path) -> dict[str, Any]:
        mounts = tuple(Mount(path) for path in self.allow_read)
        variables = self.environment.get(side, {})
        box = Sandbox(mounts=mounts, name=side, variables=variables, limits=Limits(LIMIT_S))
        report = place.with_name(f"{place.name}{REPORT}")
        report.unlink(missing_ok=True)  # of an earlier, stopped attempt
        argv = [*box.argv(own / f"{side}.json", root, report), *self.words[side]]
        return {"argv": argv, "environment": sandbox.ENVIRONMENT, "log": f"{place.name}.log"}


def parse(
    client: str | None,
    server: str | None,
    allow_read: Iterable[Path] = (),
    environment: Environment | None = None,
) -> LockstepPair:
    """Parse the commands of both programs.

    Their folders, and files named in a command, are readable.

    Raises:
        ConfigError: with every fault.
    """
    needed = list(map(plain_files.named, allow_read))
    faults = command_pair.not_shown("--allow-read", needed)
    words: dict[str, tuple[str, ...]] = {}
    for side, text in {CLIENT: client or "", SERVER: server or ""}.items():
        option = f"--virtual-{side}"
        found = command_pair.program_words(option, text, faults)
        if found is None:
            continue
        program, *more = found
        files = {each: str(plain_files.named(Path(each))) for each in more if Path(each).is_file()}
        words[side] = (program, *(files.get(each, each) for each in more))
        own = [command_pair.programs_folder(Path(program)), *map(Path, files.values())]
        faults += command_pair.not_shown(option, own)
        needed += own
    by_option = {f"--virtual-{side}": each for side, each in words.items()}
    faults = faults or command_pair.leading_away(by_option, needed)
    if faults:
        raise ConfigError("the programs of the virtual clock", faults)
    return LockstepPair(words, command_pair.outside_the_host_programs(needed), environment or {})


def each_pair(
    clients: Sequence[str],
    servers: Sequence[str],
    allow_read: Sequence[Path],
    environment: Environment,
) -> list[LockstepPair]:
    """Return each client with each server; empty if nothing is named.

    Raises:
        ConfigError: as `parse`, also if only one side is named.
    """
    if not clients and not servers:
        return []
    return [
        parse(client, server, allow_read, environment)
        for client in clients or (None,)
        for server in servers or (None,)
    ]


def needs_root() -> bool:
    """Return whether only root can make sandboxes here; as an ordinary user, by trying."""
    if os.geteuid() == 0:
        return False
    with scratch.folder("sandbox") as own:
        root = own / "root"
        root.mkdir()
        box = Sandbox(name="trial", limits=Limits(TRIAL_S))
        argv = [*box.argv(own / "trial.json", root), "true"]
        try:
            done = subprocess.run(
                argv,
                env=sandbox.ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=2 * TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return True
    return done.returncode != 0


def with_output(found: Sample, raw: Path, name: str) -> Sample:
    """Add the last output of the failed program to the reason of a sample, unless the program
    reported a reason itself ("gave up").

    Raises:
        HostError: a sandbox could not be built.
    """
    for side in (CLIENT, SERVER):
        report = raw.resolve() / f"{name}.{side}{REPORT}"
        used = sandbox.read_report(report)
        report.unlink(missing_ok=True)
        ended = re.fullmatch(rf"the {side}: it ended with status (\d+)", found.reason)
        status = int(ended[1]) if ended else 0
        fault = sandboxed_program.sandbox_fault(used, status, _tail(raw, name, side))
        if fault:
            raise sandboxed_program.unbuilt(side, fault)
    side = found.reason.removeprefix("the ").partition(":")[0]
    if found.status != "failed" or side not in (CLIENT, SERVER):
        return found
    tail = _tail(raw, name, side)
    return replace(found, reason=f"{found.reason}: {tail}") if tail else found


def _tail(raw: Path, name: str, side: str) -> str:
    """Return the end of a program's log, on one line."""
    lines = plain_files.end_of(raw.resolve(), f"{name}.{side}.log", LOG_END_BYTES).split("\n")[-4:]
    printable = (
        "".join(one if one.isprintable() else " " for one in line).strip() for line in lines
    )
    return " | ".join(printable).strip(" |")[-TAIL_CHARACTERS:]


def _name(words: tuple[str, ...]) -> str:
    """Return the name of a program, or of the folder of the script that an interpreter runs."""
    script = next((Path(word) for word in words[1:] if Path(word).is_file()), None)
    return Path(words[0]).name if script is None else script.parent.name
