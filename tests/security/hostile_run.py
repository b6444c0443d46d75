# SPDX-License-Identifier: GPL-3.0-or-later
"""Run folders whose raw files are long, or hostile, for tests and by hand.

    python -m tests.security.hostile_run --hours 8 --megabytes 100

collects such a run and prints time and peak memory.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl

from collect.fixtures import example_run
from collect.fixtures.example_run import START, Example, counters
from collect.link_samples import DIRECTIONS

INTERVAL_S = 0.1
LIMIT_MB = 500


def long_run(folder: Path, samples: int) -> Path:
    """Write a run with so many link samples, 0.1 s apart."""
    run = example_run.write(folder, Example(duration_s=6.0, loads={"h1": 2}))
    path = run / "raw" / "link.jsonl"
    header, *_, end = path.read_text().splitlines()
    with path.open("w") as file:
        file.write(f"{header}\n")
        file.writelines(_samples(samples))
        file.write(f"{end}\n")
    return run


def _samples(count: int) -> Iterator[str]:
    rng = random.Random(1)  # noqa: S311 - figures of an example
    some = [json.dumps({d: counters(1e6, 5e4, rng) for d in DIRECTIONS})[1:] for _ in range(1000)]
    for number in range(count):
        yield (
            f'{{"type": "sample", "t_unix_s": {START + 10 + number * INTERVAL_S:.3f},'
            f" {some[number % 1000]}\n"
        )


def many_values(path: Path) -> None:
    """Write a page load whose objects are numbers, as many as are read: each is a fault, and takes
    memory.
    """
    load = json.loads(path.read_text())
    path.write_text(json.dumps(load | {"resources": [1] * 1_900_000}))


def plant(run: Path, megabytes: int) -> list[Path]:
    """Add page loads whose documents are hostile, of so many MB in all; return them."""
    jobs = run / "raw" / "jobs.jsonl"
    (job,) = [
        line
        for line in map(json.loads, jobs.read_text().splitlines())
        if line["job"] == "satlab_page_load"
    ]
    good = (
        run / "raw/files" / f"satlab_page_load-{job['job_instance_id']}" / "page_load_json.json"
    ).read_text()
    kinds = (
        lambda load: json.dumps(load | {"resources": [1] * 1_900_000}),
        lambda load: json.dumps(load | {"url": "x" * (12 << 20)}),
        lambda load: json.dumps(load | {f"more{n}": n for n in range(200_000)}),
        lambda _: "[" * (4 << 20),
        lambda load: json.dumps(load | {"resources": load["resources"] * 40}),
    )
    written, left, number = list[Path](), megabytes * 1_000_000, 100
    while left > 0:
        path = run / "raw/files" / f"satlab_page_load-{number}" / "page_load_json.json"
        path.parent.mkdir()
        path.write_text(kinds[number % len(kinds)](json.loads(good)))
        with jobs.open("a") as file:
            file.write(json.dumps(job | {"job_instance_id": number}) + "\n")
        written.append(path)
        left, number = left - path.stat().st_size, number + 1
    return written


COLLECT = (
    "import sys, pathlib; from satlab.run import reading;"
    " reading.collected(pathlib.Path(sys.argv[1]))"
)


def collected(run: Path) -> tuple[float, int]:
    """Collect in a process of its own; return the time, s, and the peak of resident bytes of all
    its processes.
    """
    began, peak = time.monotonic(), 0
    process = subprocess.Popen([sys.executable, "-c", COLLECT, str(run)])
    while process.poll() is None:
        peak = max(peak, resident_bytes(process.pid))
        time.sleep(0.02)
    if process.returncode != 0:
        raise SystemExit(process.returncode)
    return time.monotonic() - began, peak


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; what they share counts once each."""
    total = 0
    with suppress(OSError):
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += resident_bytes(int(child))
    return total


def main() -> int:
    """Collect; 1 if it takes more than `LIMIT_MB`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="satlab-long-run-") as folder:
        run = long_run(Path(folder), round(options.hours * 3600 / INTERVAL_S))
        planted = plant(run, options.megabytes)
        size_mb = sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) / 1e6
        print(f"{size_mb:.0f} MB of raw files, {len(planted)} hostile", flush=True)
        took, peak = collected(run)
        rows = pl.scan_parquet(run / "records.parquet").select(pl.len()).collect().item()
    print(f"{rows} records in {took:.0f} s; peak memory of all processes: {peak / 1e6:.0f} MB")
    return 1 if peak > LIMIT_MB * 1e6 else 0


if __name__ == "__main__":
    sys.exit(main())
