# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a run folder: its manifest, its stored data, and the table of its records."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl
from pydantic import Field

from collect import (
    browser_yardstick,
    calibration,
    curl,
    fec,
    ftp,
    iperf3,
    jobs,
    link_samples,
    observed_page_loads,
    opensand,
    page_loads,
    pep,
    physical_floors,
    ping,
    rrul,
    satperf,
    stream,
    tcp_parameters,
    terminals,
    video,
)
from collect.browser_yardstick import BrowserYardsticks
from collect.jobs import Job
from collect.observed_page_loads import PageObservation
from collect.page_loads import PageLoad
from collect.physical_floors import Floors
from collect.raw import Lines, Model, Unreadable, read_json, read_jsonl, stored_files
from collect.raw import names as listing
from collect.raw_digests import differences
from collect.records import MOST, Record, Series, failed
from collect.records_table import Identity, Table, tables, write
from collect.run_manifest import Leg, Manifest

LoadT = TypeVar("LoadT", PageLoad, PageObservation)


class RunFolderError(Exception):
    """The folder is not a run: it has no readable manifest."""


@dataclass(frozen=True)
class _Reader:
    """How files of one kind are read: their job, their statistic and their model."""

    job: str
    stat: str
    parse: Callable[[bytes], Any]
    metrics: tuple[str, ...]
    records: Callable[[Any, Mapping[str, str]], Iterable[Record]]


_READERS = [
    _Reader(job, module.STAT, parse, module.MAIN_METRICS, module.records)
    for job, module, parse in (
        ("satlab_ping", ping, ping.Ping.model_validate_json),
        ("satlab_curl", curl, curl.Curl.model_validate_json),
        ("satlab_tcp_conf", tcp_parameters, tcp_parameters.TcpConf.model_validate_json),
        ("satlab_fec", fec, fec.Fec.model_validate_json),
        ("satlab_stream", stream, stream.ADAPTER.validate_json),
        ("satlab_load", stream, stream.ADAPTER.validate_json),
        ("satlab_ftp", ftp, ftp.Transfer.model_validate_json),
        ("satlab_video", video, video.Video.model_validate_json),
        ("satlab_pep", pep, pep.Pep.model_validate_json),
    )
]
"""Jobs whose files are read one by one."""
_LEG_READERS = [
    reader for reader in _READERS if set(reader.metrics) & {"tcp_leg_ok", "pep_connections_count"}
]
_LEGS = {"tcp_leg_ok": "tcp", "quic_leg_ok": "quic"}
"""Metrics of a leg of a connection, and its protocol."""
TABLE = "records.parquet"


class StoredLoad(Model):
    """A page load as it was stored, and the proxy on its path."""

    pep: str
    load: PageLoad


class StoredObservation(Model):
    """An observed page load as it was stored, and the proxy on its path."""

    pep: str
    load: PageObservation


class Stored(Model):
    """Stored data besides figures: readable page loads in the order of jobs and loads, and legs of
    connections.
    """

    loads: list[StoredLoad]
    legs: list[Leg]
    yardsticks: BrowserYardsticks = Field(default_factory=BrowserYardsticks)
    observations: list[StoredObservation] = Field(default_factory=list)


@dataclass(frozen=True)
class Collected:
    """A run that was read: its records (`SCHEMA`), and the other stored data of its jobs."""

    records: Table
    stored: Stored


def manifest(run_dir: Path) -> Manifest:
    """Read a run's manifest. Raises `RunFolderError`."""
    content = read_json(run_dir, "manifest.json", Manifest.model_validate_json)
    if isinstance(content, Unreadable):
        raise RunFolderError(f"{run_dir} is not a run folder: {content.reason}")
    return content


def collect(run_dir: Path, out: Path | None = None) -> pl.LazyFrame:
    """Collect all records of a run, write them to `out`/records.parquet (None: the run folder), and
    return that table.

    The memory in use does not grow with the length of the run. Raises `RunFolderError`, OSError.
    """
    path = (out or run_dir) / TABLE
    write(tables(_identity(manifest(run_dir)), _records(run_dir)), path)
    return pl.scan_parquet(path)


def gather(run_dir: Path) -> pl.DataFrame:
    """Collect all records of a run without writing anything. Raises `RunFolderError`."""
    return pl.concat(tables(_identity(manifest(run_dir)), _records(run_dir)))


