# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the main figures again and write them to docs/results/compare.json.

As root, on a quiet host; about 25 minutes. Raw files go to `runs/compare`. Figures of measurements
that are not named on the command line stay as they are.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "compare.json"
OUT = ROOT / "runs" / "compare"
CASES = ("small-download", "small-upload", "medium", "medium-congested", "medium-variable", "large")
Figure = dict[str, Any]
Figures = Iterator[Figure]


def figure(name: str, value: float | str, unit: str, **more: object) -> Figure:
    """Return a figure as docs/results has it."""
    return {"name": name, "value": value, "unit": unit, **more}


def satlab(*words: str) -> list[Any]:
    """Run a command; return the JSON documents of its stdout.

    A status of 4 (out of calibration) is printed.

    Raises:
        RuntimeError: it failed.
    """
    print(f"satlab {' '.join(words)} ...", file=sys.stderr)
    done = subprocess.run([ROOT / "satlab", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 4):  # 1: a target of the suite was missed, which is a figure
        raise RuntimeError(f"satlab {words[0]} ended with {done.returncode}")
    if done.returncode == 4:
        print(f"satlab {words[0]}: out of calibration", file=sys.stderr)
    decoder, text, found = json.JSONDecoder(), done.stdout.lstrip(), list[Any]()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


def demo() -> Figures:
    """Yield the medians of goodput and of page load times."""
    records = satlab("demo", "--json", "--runs", str(OUT))
    for metric, scale, unit in (("goodput_bps", 1e6, "Mbit/s"), ("page_load_time_ms", 1e3, "s")):
        by_protocol: dict[str, list[float]] = {}
        for record in records:
            is_sample = (
                record["t_s"] is None
                and "stat" not in record["labels"]
                and record["status"] == "ok"
            )
            if record["metric"] == metric and is_sample:
                by_protocol.setdefault(record["labels"].get("protocol", "tcp"), []).append(
                    record["value"] / scale
                )
        for protocol, values in by_protocol.items():
            yield figure(f"{metric} {protocol}", round(statistics.median(values), 2), unit)


def check() -> Figures:
    """Yield the suite's median times under the virtual clock."""
    (document,) = satlab("check", "--json", "--out", str(OUT))
    for case in document["cases"]:
        if case["id"] in CASES:
            for size, verdict in zip((2, 10, 100), case["verdicts"], strict=True):
                time = verdict["median_s"]
                value = "never" if time is None else round(time, 2)
                yield figure(f"{case['id']}, {size} MB", value, "s")


def link() -> Figures:
    """Yield what the emulator takes and how exact it is."""
    (document,) = satlab("bench", "link", "--seconds", "10", "--json")
    for rate in document["rates"]:
        load, name = rate["load"], f"{rate['rate_mbps']:g} Mbit/s"
        p99 = max(
            rate["late"][direction]["p99_us"] or 0 for direction in ("forward", "terrestrial_down")
        )
        cpu = round(100 * load["emulator_cores"], 1) if load else rate["failure"]
        yield figure(f"{name}: CPU", cpu, "% of a core")
        yield figure(f"{name}: release error p99", round(p99), "us")


def agree() -> Figures:
    """Yield the largest deviation of the real from the virtual clock."""
    (document,) = satlab("bench", "agree", "--cases", ",".join(CASES), "--json")
    deviations = [mark["deviation"] for case in document["cases"] for mark in case["marks"]]
    measured = [abs(deviation) for deviation in deviations if deviation is not None]
    largest = round(100 * max(measured), 1) if measured else "not measured"
    yield figure("largest deviation", largest, "%", n=len(measured))


def reproduce() -> Figures:
    """Yield page metrics of HTTP/3 over GEO without loss."""
    words = ("--runs", "10", "--cells", "geo/0/h3", "--parallel", "1", "--out", str(OUT), "--json")
    (document,) = satlab("reproduce", "seed-002", *words)
    for line in document["pages"]:
        if line["n"]:
            interval = [round(line["low"]), round(line["high"])]
            yield figure(line["metric"], round(line["median"]), "ms", interval=interval)


COMMANDS: dict[str, tuple[Callable[[], Figures], str, str]] = {
    "demo": (demo, "The demo, medians", "satlab demo"),
    "check": (check, "The ETOSAT suite under the virtual clock", "satlab check"),
    "link": (link, "The emulator", "python -m benches link --seconds 10"),
    "agree": (agree, "Real clock against virtual clock", "python -m benches agree"),
    "reproduce": (
        reproduce,
        "Page metrics of h3 over GEO, medians of 10",
        "satlab reproduce seed-002 --runs 10 --cells geo/0/h3 --parallel 1",
    ),
}


def main() -> int:
    """Measure all, or the commands named on the command line, and write the file."""
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    host = f"{os.cpu_count()} cores, {platform.platform()}"
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    results = {result["command"]: result for result in document["results"]}
    for name in sys.argv[1:] or COMMANDS:
        measure, what, command = COMMANDS[name]
        results[command] = {
            "what": what,
            "command": command,
            "commit": commit,
            "date": f"{datetime.date.today()}",
            "host": host,
            "figures": list(measure()),
        }
    document["results"] = list(results.values())
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("now: make generate", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
