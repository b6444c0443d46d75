# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab by hand: up, status, down, shell; and its link while it runs."""

import subprocess
from typing import Annotated, Literal

import typer

from satlab.cli.base import (
    AqmInterval,
    AqmName,
    Ecn,
    LabName,
    LossModelText,
    LossUnits,
    QueueLimit,
    Quiet,
    app,
    command,
    with_link,
)
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.needs import NETNS
from satlab.link.options import LinkOptions


@command()
@with_link()
def up(
    link: LinkOptions,
    lab: LabName = "lab",
    quiet: Quiet = False,
) -> int:
    """Bring a lab up and leave it up. Doing it twice changes nothing."""
    from satlab.netlab import lab_commands

    needs.ensure("lab")
    needs.root(NETNS)
    lab_commands.up(lab, link, ProgressLog(quiet))
    return ExitStatus.OK


@command()
def status(
    lab: Annotated[str | None, typer.Option("--lab", "-l", help="Only this lab.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON line per lab.")] = False,
) -> int:
    """Show the labs that are up. Exit status 1 when a lab is broken or the one asked for is not there."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    return lab_commands.status(lab, json_lines=json_lines)


@command()
def down(
    lab: LabName = "lab",
    every: Annotated[bool, typer.Option("--all", help="Every lab, also those of killed runs.")] = False,
    quiet: Quiet = False,
) -> int:
    """Take a lab down and leave nothing behind."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    lab_commands.down(None if every else lab, ProgressLog(quiet))
    return ExitStatus.OK


@command(context_settings={"ignore_unknown_options": True})
def shell(
    node: Annotated[str, typer.Argument(help="Node: client, proxy-st, st, sat, gw, proxy-gw, server.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command after `--`. Default: your shell.")] = None,
    lab: LabName = "lab",
) -> int:
    """Run a shell or one command inside a node."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    return subprocess.run(lab_commands.enter(lab, node, command or []), check=False).returncode


# --- a link that runs -----------------------------------------------------------------------------------------------

link_app = typer.Typer(no_args_is_help=True, help="Change or show the link of a lab that is up.")
app.add_typer(link_app, name="link")
LinkDirection = Literal["forward", "return", "both", "terrestrial_down", "terrestrial_up"]


@command(group=link_app, name="set")
def link_set(
    direction: Annotated[LinkDirection, typer.Argument(help="Which direction; both: forward and return.")],
    lab: LabName = "lab",
    delay_ms: Annotated[float | None, typer.Option(help="One-way delay, ms.", min=0, max=10000)] = None,
    loss: Annotated[
        float | None, typer.Option(help="Loss ratio, 0 to 1, in place of all losses.", min=0, max=1)
    ] = None,
    loss_model: LossModelText = None,
    loss_unit: LossUnits = "packet",
    jitter_ms: Annotated[float | None, typer.Option(help="Jitter, ms: uniform from 0.", min=0, max=3600000)] = None,
    attenuation_db: Annotated[
        float | None, typer.Option(help="Taken off the Es/N0, dB, beyond what the profile takes.", min=0, max=100)
    ] = None,
    modcod: Annotated[
        str | None, typer.Option(help="forward: MODCOD of EN 302 307-1 that stays, 1 to 28; or acm.")
    ] = None,
    symbol_rate_baud: Annotated[
        float | None, typer.Option(help="Symbols per second, e.g. 10e6; the MODCOD stays.", min=1, max=1e10)
    ] = None,
    handover: Annotated[
        Literal["keep", "flush", "drop"] | None,
        typer.Option(
            help="Another link, with the delay, symbol rate and queue given, takes over at once; what waits moves to "
            "it, leaves with the old one, or is dropped."
        ),
    ] = None,
    outage: Annotated[str | None, typer.Option(help="on, off, or seconds after which it ends.")] = None,
    queue: QueueLimit = None,
    aqm: AqmName = None,
    aqm_interval_ms: AqmInterval = None,
    ecn: Ecn = False,
) -> int:
    """Change the link of a lab while it runs; the change stands in link.jsonl."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    options = LinkOptions(
        loss=loss or 0.0,
        loss_unit=loss_unit,
        loss_model=loss_model,
        queue=queue,
        aqm=aqm,
        aqm_interval_ms=aqm_interval_ms,
        ecn=ecn,
    )
    wanted = lab_commands.LinkChange(
        delay_ms, loss, jitter_ms, outage, attenuation_db, modcod, symbol_rate_baud, handover
    )
    lab_commands.set_link(lab, direction, options, wanted)
    return ExitStatus.OK


@command(group=link_app, name="show")
def link_show(
    lab: LabName = "lab",
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON line.")] = False,
) -> int:
    """Show what holds on the link of a lab now."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    lab_commands.show_link(lab, json_lines=json_lines)
    return ExitStatus.OK


@command(group=link_app, name="metrics")
def link_metrics(lab: LabName = "lab") -> int:
    """Print the last sample of the link in Prometheus' text format."""
    from satlab.netlab import lab_commands

    needs.root(NETNS)
    lab_commands.print_metrics(lab)
    return ExitStatus.OK
