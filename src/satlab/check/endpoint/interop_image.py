# SPDX-License-Identifier: GPL-3.0-or-later
"""One endpoint of the QUIC interop runner: a folder with `run_endpoint.sh`, a root file system, or
an OCI archive.

A folder uses the host's programs. An archive starts as a container of its image does: entry point,
variables, working directory. A root file system has no configuration, and starts with its
`/run_endpoint.sh`. In a container, the working directory is writable: aioquic's script leaves its
session ticket there.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from satlab.check.endpoint import oci
from satlab.check.endpoint.oci import ImageConfig
from satlab.common import scratch
from satlab.common.errors import ConfigError
from satlab.lab.sandbox import Mount

SCRIPT = "run_endpoint.sh"
_SETUP = "#!/bin/sh\n# Offloads and routes are the lab's.\nmkdir -p /logs/qlog\n"
_WAIT = "#!/bin/sh\n# The path is up before an endpoint starts.\nexit 0\n"
_DEFAULT = ImageConfig((f"/{SCRIPT}",))
FOLDER = "/endpoint"
"""Working directory of a folder's script; its files are there and in the root."""
MAX_HELD = 256
"""A working directory with more entries is the system's (/usr/bin), and stays read-only."""


@dataclass(frozen=True)
class Image:
    """`base` is its root file system; `/` for a folder, whose files are `mounts`.

    `held` are the entries of its working directory by name: a writable folder that has them
    replaces it. None: it stays as it is.
    """

    name: str
    base: Path
    mounts: tuple[Mount, ...] = ()
    config: ImageConfig = _DEFAULT
    held: Mapping[str, Path] | None = None


@contextlib.contextmanager
def opened(endpoint: Path) -> Iterator[Image]:
    """Open an endpoint for a block.

    Raises:
        ConfigError: `endpoint` is none of a folder or root file system with its script, and an OCI
            archive.
    """
    with scratch.folder("endpoint") as own:
        if endpoint.is_file():
            root = own / "root"
            root.mkdir()
            config = oci.unpack(endpoint, root)
            if config.argv:
                yield Image(
                    endpoint.stem,
                    root.resolve(),
                    config=config,
                    held=_held(root.resolve(), config.directory),
                )
                return
        else:
            root, config = endpoint, _DEFAULT
        config = replace(config, argv=_DEFAULT.argv)
        script = root / SCRIPT
        if script.is_symlink() or not script.is_file():
            hint = "an endpoint is a folder, root file system or OCI archive with it"
            raise ConfigError(f"{endpoint} has no {SCRIPT}", hint=hint)
        if (root / "usr").is_dir():
            yield Image(endpoint.name, root.resolve(), config=config)
            return
        config, held = (
            replace(config, directory=FOLDER),
            {file.name: file for file in sorted(root.resolve().iterdir())},
        )
        yield Image(endpoint.resolve().name, Path("/"), _files(root, own), config, held)


def _files(folder: Path, own: Path) -> tuple[Mount, ...]:
    """Mount the files of a folder, and what an image of the interop runner brings with it."""
    for name, text in (("setup.sh", _SETUP), ("wait-for-it.sh", _WAIT)):
        (own / name).write_text(text)
        (own / name).chmod(0o755)
    files = {file.name: file for each in (own, folder) for file in sorted(each.iterdir())}
    return tuple(Mount(file, f"/{name}") for name, file in files.items())


def _held(root: Path, directory: str) -> dict[str, Path] | None:
    """Return the entries of an image's working directory;

    None if it is the root, a link, missing, or the system's.

    A link stands for what it leads to; one that leads out of the image is left out.
    """
    place = root / directory.strip("/")
    if place == root or place.resolve() != place or not place.is_dir():
        return None
    entries = {entry.name: _followed(root, entry) for entry in sorted(place.iterdir())}
    found = {
        name: entry
        for name, entry in entries.items()
        if entry.is_relative_to(root) and entry.exists()
    }
    return found if len(entries) <= MAX_HELD else None


def _followed(root: Path, entry: Path) -> Path:
    """Return where a link leads in a process whose root is the image; other entries as they are."""
    if not entry.is_symlink():
        return entry
    target = entry.readlink()
    return (
        root / target.relative_to("/") if target.is_absolute() else entry.parent / target
    ).resolve()
