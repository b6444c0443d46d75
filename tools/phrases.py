# SPDX-License-Identifier: GPL-3.0-or-later
"""Print random sentences of documents, `--help` texts and docstrings, for a reader's check: is each
one clear alone?
"""

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "docs/specification.md", "docs")
PYTHON = ("lab", "collect", "openbach-scenarios", "tools")
RUST = ("crates",)
FEWEST_WORDS = 5
"""Shorter pieces are values or labels, not sentences."""
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`(\"*])")
_WORD = re.compile(r"[A-Za-z]{2,}")
_RUST_DOC = re.compile(r"(?:^[ \t]*//[/!] ?[^\n]*\n)+", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    found = _END.split(" ".join(text.split()))
    return [sentence for sentence in found if len(_WORD.findall(sentence)) >= FEWEST_WORDS]


def files(places: tuple[str, ...], suffix: str) -> Iterator[Path]:
    """Yield the files of a kind in order."""
    for place in places:
        path = ROOT / place
        yield from [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))


def from_documents() -> Iterator[tuple[str, str]]:
    """Yield (place, sentence) of running text and of table cells."""
    for path in files(DOCUMENTS, ".md"):
        text = re.sub(
            r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for paragraph in re.split(
            r"\n\s*\n|^#.*$|^ *[-*] |^ *\d+\. |(?:^| )\|(?: |$)", text, flags=re.MULTILINE
        ):
            for sentence in sentences(paragraph):
                yield str(path.relative_to(ROOT)), sentence


def from_docstrings() -> Iterator[tuple[str, str]]:
    """Yield (place, sentence) of Python docstrings and Rust doc comments."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in files(PYTHON, ".py"):
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            yield from ((place, sentence) for sentence in sentences(text or ""))
    for path in files(RUST, ".rs"):
        place = str(path.relative_to(ROOT))
        for block in _RUST_DOC.findall(path.read_text(encoding="utf-8")):
            text = re.sub(r"^[ \t]*//[/!] ?", "", block, flags=re.MULTILINE)
            yield from (
                (place, sentence) for part in text.split("\n\n") for sentence in sentences(part)
            )


def from_help() -> Iterator[tuple[str, str]]:
    """Yield (command, sentence) of the help texts of commands, arguments and options."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    import typer  # noqa: PLC0415 - the path is known now

    from satlab import cli  # noqa: PLC0415

    waiting = [("satlab", typer.main.get_command(cli.app))]
    while waiting:
        name, command = waiting.pop(0)
        waiting += [
            (f"{name} {each}", below) for each, below in getattr(command, "commands", {}).items()
        ]
        texts = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
        yield from (
            (f"{name} --help", sentence) for text in texts for sentence in sentences(text or "")
        )


def main() -> int:
    """Print as many sentences as asked for, an equal share of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other sentences")
    parser.add_argument("--count", type=int, default=10, help="number of sentences")
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 - no secret
    kinds = [sorted(set(kind())) for kind in (from_documents, from_help, from_docstrings)]
    for number in range(options.count):
        place, sentence = chance.choice(kinds[number % len(kinds)])
        print(f"{place}\n    {sentence}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
