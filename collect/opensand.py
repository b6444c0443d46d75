# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND's logs and probes to records: losses by log lines, values of probes.

Facts are those of 8.2.0.

A log is `raw/logs/opensand-ENTITY.log` (stderr with -v), probes are `raw/opensand/ENTITY/*_N.csv`:
cells separated by `;`, the first column `Date` in the local time of their host, the others `name
(unit)`; a cell is empty where the probe had no value.
"""

import csv
import io
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from collect.raw import RefusedError, names, open_plain
from collect.records import Record, Series, failed

LOG_BYTES = 1 << 30
"""Largest size of a log, bytes: two lines of 200 bytes together for each of 2.6 million lost
packets.
"""
CSV_BYTES = 1 << 30
MOST_PROBES = 1000
"""Largest number of columns of a file of probes; the gateway has 65."""
_LINE_BYTES = 1 << 16
_ZONE_S = 900
"""Time zones are whole quarters of an hour from UTC."""
_DATE = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6})\]")
_Phase = tuple[str, str]


@dataclass(frozen=True)
class Loss:
    """A way in which 8.2.0 loses packets: the text of its log lines, the loss that one line stands
    for, and the remedy.
    """

    cause: str
    mark: bytes
    unit: str
    meaning: str
    remedy: str


LOSSES = (
    Loss(
        "gse_encapsulation",
        b"EncapErrorSizeBuffer",
        "packets",
        "packets met a rest of a BBFRAME that takes no fragment, and were dropped with all that"
        " waited (defect D1)",
        "no profile avoids it: use a GSE plugin that keeps the packet, or satlink;"
        " `--opensand-defects` predicts it",
    ),
    Loss(
        "gse_reassembly",
        b"DecapErrorSizePduBuffer",
        "packets",
        "packets were longer than the reassembly buffer",
        "write 5000 for encap/gse/decap_buffer_len in the profiles of ST and GW",
    ),
    Loss(
        "rle_reassembly",
        b"rle failed to decaspulate SDU",
        "packets",
        "bursts held a fragment that the gateway discards, and the packet with it (defect D2), or a"
        " burst was missing",
        "return waveforms whose bursts hold more than 44 bytes (ids 7 or 3-12), or satlink",
    ),
    Loss(
        "socket",
        b"may have lost UDP packets",
        "warnings",
        "a socket lost datagrams, of a BBFRAME or burst each",
        "sysctl net.core.rmem_max=4194304, and a less busy host",
    ),
)
"""In three of three clean runs, the number of lines of the first cause equalled the number of lost
packets.
"""
CALIBRATION, SCENARIO = "calibration", "scenario"
"""When a packet was lost: before the first job, at the latest, or after."""


def entities(raw: Path) -> list[str]:
    """Return the entities that left a log, e.g. gw, sat, st, st4."""
    found = map(re.compile(r"opensand-(.+)\.log").fullmatch, names(raw, "logs"))
    return [match[1] for match in found if match]


def losses(raw: Path, entity: str) -> Counter[str]:
    """Count the lines of an entity's log that stand for losses, by cause.

    Raises OSError, RefusedError.
    """
    found: Counter[str] = Counter({loss.cause: 0 for loss in LOSSES})
    for line in _lines(raw, entity):
        for loss in LOSSES:
            found[loss.cause] += loss.mark in line
    return found


def losses_by_phase(raw: Path, entity: str, origin: float, began_s: float) -> Counter[_Phase]:
    """Count the same lines by cause and phase. `began_s`: when the scenario began, s since
    `origin`.

    The dates of a log have no time zone: it is that which puts the first line nearest to `origin`.
    Raises OSError, RefusedError.
    """
    phases = (CALIBRATION, SCENARIO)
    found: Counter[_Phase] = Counter({(one.cause, phase): 0 for one in LOSSES for phase in phases})
    zone_s, at_s = None, 0.0
    for line in _lines(raw, entity):
        if (dated := _DATE.match(line)) is not None:
            at_s = _since(dated[1].decode(), origin)
            zone_s = round(at_s / _ZONE_S) * _ZONE_S if zone_s is None else zone_s
        is_before = at_s - (zone_s or 0) < began_s
        for loss in LOSSES:
            found[loss.cause, CALIBRATION if is_before else SCENARIO] += loss.mark in line
    return found


def _lines(raw: Path, entity: str) -> Iterator[bytes]:
    with open_plain(raw, f"logs/opensand-{entity}.log", LOG_BYTES) as file:
        while line := file.readline(_LINE_BYTES):
            yield line


def _since(date: str, origin: float) -> float:
    """Return a date without a time zone as if it were UTC, s since `origin`."""
    at = datetime.strptime(date, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return at.timestamp() - origin


def all_losses(raw: Path) -> dict[str, int | None]:
    """Count the losses of all entities, by cause; None if a log is missing or cannot be read."""
    try:
        counts = [losses(raw, entity) for entity in entities(raw)]
    except (OSError, RefusedError):
        counts = []
    return {
        loss.cause: sum(count[loss.cause] for count in counts) if counts else None
        for loss in LOSSES
    }


def records(raw: Path, origin: float, began_s: float) -> Iterator[Record | Series]:
    """Yield `opensand_losses` (lines, by entity, cause and phase), `opensand_queue_lost_packets`,
    and the probes as series. Times in s: `origin` since 1970, `began_s` of the scenario since
    `origin`.
    """
    units = {loss.cause: loss.unit for loss in LOSSES}
    for entity in entities(raw):
        try:
            for (cause, phase), count in losses_by_phase(raw, entity, origin, began_s).items():
                labels = {"entity": entity, "cause": cause, "phase": phase, "unit": units[cause]}
                yield Record("opensand_losses", count, labels)
        except (OSError, RefusedError) as error:
            yield failed("opensand_losses", {"entity": entity}, f"opensand-{entity}.log: {error}")
    for folder in names(raw, "opensand"):
        for name in names(raw, f"opensand/{folder}") if folder.endswith("/") else ():
            if "_" in name and name.endswith(".csv"):
                yield from _probes(raw, PurePosixPath("opensand", folder, name), origin)


_COLUMN = re.compile(r"(?P<probe>.*?)(?: \((?P<unit>[^()]*)\))?")


def _probes(raw: Path, name: PurePosixPath, origin: float) -> Iterator[Record | Series]:
    entity = name.parent.name
    try:
        with (
            open_plain(raw, str(name), CSV_BYTES) as file,
            io.TextIOWrapper(file, "utf-8", "replace") as text,
        ):
            columns, t_s = _columns(csv.reader(text, delimiter=";"), origin)
    except (OSError, RefusedError, ValueError, csv.Error) as error:
        yield failed(
            "opensand_probe", {"entity": entity, "file": str(name)}, f"{name.name}: {error}"
        )
        return
    for header, values in columns.items():
        found = _COLUMN.fullmatch(header)
        probe, unit = (found["probe"], found["unit"] or "") if found else (header, "")
        labels = {"entity": entity, "probe": probe, "unit": unit}
        yield Series(labels, t_s, {"opensand_probe": values})
        if ".queue_loss.packets." in probe:
            lost = math.fsum(value for value in values if not math.isnan(value))
            yield Record("opensand_queue_lost_packets", lost, labels)


def _columns(
    rows: Iterator[list[str]], origin: float
) -> tuple[Mapping[str, "array[float]"], "array[float]"]:
    """Read columns and times, s since `origin`.

    A last row that is cut off is left out. The dates have no time zone: the zone is chosen that
    puts the first row nearest to `origin`, since OpenSAND starts with the run. Raises ValueError.
    """
    header = next(rows, [])
    if not header or header[0] != "Date" or len(header) > MOST_PROBES:
        raise ValueError("the first column is not Date, or there are too many")
    columns = {name: array("d") for name in header[1:]}
    t_s, zone_s = array("d"), 0
    for row in rows:
        if len(row) != len(header):
            break
        at_s = _since(row[0], origin)
        if not t_s:
            zone_s = round(at_s / _ZONE_S) * _ZONE_S
        t_s.append(at_s - zone_s)
        for name, cell in zip(header[1:], row[1:], strict=True):
            columns[name].append(float(cell) if cell else math.nan)
    return columns, t_s
