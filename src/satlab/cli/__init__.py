# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line. stdout is data, stderr is log; one printer for errors; statuses are in
`errors.ExitStatus`.
"""

from satlab.cli import (  # noqa: F401 - each registers its commands
    bench,
    campaign,
    check,
    completion,
    flows,
    lab,
    run,
    serve,
    vm,
)
from satlab.cli.base import app
from satlab.common import needs

__all__ = ["app", "main"]


def main() -> None:
    """Run the program and end with the status of its outcome."""
    needs.started_by_launcher()
    app(prog_name="satlab")
