# SPDX-License-Identifier: GPL-3.0-or-later
"""The only way out of an isolated lab: an HTTP proxy for packages that knows the host's own mirrors
and local folders.

It listens inside the lab's control namespace and fetches from the host's. Package files are kept on
disk: their names hold their versions. What is not listed is refused, so a lab cannot reach anything
else.
"""

import contextlib
import hashlib
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from satlab.lab import netns

PORT = 3142
FETCH_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Sources:
    """Where packages come from: mirrors by host name (fetched), folders by host name (served), and
    what was fetched.
    """

    mirrors: frozenset[str]
    folders: Mapping[str, Path]
    cache: Path


class _Gate(BaseHTTPRequestHandler):
    """Answers GET and HEAD of absolute URIs, as a proxy does (RFC 9112, section 3.2.2)."""

    sources: Sources
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def log_message(self, *_: object) -> None:
        """Say nothing: what a lab fetches is in its own logs."""

    def _answer(self, *, send_body: bool) -> None:
        url = urlsplit(self.path)
        host = url.hostname or (self.headers["Host"] or "").partition(":")[0]
        try:
            if host in self.sources.folders:
                file = _below(self.sources.folders[host], unquote(url.path))
            elif url.scheme == "http" and host in self.sources.mirrors:
                file = fetch(self.path, self.sources.cache)
            else:
                raise _RefusedError(
                    HTTPStatus.FORBIDDEN, f"{host or self.path}: not a package source of this lab"
                )
        except _RefusedError as error:
            self.send_error(error.status, str(error))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        if send_body:
            with file.open("rb") as content:
                shutil.copyfileobj(content, self.wfile)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _below(folder: Path, path: str) -> Path:
    file = (folder / path.lstrip("/")).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise _RefusedError(HTTPStatus.NOT_FOUND, f"{path}: no such file")
    return file


def fetch(url: str, cache: Path) -> Path:
    """Fetch a file from a mirror, or return the copy that was fetched before."""
    kept = (
        cache
        / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}-{Path(urlsplit(url).path).name[:100]}"
    )
    is_package = url.endswith((".deb", ".udeb")) or "/by-hash/" in url
    if is_package and kept.exists():
        return kept
    scratch = kept.with_name(f".{kept.name}.{threading.get_ident()}")
    try:
        with (
            urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer,  # noqa: S310
            scratch.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file)
    except urllib.error.HTTPError as error:
        raise _RefusedError(HTTPStatus(error.code), f"{url}: {error.reason}") from error
    except OSError as error:
        raise _RefusedError(HTTPStatus.BAD_GATEWAY, f"{url}: {error}") from error
    finally:
        if scratch.exists() and not scratch.stat().st_size:
            scratch.unlink()
    scratch.replace(kept)
    return kept


def listen(lab_id: str, address: str, port: int = PORT) -> socket.socket:
    """Open a listening socket inside a lab's control namespace; it stays there whoever uses it."""

    def opened() -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
        return listener

    return netns.inside(lab_id, netns.HOST_NODE, opened)


@contextlib.contextmanager
def serving(listener: socket.socket, sources: Sources) -> Iterator[None]:
    """Serve as long as the block lasts."""
    sources.cache.mkdir(parents=True, exist_ok=True)
    handler = type("Gate", (_Gate,), {"sources": sources, "timeout": FETCH_TIMEOUT_S})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.daemon_threads = listener, True
    server.server_address = listener.getsockname()
    server.server_name, server.server_port = server.server_address[0], server.server_address[1]  # type: ignore[assignment]
    thread = threading.Thread(target=server.serve_forever, name="gate", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
