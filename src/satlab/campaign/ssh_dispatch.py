# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends attempts to hosts over ssh (`attempt.Measure`); no shared file system, no open port, no
scheduler.

In the campaign's folder `hosts/NAME-N.lock` is a slot of a host; `hosts/NAME.away` dates when the
host was last lost.
"""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from satlab.campaign.attempt import STOP_S
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.hosts_file import ALIVE_COUNT, ALIVE_S, CONNECT_S, HostsFile, SshHost
from satlab.campaign.plan_file import Task
from satlab.campaign.ssh_attempt import RESULT, AttemptRequest
from satlab.campaign.task_record import Ended
from satlab.campaign.task_request import LocalRun
from satlab.common import processes
from satlab.common.archive import ArchiveError, Limits, Place, Reader
from satlab.common.errors import ConfigError, HostError

AWAY_S = 60.0
"""A lost host gets no attempt for this time if another host is there, s."""
SPARE_S = 2 * STOP_S + CONNECT_S + ALIVE_S * ALIVE_COUNT
"""Longest time of an attempt beyond its deadline, s: the slot's last command, connecting, a silent
host.
"""
SLOT_POLL_S = 0.5
"""Time between two searches for a free slot, s; each reads the task's attempts."""
ANSWER_BYTES, ANSWER_FILES = 256 << 20, 10_000
"""Largest size of an attempt's files, bytes; a plan may set another limit (`answer_mib`)."""
RESULT_BYTES = 64 << 10


@dataclass(frozen=True)
class OverSsh:
    """Runs each attempt on a host with a free slot; hosts new to the task come first."""

    hosts: HostsFile
    folder: CampaignFolder
    answer_bytes: int = ANSWER_BYTES

    def __call__(
        self, task: Task, place: Path, deadline_s: float, lock: int, stop: threading.Event
    ) -> Ended | None:
        """Run a task's command on another host. This process keeps `lock` and ends its ssh.

        Raises:
            ConfigError: the task names files or addresses of this host's user.
            HostError: no slot was free in time, the host was lost, or its answer is invalid.
        """
        if isinstance(task.request, LocalRun):
            raise ConfigError(
                f"{task.id} names {', '.join(task.request.names)}: not for another host"
            )
        with self._slot(task, deadline_s + SPARE_S, stop) as found:
            if found is None:
                return None
            host, number = found
            try:
                ended = self._on(host, number, task, place, deadline_s, stop)
            except HostError:
                self._away(host).touch()
                raise
            self._away(host).unlink(missing_ok=True)
            return ended

    @contextlib.contextmanager
    def _slot(
        self, task: Task, within_s: float, stop: threading.Event
    ) -> Iterator[tuple[SshHost, int] | None]:
        """Hold a free slot; None if `stop` was set first."""
        self._slots.mkdir(exist_ok=True)
        until = time.monotonic() + within_s
        with contextlib.ExitStack() as stack:
            while not stop.is_set():
                places = [
                    (host, number) for host in self._in_order(task) for number in range(host.slots)
                ]
                if found := next((place for place in places if self._took(place, stack)), None):
                    yield found
                    return
                if time.monotonic() > until:
                    hint = "end other campaigns on the hosts"
                    raise HostError(f"no host had a free slot within {within_s:.0f} s", hint)
                stop.wait(SLOT_POLL_S)
            yield None

    def _took(self, place: tuple[SshHost, int], stack: contextlib.ExitStack) -> bool:
        """Hold a slot until the stack ends, if it is free."""
        try:
            stack.enter_context(locked(self._slots / f"{place[0].name}-{place[1]}.lock", 0))
        except HostError:
            return False
        return True

    @property
    def _slots(self) -> Path:
        return self.folder.path / "hosts"

    def _away(self, host: SshHost) -> Path:
        return self._slots / f"{host.name}.away"

    def _in_order(self, task: Task) -> list[SshHost]:
        """Return the hosts that are not away, those without an attempt at the task first; all hosts
        if all are away.
        """
        tried = {attempt.host.name for attempt in self.folder.attempts(task)}
        there = [host for host in self.hosts.hosts if not self._is_away(host)] or list(
            self.hosts.hosts
        )
        return sorted(there, key=lambda host: host.name in tried)

    def _is_away(self, host: SshHost) -> bool:
        try:
            return time.time() - self._away(host).stat().st_mtime < AWAY_S
        except FileNotFoundError:
            return False

    def _on(
        self,
        host: SshHost,
        number: int,
        task: Task,
        place: Path,
        deadline_s: float,
        stop: threading.Event,
    ) -> Ended | None:
        """Run one attempt on one host, and unpack its files."""
        assert not isinstance(task.request, LocalRun)  # noqa: S101 - refused before
        request = AttemptRequest(deadline_s=deadline_s, slot=number, request=task.request)
        log = self._slots / f"{host.name}-{number}.log"
        with log.open("wb") as errors:
            child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *self.hosts.command(host)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        over = threading.Event()
        watch = threading.Thread(
            target=_watch, args=(child, over, stop, deadline_s + SPARE_S), daemon=True
        )
        watch.start()
        fault = ""
        try:
            _ask(child, request.line())
            ended = _unpack(child, place, Limits(self.answer_bytes, ANSWER_FILES))
        except (OSError, ArchiveError, ValidationError) as error:
            ended, fault = None, f": {error}"
        finally:
            if child.stdout is not None:
                child.stdout.close()  # end a host that still sends
            over.set()
            watch.join()
        if stop.is_set():
            return None
        if ended is None:
            words = " | ".join(
                (processes.log_tail(log) or "").strip().splitlines()[-processes.LOG_LINES :]
            )
            what = f"{host.name}: {task.id} was not finished (ssh: {child.returncode}){fault}"
            raise HostError(
                f"{what}: {words}" if words else what, f"ssh to {host.address}, and see {log}"
            )
        # The name in the file of hosts: containers and virtual machines may have one host name.
        return ended.model_copy(update={"host": ended.host.model_copy(update={"name": host.name})})


def _ask(child: "subprocess.Popen[bytes]", request: bytes) -> None:
    """Send the request. A host that refuses ends first: its words are in the log."""
    assert child.stdin is not None  # noqa: S101 - PIPE
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(request)
        child.stdin.flush()


def _unpack(child: "subprocess.Popen[bytes]", folder: Path, limits: Limits) -> Ended | None:
    """Write the files of the answer; None if the answer ended before its result.

    Raises:
        ArchiveError: too much, or something other than plain files and folders below this one.
        ValidationError: its result is none.
    """
    assert child.stdout is not None  # noqa: S101 - PIPE
    reader = Reader(child.stdout, limits)
    with Place(folder, limits) as place:
        for member in reader:
            if member.name != RESULT:
                place.put(member, reader.content())
            elif member.size > RESULT_BYTES:
                raise ArchiveError(f"{RESULT} has more than {RESULT_BYTES} bytes")
            else:
                return Ended.model_validate_json(b"".join(reader.content()))
    return None


def _watch(
    child: "subprocess.Popen[bytes]", over: threading.Event, stop: threading.Event, within_s: float
) -> None:
    """End ssh when its answer is complete, when `stop` is set, or at the deadline."""
    processes.wait(lambda: over.is_set() or stop.is_set(), within_s)
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    child.terminate()
    processes.reap(child, STOP_S)
