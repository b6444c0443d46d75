# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual page satlab(1), from the help of all commands (man(7))."""

from collections.abc import Iterator
from typing import Any

import typer.main

from satlab import __version__
from satlab.cli import app
from satlab.cli.completion import commands

FILES = """\
.SH FILES
.TP
.I runs/
Run folders of the command line: manifest, raw files, records, report.
.TP
.I /var/lib/satlab/
Accounts, queue and run folders of
.BR "satlab serve" .
.SH SEE ALSO
.IR /usr/share/doc/satlab/ ,
.BR iperf3 (1),
.BR ip-netns (8)
"""


def page(date: str) -> str:
    """Return the page; `date` is that of the version, YYYY-MM-DD."""
    program = typer.main.get_command(app)
    head = f'.TH SATLAB 1 "{date}" "satlab {__version__}" "User Commands"\n.ad l\n.nh\n'
    summary = "\\- emulate a satellite link and measure TCP, QUIC, HTTP/3 and page loads over it"
    parts = [head, f".SH NAME\nsatlab {summary}\n"]
    parts.append(".SH SYNOPSIS\n.B satlab\n.I COMMAND\n.RI [ OPTIONS ]\n")
    parts.append(
        f".SH DESCRIPTION\n{_text(str(program.help))}\n.PP\n{_text(str(program.epilog))}\n"
    )
    parts.append(".SH COMMANDS\n")
    parts += (text for path, each in commands(program) for text in _command(path, each))
    return "".join([*parts, FILES])


def _command(path: str, current: Any) -> Iterator[str]:
    if getattr(current, "commands", {}):
        return
    yield f".SS {_text(path)}\n{_text(current.help or '')}\n"
    context = current.make_context(path.rpartition(" ")[2], [], resilient_parsing=True)
    for each in current.params:
        record = each.get_help_record(context)
        if record and "--help" not in record[0]:
            yield f".TP\n.B {_text(record[0])}\n{_text(record[1])}\n"
    if current.epilog:
        yield f".PP\n{_text(current.epilog)}\n"


def _text(text: str) -> str:
    """Return text on one line in which man finds no requests."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line
