# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and unpacked packages that the sandboxes of one job see in addition to those of the host,
read-only.

With overlayfs they are stacked on /usr, /etc and /opt, and a job may write in folders of /etc: to
memory that ends with it. Without overlayfs they are below `/run/satlab`, and PATH, LD_LIBRARY_PATH
and PYTHONPATH name their folders.
"""

import os
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from satlab.common import paths
from satlab.common.errors import HostError
from satlab.lab import mount_namespace
from satlab.lab.sandbox import Limits, Mount

PLACES = ("usr", "etc", "opt")
"""Folders of the root that layers are stacked on."""
WRITABLE = "etc"
"""The one that a job may write to."""
PYTHON = "usr/lib/python3/dist-packages"
"""Folder of Python packages, in Debian's packages and for unpacked wheels."""
LAYERS = ("files", "packages")
"""The uppermost first."""
SHOWN_AT = "/run/satlab"
"""Folder of layers that cannot be stacked."""
_SEPARATORS = ":,\\"
"""Characters that options of overlayfs cannot contain."""
TRY_S = 20.0


@dataclass(frozen=True)
class Layers:
    """The layers of a job: `FOLDER/files` and `FOLDER/packages`. `stacked`: they are mounted with
    overlayfs.
    """

    folder: Path
    stacked: bool

    def mounts(self) -> list[Mount]:
        """Return the layers' mounts in a sandbox. They must come before all other mounts, which may
        lie below them.
        """
        if self.stacked:
            return [
                Mount(target, f"/{place}", writable=place == WRITABLE)
                for place, target, _ in self._stacks()
            ]
        return [Mount(self.folder / layer, f"{SHOWN_AT}/{layer}") for layer in LAYERS]

    def argv(self, sandbox: Sequence[str], uid: int) -> list[str]:
        """Return the argv prefix of a sandbox, of the user `uid`, with these layers in it."""
        if not self.stacked:
            return list(sandbox)
        words = [
            ":".join((*([str(uid)] if place == WRITABLE else []), str(target), *lower))
            for place, target, lower in self._stacks()
        ]
        return [*mount_namespace.ARGV, "stack", *words, "--", *sandbox]

    def _stacks(self) -> Iterator[tuple[str, Path, list[str]]]:
        """Yield each stack: the folder of the root, its mount point, the layers."""
        for place in PLACES:
            own = [self.folder / layer / place for layer in LAYERS]
            there = [str(path) for path in own if path.is_dir() and not path.is_symlink()]
            target = self.folder / "mounts" / place
            # overlayfs needs two folders; the mount point is empty, and an upper folder is one
            if there or place == WRITABLE:
                yield (
                    place,
                    target,
                    [*there, f"/{place}" if Path(f"/{place}").is_dir() else str(target)],
                )

    def limits(self, own: Limits) -> Limits:
        """Return the limits of a sandbox, with room for what is written to /etc."""
        if not self.stacked:
            return own
        return replace(
            own,
            disk_bytes=own.disk_bytes + mount_namespace.UPPER_BYTES,
            files=own.files + mount_namespace.UPPER_FILES,
        )

    def variables(self) -> Mapping[str, str]:
        """Return the variables by which a job finds layers that are not stacked."""
        if self.stacked:
            has_python = any((self.folder / layer / PYTHON).is_dir() for layer in LAYERS)
            return {"PYTHONPATH": f"{paths.SHIM}:/{PYTHON}"} if has_python else {}

        def below(*folders: str) -> str:
            return ":".join(
                f"{SHOWN_AT}/{layer}/{folder}" for layer in LAYERS for folder in folders
            )

        libraries = f"usr/lib/{sysconfig.get_config_var('MULTIARCH') or 'x86_64-linux-gnu'}"
        programs = below("usr/local/bin", "usr/bin", "usr/sbin")
        return {
            "PATH": f"{programs}:{paths.PROGRAMS}:{paths.STANDARD_PATH}",
            "LD_LIBRARY_PATH": below(libraries, "usr/lib"),
            "PYTHONPATH": f"{paths.SHIM}:{below(PYTHON)}",
        }


def of(folder: Path) -> Layers:
    """Return the layers in a folder, stacked if the kernel has overlayfs. Makes their mount points.

    Raises HostError: the folder's path cannot be an option of a mount.
    """
    if any(character in str(folder) for character in _SEPARATORS):
        raise HostError(
            f"{folder}: a path with one of {_SEPARATORS} cannot be mounted",
            "set TMPDIR to another folder",
        )
    for layer in LAYERS:
        (folder / layer).mkdir(mode=0o755, exist_ok=True)
    for place in PLACES:
        (folder / "mounts" / place).mkdir(mode=0o755, parents=True, exist_ok=True)
    return Layers(folder, stacked=_stacks_here(folder))


def _stacks_here(folder: Path) -> bool:
    """Return whether the kernel has overlayfs: tries to stack an empty folder on /usr, and on /etc
    one that can be written.
    """
    words = [
        f"{folder / 'mounts/usr'}:{folder / LAYERS[0]}:/usr",
        f"{os.geteuid()}:{folder / 'mounts/etc'}:/etc",
    ]
    argv = [*mount_namespace.ARGV, "stack", *words, "--", "true"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
