# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab by hand: up, status, down, shell, and its link while it runs."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from satlab.common import terminals
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.lab import lab, lab_owners
from satlab.lab.lab import Lab, LabStatus
from satlab.link import control, prometheus
from satlab.link.calibration_bounds import expectation
from satlab.link.config import LinkSet
from satlab.link.options import LinkOptions


def _called(lab_id: str) -> str:
    """Return how people call a lab: the usual one has no name."""
    return "lab" if lab_id == "lab" else f"lab {lab_id}"


def up(lab_id: str, options: LinkOptions, log: ProgressLog) -> None:
    """Bring a lab up and leave it up."""
    further = options.profile_terminals()
    with log.step(f"{_called(lab_id)} up") as step:
        found = Lab.up(lab_id, options.topology(further), options.request(terminals=further))
        step.outcome = "was up already" if found.found else "done"
    plan = found.plan
    names = terminals.clients(found.topology)
    if plan.terminals:
        for name, one in zip(names, plan.terminals, strict=True):
            log.line(
                f"  {name}: ST {one.id}, {one.group} of GW {one.gateway}, forward"
                f" {one.forward_modcod} at {one.forward_es_n0_db:.1f} dB, return"
                f" {one.return_waveform} at {one.return_es_n0_db:.1f} dB, {one.cra_kbps} kbit/s"
                " constant"
            )
    elif len(names) > 1:
        log.line(
            f"  {len(names)} terminals, return rate and round trip of each: {', '.join(names)}"
        )
    log.line(f"  forward {plan.forward.modcod}, {plan.forward.rate_bps / 1e6:.2f} Mbit/s on air")
    log.line(f"  return  {plan.return_.modcod}, {plan.return_.rate_bps / 1e6:.2f} Mbit/s on air")
    if found.config.emulator == "opensand":
        expected = expectation(plan, "opensand")
        log.line(
            f"  round trip over OpenSAND {expected.rtt_low_ms:.0f} to {expected.rtt_high_ms:.0f} ms"
        )
    else:
        log.line(f"  round trip {plan.rtt_ms.min:.1f} to {plan.rtt_ms.max:.1f} ms")
    for advice in (*plan.advice, *found.notes):
        log.line(f"  note: {advice}")


def status(lab_id: str | None, *, json_lines: bool) -> int:
    """Print the state of all labs, or of one. Return FAILED if a lab is broken or the named lab is
    absent.
    """
    found = [lab.status(lab_id)] if lab_id else lab.list_labs()
    for each in found:
        say(json.dumps(asdict(each), default=str) if json_lines else _line(each))
    return ExitStatus.FAILED if any(s.phase != "up" for s in found) else ExitStatus.OK


def down(lab_id: str | None, log: ProgressLog) -> None:
    """Take one lab down, or all labs (None)."""
    if lab_id is None:
        lab_owners.sweep()
    for name in [lab_id] if lab_id else [s.lab_id for s in lab.list_labs()]:
        with log.step(f"{_called(name)} down") as step:
            step.outcome = "done" if lab.down(name) else "was not up"


def enter(lab_id: str, node: str, command: list[str]) -> list[str]:
    """Return the argv that runs `command`, or a shell, inside a node."""
    return [
        *Lab.attach(lab_id).enter_argv(node),
        *(command or [os.environ.get("SHELL", "/bin/sh")]),
    ]


def set_link(lab_id: str, change: LinkSet) -> None:
    """Change the link of a lab that is up."""
    control.change(_control(lab_id), change)


def show_link(lab_id: str, *, json_lines: bool) -> None:
    """Print the present parameters of a lab's link."""
    state = control.state(_control(lab_id))
    if json_lines:
        say(
            json.dumps(
                {"lab": lab_id, "t_s": state["t_s"]}
                | {k: state[k] for k in ("timeline", "directions")}
            )
        )
        return
    for direction, fields in state["directions"].items():
        said = ", ".join(f"{name} {json.dumps(value)}" for name, value in (fields or {}).items())
        say(f"{direction}: {said or 'carried by another emulator'}")


def print_metrics(lab_id: str) -> None:
    """Print the last sample of a lab's link for Prometheus."""
    sample = prometheus.last_sample(Path(Lab.attach(lab_id).config.metrics))
    say(prometheus.render(lab_id, sample).removesuffix("\n"))


def _control(lab_id: str) -> Path:
    """Return the control socket of a lab that is up."""
    path = Lab.attach(lab_id).config.control
    if path is None:
        raise ConfigError(
            f"lab {lab_id} has no control socket", hint="bring it up anew: satlab down, satlab up"
        )
    return Path(path)


def _line(state: LabStatus) -> str:
    parts = [
        f"{state.lab_id}: {state.phase}",
        state.reason,
        f"profile {state.profile}" if state.profile else "",
    ]
    parts.append(f"emulator {state.emulator}" if state.emulator else "")
    return ", ".join(p for p in parts if p)
