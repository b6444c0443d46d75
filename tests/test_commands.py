# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command's `--help`, and every command line that a document prints."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from satlab.cli import app
from satlab.common import needs
from satlab.common.errors import ConfigError
from satlab.papers import shipped_papers
from satlab.run import catalog

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "openbach-scenarios/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LAUNCHER_ONLY = {"test", "--install"}
PRINTED = re.compile(r"\./satlab ((?:[^\n\\]|\\.|\\\n)*)")


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from commands(below, (*words, name))


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
@pytest.mark.promise("P31")
def test_every_help_is_printed_and_builds_nothing(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("--help installs or builds")

    monkeypatch.setattr(needs, "ensure", refuse)
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def printed(document: Path) -> Iterator[list[str]]:
    """Return the words of each command line of satlab that a document's code blocks have, without
    launcher verbs.
    """
    for kind, block in re.findall(
        r"^```(\w*)\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL
    ):
        for line in PRINTED.findall(block) if kind in ("", "sh", "bash", "console") else ():
            for part in line.replace("\\\n", " ").split("&& ./satlab "):
                words = shlex.split(re.sub(r"\s#.*|\s&&.*|\s[|>].*", "", part), comments=False)
                if words and words[0] not in LAUNCHER_ONLY:
                    yield [word for word in words if word not in ("[runs/<id>", "...]")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_printed_command_lines_have_the_options_that_they_name(document: Path) -> None:
    for words in printed(document):
        command: Any = typer.main.get_command(app)
        name, rest = "satlab", list(words)
        while hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(
                command.make_context(name, rest, resilient_parsing=True), rest
            )
        try:
            command.make_context(name, rest)
        except Exception as error:
            raise AssertionError(f"{document.name}: ./satlab {' '.join(words)}: {error}") from error


def test_documents_print_commands() -> None:
    assert sum(len(list(printed(document))) for document in DOCUMENTS) > 30


@pytest.mark.parametrize("kind", catalog.KINDS)
@pytest.mark.promise("P30")
def test_everything_that_ships_has_one_line(kind: catalog.Kind) -> None:
    found = catalog.shipped(kind)
    assert found
    assert all(line and "\n" not in line for line in found.values())


def test_papers_are_those_that_can_be_repeated() -> None:
    names = [shipped_papers.KNOWN_AS.get(name, name) for name in catalog.shipped("papers")]
    assert sorted(names) == sorted(shipped_papers.CLOCKS), "each has the name that it is known by"
    listed = catalog.shipped("papers")["kosek-2022"]
    assert listed.endswith("(seed-002)"), "and the name of its folder"


def test_a_shipped_scenario_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalog.scenario_file(Path("bulk_tcp")).name == "bulk_tcp.json"
    with pytest.raises(ConfigError, match="no such file"):
        catalog.scenario_file(Path("elsewhere/bulk_tcp.json"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bulk_tcp").touch()
    assert catalog.scenario_file(Path("bulk_tcp")) == Path("bulk_tcp")
    result = CliRunner().invoke(app, ["run", "bulk_tpc", "--dry-run"])
    assert result.exit_code == 2


SAID = re.compile(
    r"\bsatlab ((?:[\w-]+|--[\w-]+|[A-Z<{][\w./<>{}-]*)(?: (?:--?[\w-]+(?:=\S+)?|[\w./<>{}=-]+))*)"
)
"""What hints and pages say to type, up to the end of the phrase."""
SOURCES = [
    *(
        path
        for path in (ROOT / "src").rglob("*.py")
        if not path.name.startswith(("test_", "conftest"))
    ),
    *(ROOT / "src/satlab/service/pages/templates").glob("*.html"),
    *(ROOT / "src/satlab/report").rglob("*.html"),
]


def said(path: Path) -> Iterator[str]:
    """Yield the texts of a file that people read: strings of Python, the text of a template."""
    if path.suffix == ".html":
        yield re.sub(r"<[^>]*>|{[{%].*?[}%]}", " ", path.read_text())
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown_options(words: list[str]) -> list[str]:
    """Return the options of a command line that its command does not have; none if it names no
    command.
    """
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if hasattr(command, "commands"):
        return []
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    return [
        word
        for word in words
        if word.startswith("-") and word.partition("=")[0] not in known and word != "--"
    ]


def test_hints_and_pages_name_options_that_their_commands_have() -> None:
    found = 0
    for path in SOURCES:
        for text in said(path):
            for phrase in SAID.findall(text):
                words = phrase.split()
                found += words[0] in typer.main.get_command(app).commands  # type: ignore[attr-defined]
                assert not unknown_options(words), f"{path.relative_to(ROOT)}: satlab {phrase}"
    assert found > 40
    assert unknown_options(["run", "bulk_tcp", "--such"]) == ["--such"]
