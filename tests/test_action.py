# SPDX-License-Identifier: GPL-3.0-or-later
"""action.yml: its form as GitHub documents it, its inputs and outputs, and what its step does with
a package.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from satlab.cli import app
from satlab.common import paths
from tools import try_ci_templates

ACTION: dict[str, Any] = yaml.safe_load(try_ci_templates.ACTION.read_text())
SCRIPT = (try_ci_templates.TEMPLATES / "action.sh").read_text()
NAME = re.compile("[a-z_][a-z0-9_-]*")


def step() -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [each for each in ACTION["runs"]["steps"] if "run" in each]
    return found


@pytest.mark.promise("P83")
def test_p370_the_action_has_the_form_of_composite_actions() -> None:
    """After GitHub's "Metadata syntax reference" for actions; expressions are texts."""
    assert ACTION.keys() == {"name", "description", "inputs", "outputs", "runs"}
    for kind, keys in (
        ("inputs", {"description", "default"}),
        ("outputs", {"description", "value"}),
    ):
        for name, about in ACTION[kind].items():
            assert NAME.fullmatch(name) and keys <= about.keys() <= {*keys, "required"}, name
            assert all(isinstance(about[key], str) for key in keys), name
    assert ACTION["runs"].keys() == {"using", "steps"} and ACTION["runs"]["using"] == "composite"
    for each in ACTION["runs"]["steps"]:
        assert each.keys() <= {"id", "name", "if", "run", "shell", "uses", "env", "with"}
        assert ("uses" in each) != ({"run", "shell"} <= each.keys())
        texts = {**each.get("env", {}), **each.get("with", {})}.values()
        assert all(isinstance(text, str) for text in texts)
        assert re.fullmatch(r"[\w-]+/[\w-]+@v?\w+", each.get("uses", "a/b@v1"))


def test_p370_every_input_and_output_is_used_and_none_is_unknown() -> None:
    text = try_ci_templates.ACTION.read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    variables = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", SCRIPT)) - {
        "BASH_SOURCE",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_OUTPUT",
    }
    assert variables == set(step()["env"])
    values = {entry["value"] for entry in ACTION["outputs"].values()}
    written = re.findall(r'"(\w+)=\$', SCRIPT)
    assert values == {f"${{{{ steps.{step()['id']}.outputs.{name} }}}}" for name in written}
    command: Any = typer.main.get_command(app)
    known = {option for parameter in command.commands["check"].params for option in parameter.opts}
    words = "\n".join(line for line in SCRIPT.splitlines() if "words" in line)
    assert (
        {"--suite", "--virtual-client", "--client-cmd"}
        <= set(re.findall(r"--[a-z-]+", words))
        <= known
    )


def test_t35_no_input_is_part_of_a_command_s_text() -> None:
    for each in ACTION["runs"]["steps"]:
        assert "${{" not in each.get("run", "")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with stand-ins of the programs that install a package, which say how they were
    called.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("apt-get", "satlab", "sudo", "curl"):
        program = tools / name
        body = 'shift 0; exec "$@"' if name == "sudo" else "exit ${STATUS:-0}"
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\n{body}\n')
        program.chmod(0o755)
    return tmp_path


