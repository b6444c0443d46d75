# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics and stored files of instances, from the run folder; CSV and archives in OpenBACH's
form, times in UTC.
"""

import csv
import gzip
import io
import os
import secrets
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from satlab.common import escape
from satlab.openbach.json_document import is_name
from satlab.service.api.api_answers import ApiError
from satlab.service.api.dependencies import Context
from satlab.service.api.instance_json import job_progress, scenario_tree
from satlab.service.api.queue import Instance
from satlab.service.api.strict_json import loads

Record = dict[str, Any]
MAX_LINE = 1 << 20
"""Longest line of `stats.jsonl`, bytes; the pieces of a longer one are not valid records."""
MAX_STATISTICS = 32 << 20
"""Largest `stats.jsonl` that is read for an answer, bytes; an hour of ten records a second has 7
MB.
"""
MAX_COLUMNS = 1000
"""Largest number of statistics in a CSV; further names are left out."""
_CHUNK = 1 << 16
_MAX_MS = 253402300800000  # year 10000, the end of Python's dates
_META = (
    "@agent_name",
    "@job_instance_id",
    "@job_instance_start_date",
    "@job_instance_stop_date",
    "@job_name",
    "@owner_scenario_instance_id",
    "@scenario_instance_id",
    "@scenario_start_date",
    "@scenario_stop_date",
    "@stored_file",
    "@suffix",
)


def records(context: Context, instance: Instance) -> Iterator[Record]:
    """Yield the statistics of a run.

    Jobs write the file, so lines that are not valid records are left out. Raises ApiError: 413.
    """
    check_statistics(context, instance)
    if instance.run_id is None:
        return
    path = context.settings.runs / instance.run_id / "raw" / "stats.jsonl"
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in iter(lambda: file.readline(MAX_LINE), b""):
            with suppress(ValueError):
                record = loads(line)
                if _is_record(record):
                    yield record


def statistics_bytes(context: Context, instance: Instance) -> int:
    """Return the size of a run's statistics."""
    path = context.settings.runs / str(instance.run_id) / "raw" / "stats.jsonl"
    return path.stat().st_size if path.is_file() else 0


def check_statistics(context: Context, instance: Instance) -> None:
    """Raise ApiError, 413, if a run has more statistics than are read for an answer."""
    size = statistics_bytes(context, instance)
    if size > MAX_STATISTICS:
        what = (
            f"The statistics of run {instance.run_id} have {size} bytes, at most {MAX_STATISTICS}"
            " are read: request the folder of the run"
        )
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)


def _is_record(record: Any) -> bool:
    meta = record.get("_metadata") if isinstance(record, dict) else None
    if not isinstance(meta, dict):
        return False
    kinds = {
        "job_name": str,
        "job_instance_id": int,
        "scenario_instance_id": int,
        "is_file": bool,
        "time": int,
    }
    is_known = (
        all(isinstance(meta.get(key), kind) for key, kind in kinds.items())
        and 0 <= meta["time"] < _MAX_MS
    )
    return is_known and isinstance(meta.get("suffix", ""), str)


def statistics(record: Record) -> Record:
    """Return a record without its metadata."""
    return {name: value for name, value in record.items() if name != "_metadata"}


def files_count(context: Context, instance: Instance) -> dict[str, dict[str, int]]:
    """Return the number of stored files by job and statistic."""
    numbers: dict[str, dict[str, int]] = {}
    for record in records(context, instance):
        if record["_metadata"]["is_file"]:
            counts = numbers.setdefault(record["_metadata"]["job_name"], {})
            for name in statistics(record):
                counts[name] = counts.get(name, 0) + 1
    return numbers


def csv_lines(context: Context, instance: Instance) -> Iterator[str]:
    """Yield the CSV line by line: a row per record or, without records, a row per job."""
    names = set[str]()
    for record in records(context, instance):
        further = [name for name in statistics(record) if name not in names]
        names.update(further[: MAX_COLUMNS - len(names)])
    fields = sorted({*_META, *names} | ({"time"} if names else set()))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, restval="", extrasaction="ignore")
    writer.writerow({name: name if name in _META else escape.csv(name) for name in fields})
    for row in _rows(context, instance, has_statistics=bool(names)):
        writer.writerow(escape.csv_row(row))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _rows(context: Context, instance: Instance, *, has_statistics: bool) -> Iterator[Record]:
    scenarios = {
        node["id"]: {
            "@owner_scenario_instance_id": instance.id,
            "@scenario_instance_id": node["id"],
            "@scenario_start_date": _date(node["start_unix_s"]),
            "@scenario_stop_date": _date(node["stop_unix_s"]),
        }
        for node in scenario_tree(instance)
    }
    jobs = {
        job["id"]: {
            "@agent_name": instance.request.entities.get(job["entity"], job["entity"]),
            "@job_instance_id": job["id"],
            "@job_instance_start_date": _date(job["start_unix_s"]),
            "@job_instance_stop_date": _date(job["stop_unix_s"]),
            "@job_name": job["job"],
        }
        for job in job_progress(instance)
    }
    if not has_statistics:
        owners = {
            f["job"]["id"]: node["id"]
            for node in scenario_tree(instance)
            for f in node["functions"]
            if f["job"]
        }
        yield from (
            {**row, **scenarios[owners[number]], "@stored_file": "false"}
            for number, row in jobs.items()
        )
        return
    for record in records(context, instance):
        meta = record["_metadata"]
        yield {
            **jobs.get(meta["job_instance_id"], {}),
            **scenarios.get(meta["scenario_instance_id"], {}),
            "@stored_file": str(meta["is_file"]).lower(),
            "@suffix": meta.get("suffix", ""),
            "time": _date(meta["time"] / 1000),
            **statistics(record),
        }


