# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets that each end of a FEC tunnel received, repaired and lost (schemas/fec.schema.json)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "fec_json"
MAIN_METRICS = ("fec_lost_packets",)


class Fec(Model):
    """One end of a FEC tunnel over its life (job satlab_fec)."""

    schema_: Literal["satlab/fec/1"] = Field(alias="schema")
    version: str = Field(description="version of satfec; empty if it did not start")
    argv: list[str]
    peer: str = Field(description="address of the other end")
    code: str = Field(description="code of the packets that this end sent: none, K,Z, or adaptive")
    report: list[dict[str, Any]] = Field(
        description="the last 1000 lines of satfec (satfec.schema.json)"
    )
    fault: str = Field(description="why the tunnel ended early; empty if it did not")


def records(fec: Fec, labels: Mapping[str, str]) -> list[Record]:
    """Return `fec_received_packets`, `fec_recovered_packets`, `fec_lost_packets` and
    `fec_recovery_delay_ms` (mean).

    An end that received nothing is a failed sample: the measurement ran without the tunnel.
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
