# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that others choose reach their program alone, never satbox, which is root's."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from satlab.check.endpoint import endpoint_options
from satlab.check.endpoint.lockstep import LockstepPair
from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.lab import sandbox
from satlab.lab.job_host import LabHost
from satlab.lab.sandbox import Limits, Sandbox
from tests.sandbox_place import lab_in_name, run_to_its_end

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SMALL = Limits(seconds=20, memory_bytes=128 << 20, processes=32, disk_bytes=8 << 20)


def hostile(folder: Path) -> dict[str, str]:
    """Return variables of the loader (ld.so(8)) that make a file in a folder of the host."""
    return {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(folder / "loader")}


def test_t59_variables_of_a_program_do_not_reach_the_loader_of_satbox(tmp_path: Path) -> None:
    box = Sandbox(variables={**hostile(tmp_path), "OWN": "of the program"}, limits=SMALL)
    ended = run_to_its_end(box, ["sh", "-c", "env; pwd"], tmp_path / "log")
    lines = (tmp_path / "log").read_text(errors="replace").splitlines()
    assert ended.reason == "" and {"OWN=of the program", "LD_DEBUG=libs", sandbox.HOME} <= set(
        lines
    ), lines
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_t59_a_program_has_no_variable_that_it_was_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of root")
    box = Sandbox(variables={"A": "1"}, limits=SMALL)
    ended = run_to_its_end(box, ["env"], tmp_path / "log")
    found = dict(line.split("=", 1) for line in (tmp_path / "log").read_text().splitlines())
    assert ended.reason == "" and found == {**sandbox.ENVIRONMENT, "A": "1"}


def test_t59_variables_of_a_job_are_not_those_of_satbox(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    host = LabHost(lab_in_name(), tmp_path / "private")
    entered = host.enter("client", "prober", hostile(tmp_path))
    assert entered.environment == sandbox.ENVIRONMENT
    done = subprocess.run(
        [*entered.argv, "env"], env=entered.environment, capture_output=True, text=True, check=True
    )
    assert "LD_DEBUG=libs" in done.stdout.splitlines()
    assert [file.name for file in tmp_path.iterdir()] == ["private"]


def test_t59_variables_of_a_program_in_lock_step_are_not_those_of_satbox(tmp_path: Path) -> None:
    pair = LockstepPair(
        {"client": ("env",), "server": ("env",)}, environment={"client": hostile(tmp_path)}
    )
    with pair.running(tmp_path, "x") as commands:
        command = commands["client"]
        assert command["environment"] == sandbox.ENVIRONMENT
        done = subprocess.run(
            command["argv"], env=command["environment"], capture_output=True, text=True, check=True
        )
    assert "LD_DEBUG=libs" in done.stdout.splitlines()
    assert [one.name for one in tmp_path.iterdir()] == ["x.client.report"]  # of satbox


@pytest.mark.parametrize(
    "words", [["enforces"], ["run", "/nothing", "--", "true"], ["namespaces", "a", "1", "1"]]
)
def test_t59_satbox_refuses_variables_that_it_does_not_expect(words: list[str]) -> None:
    environment = {**sandbox.ENVIRONMENT, "LD_BIND_NOW": "1"}
    done = subprocess.run(
        [paths.SATBOX, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "the variable LD_BIND_NOW" in done.stderr, done.stderr


def test_t59_variables_are_bounded() -> None:
    for texts in ([f"A{number}=" for number in range(901)], [f"A={'x' * (121 << 10)}"]):
        with pytest.raises(ConfigError) as refused:
            endpoint_options.environment(texts, [])
        assert "more than 900 variables" in refused.value.faults[0].reason


def test_t59_the_spec_holds_variables_and_only_root_reads_it(tmp_path: Path) -> None:
    Sandbox(variables={"PATH": "/x"}).argv(tmp_path / "spec", tmp_path)
    found = json.loads((tmp_path / "spec").read_text())
    assert (
        found["variables"] == {**sandbox.ENVIRONMENT, "PATH": "/x"}
        and found["directory"] == sandbox.HOME
    )
    assert (tmp_path / "spec").stat().st_mode & 0o777 == 0o600