def _date(unix_s: float | None) -> str | None:
    """Return a date as OpenBACH writes it in a CSV: with a blank, and the zone at the end."""
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC).isoformat(" ")


def archive(
    context: Context, instance: Instance, requested: Iterable[tuple[str, str]]
) -> Iterator[bytes]:
    """Return a .tar.gz in pieces: the CSV, and an archive for each job instance and statistic with
    stored files, named as OpenBACH 2.7.0 does.

    `requested`: pairs of job and statistic whose files are included. Raises ApiError: 413 if the
    files have more than `Settings.archive_bytes` in all.
    """
    inner = [
        each
        for job, statistic in sorted(set(requested))
        for each in _stored(context, instance, job, statistic)
    ]
    size = sum(path.stat().st_size for each in inner for path in each.members.values())
    most = context.settings.archive_bytes
    if size > most:
        what = (
            f"The stored files have {size} bytes, an archive has at most {most}: request fewer"
            " statistics"
        )
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)
    check_statistics(context, instance)
    return _archive(_members(context, instance, inner))


def folder_archive(context: Context, folder: Path) -> Iterator[bytes]:
    """Return a run folder as a .tar.gz in pieces: regular files that this process may read, without
    links.

    Raises ApiError: 413 if they have more than `Settings.archive_bytes` in all.
    """
    files = [path for path in sorted(folder.rglob("*")) if is_stored(path, folder)]
    _check_size(context, files)
    return _archive(
        (f"{folder.name}/{path.relative_to(folder)}", path.open("rb")) for path in files
    )


def _check_size(context: Context, files: Iterable[Path], advice: str = "") -> None:
    size, most = sum(path.stat().st_size for path in files), context.settings.archive_bytes
    if size > most:
        what = f"The files have {size} bytes, an archive has at most {most}{advice}"
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)


def _archive(members: Iterable[tuple[str, IO[bytes]]]) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as outer:
        for name, content in members:
            with content:
                for piece in _tar_member(name, content):
                    outer.write(piece)
                    if buffer.tell():
                        yield buffer.getvalue()
                        buffer.seek(0)
                        buffer.truncate()
        outer.write(bytes(2 * tarfile.BLOCKSIZE))
    yield buffer.getvalue()


def _members(
    context: Context, instance: Instance, inner: list["_Inner"]
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of the members, each in a temporary file that is closed before the
    next one.
    """
    with tempfile.TemporaryFile() as text:
        text.writelines(line.encode() for line in csv_lines(context, instance))
        yield f"scenario_instance_{instance.id}.csv", text
    for each in inner:
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w:gz") as made:
                for name, path in each.members.items():
                    made.add(path, name, recursive=False, filter=_without_owner)
            yield each.name, packed


def _tar_member(name: str, content: IO[bytes]) -> Iterator[bytes]:
    """Yield the header, the content and the padding of a member."""
    entry = tarfile.TarInfo(name)
    entry.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    yield entry.tobuf()
    yield from iter(lambda: content.read(_CHUNK), b"")
    yield bytes(-entry.size % tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class _Inner:
    """An archive in the archive, `ENTITY.JOB_(INSTANCE).STATISTIC.RANDOM.tar.gz`.

    `members`: paths of the stored files by their names; several of one statistic are in folders
    named by the time in ms.
    """

    name: str
    members: dict[str, Path]


def _stored(context: Context, instance: Instance, job: str, statistic: str) -> Iterator[_Inner]:
    """Yield what is stored of one statistic by job instance: only regular files in the run's own
    folder.
    """
    if not (is_name(job) and is_name(statistic)):
        return
    raw = (context.settings.runs / str(instance.run_id) / "raw").resolve()
    entities = {progress["id"]: progress["entity"] for progress in job_progress(instance)}
    found: dict[tuple[str, int], dict[Path, tuple[int, str]]] = {}
    for record in records(context, instance):
        about = record["_metadata"]
        if about["is_file"] and about["job_name"] == job and statistic in record:
            path, number = raw / str(record[statistic]), about["job_instance_id"]
            entity = entities.get(number) or str(about.get("agent_name", ""))
            if is_name(entity) and is_stored(path, raw / "files"):
                names = about.get("file_names")
                own = names.get(statistic) if isinstance(names, dict) else None
                called = own if isinstance(own, str) and is_name(own) else path.name
                found.setdefault((entity, number), {}).setdefault(path, (about["time"], called))
    for (entity, number), paths in found.items():
        members = {
            called if len(paths) == 1 else f"{at}/{called}": path
            for path, (at, called) in paths.items()
        }
        if len(members) < len(paths):  # stored in the same ms
            members = {path.name: path for path in paths}
        name = f"{entity}.{job}_({number}).{statistic}.{secrets.token_hex(4)}.tar.gz"
        yield _Inner(name, members)


def is_stored(path: Path, folder: Path) -> bool:
    """Return whether the API may read a file: it is below the folder, no link, and not private as
    captures are.
    """
    try:
        is_plain = path.resolve() == path and path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
    return is_plain and os.access(path, os.R_OK)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, "", "", 0o644
    return entry
