# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve`."""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from satlab.cli.base import Jobs, Privileges, Quiet, command
from satlab.common import needs
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus


@command()
def serve(
    listen: Annotated[
        str,
        typer.Option(
            help="ADDRESS:PORT to listen on. An address that other hosts can reach needs --public."
        ),
    ] = ("127.0.0.1:8000"),
    socket: Annotated[
        Path | None, typer.Option(help="Listen on this Unix socket instead of an address.")
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Folder for accounts, the queue and run folders.")
    ] = Path("/var/lib/satlab"),
    public: Annotated[
        str | None,
        typer.Option(
            help="Host name by which other hosts reach the service. Needs TLS and accounts."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file with the TLS certificate chain.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file with the private key of --tls-cert.")
    ] = None,
    allow_host: Annotated[
        list[str],
        typer.Option(
            help="NAME[:PORT] of a proxy on this host, such as nginx, that passes requests on. Repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    metrics_token: Annotated[
        Path | None,
        typer.Option(help="File with the token that a monitoring system needs to read /metrics."),
    ] = None,
    jobs: Jobs = None,
    privileges: Privileges = None,
    set_password: Annotated[
        str | None,
        typer.Option(
            metavar="LOGIN", help="Create an account, or change its password and role, and end."
        ),
    ] = None,
    role: Annotated[
        Literal["viewer", "runner", "admin"],
        typer.Option(help="With --set-password: role of the account."),
    ] = "runner",
    quiet: Quiet = False,
) -> int:
    """Serve OpenBACH's REST API and the web pages. Scenarios run one at a time, from a queue."""
    from satlab.common.processes import stop_on_signal
    from satlab.service import root_process
    from satlab.service.api.account_store import Role
    from satlab.service.listen import ServeRequest

    needs.ensure("lab", "quic", "fec")
    needs.root("the service's root helper makes network namespaces")
    if set_password is not None:
        password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
        root_process.set_password(state, set_password, Role[role.upper()], password)
        return ExitStatus.OK
    names = tuple(allow_host)
    request = ServeRequest(
        listen, socket, state, public, tls_cert, tls_key, names, jobs, privileges, metrics_token
    )
    root_process.run(request, ProgressLog(quiet), stop_on_signal())
    return ExitStatus.OK
