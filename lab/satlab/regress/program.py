# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check`: samples of every case until the verdicts stand, then targets, baseline, and what to hand on."""

import json
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import satlab
from satlab import paths
from satlab.errors import ConfigError, ExitStatus, Fault
from satlab.regress import judge, links, suite, virtual, why
from satlab.regress.judge import Compared, Judged
from satlab.regress.links import Link
from satlab.regress.suite import Case, Suite
from satlab.regress.virtual import Options, Sample
from satlab.ui import Talk

SCHEMA = "satlab/check/1"
MIN_RUNS = 5
MAX_RUNS = 20
BASELINE_RUNS = 10
"""Samples a comparison starts from: with fewer, no test over the marks of a whole suite can be significant."""


@dataclass(frozen=True)
class Wanted:
    """What a person asks for. `runs` None: as many as the verdicts need."""

    suite: str = "etosat"
    cases: Sequence[str] = ()
    runs: int | None = None
    seed: int = 1
    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    baseline: Path | None = None
    tolerance: float = 0.03
    out: Path = Path("runs")
    jobs: int = os.cpu_count() or 1


@dataclass(frozen=True)
class Findings:
    """All that a check gives."""

    suite: Suite
    links: dict[str, Link]
    samples: dict[str, list[Sample]]
    judged: list[Judged]
    compared: list[Compared] | None
    wanted: Wanted
    folder: Path
    real_s: float

    @property
    def status(self) -> ExitStatus:
        """Give 1 when a target is missed, or with a baseline, when something became slower."""
        if self.compared is not None:
            return ExitStatus.FAILED if any(one.is_slower for one in self.compared) else ExitStatus.OK
        return ExitStatus.FAILED if any(one.result == "fail" for one in self.judged) else ExitStatus.OK

    @property
    def simulated_s(self) -> float | None:
        """Give the time that all samples together would have taken on a real link; None where the clock was real."""
        times = [one.simulated_s for samples in self.samples.values() for one in samples]
        return sum(time or 0.0 for time in times) if any(times) else None

    def spent_s(self, case: str) -> dict[str, float] | None:
        """Give the mean seconds that a transfer of the case spent for each cause; None where none was traced."""
        traced = [one.spent_s for one in self.samples[case] if one.spent_s is not None]
        return why.mean(traced) if traced else None

    def document(self) -> dict[str, Any]:
        """Give what is saved as check.json, and taken as a baseline later (schemas/check.schema.json)."""
        return {
            "schema": SCHEMA,
            "version": satlab.__version__,
            "clock": "virtual",
            "stack": "quinn-proto 0.11",
            "suite": self.suite.name,
            "source": self.suite.source,
            "marks_mb": list(self.suite.marks_mb),
            "options": {"client": dict(self.wanted.client), "server": dict(self.wanted.server)},
            "seed": self.wanted.seed,
            "real_s": round(self.real_s, 3),
            "simulated_s": None if self.simulated_s is None else round(self.simulated_s, 3),
            "cases": [self._case(name) for name in self.samples],
            "compared": None if self.compared is None else [_comparison(one) for one in self.compared],
        }

    def _case(self, name: str) -> dict[str, Any]:
        link = self.links[name]
        return {
            "id": name,
            "forward_mbps": link.forward_mbps,
            "return_mbps": link.return_mbps,
            "rtt_ms": link.plan.rtt_ms.mean,
            "queue_bytes": [link.plan.forward.queue_bytes, link.plan.return_.queue_bytes],
            "spent_s": self.spent_s(name),
            "verdicts": [_verdict(one) for one in self.judged if one.case == name],
            "samples": [asdict(one) for one in self.samples[name]],
        }


def _verdict(one: Judged) -> dict[str, Any]:
    document = asdict(one)
    del document["case"]
    spread = document.pop("interval_s")
    times = {"median_s": one.median_s, "low_s": spread["low"], "high_s": spread["high"]}
    return document | {key: _json(value) for key, value in times.items()}


