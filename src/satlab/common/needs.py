# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's needs: missing programs are installed at first use, and sudo makes the command root.

Both happen only if the launcher `./satlab` started the program. Its children and tests use the
installed programs.
"""

import os
import shutil
import sys
from typing import Literal

from satlab.common.errors import HostError

Group = Literal[
    "link", "lab", "quic", "fec", "virtual", "lockstep", "ngtcp2", "picoquic", "vm", "campaign"
]
"""Rows of the table in `install`: packages and programs that belong together."""
NETNS = "a lab is made of network namespaces"
"""Why most commands need root."""
_VARIABLE = "SATLAB_LAUNCHER"


class _Started:
    by: str | None = None


def started_by_launcher() -> None:
    """Note the launcher, so that its variable does not reach children."""
    _Started.by = os.environ.pop(_VARIABLE, None)


def ensure(*groups: Group) -> None:
    """Install and build the missing parts of `groups`. Does nothing if all are there.

    Its progress goes to stderr.

    Raises:
        HostError: something cannot be installed here.
        SystemExit: sudo has installed it, and failed.
    """
    if _Started.by is not None:
        from satlab.common import install

        install.install(*groups)


def root(why: str) -> None:
    """Continue as root: if we are not root, replace this process by the same command under sudo.

    Raises:
        HostError: not root, and there is no sudo.
    """
    if os.geteuid() == 0:
        return
    sudo = shutil.which("sudo")
    if _Started.by is None or sudo is None:
        raise HostError(f"not root: {why}", "run the same command as root")
    print(f"satlab: {why}: continuing with sudo", file=sys.stderr, flush=True)
    ours = ",".join(name for name in os.environ if name.startswith(("SATLAB_", "LAB_")))
    keep = [f"--preserve-env={ours}"] if ours else []
    os.execv(sudo, [sudo, *keep, _Started.by, *sys.argv[1:]])  # noqa: S606 - argv, no shell
