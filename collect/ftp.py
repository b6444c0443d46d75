# SPDX-License-Identifier: GPL-3.0-or-later
"""File transfers over FTP (schemas/ftp.schema.json): goodput at the receiver."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "ftp_json"
MAIN_METRICS = ("goodput_bps",)


class Transfer(Model):
    """One file transfer over FTP, as its client stored it (job satlab_ftp)."""

    schema_: Literal["satlab/ftp/1"] = Field(alias="schema")
    direction: Literal["download", "upload"]
    start_unix_s: float
    size_bytes: int = Field(ge=1, description="requested size")
    received_bytes: int = Field(ge=0, description="payload that arrived at the receiver")
    first_bytes: int = Field(
        ge=0, description="bytes of these that had arrived before the receiver began to count"
    )
    transfer_time_s: float = Field(
        ge=0, description="time from the first to the last bytes at the receiver"
    )
    interval_s: float = Field(gt=0)
    interval_bytes: list[Annotated[int, Field(ge=0)]] = Field(
        description="bytes that the client sent or received in each interval"
    )
    error: str = Field(description="why the transfer failed; empty if it did not")


def records(transfer: Transfer, labels: Mapping[str, str]) -> list[Record]:
    """Return `goodput_bps`, `received_bytes` and `transfer_time_s`, or goodput as a failed sample.

    The rate leaves out the bytes that had arrived before the receiver began to count: nobody timed
    them.
    """
    about = {
        **labels,
        "direction": transfer.direction,
        "transport": "TCP",
        "congestion_control": "",
    }
    counted = transfer.received_bytes - transfer.first_bytes
    if (
        transfer.error
        or transfer.received_bytes != transfer.size_bytes
        or counted < 0
        or not transfer.transfer_time_s
    ):
        reason = transfer.error or f"{transfer.received_bytes} of {transfer.size_bytes} bytes"
        return [failed("goodput_bps", about, reason)]
    return [
        Record("goodput_bps", 8 * counted / transfer.transfer_time_s, about),
        Record("received_bytes", transfer.received_bytes, about),
        Record("transfer_time_s", transfer.transfer_time_s, about),
    ]
