# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxies: connections that each one split, parameters of QUIC's legs (schemas/pep.schema.json)."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field

from collect.jobs import Job
from collect.raw import Model
from collect.records import Record, failed

STAT = "pep_json"
MAIN_METRICS = ("pep_connections_count",)
SIDES = ("client", "server")
NO_PEP, UNKNOWN = "none", "unknown"


class Pep(Model):
    """One proxy over its life (job satlab_pep)."""

    schema_: Literal["satlab/pep/1"] = Field(alias="schema")
    engine: str
    version: str
    argv: list[str]
    client: str
    server: str
    connections: int
    report: list[dict[str, Any]] = Field(description="lines of satpep (satpep.schema.json)")
    fault: str = Field(description="why the proxy ended early; empty if it did not")


def records(pep: Pep, labels: Mapping[str, str]) -> list[Record]:
    """Return `pep_connections_count`. A proxy that split no connection is a failed sample: the
    measurement ran without it.
    """
    own = {**labels, "engine": pep.engine, "version": pep.version}
    if pep.fault or not pep.connections:
        return [
            failed(
                "pep_connections_count", own, pep.fault or "no connection went through the proxy"
            )
        ]
    return [Record("pep_connections_count", pep.connections, own), *_quic_legs(pep, own)]


def during(job: Job, ended: Iterable[Job]) -> str:
    """Return the engines that ran while a job ran, joined by "+"; NO_PEP if none did, UNKNOWN for a
    proxy whose engine is unknown.

    The engine is the first argument of `satlab_pep`; a controller's list of jobs has no arguments.
    """
    proxies = [
        one
        for one in ended
        if one.job == "satlab_pep"
        and one.start_unix_s < job.stop_unix_s
        and job.start_unix_s < one.stop_unix_s
    ]
    engines = sorted({_engine(one) for one in proxies} - {NO_PEP})
    return "+".join(engines) or NO_PEP


def _engine(job: Job) -> str:
    """Return the engine, the word after the job's program."""
    places = [
        at for at, word in enumerate(job.argv) if PurePath(word).name.startswith("satlab_pep")
    ]
    return job.argv[places[0] + 1] if places and places[0] + 1 < len(job.argv) else UNKNOWN


def _quic_legs(pep: Pep, labels: Mapping[str, str]) -> Iterator[Record]:
    """Yield `quic_leg_ok` of both legs: whether the parameters of satpep's command line are in
    force.
    """
    ready: dict[str, Any] = next((line for line in pep.report if line.get("type") == "ready"), {})
    for side in SIDES if ready else ():
        in_force: dict[str, Any] = ready[f"{side}_side"]
        prefix = f"--{side}-side-"
        pairs = zip(pep.argv, pep.argv[1:], strict=False)
        asked = {
            word.removeprefix(prefix).replace("-", "_"): value
            for word, value in pairs
            if word.startswith(prefix)
        }
        wrong = [
            f"{name} is {in_force.get(name)}, not {value}"
            for name, value in asked.items()
            if str(in_force.get(name)) != value
        ]
        own = {
            **labels,
            "side": side,
            **{name: str(value) for name, value in in_force.items() if value is not None},
        }
        yield (
            failed("quic_leg_ok", own, "; ".join(wrong))
            if wrong
            else Record("quic_leg_ok", 1.0, own)
        )
