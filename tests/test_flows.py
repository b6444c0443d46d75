# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of flows that cannot be: refused on both clocks, with the place and the reason (exit status
2).
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from satlab import cli
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus
from satlab.flows import satvirtual

HALF = {"rate_mbps": 10, "delay_ms": 40, "queue": {"bytes": 60_000}}


@pytest.fixture(autouse=True)
def _needs_satvirtual() -> None:
    if not paths.SATVIRTUAL.exists():
        pytest.skip(f"{paths.SATVIRTUAL} is not built")


def flows_file(folder: Path, *changes: dict[str, Any]) -> Path:
    usual = {
        "stack": "quinn",
        "congestion_control": "cubic",
        "from": "server1",
        "to": "client1",
        "start_s": 0,
    }
    request = {
        "schema": "satlab/virtual-flows/1",
        "seed": 1,
        "duration_s": 5,
        "wire": {"forward": HALF, "return": HALF},
        "flows": [usual | {"id": str(number)} | change for number, change in enumerate(changes)],
    }
    file = folder / "flows.json"
    file.write_text(json.dumps(request))
    return file


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_flows_of_a_pipe_are_refused_before_it_is_read(tmp_path: Path, clock: str) -> None:
    os.mkfifo(tmp_path / "flows.json")
    result = CliRunner().invoke(cli.app, ["flows", str(tmp_path / "flows.json"), "--clock", clock])
    assert result.exit_code == ExitStatus.USAGE
    assert "can be read only once" in result.output


@pytest.mark.parametrize("ask", [satvirtual.simulated, satvirtual.checked], ids=["virtual", "real"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            [{"congestion_control": "bbr2"}],
            "flows[0].congestion_control: bbr2 is not offered with quinn",
        ),
        ([{}] * 65, "flows[64].from: server1 has no port left for its flow 65"),
        ([{"start_s": 3, "stop_s": 2}], "flows[0].start_s: 3 is not before the end at 2 s"),
        ([{"from": "server3"}], 'flows[0].from: "server3" is an unknown node'),
        ([{"to": "client-2"}], 'flows[0].to: "client-2" is an unknown node'),
        ([{"migrate_s": [5]}], "flows[0].migrate_s: 5 is not while the flow runs"),
    ],
)
def test_what_cannot_be_is_named_on_both_clocks(
    tmp_path: Path, changes: list[dict[str, Any]], words: str, ask: Callable[[Path], object]
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(flows_file(tmp_path, *changes))
    assert caught.value.status is ExitStatus.USAGE
    assert words in str(caught.value) + " ".join(map(str, caught.value.faults))
