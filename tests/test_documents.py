# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documents claim must exist: tests of promises, files, commands, exit statuses."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROMISE = re.compile(r"^\| (P\d+|T\d+) \|.*\|([^|]*)\|$", re.MULTILINE)
REFERENCE = re.compile(r"`([\w./-]+)::(\w+)`")


def promises() -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in PROMISE.finditer((ROOT / "SPECIFICATION.md").read_text())]


def test_specification_has_promises() -> None:
    assert len(promises()) >= 20


@pytest.mark.parametrize(("number", "cell"), promises())
def test_each_promise_names_a_test_that_exists(number: str, cell: str) -> None:
    references = REFERENCE.findall(cell)
    assert references or cell.strip().startswith(("pending", "bench")), f"{number} names no test"
    for path, name in references:
        text = (ROOT / path).read_text()
        assert re.search(rf"\b(def|fn) {name}\b", text), f"{number}: {path} has no {name}"


THREATS = {f"T{number}" for number in range(1, 16)}


def test_each_threat_has_a_row_and_a_test_that_bears_its_number() -> None:
    rows = {number: cell for number, cell in promises() if number.startswith("T")}
    assert rows.keys() >= THREATS
    for number, cell in rows.items():
        wanted = f"test_t{int(number[1:]):02}_"
        assert any(name.startswith(wanted) for _, name in REFERENCE.findall(cell)), f"{number} has no {wanted}..."


def test_promise_numbers_are_unique() -> None:
    numbers = [number for number, _ in promises()]
    assert len(numbers) == len(set(numbers))


def test_readme_is_short_and_names_existing_places() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    for place in re.findall(r"^\| `(\w[\w./-]*)`", text, re.MULTILINE):
        assert (ROOT / place).exists(), place
    for scenario in re.findall(r"openbach-scenarios/scenarios/\w+\.json", text):
        assert (ROOT / scenario).is_file(), scenario


def test_scenario_addresses_are_the_topology_s() -> None:
    topology = yaml.safe_load((ROOT / "vagrant" / "lab.yml").read_text())
    known = {i["address"] for node in topology["nodes"].values() for i in node["interfaces"].values()}
    for path in sorted((ROOT / "openbach-scenarios" / "scenarios").glob("*.json")):
        for address in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", path.read_text()):
            assert address in known, f"{path.name}: {address} is no address of vagrant/lab.yml"


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
            assert f"<emu_address>{address}</emu_address>" in text, f"{path}: {node} has another address"


def test_no_path_or_registry_of_a_build_machine_is_in_the_tree() -> None:
    tracked = [p for folder in ("lab", "collect", "crates", "docs", "tests") for p in (ROOT / folder).rglob("*")]
    tracked += [p for p in ROOT.glob("*") if p.is_file() and p.name != ".git"]
    needle = re.compile("/wo" + r"rk/(main|shared)|index-" + "url|find-" + "links")
    offenders = [p for p in tracked if p.suffix in {".py", ".rs", ".md", ".toml", ".lock", ".yml", ""} and p.is_file()]
    assert not [p for p in offenders if needle.search(p.read_text(errors="replace"))]


def test_status_table_is_the_same_in_readme_architecture_and_code() -> None:
    from satlab.common.errors import ExitStatus

    for name in ("README.md", "ARCHITECTURE.md"):
        rows = re.findall(r"^\| (\d+) \|", (ROOT / name).read_text(), re.MULTILINE)
        assert {int(r) for r in rows} == {int(s) for s in ExitStatus}, name
