# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for campaigns over ssh:

Debian's sshd on loopback, each in PID and mount namespaces of its own.

The package is unpacked, not installed (`unpacked` in ./satlab), so that no service of its starts.
"""

import contextlib
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from satlab.common import paths, processes

PACKAGES = paths.ROOT / ".satlab" / "packages"
SSHD = PACKAGES / "openssh-server" / "usr" / "sbin" / "sshd"
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin {root}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
"""


NAMESPACES = (
    "setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --".split()
)


def key(file: Path) -> Path:
    """Make a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file


@dataclass
class Node:
    """One host: its folder, port, the command of an attempt on it, and sshd, which ends with its
    first process.
    """

    name: str
    folder: Path
    port: int = 0
    command: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, client: Path, *, limited: bool = True) -> None:
        """Start sshd; the client's key may do everything, or if it is `limited` attempts alone."""
        self.folder.mkdir()
        key(self.folder / "host_key")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        variables = {
            "PYTHONPATH": paths.PYTHONPATH,
            paths.PROGRAMS_VARIABLE: str(paths.PROGRAMS),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        words = ["env", *(f"{name}={value}" for name, value in variables.items())]
        public = client.with_suffix(".pub").read_text()
        self.command = shlex.join([*words, sys.executable, *"-m satlab campaign attempt".split()])
        (self.folder / "authorized_keys").write_text(
            public if not limited else f'restrict,command="{self.command}" {public}'
        )
        root = "prohibit-password" if not limited else "forced-commands-only"
        (self.folder / "config").write_text(
            CONFIG.format(port=self.port, folder=self.folder, root=root)
        )
        passwd = (
            Path("/etc/passwd").read_text() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        (self.folder / "passwd").write_text(passwd)
        script = (
            f"mount --bind {self.folder}/passwd /etc/passwd && mkdir -p /run/sshd && "
            f"exec {SSHD} -D -e -f {self.folder}/config"
        )
        libraries = PACKAGES / "libwrap0" / "usr" / "lib" / "x86_64-linux-gnu"
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*NAMESPACES, "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"LD_LIBRARY_PATH": str(libraries)},
            )
        if not processes.wait(self._answers, 20):
            raise RuntimeError((self.folder / "log").read_text())

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def kill(self) -> None:
        """End the host with everything on it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Nodes:
    """Hosts, the key for all, and their file."""

    folder: Path
    nodes: list[Node] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "hosts.yml"

    def start(self, *names: str, limited: bool = True) -> None:
        """Start hosts and write their file, with their keys pinned.

        `limited`: the key may do attempts alone.
        """
        client = key(self.folder / "client")
        hosts: list[dict[str, Any]] = []
        known = []
        for name in names:
            node = Node(name, self.folder / name)
            self.nodes.append(node)
            node.start(client, limited=limited)
            known.append(f"[127.0.0.1]:{node.port} {(node.folder / 'host_key.pub').read_text()}")
            host = {"name": name, "address": "127.0.0.1", "port": node.port}
            hosts.append(host | {"satlab": "/usr/bin/satlab"})
        (self.folder / "known_hosts").write_text("".join(known))
        content = {"known_hosts": "known_hosts", "identity": "client", "hosts": hosts}
        self.file.write_text(yaml.safe_dump(content))

    def kill(self) -> None:
        """End all hosts."""
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def running(folder: Path, *, limited: bool = True) -> Iterator[Nodes]:
    """Run two hosts."""
    found = Nodes(folder)
    try:
        found.start("node-a", "node-b", limited=limited)
        yield found
    finally:
        found.kill()
