# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab flows`: a file of flows on either clock."""

import json
import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from satlab.cli.base import OUTPUT, Quiet, RateOnce, Runs, command
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.files import new_folder, write_atomically
from satlab.common.needs import NETNS
from satlab.common.sudo_caller import chown_to_caller


@command(epilog="Example: satlab flows flows.json --clock real --json")
def flows(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON file of flows and their link (schemas/virtual-flows.schema.json)."
        ),
    ],
    clock: Annotated[
        Literal["virtual", "real"],
        typer.Option(
            help=(
                "virtual: simulate the flows. real: run programs in a lab; only this clock has"
                " quiche, ngtcp2, picoquic and TCP."
            )
        ),
    ] = "virtual",
    runs: Runs = Path("runs"),
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="With --clock real: check everything, print the flows, change nothing.",
        ),
    ] = False,
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="Print the outcome as JSON on stdout.", rich_help_panel=OUTPUT),
    ] = False,
    rate_once: RateOnce = False,
    quiet: Quiet = False,
) -> int:
    """Run many flows that share one link, on the virtual or the real clock.

    The outcome, with a page of its plots, is in a new folder. Status 1: a flow failed.
    """
    from satlab.common.processes import stop_on_signal
    from satlab.flows import flows_report, outcome_text, real_clock, satvirtual
    from satlab.run import link_rate_cache

    if file.is_fifo():
        raise ConfigError(f"{file} can be read only once", hint="write the flows to a file")
    needs.ensure("virtual")
    log = ProgressLog(quiet)
    if clock == "real":
        needs.ensure("lab", "quic", "ngtcp2", "fec")
        request = real_clock.prepare(file, runs)
        if dry_run:
            say(json.dumps(request, indent=1))
            return ExitStatus.OK
        needs.root(NETNS)
        folder = new_folder(runs, "flows")
        shutil.copyfile(file, folder / "flows.json")
        link_rate_cache.use(rate_once)
        outcome = real_clock.run(file, folder, log, stop_on_signal())
    elif dry_run:
        raise ConfigError(
            "--dry-run is for the real clock",
            hint="a simulation changes nothing but takes CPU time",
        )
    else:
        with log.step("simulation"):
            text = satvirtual.simulated(file)
        folder, outcome = new_folder(runs, "flows"), json.loads(text)
        shutil.copyfile(file, folder / "flows.json")
        write_atomically(folder / "outcome.json", text)
    report = flows_report.write(outcome, folder, file)
    chown_to_caller(folder)
    for line in [json.dumps(outcome)] if json_lines else outcome_text.lines(outcome):
        say(line)
    log.line(str(report))
    return real_clock.exit_status(outcome)
