# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab by hand: up, status, down, shell, and its link while it runs."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from satlab.common import topology
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, Fault
from satlab.common.paths import LAB_FILE
from satlab.link import control, prometheus
from satlab.link.expectation import expectation
from satlab.link.linkplan import LinkSet
from satlab.link.options import LinkOptions
from satlab.netlab import lab, ownership
from satlab.netlab.lab import Lab, LabStatus


def up(lab_id: str, options: LinkOptions, log: ProgressLog) -> None:
    """Bring a lab up and leave it up."""
    with log.step(f"lab {lab_id} up") as step:
        up_lab = Lab.up(lab_id, topology.load(LAB_FILE), options.request())
        step.outcome = "was up already" if up_lab.found else "done"
    plan = up_lab.plan
    log.line(f"  forward {plan.forward.modcod}, {plan.forward.rate_bps / 1e6:.2f} Mbit/s on air")
    log.line(f"  return  {plan.return_.modcod}, {plan.return_.rate_bps / 1e6:.2f} Mbit/s on air")
    if up_lab.config.emulator == "opensand":
        expected = expectation(plan, "opensand")
        log.line(f"  round trip over OpenSAND {expected.rtt_low_ms:.0f} to {expected.rtt_high_ms:.0f} ms")
    else:
        log.line(f"  round trip {plan.rtt_ms.min:.1f} to {plan.rtt_ms.max:.1f} ms")
    for advice in (*plan.advice, *up_lab.notes):
        log.line(f"  note: {advice}")


def status(lab_id: str | None, *, json_lines: bool) -> int:
    """Show labs on stdout; FAILED when one is broken, or the named one is absent."""
    states = [lab.status(lab_id)] if lab_id else lab.list_labs()
    for each in states:
        print(json.dumps(asdict(each), default=str) if json_lines else _line(each))
    return ExitStatus.FAILED if any(s.phase != "up" for s in states) else ExitStatus.OK


def down(lab_id: str | None, log: ProgressLog) -> None:
    """Take one lab down, or every one (None)."""
    if lab_id is None:
        ownership.sweep()
    for name in [lab_id] if lab_id else [s.lab_id for s in lab.list_labs()]:
        with log.step(f"lab {name} down") as step:
            step.outcome = "done" if lab.down(name) else "was not up"


def enter(lab_id: str, node: str, command: list[str]) -> list[str]:
    """Return the argv that runs `command`, or a shell, inside a node."""
    return [*Lab.attach(lab_id).enter_argv(node), *(command or [os.environ.get("SHELL", "/bin/sh")])]


@dataclass(frozen=True)
class LinkChange:
    """What shall change of a link, in the words of the command line; what is None stays."""

    delay_ms: float | None = None
    loss: float | None = None
    jitter_ms: float | None = None
    outage: str | None = None
    attenuation_db: float | None = None
    modcod: str | None = None
    symbol_rate_baud: float | None = None
    handover: str | None = None


def set_link(lab_id: str, direction: str, options: LinkOptions, changes: LinkChange) -> None:
    """Change the link of a lab that is up. The queue stays without a limit of its own."""
    fields: dict[str, Any] = {
        "direction": direction,
        "delay_ms": changes.delay_ms,
        "attenuation_db": changes.attenuation_db,
        "modcod": changes.modcod,
        "symbol_rate_baud": changes.symbol_rate_baud,
    }
    if changes.loss is not None or options.loss_model is not None:
        fields["loss"] = options.losses()
    if changes.jitter_ms is not None:
        fields["jitter"] = {"uniform_ms": changes.jitter_ms}
    if changes.outage is not None:
        fields["outage"] = changes.outage == "on" if changes.outage in ("on", "off") else _seconds(changes.outage)
    if options.queue is not None:
        fields["queue"] = options.queue_rule()
    elif options.aqm or options.ecn or options.aqm_interval_ms is not None:
        raise ConfigError("--aqm, --ecn and --aqm-interval-ms need --queue", hint="give the limit as well")
    given = {name: value for name, value in fields.items() if value is not None}
    if changes.handover is not None:
        new = {name: given.pop(name) for name in ("delay_ms", "symbol_rate_baud", "queue") if name in given}
        given["handover"] = {"waiting": changes.handover, **new}
    try:
        request = LinkSet.model_validate(given)
    except ValidationError as error:
        faults = [Fault(".".join(map(str, e["loc"])) or "set", e["msg"]) for e in error.errors(include_url=False)]
        raise ConfigError("the link cannot be set so", faults, "satlab link set --help") from error
    control.change(_control(lab_id), request)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--outage {text}: is no time", hint="write on, off, or seconds") from None


def show_link(lab_id: str, *, json_lines: bool) -> None:
    """Print what holds on the link of a lab."""
    state = control.state(_control(lab_id))
    if json_lines:
        print(json.dumps({"lab": lab_id, "t_s": state["t_s"]} | {k: state[k] for k in ("timeline", "directions")}))
        return
    for direction, fields in state["directions"].items():
        values = ", ".join(f"{name} {json.dumps(value)}" for name, value in (fields or {}).items())
        print(f"{direction}: {values or 'carried by another emulator'}")


def print_metrics(lab_id: str) -> None:
    """Print the last sample of a lab's link for Prometheus."""
    print(prometheus.render(lab_id, prometheus.last_sample(Path(Lab.attach(lab_id).config.metrics))), end="")


def _control(lab_id: str) -> Path:
    """Return the control socket of a lab that is up."""
    path = Lab.attach(lab_id).config.control
    if path is None:
        raise ConfigError(f"lab {lab_id} has no control socket", hint="bring it up anew: satlab down, satlab up")
    return Path(path)


def _line(state: LabStatus) -> str:
    parts = [f"{state.lab_id}: {state.phase}", state.reason, f"profile {state.profile}" if state.profile else ""]
    parts.append(f"emulator {state.emulator}" if state.emulator else "")
    return ", ".join(p for p in parts if p)
