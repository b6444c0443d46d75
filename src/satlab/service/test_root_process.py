# SPDX-License-Identifier: GPL-3.0-or-later
"""T1 of the threat table: closed by default, and open to others only with TLS and accounts."""

import dataclasses
import os
import re
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.lab import pki
from satlab.lab.pki import Pki
from satlab.service import root_process
from satlab.service.api.account_store import Role
from satlab.service.listen import ServeRequest, check, tls_files

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def request(
    tmp_path: Path, listen: str = "127.0.0.1:8000", public: str | None = None, *, tls: bool = False
) -> ServeRequest:
    cert, key = (tmp_path / "cert", tmp_path / "key") if tls else (None, None)
    return ServeRequest(listen, None, tmp_path / "state", public, cert, key)


@pytest.mark.parametrize("listen", ["0.0.0.0:8000", "[::]:8000", "192.0.2.1:80"])
def test_t01_others_are_let_in_only_when_asked_for(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError, match="open to others"):
        check(request(tmp_path, listen))
    with pytest.raises(ConfigError, match="in clear"):
        check(request(tmp_path, listen, "lab.example"))
    assert check(request(tmp_path, listen, "lab.example", tls=True))


@ROOT_ONLY
def test_t01_a_public_service_needs_accounts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    options = request(tmp_path, address, "lab.example", tls=True)
    with pytest.raises(ConfigError, match="no account"):
        root_process.run(options, ProgressLog(quiet=True), threading.Event())
    root_process.set_password(tmp_path / "state", "admin", Role.ADMIN, "long enough")
    with pytest.raises(ConfigError, match="key: No such file"):  # the next thing that is missing
        root_process.run(options, ProgressLog(quiet=True), threading.Event())


@pytest.mark.parametrize(
    "listen", ["", "8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "host:1"]
)
def test_an_address_that_is_none(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError, match="invalid address and port"):
        check(request(tmp_path, listen))


def test_t01_hosts_that_are_answered(tmp_path: Path) -> None:
    local = check(request(tmp_path))
    assert local.hosts(None, secure=False) == ["localhost:8000", "127.0.0.1:8000", "[::1]:8000"]
    another = check(request(tmp_path, "127.0.0.77:8000"))
    assert another.hosts(None, secure=False)[-1] == "127.0.0.77:8000"
    public = check(request(tmp_path, "0.0.0.0:443", "Lab.Example", tls=True))
    assert public.hosts("Lab.Example", secure=True) == ["lab.example:443", "lab.example"]
    assert check(ServeRequest("", tmp_path / "s", tmp_path)).hosts(None, secure=False) == [
        "localhost"
    ]


@pytest.mark.parametrize(
    "name", ["", "http://lab.example", "lab.example:0", "-x", "a b", "lab.example/", "*"]
)
def test_t01_names_of_a_proxy_are_host_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        check(dataclasses.replace(request(tmp_path), allowed=(name,)))
    check(dataclasses.replace(request(tmp_path), allowed=("lab.example", "10.1.2.3:8080")))


def test_without_root_nothing_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="root"):
        root_process.run(request(tmp_path), ProgressLog(quiet=True), threading.Event())
    assert not (tmp_path / "state").exists()


@ROOT_ONLY
def test_two_servers_do_not_share_a_queue(tmp_path: Path) -> None:
    with root_process.locked(tmp_path / "state"), pytest.raises(HostError, match="another"):
        root_process.run(request(tmp_path), ProgressLog(quiet=True), threading.Event())


@ROOT_ONLY
@pytest.mark.parametrize("password", ["", "short"])
def test_t01_no_weak_first_password(tmp_path: Path, password: str) -> None:
    with pytest.raises(ConfigError, match="characters"):
        root_process.set_password(tmp_path / "state", "admin", Role.ADMIN, password)


def test_a_closed_state_folder_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(HostError) as caught, root_process.locked(closed):
        pass
    assert str(closed) in str(caught.value) and "chmod" in caught.value.hint
    closed.chmod(0o711)
    with root_process.locked(closed):
        assert (closed / "api").is_dir()


@pytest.fixture
def pki_folder(tmp_path: Path) -> Pki:
    return pki.create(tmp_path / "pki", ["localhost"], [], datetime.now(UTC))


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o777])
def test_t01_a_key_of_others_is_refused(tmp_path: Path, pki_folder: Pki, mode: int) -> None:
    pki_folder.server_key.chmod(mode)
    options = ServeRequest("", None, tmp_path, None, pki_folder.server_cert, pki_folder.server_key)
    with pytest.raises(ConfigError, match="others may read") as caught:
        tls_files(options)
    assert caught.value.hint == f"chmod 600 {pki_folder.server_key}"


def test_t01_certificate_and_key_must_fit(tmp_path: Path, pki_folder: Pki) -> None:
    key = serialization.load_pem_private_key(pki_folder.server_key.read_bytes(), None)
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "sealed").write_bytes(sealed)
    (tmp_path / "sealed").chmod(0o640)
    wrong = {pki_folder.ca_cert: pki_folder.server_key, pki_folder.server_cert: tmp_path / "sealed"}
    wrong |= {
        tmp_path / "none": pki_folder.server_key,
        pki_folder.server_key: pki_folder.server_key,
    }
    for certificate, file in wrong.items():
        with pytest.raises(ConfigError, match=re.escape(str(certificate))):
            tls_files(ServeRequest("", None, tmp_path, None, certificate, file))
    for handle in tls_files(
        ServeRequest("", None, tmp_path, None, pki_folder.server_cert, pki_folder.server_key)
    ):
        os.close(handle)


@pytest.mark.parametrize(
    ("listen", "public", "url"),
    [
        ("127.0.0.1:8000", None, "http://127.0.0.1:8000/ui/"),
        ("[::1]:8000", None, "http://[::1]:8000/ui/"),
        ("0.0.0.0:443", "lab.example", "https://lab.example:443/ui/"),
    ],
)
def test_the_first_log_in_is_a_link(listen: str, public: str | None, url: str) -> None:
    files = (Path("cert.pem"), Path("key.pem")) if public else (None, None)
    request = ServeRequest(listen, None, Path("state"), public, *files)
    place = check(request)
    lines = root_process.greeting(request, place, "TOKEN-of_18")
    assert lines[0] == f"satlab serves {url}"
    assert lines[-1] == f"or open {url}login#token=TOKEN-of_18"
    assert root_process.greeting(request, place, "") == lines[:1]
    socket = ServeRequest("", Path("/run/satlab.sock"), Path("state"))
    assert not any(
        "open" in line for line in root_process.greeting(socket, check(socket), "TOKEN-of_18")
    )


def test_a_state_that_is_no_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.touch()
    for state, why in ((file, "it is a file"), (file / "below", "Not a directory")):
        with pytest.raises(HostError) as caught, root_process.locked(state):
            pass
        assert str(caught.value) == f"{state}: the service cannot make its folder there: {why}"
        assert caught.value.hint == "choose another --state"
