# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents are true: promises and defences have tests, and named files and statuses exist."""

import re
from pathlib import Path

import pytest
import yaml

from satlab.common.errors import ExitStatus

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "collect", "openbach-scenarios", "benches", "tests", "crates", "web-targets")
PYTHON_MARKER = re.compile(r"^\s*@pytest\.mark\.promise\(([^)]*)\)\n(?:\s*@.*\n)*", re.MULTILINE)
RUST_MARKER = re.compile(r"^\s*// promise: (P\d+(?:, P\d+)*)\n\s*(?:async )?fn ", re.MULTILINE)
DEFENCE = re.compile(r"\b(?:def|fn) test_t(\d\d)_")


def sources(suffix: str) -> list[str]:
    """Return the text of each source file with a suffix."""
    return [
        path.read_text(encoding="utf-8")
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob(f"*{suffix}"))
        if "target" not in path.parts
    ]


def rows(document: str, letter: str) -> list[str]:
    """Return the ids in the tables of a document."""
    return re.findall(rf"^\| ({letter}\d+) \|", (ROOT / document).read_text(), re.MULTILINE)


def test_each_promise_has_a_test_and_each_marker_a_promise() -> None:
    promises = rows("docs/specification.md", "P")
    assert promises == [f"P{number}" for number in range(1, len(promises) + 1)]
    marked = [found for text in sources(".py") for found in PYTHON_MARKER.findall(text)]
    marked += [found for text in sources(".rs") for found in RUST_MARKER.findall(text)]
    assert {id_ for found in marked for id_ in re.findall(r"P\d+", found)} == set(promises)


def test_each_defence_has_a_test_and_each_number_in_a_name_a_defence() -> None:
    named = {
        f"T{int(number)}"
        for suffix in (".py", ".rs")
        for text in sources(suffix)
        for number in DEFENCE.findall(text)
    }
    defences = rows("docs/security.md", "T")
    assert named == set(defences) and len(defences) == len(set(defences))


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_documents_name_existing_files(name: str) -> None:
    paths = re.findall(r"`([\w-]+(?:/[\w.-]+)+(?:\.\w+|/))`", (ROOT / name).read_text())
    made = ("raw/", "report/", "runs/")
    written = {path for path in paths if "NAME" not in path and not path.startswith(made)}
    assert not [
        path
        for path in written
        if not any((root / path).exists() for root in (ROOT, ROOT / "src/satlab"))
    ]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_addresses_of_scenarios_and_profiles_are_those_of_the_topology() -> None:
    topology = yaml.safe_load((ROOT / "vagrant" / "lab.yml").read_text())
    interfaces = [i for node in topology["nodes"].values() for i in node["interfaces"].values()]
    known = {interface["address"] for interface in interfaces}
    for path in sorted((ROOT / "openbach-scenarios" / "scenarios").glob("*.json")):
        for address in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", path.read_text()):
            is_tunnel = address.startswith("198.19.")  # the second half of RFC 2544's addresses
            assert address in known or is_tunnel, f"{path.name}: {address}"
    emulation = {i["address"] for i in interfaces if i["network"] == "emulation"}
    for path in sorted((ROOT / "opensand-profiles").glob("*/infrastructure_*.xml")):
        text = path.read_text()
        assert all(f"<emu_address>{address}</emu_address>" in text for address in emulation), path


def test_no_path_or_registry_of_a_build_machine_is_in_the_tree() -> None:
    needle = re.compile("/wo" + r"rk/(main|shared)|index-" + "url|find-" + "links")
    files = [
        path
        for folder in ("src", "collect", "crates", "docs", "tests")
        for path in (ROOT / folder).rglob("*")
    ]
    files += [path for path in ROOT.glob("*") if path.name != ".git"]
    suffixes = {".py", ".rs", ".md", ".toml", ".lock", ".yml", ""}
    offenders = [path for path in files if path.is_file() and path.suffix in suffixes]
    assert not [path for path in offenders if needle.search(path.read_text(errors="replace"))]


def test_the_reference_has_every_exit_status() -> None:
    found = re.findall(r"^\| (\d+) \|", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert {int(status) for status in found} == {int(status) for status in ExitStatus}
