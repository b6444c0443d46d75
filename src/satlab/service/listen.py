# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the service listens: checks of the options, TLS files, the listening socket."""

import hashlib
import ipaddress
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from satlab.common.errors import ConfigError, HostError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[1-9][0-9]{0,4})?", re.ASCII)
MIN_TOKEN, MAX_TOKEN = 32, 256
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/-]{{{MIN_TOKEN},{MAX_TOKEN}}}=*", re.ASCII)
"""A token of RFC 6750 that is too long to be guessed."""
FOREIGN = stat.S_IWGRP | stat.S_IRWXO
"""Modes that a private key must not have; a group such as Debian's ssl-cert may read it."""


@dataclass(frozen=True)
class ServeRequest:
    """Options of `satlab serve`.

    `public`: host name that clients use; without it only this host is served.

    `allowed`: names, with the port where it is not the default, by which a proxy on this host is
    called. `jobs`: folder of further jobs, `privileges`: the operator's file of what these may do.
    `metrics_token`: file with the token that opens `/metrics`.
    """

    listen: str
    socket: Path | None
    state: Path
    public: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    allowed: tuple[str, ...] = ()
    jobs: Path | None = None
    privileges: Path | None = None
    metrics_token: Path | None = None


@dataclass(frozen=True)
class ListenAddress:
    """An IP address with a port, or the path of a Unix socket."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    port: int
    path: Path | None

    def hosts(self, public: str | None, *, secure: bool) -> list[str]:
        """Return the accepted values of the header Host."""
        if self.path is not None:
            return ["localhost"]
        names = [public.lower()] if public else ["localhost", "127.0.0.1", "[::1]"]
        own = str(self).rpartition(":")[0]
        if not public and own not in names:
            names.append(own)
        is_default = self.port == (443 if secure else 80)
        return [f"{name}:{self.port}" for name in names] + (names if is_default else [])

    def url(self, public: str | None, *, secure: bool) -> str | None:
        """Return the address of the pages for a browser; a Unix socket has none."""
        if self.path is not None:
            return None
        name = f"{public}:{self.port}" if public else str(self)
        return f"{'https' if secure else 'http'}://{name}/ui/"

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        text = (
            f"[{self.address}]"
            if self.address is not None and self.address.version == 6
            else str(self.address)
        )
        return f"{text}:{self.port}"


def check(request: ServeRequest) -> ListenAddress:
    """Check the options without opening anything. Raises ConfigError."""
    if request.socket is not None:
        return ListenAddress(None, 0, request.socket)
    place = _parse(request.listen)
    wrong = [name for name in request.allowed if not _HOST.fullmatch(name)]
    if wrong:
        raise ConfigError(
            f"--allow-host {wrong[0]}: is not a host name", hint="for example lab.example:8080"
        )
    is_open = place.address is not None and not place.address.is_loopback
    if is_open and request.public is None:
        hint = (
            "add --public NAME (the host name that clients use), --tls-cert and --tls-key; or"
            " listen on 127.0.0.1"
        )
        raise ConfigError(f"--listen {request.listen}: is open to others", hint=hint)
    if request.public is not None and (request.certificate is None or request.key is None):
        raise ConfigError(
            "--public: passwords would cross the network in clear",
            hint="add --tls-cert and --tls-key",
        )
    if (request.certificate is None) != (request.key is None):
        raise ConfigError("--tls-cert and --tls-key must be given together")
    return place


def _parse(text: str) -> ListenAddress:
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if not colon or address is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"--listen {text}: invalid address and port", hint="for example 127.0.0.1:8000"
        )
    return ListenAddress(address, int(port), None)


def tls_files(request: ServeRequest) -> list[int]:
    """Return certificate and key as files in memory, which the API process can read; an empty list
    without TLS.

    Raises ConfigError.
    """
    if request.certificate is None or request.key is None:
        return []
    try:
        if request.key.stat().st_mode & FOREIGN:
            raise ConfigError(
                f"{request.key}: others may read or change the key", hint=f"chmod 600 {request.key}"
            )
        contents = request.certificate.read_bytes(), request.key.read_bytes()
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            request.certificate, request.key, password=""
        )
    except ssl.SSLError as error:
        hint = (
            "both are PEM: the chain, the server's own certificate first; the key without a"
            " passphrase"
        )
        raise ConfigError(
            f"{request.certificate}, {request.key}: {error.reason or error}", hint=hint
        ) from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return [_memory_file(content) for content in contents]


def token_digest(path: Path | None) -> str | None:
    """Return the SHA-256 of the token in a private file, as hexadecimal digits; None without a
    file.

    Raises ConfigError.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            is_open = os.fstat(file.fileno()).st_mode & FOREIGN
            text = file.read(MAX_TOKEN + 2).decode(errors="replace").strip()
    except OSError as error:
        raise ConfigError(f"--metrics-token {path}: {error.strerror}") from error
    if is_open:
        raise ConfigError(f"{path}: others may read or change the token", hint=f"chmod 600 {path}")
    if not _TOKEN.fullmatch(text):
        hint = f"umask 077; openssl rand -hex 32 >{path}"
        raise ConfigError(
            f"{path}: a token has {MIN_TOKEN} to {MAX_TOKEN} letters, digits, - . _ ~ + /",
            hint=hint,
        )
    return hashlib.sha256(text.encode()).hexdigest()


def _memory_file(content: bytes) -> int:
    handle = os.memfd_create("satlab-tls")
    os.write(handle, content)
    return handle


@contextmanager
def listening(place: ListenAddress) -> Iterator[socket.socket]:
    """Open the socket of the service, as root, so that low ports work.

    Every local user may use a Unix socket.

    Raises HostError.
    """
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
                place.path.chmod(0o666)  # accounts decide what a user may do
        except OSError as error:
            raise HostError(
                f"{place}: {error.strerror}",
                "choose another --listen; ss -ltnp shows the program that uses it",
            ) from error
        listener.listen(128)
        try:
            yield listener
        finally:
            if place.path is not None:
                place.path.unlink(missing_ok=True)
