# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that run scenarios, and commands that read run folders."""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satlab.cli.base import (
    OUTPUT,
    Jobs,
    Privileges,
    Quiet,
    RateOnce,
    Records,
    RecordsCsv,
    Retries,
    Runs,
    WaitQuiet,
    app,
    command,
    link_options,
    print_json_lines,
    print_reason,
    print_records,
    settings_of,
    status_of,
)
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ExitStatus
from satlab.common.needs import NETNS

if TYPE_CHECKING:
    from satlab.link.options import LinkOptions


@command(
    epilog=(
        "Example: satlab run openbach-scenarios/scenarios/bulk_tcp.json --set duration=15 --profile"
        " leo --loss 0.001 --queue 200packets --aqm codel --json"
    ),
    options=link_options,
)
def run(
    scenario: Annotated[
        Path, typer.Argument(help="OpenBACH scenario: a JSON file, or the name of a shipped one.")
    ],
    link: "LinkOptions",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=(
                "Value of an argument or constant of the scenario, or of the link:"
                " internet_delay_ms, satcom_delay_ms, satcom_loss_percent, satcom_attenuation_db."
                " Repeatable."
            ),
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Stop the scenario after this time.", metavar="<s>", min=1)
    ] = 900.0,
    jobs: Jobs = None,
    privileges: Privileges = None,
    job_packages: Annotated[
        bool,
        typer.Option(
            "--job-packages",
            help=(
                "Fetch and unpack the Debian packages that the playbooks of the --jobs name. Only"
                " these jobs see them."
            ),
        ),
    ] = False,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NODE", help="Node on which an entity of the scenario runs. Repeatable."
        ),
    ] = None,
    runs: Runs = Path("runs"),
    json_lines: Records = False,
    csv: RecordsCsv = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, change nothing.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no HTML report.", rich_help_panel=OUTPUT)
    ] = False,
    influx: Annotated[
        str | None,
        typer.Option(
            envvar="SATLAB_INFLUX",
            help="Also send the statistics to this InfluxDB 1.x.",
            metavar="http://HOST:8086/DB",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    wait_quiet: WaitQuiet = 0.0,
    retries: Retries = 0,
    rate_once: RateOnce = False,
    quiet: Quiet = False,
) -> int:
    """Run one scenario in a fresh lab: calibrate, measure, collect, report."""
    from satlab.common.processes import stop_on_signal
    from satlab.link import testbed_parameters
    from satlab.run import catalog, link_rate_cache, scenario_run
    from satlab.run.quiet_host import Patience

    needs.ensure("link" if dry_run else "lab")
    link_rate_cache.use(rate_once)
    bed = testbed_parameters.choose(settings_of(settings or ()), link)
    request = scenario_run.RunRequest(
        scenario=catalog.scenario_file(scenario),
        link=bed.link,
        settings=bed.settings,
        at_start=bed.at_start,
        runs=runs,
        deadline_s=deadline,
        report=not no_report,
        influx=influx,
        jobs=(jobs,) if jobs else (),
        privileges=privileges,
        job_packages=job_packages,
        entities=scenario_run.entities_of(settings_of(entity), bed.link.topology())
        if entity
        else None,
    )
    prepared = scenario_run.prepare(request)
    for warning in prepared.warnings:
        ProgressLog(quiet).line(f"warning: {warning}")
    if dry_run:
        say(json.dumps(prepared.document(), indent=1))
        return ExitStatus.OK
    if prepared.needs_quic:
        needs.ensure("quic")
    if prepared.needs_fec:
        needs.ensure("fec")
    needs.root(NETNS)
    outcome = scenario_run.calibrated(
        prepared, Patience(wait_quiet, retries), ProgressLog(quiet), stop_on_signal()
    )
    print_records([outcome.folder], [outcome.records], json_lines=json_lines, csv=csv, quiet=quiet)
    print_reason(outcome.folder, outcome.reason)
    return outcome.status


@command(name="list")
def list_shipped(
    kind: Annotated[
        Literal["scenarios", "profiles", "pages", "jobs", "suites", "papers", "stacks"] | None,
        typer.Argument(),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print JSON lines on stdout.")] = False,
) -> int:
    """List what ships with satlab: scenarios with their arguments, profiles, pages, jobs, suites,
    papers, stacks.
    """
    from satlab.run import catalog

    for each in catalog.KINDS if kind is None else (kind,):
        entries = catalog.shipped(each)
        if json_lines:
            print_json_lines(
                {"kind": each, "name": name, "description": text} for name, text in entries.items()
            )
            continue
        say(f"{each}:")
        for name, text in entries.items():
            say(f"  {name:<{max(map(len, entries))}}  {text}")
    return ExitStatus.OK


@command(options=functools.partial(link_options, "profile"))
def demo(
    link: "LinkOptions",
    duration: Annotated[
        float, typer.Option(help="Duration of the TCP download, s.", min=5, max=300)
    ] = 15,
    loads: Annotated[int, typer.Option(help="Page loads per protocol.", min=1, max=50)] = 1,
    runs: Runs = Path("runs"),
    json_lines: Records = False,
    wait_quiet: WaitQuiet = 0.0,
    retries: Retries = 1,
    rate_once: RateOnce = False,
    quiet: Quiet = False,
) -> int:
    """Measure TCP goodput and page loads over HTTP/1.1 and HTTP/3, and show a table and a report.

    This takes less than two minutes.
    """
    from satlab.common.processes import stop_on_signal
    from satlab.run import demo as demonstration
    from satlab.run import link_rate_cache
    from satlab.run.quiet_host import Patience

    needs.ensure("lab")
    link_rate_cache.use(rate_once)
    needs.root(NETNS)
    show = demonstration.Demo(link.profile, duration, loads, runs, Patience(wait_quiet, retries))
    return show.run(
        ProgressLog(quiet),
        stop_on_signal(),
        lambda f, r: print_records(f, r, json_lines=json_lines, csv=False, quiet=quiet),
    )


@command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: report/index.html of the first run."),
    ] = None,
    json_lines: Records = False,
    csv: RecordsCsv = False,
) -> int:
    """Make the records and the report again from raw files. Several runs share one report."""
    from satlab.report import run_names
    from satlab.run import rebuild_report

    frames, path = rebuild_report.rebuild(folders, out, ProgressLog())
    names = run_names.of_folders(folders) if len(folders) > 1 else None
    print_records([path], frames, json_lines=json_lines, csv=csv, names=names)
    return ExitStatus.OK


