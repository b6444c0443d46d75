# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples under the virtual clock: `satvirtual` drives a library, or two programs, over satlink's
own link model.
"""

import itertools
import json
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from satlab.check import case_link, time_floors
from satlab.check.case_link import CaseLink
from satlab.check.endpoint import lockstep
from satlab.check.endpoint.lockstep import LockstepPair
from satlab.check.endpoint.pair import CLIENT
from satlab.check.samples import Options, Sample, stalled
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace import careful_resume, trace_reader
from satlab.common import paths, processes
from satlab.common.errors import ExitStatus, HostError
from satlab.link.plan import LinkPlan
from satlab.link.satlink import refusal

DEADLINE_S = 300.0
"""Longest real time for one sample, s; 100 MB take a few seconds."""
PROGRAMS_DEADLINE_S = 3660.0
"""Longest real time for one sample of programs, s: more than their sandbox allows."""
STOP_S, POLL_S = 5.0, 0.2
Library = Literal["quinn", "noq"]
_NAMES: Mapping[Library, str] = {"quinn": "quinn-proto 0.11", "noq": "noq-proto"}


class StoppedError(Exception):
    """A sample was stopped by its event before its end."""


@dataclass(frozen=True)
class VirtualClock:
    """The backend under the virtual clock. `programs` replace the `library`. `stop` ends a running
    sample with StoppedError.
    """

    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    at_once: int = os.cpu_count() or 1
    clock: Literal["virtual"] = "virtual"
    programs: LockstepPair | None = None
    library: Library = "quinn"
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def stack(self) -> str:
        """Name the measured stack."""
        return self.programs.name if self.programs else _NAMES[self.library]

    def sample(self, suite: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        """Take one sample. Equal inputs give equal samples if the programs are deterministic."""
        request = transfer(suite, case, seed, self.client, self.server)
        if self.programs is None:
            library = {} if self.library == "quinn" else {"stack": self.library}
            return run(link, request | library, raw, case, stop=self.stop)
        if lacking := self.lacking(suite, case):
            return Sample(case.id, seed, "unsupported", lacking, (None,) * len(suite.marks_mb))
        with self.programs.running(raw, f"{case.id}-{seed}") as commands:
            found = run(
                link, request | {"programs": commands}, raw, case, PROGRAMS_DEADLINE_S, self.stop
            )
        return lockstep.with_output(found, raw, f"{case.id}-{seed}")

    def lacking(self, suite: Suite, case: Case) -> str:
        """Return why the programs cannot run a case; empty if they can, or for the library."""
        request = transfer(suite, case, 0, self.client, self.server)
        return self.programs.unsupported_reason(case, request) if self.programs else ""


def transfer(
    suite: Suite, case: Case, seed: int, client: Options, server: Options
) -> dict[str, Any]:
    """Return the request for satvirtual (schemas/virtual-transfer.schema.json).

    The seed decides when the transfer starts, between 0 and 1 s: at any phase of a frame.
    """
    return {
        "schema": "satlab/virtual-transfer/1",
        "seed": seed,
        "direction": case.direction,
        "bytes": round(suite.marks_mb[-1] * MB),
        "marks_bytes": [round(mark * MB) for mark in suite.marks_mb],
        "streams": 1,
        "start_s": random.Random(seed).random(),  # noqa: S311 - a phase, not a secret
        "source_mbps": case.source_mbps,
        "repeats": 1 if case.second_after_s is None else 2,
        "pause_s": case.second_after_s or 0.0,
        "zero_rtt": case.sends_early_data,
        "timeout_s": case.timeout_s,
        **({"neighbour": True} if case.neighbour else {}),
        "client": case.client | dict(client),
        "server": case.server | dict(server),
    }


def run(
    link: CaseLink,
    request: Mapping[str, Any],
    folder: Path,
    case: Case,
    deadline_s: float = DEADLINE_S,
    stop: threading.Event | None = None,
) -> Sample:
    """Run satvirtual in `folder`, and leave its input and output there:
    CASE-SEED.{link,transfer,outcome}.json.

    Raises:
        ConfigError: satvirtual refuses an option.
        HostError: satvirtual is missing, hangs or dies.
        StoppedError: `stop` was set before its end.
    """
    seed = request["seed"]
    link_file, transfer_file, outcome_file = (
        folder / f"{case.id}-{seed}.{kind}.json" for kind in ("link", "transfer", "outcome")
    )
    link_file.write_text(
        case_link.for_virtual_clock(link, case, seed, request["start_s"], folder).to_json()
    )
    transfer_file.write_text(json.dumps(request, indent=1))
    argv = [str(paths.SATVIRTUAL), "--link", link_file.name, "--transfer", transfer_file.name]
    done = _completed(argv, folder, deadline_s, stop or threading.Event())
    if done.returncode == ExitStatus.USAGE:
        text = _with_options(done.stderr.decode(errors="replace"), transfer_file.name, case)
        raise refusal(text, "satvirtual refuses the transfer")
    if done.returncode not in (ExitStatus.OK, ExitStatus.FAILED):
        raise HostError(
            f"satvirtual ended with status {done.returncode}:"
            f" {done.stderr.decode(errors='replace')[-300:]}"
        )
    outcome_file.write_bytes(done.stdout)
    found = sample(case, json.loads(done.stdout), link.plan)
    return time_floors.possible(found, case, request["marks_bytes"], link)


def _with_options(text: str, file: str, case: Case) -> str:
    """Name options of an endpoint as a user writes them, in place of the file that has them."""

    def named(place: re.Match[str]) -> str:
        side, name = place.groups()
        if name in (case.client if side == CLIENT else case.server):
            return f"case {case.id}: {side}.{name}"
        return f"--{side} {name.replace('_', '-')}"

    return re.sub(rf"{re.escape(file)}: (client|server)\.(\w+)", named, text)


def _completed(
    argv: list[str], folder: Path, deadline_s: float, stop: threading.Event
) -> subprocess.CompletedProcess[bytes]:
    """Run satvirtual to its end. Raises HostError and StoppedError as `run`."""
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except (FileNotFoundError, PermissionError) as error:
        raise HostError(
            f"{argv[0]}: {error.strerror}", "build it: ./satlab --install virtual"
        ) from error
    with child:
        try:
            output, errors = _output(child, deadline_s, stop)
        finally:
            if child.poll() is None:
                processes.finish(child, STOP_S)
    if stop.is_set() and child.returncode < 0:
        raise StoppedError
    return subprocess.CompletedProcess(argv, child.returncode, output, errors)


def _output(
    child: subprocess.Popen[bytes], deadline_s: float, stop: threading.Event
) -> tuple[bytes, bytes]:
    end = time.monotonic() + deadline_s
    while True:
        try:
            return child.communicate(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise StoppedError from None
            if time.monotonic() > end:
                raise HostError(f"satvirtual did not end within {deadline_s:g} s") from None


def sample(case: Case, outcome: Mapping[str, Any], plan: LinkPlan) -> Sample:
    """Return the sample of an outcome's last transfer. A failed first transfer fails the sample."""
    last = outcome["transfers"][-1]
    is_complete = len(outcome["transfers"]) == (2 if case.second_after_s else 1)
    sender, receiver = last["sender"] or {}, last["receiver"] or {}
    states = outcome["samples"]
    found = Sample(
        case=case.id,
        seed=outcome["request"]["seed"],
        status=last["status"],
        reason=last["reason"] if is_complete else f"first transfer: {last['reason']}",
        times_s=tuple(mark["t_s"] if is_complete else None for mark in last["marks"]),
        handshake_ms=last["handshake_ms"],
        time_to_first_byte_ms=last["time_to_first_byte_ms"],
        sent_datagrams=sender.get("sent_datagrams"),
        lost_packets=sender.get("lost_packets", states[-1]["lost_packets"] if states else None),
        acks=receiver.get("sent_acks"),
        symptoms=careful_resume.symptoms(last.get("careful_resume")),
        careful_resume=last.get("careful_resume"),
        spent_s=trace_reader.of_outcome(outcome, plan, case).spent_s() if states else None,
        simulated_s=last["started_s"] + last["duration_s"],
    )
    last_s = _last_arrival_s(states, last["started_s"])
    return stalled(found, last_s, case.timeout_s) if states else found


def _last_arrival_s(states: Sequence[Mapping[str, Any]], started_s: float) -> float:
    """Return when payload of the last transfer arrived for the last time, s from its start."""
    own = [one for one in states if one["t_s"] >= started_s]
    arrivals = [
        one["t_s"] - started_s
        for before, one in itertools.pairwise([{"received_bytes": 0}, *own])
        if one["received_bytes"] != before["received_bytes"]
    ]
    return arrivals[-1] if arrivals else 0.0
