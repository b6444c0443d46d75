# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab flows`: a file of flows on either clock."""

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from satlab.cli.base import OUTPUT, Quiet, Runs, command
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.files import new_folder
from satlab.common.needs import NETNS


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
    quiet: Quiet = False,
) -> int:
    """Run many flows that share one link, on the virtual or the real clock.

    Status 1: a flow failed.
    """
    from satlab.common.processes import stop_on_signal
    from satlab.flows import known_rates, outcome_text, real_clock, satvirtual

    needs.ensure("virtual")
    if clock == "real":
        needs.ensure("lab", "quic", "ngtcp2", "fec")
        request = real_clock.prepare(file, runs)
        if dry_run:
            say(json.dumps(request, indent=1))
            return ExitStatus.OK
        needs.root(NETNS)
        folder = new_folder(runs, "flows")
        shutil.copyfile(file, folder / "flows.json")
        log, kept = ProgressLog(quiet), os.environ.get(known_rates.VARIABLE)
        rates = known_rates.KnownRates(Path(kept)) if kept else None
        done = real_clock.run(file, folder, log, stop_on_signal(), rates)
        outcome, status = done.outcome, done.status
        if rates is not None and outcome["calibration"]:
            rates.forget()
        log.line(str(folder))
    elif dry_run:
        raise ConfigError(
            "--dry-run is for the real clock",
            hint="a simulation changes nothing but takes CPU time",
        )
    else:
        outcome = json.loads(satvirtual.simulated(file))
        status = (
            ExitStatus.FAILED
            if any(one["status"] != "ok" for one in outcome["flows"])
            else ExitStatus.OK
        )
    for line in [json.dumps(outcome)] if json_lines else outcome_text.lines(outcome):
        say(line)
    return status