@command(epilog="Example: satlab export runs/* --out study.csv")
def export(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="File to write: NAME.parquet, NAME.csv, or NAME.har.")],
    series: Annotated[
        bool,
        typer.Option(
            "--series", help="Also write the samples over time. Default: only the summaries."
        ),
    ] = False,
) -> int:
    """Write the records of runs as one table. Each row has the values, seed, link and versions of its
    run.

    NAME.har has the requests of observed page loads (--set observed=N) as HAR 1.2.
    """
    from satlab.run import rebuild_report

    say(f"{rebuild_report.export(folders, out, has_series=series)} rows: {out}")
    return ExitStatus.OK


@command()
def influx(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    to: Annotated[
        str,
        typer.Option(
            envvar="SATLAB_INFLUX",
            help="InfluxDB that gets the statistics.",
            metavar="http://USER:PASSWORD@HOST:8086/DATABASE",
        ),
    ],
) -> int:
    """Send the statistics of runs to an InfluxDB 1.x. Sending them again makes no duplicates."""
    from satlab.run import influx as database

    say(f"{database.send(folders, to)} points")
    return ExitStatus.OK


profile_app = typer.Typer(no_args_is_help=True, help="OpenSAND profiles.")
app.add_typer(profile_app, name="profile")


page_app = typer.Typer(no_args_is_help=True, help="Pages that the lab serves.")
app.add_typer(page_app, name="page")


@command(
    page_app, name="import", epilog="Example: satlab page import www.example.com.har --name example"
)
def import_page(
    source: Annotated[
        Path,
        typer.Argument(help="HAR file of one page load (also .gz, .zip), or the folder of a site."),
    ],
    name: Annotated[str, typer.Option(help="Name of the page: a-z, 0-9, hyphens.")],
    document: Annotated[
        str, typer.Option(help="If SOURCE is a folder: path of the HTML document in it.")
    ] = "index.html",
) -> int:
    """Make a page of web-targets/ with objects of the same types, sizes, domains and order. No content
    is copied.
    """
    from pathlib import PurePosixPath

    from satlab.run.page_import import page_folder

    imported = page_folder.run(source, name, PurePosixPath(document))
    for note in imported.notes:
        ProgressLog().line(note)
    page = imported.page
    say(f"{name}: {len(page.objects)} objects, {page.total_bytes} bytes, {len(page.hosts)} domains")
    say(f"./satlab run page_load --set protocol=h3 --set page={name}")
    return ExitStatus.OK


@command(profile_app, name="import")
def import_profile(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of an OpenSAND 8.2 lab, in the layout of any of its tools."),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="New folder for the profile. Default: a folder here with the same name as FOLDER."
        ),
    ] = None,
) -> int:
    """Write the profile of an OpenSAND lab, and print what the lab contains and what satlink cannot
    emulate.
    """
    from satlab.run import profile_import

    needs.ensure("link")
    for line in profile_import.run(folder, to or Path(folder.resolve().name)).lines():
        say(line)
    return ExitStatus.OK


@command(options=functools.partial(link_options, "lenient"))
def validate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files to check: profiles, scenarios, timelines, jobs, pages, lab.yml, or folders."
        ),
    ],
    link: "LinkOptions",
    jobs: Jobs = None,
) -> int:
    """Check files without changing anything, and print every fault."""
    from satlab.run import validate

    needs.ensure("link")
    log = ProgressLog()

    def checked(path: Path) -> int:
        for warning in validate.check(path, lenient=link.lenient, jobs=jobs):
            log.line(warning)
        log.line(f"{path}: ok")
        return ExitStatus.OK

    return max([status_of(functools.partial(checked, path)) for path in paths])
