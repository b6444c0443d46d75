# SPDX-License-Identifier: GPL-3.0-or-later
"""The pair that the command line selects: a built-in stack, two commands, or an interop runner's endpoint."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from satlab.check.endpoint import command_line, interop_endpoint
from satlab.check.endpoint.pair import EndpointPair
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.endpoint.tcp_pep import TcpPepPair
from satlab.check.samples import Options
from satlab.common.errors import ConfigError, Fault

_WITHOUT_OPTIONS: dict[str, Callable[[], EndpointPair]] = {"ngtcp2": command_line.ngtcp2, "tcp-pep": TcpPepPair}


def built_in(stack: str, client: Options, server: Options) -> EndpointPair:
    """Return a built-in pair.

    Raises:
        ConfigError: the stack takes no options.
        HostError: its programs are not installed.
    """
    if stack in ("quinn", "quiche"):
        return SatperfPair(stack, (client, server))
    if client or server:
        raise ConfigError(f"--client and --server are options of satperf; {stack} has none", hint="omit them")
    return _WITHOUT_OPTIONS[stack]()


def external(
    client: str | None, server: str | None, allow_read: Sequence[Path], endpoint: Path | None
) -> AbstractContextManager[EndpointPair]:
    """Return a pair of two commands or of an interop runner's endpoint; it can be used within the block.

    Raises:
        ConfigError: the commands or the endpoint are invalid, or both are given.
    """
    if endpoint is None:
        return contextlib.nullcontext(command_line.parse(client, server, allow_read))
    if client or server:
        raise ConfigError("--endpoint excludes --client-cmd and --server-cmd", hint="omit one of them")
    return interop_endpoint.opened(endpoint)


def options(pairs: Sequence[str]) -> Options:
    """Parse NAME=VALUE options of satperf. Names are not checked: satperf and satvirtual do.

    Raises:
        ConfigError: a text is not NAME=VALUE.
    """
    parts = [text.partition("=") for text in pairs]
    faults = [
        Fault(text, "is not NAME=VALUE") for text, part in zip(pairs, parts, strict=True) if not (part[0] and part[2])
    ]
    if faults:
        raise ConfigError("options of an endpoint", faults, "e.g. --client initial-window=32")
    return {name.replace("-", "_"): int(value) if value.isdecimal() else value for name, _, value in parts}
