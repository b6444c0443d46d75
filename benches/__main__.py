# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks for developers: `python -m benches COMMAND`, or `make bench ARGS=COMMAND`."""

import contextlib
import fnmatch
import itertools
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from satlab.cli.base import Quiet, command
from satlab.common import needs, paths
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.needs import NETNS
from satlab.common.processes import stop_on_signal
from satlab.run import manifest

JsonResult = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
bench_app = typer.Typer(no_args_is_help=True, help="Measure what this host can do.")


def show(result: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result for people, or as JSON with the commit and the host that it was measured on."""
    if as_json:
        argv = ["git", "-C", str(paths.ROOT), "describe", "--always", "--dirty"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        about = {"commit": done.stdout.strip(), "host": manifest.host()}
        lines = [json.dumps(about | dict(result), indent=1)]
    for line in lines:
        say(line)


@command(group=bench_app)
def link(
    seconds: Annotated[
        float, typer.Option(help="Duration of the measurement at each rate, s.", min=1, max=600)
    ] = 30,
    rate_mbps: Annotated[
        list[float] | None,
        typer.Option(
            help="Forward rate to measure, Mbit/s. Repeatable. Default: 20, 250 and 1000.", min=20
        ),
    ] = None,
    labs: Annotated[
        int,
        typer.Option(
            help="Then measure this many labs of 20 Mbit/s at the same time; 0: skip this.",
            min=0,
            max=64,
        ),
    ] = 0,
    terminals: Annotated[
        int,
        typer.Option(
            help=(
                "Then measure 220 Mbit/s with one terminal, and shared by this many terminals; 0:"
                " skip this."
            ),
            min=0,
            max=64,
        ),
    ] = 0,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure rate, CPU time, release error, RTT and memory of the emulated link. A program that
    only copies packets between TUN devices is measured for comparison.
    """
    from benches import link_bench, terminal_bench

    needs.ensure("lab")
    needs.root(NETNS)
    result = link_bench.link(
        seconds, labs, tuple(rate_mbps or link_bench.RATES_MBPS), ProgressLog(quiet)
    )
    shown = link_bench.lines(result)
    if terminals:
        shared = terminal_bench.measure(terminals, seconds, ProgressLog(quiet))
        shown = itertools.chain(terminal_bench.lines(shared), shown)
        result["terminals"] = shared
        result["promises"] += [asdict(promise) for promise in terminal_bench.promises(shared)]
    show(result, shown, as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app)
def quic(
    slow: Annotated[
        bool, typer.Option(help="Also measure Reno and CUBIC with 1 % loss; this takes an hour.")
    ] = False,
    case: Annotated[
        str, typer.Option(help="Measure only cases whose names match, for example '*reno*pep*'.")
    ] = "*",
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure satperf over a veth pair and over 250 Mbit/s at 650 ms, with each stack and
    congestion control.
    """
    from benches import quic_bench

    needs.ensure("lab", "quic")
    needs.root(NETNS)
    cases = [
        one
        for one in quic_bench.CASES
        if (slow or not one.slow) and fnmatch.fnmatch(one.name, case)
    ]
    result = quic_bench.quic(cases, ProgressLog(quiet))
    show(result, quic_bench.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app)
def tunnel(
    seconds: Annotated[float, typer.Option(help="Duration of each case, s.", min=1, max=600)] = 10,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure satfec between two nodes on one wire: packets carried, delay, and CPU of both ends."""
    from benches import tunnel_bench

    needs.ensure("lab", "fec")
    needs.root(NETNS)
    result = tunnel_bench.tunnel(seconds, ProgressLog(quiet))
    show(result, tunnel_bench.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="check")
def bench_check(
    comparisons: Annotated[
        int,
        typer.Option(
            help="Number of comparisons with an equal build, and as many with a slower build.",
            min=1,
            max=10000,
        ),
    ] = 100,
    slowdown: Annotated[
        float,
        typer.Option(help="Slowdown of the slower build, as a share of the time.", min=0.01, max=1),
    ] = 0.1,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Count how often `satlab check --baseline` reports an equal build as slower, and how often it
    finds a slower build. Uses the virtual clock.
    """
    from benches import false_alarms

    needs.ensure("virtual")
    result = false_alarms.measure(comparisons, slowdown, ProgressLog(quiet))
    show(result, false_alarms.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="host-load")
def bench_host_load(
    levels: Annotated[
        str,
        typer.Option(
            help="Levels of load: numbers of processes that each keep a core busy, N,N,..."
        ),
    ] = "0,1,2,4,8,16",
    samples: Annotated[int, typer.Option(help="Samples at each level.", min=2, max=1000)] = 40,
    kind: Annotated[
        Literal["h1", "h2", "h3", "quic"],
        typer.Option(
            help=(
                "What to measure: page loads over HTTP/1.1 (h1), HTTP/2 (h2) or HTTP/3 (h3), or"
                " transfers of 5 MB over QUIC by satperf (quic)."
            )
        ),
    ] = "h3",
    earlier: Annotated[
        Path | None,
        typer.Option(
            help="JSON result of an earlier call. Levels that are not measured again are kept."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a plot of time against wait for a core to this HTML file."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure how the load of the host changes the times of page loads or transfers, and whether
    satlab marks the changed times as out of calibration.
    """
    from benches import figures_under_load

    needs.ensure("lab", "quic")
    needs.root(NETNS)
    known = figures_under_load.earlier_levels(earlier, kind) if earlier else ()
    result = figures_under_load.measure(
        [int(n) for n in levels.split(",")], samples, kind, out, ProgressLog(quiet), known
    )
    if plot:
        figures_under_load.plot(result, plot)
    show(result, figures_under_load.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app)
def calibration(
    profile: Annotated[str, typer.Option(help="Profile of the link: geo or leo.")] = "geo",
    samples: Annotated[int, typer.Option(help="Calibrations at each level.", min=2, max=1000)] = 40,
    labs: Annotated[
        int, typer.Option(help="Labs that share the calibrations of a level.", min=1, max=8)
    ] = 1,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Level to measure, by its name. Repeatable. Default: all."),
    ] = None,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure how often calibration marks links that are as planned, and links whose rate, losses
    or round-trip time deviate by a known amount.
    """
    from benches import calibration_power

    needs.ensure("lab")
    needs.root(NETNS)
    result = calibration_power.measure(
        profile, samples, labs, tuple(level or ()), ProgressLog(quiet)
    )
    show(result, calibration_power.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="browser-speed")
def bench_browser_speed(
    levels: Annotated[
        str, typer.Option(help="By how much the browser is slowed down (CDP), N,N,...; 1 to 20.")
    ] = "1,2,4,6",
    samples: Annotated[int, typer.Option(help="Page loads at each level.", min=2, max=1000)] = 20,
    kind: Annotated[
        Literal["h1", "h2", "h3"], typer.Option(help="HTTP/1.1 (h1), HTTP/2 (h2) or HTTP/3 (h3).")
    ] = "h3",
    profile: Annotated[str, typer.Option(help="Profile of the link.")] = "leo",
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure page loads of a browser on slower and slower hosts, and whether satlab marks those
    that are slower.
    """
    from benches import throttled_browser

    needs.ensure("lab", "quic")
    needs.root(NETNS)
    result = throttled_browser.measure(
        [float(n) for n in levels.split(",")], samples, kind, profile, out, ProgressLog(quiet)
    )
    show(result, throttled_browser.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="confinement")
def bench_confinement(
    pairs: Annotated[
        int,
        typer.Option(
            help="Pairs of runs of each scenario, one with and one without sandboxes.", min=0
        ),
    ] = 3,
    starts: Annotated[
        int,
        typer.Option(
            help="Number of pairs: a program starts once with and once without a sandbox.",
            min=1,
            max=1000,
        ),
    ] = 40,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure what sandboxes cost: the start of a program, page loads and QUIC transfers with and
    without them.
    """
    from benches import sandbox_cost

    needs.ensure("lab", "quic")
    needs.root(NETNS)
    result = sandbox_cost.measure(pairs, starts, out, ProgressLog(quiet))
    show(result, sandbox_cost.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="agree")
def bench_agree(
    suite: Annotated[
        str, typer.Option(help="Name of a suite in suites/, or the path of a suite file, FILE.yml.")
    ] = "etosat",
    cases: Annotated[
        list[str] | None,
        typer.Option(
            help="Cases of the suite: ID or ID,ID. Repeatable. Default: all cases without losses."
        ),
    ] = None,
    up_to_mb: Annotated[
        float,
        typer.Option(help="Compare only the marks of the suite up to this size, MB.", min=0.001),
    ] = 100,
    runs: Annotated[
        int, typer.Option(help="Samples of each case on each clock.", min=1, max=100)
    ] = 1,
    client: Annotated[
        list[str] | None, typer.Option(help="Option of satperf's client, NAME=VALUE. Repeatable.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="Option of satperf's server, NAME=VALUE. Repeatable.")
    ] = None,
    virtual_client: Annotated[
        str | None,
        typer.Option(
            help=(
                "Command that starts the client of another stack in lock-step with the virtual"
                " clock (as for `satlab check`)."
            )
        ),
    ] = None,
    virtual_server: Annotated[
        str | None,
        typer.Option(
            help=(
                "Command that starts the server of another stack in lock-step with the virtual"
                " clock (as for `satlab check`)."
            )
        ),
    ] = None,
    client_cmd: Annotated[
        str | None,
        typer.Option(
            help=(
                "Command that starts the client of that stack on the real clock (as for `satlab"
                " check`)."
            )
        ),
    ] = None,
    server_cmd: Annotated[
        str | None,
        typer.Option(
            help=(
                "Command that starts the server of that stack on the real clock (as for `satlab"
                " check`)."
            )
        ),
    ] = None,
    endpoint: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Endpoint of the QUIC interop runner on the real clock, in place of --client-cmd"
                " and --server-cmd."
            )
        ),
    ] = None,
    stack: Annotated[
        Literal["quiche", "ngtcp2"] | None,
        typer.Option(
            help=(
                "Built-in stack of `satlab check --clock real` on the real clock, in place of"
                " --client-cmd and --server-cmd."
            )
        ),
    ] = None,
    client_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable of the clients on both clocks, NAME=VALUE. Repeatable."
        ),
    ] = None,
    server_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable of the servers on both clocks, NAME=VALUE. Repeatable."
        ),
    ] = None,
    allow_read: Annotated[
        list[Path] | None,
        typer.Option(help="File or folder that the clients and servers may read. Repeatable."),
    ] = None,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Compare transfer times under the virtual clock with those of a real lab, for quinn or for
    programs of another stack.

    Status 1: the times differ; 4: not measurable.
    """
    from benches import clock_agreement
    from satlab.check.endpoint import endpoint_options, lockstep

    options = (endpoint_options.options(client or []), endpoint_options.options(server or []))
    variables = endpoint_options.environment(client_env or (), server_env or ())
    named = endpoint_options.External(
        client_cmd, server_cmd, allow_read or (), endpoint, stack=stack, environment=variables
    )
    clients, servers = ([one] if one else [] for one in (virtual_client, virtual_server))
    virtual = lockstep.each_pair(clients, servers, allow_read or (), variables)
    if (
        bool(virtual) is not bool(named)
        or (virtual and any(options))
        or (variables and not virtual)
    ):
        hint = (
            "--virtual-client and --virtual-server with commands, --endpoint or --stack; --client"
            " and --server: quinn"
        )
        raise ConfigError(
            "a stack is compared with itself: it needs programs for both clocks", hint=hint
        )
    needs.ensure("lab", "quic", "virtual")
    if stack == "ngtcp2":
        needs.ensure("ngtcp2")
    needs.root(NETNS)
    with named.opened() if named else contextlib.nullcontext(None) as pair:
        compared = clock_agreement.Compared(options, virtual[0] if virtual else None, pair)
        result = clock_agreement.measure(
            suite, cases or (), up_to_mb, runs, compared, ProgressLog(quiet)
        )
    show(result, clock_agreement.lines(result), as_json=json_lines)
    if not result["agree"]:
        return ExitStatus.FAILED
    return ExitStatus.OK if result["is_measurable"] else ExitStatus.UNCALIBRATED


@command(group=bench_app, name="flows")
def bench_flows(
    flows: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of flows. Repeatable. Default: 1, 4, 16 and 64. If --agree is given: 2, 4 and 16.",
            min=1,
            max=64,
        ),
    ] = None,
    agree: Annotated[
        bool,
        typer.Option(
            "--agree",
            help=(
                "Compare the virtual clock with the real clock. By default this runs 9 labs of a"
                " minute each."
            ),
        ),
    ] = False,
    scenario: Annotated[
        Literal["cubic", "bbr3", "mixed-step"] | None,
        typer.Option(
            help=(
                "With --agree: run only this scenario. mixed-step has NewReno and CUBIC flows and a"
                " step of the delay. Default: all scenarios."
            )
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="With --agree: labs per case.", min=1, max=100)] = 1,
    parallel: Annotated[
        int, typer.Option(help="With --agree: labs at the same time.", min=1, max=64)
    ] = 1,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure how many packets the virtual clock simulates in a second of CPU time, with many
    flows; or compare the clocks.

    Status 1: the clocks differ; 4: not measurable.
    """
    from benches import flow_agreement, flow_bench

    needs.ensure("virtual")
    if agree:
        needs.ensure("lab", "quic")
        needs.root(NETNS)
        compared = flow_agreement.Compared(
            [scenario] if scenario else tuple(flow_agreement.SCENARIOS),
            flows or flow_agreement.FLOWS,
            runs,
            parallel,
        )
        found = flow_agreement.measure(compared, ProgressLog(quiet), stop_on_signal())
        show(found, flow_agreement.lines(found), as_json=json_lines)
        if not found["agree"]:
            return ExitStatus.FAILED
        return ExitStatus.OK if found["is_measurable"] else ExitStatus.UNCALIBRATED
    result = flow_bench.measure(flows or flow_bench.FLOWS, ProgressLog(quiet))
    show(result, flow_bench.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app)
def peers(
    part: Annotated[
        Literal["flows", "link"],
        typer.Argument(help="flows: simulated flows, and ns-3. link: satlink, and a TUN copy."),
    ] = "flows",
    flows: Annotated[
        list[int] | None,
        typer.Option(help="Number of flows. Repeatable. Default: 1, 4, 16 and 64.", min=1, max=64),
    ] = None,
    links: Annotated[
        list[str] | None,
        typer.Option("--link", help="wire or a profile. Repeatable. Default: wire, geo, geo-dama."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1, max=100)] = 5,
    seconds: Annotated[
        float, typer.Option(help="With link: duration of each flow, s.", min=1, max=600)
    ] = 5,
    results: Annotated[
        Path | None, typer.Option(help="Also write the figures to this file of docs/results/.")
    ] = None,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure satlab beside other programs: packets a second of CPU time, memory, and the ratios."""
    from benches import peers_bench

    if part == "flows":
        needs.ensure("virtual", "link")
        result = peers_bench.simulated(
            flows or peers_bench.FLOWS, links or peers_bench.LINKS, rounds, ProgressLog(quiet)
        )
    else:
        needs.ensure("lab")
        needs.root(NETNS)
        result = peers_bench.emulated(seconds, rounds, ProgressLog(quiet))
    if results:
        peers_bench.write(result, results)
    show(result, peers_bench.lines(result), as_json=json_lines)
    return ExitStatus.OK


@command(group=bench_app, name="campaign")
def bench_campaign(
    tasks: Annotated[
        int, typer.Option(help="Number of tasks in the campaign.", min=2, max=10_000)
    ] = 50,
    jobs: Annotated[int, typer.Option(help="Tasks at the same time.", min=1, max=256)] = 1,
    task_s: Annotated[
        float, typer.Option(help="Approximate duration of a task, s.", min=0.1, max=600)
    ] = 4.0,
    cells: Annotated[
        int, typer.Option(help="Cells of the campaign whose planning is timed.", min=1, max=50_000)
    ] = 10_000,
    json_lines: JsonResult = False,
    quiet: Quiet = False,
) -> int:
    """Measure how much time a campaign takes more than a shell loop over its tasks, and how long
    planning takes.
    """
    from benches import campaign_cost as cost

    needs.ensure("campaign", "virtual")
    result = cost.measure(tasks, jobs, task_s, cells, ProgressLog(quiet))
    show(result, cost.lines(result), as_json=json_lines)
    return ExitStatus.OK


if __name__ == "__main__":
    bench_app(prog_name="python -m benches")
