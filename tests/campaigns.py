# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign of short tasks under the virtual clock:

`python tests/campaigns.py FOLDER TASKS [EXECUTOR [PARTITION]]`.

`python tests/campaigns.py FOLDER TASKS kill SEED` runs it with five kills and prints how often each
task ended.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from satlab.campaign import dataset, engine
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_request import Flows
from satlab.common import paths, processes
from satlab.common.console import ProgressLog

CELLS = 10
KILLS = ("engine", "task", "everything", "engine", "everything")
DEADLINE_S = 600.0


def flows(seed: int) -> dict[str, Any]:
    """Return two seconds of one QUIC connection over 10 Mbit/s."""
    half = {
        "rate_mbps": 10,
        "delay_ms": 50,
        "queue": {"bytes": 125_000},
        "loss": {"ratio": 0.01, "unit": "packet"},
    }
    flow = {
        "id": "flow",
        "group": "all",
        "from": "server1",
        "to": "client1",
        "stack": "quinn",
        "start_s": 0,
    }
    return {
        "schema": "satlab/virtual-flows/1",
        "seed": seed,
        "duration_s": 2,
        "bin_ms": 100,
        "phases_s": [],
        "wire": {"forward": half, "return": half, "timeline": []},
        "flows": [flow | {"congestion_control": "cubic", "datagram_bytes": 1200}],
    }


def plan(count: int, deadline_s: float = 600) -> Plan:
    """Return a plan of so many tasks in CELLS cells."""
    factors = {"paper": "seed-003", "clock": "virtual", "cell": "test4/newreno"}
    cells: Any = {f"cell-{n}": factors | {"n": n} for n in range(min(CELLS, count))}
    tasks = tuple(
        Task(
            id=f"cell-{n % CELLS}.{n // CELLS + 1}",
            cell=f"cell-{n % CELLS}",
            number=n // CELLS + 1,
            request=Flows(verb="flows", flows=flows(n)),
            estimate_s=1,
            cores=1,
        )
        for n in range(count)
    )
    return Plan(name="short", deadline_s=deadline_s, cells=cells, tasks=tasks)


def start(folder: Path, count: int) -> "subprocess.Popen[bytes]":
    """Start the campaign as a process of its own."""
    argv = [sys.executable, __file__, str(folder), str(count)]
    variables = os.environ | {
        "PYTHONPATH": paths.PYTHONPATH,
        paths.PROGRAMS_VARIABLE: str(paths.PROGRAMS),
    }
    return subprocess.Popen(argv, env=variables, start_new_session=True, stderr=subprocess.DEVNULL)


def of_campaign(folder: Path, word: str) -> list[int]:
    """Return the processes that have a word and the campaign's folder in their command line, or
    work in its tasks.
    """
    found, ours = [], _ancestors()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((place / "cwd").readlink())
        except OSError:
            continue
        is_meant = f"{folder}" in words or where.startswith(f"{folder}/")
        if is_meant and word in words and int(place.name) not in ours:
            found.append(int(place.name))
    return found


def _ancestors() -> set[int]:
    """Return this process and those that started it."""
    found: set[int] = set()
    process = processes.read_process(os.getpid())
    while process is not None and process.pid not in found:
        found.add(process.pid)
        process = processes.read_process(process.parent)
    return found


def workers(folder: Path) -> list[int]:
    """Return the processes that do a batch of the campaign's.

    Snakemake's own command line has their words, too.
    """
    return sorted(
        set(of_campaign(folder, "campaign batch")) - set(of_campaign(folder, "snakemake"))
    )


def kill(what: str, child: "subprocess.Popen[bytes]", folder: Path, source: random.Random) -> int:
    """Kill the engine, one task's worker, or everything; return how many processes got SIGKILL."""
    if what == "engine":
        pids = [child.pid]
    elif what == "task":
        pids = [source.choice(found)] if (found := workers(folder)) else []
    else:
        pids = of_campaign(folder, "")
    killed = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def interrupted(folder: Path, count: int, seed: int) -> list[str]:
    """Run the campaign with KILLS at random moments, and to its end; return what was killed and
    when.
    """
    source, log = random.Random(seed), []  # noqa: S311 - moments, no secrets
    moments = sorted(source.sample(range(1, max(count * 9 // 10, len(KILLS) + 1)), len(KILLS)))
    child = start(folder, count)
    where, whole = CampaignFolder(folder), plan(count)
    for what, moment in zip(KILLS, moments, strict=True):
        if child.poll() is not None:
            child = start(folder, count)
        processes.wait(lambda at=moment: count - len(where.left(whole)) >= at, DEADLINE_S)  # type: ignore[misc]
        time.sleep(source.uniform(0, 0.5))  # a random moment of a task, too
        deadline = time.monotonic() + DEADLINE_S
        while not (killed := kill(what, child, folder, source)) and time.monotonic() < deadline:
            time.sleep(0.01)  # there is no worker between two batches
        log.append(f"{what}: {killed} killed at {count - len(where.left(whole))} done")
        if what != "task":
            child.wait()
    if child.poll() is not None:
        child = start(folder, count)
    if child.wait(DEADLINE_S) != 0:
        log.append(f"the last engine ended with {child.returncode}")
    return log


def rows_of_tasks(folder: Path, count: int) -> Counter[str]:
    """Return how often each task is in the dataset."""
    frame = dataset.collect(plan(count), CampaignFolder(folder)).frame
    done = frame.filter((frame["metric"] == dataset.TASK_METRIC) & (frame["status"] == "ok"))
    return Counter(done["task"].to_list())


def main() -> int:
    folder, count, *more = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    if more[:1] == ["kill"]:
        log = interrupted(folder, count, int(more[1]))
        ends = Counter(rows_of_tasks(folder, count).values())
        attempts = Counter(len(CampaignFolder(folder).attempts(task)) for task in plan(count).tasks)
        print(
            json.dumps(
                {"killed": log, "tasks by number of rows": ends, "by number of attempts": attempts},
                indent=1,
            )
        )
        return 0
    executor: Any = more[0] if more else "local"
    options = engine.Options(executor, 2, 1, more[1] if len(more) > 1 else None)
    return engine.choose(plan(count), folder, options).run(
        ProgressLog(), processes.stop_on_signal()
    )


if __name__ == "__main__":
    sys.exit(main())
