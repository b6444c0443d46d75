# SPDX-License-Identifier: GPL-3.0-or-later
"""A `satlab serve` in processes of its own for tests, and a client that follows OpenBACH's
contract.
"""

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satlab.common import paths, processes
from satlab.lab import lab_owners, netns
from satlab.lab.pki import Pki
from satlab.service.root_process import helper_socket
from tests import process_search
from tests.archives import archive
from tests.polling import until

STANDIN = Path(__file__).with_name("net") / "standin_serve.py"
PASSWORD = "a password for one test"  # noqa: S105
ENVIRONMENT = os.environ | {"PYTHONPATH": paths.PYTHONPATH}
OVER = ("Finished Ok", "Finished Ko", "Stopped")
ENTITIES = {"sender": "198.18.1.2", "receiver": "198.18.4.2"}
ECHO = {
    "name": "echo",
    "description": "Echo requests from the sender to the receiver",
    "arguments": {"count": "How many"},
    "constants": {"target": "198.18.4.2"},
    "openbach_functions": [
        {
            "id": 1,
            "label": "echo",
            "start_job_instance": {
                "entity_name": "sender",
                "satlab_ping": {"destination_ip": "$target", "count": "$count", "interval": 0.2},
            },
        }
    ],
}


class Client:
    """A JSON client that keeps the cookie."""

    def __init__(self, port: int, trusted: Path | None = None) -> None:
        self.port, self.cookie, self.attributes = port, "", ""
        self.tls = None if trusted is None else ssl.create_default_context(cafile=trusted)

    def connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = self.connect()
        with contextlib.closing(connection):
            headers = {"content-type": "application/json", "cookie": self.cookie}
            connection.request(
                method, path, None if method == "GET" else json.dumps(body or {}), headers
            )
            answer = connection.getresponse()
            text = answer.read().decode()
            if given := answer.headers["set-cookie"]:
                self.cookie, _, self.attributes = given.partition(";")
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json and text else text

    def upload(self, name: str, files: dict[str, bytes]) -> int:
        """Upload a job as a browser does; return the status."""
        parts = {"name": name.encode(), 'file"; filename="job.tar.gz': archive(files)}
        head = '--limit\r\ncontent-disposition: form-data; name="{}"\r\n\r\n'
        body = b"".join(
            head.format(part).encode() + content + b"\r\n" for part, content in parts.items()
        )
        headers = {"content-type": "multipart/form-data; boundary=limit", "cookie": self.cookie}
        headers["origin"] = f"http://127.0.0.1:{self.port}"
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", "/job/", body + b"--limit--\r\n", headers)
            return connection.getresponse().status

    def expect(self, status: int, method: str, path: str, body: Any = None) -> Any:
        got, answer = self.request(method, path, body)
        assert got == status, (method, path, got, answer)
        return answer

    def log_in(self) -> None:
        self.expect(200, "POST", "/login/", {"login": "openbach", "password": PASSWORD})

    def instance(self, number: int, *, quiet: bool = True) -> Any:
        return self.expect(200, "GET", f"/scenario_instance/{number}/{'?quiet' if quiet else ''}")

    def await_status(self, number: int, statuses: tuple[str, ...], seconds: float = 120) -> str:
        until(lambda: self.instance(number)["status"] in statuses, seconds=seconds)
        return str(self.instance(number)["status"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Service:
    """A server in processes of its own;

    `state` outlives it. `log`: what it writes to stderr is appended there.
    """

    def __init__(
        self,
        state: Path,
        *,
        standin: bool = False,
        tls: Pki | None = None,
        log: Path = Path("/dev/stderr"),
    ) -> None:
        self.state, self.standin, self.tls, self.log = state, standin, tls, log
        self.port = free_port()
        if not (state / "api").exists():
            argv = [*self.argv, "--set-password", "openbach", "--role", "admin"]
            subprocess.run(argv, input=f"{PASSWORD}\n", text=True, check=True, env=ENVIRONMENT)
        self.start()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "satlab", "serve", "--state", str(self.state)]

    def start(self) -> None:
        argv = [*self.argv, "--listen", f"127.0.0.1:{self.port}"]
        if self.tls is not None:
            argv += ["--tls-cert", str(self.tls.server_cert), "--tls-key", str(self.tls.server_key)]
        if self.standin:
            argv = [sys.executable, str(STANDIN), str(self.state), str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=ENVIRONMENT, stderr=log)
        self.client = Client(self.port, None if self.tls is None else self.tls.ca_cert)

        def answers() -> bool:
            assert self.process.poll() is None
            with contextlib.suppress(OSError):
                return self.client.request("GET", "/version/")[0] == 200
            return False

        until(answers, seconds=60)
        self.client.log_in()

    def api_pid(self) -> int:
        """Return the API process; a worker is a child of the helper as well, and may have a lower
        id.

        Raises ProcessLookupError when there is none.
        """
        for pid in process_search.having("satlab.service.api_process", "cmdline"):
            found = processes.read_process(pid)
            if found is not None and found.parent == self.process.pid:
                return pid
        raise ProcessLookupError

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def run_labs(self) -> list[str]:
        return sorted(name for name in netns.lab_ids() if name.startswith("run-"))


@contextlib.contextmanager
def serving(*, standin: bool = False, tls: Pki | None = None) -> Iterator[Service]:
    """Run a server whose end leaves no process, lab or owner of its own behind."""
    state = Path("/tmp") / f"satlab-serve-{secrets.token_hex(4)}"
    running = Service(state, standin=standin, tls=tls)
    try:
        yield running
        assert running.stop() == 0
        until(lambda: not process_search.having(str(state), "environ"), seconds=20)
        assert not list((state / "scratch").glob("*"))
        assert not helper_socket(state).exists()
    finally:
        running.kill()
        helper_socket(state).unlink(missing_ok=True)
        lab_owners.sweep()
        subprocess.run(["rm", "-rf", str(state)], check=True)


def fill(path: Path) -> None:
    """Write until not one more block is free."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def set_up(client: Client) -> str:
    """Create a project with entities and a scenario; return the path of the scenario's instances."""
    client.request("DELETE", "/project/trial/")
    client.expect(200, "POST", "/project/", {"name": "trial", "description": "", "owners": []})
    for name, address in ENTITIES.items():
        entity = {"name": name, "description": "", "agent": {"address": address}}
        client.expect(200, "POST", "/project/trial/entity/", entity)
    client.expect(200, "POST", "/job/", {"name": "satlab_ping", "path": "ignored"})
    client.expect(200, "POST", "/project/trial/scenario/", ECHO)
    return "/project/trial/scenario/echo/scenario_instance/"


def launch(client: Client, where: str, count: int) -> int:
    body = {"arguments": {"count": str(count)}, "link": {"profile": "leo"}}
    return int(client.expect(200, "POST", where, body)["scenario_instance_id"])
