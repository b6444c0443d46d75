# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the VM lab: `satlab vm ...`. LAB_SIZE, LAB_DRIVER and LAB_BOX choose as they do for
Vagrant.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satlab.cli.base import (
    Quiet,
    Runs,
    app,
    command,
    link_options,
    print_reason,
    print_records,
    settings_of,
)
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ExitStatus

if TYPE_CHECKING:
    from satlab.link.options import LinkOptions

vm_app = typer.Typer(
    no_args_is_help=True, help="The lab as virtual machines: Vagrant, Ansible, OpenSAND, OpenBACH."
)
app.add_typer(vm_app, name="vm")
LINK = ("profile", "emulator", "seed", "loss", "loss_unit", "queue_bdp")
"""Options of the link that the VM lab has."""
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", help="Variable of the Ansible roles, NAME=VALUE. Repeatable."),
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON lines on stdout.")
]


@command(group=vm_app, options=functools.partial(link_options, *LINK))
def up(
    link: "LinkOptions",
    variables: Variables = None,
    quiet: Quiet = False,
) -> int:
    """Start the machines and provision them. May be repeated after a failure or a change."""
    from satlab.vm import vm_commands

    needs.ensure("link", "vm")
    vm_commands.up(link, ProgressLog(quiet), settings_of(variables or ()))
    return ExitStatus.OK


@command(group=vm_app, options=functools.partial(link_options, *LINK))
def provision(
    link: "LinkOptions",
    variables: Variables = None,
    quiet: Quiet = False,
) -> int:
    """Provision machines again, for example after a change of link, emulator or roles."""
    from satlab.vm import vm_commands

    needs.ensure("link", "vm")
    vm_commands.provisioned(link, ProgressLog(quiet), settings_of(variables or ()))
    return ExitStatus.OK


@command(group=vm_app, options=functools.partial(link_options, "profile", "emulator"))
def inventory(
    link: "LinkOptions",
    variables: Variables = None,
) -> int:
    """Write an Ansible inventory for your own hosts, and print its path."""
    from satlab.vm import vm_commands

    needs.ensure("link", "vm")
    say(vm_commands.write_inventory(link, settings_of(variables or ())))
    return ExitStatus.OK


@command(group=vm_app)
def status(json_lines: JsonLines = False) -> int:
    """Show the state of every machine. Exit status 1: a machine is down or degraded."""
    from satlab.vm import vm_commands

    needs.ensure("link", "vm")
    return vm_commands.status(json_lines=json_lines)


@command(group=vm_app)
def run(
    scenario: Annotated[
        Path, typer.Argument(help="OpenBACH scenario: a JSON file, or the name of a shipped one.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Value of an argument or constant of the scenario, NAME=VALUE. Repeatable.",
        ),
    ] = None,
    openbach: Annotated[
        str | None,
        typer.Option(
            envvar="SATLAB_OPENBACH",
            help="OpenBACH controller, http://LOGIN:PASSWORD@HOST:8000. Default: the VM lab's own.",
        ),
    ] = None,
    over_ssh: Annotated[
        bool, typer.Option("--ssh", help="Start jobs over ssh, even if the lab has a controller.")
    ] = False,
    influx: Annotated[
        str | None,
        typer.Option(
            envvar="SATLAB_INFLUX",
            help="InfluxDB 1.x that gets the statistics. Default: the VM lab's own.",
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Stop the scenario after this time, s.", min=1)
    ] = 900.0,
    runs: Runs = Path("runs"),
    json_lines: JsonLines = False,
    quiet: Quiet = False,
) -> int:
    """Run a scenario on the machines, through OpenBACH's controller or over ssh. It makes the same
    run folder and report as `satlab run`.
    """
    from satlab.common.processes import stop_on_signal
    from satlab.run.catalog import scenario_file
    from satlab.vm import vm_commands
    from satlab.vm import vm_run as running

    needs.ensure("link", "vm")
    prepared = vm_commands.prepared(
        scenario_file(scenario), settings_of(settings or ()), openbach, over_ssh=over_ssh
    )
    log = ProgressLog(quiet)
    outcome = running.execute(prepared, runs, log, stop_on_signal(), deadline)
    vm_commands.forward(outcome.folder, influx, log)
    print_records(
        [outcome.folder], [outcome.records], json_lines=json_lines, csv=False, quiet=quiet
    )
    print_reason(outcome.folder, outcome.reason)
    return outcome.status


@command(group=vm_app)
def down(quiet: Quiet = False) -> int:
    """Destroy the machines and the files generated for them."""
    from satlab.vm import vm_commands

    needs.ensure("link", "vm")
    vm_commands.down(ProgressLog(quiet))
    return ExitStatus.OK
