# SPDX-License-Identifier: GPL-3.0-or-later
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.openbach.conftest import MakeJob, option, platforms
from satlab.openbach.descriptor import Count, load_job, load_jobs
from satlab.openbach.job_folder_checks import check_folder


def document(**change: Any) -> dict[str, Any]:
    return {
        "general": {"description": "", "job_version": "1.0", "keywords": [], "persistent": False},
        "platform_configuration": platforms("j"),
        "arguments": {"required": None, "optional": [option("count", "-c", "int")]},
        "statistics": [{"name": "s", "description": "", "frequency": ""}],
        **change,
    }


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "j" / "files" / "j.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_job(tmp_path / "j")
    return [str(fault).removeprefix(str(path)) for fault in caught.value.faults]


def required(*arguments: dict[str, object]) -> dict[str, Any]:
    return document(arguments={"required": list(arguments)})


POSITIONAL: dict[str, object] = {"name": "a", "type": "str", "count": 1}
STATISTIC = {"name": "s", "description": "", "frequency": ""}
RELEASE = {"ansible_distribution_release": "bookworm"}
TWICE = {
    **platforms("j"),
    "supported_platforms": [RELEASE, {**RELEASE, "ansible_distribution": "Debian"}],
}
CHOICE: dict[str, Any] = {"group_name": "g", "choices": [{"name": "x"}]}
NESTED = {
    "name": "y",
    "optional": [option("b", "-b", count="0-2")],
    "subcommand": [{**CHOICE, "group_name": "h"}],
}
GROUP = {"group_name": "g", "choices": [{"name": "x"}, {"name": "x"}]}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (document(general={"description": ""}), "general.job_version"),
        (document(extra=1), "extra"),
        (
            document(platform_configuration=[{"ansible_system": "Debian"}]),
            "list form of OpenBACH 2.6",
        ),
        (
            document(platform_configuration={**platforms("j"), "supported_platforms": []}),
            "supported_platforms",
        ),
        (document(platform_configuration={**platforms("j"), "command": None}), "has no command"),
        (document(platform_configuration={**platforms("j"), "command": "a 'b"}), "cannot be split"),
        (required({**POSITIONAL, "type": "string"}), "unknown type 'string'"),
        (required({**POSITIONAL, "count": "2-1"}), "empty range"),
        (required({**POSITIONAL, "count": "some"}), "is not a count"),
        (
            required({**POSITIONAL, "count": "+"}, {**POSITIONAL, "name": "b", "count": "*"}),
            "a, b all take any number",
        ),
        (required({**POSITIONAL, "flag": "-x"}), "positional"),
        (required(dict(POSITIONAL), dict(POSITIONAL)), "'a' is defined twice"),
        (document(arguments={"optional": [option("a", "x")]}), "flag that starts with '-'"),
        (
            document(arguments={"optional": [option("a", "-x"), option("b", "-x")]}),
            "'-x' is used twice",
        ),
        (document(arguments={"optional": [option("a", "-x", "None", 1)]}), "type None and count 0"),
        (document(arguments={"subcommand": [GROUP]}), "'x' is defined twice"),
        (
            document(arguments={"optional": [option("x", "-x")], "subcommand": [GROUP]}),
            "an argument and a subcommand",
        ),
        (document(statistics=[{"name": "s"}]), "statistics.0.description"),
        (document(statistics=[STATISTIC, dict(STATISTIC)]), "statistics: 's' is declared twice"),
        (document(platform_configuration=TWICE), "Debian Debian bookworm is listed twice"),
        (
            document(general={**document()["general"], "name": "other"}),
            "general.name: 'other' is not the name",
        ),
        (document(general={**document()["general"], "job_version": 1.0}), "general.job_version"),
        (
            document(
                arguments={"optional": [option("a", "-a", count="+")], "subcommand": [CHOICE]}
            ),
            "a may take the name",
        ),
        (
            document(arguments={"subcommand": [{**CHOICE, "choices": [NESTED]}]}),
            "choices.0.optional: b may take",
        ),
    ],
)
def test_each_fault_is_named(tmp_path: Path, broken: dict[str, Any], said: str) -> None:
    found = faults(tmp_path, yaml.safe_dump(broken))
    assert any(said in fault for fault in found), found


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    broken = required({**POSITIONAL, "type": "string"}, {**POSITIONAL, "flag": "-x"})
    assert len(faults(tmp_path, yaml.safe_dump(broken))) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", ":2:1: is not YAML"),
        ("a: 1\na: 2\n", ":2:1: is not YAML: the key 'a' stands twice"),
        ("a: &x [1]\nb: *x\n", "aliases are not used"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not YAML"),
        ("- a\n", "is not a mapping"),
    ],
)
def test_yaml_faults_have_a_place(tmp_path: Path, text: str, said: str) -> None:
    (fault,) = faults(tmp_path, text)
    assert said in fault


def test_t30_many_keys_are_read_in_time(tmp_path: Path) -> None:
    """Each key compared with all before it would take a minute."""
    before = time.process_time()
    (fault,) = faults(tmp_path, "".join(f"k{number}: 1\n" for number in range(60_000)) + "k5: 1\n")
    assert "the key 'k5' stands twice" in fault
    assert time.process_time() - before < 25


def test_a_missing_descriptor_and_a_bad_name_are_faults(tmp_path: Path) -> None:
    (tmp_path / "a job").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_jobs(tmp_path)
    assert len(caught.value.faults) == 2


def test_the_agents_paths_become_ours(make_job: MakeJob) -> None:
    job = make_job("j", command_stop="/opt/openbach/agent/jobs/j/end.sh --now")
    assert job.command() == [sys.executable, str(job.files / "j.py")]
    assert job.command_stop() == [str(job.files / "end.sh"), "--now"]


@pytest.mark.parametrize(
    ("count", "number", "allowed"),
    [
        (Count(1, 1), 1, True),
        (Count(1, 1), 2, False),
        (Count(0, None), 9, True),
        (Count(1, None), 0, False),
    ],
)
def test_counts(count: Count, number: int, allowed: bool) -> None:
    assert count.allows(number) is allowed


@pytest.mark.parametrize(
    "folder", sorted(paths.JOBS.glob("satlab_*/files/*.yml")), ids=lambda path: path.stem
)
def test_the_jobs_of_the_product_are_complete(folder: Path) -> None:
    job = load_job(folder.parents[1])
    assert {platform.release for platform in job.platforms} >= {"bookworm", "trixie"}
    names = {"README.md", f"install_{job.name}.yml", f"uninstall_{job.name}.yml"}
    assert names <= {path.name for path in folder.parents[1].iterdir()}
    files = {path.name for path in folder.parent.iterdir()}
    assert {f"{job.name}.py", f"{job.name}_rstats_filter.conf"} <= files
    assert check_folder(job) == []
    install = yaml.safe_load((folder.parents[1] / f"install_{job.name}.yml").read_text())
    copied = [
        item["file"]
        for task in install
        for item in task.get("with_items", task.get("loop", []))
        if "file" in item
    ]
    assert {f"{job.name}.py", f"{job.name}_rstats_filter.conf"} <= set(copied)
