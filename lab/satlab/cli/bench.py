# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks: `satlab bench ...`."""

import fnmatch
import json
from typing import Annotated

import typer

from satlab.cli.base import Quiet, app, command
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.needs import NETNS

bench_app = typer.Typer(no_args_is_help=True, help="Measure what this host can do.")
app.add_typer(bench_app, name="bench")


@command(group=bench_app)
def link(
    seconds: Annotated[float, typer.Option(help="How long each rate is held.", min=1, max=600)] = 30,
    rate_mbps: Annotated[
        list[float] | None, typer.Option(help="Forward rate, Mbit/s; repeatable. Default: 20, 250 and 1000.", min=20)
    ] = None,
    labs: Annotated[int, typer.Option(help="Then so many labs of 20 Mbit/s at once; 0: none.", min=0, max=64)] = 0,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Measure rate, CPU, release error, RTT and memory of the emulated link, beside a plain TUN copy."""
    from satlab.bench import link_bench

    needs.ensure("lab")
    needs.root(NETNS)
    result = link_bench.link(seconds, labs, tuple(rate_mbps or link_bench.RATES_MBPS), ProgressLog(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else link_bench.lines(result):
        print(line)
    return ExitStatus.OK


@command(group=bench_app)
def quic(
    slow: Annotated[bool, typer.Option(help="Also what takes an hour: Reno and CUBIC with 1 % of loss.")] = False,
    case: Annotated[str, typer.Option(help="Only cases whose names match, say '*reno*pep*'.")] = "*",
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Measure satperf over a veth pair and over 250 Mbit/s at 650 ms, for every stack and congestion control."""
    from satlab.bench import quic_bench

    needs.ensure("lab", "quic")
    needs.root(NETNS)
    wanted = [one for one in quic_bench.CASES if (slow or not one.slow) and fnmatch.fnmatch(one.name, case)]
    result = quic_bench.quic(wanted, ProgressLog(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else quic_bench.lines(result):
        print(line)
    return ExitStatus.OK


@command(group=bench_app, name="check")
def bench_check(
    comparisons: Annotated[int, typer.Option(help="Of equal builds, and of a slower one.", min=1, max=10000)] = 100,
    slowdown: Annotated[
        float, typer.Option(help="Of the slower build, as a share of the time.", min=0.01, max=1)
    ] = 0.1,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Count false alarms of `satlab check --baseline`, and slowdowns that it catches, under the virtual clock."""
    from satlab.bench import verdict_power

    needs.ensure("virtual")
    found = verdict_power.measure(comparisons, slowdown, ProgressLog(quiet))
    if json_lines:
        print(json.dumps(found))
    else:
        caught = ", ".join(f"{case} {count}" for case, count in found["caught"].items())
        print(f"of {comparisons}: false alarms {found['false_alarms']}; caught {caught}; {found['real_s']} s")
    return ExitStatus.OK


@command(group=bench_app, name="agree")
def bench_agree(
    suite: Annotated[str, typer.Option(help="Name of a suite in baselines/.")] = "etosat",
    cases: Annotated[str | None, typer.Option(help="ID,ID,... of the suite. Default: all without losses.")] = None,
    up_to_mb: Annotated[float, typer.Option(help="Transfer no more than the marks up to this.", min=0.001)] = 100,
    runs: Annotated[int, typer.Option(help="Samples of each clock.", min=1, max=100)] = 1,
    client: Annotated[
        list[str] | None, typer.Option(help="Option of the client's end, NAME=VALUE as in satperf; repeatable.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="Option of the server's end, likewise.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Compare the virtual clock with a real lab: quinn over the same links, time to each mark; 1 when they differ."""
    from satlab.bench import clock_agreement
    from satlab.check import check_run

    needs.ensure("lab", "quic", "virtual")
    needs.root(NETNS)
    wanted = [] if cases is None else cases.split(",")
    ends = (check_run.options(client or []), check_run.options(server or []))
    result = clock_agreement.measure(suite, wanted, up_to_mb, runs, ends, ProgressLog(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else clock_agreement.lines(result):
        print(line)
    return ExitStatus.OK if result["agree"] else ExitStatus.FAILED
