# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab by hand: up, status, down, shell; and its link while it runs."""

import subprocess
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satlab.cli.base import LabName, Quiet, app, command, link_options, with_options
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.needs import NETNS

if TYPE_CHECKING:
    from satlab.cli.base import Decorator
    from satlab.link.change_options import LinkChange
    from satlab.link.options import LinkOptions


@command(options=link_options)
def up(
    link: "LinkOptions",
    lab: LabName = "lab",
    quiet: Quiet = False,
) -> int:
    """Bring a lab up and leave it up. If the same lab is already up, nothing changes."""
    from satlab.lab import lab_commands

    needs.ensure("lab")
    needs.root(NETNS)
    lab_commands.up(lab, link, ProgressLog(quiet))
    return ExitStatus.OK


@command()
def status(
    lab: Annotated[str | None, typer.Option("--lab", "-l", help="Show only this lab.")] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print one JSON line per lab.")
    ] = False,
) -> int:
    """Show the labs that are up. Exit status 1: a lab is broken, or the lab of --lab is not up."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    return lab_commands.status(lab, json_lines=json_lines)


@command()
def down(
    lab: LabName = "lab",
    every: Annotated[
        bool, typer.Option("--all", help="Take down every lab, also those of killed runs.")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Take a lab down, and remove everything that belongs to it."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    lab_commands.down(None if every else lab, ProgressLog(quiet))
    return ExitStatus.OK


@command(context_settings={"ignore_unknown_options": True})
def shell(
    node: Annotated[
        str,
        typer.Argument(
            help="Name of the node: client, proxy-st, st, sat, gw, proxy-gw, server, client-2, ..."
        ),
    ],
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run, after `--`. Default: your shell.")
    ] = None,
    lab: LabName = "lab",
) -> int:
    """Run a shell or one command inside a node."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    return subprocess.run(lab_commands.enter(lab, node, command or []), check=False).returncode


# --- a link that runs -----------------------------------------------------------------------------

link_app = typer.Typer(no_args_is_help=True, help="Change or show the link of a lab that is up.")
app.add_typer(link_app, name="link")


def _changes() -> "Decorator":
    from satlab.link.change_options import LinkChange

    return with_options(LinkChange)


@command(group=link_app, name="set", options=_changes)
def link_set(
    direction: Annotated[
        Literal["forward", "return", "both", "terrestrial_down", "terrestrial_up"],
        typer.Argument(help="Direction to change; both: forward and return."),
    ],
    change: "LinkChange",
    lab: LabName = "lab",
) -> int:
    """Change the link of a lab while it runs; the change is recorded in link.jsonl."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    lab_commands.set_link(lab, change.link_set(direction))
    return ExitStatus.OK


@command(group=link_app, name="show")
def link_show(
    lab: LabName = "lab",
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the state as one JSON line.")
    ] = False,
) -> int:
    """Show the present state of a lab's link."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    lab_commands.show_link(lab, json_lines=json_lines)
    return ExitStatus.OK


@command(group=link_app, name="metrics")
def link_metrics(lab: LabName = "lab") -> int:
    """Print the last sample of the link in Prometheus' text format."""
    from satlab.lab import lab_commands

    needs.root(NETNS)
    lab_commands.print_metrics(lab)
    return ExitStatus.OK
