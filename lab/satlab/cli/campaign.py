# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns over many machines: `satlab campaign ...`."""

from pathlib import Path
from typing import Annotated

import typer

from satlab.cli.base import app, command
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus

campaign_app = typer.Typer(no_args_is_help=True, help="Plan many runs once, and run them on one host or on many.")
app.add_typer(campaign_app, name="campaign")
File = Annotated[Path, typer.Argument(help="YAML file of the campaign (docs/campaigns.md).")]


@command(group=campaign_app, name="plan", epilog="Example: satlab campaign plan queues.yml --out plan.json")
def plan_campaign(
    file: File,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file. Default: stdout.")] = None,
) -> int:
    """Check a campaign's file and plan its tasks as JSON; runs nothing."""
    from satlab.campaign import planning
    from satlab.common.files import write_atomically
    from satlab.reproduce.executor import duration

    needs.ensure("link")
    plan = planning.plan(file)
    if out is None:
        print(plan.text(), end="")
    else:
        write_atomically(out, plan.text())
    total = f"{len(plan.cells)} cells, {len(plan.tasks)} tasks"
    ProgressLog().line(f"{plan.name}: {total}, about {duration(plan.estimate_s)} one after the other")
    return ExitStatus.OK
