# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in lock-step with the virtual clock: command lines, reasons, and what a case asks of
them.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.check import case_link
from satlab.check.backend import virtual_clock
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.conftest import small
from satlab.check.endpoint import lockstep
from satlab.check.samples import Sample
from satlab.check.suite import Case
from satlab.common import paths
from satlab.common.errors import ConfigError, HostError

SCHEMA = json.loads((paths.SCHEMAS / "virtual-interface.schema.json").read_text())
PLAIN: dict[str, Any] = {"client": {}, "server": {}}


def case(**fields: Any) -> Case:
    return Case.model_validate({"id": "a", "forward_mbps": 10, "return_mbps": 2} | fields)


def test_a_pair_is_named_by_its_scripts_and_reads_them(tmp_path: Path) -> None:
    script = tmp_path / "aioquic" / "lockstep.py"
    script.parent.mkdir()
    script.write_text("")
    one = lockstep.parse(f"python3 {script} --x", f"python3 {script}", [tmp_path])
    assert one.name == "aioquic" and one.words["client"][2:] == ("--x",)
    assert {tmp_path, script} <= set(one.allow_read)
    assert lockstep.parse(f"python3 {script}", "cat").name == "aioquic to cat"


def test_every_fault_of_the_commands_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        lockstep.parse("'", "/no/such/program", [tmp_path / "none"])
    assert [fault.place for fault in caught.value.faults] == [
        "--allow-read",
        "--virtual-client",
        "--virtual-server",
    ]
    with pytest.raises(ConfigError, match="virtual clock") as caught:
        lockstep.parse("cat", None)
    assert "is missing" in str(caught.value.faults[0])


def test_what_programs_cannot_do_has_its_reason() -> None:
    pair = lockstep.parse("cat", "cat")
    assert pair.unsupported_reason(case(), PLAIN) == ""
    assert "rate of the application" in pair.unsupported_reason(case(source_mbps=2), PLAIN)
    assert "options of satperf" in pair.unsupported_reason(
        case(), PLAIN | {"server": {"initial_window": 32}}
    )


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (
            "failed",
            "the server: it ended with status 1",
            "the server: it ended with status 1: no key | bye",
        ),
        ("failed", "the client: no answer", "the client: no answer"),
        ("failed", "the server gave up: no credit", "the server gave up: no credit"),
        ("failed", "wrong payload: 3 bytes", "wrong payload: 3 bytes"),
        ("ok", "", ""),
    ],
)
def test_a_failed_program_s_last_output_is_in_the_reason(
    status: Any, reason: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a-1.server.log").write_text("no\x1bkey\nbye\n")
    used = {"status": 1, "why": "", "lasted_s": 1, "cpu_s": 1, "peak_bytes": 1, "waited_s": 0}
    (tmp_path / "a-1.server.report").write_text(json.dumps(used))
    assert (
        lockstep.with_output(Sample("a", 1, status, reason, (None,)), tmp_path, "a-1").reason
        == expected
    )


def test_a_request_with_programs_follows_its_schema(tmp_path: Path) -> None:
    request = virtual_clock.transfer(
        small({"targets_s": [None]}, marks_mb=[1]), case(targets_s=[None]), 3, {}, {}
    )
    programs = {
        side: {"argv": ["cat"], "environment": {"A": "b"}, "log": f"{side}.log"} for side in PLAIN
    }
    schema = json.loads((paths.SCHEMAS / "virtual-transfer.schema.json").read_text())
    jsonschema.validate(request | {"programs": programs}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(request | {"programs": {"client": programs["client"]}}, schema)


@pytest.mark.parametrize(
    ("line", "is_valid"),
    [
        ({"interface": "satlab/virtual-interface/1", "name": "x 1"}, True),
        ({"interface": "satlab/virtual-interface/2", "name": "x 1"}, False),
        ({"now_ns": 5, "start": False, "datagrams": [{"bytes": 1200, "ecn": 0}]}, True),
        ({"timer_ns": None}, True),
        ({"timer_ns": 5, "report": {"received_bytes": 3, "sha256": None}}, True),
        ({"timer_ns": 5, "report": {"speed": 3}}, False),
        ({"timer_ns": -1}, False),
    ],
)
def test_lines_follow_the_schema(line: dict[str, Any], *, is_valid: bool) -> None:
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(line) is is_valid


@pytest.mark.promise("P77")
def test_a_sandbox_that_cannot_be_built_is_no_failure_of_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = tmp_path / "satbox"
    refuses.write_text("#!/bin/sh\necho 'error: unshare: Operation not permitted' >&2\nexit 3\n")
    refuses.chmod(0o755)
    monkeypatch.setattr(paths, "SATBOX", refuses)
    plan = small({"targets_s": [None]}, marks_mb=[0.1])
    link = case_link.build(plan, plan.cases[0], tmp_path / "profiles")
    clock = VirtualClock(programs=lockstep.parse("cat", "cat"))
    with pytest.raises(HostError, match="cannot be built: error: unshare") as caught:
        clock.sample(plan, plan.cases[0], link, 1, tmp_path)
    assert "user namespaces" in caught.value.hint


def test_the_status_of_a_program_is_not_that_of_its_sandbox(tmp_path: Path) -> None:
    """satbox reports a program that ended by itself, also with the status of its own errors."""
    (tmp_path / "a-1.client.log").write_text("error: unshare: Operation not permitted\n")
    used = {"why": "", "lasted_s": 0.1, "cpu_s": 0.1, "peak_bytes": 1, "waited_s": 0.0}
    (tmp_path / "a-1.client.report").write_text(json.dumps({"status": 3} | used))
    failed = Sample("a", 1, "failed", "the client: it ended with status 3", (None,))
    assert lockstep.with_output(failed, tmp_path, "a-1").status == "failed"
    assert not (tmp_path / "a-1.client.report").exists()
    with pytest.raises(HostError):
        lockstep.with_output(failed, tmp_path, "a-1")
