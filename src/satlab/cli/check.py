# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check` on the command line."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satlab.cli.base import Quiet, RateOnce, Retries, WaitQuiet, command
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.needs import NETNS, Group

if TYPE_CHECKING:
    from satlab.check.check_result import CheckResult
    from satlab.check.check_run import CheckRequest
    from satlab.check.endpoint.endpoint_options import External
    from satlab.check.endpoint.lockstep import LockstepPair

PLACEHOLDERS = (
    "{host} {port} {name} {bytes} {path} {url} {www} {cert} {key} {ca} {out} {state} {qlog}"
    " (docs/regression.md)"
)

SEARCH = "Search for link conditions"
SANDBOX = "a program under test runs in a sandbox"
_PROGRAMS: dict[str, tuple[Group, ...]] = {
    "quinn": ("quic",),
    "quiche": ("quic",),
    "ngtcp2": ("ngtcp2",),
}


@command(name="check")
def check_suite(
    suite: Annotated[
        str,
        typer.Option(
            help=(
                "Name of a suite in suites/, or the path of a suite file, FILE.yml"
                " (schemas/suite.schema.json)."
            )
        ),
    ] = "etosat",
    cases: Annotated[
        list[str] | None,
        typer.Option(
            help="Cases of the suite to run: ID or ID,ID. Repeatable. Default: all cases."
        ),
    ] = None,
    clock: Annotated[
        Literal["virtual", "real"],
        typer.Option(
            help=(
                "virtual: simulate quinn-proto over the link model, without root. real: run"
                " programs in a lab, as root."
            )
        ),
    ] = "virtual",
    stack: Annotated[
        Literal[
            "quinn",
            "quiche",
            "ngtcp2",
            "tcp-pep",
            "tcp-pep-a",
            "tcp-pep-b",
            "tcp-pep-c",
            "tcp-pep-d",
        ]
        | None,
        typer.Option(
            help=(
                "With --clock real: satperf with quinn or quiche, ngtcp2 of Debian, or TCP through"
                " two PEPs (tcp-pep-a to -d: with the TCP presets A to D of Kuhn 2021). Default:"
                " quinn."
            )
        ),
    ] = None,
    client_cmd: Annotated[
        str | None,
        typer.Option(
            help="Command that starts your client; no shell runs it. satlab replaces these words"
            " in it: " + PLACEHOLDERS + ". Implies --clock real."
        ),
    ] = None,
    server_cmd: Annotated[
        str | None,
        typer.Option(
            help=(
                "Command that starts your server, with words replaced as in --client-cmd. Implies"
                " --clock real."
            )
        ),
    ] = None,
    endpoint: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Endpoint of the QUIC interop runner: a folder or root file system with"
                " run_endpoint.sh, or an OCI archive of one. Implies --clock real."
            )
        ),
    ] = None,
    client_endpoint: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "Endpoint of the QUIC interop runner as the client. Default: --endpoint."
                " Repeatable: each client runs with each server."
            )
        ),
    ] = None,
    server_endpoint: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "Endpoint of the QUIC interop runner as the server. Default: --endpoint."
                " Repeatable: each client runs with each server."
            )
        ),
    ] = None,
    client_env: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Environment variable of your client, NAME=VALUE, for example CLIENT_PARAMS of the"
                " interop runner. Repeatable."
            )
        ),
    ] = None,
    server_env: Annotated[
        list[str] | None,
        typer.Option(help="Environment variable of your server, NAME=VALUE. Repeatable."),
    ] = None,
    virtual_client: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Command that starts your client in lock-step with the virtual clock"
                " (docs/virtual-interface.md). Repeatable: each client runs with each server. Needs"
                " --virtual-server."
            )
        ),
    ] = None,
    virtual_server: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Command that starts your server in lock-step with the virtual clock. Repeatable."
                " Needs --virtual-client."
            )
        ),
    ] = None,
    allow_read: Annotated[
        list[Path] | None,
        typer.Option(help="File or folder that your programs may read. Repeatable."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help=(
                "Samples per case. Default: the suite's, or 5, and more while a verdict is open or"
                " a comparison needs them."
            ),
            min=1,
            max=1000,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help=(
                "Seed of the first sample; the seed of each later sample is higher by 1. Default:"
                " the seed in the suite, or 1."
            ),
            min=0,
        ),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(help="Option of satperf's client, NAME=VALUE. Repeatable.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="Option of satperf's server, NAME=VALUE. Repeatable.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help=(
                "check.json of an earlier build: fail if this build is slower, or if a transfer"
                " does not complete that completed there."
            )
        ),
    ] = None,
    compare_with: Annotated[
        list[Path] | None,
        typer.Option(
            help="check.json of another stack. The report shows the times of both. Repeatable."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Folder of an earlier check: keep its samples and take the missing ones."
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            help="With --baseline: largest slowdown that passes, as a share of the time.",
            min=0,
            max=1,
        ),
    ] = 0.03,
    out: Annotated[Path, typer.Option(help="Parent folder of the check's folder.")] = Path("runs"),
    junit: Annotated[
        Path | None, typer.Option(help="Write the result to this file as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the result to this file as Markdown.")
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write the result to this file as the QUIC interop runner does (result.json), and"
                " all further data to FILE.satlab.json."
            )
        ),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
    wait_quiet: WaitQuiet = 0.0,
    retries: Retries = 0,
    rate_once: RateOnce = False,
    search: Annotated[
        bool,
        typer.Option(
            "--search",
            help=(
                "Vary the link of one case (--cases, default: medium) under the virtual clock, and"
                " look for conditions in which the stack dies, stalls or is slow. Each condition"
                " found becomes a suite, with the command that repeats it. Status 1: something was"
                " found."
            ),
            rich_help_panel=SEARCH,
        ),
    ] = False,
    search_time: Annotated[
        float | None,
        typer.Option(
            metavar="<s>",
            help="Duration of the search. Default: 600.",
            min=1,
            max=864_000,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    search_reference: Annotated[
        Literal["quinn", "noq", "arithmetic"] | None,
        typer.Option(
            help=(
                "Reference by which a transfer counts as slow: quinn, noq (BBRv3), or a time"
                " computed from slow start and rate (arithmetic). Default: quinn if programs or"
                " options are under test, otherwise arithmetic."
            ),
            rich_help_panel=SEARCH,
        ),
    ] = None,
    search_share: Annotated[
        float | None,
        typer.Option(
            help="A transfer below this share of the reference's speed is slow. Default: 0.5.",
            min=0.01,
            max=0.99,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    search_stall: Annotated[
        float | None,
        typer.Option(
            metavar="<RTT>",
            help="A transfer without progress for this many round trips stalls. Default: 10.",
            min=3,
            max=1000,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    search_mb: Annotated[
        float | None,
        typer.Option(
            help="Largest payload, 10^6 bytes. Default: 50.",
            min=0.1,
            max=1000,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    search_findings: Annotated[
        int | None,
        typer.Option(help="End after this many findings.", min=1, max=1000, rich_help_panel=SEARCH),
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Check QUIC over satellite links against target times or an earlier build.

    Status 1: missed, slower, or a transfer did not complete.
    """
    from satlab.check import check_result, check_run
    from satlab.check.endpoint import endpoint_options, lockstep
    from satlab.check.endpoint.endpoint_options import External
    from satlab.run import link_rate_cache
    from satlab.run.quiet_host import Patience

    link_rate_cache.use(rate_once)

    variables = endpoint_options.environment(client_env or (), server_env or ())
    named = External(client_cmd, server_cmd, allow_read or (), endpoint, environment=variables)
    pairs: list[External | lockstep.LockstepPair] = [
        *endpoint_options.each_pair(named, client_endpoint or (), server_endpoint or ()),
        *lockstep.each_pair(
            virtual_client or (), virtual_server or (), allow_read or (), variables
        ),
    ]
    if variables and not pairs:
        raise ConfigError(
            "--client-env and --server-env are for programs of yours", hint="name the programs"
        )
    if len(pairs) > 1 and any((baseline, resume, junit, markdown, json_lines)):
        hint = "leave out --baseline, --resume, --junit, --markdown and --json, or name one pair"
        raise ConfigError(f"{len(pairs)} pairs of programs make a matrix of checks", hint=hint)
    if stack and pairs:
        raise ConfigError(f"--stack {stack} and programs of yours", hint="leave one of them out")
    if stack not in (None, "quinn") and clock == "virtual":
        hint = (
            "--clock real, or its adapter with --virtual-client and --virtual-server"
            " (docs/virtual-interface.md)"
        )
        raise ConfigError(f"--stack {stack} runs on the real clock", hint=hint)
    request = check_run.CheckRequest(
        suite,
        cases or (),
        runs,
        seed,
        endpoint_options.options(client or []),
        endpoint_options.options(server or []),
        baseline,
        compare_with or (),
        resume,
        tolerance,
        out,
        clock=clock,
        stack=stack or "quinn",
        environment=variables,
        patience=Patience(wait_quiet, retries),
        command=sys.argv[1:],
    )
    outputs = Outputs(junit, markdown, result, json_lines)
    options = SearchOptions(
        search_time, search_reference, search_share, search_stall, search_mb, search_findings
    )
    if search:
        return _search(_prepared(request, pairs), pairs, options, outputs, quiet=quiet)
    if options != SearchOptions():
        raise ConfigError("--search-time and the like need --search", hint="add --search")
    checks = check_run.run_each(_prepared(request, pairs), pairs, ProgressLog(quiet))
    _report(checks, outputs, out)
    return check_result.worst_status([one.status for one in checks])


def _prepared(
    request: "CheckRequest", pairs: "Sequence[External | LockstepPair]"
) -> "CheckRequest":
    """Install what the check needs, become root if it does, and choose the clock of the pairs."""
    from satlab.check.endpoint import lockstep
    from satlab.check.endpoint.lockstep import LockstepPair
    from satlab.common.processes import stop_on_signal

    virtual = [pair for pair in pairs if isinstance(pair, LockstepPair)]
    if virtual and (len(virtual) < len(pairs) or request.clock == "real"):
        raise ConfigError(
            "--virtual-client and --virtual-server exclude other programs and --clock real",
            hint="leave one of them out",
        )
    if len(virtual) == len(pairs) and request.clock == "virtual":
        needs.ensure("lockstep" if pairs else "virtual")
        if pairs and lockstep.needs_root():
            needs.root(SANDBOX)
        return request
    needs.ensure("lab", *(() if pairs else _PROGRAMS.get(request.stack, ())))
    needs.root(NETNS)
    return dataclasses.replace(request, clock="real", stop=stop_on_signal())


@dataclass(frozen=True)
class Outputs:
    """Files that are written in addition to those of the check."""

    junit: Path | None
    markdown: Path | None
    result: Path | None
    json_lines: bool


@dataclass(frozen=True)
class SearchOptions:
    """Options of --search; None: the default."""

    wall_s: float | None = None
    reference: Literal["quinn", "noq", "arithmetic"] | None = None
    share: float | None = None
    stall_rtts: float | None = None
    largest_mb: float | None = None
    most_findings: int | None = None


def _search(
    request: "CheckRequest",
    pairs: "Sequence[External | LockstepPair]",
    options: SearchOptions,
    outputs: Outputs,
    *,
    quiet: bool,
) -> int:
    """Search, and print what was found."""
    from satlab.check.endpoint.lockstep import LockstepPair
    from satlab.check.search import search_run
    from satlab.check.search.faults import Limits
    from satlab.common.processes import stop_on_signal

    files = (outputs.junit, outputs.markdown, outputs.result)
    comparison = (request.runs, request.baseline, *request.compare_with)
    if request.clock == "real" or len(pairs) > 1 or any(comparison) or any(files):
        words = (
            "--clock real, --runs, --baseline, --compare-with, --junit, --markdown, --result and"
            " further programs"
        )
        raise ConfigError("--search is of one stack under the virtual clock", hint=f"omit {words}")
    programs = next((pair for pair in pairs if isinstance(pair, LockstepPair)), None)
    limits = Limits(options.share or Limits.share, options.stall_rtts or Limits.stall_rtts)
    found = search_run.run(
        search_run.SearchRequest(
            dataclasses.replace(request, programs=programs),
            options.wall_s or search_run.SearchRequest.wall_s,
            limits,
            options.largest_mb or search_run.SearchRequest.largest_mb,
            options.reference,
            options.most_findings,
            stop_on_signal(),
        ),
        ProgressLog(quiet),
    )
    record = json.dumps(found.record.model_dump(mode="json", by_alias=True))
    say(record if outputs.json_lines else "\n".join(found.lines()))
    return ExitStatus.FAILED if found.record.findings else ExitStatus.OK


def _report(checks: "Sequence[CheckResult]", outputs: Outputs, out: Path) -> None:
    from satlab.check.report import check_page, check_tables, interop_result, junit, matrix_page

    for check in checks:
        check_page.write(check)
        if outputs.json_lines:
            say(json.dumps(check.document()))
        else:
            check_tables.show(check)
        if outputs.junit is not None:
            outputs.junit.write_text(junit.junit(check))
        if outputs.markdown is not None:
            outputs.markdown.write_text(check_tables.markdown(check))
    if outputs.result is not None:
        interop_result.write(checks, outputs.result)
    if len(checks) > 1:
        page = out / "matrix.html"
        matrix_page.write(matrix_page.read([check.folder / "check.json" for check in checks]), page)
        say(page)


@command(name="matrix")
def matrix_of_checks(
    checks: Annotated[
        list[Path],
        typer.Argument(help="check.json of each stack, and earlier ones for the history."),
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("matrix.html"),
    badge: Annotated[
        Path | None,
        typer.Option(help="Write an SVG image with the targets that the newest check met."),
    ] = None,
) -> int:
    """Show stored checks of one suite as one page: cases by stacks, and their history."""
    from satlab.check.report import matrix_page

    matrix = matrix_page.read(checks)
    matrix_page.write(matrix, out)
    if badge is not None:
        badge.write_text(matrix_page.badge(matrix))
    say(out)
    return 0
