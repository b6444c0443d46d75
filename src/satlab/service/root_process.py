# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` as root: starts the API process without privileges, and is its root helper.

Both end together. Without the API the helper stops the run, removes its lab, and ends; when the
helper ends, the kernel kills the API.
"""

import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.processes import finish
from satlab.lab import privileges, privileges_file
from satlab.openbach import descriptor
from satlab.run.scenario_run import JOBS_VARIABLE, PRIVILEGES_VARIABLE
from satlab.service.api.account_store import FIRST_LOGIN, Role
from satlab.service.api.settings import ApiPlan, Settings
from satlab.service.listen import (
    ListenAddress,
    ServeRequest,
    check,
    listening,
    tls_files,
    token_digest,
)
from satlab.service.root_helper.server import Helper, listen, serve_one

HELPER_SOCKETS = Path("/run/satlab-serve")
END_S = 8.0
"""Time that the API process has to end, s."""
ACCOUNTS_S = 60.0
"""Longest duration of the setup of accounts, s."""
_POLL_MS = 200


def set_password(state: Path, login: str, role: Role, password: str) -> None:
    """Create an account, or change its password and role. Raises ConfigError, HostError."""
    if os.geteuid() != 0:
        raise HostError(
            "accounts belong to the service's own user: this needs root", "run it as root"
        )
    state = state.absolute()
    _make(state)
    check_owner(state)
    set_up_accounts(state, {"login": login, "role": role.name, "password": password})


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
    with locked(state):
        check_owner(state)
        token = set_up_accounts(state, {"public": request.public is not None})
        helper = Helper(state, Settings(state, frozenset()).most_runs)
        path = helper_socket(state)
        with listen(path, privileges.API_UID) as requests, listening(place) as listener:
            api = start_api(request, state, place, path, listener)
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
    """Return the text that is printed at the start.

    The first token is in the fragment of the link, which browsers do not send.
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
    """Check the operator's jobs and their privileges, and name their folder and file to the
    processes of the service.

    Raises ConfigError.
    """
    if request.jobs is not None:
        descriptor.sort_upstream(request.jobs)
        os.environ[JOBS_VARIABLE] = str(request.jobs.resolve())
    if request.privileges is not None:
        privileges_file.load(request.privileges)
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


def start_api(
    request: ServeRequest, state: Path, place: ListenAddress, helper: Path, listener: socket.socket
) -> "subprocess.Popen[bytes]":
    """Start the API process. Raises ConfigError for files of TLS or a token that cannot be used."""
    digest = token_digest(request.metrics_token)
    tls = tls_files(request)
    settings = Settings(
        state,
        hosts=frozenset(place.hosts(request.public, secure=bool(tls))),
        secure=bool(tls),
        allowed=frozenset(name.lower() for name in request.allowed),
        further_jobs=request.jobs.resolve() if request.jobs else None,
        other_runs=paths.ROOT / "runs",
        metrics_token_sha256=digest,
    )
    certificate, key = tls or (None, None)
    plan = ApiPlan(
        settings=settings,
        helper=helper,
        listener=listener.fileno(),
        certificate=certificate,
        key=key,
    )
    jobs = [settings.further_jobs] if settings.further_jobs else []
    process = subprocess.Popen(
        _argv(
            [state, helper.parent, *jobs],
            "satlab.service.api_process",
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
    """Run `satlab.service.account_setup` with a request; return the token of the first
    log-in, '' without one.

    Raises:
        ConfigError: the request is refused.
        HostError: the accounts cannot be opened.
    """
    done = subprocess.run(
        _argv([state], "satlab.service.account_setup", str(state)),
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


def _make(state: Path) -> None:
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise HostError(
            f"{state}: the service cannot make its folder there: {why}", "choose another --state"
        ) from error


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Create the folder if needed, and hold its lock: two servers must not share a queue.

    Raises HostError.
    """
    _make(state)
    if not state.stat().st_mode & stat.S_IXOTH:
        hint = f"chmod o+x {state}, or choose another --state; private folders in it stay closed"
        raise HostError(f"{state}: the service's own user cannot open it", hint)
    (state / "api").mkdir(mode=0o700, exist_ok=True)
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise HostError(
            f"{state}: another satlab serve uses it", "stop that one, or choose another --state"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def check_owner(state: Path) -> None:
    """Check that the API's folder and everything in it belong to the API's user. A new folder is
    given to that user.

    Raises HostError. Nothing else is changed: root must not follow what the API's user may have
    made.
    """
    place = state / "api"
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(
            f"{place}: {error.strerror}", "move it away, or choose another --state"
        ) from error
    try:
        with os.scandir(handle) as entries:
            owners = {each.name: each.stat(follow_symlinks=False).st_uid for each in entries}
        if os.fstat(handle).st_uid == os.geteuid() and not owners:
            os.fchown(handle, privileges.API_UID, privileges.API_UID)
        owners["."] = os.fstat(handle).st_uid
    finally:
        os.close(handle)
    for name, uid in owners.items():
        if uid != privileges.API_UID:
            user = f"{privileges.API_UID}:{privileges.API_UID}"
            hint = f"stop satlab serve, then: chown -hR {user} {place}"
            raise HostError(
                f"{place / name}: belongs to user {uid}, not to the service's own user", hint
            )
