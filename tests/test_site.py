# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site's rules; `make lint` builds the whole site by them."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from satlab.cli import app
from satlab.common import paths
from satlab.link.change_options import LinkChange
from satlab.link.option_model import options_of
from satlab.link.options import LinkOptions
from tests import sphinx_site


@pytest.mark.parametrize(
    ("link", "said"), [("../README.md", ""), ("missing.md", "missing.md"), ("#nowhere", "nowhere")]
)
def test_a_broken_link_fails(link: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Read me\n\nText.\n")
    (tmp_path / "docs/index.md").write_text(f"# Index\n\n[link]({link})\n")
    done = sphinx_site.build(tmp_path, tmp_path / "out")
    assert (done.returncode == 0) is (not said) and said in done.stderr, done.stderr
    assert (tmp_path / "out/docs/index.html").is_file()


DOCS = paths.ROOT / "docs"


def test_the_index_has_every_page() -> None:
    listed = re.findall(r"^[\w./-]+$", (DOCS / "index.md").read_text(), re.MULTILINE)
    written = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert (
        not {name for name in written if not name.startswith("decisions/")}
        - {"index"}
        - set(listed)
    )


def test_the_reference_has_every_command_with_every_option() -> None:
    text = (DOCS / "cli.md").read_text()
    sections = dict(re.findall(r"^#+ satlab ([\w -]+)\n((?:(?!^#).*\n)*)", text, re.MULTILINE))
    command: Any = typer.main.get_command(app)
    pending = [(name, each) for name, each in command.commands.items() if not each.hidden]
    while pending:
        words, each = pending.pop()
        pending += [
            (f"{words} {name}", one)
            for name, one in getattr(each, "commands", {}).items()
            if not one.hidden
        ]
        options = {option for parameter in each.params for option in parameter.opts} - {
            "--help",
            "-h",
        }
        missing = (
            options if words not in sections else {o for o in options if o not in sections[words]}
        )
        assert words in sections and (hasattr(each, "commands") or not missing), (
            f"{words}: {missing}"
        )


def test_the_reference_has_every_option_of_a_link_and_every_schema() -> None:
    text = (DOCS / "link-options.md").read_text()
    for option in (*options_of(LinkOptions), *options_of(LinkChange)):
        assert f"`{option.flag}`" in text
    assert all(
        path.name in (DOCS / "files.md").read_text() for path in paths.SCHEMAS.glob("*.json")
    )
