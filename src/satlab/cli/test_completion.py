# SPDX-License-Identifier: GPL-3.0-or-later
"""Words that bash offers with our script."""

import shlex
import shutil
import subprocess

import pytest

from satlab.cli.completion import Shell, script


def offered(*words: str) -> list[str]:
    """Return what bash offers for the last word."""
    line = " ".join(shlex.quote(word) for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _satlab; "
    program = script(Shell.BASH) + asked + "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(
        ["bash", "--norc", "-uc", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("satlab", "rep"), {"report", "reproduce"}),
        (("satlab", "te"), {"test"}),
        (("satlab", "link", "s"), {"set", "show"}),
        (("satlab", "run", "bulk_t"), {"bulk_tcp"}),
        (
            ("satlab", "run", "bulk_tcp", "--profile", "ge"),
            {"geo", "geo-acm", "geo-aloha", "geo-dama", "geo-scpc", "geo-spots", "geo-terminals"},
        ),
        (("satlab", "run", "--loss-u"), {"--loss-unit"}),
        (("satlab", "run", "--loss-unit", "f"), {"frame"}),
        (("satlab", "run", "--loss"), {"--loss", "--loss-unit", "--loss-model"}),
        (("satlab", "completion", "--h"), set()),
        (("satlab", "campaign", "ta"), set()),
    ],
)
@pytest.mark.promise("P31")
def test_bash_offers_commands_options_and_their_values(
    words: tuple[str, ...], expected: set[str]
) -> None:
    assert set(offered(*words)) == expected


def test_without_a_hyphen_no_option_is_offered() -> None:
    found = offered("satlab", "run", "")
    assert "bulk_tcp" in found
    assert not [word for word in found if word.startswith("-")]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_reads_the_script() -> None:
    subprocess.run(
        ["zsh", "-fec", script(Shell.ZSH) + "print -r -- ok"], check=True, stdout=subprocess.DEVNULL
    )


def test_nothing_in_the_script_is_expanded() -> None:
    for line in script(Shell.BASH).splitlines():
        if line.startswith("  ['"):
            assert not set(line) & set("`$\\"), line
            assert line.count("'") == 4, line
