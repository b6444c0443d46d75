# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in the tree that are made from others."""

import ast

import pytest
import yaml

from collect import link_samples, page_loads
from satlab.common.paths import JOBS, PROFILES, ROOT, shipped_profiles
from satlab.link.options import LinkOptions
from satlab.run import validate
from tools import generate, job_files


def test_generated_files_are_up_to_date() -> None:
    made = dict(generate.files())
    old = [
        path.relative_to(ROOT)
        for path, text in made.items()
        if not path.is_file() or path.read_text() != text
    ]
    assert old == [], "make generate"
    shipped = {path for name in shipped_profiles() for path in (PROFILES / name).iterdir()}
    assert shipped == {path for path in made if path.is_relative_to(PROFILES)}


def test_each_job_has_the_modules_that_it_imports_and_its_playbooks() -> None:
    made = {path for path, _ in job_files.files()}
    kit = [path.name for path in job_files.KIT.glob("*.py")]
    copies = {path for name in kit for path in JOBS.glob(f"*/files/{name}")}
    assert copies == {path for path in made if path.name in kit}
    assert {path.parent.name for path in JOBS.glob("*/install_*.yml")} == {
        path.parent.name for path in made if path.name.startswith("install_")
    }


MAKERS = ("Record", "failed", "sample")


@pytest.mark.promise("P40")
def test_each_metric_that_collect_makes_is_in_the_reference() -> None:
    known = {
        name
        for group in yaml.safe_load((ROOT / "collect/metrics.yml").read_text()).values()
        for name in group
    }
    for path in (
        path for path in (ROOT / "collect").glob("*.py") if not path.name.startswith("test_")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in MAKERS
            ):
                named = node.args[0]
                assert not isinstance(named, ast.Constant) or named.value in known, (
                    f"{path.name}: {ast.unparse(node)}"
                )
    assert (
        set(link_samples.SERIES) | set(page_loads.METRICS) | set(page_loads.HOST_METRICS) <= known
    )


def test_the_base_is_not_a_profile() -> None:
    shipped = "geo geo-acm geo-aloha geo-dama geo-scpc geo-spots geo-terminals leo"
    assert shipped_profiles() == tuple(shipped.split())
    assert LinkOptions(profile="geo-dama").profile_folder() == PROFILES / "geo-dama"
    said = validate.check(PROFILES)
    assert all(": terminal " in line or "OpenSAND 8.2.0" in line for line in said)


def test_a_change_of_what_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = {"topology.xml": {"frequency_plan/no_such_element": 1}}
    layers = iter([{"topology.xml": {"from": "topology.xml"}}, overlay])
    monkeypatch.setattr("satlab.common.yaml_text.read", lambda _: next(layers))
    with pytest.raises(KeyError, match="no_such_element"):
        list(generate.profile("geo"))
