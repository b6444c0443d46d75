# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench host`. The other benchmarks are for developers: `python -m benches` in a clone."""

import json
import subprocess
import sys
from typing import Annotated

import typer

from satlab.cli.base import Quiet, app, command
from satlab.common import needs, paths
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.needs import NETNS

bench_app = typer.Typer(
    no_args_is_help=True, help="Measure how many labs this host can run at once."
)
app.add_typer(bench_app, name="bench")
MOVED = (
    "link",
    "quic",
    "tunnel",
    "check",
    "host-load",
    "confinement",
    "agree",
    "flows",
    "campaign",
)
"""Commands that were here in 0.1; to be removed after 0.2."""


@command(group=bench_app, name="host")
def bench_host(
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Measure, within a minute, how many labs this host can run at the same time in a campaign.

    Status 4: the host cannot run even one lab.
    """
    from satlab.campaign import host_bench

    needs.ensure("lab")
    needs.root(NETNS)
    result = host_bench.measure(ProgressLog(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else host_bench.lines(result):
        say(line)
    return ExitStatus.OK if result["labs"] else ExitStatus.UNCALIBRATED


def _moved(name: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @bench_app.command(name, hidden=True, context_settings=settings)
    def run(context: typer.Context) -> None:
        """Start the benchmark at its new place."""
        if not (paths.ROOT / "benches").is_dir():
            raise typer.Exit(ConfigError(f"bench {name} is in a clone alone").status)
        new = f"python -m benches {name}"
        print(f"warning: satlab bench {name} is now {new} (make bench)", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "benches", name, *context.args], cwd=paths.ROOT, check=False
        )
        raise typer.Exit(done.returncode)


for _name in MOVED:
    _moved(_name)