def _identity(about: Manifest) -> Identity:
    return Identity(about.run_id, about.scenario, about.profile, about.lab)


def _records(run_dir: Path) -> Iterator[Record | Series]:
    about = manifest(run_dir)
    raw, origin = run_dir / "raw", about.started_unix_s
    ended, note = read_jsonl(raw, "jobs.jsonl", Job.model_validate_json)
    yield from (_run(about), *_note("raw/jobs.jsonl", note), *_calibration(raw))
    yield from jobs.records(ended, origin, _folders(raw))
    limits = physical_floors.of_run(run_dir)
    peps = {str(job.job_instance_id): pep.during(job, ended) for job in ended}
    transfers = list(physical_floors.judged(_transfers(raw, ended, origin), limits, peps))
    yield from (*transfers, *terminals.fairness(run_dir, transfers, ended))
    yield from _pages(raw, ended, limits, peps)
    yield from _observations(raw, ended, limits, peps)
    quic = _Reader(
        "satlab_satperf",
        satperf.STAT,
        satperf.Satperf.model_validate_json,
        satperf.MAIN_METRICS,
        lambda content, labels: satperf.records(content, labels, origin),
    )
    loaded = _Reader(
        "satlab_rrul",
        rrul.STAT,
        rrul.Rrul.model_validate_json,
        rrul.MAIN_METRICS,
        lambda content, labels: rrul.records(content, labels, origin),
    )
    for reader in (*_READERS, quic, loaded):
        yield from physical_floors.judged(_documents(raw, ended, reader), limits, peps)
    yield from _unclaimed(raw, ended)
    # Hosts of the VM lab carry the terrestrial segment themselves: with OpenSAND satlink has no
    # part in the path.
    if about.lab == "netns" or about.emulator == "satlink":
        yield from _link(raw, ended, origin)
    if about.emulator == "opensand":
        began_s = min((job.start_unix_s - origin for job in ended), default=math.inf)
        yield from opensand.records(raw, origin, began_s)


def verify(run_dir: Path) -> list[str]:
    """Name every raw file that differs from the run's digests: changed, missing or foreign.

    Raises `RunFolderError`.

    A run that never ended has no digests; all its files then count as foreign.
    """
    return differences(run_dir, manifest(run_dir).files)


def stored(run_dir: Path) -> Stored:
    """Read the data that a run's jobs stored besides figures."""
    raw = run_dir / "raw"
    ended, _ = read_jsonl(raw, "jobs.jsonl", Job.model_validate_json)
    found = [
        record
        for reader in _LEG_READERS
        for record in _documents(raw, ended, reader)
        if record.metric in _LEGS
    ]
    return Stored(
        loads=[
            StoredLoad(pep=pep.during(job, ended), load=load)
            for job, load in _of_browsers(raw, ended, page_loads.STAT, PageLoad)
            if not isinstance(load, Unreadable)
        ],
        legs=[_leg(record) for record in found],
        yardsticks=_yardsticks(raw)[0],
        observations=[
            StoredObservation(pep=pep.during(job, ended), load=load)
            for job, load in _of_browsers(raw, ended, observed_page_loads.STAT, PageObservation)
            if not isinstance(load, Unreadable)
        ],
    )


def stores_more(run_dir: Path) -> bool:
    """Return whether there may be such data: the runner's list has a job that stores some."""
    ended, _ = read_jsonl(run_dir / "raw", "jobs.jsonl", Job.model_validate_json)
    return bool(
        {job.job for job in ended} & {"satlab_page_load", *(reader.job for reader in _LEG_READERS)}
    )


def _of_browsers(
    raw: Path, ended: Sequence[Job], stat: str, model: type[LoadT]
) -> Iterator[tuple[Job, LoadT | Unreadable]]:
    """Yield the page loads that jobs stored as a statistic."""
    for job in (job for job in ended if job.job == "satlab_page_load"):
        for name in stored_files(raw, job.folder, stat):
            yield job, read_json(raw, name, model.model_validate_json)


