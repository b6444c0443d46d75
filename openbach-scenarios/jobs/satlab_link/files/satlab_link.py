#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: change the emulated link while it runs, or report its settings, through satlink's
control socket.
"""

import argparse
import json
import os
import socket
import syslog
import time
from typing import Any

import collect_agent
from jobkit import JobError, argument_parser, run_job

SOCKET = "/run/satlab/control.sock"
ANSWER_DEADLINE_S = 5.0
CHANGE_DEADLINE_S = 2.0
"""satlink answers, and its threads look into their mailboxes, within milliseconds."""
DIRECTIONS = ("forward", "return", "both", "terrestrial_down", "terrestrial_up")
LOSS_MODELS = {
    "gilbert-elliott": ("p", "r", "step_ms", "min_burst_ms"),
    "bursts": ("period_ms", "duration_ms"),
}
"""Fields of a loss model, in the order in which they are written; the last two of the first may be
left out.
"""
REORDER_PACKETS, REORDER_MS = 2, 50.0
"""Defaults of a reordering, as of `satlab link set`: below the limits at which RFC 9002 takes a
packet as lost.
"""
OF_THE_NEW_LINK = ("delay_ms", "symbol_rate_baud", "queue")
"""Settings of the new link in a handover."""

Answer = dict[str, Any]


def ask(path: str, request: Answer) -> Answer:
    """Send one request and return the answer (schemas/link-control.schema.json).

    Raises JobError.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_DEADLINE_S)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: Answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: the link does not answer: {error}") from error
    if answer.get("ok") is not True:
        raise JobError(
            f"the link refuses the change: {'; '.join(map(str, answer.get('faults', ())))}"
        )
    return answer


def change(options: argparse.Namespace) -> Answer:
    """Return the `set` of the request: only what was chosen. The link checks the values."""
    chosen = {
        **{
            name: getattr(options, name)
            for name in ("delay_ms", "outage", "attenuation_db", "modcod")
        },
        "symbol_rate_baud": options.symbol_rate_baud,
        "loss": _losses(options) or None,
        "jitter": None if options.jitter_ms is None else {"uniform_ms": options.jitter_ms},
        "reorder": _reordering(options),
        "duplicate": options.duplicate_ratio,
        "corrupt": options.corrupt_ratio,
        "queue": options.queue and options.queue | _management(options),
    }
    fields = {name: value for name, value in chosen.items() if value is not None}
    if options.handover is not None:
        new = {name: fields.pop(name) for name in OF_THE_NEW_LINK if name in fields}
        fields["handover"] = {"waiting": options.handover, **new}
    return {"direction": options.direction, **fields}


def _losses(options: argparse.Namespace) -> Answer | list[Answer]:
    ratio = [] if options.loss_ratio is None else [{"ratio": options.loss_ratio}]
    model = [] if options.loss_model is None else [options.loss_model]
    found = [loss | {"unit": options.loss_unit} for loss in ratio + model]
    return found[0] if len(found) == 1 else found


def _reordering(options: argparse.Namespace) -> Answer | None:
    """Return the reordering. Without a depth and a time both have their defaults."""
    ratio, packets, longest_ms = options.reorder_ratio, options.reorder_packets, options.reorder_ms
    if ratio is None:
        return None
    if packets is None and longest_ms is None:
        packets = REORDER_PACKETS
    depth = {} if packets is None else {"packets": packets}
    return {"ratio": ratio, **depth, "ms": REORDER_MS if longest_ms is None else longest_ms}


