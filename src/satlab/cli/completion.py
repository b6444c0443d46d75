# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab completion`: a script with all commands and options, so that the Tab key starts no
program.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.main

from satlab.cli.base import app, command
from satlab.common import paths
from satlab.common.errors import ExitStatus

_LAUNCHER = ("test", "--install")
"""Words of the launcher, not of the program."""
_FUNCTION = r"""
_satlab() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} path=satlab word index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    [[ -n ${_satlab_words["$path $word"]+x} ]] && path="$path $word"
  done
  local words=${_satlab_values["$path $previous"]-}
  if [[ -z $words ]]; then
    words=${_satlab_words[$path]-}
    [[ $current != -* ]] && words="${words//--+([^ ])/} ${_satlab_arguments[$path]-}"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _satlab satlab ./satlab
"""
"""`path`: the command so far.

Options are offered after a hyphen; else commands and arguments, then files.
"""


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"


@command()
def completion(shell: Annotated[Shell, typer.Argument(help="Shell.")]) -> int:
    """Print a completion script: source <(./satlab completion bash)"""
    print(script(shell), end="")
    return ExitStatus.OK


def script(shell: Shell) -> str:
    """Return the script of a shell; zsh runs bash's one."""
    words, values = {"satlab": " ".join(_LAUNCHER)}, dict[str, str]()
    for path, current in commands(typer.main.get_command(app)):
        offered = [*_below(current), *(flag for each in current.params for flag in _flags(each))]
        words[path] = " ".join([*offered, *words.get(path, "").split()])
        values |= {
            f"{path} {flag}": text
            for each in current.params
            for flag in _flags(each)
            if (text := _choices(each))
        }
    scenarios = " ".join(sorted(path.stem for path in paths.SCENARIOS.glob("*.json")))
    head = (
        "autoload -U +X bashcompinit && bashcompinit\nsetopt extendedglob kshglob\n"
        if shell is Shell.ZSH
        else "shopt -s extglob\n"
    )
    tables = {"words": words, "values": values, "arguments": {"satlab run": scenarios}}
    return (
        head
        + "".join(_table(name, table) for name, table in tables.items())
        + _FUNCTION.lstrip("\n")
    )


def commands(current: Any, path: str = "satlab") -> Iterator[tuple[str, Any]]:
    """Yield a command and all below it, each with its words."""
    yield path, current
    for name, below in _below(current).items():
        yield from commands(below, f"{path} {name}")


def _below(current: Any) -> dict[str, Any]:
    """Return the commands of a group, without those that only programs use."""
    return {
        name: below for name, below in getattr(current, "commands", {}).items() if not below.hidden
    }


def _flags(parameter: Any) -> list[str]:
    return [flag for flag in (*parameter.opts, *parameter.secondary_opts) if flag.startswith("--")]


def _choices(parameter: Any) -> str:
    """Return the words that an option takes; '' where it takes any."""
    if "--profile" in parameter.opts:
        return " ".join(paths.shipped_profiles())
    return " ".join(
        str(getattr(choice, "value", choice)) for choice in parameter.type_descriptor.choices or ()
    )


def _table(name: str, entries: dict[str, str]) -> str:
    lines = "".join(f"  ['{key}']='{text}'\n" for key, text in entries.items())
    return f"typeset -gA _satlab_{name}=(\n{lines})\n"
