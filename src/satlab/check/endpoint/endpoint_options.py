# SPDX-License-Identifier: GPL-3.0-or-later
"""The pair that the command line selects: a built-in stack, two commands, or endpoints of the
interop runner.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from satlab.check.endpoint import command_pair, interop_endpoint
from satlab.check.endpoint.pair import CLIENT, SERVER, EndpointPair, Environment
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.endpoint.tcp_pep import PRESETS, TcpPepPair
from satlab.check.samples import Options
from satlab.common.errors import ConfigError, Fault
from satlab.lab import sandbox

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*", re.DOTALL)
_WITHOUT_OPTIONS: dict[str, Callable[[], EndpointPair]] = {
    "ngtcp2": command_pair.ngtcp2,
    "tcp-pep": TcpPepPair,
    **{f"tcp-pep-{preset}": functools.partial(TcpPepPair, preset) for preset in PRESETS},
}


def built_in(stack: str, client: Options, server: Options) -> EndpointPair:
    """Return a built-in pair.

    Raises:
        ConfigError: the stack takes no options.
        HostError: its programs are not installed.
    """
    if stack in ("quinn", "quiche"):
        return SatperfPair(stack, (client, server))
    if client or server:
        raise ConfigError(
            f"--client and --server are options of satperf; {stack} has none", hint="omit them"
        )
    return _WITHOUT_OPTIONS[stack]()


@dataclass(frozen=True)
class External:
    """Programs as the command line names them: two commands, endpoints of the interop runner, or a
    built-in stack.
    """

    client_cmd: str | None = None
    server_cmd: str | None = None
    allow_read: Sequence[Path] = ()
    endpoint: Path | None = None
    client_endpoint: Path | None = None
    server_endpoint: Path | None = None
    stack: str | None = None
    environment: Environment = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any is named."""
        endpoints = (self.endpoint, self.client_endpoint, self.server_endpoint)
        return bool(self.client_cmd or self.server_cmd or self.stack or any(endpoints))

    def opened(self) -> AbstractContextManager[EndpointPair]:
        """Return the pair; it can be used within the block.

        Raises:
            ConfigError: a command or an endpoint is invalid, one side is missing, or more than one
                kind is named.
            HostError: the programs of the built-in stack are not installed.
        """
        client = self.client_endpoint or self.endpoint
        server = self.server_endpoint or self.endpoint
        if self.stack:
            if self.client_cmd or self.server_cmd or client or server:
                raise ConfigError(
                    "--stack excludes commands and endpoints", hint="omit one of them"
                )
            return contextlib.nullcontext(built_in(self.stack, {}, {}))
        if client is None and server is None:
            return contextlib.nullcontext(
                command_pair.parse(
                    self.client_cmd, self.server_cmd, self.allow_read, self.environment
                )
            )
        if self.client_cmd or self.server_cmd:
            raise ConfigError(
                "endpoints exclude --client-cmd and --server-cmd", hint="omit one of them"
            )
        if client is None or server is None:
            raise ConfigError(
                "one endpoint is missing",
                hint="--client-endpoint and --server-endpoint, or --endpoint",
            )
        return interop_endpoint.opened(
            client, None if client == server else server, self.environment
        )


def each_pair(named: External, clients: Sequence[Path], servers: Sequence[Path]) -> list[External]:
    """Return the programs of `named` with each client endpoint and each server endpoint; none if
    nothing is named.
    """
    pairs = [
        replace(named, client_endpoint=client, server_endpoint=server)
        for client in clients or (None,)
        for server in servers or (None,)
    ]
    return [pair for pair in pairs if pair]


def environment(client: Sequence[str], server: Sequence[str]) -> Environment:
    """Parse NAME=VALUE variables of both sides.

    Raises:
        ConfigError: with every text that is not NAME=VALUE.
    """
    wrong = [text for text in (*client, *server) if not _VARIABLE.fullmatch(text)]
    if wrong:
        raise ConfigError(
            "variables of an endpoint", [Fault(text, "is not NAME=VALUE") for text in wrong]
        )
    sides = {CLIENT: client, SERVER: server}
    found = {
        side: dict(text.split("=", 1) for text in texts) for side, texts in sides.items() if texts
    }
    faults = [
        Fault(side, why)
        for side, variables in found.items()
        if (why := sandbox.variables_fault(variables))
    ]
    if faults:
        raise ConfigError("variables of an endpoint", faults)
    return found


def options(pairs: Sequence[str]) -> Options:
    """Parse NAME=VALUE options of satperf. Names are not checked: satperf and satvirtual do.

    Raises:
        ConfigError: a text is not NAME=VALUE.
    """
    parts = [text.partition("=") for text in pairs]
    faults = [
        Fault(text, "is not NAME=VALUE")
        for text, part in zip(pairs, parts, strict=True)
        if not (part[0] and part[2])
    ]
    if faults:
        raise ConfigError("options of an endpoint", faults, "e.g. --client initial-window=32")
    return {
        name.replace("-", "_"): int(value) if value.isdecimal() else value
        for name, _, value in parts
    }
