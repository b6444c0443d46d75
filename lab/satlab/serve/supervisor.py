# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` itself, as root: checks what is asked, starts the API process without privilege, is its root helper.

The two live and die together: without the API the helper ends the run that goes on, removes its lab, and ends; the
kernel ends the API with the helper.
"""

import fcntl
import hashlib
import ipaddress
import json
import os
import select
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.processes import finish
from satlab.netlab import privileges
from satlab.rootd.daemon import Helper, listen, serve_one
from satlab.serve.accounts import FIRST_LOGIN, Role
from satlab.serve.api_plan import ApiPlan
from satlab.serve.settings import Settings

HELPER_SOCKETS = Path("/run/satlab-serve")
SETUP_S = 60.0
"""How long the accounts may take to answer before the service starts, s."""
END_S = 8.0
"""How long the API process may take to end, s."""
FOREIGN = stat.S_IWGRP | stat.S_IRWXO
"""Modes that a private key must not have; a group, as Debian's ssl-cert, may read it."""
_POLL_MS = 200


@dataclass(frozen=True)
class ServeRequest:
    """What a person asks for. `public`: the name that clients call the service by; only then is it open to others."""

    listen: str
    socket: Path | None
    state: Path
    public: str | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class ListenAddress:
    """Where the service listens: an address with a port, or a path."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    port: int
    path: Path | None

    def hosts(self, public: str | None, *, secure: bool) -> list[str]:
        """Return the values of Host that are answered."""
        if self.path is not None:
            return ["localhost"]
        names = [public.lower()] if public else ["localhost", "127.0.0.1", "[::1]"]
        is_own = self.port == (443 if secure else 80)
        return [f"{name}:{self.port}" for name in names] + (names if is_own else [])

    def __str__(self) -> str:
        """Return it as a person writes it."""
        if self.path is not None:
            return str(self.path)
        text = f"[{self.address}]" if self.address is not None and self.address.version == 6 else str(self.address)
        return f"{text}:{self.port}"


def check(request: ServeRequest) -> ListenAddress:
    """Check what is asked; touches nothing. Raises ConfigError."""
    if request.socket is not None:
        return ListenAddress(None, 0, request.socket)
    place = _place(request.listen)
    is_open = place.address is not None and not place.address.is_loopback
    if is_open and request.public is None:
        hint = "add --public NAME (by which clients call it), --tls-cert and --tls-key; or listen on 127.0.0.1"
        raise ConfigError(f"--listen {request.listen}: is open to others", hint=hint)
    if request.public is not None and (request.certificate is None or request.key is None):
        raise ConfigError("--public: passwords would cross the network in clear", hint="add --tls-cert and --tls-key")
    if (request.certificate is None) != (request.key is None):
        raise ConfigError("--tls-cert and --tls-key go together")
    return place


def _place(text: str) -> ListenAddress:
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if not colon or address is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"--listen {text}: is no address and port", hint="for example 127.0.0.1:8000")
    return ListenAddress(address, int(port), None)


def set_password(state: Path, login: str, role: Role, password: str) -> None:
    """Make an account or change its password and role. Raises ConfigError for what is none, HostError without root."""
    if os.geteuid() != 0:
        raise HostError("accounts are kept by the service's own user: this needs root", "run it as root")
    state = state.absolute()
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    _own_folder(state)
    _set_up(state, {"login": login, "role": role.name, "password": password})


def helper_socket(state: Path) -> Path:
    """Return the socket of the root helper of the server with this (absolute) state folder."""
    return HELPER_SOCKETS / f"{hashlib.sha256(os.fsencode(state)).hexdigest()[:12]}.sock"


def run(request: ServeRequest, log: ProgressLog, stop: threading.Event) -> None:
    """Serve until `stop`. Raises ConfigError, and HostError when the host cannot, or the API process dies."""
    place = check(request)
    if os.geteuid() != 0:
        raise HostError("satlab serve needs root: its helper makes network namespaces", "run it as root")
    state = request.state.absolute()
    with _only_server(state):
        _own_folder(state)
        token = _set_up(state, {"public": request.public is not None})
        helper = Helper(state, Settings(state, frozenset()).most_runs)
        sockets = helper_socket(state)
        with listen(sockets, privileges.API_UID) as door, _listener(place) as listener:
            api = _start_api(request, state, place, sockets, listener)
            try:
                log.line(f"satlab serves {place}")
                if token:
                    log.line(f"no account has a password: log in once as {FIRST_LOGIN} with the password {token}")
                _attend(helper, door, api, stop)
            finally:
                finish(api, END_S)
                helper.close()
                sockets.unlink(missing_ok=True)


def _attend(helper: Helper, door: socket.socket, api: "subprocess.Popen[bytes]", stop: threading.Event) -> None:
    """Answer the API until a person stops the service, or the API dies."""
    watched = select.poll()
    watched.register(door, select.POLLIN)
    while not stop.is_set():
        if watched.poll(_POLL_MS):
            serve_one(door, helper, privileges.API_UID)
        if (code := api.poll()) is not None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            raise HostError(f"the API process ended {how}", "its words are above; start satlab serve again")


def _start_api(
    request: ServeRequest, state: Path, place: ListenAddress, helper: Path, listener: socket.socket
) -> "subprocess.Popen[bytes]":
    """Start the API process: a user of its own, no capability, no way to more."""
    tls = _tls(request)
    secure = bool(tls)
    plan = ApiPlan(
        state=state,
        hosts=place.hosts(request.public, secure=secure),
        helper=helper,
        listener=listener.fileno(),
        certificate=tls[0] if secure else None,
        key=tls[1] if secure else None,
    )
    process = subprocess.Popen(
        _api_argv([state, helper.parent], "satlab.web.api_process", plan.model_dump_json()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_api_environment(state),
        cwd="/",
        pass_fds=(listener.fileno(), *tls),
        start_new_session=True,
    )
    for each in tls:
        os.close(each)
    return process


def _api_argv(visible: list[Path], module: str, word: str) -> list[str]:
    """Return the argv of a module that runs as the API's user, and ends with this process."""
    kill = f"--pdeathsig={signal.SIGKILL.name.removeprefix('SIG')}"
    drop = privileges.drop_argv(privileges.API_UID, (), [*privileges.program_paths(), *visible], kill)
    return [*drop, sys.executable, "-m", module, word]


