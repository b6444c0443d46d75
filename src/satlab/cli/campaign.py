# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns over many machines: `satlab campaign ...`."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satlab.cli.base import Quiet, RateOnce, Retries, WaitQuiet, app, command, print_json_lines
from satlab.common import escape, needs, scratch
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.needs import NETNS, Group
from satlab.papers.shipped_papers import KNOWN_AS, NamedPaper

if TYPE_CHECKING:
    from satlab.campaign.campaign_folder import CampaignFolder
    from satlab.campaign.dataset import Collected
    from satlab.campaign.plan_file import Plan

campaign_app = typer.Typer(
    no_args_is_help=True, help="Plan many runs, and run them on one host or on many."
)
app.add_typer(campaign_app, name="campaign")
TaskRetries = Annotated[
    int,
    typer.Option(
        help="Repeat a task that is out of calibration up to this many times.", min=0, max=10
    ),
]
File = Annotated[Path, typer.Argument(help="YAML file of the campaign (docs/campaigns.md).")]


@command(
    group=campaign_app,
    name="plan",
    epilog="Example: satlab campaign plan queues.yml --out plan.json",
)
def plan_campaign(
    file: File,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan to this file. Default: stdout.")
    ] = None,
) -> int:
    """Check a campaign's file and plan its tasks as JSON; runs nothing."""
    from satlab.campaign import planner
    from satlab.campaign.engine import duration
    from satlab.common.files import write_atomically

    needs.ensure("link")
    plan = planner.plan(file)
    if out is None:
        say(plan.text().removesuffix("\n"))
    else:
        write_atomically(out, plan.text())
    total = f"{len(plan.cells)} cells, {len(plan.tasks)} tasks"
    ProgressLog().line(
        f"{plan.name}: {total}, about {duration(plan.estimate_s)} one after the other"
    )
    return ExitStatus.OK


@command(
    group=campaign_app,
    name="run",
    epilog="Example: satlab campaign run queues.yml --executor local --jobs 2",
)
def run_campaign(
    file: File,
    executor: Annotated[
        Literal["local", "slurm", "ssh"],
        typer.Option(
            help="Where tasks run: on this host, as Slurm jobs, or on the hosts of --hosts."
        ),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            help=(
                "Tasks at the same time. Default: one per core; of tasks with labs as many as"
                " `bench host` found, or one per two cores if it was not run."
            ),
            min=1,
            max=1000,
        ),
    ] = None,
    retries: TaskRetries = 1,
    partition: Annotated[str | None, typer.Option(help="Slurm partition.")] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(help="With --executor ssh: YAML file of the hosts (docs/campaigns.md)."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the campaign. Default: runs/campaign-NAME."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything, print the tasks that are not done, change nothing."
        ),
    ] = False,
    wait_quiet: WaitQuiet = 0.0,
    rate_once: RateOnce = False,
    quiet: Quiet = False,
) -> int:
    """Run the tasks of a campaign that are not done, and write its report. After a stop the same
    command continues.
    """
    from satlab.campaign import campaign_report, engine, planner
    from satlab.common.processes import stop_on_signal
    from satlab.run import link_rate_cache

    needs.ensure("link")
    link_rate_cache.use(rate_once)
    plan = planner.plan(file)
    options = engine.Options(executor, jobs, retries, partition, hosts, wait_quiet)
    work = engine.choose(plan, folder, options)
    if dry_run:
        say(json.dumps(work.document(), indent=1))
        return ExitStatus.OK
    if hosts is None:
        _install(plan)
    else:  # the hosts have what the tasks need
        needs.ensure("campaign")
    log = ProgressLog(quiet)
    status = work.run(log, stop_on_signal())
    if status == ExitStatus.INTERRUPTED:
        log.line("stopped; the same command goes on")
        return status
    collected, page = _report(plan, work.folder, log)
    if words := campaign_report.summary(collected):
        print(escape.lines(words), file=sys.stderr)
    say(page)
    return status


def _install(plan: "Plan") -> None:
    """Install what the tasks of a plan need."""
    from satlab.campaign.task_request import Flows

    labs = [task.request for task in plan.tasks if task.lab == "netns"]
    files = [one.flows for one in labs if isinstance(one, Flows)]
    stacks = {flow["stack"] for flows in files for flow in flows["flows"]}
    groups: list[Group] = ["campaign"]
    groups += ["virtual"] if stacks or len(labs) < len(plan.tasks) else []
    groups += ["lab", "quic", "fec"] if labs else []
    groups += ["ngtcp2"] if stacks else []
    groups += ["picoquic"] if "picoquic" in stacks else []
    needs.ensure(*groups)
    if labs:
        needs.root(NETNS)


