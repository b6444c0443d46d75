# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documents claim must exist: tests of promises, files, commands, exit statuses."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SPECIFICATION = (ROOT / "docs/specification.md").read_text()
PROMISES = re.findall(r"^\| ([PT]\d+) \| .+ \|$", SPECIFICATION, re.MULTILINE)
FILES: dict[str, dict[str, list[str]]] = {
    file.stem: yaml.safe_load(file.read_text())
    for file in sorted((ROOT / "tests" / "promises").glob("*.yml"))
}
"""The tests of each promise, path::name, in a file for each section of the specification."""
TESTS = {number: names for file in FILES.values() for number, names in file.items()}
LONGEST_LINE = 200


def test_specification_has_promises() -> None:
    assert len(PROMISES) >= 120


@pytest.mark.parametrize("number", PROMISES)
def test_each_promise_names_tests_that_exist(number: str) -> None:
    assert TESTS.get(number), f"tests/promises has no test of {number}"
    for reference in TESTS[number]:
        path, name = reference.split("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"\b(def|fn) {name}\b", text), f"{number}: {path} has no {name}"


def test_each_section_has_a_file_with_its_promises() -> None:
    sections: dict[str, list[str]] = {}
    for heading, text in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", SPECIFICATION, re.MULTILINE):
        name = re.sub(r"[^a-z0-9]+", "_", heading.lower().replace("'s", "")).strip("_")
        sections.setdefault(name, []).extend(re.findall(r"^\| ([PT]\d+) \|", text, re.MULTILINE))
    assert {name: list(file) for name, file in FILES.items()} == sections


def test_promises_are_numbered_in_order() -> None:
    for letter in "PT":
        numbers = [number for number in PROMISES if number.startswith(letter)]
        assert numbers == [f"{letter}{position}" for position in range(1, len(numbers) + 1)]


def test_lines_of_the_specification_are_short() -> None:
    assert not [line for line in SPECIFICATION.splitlines() if len(line) > LONGEST_LINE]


def test_each_threat_has_a_test_that_bears_its_number() -> None:
    threats = [number for number in PROMISES if number.startswith("T")]
    assert len(threats) >= 15
    for number in threats:
        start = f"test_t{int(number[1:]):02}_"
        assert any(reference.split("::")[1].startswith(start) for reference in TESTS[number]), (
            f"{number} has no {start}..."
        )


ARCHITECTURE_ROOTS = (".", "src/satlab")
"""Paths in documents are relative to one of these."""


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "docs/glossary.md"])
def test_documents_name_existing_files(name: str) -> None:
    paths = re.findall(r"`([\w-]+(?:/[\w.-]+)+(?:\.\w+|/))`", (ROOT / name).read_text())
    written = {path for path in paths if not path.startswith(("raw/", "report/"))}
    assert not [
        path
        for path in written
        if not any((ROOT / root / path).exists() for root in ARCHITECTURE_ROOTS)
    ]


def test_readme_is_short_and_names_existing_places() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    for place in re.findall(r"^\| `(\w[\w./-]*)`", text, re.MULTILINE):
        assert (ROOT / place).exists(), place
    for scenario in re.findall(r"openbach-scenarios/scenarios/\w+\.json", text):
        assert (ROOT / scenario).is_file(), scenario


def test_scenario_addresses_are_the_topology_s() -> None:
    topology = yaml.safe_load((ROOT / "vagrant" / "lab.yml").read_text())
    known = {
        i["address"] for node in topology["nodes"].values() for i in node["interfaces"].values()
    }
    for path in sorted((ROOT / "openbach-scenarios" / "scenarios").glob("*.json")):
        for address in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", path.read_text()):
            is_tunnel = address.startswith(
                "198.19."
            )  # the other half of the benchmarking addresses (RFC 2544)
            assert address in known or is_tunnel, (
                f"{path.name}: {address} is not an address of vagrant/lab.yml"
            )


def test_profile_addresses_are_the_topology_s() -> None:
    topology = yaml.safe_load((ROOT / "vagrant" / "lab.yml").read_text())
    emulation = {
        name: i["address"]
        for name, node in topology["nodes"].items()
        for i in node["interfaces"].values()
        if i["network"] == "emulation"
    }
    for path in sorted((ROOT / "opensand-profiles").glob("*/infrastructure_*.xml")):
        text = path.read_text()
        for node, address in emulation.items():
            assert f"<emu_address>{address}</emu_address>" in text, (
                f"{path}: {node} has another address"
            )


def test_no_path_or_registry_of_a_build_machine_is_in_the_tree() -> None:
    tracked = [
        p
        for folder in ("lab", "collect", "crates", "docs", "tests")
        for p in (ROOT / folder).rglob("*")
    ]
    tracked += [p for p in ROOT.glob("*") if p.is_file() and p.name != ".git"]
    needle = re.compile("/wo" + r"rk/(main|shared)|index-" + "url|find-" + "links")
    offenders = [
        p
        for p in tracked
        if p.suffix in {".py", ".rs", ".md", ".toml", ".lock", ".yml", ""} and p.is_file()
    ]
    assert not [p for p in offenders if needle.search(p.read_text(errors="replace"))]


def test_status_table_is_the_same_in_readme_architecture_and_code() -> None:
    from satlab.common.errors import ExitStatus

    for name in ("README.md", "ARCHITECTURE.md"):
        rows = re.findall(r"^\| (\d+) \|", (ROOT / name).read_text(), re.MULTILINE)
        assert {int(r) for r in rows} == {int(s) for s in ExitStatus}, name
