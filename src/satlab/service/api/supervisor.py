# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` as root: starts the API process without privileges, and is its root helper.

Both end together. Without the API the helper stops the run, removes its lab, and ends; when the
helper ends, the kernel kills the API.
"""

import hashlib
import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path

from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.common.processes import finish
from satlab.lab import grants, privileges
from satlab.openbach import descriptor
from satlab.run.run import JOBS_VARIABLE, PRIVILEGES_VARIABLE
from satlab.service.api import state_folder, unprivileged
from satlab.service.api.account_store import FIRST_LOGIN, Role
from satlab.service.api.listen import ListenAddress, ServeRequest, check, listening
from satlab.service.api.settings import Settings
from satlab.service.helper.daemon import Helper, listen, serve_one

HELPER_SOCKETS = Path("/run/satlab-serve")
END_S = 8.0
"""Time that the API process has to end, s."""
_POLL_MS = 200


def set_password(state: Path, login: str, role: Role, password: str) -> None:
    """Create an account, or change its password and role. Raises ConfigError, HostError."""
    if os.geteuid() != 0:
        raise HostError(
            "accounts belong to the service's own user: this needs root", "run it as root"
        )
    state = state.absolute()
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    state_folder.check_owner(state)
    unprivileged.set_up_accounts(state, {"login": login, "role": role.name, "password": password})


def helper_socket(state: Path) -> Path:
    """Return the socket of the root helper of the server with this (absolute) state folder."""
    return HELPER_SOCKETS / f"{hashlib.sha256(os.fsencode(state)).hexdigest()[:12]}.sock"


def run(request: ServeRequest, log: ProgressLog, stop: threading.Event) -> None:
    """Serve until `stop`.

    Raises ConfigError; HostError if the host is not able to, or the API process ends.
    """
    place = check(request)
    if os.geteuid() != 0:
        raise HostError(
            "satlab serve needs root: its helper makes network namespaces", "run it as root"
        )
    state = request.state.absolute()
    name_jobs(request)
    with state_folder.locked(state):
        state_folder.check_owner(state)
        token = unprivileged.set_up_accounts(state, {"public": request.public is not None})
        helper = Helper(state, Settings(state, frozenset()).most_runs)
        path = helper_socket(state)
        with listen(path, privileges.API_UID) as requests, listening(place) as listener:
            api = unprivileged.start_api(request, state, place, path, listener)
            try:
                for line in greeting(request, place, token):
                    log.line(line)
                _answer(helper, requests, api, stop)
            finally:
                requests.close()  # the API gets an error at once, and no answer that never comes
                finish(api, END_S)
                helper.close()
                path.unlink(missing_ok=True)


def greeting(request: ServeRequest, place: ListenAddress, token: str) -> list[str]:
    """Return what is printed at the start.

    The first token is in the fragment of the link, which no browser sends.
    """
    url = place.url(request.public, secure=request.certificate is not None)
    lines = [f"satlab serves {url or place}"]
    if token:
        lines.append(
            f"no account has a password: log in once as {FIRST_LOGIN} with the password {token}"
        )
        lines += [f"or open {url}login#token={token}"] if url else []
    return lines


def name_jobs(request: ServeRequest) -> None:
    """Check further jobs and what they may do, and name them to the processes of the service.

    Raises ConfigError.
    """
    if request.jobs is not None:
        descriptor.sort_upstream(request.jobs)
        os.environ[JOBS_VARIABLE] = str(request.jobs.resolve())
    if request.privileges is not None:
        grants.load(request.privileges)
        os.environ[PRIVILEGES_VARIABLE] = str(request.privileges.resolve())


def _answer(
    helper: Helper, requests: socket.socket, api: "subprocess.Popen[bytes]", stop: threading.Event
) -> None:
    """Answer the API's requests until `stop`. Raises HostError when the API process has ended."""
    watched = select.poll()
    watched.register(requests, select.POLLIN)
    while not stop.is_set():
        if watched.poll(_POLL_MS):
            serve_one(requests, helper, privileges.API_UID)
        if (code := api.poll()) is not None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            raise HostError(
                f"the API process ended {how}",
                "its error message is above; start satlab serve again",
            )
