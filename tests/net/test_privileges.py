# SPDX-License-Identifier: GPL-3.0-or-later
"""T2 of the threat table: what a job can do to the host, and what the verbs and grants are."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satlab.lab import privileges
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.run_folder import RunResult
from tests.net.conftest import AsPlanned, executed

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

DESCRIPTOR = """
general: {name: prober, description: Tries what it must not, job_version: '1.0', keywords: [test], persistent: no}
platform_configuration:
  ansible_system: Debian
  ansible_distribution: Debian
  command: /opt/openbach/virtualenv/bin/python3 /opt/openbach/agent/jobs/prober/prober.py
  supported_platforms: [{ansible_distribution_release: bookworm}]
arguments:
  required: [{name: victim, type: int, count: 1, description: A process of the host}]
statistics: []
"""
PROBER = """
import errno, json, os, pathlib, signal, socket, subprocess, sys
def refused(what):
    try:
        what()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
ip = lambda *words: subprocess.run(["ip", *words], capture_output=True, text=True).returncode
status = dict(l.split(":\\t", 1) for l in pathlib.Path("/proc/self/status").read_text().splitlines() if ":\\t" in l)
found = {
    "write_etc": refused(lambda: pathlib.Path("/etc/satlab-prober").write_text("x")),
    "write_tree": refused(lambda: (pathlib.Path(__file__).parent / "x").write_text("x")),
    "write_evidence": refused(lambda: pathlib.Path(os.environ["SATLAB_RAW"], "link.jsonl").open("a").write("x")),
    "signal": refused(lambda: os.kill(int(sys.argv[1]), signal.SIGTERM)),
    "join_host": refused(lambda: os.open("/proc/1/ns/net", os.O_RDONLY)),
    "become_root": refused(lambda: os.setuid(0)),
    "own_link": ip("link", "set", "lan0", "down"),
    "namespaces": refused(lambda: os.listdir("/run/satlab")),
    "named": [os.path.samefile(entry, "/proc/self/ns/net") for entry in os.scandir("/run/netns")],
    "links": sorted(name for _, name in socket.if_nameindex()),
    "uid": os.getuid(),
    **{key: status[key].strip() for key in ("CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Groups")},
}
pathlib.Path(os.environ["SATLAB_RAW"], "files", "found.json").write_text(json.dumps(found))
"""
SCENARIO = {
    "name": "probe",
    "arguments": {"victim": "Its pid"},
    "openbach_functions": [
        {"id": 1, "start_job_instance": {"entity_name": "client", "prober": {"victim": "$victim"}}}
    ],
}


def execute(request: scenario_run.RunRequest) -> RunResult:
    outcome = executed(request)
    assert outcome.status in (0, 4), (
        outcome.reason,
        *(p.read_text() for p in outcome.folder.glob("raw/logs/*.log")),
    )
    return outcome


def probe(tmp_path: Path, victim: int, as_planned: AsPlanned) -> dict[str, Any]:
    """Run a hostile job in a lab of its own and return what it could do."""
    files = tmp_path / "jobs" / "prober" / "files"
    files.mkdir(parents=True)
    (files / "prober.yml").write_text(DESCRIPTOR)
    (files / "prober.py").write_text(PROBER)
    (tmp_path / "probe.json").write_text(json.dumps(SCENARIO))
    request = scenario_run.RunRequest(
        tmp_path / "probe.json",
        link=LinkOptions(profile="leo"),
        settings={"victim": str(victim)},
        jobs=(tmp_path / "jobs",),
        report=False,
    )
    outcome = as_planned(lambda runs: execute(replace(request, runs=runs)))
    found: dict[str, Any] = json.loads((outcome.folder / "raw/files/found.json").read_text())
    return found


def test_t02_a_job_can_do_nothing_to_the_host(tmp_path: Path, as_planned: AsPlanned) -> None:
    with subprocess.Popen(["sleep", "120"]) as victim:
        try:
            found = probe(tmp_path, victim.pid, as_planned)
            assert victim.poll() is None
        finally:
            victim.kill()
    outcomes = {
        "write_etc": "EROFS",
        "write_tree": "EROFS",
        "write_evidence": "EACCES",
        "signal": "ESRCH",
        "join_host": "EACCES",
        "become_root": "EINVAL",  # no such user
        "namespaces": "ENOENT",
    }
    assert {deed: found[deed] for deed in outcomes} == outcomes
    assert found["named"] == [True], "its own namespace alone has a name: satpep runs in a lab's"
    assert found["own_link"] != 0
    assert set(found["links"]) <= {"lo", "lan0"}
    assert found["uid"] >= 1_900_000_000
    assert {found[key] for key in ("CapEff", "CapBnd", "CapAmb")} == {"0000000000000000"}
    assert found["NoNewPrivs"] == "1"
    assert found["Groups"] == ""


def test_t02_the_api_has_no_capability() -> None:
    argv = privileges.drop_argv(privileges.new_uid(), [])
    status = subprocess.run(
        [*argv, "cat", "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    lines = dict(line.split(":\t", 1) for line in status.splitlines())
    assert [lines[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [
        "0" * 16
    ] * 5


def test_t02_of_a_closed_folder_only_what_is_shown_can_be_seen(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    shown, hidden = closed / "deep" / "shown", closed / "hidden"
    shown.mkdir(parents=True)
    hidden.mkdir()
    closed.chmod(0o700)
    (shown / "file").write_text("seen")
    argv = privileges.drop_argv(privileges.new_uid(), [*privileges.program_paths(), shown])
    look = (
        f"import os; print(sorted(os.listdir({str(closed)!r})),"
        f" open({str(shown / 'file')!r}).read())"
    )
    done = subprocess.run(
        [*argv, sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['deep'] seen\n"
    assert sorted(entry.name for entry in closed.iterdir()) == ["deep", "hidden"]


def start(number: int, job: str, arguments: dict[str, Any], *after: int) -> dict[str, Any]:
    wait = {"wait": {"launched_ids": list(after)}} if after else {}
    return {"id": number, **wait, "start_job_instance": {"entity_name": "client", job: arguments}}


def test_jobs_do_with_their_grants_what_they_are_for(tmp_path: Path, as_planned: AsPlanned) -> None:
    functions = [
        start(1, "satlab_capture", {"interface": "lan0", "seconds": 4}),
        start(2, "satlab_system_load", {}),
        start(3, "satlab_link", {"set": {"direction": "forward", "delay_ms": 30.0}}, 1),
        start(4, "satlab_ping", {"destination_ip": "198.18.4.2", "count": 3, "interval": 0.3}, 1),
        {
            "id": 5,
            "wait": {"launched_ids": [2], "finished_ids": [1, 3, 4]},
            "stop_job_instance": {"openbach_function_id": 2},
        },
    ]
    (tmp_path / "grants.json").write_text(
        json.dumps({"name": "grants", "openbach_functions": functions})
    )
    link = LinkOptions(profile="leo")
    request = scenario_run.RunRequest(tmp_path / "grants.json", link=link, report=False)
    outcome = as_planned(lambda runs: execute(replace(request, runs=runs)))
    (capture,) = outcome.folder.glob("raw/files/satlab_capture-*/*.pcapng")
    assert capture.stat().st_mode & 0o777 == 0o600
    changes = [
        line
        for line in (outcome.folder / "raw/link.jsonl").read_text().splitlines()
        if '"change"' in line
    ]
    assert changes
