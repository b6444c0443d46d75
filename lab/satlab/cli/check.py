# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check` on the command line."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from satlab.cli.base import Quiet, command
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.needs import NETNS, Group
from satlab.common.processes import stop_on_signal

PLACEHOLDERS = (
    "{host} {port} {name} {bytes} {path} {url} {www} {cert} {key} {ca} {out} {state} {qlog}: docs/regression.md."
)

_PROGRAMS: dict[str, tuple[Group, ...]] = {"quinn": ("quic",), "quiche": ("quic",), "ngtcp2": ("ngtcp2",)}


@command(name="check")
def check_suite(
    suite: Annotated[str, typer.Option(help="Name of a suite in baselines/.")] = "etosat",
    cases: Annotated[str | None, typer.Option(help="ID,ID,... of the suite. Default: all.")] = None,
    clock: Annotated[
        Literal["virtual", "real"],
        typer.Option(help="virtual: quinn-proto and the link model, stepped; real: programs over a lab (root)."),
    ] = "virtual",
    stack: Annotated[
        Literal["quinn", "quiche", "ngtcp2", "tcp-pep"],
        typer.Option(
            help="With --clock real: satperf with one of its libraries, Debian's ngtcp2, or TCP through PEPs."
        ),
    ] = "quinn",
    client_cmd: Annotated[
        str | None,
        typer.Option(
            help="Your client's command, split as by a shell. In it and in --server-cmd stand " + PLACEHOLDERS
        ),
    ] = None,
    server_cmd: Annotated[str | None, typer.Option(help="Your server's; both imply --clock real.")] = None,
    endpoint: Annotated[
        Path | None,
        typer.Option(
            help="Endpoint of the QUIC interop runner: folder or root file system with run_endpoint.sh, or OCI archive."
        ),
    ] = None,
    show: Annotated[
        list[Path] | None, typer.Option(help="A file or folder that your programs need to read; repeatable.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(help="Samples of each case. Default: 5, more while a verdict is open.", min=1, max=1000),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first sample, the next ones follow.", min=0)] = 1,
    client: Annotated[
        list[str] | None, typer.Option(help="Option of the client's end, NAME=VALUE as in satperf; repeatable.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="Option of the server's end, likewise.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="check.json of an earlier check: is this build slower?")] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="check.json of another stack: its times in one table with these; repeatable."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of an earlier check: keep its samples, take what is missing.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="With --baseline: slowdown that nobody minds.", min=0, max=1)] = 0.03,
    out: Annotated[Path, typer.Option(help="Folder that the check's folder is made in.")] = Path("runs"),
    junit: Annotated[Path | None, typer.Option(help="JUnit XML file for a build server.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Markdown file for a pull request.")] = None,
    result: Annotated[
        Path | None, typer.Option(help="result.json of the QUIC interop runner, and FILE.satlab.json with all else.")
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Check QUIC over satellite links against targets, or against an earlier build; 1 when one is missed."""
    from satlab.check import check_run
    from satlab.check.report import check_page, check_tables, interop_result

    wanted = check_run.CheckRequest(
        suite, [] if cases is None else cases.split(","), runs, seed,
        check_run.options(client or []), check_run.options(server or []), baseline,
        beside or (), resume, tolerance, out,
        clock=clock, stack=stack,
    )  # fmt: skip
    with contextlib.ExitStack() as opened:
        if client_cmd or server_cmd or endpoint:
            pair = check_run.from_outside(client_cmd, server_cmd, show or (), endpoint)
            wanted = dataclasses.replace(wanted, clock="real", ends=opened.enter_context(pair))
        if wanted.clock == "real":
            needs.ensure("lab", *_PROGRAMS.get(stack, ()) if not (client_cmd or server_cmd or endpoint) else ())
            needs.root(NETNS)
            wanted = dataclasses.replace(wanted, stop=stop_on_signal())
        else:
            needs.ensure("virtual")
        found = check_run.run(wanted, ProgressLog(quiet))
    check_page.write(found)
    for file, text in ((junit, check_tables.junit), (markdown, check_tables.markdown)):
        if file is not None:
            file.write_text(text(found))
    if result is not None:
        result.write_text(json.dumps(interop_result.result(found), indent=1) + "\n")
        result.with_suffix(".satlab.json").write_text(json.dumps(interop_result.extension(found), indent=1) + "\n")
    if json_lines:
        print(json.dumps(found.document()))
    else:
        check_tables.show(found)
    return found.status