def _api_environment(state: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG")}
    return kept | {"HOME": str(state / "api"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": paths.PYTHONPATH}


def _tls(request: ServeRequest) -> list[int]:
    """Return certificate and key as files in memory, which the API process can read; none without TLS."""
    if request.certificate is None or request.key is None:
        return []
    try:
        if request.key.stat().st_mode & FOREIGN:
            raise ConfigError(f"{request.key}: others may read or change the key", hint=f"chmod 600 {request.key}")
        contents = request.certificate.read_bytes(), request.key.read_bytes()
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            request.certificate, request.key, password=""
        )
    except ssl.SSLError as error:
        hint = "PEM both: the chain with the server's own certificate first, and its key, without a passphrase"
        raise ConfigError(f"{request.certificate}, {request.key}: {error.reason or error}", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return [_sealed(content) for content in contents]


def _sealed(content: bytes) -> int:
    handle = os.memfd_create("satlab-tls")
    os.write(handle, content)
    return handle


@contextmanager
def _listener(place: ListenAddress) -> Iterator[socket.socket]:
    """Open the socket of the service, as root, so that low ports work; a Unix socket is for this host's users."""
    family = socket.AF_UNIX
    if place.address is not None:
        family = socket.AF_INET if place.address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if place.path is None:
                listener.bind((str(place.address), place.port))
            else:
                if place.path.is_socket():
                    place.path.unlink()
                listener.bind(str(place.path))
                place.path.chmod(0o666)  # who may do what is told by the login
        except OSError as error:
            raise HostError(
                f"{place}: {error.strerror}", "choose another --listen, or see who has it: ss -ltnp"
            ) from error
        listener.listen(128)
        try:
            yield listener
        finally:
            if place.path is not None:
                place.path.unlink(missing_ok=True)


@contextmanager
def _only_server(state: Path) -> Iterator[None]:
    """Hold the state folder: two servers must not share a queue."""
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not state.stat().st_mode & stat.S_IXOTH:
        hint = f"chmod o+x {state}, or another --state; what is private in it stays closed"
        raise HostError(f"{state}: the service's own user cannot go into it", hint)
    (state / "api").mkdir(mode=0o700, exist_ok=True)
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise HostError(f"{state}: another satlab serve uses it", "stop that one, or give another --state") from None
    try:
        yield
    finally:
        os.close(handle)


def _own_folder(state: Path) -> None:
    """See that the API's folder is its user's, as all in it; a new one becomes so. Nothing in it is changed."""
    place = state / "api"
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"{place}: {error.strerror}", "move it away, or give another --state") from error
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
            raise HostError(f"{place / name}: belongs to user {uid}, not to the service's own", hint)


def _set_up(state: Path, request: dict[str, Any]) -> str:
    """Ask for the token of the first login, or for an account (`satlab.serve.setup`); give the token.

    Raises:
        ConfigError: the request is refused.
        HostError: the accounts cannot be opened.
    """
    done = subprocess.run(
        _api_argv([state], "satlab.serve.setup", str(state)),
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        env=_api_environment(state),
        cwd="/",
        timeout=SETUP_S,
        check=False,
    )
    if done.returncode == ExitStatus.OK:
        return str(json.loads(done.stdout)["token"])
    if done.returncode not in (ExitStatus.USAGE, ExitStatus.HOST) or not done.stdout:
        raise HostError("the accounts cannot be opened", "its words are above")
    said = json.loads(done.stdout)
    if done.returncode == ExitStatus.USAGE:
        raise ConfigError(said["error"], hint=said["hint"])
    raise HostError(said["error"], said["hint"])
