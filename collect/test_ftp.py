# SPDX-License-Identifier: GPL-3.0-or-later
from typing import Any

import pytest

from collect import ftp
from collect.records import Record

DOCUMENT: dict[str, Any] = {
    "schema": "satlab/ftp/1",
    "direction": "upload",
    "start_unix_s": 1.0,
    "size_bytes": 11_000,
    "received_bytes": 11_000,
    "first_bytes": 1000,
    "transfer_time_s": 0.5,
    "interval_s": 1.0,
    "interval_bytes": [],
    "error": "",
}


def made(**changes: Any) -> list[Record]:
    return ftp.records(ftp.Transfer.model_validate(DOCUMENT | changes), {"entity": "client"})


def test_goodput_is_that_of_the_receiver_without_its_first_bytes() -> None:
    found = {record.metric: record for record in made()}
    assert found["goodput_bps"].value == 160_000
    assert (found["received_bytes"].value, found["transfer_time_s"].value) == (11_000, 0.5)
    assert found["goodput_bps"].labels["direction"] == "upload"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"error": "the deadline came after 5 of 11000 bytes"}, "the deadline came"),
        ({"received_bytes": 5}, "5 of 11000 bytes"),
        ({"transfer_time_s": 0}, "11000 of 11000 bytes"),
        ({"first_bytes": 12_000}, "11000 of 11000 bytes"),
    ],
)
def test_a_transfer_without_a_rate_is_a_failed_sample(changes: dict[str, Any], reason: str) -> None:
    (record,) = made(**changes)
    assert (record.metric, record.status, record.value) == ("goodput_bps", "failed", None)
    assert reason in record.reason
