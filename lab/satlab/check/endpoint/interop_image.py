# SPDX-License-Identifier: GPL-3.0-or-later
"""One endpoint of the QUIC interop runner: a folder with `run_endpoint.sh`, a root file system, or an OCI archive.

A folder uses the host's programs. An archive starts as a container of its image does: entry point, variables, working
directory. A root file system has no configuration, and starts with its `/run_endpoint.sh`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from satlab.check.endpoint import oci
from satlab.check.endpoint.oci import ImageConfig
from satlab.common import scratch
from satlab.common.errors import ConfigError
from satlab.netlab.sandbox import Mount

SCRIPT = "run_endpoint.sh"
_SETUP = "#!/bin/sh\n# Offloads and routes are the lab's.\nmkdir -p /logs/qlog\n"
_WAIT = "#!/bin/sh\n# The path is up before an endpoint starts.\nexit 0\n"
_DEFAULT = ImageConfig((f"/{SCRIPT}",))


@dataclass(frozen=True)
class Image:
    """`base` is its root file system; `/` for a folder, whose files are `mounts`."""

    name: str
    base: Path
    mounts: tuple[Mount, ...] = ()
    config: ImageConfig = _DEFAULT


@contextlib.contextmanager
def opened(endpoint: Path) -> Iterator[Image]:
    """Open an endpoint for a block.

    Raises:
        ConfigError: `endpoint` is none of a folder or root file system with its script, and an OCI archive.
    """
    with scratch.folder("endpoint") as own:
        if endpoint.is_file():
            root = own / "root"
            root.mkdir()
            config = oci.unpack(endpoint, root)
            if config.argv:
                yield Image(endpoint.stem, root.resolve(), config=config)
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
        yield Image(endpoint.resolve().name, Path("/"), _files(root, own))


def _files(folder: Path, own: Path) -> tuple[Mount, ...]:
    """Mount the files of a folder, and what an image of the interop runner brings with it."""
    for name, text in (("setup.sh", _SETUP), ("wait-for-it.sh", _WAIT)):
        (own / name).write_text(text)
        (own / name).chmod(0o755)
    files = {file.name: file for each in (own, folder) for file in sorted(each.iterdir())}
    return tuple(Mount(file, f"/{name}") for name, file in files.items())
