#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: changes the emulated link while it runs, or tells how it is set, through satlink's control socket."""

import argparse
import json
import os
import socket
import sys
import syslog
import time
from pathlib import Path
from typing import Any

import collect_agent

FILTER = Path(__file__).with_name("satlab_link_rstats_filter.conf")
SOCKET = "/run/satlab/control.sock"
ANSWER_DEADLINE_S = 5.0
CHANGE_DEADLINE_S = 2.0
"""satlink answers, and its threads look into their mailboxes, within milliseconds."""
DIRECTIONS = ("forward", "return", "both", "terrestrial_down", "terrestrial_up")

Answer = dict[str, Any]


class LinkError(Exception):
    """Nobody answers, or the link refuses the request."""


def ask(path: str, request: Answer) -> Answer:
    """Send one request and give the answer (schemas/link-control.schema.json). Raises LinkError."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_DEADLINE_S)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: Answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise LinkError(f"{path}: the link does not answer: {error}") from error
    if answer.get("ok") is not True:
        raise LinkError(f"the link refuses the change: {'; '.join(map(str, answer.get('faults', ())))}")
    return answer


def change(wanted: argparse.Namespace) -> Answer:
    """Give the `set` of the request: what was chosen alone."""
    fields: Answer = {"direction": wanted.direction}
    if wanted.delay_ms is not None:
        fields["delay_ms"] = wanted.delay_ms
    if wanted.loss_ratio is not None:
        fields["loss"] = {"ratio": wanted.loss_ratio, "unit": wanted.loss_unit}
    if wanted.jitter_ms is not None:
        fields["jitter"] = {"uniform_ms": wanted.jitter_ms}
    if wanted.outage is not None:
        fields["outage"] = wanted.outage
    return fields


def statistics(fields: Answer) -> Answer:
    """Give what one direction is set to, as far as it is numbers."""
    found: Answer = {"delay_ms": fields["delay_ms"]} if "delay_ms" in fields else {}
    loss = fields.get("loss")
    if isinstance(loss, dict) and "ratio" in loss:
        found["loss_ratio"] = loss["ratio"]
    if "uniform_ms" in (fields.get("jitter") or {}):
        found["jitter_ms"] = fields["jitter"]["uniform_ms"]
    if "outage" in fields:
        found["outage"] = int(fields["outage"] is not False)
    return found


def state(path: str) -> dict[str, Answer]:
    """Give what holds now as statistics, by direction."""
    return {name: statistics(fields or {}) for name, fields in ask(path, {"get": "state"})["directions"].items()}


def await_change(path: str, wanted: Answer) -> None:
    """Wait until the link's threads have taken a change over. An outage may be over sooner than it is seen."""
    names = ("forward", "return") if wanted["direction"] == "both" else (wanted["direction"],)
    fields = {name: value for name, value in statistics(wanted).items() if name != "outage"}
    deadline = time.monotonic() + CHANGE_DEADLINE_S
    while not all(fields.items() <= state(path)[name].items() for name in names):
        if time.monotonic() > deadline:
            raise LinkError(f"the change was taken and does not hold after {CHANGE_DEADLINE_S:g} s")
        time.sleep(0.02)  # the state can only be polled


def tell(path: str) -> None:
    """Send what holds now, one record per direction."""
    when = collect_agent.now()
    for direction, found in state(path).items():
        if found:
            answer = collect_agent.send_stat(when, direction, **found)
            if answer != "OK":
                raise LinkError(f"statistics were not taken: {answer}")


def _outage(text: str) -> bool | float:
    if text in ("on", "off"):
        return text == "on"
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("is not on, off or a number of seconds") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-s", "--socket", default=os.environ.get("SATLAB_CONTROL", SOCKET), help="control socket")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show", help="send what holds now")
    actions.add_parser("timeline", help="start the time line that waits for it")
    setting = actions.add_parser("set", help="change one direction, or both of the satellite link")
    setting.add_argument("direction", choices=DIRECTIONS)
    setting.add_argument("-d", "--delay-ms", type=float, help="one-way delay, ms")
    setting.add_argument("-l", "--loss-ratio", type=float, help="loss ratio, 0 to 1, in place of all losses")
    setting.add_argument("-u", "--loss-unit", choices=("packet", "frame"), default="packet", help="what is lost")
    setting.add_argument("-j", "--jitter-ms", type=float, help="jitter, ms: uniform from 0")
    setting.add_argument("-o", "--outage", type=_outage, help="on, off, or seconds after which it ends")
    wanted = parser.parse_args()
    if wanted.action == "set" and len(change(wanted)) == 1:
        parser.error("set: nothing to change: give a delay, a loss ratio, a jitter or an outage")
    return wanted


def main() -> int:
    """Run the job; 0 when the link did what was asked and its state was sent, 1 otherwise."""
    wanted = _arguments()
    try:
        if wanted.action == "set":
            ask(wanted.socket, {"set": change(wanted)})
            await_change(wanted.socket, change(wanted))
        elif wanted.action == "timeline":
            ask(wanted.socket, {"start": "timeline"})
        tell(wanted.socket)
    except LinkError as error:
        collect_agent.send_log(syslog.LOG_ERR, str(error))
        return 1
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
