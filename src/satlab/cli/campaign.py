# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns over many machines: `satlab campaign ...`."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satlab.cli.base import Quiet, app, command, print_json_lines
from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ExitStatus
from satlab.common.needs import NETNS, Group
from satlab.common.processes import stop_on_signal

if TYPE_CHECKING:
    from satlab.campaign.plan import Plan

campaign_app = typer.Typer(
    no_args_is_help=True, help="Plan many runs once, and run them on one host or on many."
)
app.add_typer(campaign_app, name="campaign")
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
    from satlab.campaign import planning
    from satlab.common.files import write_atomically
    from satlab.papers.executor import duration

    needs.ensure("link")
    plan = planning.plan(file)
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
            help="Where tasks run: on this host, as jobs of Slurm, or on the hosts of a file."
        ),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            help=(
                "Tasks at once. Default: one per core; labs as many as `bench host` found, else"
                " half of the cores."
            ),
            min=1,
            max=1000,
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            help="Repeat a task that is out of calibration up to this many times.", min=0, max=10
        ),
    ] = 1,
    partition: Annotated[str | None, typer.Option(help="Partition of Slurm.")] = None,
    hosts: Annotated[
        Path | None, typer.Option(help="YAML file of the hosts for ssh (docs/campaigns.md).")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the campaign, on all its hosts. Default: runs/campaign-NAME."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, print what is left, change nothing."),
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Run the tasks of a campaign that are left; the same command goes on after any end."""
    from satlab.campaign import engine, planning

    needs.ensure("link")
    plan = planning.plan(file)
    work = engine.choose(plan, folder, engine.Options(executor, jobs, retries, partition, hosts))
    if dry_run:
        say(json.dumps(work.document(), indent=1))
        return ExitStatus.OK
    if hosts is None:
        _install(plan)
    else:  # the hosts have what the tasks need
        needs.ensure("campaign")
    return work.run(ProgressLog(quiet), stop_on_signal())


def _install(plan: "Plan") -> None:
    """Install what the tasks of a plan need."""
    groups: list[Group] = ["campaign"]
    groups += ["virtual"] if any(task.lab == "virtual" for task in plan.tasks) else []
    has_labs = any(task.lab == "netns" for task in plan.tasks)
    needs.ensure(*groups, *(("lab", "quic", "fec") if has_labs else ()))
    if has_labs:
        needs.root(NETNS)


@command(group=campaign_app, name="batch", hidden=True)
def batch_of_campaign(
    folder: Annotated[Path, typer.Argument(help="Folder of the campaign.")],
    name: Annotated[str, typer.Argument(help="Id of the batch.")],
    plan: Annotated[str, typer.Option(help="SHA-256 of the plan.")],
    retries: Annotated[
        int, typer.Option(help="Further attempts of a task out of calibration.", min=0, max=10)
    ] = 0,
    hosts: Annotated[
        Path | None, typer.Option(help="Run attempts over ssh on the hosts of this file.")
    ] = None,
    turns: Annotated[
        bool, typer.Option("--turns", help="Run as many labs at once as this host can emulate.")
    ] = False,
) -> int:
    """Run a batch of a campaign's tasks; the campaign's engine calls this on a host."""
    from satlab.campaign import attempt
    from satlab.campaign import hosts as hosts_files
    from satlab.campaign import plan as plans
    from satlab.campaign import turns as turns_of_host
    from satlab.campaign.folder import CampaignFolder
    from satlab.campaign.over_ssh import OverSsh
    from satlab.campaign.worker import Worker

    where = CampaignFolder(folder)
    here = turns_of_host.in_turn if turns else attempt.here
    measure = here
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
    from satlab.campaign import remote

    return remote.serve(sys.stdin.fileno(), sys.stdout.buffer, stop_on_signal())


@command(
    group=campaign_app,
    name="manifest",
    epilog="Example: satlab campaign manifest queues.yml --image I --claim C",
)
def manifest_of_campaign(
    file: File,
    image: Annotated[str, typer.Option(help="Image that holds satlab: make release makes one.")],
    claim: Annotated[
        str, typer.Option(help="PersistentVolumeClaim that all nodes can write, for the folder.")
    ],
    jobs: Annotated[int, typer.Option(help="Pods at once.", min=1, max=10_000)] = 4,
    namespace: Annotated[str, typer.Option(help="Kubernetes namespace.")] = "default",
    retries: Annotated[
        int,
        typer.Option(
            help="Repeat a task that is out of calibration up to this many times.", min=0, max=10
        ),
    ] = 1,
) -> int:
    """Print a campaign as a Kubernetes Job with one pod for each task, for kubectl apply."""
    import yaml

    from satlab.campaign import kubernetes, planning

    needs.ensure("link")
    cluster = kubernetes.Cluster(image, claim, jobs, namespace, retries)
    documents = kubernetes.documents(planning.plan(file), cluster)
    say(yaml.safe_dump_all(documents, sort_keys=False, width=200).removesuffix("\n"))
    return ExitStatus.OK


@command(group=campaign_app, name="pod", hidden=True)
def pod_of_campaign(
    plan: Annotated[str, typer.Option(help="SHA-256 of the plan.")],
    retries: Annotated[
        int, typer.Option(help="Further attempts of a task out of calibration.", min=0, max=10)
    ] = 0,
) -> int:
    """Do the task of this pod: the Job of `satlab campaign manifest` starts this."""
    from satlab.campaign import kubernetes
    from satlab.campaign.worker import Worker

    folder, name = kubernetes.task_of_pod(os.environ.get(kubernetes.INDEX), plan)
    return Worker(folder, plan, retries).work(name, stop_on_signal())


@command(group=campaign_app, name="report")
def report_campaign(
    folder: Annotated[Path, typer.Argument(help="Folder of the campaign.")],
    json_lines: Annotated[
        bool, typer.Option("--json", help="The dataset as JSON lines on stdout.")
    ] = False,
) -> int:
    """Collect what is done as one Parquet dataset, test the effect of the host, and write the
    report page.
    """
    from satlab.campaign import conclusions, dataset, host_effect, page
    from satlab.campaign import plan as plans
    from satlab.campaign.folder import CampaignFolder

    where, log = CampaignFolder(folder), ProgressLog()
    plan = plans.load(where.plan_file)
    with log.step("hashes and dataset"):
        collected = dataset.collect(plan, where)
    for task, fault in collected.changed.items():
        log.line(f"warning: {task}: {fault}")
    found = conclusions.of_paper(plan, where, collected)
    for one in found.judged:
        log.line(f"{one.title}: {one.verdict} ({one.evidence})")
    found.write(where.path)
    path = page.write(plan, where, collected, host_effect.effects(collected.frame), found.judged)
    if json_lines:
        print_json_lines(collected.frame.iter_rows(named=True))
    else:
        say(path)
    return ExitStatus.OK
