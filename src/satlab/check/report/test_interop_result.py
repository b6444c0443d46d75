# SPDX-License-Identifier: GPL-3.0-or-later
"""result.json, read as the interop runner's page reads it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check import verdict
from satlab.check.check_result import CheckResult, SampleInput
from satlab.check.conftest import small
from satlab.check.report import interop_result
from satlab.check.samples import Sample

CASES = ("handshake", "transfer", "retry", "zerortt")
SHOWN = ("succeeded", "unsupported", "failed")
"""The results that the page has a place for, in its order."""


def checked(tmp_path: Path, client: str, server: str, marks: tuple[float, ...] = ()) -> CheckResult:
    """A check in which one case passed, one failed, one was out of calibration and one is
    unsupported.
    """
    targets = (
        {"targets_s": [None] * len(marks)} if marks else {"test": "transfer", "files_bytes": [1024]}
    )
    cases = [{"id": case, "forward_mbps": 10, "return_mbps": 2, **targets} for case in CASES]
    suite = small(link={"rtt_ms": 600, "queue_bdp": 1}, marks_mb=marks, cases=cases)
    good = Sample("handshake", 1, "ok", "", (2.0,), goodput_interop_bps=8_000_000.0)
    samples = {
        "handshake": [good, replace(good, seed=2, goodput_interop_bps=9_000_000.0)],
        "transfer": [
            replace(good, case="transfer"),
            Sample("transfer", 2, "failed", "wrong file", (None,)),
        ],
        "retry": [replace(good, case="retry", calibration="host_loss_ratio.forward")],
        "zerortt": [Sample("zerortt", 1, "unsupported", "status 127", (None,))],
    }
    folder = tmp_path / f"check-{client}-{server}".replace(" ", "_")
    for case, found in samples.items():
        for one in found:
            (folder / "raw" / f"{case}-{one.seed}").mkdir(parents=True)
            (folder / "raw" / f"{case}-{one.seed}" / "client-0.log").write_text(
                f"{client} {case} {one.seed}"
            )
    stack = client if client == server else f"{client} to {server}"
    plan: Any = SimpleNamespace(
        rtt_ms=SimpleNamespace(mean=600),
        forward=SimpleNamespace(queue_bytes=1),
        return_=SimpleNamespace(queue_bytes=1),
    )
    link: Any = SimpleNamespace(forward_mbps=10.0, return_mbps=2.0, plan=plan)
    return CheckResult(
        suite,
        SampleInput("real", stack),
        dict.fromkeys(CASES, link),
        samples,
        verdict.against_targets(suite, suite.cases, samples),
        None,
        [],
        folder,
        1000.0,
        60.0,
        {"command": [], "host": {}, "versions": {}, "programs": []},
    )


def page(file: Path) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Restate the page's script: which results it shows in which cell, and where their links lead.

    It finds a cell by the class names `client-NAME` and `server-NAME`, takes cells in the order of
    clients, then servers, shows three results, and links logs/LOG_DIR/SERVER_CLIENT/TEST.
    """
    found = json.loads(file.read_text())
    shown = {}
    for kind in ("results", "measurements"):
        assert len(found[kind]) == len(found["clients"]) * len(found["servers"])
        for number, cell in enumerate(found[kind]):
            client = found["clients"][number // len(found["servers"])]
            server = found["servers"][number % len(found["servers"])]
            assert all(
                re.fullmatch(r"[A-Za-z0-9-]+", name) for name in (client, server, found["log_dir"])
            )
            for result in SHOWN:
                for one in (each for each in cell if each["result"] == result):
                    assert found["tests"][one["abbr"]]["name"] == one["name"]
                    link = f"logs/{found['log_dir']}/{server}_{client}/{one['name']}"
                    shown[client, server, one["abbr"]] = (one.get("details") or result, link)
    return shown


def test_the_page_shows_every_test_case_and_its_links_work(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    interop_result.write([checked(tmp_path, "ngtcp2 1.2", "ngtcp2 1.2")], file)
    shown = page(file)
    name = "ngtcp2-1-2"
    assert {abbr: result for (client, _, abbr), (result, _) in shown.items() if client == name} == {
        "H": "succeeded",
        "DC": "failed",
        "S": "unsupported",
        "Z": "unsupported",
    }
    abbreviations = ["H", "DC", "S", "Z"]
    for (_, _, abbr), (_, link) in shown.items():
        text = (tmp_path / link / "client-0.log").read_text()
        assert text == f"ngtcp2 1.2 {CASES[abbreviations.index(abbr)]} {2 if abbr == 'DC' else 1}"
    more = json.loads((tmp_path / "result.satlab.json").read_text())
    assert [one["case"] for one in more["not_measurable"]] == ["retry"]


def test_goodput_is_shown_of_calibrated_samples_alone(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    interop_result.write([checked(tmp_path, "a", "a", (2.0,))], file)
    shown = page(file)
    assert shown["a", "a", "H"][0] == "8500 (± 707) kbps"
    assert shown["a", "a", "S"][0] == "unsupported"
    assert (
        tmp_path / shown["a", "a", "H"][1] / "2" / "client-0.log"
    ).read_text() == "a handshake 2"


def test_a_matrix_has_a_cell_for_each_pair(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    pairs = [("a", "a"), ("a", "b"), ("b", "a")]
    interop_result.write([checked(tmp_path, *pair) for pair in pairs], file)
    shown = page(file)
    assert {(client, server) for client, server, _ in shown} == set(pairs)
    for (client, _, abbr), (_, link) in shown.items():
        assert (tmp_path / link / "client-0.log").read_text().startswith(f"{client} "), abbr


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ngtcp2 0.12.1", "ngtcp2-0-12-1"), ("x/y_z", "x-y-z"), ("..", "unnamed")],
)
def test_names_fit_the_page(name: str, expected: str) -> None:
    assert interop_result.page_name(name) == expected
