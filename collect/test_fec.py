# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of a FEC tunnel."""

from typing import Any

import pytest

from collect import fec

COUNTERS = {
    "type": "counters",
    "sources_received": 970,
    "recovered": 25,
    "lost": 4,
    "missing": 1,
    "recovery_delay_mean_ms": 42.5,
}


def ended(**changes: Any) -> fec.Fec:
    content = {
        "schema": "satlab/fec/1",
        "version": "0.1.0",
        "argv": ["satfec"],
        "peer": "198.18.4.2",
        "code": "5,100",
        "report": [{"type": "ready"}, {**COUNTERS, "lost": 0}, COUNTERS],
        "fault": "",
    }
    return fec.Fec.model_validate(content | changes)


def test_the_last_counters_are_the_tunnel_s() -> None:
    found = {record.metric: record.value for record in fec.records(ended(), {"job": "satlab_fec"})}
    assert found == {
        "fec_received_packets": 970,
        "fec_recovered_packets": 25,
        "fec_lost_packets": 5,
        "fec_recovery_delay_ms": 42.5,
    }
    assert fec.records(ended(), {})[0].labels["code"] == "5,100"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fault": "satfec ended with status -9"}, "status -9"),
        ({"report": [{"type": "ready"}]}, "no packet came"),
        ({"report": [{**COUNTERS, "sources_received": 0}]}, "no packet came"),
    ],
)
def test_a_tunnel_that_died_or_was_not_used_is_a_failed_sample(
    changes: dict[str, Any], said: str
) -> None:
    (record,) = fec.records(ended(**changes), {})
    assert record.metric == "fec_lost_packets"
    assert record.value is None
    assert said in str(record.reason)
