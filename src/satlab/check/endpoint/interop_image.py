# SPDX-License-Identifier: GPL-3.0-or-later
"""One endpoint of the QUIC interop runner: a folder with `run_endpoint.sh`, a root file system, or
an OCI archive.

A folder uses the host's programs. An archive starts as a container of its image does: entry point,
variables, working directory. A root file system has no configuration, and starts with its
`/run_endpoint.sh`. In a container, the working directory is writable: aioquic's script leaves its
session ticket there.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from satlab.check.endpoint import oci_image
from satlab.check.endpoint.oci_image import ImageConfig
from satlab.common import plain_files, scratch
from satlab.common.errors import ConfigError, Fault
from satlab.lab.sandbox import Mount

SCRIPT = "run_endpoint.sh"
_SETUP = "#!/bin/sh\n# Offloads and routes are the lab's.\nmkdir -p /logs/qlog\n"
_WAIT = "#!/bin/sh\n# The path is up before an endpoint starts.\nexit 0\n"
_DEFAULT = ImageConfig((f"/{SCRIPT}",))
FOLDER = "/endpoint"
"""Working directory of a folder's script. The folder's files are in it and in the root."""
MAX_HELD = 256
"""Largest number of entries of a writable working directory. A larger one is the system's
(/usr/bin) and stays read-only.
"""


@dataclass(frozen=True)
class Image:
    """`base` is the image's root file system; `/` for a folder, whose files are `mounts`. `held`
    are the entries of its working directory by name: a writable folder with these entries replaces
    it. None: the working directory is not replaced.
    """

    name: str
    base: Path
    mounts: tuple[Mount, ...] = ()
    config: ImageConfig = _DEFAULT
    held: Mapping[str, Path] | None = None


@contextlib.contextmanager
def opened(endpoint: Path) -> Iterator[Image]:
    """Open an endpoint for a block.

    Nothing is opened over a symbolic link, here or by satbox: the endpoint may be of a user who can
    replace it.

    Raises:
        ConfigError: `endpoint` is neither a folder or root file system with its script, nor an OCI
        archive.
    """
    endpoint = plain_files.named(endpoint)
    with scratch.folder("endpoint") as own:
        root, config, modes = endpoint, _DEFAULT, _modes(endpoint)
        if modes is None:
            root = own / "root"
            root.mkdir()
            config = oci_image.unpack(endpoint, root)
            if config.argv:
                yield Image(endpoint.stem, root, config=config, held=_held(root, config.directory))
                return
            modes = plain_files.modes(root)
        config = replace(config, argv=_DEFAULT.argv)
        if not stat.S_ISREG(modes.get(SCRIPT, 0)):
            hint = "an endpoint is a folder, root file system or OCI archive with it"
            raise ConfigError(f"{endpoint} has no {SCRIPT}", hint=hint)
        if stat.S_ISDIR(modes.get("usr", 0)):
            yield Image(endpoint.name, root, config=config)
            return
        links = [
            Fault(str(root / name), "is a symbolic link")
            for name, mode in modes.items()
            if stat.S_ISLNK(mode)
        ]
        if links:
            raise ConfigError(
                "files of an endpoint", links, "put there what they lead to: no link is followed"
            )
        held = {name: root / name for name in sorted(modes)}
        yield Image(
            endpoint.name, Path("/"), _files(held, own), replace(config, directory=FOLDER), held
        )


def _modes(endpoint: Path) -> Mapping[str, int] | None:
    """Return the modes of a folder's entries by name; None if it is no folder. Raises ConfigError."""
    try:
        return plain_files.modes(endpoint)
    except NotADirectoryError:
        return None  # a link, too: opening an archive follows no links
    except OSError as error:
        raise ConfigError(
            f"{endpoint}: {error.strerror}",
            hint="an endpoint is a folder with run_endpoint.sh, an image's files, or an OCI archive",
        ) from error


def _files(theirs: Mapping[str, Path], own: Path) -> tuple[Mount, ...]:
    """Mount the files of a folder, and the files that images of the interop runner contain."""
    files = dict(theirs)
    for name, text in (("setup.sh", _SETUP), ("wait-for-it.sh", _WAIT)):
        (own / name).write_text(text)
        (own / name).chmod(0o755)
        files.setdefault(name, own / name)
    return tuple(Mount(file, f"/{name}") for name, file in files.items())


def _held(root: Path, directory: str) -> dict[str, Path] | None:
    """Return the entries of an image's working directory; None if that directory is the root, a
    link, missing, or the system's.

    A link counts as its target; one that leads out of the image is left out.
    """
    place = root / directory.strip("/")
    if place == root or Path(os.path.realpath(place)) != place or not place.is_dir():
        return None
    entries = {entry.name: _followed(root, entry) for entry in sorted(place.iterdir())}
    found = {
        name: entry
        for name, entry in entries.items()
        if entry.is_relative_to(root) and entry.exists()
    }
    return found if len(entries) <= MAX_HELD else None


def _followed(root: Path, entry: Path) -> Path:
    """Return the target of a link, resolved with the image as root; other entries unchanged."""
    if not entry.is_symlink():
        return entry
    target = entry.readlink()
    place = root / target.relative_to("/") if target.is_absolute() else entry.parent / target
    return Path(os.path.realpath(place))  # Path.resolve() fails where links lead to each other