def _comparison(one: Compared) -> dict[str, Any]:
    times = {"median_s": one.median_s, "baseline_s": one.baseline_s, "ratio": one.ratio}
    return asdict(one) | {key: _json(value) for key, value in times.items()}


def _json(value: float) -> float | None:
    """Give a time as JSON can hold it: null for never."""
    return None if math.isinf(value) else value


def run(wanted: Wanted, talk: Talk) -> Findings:
    """Take samples of every case and judge them.

    Raises:
        ConfigError: suite, case, option or baseline are not usable.
        HostError: the program that moves the time is missing or dies.
    """
    began = time.monotonic()
    plan = suite.load(paths.BASELINES / f"{wanted.suite}.yml")
    cases = plan.selected(wanted.cases)
    before = None if wanted.baseline is None else load_baseline(wanted.baseline, plan)
    folder = wanted.out / f"check-{plan.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    raw = folder / "raw"
    raw.mkdir(parents=True)
    found: dict[str, list[Sample]] = {}
    built: dict[str, Link] = {}
    with ThreadPoolExecutor(max(1, wanted.jobs)) as pool:
        for case in cases:
            with talk.step(case.id) as step:
                built[case.id] = links.build(plan, case, raw / "profiles")
                found[case.id] = _samples(plan, case, built[case.id], wanted, raw, pool)
                step.outcome = f"{len(found[case.id])} samples"
    judged = judge.against_targets(plan, cases, found)
    compared = None if before is None else judge.against_baseline(plan.marks_mb, found, before, wanted.tolerance)
    findings = Findings(plan, built, found, judged, compared, wanted, folder, time.monotonic() - began)
    (folder / "check.json").write_text(json.dumps(findings.document(), indent=1) + "\n")
    return findings


def _samples(plan: Suite, case: Case, link: Link, wanted: Wanted, raw: Path, pool: ThreadPoolExecutor) -> list[Sample]:
    """Take samples until the verdict stands; in all cases the same number for the same input, however fast."""

    def one(seed: int) -> Sample:
        request = virtual.transfer(plan, case, seed, wanted.client, wanted.server)
        return virtual.run(link, request, raw, case)

    least = wanted.runs or (BASELINE_RUNS if wanted.baseline else MIN_RUNS)
    found = list(pool.map(one, range(wanted.seed, wanted.seed + least)))
    while wanted.runs is None and len(found) < MAX_RUNS:
        if not any(verdict.is_open for verdict in judge.against_targets(plan, [case], {case.id: found})):
            break
        next_seed = wanted.seed + len(found)
        found += pool.map(one, range(next_seed, next_seed + MIN_RUNS))
    return found


def options(given: Sequence[str]) -> Options:
    """Read NAME=VALUE pairs of one end, names as on satperf's command line; satvirtual knows which there are.

    Raises:
        ConfigError: something is no such pair.
    """
    pairs = [text.partition("=") for text in given]
    bad = [
        Fault(text, "is no NAME=VALUE") for text, pair in zip(given, pairs, strict=True) if not (pair[0] and pair[2])
    ]
    if bad:
        raise ConfigError("options of an end", bad, "say, --client initial-window=32")
    return {name.replace("-", "_"): int(value) if value.isdecimal() else value for name, _, value in pairs}


def load_baseline(path: Path, plan: Suite) -> dict[str, list[Sample]]:
    """Read the samples of an earlier check.json.

    Raises:
        ConfigError: it is none, or of another suite.
    """
    try:
        document = json.loads(path.read_text())
        same = (document["schema"], document["suite"], tuple(document["marks_mb"]))
        if same != (SCHEMA, plan.name, plan.marks_mb):
            raise ConfigError(f"{path} is of suite {document['suite']}", hint=f"take a check.json of suite {plan.name}")
        return {case["id"]: [_sample(one) for one in case["samples"]] for case in document["cases"]}
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint="an earlier check left runs/check-.../check.json"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no {SCHEMA}: {error}", hint="take the check.json of an earlier check") from error


def _sample(document: dict[str, Any]) -> Sample:
    return Sample(**document | {"times_s": tuple(document["times_s"])})
