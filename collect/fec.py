# SPDX-License-Identifier: GPL-3.0-or-later
"""What each end of a FEC tunnel received, repaired and lost (schemas/fec.schema.json)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from collect.raw import Model
from collect.records import Record, failed

STAT = "fec_json"
MAIN_METRICS = ("fec_lost_packets",)


class Fec(Model):
    """One end over its life;

    `report` holds satfec's lines (schemas/satfec.schema.json); `fault`: why it died.
    """

    schema_: Literal["satlab/fec/1"] = Field(alias="schema")
    version: str
    argv: list[str]
    peer: str
    code: str
    report: list[dict[str, Any]]
    fault: str


ADAPTER: TypeAdapter[Fec] = TypeAdapter(Fec)


def records(fec: Fec, labels: Mapping[str, str]) -> list[Record]:
    """Return `fec_received_packets`, `fec_recovered_packets`, `fec_lost_packets` and
    `fec_recovery_delay_ms` (mean).

    An end that nothing came to is a failed sample: it was measured without.
    """
    own = {**labels, "code": fec.code, "version": fec.version}
    counted = next(
        (line for line in reversed(fec.report) if line.get("type") in ("counters", "summary")), None
    )
    if fec.fault or counted is None or not counted["sources_received"]:
        return [failed("fec_lost_packets", own, fec.fault or "no packet came through the tunnel")]
    return [
        Record("fec_received_packets", counted["sources_received"], own),
        Record("fec_recovered_packets", counted["recovered"], own),
        Record("fec_lost_packets", counted["lost"] + counted["missing"], own),
        Record("fec_recovery_delay_ms", counted["recovery_delay_mean_ms"], {**own, "stat": "mean"}),
    ]