def _leg(record: Record) -> Leg:
    labels = record.labels
    place = labels.get("interface") or labels.get("side", "")
    about = {"node": labels["entity"], "protocol": _LEGS[record.metric], "leg": place}
    optional = [name for name in Leg.__annotations__ if name in Leg.__optional_keys__]
    in_force = {name: labels[name] for name in optional if labels.get(name)}
    return cast("Leg", about | in_force | ({"fault": record.reason} if record.reason else {}))


def _run(about: Manifest) -> Record:
    labels = {"exit_status": "" if about.exit_status is None else str(about.exit_status)}
    if about.status == "ok":
        return Record("run_ok", 1.0, labels)
    if about.status == "running":
        return Record(
            "run_ok",
            None,
            labels,
            status="censored",
            reason="the run has no end: still running or killed",
        )
    return failed(
        "run_ok", labels, f"{about.status}: {about.reason}" if about.reason else about.status
    )


def _note(name: str, note: str) -> list[Record]:
    """Turn a reader's note into a record, so that a truncated file never passes for a whole one."""
    if not note:
        return []
    incomplete = note.endswith("the last line is incomplete and was left out")
    return [
        Record(
            "raw_file_ok",
            None,
            {"file": name},
            status="censored" if incomplete else "failed",
            reason=note,
        )
    ]


def _calibration(raw: Path) -> list[Record]:
    content = read_json(raw, "calibration.json", calibration.Calibration.model_validate_json)
    if isinstance(content, Unreadable):
        return [failed("calibration_ok", {}, content.reason)]
    return calibration.records(content)


def _transfers(raw: Path, ended: Sequence[Job], origin: float) -> list[Record]:
    documents = []
    missing: list[Record] = []
    for job in (j for j in ended if j.job in iperf3.JOBS):
        files = stored_files(raw, job.folder, iperf3.STAT)
        for name in files:
            content = read_json(raw, name, iperf3.ADAPTER.validate_json)
            document = iperf3.Document(job, content)
            made = _sound(name, partial(iperf3.records, [document], origin))
            documents.append(
                iperf3.Document(job, made) if isinstance(made, Unreadable) else document
            )
        if not files:
            missing += _nothing_stored(job, iperf3.MAIN_METRICS, iperf3.STAT)
    return [*iperf3.records(documents, origin), *missing]


def _pages(
    raw: Path, ended: Sequence[Job], limits: Floors | None, peps: Mapping[str, str]
) -> list[Record]:
    def possible(load: PageLoad, labels: Mapping[str, str]) -> list[Record]:
        own = peps[labels["instance"]]
        fault = "" if limits is None else physical_floors.load_fault(load, own, limits)
        counted = load.model_copy(update={"status": "failed", "reason": fault}) if fault else load
        return page_loads.records(counted, labels, own, browser_yardstick.host_ms(load, known))

    known, notes = _yardsticks(raw)
    reader = _Reader(
        "satlab_page_load",
        page_loads.STAT,
        PageLoad.model_validate_json,
        page_loads.MAIN_METRICS,
        possible,
    )
    found = _documents(raw, ended, reader)
    return [*notes, *found, *page_loads.over_loads(found)]


def _yardsticks(raw: Path) -> tuple[BrowserYardsticks, list[Record]]:
    """Return the yardsticks of the run's host, and their records. Runs of earlier versions, and
    those of other hosts than this one's namespaces, have none.
    """
    if browser_yardstick.FILE not in listing(raw, "."):
        return BrowserYardsticks(), []
    name = browser_yardstick.FILE
    content = read_json(raw, name, BrowserYardsticks.model_validate_json)
    if isinstance(content, Unreadable):
        return BrowserYardsticks(), [failed(browser_yardstick.METRIC, {}, content.reason)]
    return content, [
        Record(
            browser_yardstick.METRIC,
            one.page_load_time_ms,
            {"page": one.page, "protocol": one.protocol, "stamp": one.stamp},
        )
        for one in content.yardsticks
    ]


def _observations(
    raw: Path, ended: Sequence[Job], limits: Floors | None, peps: Mapping[str, str]
) -> Iterator[Record]:
    found: list[Record] = []
    for job in filter(_is_observed_alone, ended):
        if not stored_files(raw, job.folder, observed_page_loads.STAT):
            found += _nothing_stored(job, observed_page_loads.METRICS, observed_page_loads.STAT)
    for job, load in _of_browsers(raw, ended, observed_page_loads.STAT, PageObservation):
        if isinstance(load, Unreadable):
            found += [
                failed(metric, job.labels, load.reason) for metric in observed_page_loads.METRICS
            ]
            continue
        own = peps[str(job.job_instance_id)]
        fault = "" if limits is None else physical_floors.observation_fault(load, own, limits)
        counted = load.model_copy(update={"status": "failed", "reason": fault}) if fault else load
        found += observed_page_loads.records(counted, job.labels, own)
    yield from (*found, *page_loads.over_loads(found))


