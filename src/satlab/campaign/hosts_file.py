# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of `campaign run --executor ssh` (docs/campaigns.md): addresses, pinned keys, tasks at
once.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from satlab.campaign import yaml_file
from satlab.campaign.plan_file import Id
from satlab.campaign.task_request import Strict
from satlab.common.errors import ConfigError

CONNECT_S = 15
"""A host that does not answer for this time counts as away, s."""
ALIVE_S, ALIVE_COUNT = 15, 4
"""A connection whose host is silent for ALIVE_S x ALIVE_COUNT is lost."""
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,253}$")]
Program = Annotated[str, Field(pattern=r"^/[A-Za-z0-9/._+-]{1,200}$")]


class SshHost(Strict):
    """One host. `satlab`: absolute path of the program on that host; `slots`: number of tasks that
    run there at the same time.
    """

    name: Id
    address: Address
    port: int = Field(default=22, ge=1, le=65535)
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = "root"
    satlab: Program
    slots: int = Field(default=1, ge=1, le=256)


class HostsFile(Strict):
    """The YAML file of a campaign's hosts.

    `known_hosts` is the file with the hosts' keys in known_hosts format, `identity` the private key
    for the login. Paths are relative to this file.
    """

    known_hosts: Path
    identity: Path
    hosts: tuple[SshHost, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [host.name for host in self.hosts]
        if len(set(names)) != len(names):
            raise ValueError("hosts: each name only once")
        return self

    @property
    def slots(self) -> int:
        """Return the number of tasks that run at once on all hosts."""
        return sum(host.slots for host in self.hosts)

    def command(self, host: SshHost) -> list[str]:
        """Return ssh's words for one attempt on a host: pinned keys, no password, no configuration
        of the user.

        The remote words are constant, so that a key can be limited to them (`command=` in
        authorized_keys).
        """
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self.identity),
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": str(ALIVE_S),
            "ServerAliveCountMax": str(ALIVE_COUNT),
            "Compression": "yes",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        words += ["-p", str(host.port), "-l", host.user, "--", host.address]
        return ["ssh", "-F", "none", "-T", *words, f"{host.satlab} campaign attempt"]


def load(path: Path) -> HostsFile:
    """Read a file of hosts. Raises ConfigError with every fault."""
    read = yaml_file.load(path, HostsFile, {})
    paths = {
        name: path.parent.resolve() / getattr(read, name) for name in ("known_hosts", "identity")
    }
    for name, file in paths.items():
        if not file.is_file():
            raise ConfigError(
                f"{path}: {name}: {file} is not a file",
                hint="ssh-keyscan and ssh-keygen write such files",
            )
        if any(character.isspace() for character in str(file)):
            raise ConfigError(
                f"{path}: {name}: {file}: ssh takes no spaces here", hint="move the file"
            )
    return read.model_copy(update=paths)