def _management(options: argparse.Namespace) -> Answer:
    """Return the fields of active queue management."""
    chosen = {
        "aqm": options.aqm,
        "interval_ms": options.aqm_interval_ms,
        "ecn": True if options.ecn else None,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def statistics(fields: Answer) -> Answer:
    """Return the settings of one direction that are numbers; MODCOD 0: adaptive coding chooses."""
    names = ("delay_ms", "attenuation_db", "symbol_rate_baud")
    found: Answer = {name: fields[name] for name in names if name in fields}
    loss = fields.get("loss")
    if isinstance(loss, dict) and "ratio" in loss:
        found["loss_ratio"] = loss["ratio"]
    if "uniform_ms" in (fields.get("jitter") or {}):
        found["jitter_ms"] = fields["jitter"]["uniform_ms"]
    if "ratio" in (fields.get("reorder") or {}):
        found["reorder_ratio"] = fields["reorder"]["ratio"]
    for name in ("duplicate", "corrupt"):
        if fields.get(name) is not None:
            found[f"{name}_ratio"] = fields[name]
    if "modcod" in fields:
        found["modcod"] = 0 if fields["modcod"] == "acm" else fields["modcod"]
    if "outage" in fields:
        found["outage"] = int(fields["outage"] is not False)
    return found


def state(path: str) -> dict[str, Answer]:
    """Return the current state as statistics, by direction."""
    return {
        name: statistics(fields or {})
        for name, fields in ask(path, {"get": "state"})["directions"].items()
    }


def await_change(path: str, request: Answer) -> None:
    """Wait until the link's threads have applied a change.

    An outage may be over sooner than it is seen.
    """
    names = ("forward", "return") if request["direction"] == "both" else (request["direction"],)
    all_fields = request | request.get("handover", {})
    fields = {name: value for name, value in statistics(all_fields).items() if name != "outage"}
    deadline = time.monotonic() + CHANGE_DEADLINE_S
    while not all(fields.items() <= state(path)[name].items() for name in names):
        if time.monotonic() > deadline:
            raise JobError(f"the change was taken and does not hold after {CHANGE_DEADLINE_S:g} s")
        time.sleep(0.02)  # the state can only be polled


def send_state(path: str) -> None:
    """Send the current state, one record per direction."""
    when = collect_agent.now()
    for direction, found in state(path).items():
        if found:
            answer = collect_agent.send_stat(when, direction, **found)
            if answer != "OK":
                raise JobError(f"statistics were not taken: {answer}")


def _outage(text: str) -> bool | float:
    if text in ("on", "off"):
        return text == "on"
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("is not on, off or a number of seconds") from None


def _modcod(text: str) -> str | int:
    try:
        return text if text == "acm" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("is not acm or an id of EN 302 307-1, 1 to 28") from None


def _queue(text: str) -> Answer:
    """Read a limit: 1.2bdp, 60000bytes or 200packets."""
    for unit, kind in (("bdp", float), ("bytes", int), ("packets", int)):
        if text.endswith(unit):
            try:
                return {unit: kind(text.removesuffix(unit))}
            except ValueError:
                break
    raise argparse.ArgumentTypeError("is not like 1.2bdp, 60000bytes or 200packets")


def _loss_model(text: str) -> Answer:
    """Read gilbert-elliott:P,R[,STEP_MS[,MIN_BURST_MS]] or bursts:PERIOD_MS,DURATION_MS."""
    name, _, rest = text.partition(":")
    fields, values = LOSS_MODELS.get(name, ()), rest.split(",")
    try:
        if 2 <= len(values) <= len(fields):
            return {"model": name} | dict(zip(fields, map(float, values), strict=False))
    except ValueError:
        pass
    forms = "gilbert-elliott:P,R[,STEP_MS[,MIN_BURST_MS]] or bursts:PERIOD_MS,DURATION_MS"
    raise argparse.ArgumentTypeError(f"is not {forms}")


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "-s",
        "--socket",
        default=os.environ.get("SATLAB_CONTROL", SOCKET),
        help="satlink's control socket",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show", help="send the present settings as statistics")
    actions.add_parser("timeline", help="start the timeline, if it waits for this request")
    setting = actions.add_parser("set", help="change one direction or both directions")
    setting.add_argument("direction", choices=DIRECTIONS)
    setting.add_argument("-d", "--delay-ms", type=float, help="one-way delay, ms")
    setting.add_argument(
        "-l",
        "--loss-ratio",
        type=float,
        help="ratio of independent losses, 0 to 1; replaces all losses",
    )
    setting.add_argument(
        "-m",
        "--loss-model",
        type=_loss_model,
        help="loss process; alone it replaces all losses, with a ratio it is added",
    )
    setting.add_argument(
        "-u",
        "--loss-unit",
        choices=("packet", "frame"),
        default="packet",
        help="what one loss takes",
    )
    setting.add_argument("-j", "--jitter-ms", type=float, help="largest jitter, uniform from 0, ms")
    setting.add_argument(
        "-r",
        "--reorder-ratio",
        type=float,
        help="share of packets that later ones overtake; 0: packets keep their order",
    )
    setting.add_argument(
        "-n",
        "--reorder-packets",
        type=int,
        help="most later packets that overtake a held one; default: 2, or any number with a time",
    )
    setting.add_argument(
        "-t",
        "--reorder-ms",
        type=float,
        help="longest time that a packet is held back, ms; default: 50",
    )
    setting.add_argument(
        "-D", "--duplicate-ratio", type=float, help="share of packets that come twice, 0 to 1"
    )
    setting.add_argument(
        "-C",
        "--corrupt-ratio",
        type=float,
        help="share of UDP datagrams with one flipped bit and a checksum that fits, 0 to 1",
    )
    setting.add_argument("-o", "--outage", type=_outage, help="on, off, or duration, s")
    setting.add_argument("-a", "--attenuation-db", type=float, help="reduces the Es/N0, dB")
    setting.add_argument(
        "-c",
        "--modcod",
        type=_modcod,
        help="forward: a fixed MODCOD by its id in EN 302 307-1, or acm",
    )
    setting.add_argument(
        "-b", "--symbol-rate-baud", type=int, help="symbols per second; the MODCOD stays"
    )
    setting.add_argument(
        "-H",
        "--handover",
        choices=("keep", "flush", "drop"),
        help="another link takes over; treatment of waiting packets",
    )
    setting.add_argument(
        "-q", "--queue", type=_queue, help="limit of the queue: 1.2bdp, 60000bytes or 200packets"
    )
    setting.add_argument(
        "-A",
        "--aqm",
        choices=("codel", "fq-codel", "pie", "dualpi2"),
        help="active management of --queue",
    )
    setting.add_argument(
        "-i", "--aqm-interval-ms", type=float, help="interval of codel and fq-codel, ms"
    )
    setting.add_argument(
        "-e",
        "--ecn",
        action="store_true",
        help="with --aqm: mark ECN-capable packets instead of dropping them",
    )
    options = parser.parse_args()
    if options.action == "set":
        if options.queue is None and _management(options):
            parser.error("set: aqm, its interval and ecn need a queue")
        is_deep = options.reorder_packets is not None or options.reorder_ms is not None
        if options.reorder_ratio is None and is_deep:
            parser.error("set: the depth and time of a reordering need its ratio")
        if len(change(options)) == 1:
            parser.error(
                "set: nothing to change: name a delay, losses, an attenuation, a handover ..."
            )
    return options


def main() -> int:
    """Run the job; 0 when the link did what was requested and its state was sent, 1 otherwise."""
    options = _arguments()
    try:
        if options.action == "set":
            ask(options.socket, {"set": change(options)})
            await_change(options.socket, change(options))
        elif options.action == "timeline":
            ask(options.socket, {"start": "timeline"})
        send_state(options.socket)
    except JobError as error:
        collect_agent.send_log(syslog.LOG_ERR, str(error))
        return 1
    return 0


if __name__ == "__main__":
    run_job(__file__, main)
