# SPDX-License-Identifier: GPL-3.0-or-later
"""Results belong to the user who called sudo."""

import os
import subprocess
from pathlib import Path

from satlab.common.errors import HostError


def make_folder(folder: Path) -> None:
    """Make a new folder, and the ones above it, owned by the person who called sudo.

    Raises FileExistsError.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir()
    chown_to_caller(folder)


def chown_to_caller(path: Path) -> None:
    """Give a file, or a folder with its content, to the user who called sudo, else to root."""
    if os.geteuid() != 0:
        return
    uid, gid = os.environ.get("SUDO_UID", "0"), os.environ.get("SUDO_GID", "0")
    # A job may have left links and deep folders. chown(1) follows no link, not even one that is
    # made meanwhile.
    argv = ["chown", "-hRP", "--", f"{int(uid)}:{int(gid)}", str(path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise HostError(
            f"{path}: its owner cannot be changed:"
            f" {done.stderr.decode(errors='replace').strip()[:200]}"
        )
