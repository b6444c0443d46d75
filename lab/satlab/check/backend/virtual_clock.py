# SPDX-License-Identifier: GPL-3.0-or-later
"""One sample of a case under the virtual clock: `satvirtual` drives quinn-proto over satlink's own link model."""

import json
import os
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from satlab.check import case_link
from satlab.check.case_link import CaseLink
from satlab.check.samples import Options, Sample
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace import traces
from satlab.common import paths
from satlab.common.errors import ExitStatus, HostError
from satlab.link.satlink import refusal

DEADLINE_S = 300.0
"""Real time for one sample; 100 MB take a few seconds."""


@dataclass(frozen=True)
class VirtualClock:
    """The backend; options of both ends, samples at once."""

    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    at_once: int = os.cpu_count() or 1
    clock: Literal["virtual"] = "virtual"
    stack: str = "quinn-proto 0.11"

    def sample(self, suite: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        """Take one sample; the same for the same input."""
        return run(link, transfer(suite, case, seed, self.client, self.server), raw, case)


def transfer(suite: Suite, case: Case, seed: int, client: Options, server: Options) -> dict[str, Any]:
    """Return what is sent (schemas/virtual-transfer.schema.json). Where in a frame it starts is drawn from the seed."""
    second = case.second_after_s is not None
    return {
        "schema": "satlab/virtual-transfer/1",
        "seed": seed,
        "direction": case.direction,
        "bytes": round(suite.marks_mb[-1] * MB),
        "marks_bytes": [round(mark * MB) for mark in suite.marks_mb],
        "streams": 1,
        "start_s": random.Random(seed).random(),  # noqa: S311 - a phase, no secret
        "repeats": 2 if second else 1,
        "pause_s": case.second_after_s or 0.0,
        "zero_rtt": second,
        "timeout_s": case.timeout_s,
        "client": dict(client),
        "server": dict(server),
    }


def run(link: CaseLink, request: Mapping[str, Any], folder: Path, case: Case) -> Sample:
    """Run one sample; raw files stay in `folder` as CASE-SEED.{link,transfer,outcome}.json.

    Raises:
        ConfigError: the program refuses an option.
        HostError: it is missing, hangs or dies.
    """
    seed = request["seed"]
    names = [folder / f"{case.id}-{seed}.{kind}.json" for kind in ("link", "transfer", "outcome")]
    config = case_link.at_work(link, case, seed, request["start_s"])
    names[0].write_text(config.to_json())
    names[1].write_text(json.dumps(request, indent=1))
    argv = [str(paths.SATVIRTUAL), "--link", str(names[0]), "--transfer", str(names[1])]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
    except (FileNotFoundError, PermissionError) as error:
        raise HostError(f"{argv[0]}: {error.strerror}", "build it: ./satlab --install virtual") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"satvirtual gave no answer in {DEADLINE_S:g} s ({names[1]})") from error
    if done.returncode == ExitStatus.USAGE:
        raise refusal(done.stderr.decode(errors="replace"), "satvirtual refuses the transfer")
    if done.returncode not in (ExitStatus.OK, ExitStatus.FAILED):
        raise HostError(
            f"satvirtual ended with status {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}"
        )
    names[2].write_bytes(done.stdout)
    return sample(case, json.loads(done.stdout))


def sample(case: Case, outcome: Mapping[str, Any]) -> Sample:
    """Read the outcome of a case: its last transfer, or the one that kept it from coming to that."""
    last = outcome["transfers"][-1]
    wanted = 2 if case.second_after_s else 1
    came = len(outcome["transfers"]) == wanted
    sender, receiver = last["sender"] or {}, last["receiver"] or {}
    return Sample(
        case=case.id,
        seed=outcome["request"]["seed"],
        status=last["status"],
        reason=last["reason"] if came else f"first transfer: {last['reason']}",
        times_s=tuple(mark["t_s"] if came else None for mark in last["marks"]),
        handshake_ms=last["handshake_ms"],
        time_to_first_byte_ms=last["time_to_first_byte_ms"],
        sent_datagrams=sender.get("sent_datagrams"),
        lost_packets=sender.get("lost_packets"),
        acks=receiver.get("sent_acks"),
        spent_s=traces.of_outcome(outcome).spent_s(),
        simulated_s=last["started_s"] + last["duration_s"],
    )