@command(group=campaign_app, name="batch", hidden=True)
def batch_of_campaign(
    folder: Annotated[Path, typer.Argument(help="Folder of the campaign.")],
    name: Annotated[str, typer.Argument(help="ID of the batch.")],
    plan: Annotated[str, typer.Option(help="SHA-256 of the plan.")],
    retries: Annotated[
        int,
        typer.Option(help="Further attempts at a task that is out of calibration.", min=0, max=100),
    ] = 0,
    hosts: Annotated[
        Path | None, typer.Option(help="Run attempts over ssh on the hosts of this file.")
    ] = None,
    slots: Annotated[
        bool,
        typer.Option("--slots", help="Run as many labs at the same time as this host can emulate."),
    ] = False,
    wait_quiet: WaitQuiet = 0.0,
) -> int:
    """Run a batch of a campaign's tasks; the campaign's engine calls this on a host."""
    from satlab.campaign import hosts_file as hosts_files
    from satlab.campaign import plan_file as plans
    from satlab.campaign.attempt import Measure
    from satlab.campaign.campaign_folder import CampaignFolder
    from satlab.campaign.lab_slots import OnThisHost
    from satlab.campaign.ssh_dispatch import OverSsh
    from satlab.campaign.worker import Worker
    from satlab.common.processes import stop_on_signal

    where = CampaignFolder(folder)
    measure: Measure = OnThisHost(slots, wait_quiet)
    if hosts:
        known = hosts_files.load(hosts)
        measure = OverSsh(known, where, plans.load(where.plan_file, plan).answer_mib << 20)
    return Worker(where, plan, retries, measure).work_batch(
        name, stop_on_signal(), ProgressLog().line
    )


@command(group=campaign_app, name="attempt", hidden=True)
def attempt_of_campaign() -> int:
    """Run one attempt for another host's campaign, which calls this over ssh, with the request on
    stdin.
    """
    from satlab.campaign import ssh_attempt
    from satlab.common.processes import stop_on_signal

    return ssh_attempt.serve(sys.stdin.fileno(), sys.stdout.buffer, stop_on_signal())


@command(
    group=campaign_app,
    name="manifest",
    epilog="Example: satlab campaign manifest queues.yml --image I --claim C",
)
def manifest_of_campaign(
    file: File,
    image: Annotated[
        str, typer.Option(help="Container image with satlab; `make release` makes one.")
    ],
    claim: Annotated[
        str,
        typer.Option(
            help="PersistentVolumeClaim for the folder of the campaign; all nodes must be able to write it."
        ),
    ],
    jobs: Annotated[int, typer.Option(help="Pods at the same time.", min=1, max=10_000)] = 4,
    namespace: Annotated[str, typer.Option(help="Kubernetes namespace.")] = "default",
    retries: TaskRetries = 1,
) -> int:
    """Print a campaign as a Kubernetes Job with one pod for each task, for kubectl apply."""
    import yaml

    from satlab.campaign import kubernetes, planner

    needs.ensure("link")
    cluster = kubernetes.Cluster(image, claim, jobs, namespace, retries)
    documents = kubernetes.documents(planner.plan(file), cluster)
    say(yaml.safe_dump_all(documents, sort_keys=False, width=200).removesuffix("\n"))
    return ExitStatus.OK


@command(group=campaign_app, name="pod", hidden=True)
def pod_of_campaign(
    plan: Annotated[str, typer.Option(help="SHA-256 of the plan.")],
    retries: Annotated[
        int,
        typer.Option(help="Further attempts at a task that is out of calibration.", min=0, max=10),
    ] = 0,
) -> int:
    """Do the task of this pod: the Job of `satlab campaign manifest` starts this."""
    from satlab.campaign import kubernetes
    from satlab.campaign.worker import Worker
    from satlab.common.processes import stop_on_signal

    folder, name = kubernetes.task_of_pod(os.environ.get(kubernetes.INDEX), plan)
    return Worker(folder, plan, retries).work(name, stop_on_signal())