def act(
    place: Path, status: int = 0, *, satlab: str = "", **inputs: str
) -> tuple[int, list[str], str]:
    """Run the action's step; return its exit status, the calls of other programs, and what it
    printed. `satlab`: a script in its place.
    """
    script = try_ci_templates.action_script(
        {name.replace("_", "-"): text for name, text in inputs.items()}, str(paths.ROOT)
    )
    environment = {
        **os.environ,
        "PATH": f"{place / 'tools'}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": "summary.md",
    }
    environment |= {"GITHUB_OUTPUT": "outputs", "STATUS": "0"}
    (place / "tools" / "satlab").write_text(
        satlab or f'#!/bin/sh\necho "satlab $*" >>{place}/calls\nexit {status}\n'
    )
    argv = ["bash", "-eo", "pipefail", "-c", script]
    done = subprocess.run(
        argv, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    calls = (place / "calls").read_text().splitlines() if (place / "calls").exists() else []
    return done.returncode, calls, done.stdout + done.stderr


@pytest.mark.promise("P83")
def test_p371_a_package_is_installed_and_nothing_is_built(place: Path) -> None:
    deb = place / "satlab.deb"
    deb.write_bytes(b"package")
    digest = hashlib.sha256(b"package").hexdigest()
    status, calls, _ = act(
        place,
        package="satlab.deb",
        package_sha256=digest,
        virtual_client="./a b",
        virtual_server="./c",
    )
    assert status == 0
    called = [line for line in calls if not line.startswith("sudo")]
    assert called[0] == "apt-get -q update" and called[1].startswith(
        "apt-get -q -y --no-install-recommends install /tmp/"
    )
    assert called[2].startswith("satlab check --suite ci --json --out satellite/runs")
    assert "--runs" not in called[2]  # those of the suite, by the spread of its cases
    assert called[2].endswith("--virtual-client ./a b --virtual-server ./c")
    outputs = dict(line.split("=") for line in (place / "outputs").read_text().splitlines())
    assert outputs["status"] == "0" and outputs["json"] == "satellite/check.json"


def test_p371_another_package_than_named_is_not_installed(place: Path) -> None:
    (place / "satlab.deb").write_bytes(b"another")
    status, calls, said = act(place, package="satlab.deb", package_sha256="0" * 64)
    assert status == 2 and not calls and "another SHA-256" in said
    status, calls, said = act(place, package="missing.deb")
    assert status == 2 and not calls and "there is no package missing.deb" in said
    status, calls, said = act(place, package="http://example.org/satlab.deb")
    assert status == 2 and not calls  # a path, not an address: nothing comes by plain HTTP


def test_p371_the_status_of_the_check_is_that_of_the_step(place: Path) -> None:
    (place / "satlab.deb").write_bytes(b"package")
    for status in (1, 4):
        assert act(place, status, package="satlab.deb", baseline="baseline/check.json")[0] == status
        assert (place / "outputs").read_text().splitlines()[-4] == f"status={status}"
    status, calls, said = act(place, 0, package="satlab.deb", baseline="baseline/check.json")
    assert "--baseline" not in calls[-1] and "is missing" in said
    (place / "check.json").write_text("{}")
    assert (
        "--baseline check.json" in act(place, 0, package="satlab.deb", baseline="check.json")[1][-1]
    )


@pytest.mark.parametrize("out", ["x\nstatus=0", "x\rjson=/etc/passwd", "x\x1b[2J"])
def test_t63_an_output_folder_forges_no_output_of_the_step(place: Path, out: str) -> None:
    (place / "satlab.deb").write_bytes(b"package")
    status, calls, said = act(place, 1, package="satlab.deb", out=out)
    assert (status, calls) == (2, []) and "control characters" in said
    assert not (place / "outputs").exists()


def test_t63_what_satlab_and_inputs_say_does_not_steer_the_workflow(place: Path) -> None:
    status, _, said = act(place, package="x\n::set-output name=status::0")
    assert status == 2 and not re.search("^::set-output", said, re.MULTILINE)
    (place / "satlab.deb").write_bytes(b"package")
    lines = act(place, package="satlab.deb", baseline="x\n::warning::y")[2].splitlines()
    [stop] = [line for line in lines if line.startswith("::stop-commands::")]
    assert lines[-2] == f"::{stop.removeprefix('::stop-commands::')}::" and len(stop) > 40
    assert lines[-1] == "::notice::satlab check ended with status 0"
    assert not [line for line in lines if line.startswith("::warning")]


@pytest.mark.parametrize(("status", "kind"), [(0, "notice"), (1, "error")])
@pytest.mark.promise("P83")
def test_p371_the_summary_of_a_pull_request_is_one_line(
    status: int, kind: str, place: Path
) -> None:
    """It is the heading of the Markdown; what programs say there steers nothing."""
    (place / "satlab.deb").write_bytes(b"package")
    summary = "ci, x: medium 10 MB SLOWER, \u00d7 1.53, 8 s to 12 s, flow control +5.33 s 100 %"
    script = f"""#!/bin/sh
while [ "$1" != --markdown ]; do shift; done
printf '### {summary.replace("%", "%%")}\\r\\n\\n::warning::y\\n' >"$2"
exit {status}
"""
    found, _, said = act(place, status, package="satlab.deb", satlab=script, runs="3")
    assert found == status
    assert said.splitlines()[-1] == f"::{kind}::{summary.replace('%', '%25')}"
    outputs = (place / "outputs").read_text().splitlines()
    assert outputs[0] == f"summary={summary}" and len(outputs) == 5


def test_p371_the_summary_of_an_earlier_check_is_not_shown_again(place: Path) -> None:
    (place / "satlab.deb").write_bytes(b"package")
    (place / "satellite").mkdir()
    (place / "satellite" / "check.md").write_text("### all is well\n")
    _, _, said = act(place, 3, package="satlab.deb")
    assert said.splitlines()[-1] == "::error::satlab check ended with status 3"
