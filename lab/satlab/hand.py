# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab by hand: up, status, down, shell."""

import json
import os
from dataclasses import asdict

from satlab import calibrate, lab, ownership, topology
from satlab.errors import ExitStatus, HostError
from satlab.lab import Lab, LabStatus
from satlab.options import LinkOptions
from satlab.paths import LAB_FILE
from satlab.ui import Talk


def up(lab_id: str, options: LinkOptions, talk: Talk) -> None:
    """Bring a lab up and leave it up."""
    need_root()
    with talk.step(f"lab {lab_id} up") as step:
        found = Lab.up(lab_id, topology.load(LAB_FILE), options.request())
        step.outcome = "was up already" if found.found else "done"
    plan = found.plan
    talk.line(f"  forward {plan.forward.modcod}, {plan.forward.rate_bps / 1e6:.2f} Mbit/s on air")
    talk.line(f"  return  {plan.return_.modcod}, {plan.return_.rate_bps / 1e6:.2f} Mbit/s on air")
    if found.config.emulator == "opensand":
        wanted = calibrate.expectation(plan, "opensand")
        talk.line(f"  round trip over OpenSAND {wanted.rtt_low_ms:.0f} to {wanted.rtt_high_ms:.0f} ms")
    else:
        talk.line(f"  round trip {plan.rtt_ms.min:.1f} to {plan.rtt_ms.max:.1f} ms")
    for advice in (*plan.advice, *found.notes):
        talk.line(f"  note: {advice}")


def status(lab_id: str | None, *, json_lines: bool) -> int:
    """Show labs on stdout; FAILED when one is broken, or the one asked for is absent."""
    need_root()
    found = [lab.status(lab_id)] if lab_id else lab.list_labs()
    for each in found:
        print(json.dumps(asdict(each), default=str) if json_lines else _line(each))
    return ExitStatus.FAILED if any(s.phase != "up" for s in found) else ExitStatus.OK


def down(lab_id: str | None, talk: Talk) -> None:
    """Take one lab down, or every one (None)."""
    need_root()
    if lab_id is None:
        ownership.sweep()
    for name in [lab_id] if lab_id else [s.lab_id for s in lab.list_labs()]:
        with talk.step(f"lab {name} down") as step:
            step.outcome = "done" if lab.down(name) else "was not up"


def enter(lab_id: str, node: str, command: list[str]) -> list[str]:
    """Give the argv that runs `command`, or a shell, inside a node."""
    need_root()
    return [*Lab.attach(lab_id).enter_argv(node), *(command or [os.environ.get("SHELL", "/bin/sh")])]


def need_root() -> None:
    """Refuse early and clearly what cannot work."""
    if os.geteuid() != 0:
        raise HostError("not root: a lab is made of network namespaces", "run the same command with sudo")


def _line(state: LabStatus) -> str:
    parts = [f"{state.lab_id}: {state.phase}", state.reason, f"profile {state.profile}" if state.profile else ""]
    parts.append(f"emulator {state.emulator}" if state.emulator else "")
    return ", ".join(p for p in parts if p)