def _report(plan: "Plan", where: "CampaignFolder", log: ProgressLog) -> tuple["Collected", Path]:
    """Collect the tasks of a campaign, and write its page; return what was collected, and the page.

    Raises ConfigError.
    """
    from satlab.campaign import campaign_report, dataset, host_effect, reproduction
    from satlab.papers import results

    with log.step("hashes and dataset"):
        collected = dataset.collect(plan, where)
    for task, fault in collected.changed.items():
        log.line(f"warning: {task}: {fault}")
    judgements = []
    if reproduction.is_of_paper(plan):
        try:
            found = reproduction.judged(plan, where, collected)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ConfigError(f"{where.path}: outputs of its tasks have another shape") from error
        judgements = [one for one in found.judgements if one.verdict != "not measured"]
        with scratch.folder("results") as own:
            file = results.write(found, own)
            dataset.place_in(where.path, f"report/{file.name}", file)
    for one in judgements:
        log.line(f"{one.conclusion.text}: {one.verdict} ({'; '.join(one.evidence)})")
    path = campaign_report.write(
        plan, where, collected, host_effect.effects(collected.frame), judgements
    )
    return collected, path


@command(group=campaign_app, name="report")
def report_campaign(
    folder: Annotated[Path, typer.Argument(help="Folder of the campaign.")],
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the dataset as JSON lines on stdout.")
    ] = False,
) -> int:
    """Collect the finished tasks in one Parquet dataset, test whether hosts differ, and write the
    report page.
    """
    from satlab.campaign import plan_file as plans
    from satlab.campaign.campaign_folder import CampaignFolder

    where = CampaignFolder(folder)
    collected, path = _report(plans.load(where.plan_file), where, ProgressLog())
    if json_lines:
        print_json_lines(collected.frame.iter_rows(named=True))
    else:
        say(path)
    return ExitStatus.OK


@command(epilog="Example: satlab reproduce bujari --quick")
def reproduce(
    paper: Annotated[
        NamedPaper,
        typer.Argument(
            help=(
                "martin-2022 (seed-000): QUIC over GEO, thesis. petrou-2022 (seed-001): FEC tunnel,"
                " ASMS. kosek-2022 (seed-002): proxies for QUIC and HTTP/3, IFIP Networking. bujari"
                " (seed-003): congestion control across a handover. kuhn-2021 (seed-004): QUIC in"
                " SATCOM. rfc-9959: what Careful Resume costs other flows."
            )
        ),
    ],
    clock: Annotated[
        Literal["real", "virtual"] | None,
        typer.Option(
            help=(
                "real: labs in real time (not rfc-9959, kuhn-2021). virtual: flows under the"
                " virtual clock (not kosek-2022)."
            )
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Run only the cells that the conclusions need, each as often as a verdict needs.",
        ),
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Runs of each cell. Default: the number in the paper's file.",
            min=1,
            max=10000,
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help=(
                "Cells to run, ORBIT/LOSS/TYPE,... with * for any text: geo/0/h1,leo/*/quic*; for"
                " bujari: test4/*,more/pie/*. Default: all cells of the paper. The types"
                " quic-warm and h3-warm are not in the paper; they run only if named in full."
            )
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Folder of an earlier campaign: run the tasks that it has not done."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help=(
                "File that collects runs from several days and hosts, for papers of scenarios: its"
                " runs in calibration are not repeated, and new ones are added."
            )
        ),
    ] = None,
    parallel: Annotated[
        str,
        typer.Option(
            help=(
                "Runs at the same time: a number or auto. auto is one per core; for labs it is one"
                " with --wait-quiet, otherwise as many as `bench host` found, or one per two cores"
                " if it was not run."
            )
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option(help="Parent folder of the campaign's folder.")] = Path(
        "runs"
    ),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, change nothing.")
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON on stdout.")
    ] = False,
    wait_quiet: WaitQuiet = 0.0,
    retries: Retries = 0,
    rate_once: RateOnce = False,
) -> int:
    """Repeat the experiments of a paper, in labs or under the virtual clock, and compare the figures
    with the published ones.
    """
    from satlab.campaign import reproduction
    from satlab.common.processes import stop_on_signal
    from satlab.run import link_rate_cache
    from satlab.run.quiet_host import Patience

    chosen = None if cells is None else [pattern.strip() for pattern in cells.split(",")]
    patience = Patience(wait_quiet, retries)
    link_rate_cache.use(rate_once)
    name = KNOWN_AS.get(paper, paper)
    request = reproduction.Request(
        name, clock, quick, runs, chosen, resume, parallel, out, patience, keep
    )
    needs.ensure("link")
    work = reproduction.prepare(request)
    if dry_run:
        say(json.dumps(work.document(), indent=1))
        return ExitStatus.OK
    _install(work.engine.plan)
    status = work.run(stop_on_signal())
    work.show(as_json=json_lines)
    return status
