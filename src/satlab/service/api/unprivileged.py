# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that run as the API's user, without capabilities: the API process, and the setup of
accounts.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.lab import privileges
from satlab.service.api.listen import ListenAddress, ServeRequest, tls_files, token_digest
from satlab.service.api.settings import ApiPlan

ACCOUNTS_S = 60.0
"""Longest duration of the setup of accounts, s."""


def start_api(
    request: ServeRequest, state: Path, place: ListenAddress, helper: Path, listener: socket.socket
) -> "subprocess.Popen[bytes]":
    """Start the API process. Raises ConfigError for files of TLS or a token that cannot be used."""
    digest = token_digest(request.metrics_token)
    tls = tls_files(request)
    secure = bool(tls)
    plan = ApiPlan(
        state=state,
        hosts=place.hosts(request.public, secure=secure),
        allowed=[name.lower() for name in request.allowed],
        jobs=request.jobs.resolve() if request.jobs else None,
        helper=helper,
        listener=listener.fileno(),
        certificate=tls[0] if secure else None,
        key=tls[1] if secure else None,
        metrics_token_sha256=digest,
    )
    process = subprocess.Popen(
        _argv(
            [state, helper.parent, *([plan.jobs] if plan.jobs else [])],
            "satlab.service.pages.api_process",
            plan.model_dump_json(),
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_environment(state),
        cwd="/",
        pass_fds=(listener.fileno(), *tls),
        start_new_session=True,
    )
    for each in tls:
        os.close(each)
    return process


def _argv(visible: list[Path], module: str, argument: str) -> list[str]:
    """Return the argv of a module that runs as the API's user; the kernel kills it when this
    process ends.
    """
    kill = f"--pdeathsig={signal.SIGKILL.name.removeprefix('SIG')}"
    drop = privileges.drop_argv(privileges.API_UID, [*privileges.program_paths(), *visible], kill)
    return [*drop, sys.executable, "-m", module, argument]


def _environment(state: Path) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in ("PATH", "LANG", paths.PROGRAMS_VARIABLE)
    }
    return kept | {
        "HOME": str(state / "api"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": paths.PYTHONPATH,
    }


def set_up_accounts(state: Path, request: dict[str, Any]) -> str:
    """Run `satlab.service.api.account_process` with a request; return the token of the first
    log-in, '' without one.

    Raises:
        ConfigError: the request is refused.
        HostError: the accounts cannot be opened.
    """
    done = subprocess.run(
        _argv([state], "satlab.service.api.account_process", str(state)),
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(state),
        cwd="/",
        timeout=ACCOUNTS_S,
        check=False,
    )
    if done.returncode == ExitStatus.OK:
        return str(json.loads(done.stdout)["token"])
    if done.returncode not in (ExitStatus.USAGE, ExitStatus.HOST) or not done.stdout:
        raise HostError("the accounts cannot be opened", "its error message is above")
    answer = json.loads(done.stdout)
    if done.returncode == ExitStatus.USAGE:
        raise ConfigError(answer["error"], hint=answer["hint"])
    raise HostError(answer["error"], answer["hint"])