def _documents(raw: Path, ended: Sequence[Job], reader: _Reader) -> list[Record]:
    found: list[Record] = []
    for job in (j for j in ended if j.job == reader.job and not _stores_nothing(j)):
        files = stored_files(raw, job.folder, reader.stat)
        for name in files:
            content = read_json(raw, name, reader.parse)
            if not isinstance(content, Unreadable):
                content = _sound(name, partial(reader.records, content, job.labels))
            if isinstance(content, Unreadable):
                found += [failed(metric, job.labels, content.reason) for metric in reader.metrics]
            else:
                found += content
        if not files:
            found += _nothing_stored(job, reader.metrics, reader.stat)
    return found


def _sound(name: str, make: Callable[[], Iterable[Record]]) -> list[Record] | Unreadable:
    """Make the records of a document; Unreadable if its form is right but its values are
    impossible.
    """
    try:
        made = list(make())
        for record in made:
            if not all(abs(each or 0) < MOST for each in (record.value, record.t_s)):
                raise ValueError(f"{record.metric} is out of range")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return Unreadable(
            f"{Path(name).name}: its values make no sense: {type(error).__name__}:"
            f" {str(error)[:200]}"
        )
    return made


def _stores_nothing(job: Job) -> bool:
    """Return whether no file is expected: a PEP of engine `none`, the serving side of a transfer,
    only observed loads.
    """
    words = {
        "satlab_pep": "none",
        "satlab_satperf": "server",
        "satlab_ftp": "server",
        "satlab_rrul": "server",
    }
    return (job.job in words and words[job.job] in job.argv) or _is_observed_alone(job)


def _is_observed_alone(job: Job) -> bool:
    """Return whether all page loads of a job are observed ones."""
    return job.job == "satlab_page_load" and ("-n", "0") in pairwise(job.argv)


def _nothing_stored(job: Job, metrics: Sequence[str], stat: str) -> list[Record]:
    reason = f"raw/files/{job.folder}/{stat}.json is missing: the job stored no result"
    return [failed(metric, job.labels, reason) for metric in metrics]


def _folders(raw: Path) -> set[str]:
    """Return the names of the folders in which jobs have stored files."""
    return {name.removesuffix("/") for name in listing(raw, "files") if name.endswith("/")}


def _unclaimed(raw: Path, ended: Sequence[Job]) -> list[Record]:
    """Mark results whose job has no line in jobs.jsonl: the runner died before the job."""
    known = {job.folder for job in ended}
    folders = sorted(os.fsencode(name).decode(errors="replace") for name in _folders(raw))
    reason = "raw/jobs.jsonl has no line for the job that stored this; its figures are left out"
    return [
        failed("job_ok", {"file": f"raw/files/{name}"}, reason)
        for name in folders
        if name not in known
    ]


def _link(raw: Path, ended: Sequence[Job], origin: float) -> Iterator[Record | Series]:
    window = None
    if ended:
        window = link_samples.Window(
            min(j.start_unix_s for j in ended), max(j.stop_unix_s for j in ended)
        )
    names = {direction: direction for direction in link_samples.DIRECTIONS}
    lines = Lines(raw, "link.jsonl", link_samples.ADAPTER.validate_json)
    metrics = link_samples.Metrics(lines, origin, window, names)
    yield from metrics.each()
    yield from _note("raw/link.jsonl", lines.note)
    yield from metrics.process()
    if "lan.jsonl" in listing(raw, "."):  # an emulator of its own carried the client's LAN
        lines = Lines(raw, "lan.jsonl", link_samples.ADAPTER.validate_json)
        names = {"terrestrial_down": "lan_down", "terrestrial_up": "lan_up"}
        yield from link_samples.Metrics(lines, origin, window, names).each()
        yield from _note("raw/lan.jsonl", lines.note)
