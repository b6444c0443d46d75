# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the table "Before the redesign and now" of docs/measurements.md; print it with a new last
column.

As root, on a quiet host; about 25 minutes. Raw files go to `runs/compare`.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measurements.md"
HEADING = "## Before the redesign and now"
OUT = ROOT / "runs" / "compare"
CASES = ("small-download", "small-upload", "medium", "medium-congested", "medium-variable", "large")
Figures = Iterator[tuple[str, str]]


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
            yield f"`demo`: {metric} {protocol}, {unit}", f"{statistics.median(values):.2f}"


def check() -> Figures:
    """Yield the suite's median times under the virtual clock."""
    (document,) = satlab("check", "--json", "--out", str(OUT))
    for case in document["cases"]:
        if case["id"] in CASES:
            times = [verdict["median_s"] for verdict in case["verdicts"]]
            text = ", ".join("never" if time is None else f"{time:.2f}" for time in times)
            yield f"`check`: {case['id']}, s to 2, 10, 100 MB", text


def link() -> Figures:
    """Yield what the emulator takes and how exact it is."""
    (document,) = satlab("bench", "link", "--seconds", "10", "--json")
    for rate in document["rates"]:
        load, name = rate["load"], f"`bench link`: {rate['rate_mbps']:g} Mbit/s"
        p99 = max(
            rate["late"][direction]["p99_us"] or 0 for direction in ("forward", "terrestrial_down")
        )
        yield (
            f"{name}: CPU, % of a core",
            f"{100 * load['emulator_cores']:.1f}" if load else rate["failure"],
        )
        yield f"{name}: release error p99, us", f"{p99:.0f}"


def agree() -> Figures:
    """Yield the largest deviation of the real from the virtual clock."""
    (document,) = satlab("bench", "agree", "--cases", ",".join(CASES), "--json")
    deviations = [mark["deviation"] for case in document["cases"] for mark in case["marks"]]
    measured = [abs(deviation) for deviation in deviations if deviation is not None]
    text = (
        f"{100 * max(measured):.1f} % of {len(measured)} comparisons"
        if measured
        else "not measured"
    )
    if 0 < len(measured) < len(deviations):
        text += f"; {len(deviations) - len(measured)} not measurable"
    yield "`bench agree`: largest deviation", text


def reproduce() -> Figures:
    """Yield page metrics of HTTP/3 over GEO without loss."""
    words = ("--runs", "10", "--cells", "geo/0/h3", "--parallel", "1", "--out", str(OUT), "--json")
    (document,) = satlab("reproduce", "seed-002", *words)
    for line in document["figures"]:
        if line["runs"]:
            low, high = line["interval"]
            figure = f"{line['ours']:.0f} ({low:.0f} to {high:.0f})"
            yield f"`reproduce seed-002 --cells 'geo/0/h3'`: {line['metric']}", figure


MEASUREMENTS: tuple[Callable[[], Figures], ...] = (demo, check, link, agree, reproduce)


def table(text: str, found: dict[str, str]) -> Iterator[str]:
    """Yield the rows of the document's table with new figures in the last column; rows that it
    lacks come last.
    """
    rows = [
        line
        for line in text.partition(HEADING)[2].split("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    for row in rows:
        name, before, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        yield f"| {name} | {before} | {found.pop(name)} |" if name in found else row
    yield from (f"| {name} | not recorded | {value} |" for name, value in found.items())


def main() -> int:
    """Measure all, or the commands named on the command line, and print the table."""
    chosen = [each for each in MEASUREMENTS if each.__name__ in sys.argv[1:] or not sys.argv[1:]]
    found = {name: value for measurement in chosen for name, value in measurement()}
    print("\n".join(table(TABLE.read_text(encoding="utf-8"), found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
