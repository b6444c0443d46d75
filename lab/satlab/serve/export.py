# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics and stored files of instances, out of the run folder; CSV with OpenBACH's columns, times in UTC."""

import csv
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from satlab.serve.context import Context
from satlab.serve.instance_view import date, job_progress, scenario_tree
from satlab.serve.queue import Instance

Record = dict[str, Any]
_CHUNK = 1 << 16
_MOST_MS = 253402300800000  # year 10000, beyond which there is no date
_META = (
    *("@agent_name", "@job_instance_id", "@job_instance_start_date", "@job_instance_stop_date", "@job_name"),
    *("@owner_scenario_instance_id", "@scenario_instance_id", "@scenario_start_date", "@scenario_stop_date"),
    *("@stored_file", "@suffix"),
)


def records(here: Context, instance: Instance) -> Iterator[Record]:
    """Yield the statistics of a run. Jobs write the file themselves, so what is no record of theirs is left out."""
    if instance.run_id is None:
        return
    path = here.settings.runs / instance.run_id / "raw" / "stats.jsonl"
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if _is_record(record):
                    yield record


def _is_record(record: Any) -> bool:
    meta = record.get("_metadata") if isinstance(record, dict) else None
    if not isinstance(meta, dict):
        return False
    kinds = {"job_name": str, "job_instance_id": int, "scenario_instance_id": int, "is_file": bool, "time": int}
    return all(isinstance(meta.get(key), kind) for key, kind in kinds.items()) and 0 <= meta["time"] < _MOST_MS


def statistics(record: Record) -> Record:
    """Return the statistics of a record without what describes it."""
    return {name: value for name, value in record.items() if name != "_metadata"}


def files_count(here: Context, instance: Instance) -> dict[str, dict[str, int]]:
    """Count stored files by job and statistic."""
    found: dict[str, dict[str, int]] = {}
    for record in records(here, instance):
        if record["_metadata"]["is_file"]:
            counts = found.setdefault(record["_metadata"]["job_name"], {})
            for name in statistics(record):
                counts[name] = counts.get(name, 0) + 1
    return found


def csv_lines(here: Context, instance: Instance) -> Iterator[str]:
    """Yield the CSV line by line: a row per record, or without any record a row per job."""
    names = {name for record in records(here, instance) for name in statistics(record)}
    fields = sorted({*_META, *names} | ({"time"} if names else set()))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, restval="")
    writer.writeheader()
    for row in _rows(here, instance, has_statistics=bool(names)):
        writer.writerow({name: _guarded(value) for name, value in row.items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _rows(here: Context, instance: Instance, *, has_statistics: bool) -> Iterator[Record]:
    scenarios = {
        node["id"]: {
            "@owner_scenario_instance_id": instance.id,
            "@scenario_instance_id": node["id"],
            "@scenario_start_date": date(node["start_unix_s"]),
            "@scenario_stop_date": date(node["stop_unix_s"]),
        }
        for node in scenario_tree(instance)
    }
    jobs = {job["id"]: row for job, row in _jobs(instance)}
    if not has_statistics:
        owners = {f["job"]["id"]: node["id"] for node in scenario_tree(instance) for f in node["functions"] if f["job"]}
        yield from ({**row, **scenarios[owners[number]], "@stored_file": "false"} for number, row in jobs.items())
        return
    for record in records(here, instance):
        meta = record["_metadata"]
        yield {
            **jobs.get(meta["job_instance_id"], {}),
            **scenarios.get(meta["scenario_instance_id"], {}),
            "@stored_file": str(meta["is_file"]).lower(),
            "@suffix": meta.get("suffix", ""),
            "time": date(meta["time"] / 1000),
            **statistics(record),
        }


def _jobs(instance: Instance) -> Iterator[tuple[Record, Record]]:
    for job in job_progress(instance):
        yield (
            job,
            {
                "@agent_name": instance.order.entities.get(job["entity"], job["entity"]),
                "@job_instance_id": job["id"],
                "@job_instance_start_date": date(job["start_unix_s"]),
                "@job_instance_stop_date": date(job["stop_unix_s"]),
                "@job_name": job["job"],
            },
        )


def _guarded(value: Any) -> Any:
    """Keep text that a spreadsheet would take for a formula text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@", "\t", "\r") else value


def archive(here: Context, instance: Instance, wanted: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """Yield a .tar.gz of the CSV and, for each job, an archive of its stored files of the statistics wanted."""
    chosen = set(wanted)
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as outer:
            _add(outer, f"scenario_instance_{instance.id}.csv", "".join(csv_lines(here, instance)).encode())
            for job in sorted({job for job, _ in chosen}):
                files = list(_stored(here, instance, job, {s for j, s in chosen if j == job}))
                if files:
                    _add(outer, f"{job}.tar.gz", _packed(files))
        file.seek(0)
        yield from iter(lambda: file.read(_CHUNK), b"")


def _stored(here: Context, instance: Instance, job: str, names: set[str]) -> Iterator[tuple[str, Path]]:
    """Find stored files. What a record names counts only where it lies in the run's own folder, and is no link."""
    raw = (here.settings.runs / str(instance.run_id) / "raw").resolve()
    for record in records(here, instance):
        if record["_metadata"]["is_file"] and record["_metadata"]["job_name"] == job:
            for name, place in statistics(record).items():
                path = raw / str(place)
                if name in names and _is_ours(path, raw / "files"):
                    yield str(path.relative_to(raw / "files")), path


def _is_ours(path: Path, folder: Path) -> bool:
    """Return whether it is a file below the folder that the API may read: captures are private, and no link counts."""
    return path.resolve() == path and path.is_relative_to(folder) and path.is_file() and os.access(path, os.R_OK)


def _packed(files: list[tuple[str, Path]]) -> IO[bytes]:
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_add`
    with tarfile.open(fileobj=packed, mode="w:gz") as inner:
        for name, path in files:
            inner.add(path, name, recursive=False, filter=_anonymous)
    packed.seek(0)
    return packed


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave who owned a file out of the archive."""
    entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, "", "", 0o644
    return entry


def _add(outer: tarfile.TarFile, name: str, content: bytes | IO[bytes]) -> None:
    with io.BytesIO(content) if isinstance(content, bytes) else content as file:
        entry = tarfile.TarInfo(name)
        entry.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        outer.addfile(entry, file)
