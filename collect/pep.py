# SPDX-License-Identifier: GPL-3.0-or-later
"""Which proxy split how many connections (schemas/pep.schema.json)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from collect.raw import Model
from collect.records import Record, failed

STAT = "pep_json"
MAIN_METRICS = ("pep_connections_count",)


class Pep(Model):
    """One proxy over its life; `report` holds satpep's lines (schemas/satpep.schema.json), of others nothing."""

    schema_: Literal["satlab/pep/1"] = Field(alias="schema")
    engine: str
    version: str
    argv: list[str]
    client: str
    server: str
    connections: int
    report: list[dict[str, Any]]


ADAPTER: TypeAdapter[Pep] = TypeAdapter(Pep)


def records(pep: Pep, labels: Mapping[str, str]) -> list[Record]:
    """Give `pep_connections_count`; a proxy that nothing went through is a failed sample: it was measured without."""
    own = {**labels, "engine": pep.engine, "version": pep.version}
    if not pep.connections:
        return [failed("pep_connections_count", own, "no connection went through the proxy")]
    return [Record("pep_connections_count", pep.connections, own)]
