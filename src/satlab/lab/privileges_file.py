# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's file of privileges, for jobs that satlab does not ship: `{JOB: [PRIVILEGE, ...]}`
in YAML.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from satlab.common import yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.lab import privileges

GRANTABLE = {
    "net_admin": "routes, packet filter and the sysctls of the node's network namespace",
    "net_raw": "raw and packet sockets: ping, captures",
    "net_bind_service": "ports below 1024",
    privileges.TUN: "TUN and TAP interfaces in the node, together with net_admin",
}
"""What an operator may grant: capabilities (capabilities(7), without CAP_), and the TUN device."""
MAX_BYTES = 1 << 16

Grants = Mapping[str, tuple[str, ...]]


def load(path: Path) -> Grants:
    """Read a file of privileges.

    Raises:
        ConfigError: other users may write the file, or it grants a capability that cannot be
        granted. The text names every fault.
    """
    try:
        with path.open("rb") as file:
            about, text = os.fstat(file.fileno()), file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ConfigError(f"{path}: has more than {MAX_BYTES} bytes")
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{path}: others may write this file", hint=f"chmod go-w {path}")
        document = yaml_text.load(text, path) or {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a mapping", hint="for example: {fping: [net_raw]}")
    faults = [
        fault
        for job, granted in document.items()
        for fault in _faults(f"{path}: {job}", job, granted)
    ]
    if faults:
        raise ConfigError(f"{path} is not valid", faults)
    return {job: tuple(granted) for job, granted in document.items()}


def _faults(place: str, job: str, granted: object) -> list[Fault]:
    if job in privileges.SHIPPED:
        return [Fault(place, "is a shipped job, whose privileges are fixed")]
    if not isinstance(granted, list):
        return [Fault(place, "is not a list of privileges", f"known: {', '.join(GRANTABLE)}")]
    return [
        Fault(place, f"{each!r} cannot be granted", f"known: {', '.join(GRANTABLE)}")
        for each in granted
        if each not in GRANTABLE
    ]
