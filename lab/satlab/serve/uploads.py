# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives from users, unpacked with bounds: no links, no devices, no way out of the folder, no bombs."""

import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from satlab.common.errors import ConfigError
from satlab.openbach.document import NAME_RULE, is_name

MOST_FILES = 200
MOST_BYTES = 32 << 20
"""Bounds on what an archive holds, unpacked."""
_CHUNK = 1 << 16


class _Bounded(io.RawIOBase):
    """Reads at most `most` bytes of a stream: headers and padding of a bomb count, too."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ConfigError(f"the archive holds more than {MOST_BYTES} bytes")
        return data


def unpack(archive: IO[bytes], target: Path) -> None:
    """Unpack a .tar.gz to `target`, whole or not at all; what was there goes. Raises ConfigError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".upload-", dir=target.parent))
    try:
        _unpack(archive, scratch)
        scratch.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        scratch.replace(target)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ConfigError(f"the archive cannot be read: {error}", hint="it is a .tar.gz") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(archive: IO[bytes], scratch: Path) -> None:
    bounded = _Bounded(gzip.GzipFile(fileobj=archive, mode="rb"), MOST_BYTES + MOST_FILES * 1024)
    count = 0
    with tarfile.open(fileobj=bounded, mode="r|") as members:
        for count, member in enumerate(members, 1):
            if count > MOST_FILES:
                raise ConfigError(f"the archive holds more than {MOST_FILES} files")
            path = scratch / checked(member.name)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(members.extractfile(member), path, executable=bool(member.mode & 0o100))
            else:
                raise ConfigError(f"{member.name[:100]!r} is neither file nor folder", hint="links are not taken")
    if count == 0:
        raise ConfigError("the archive holds nothing")


def checked(name: str) -> PurePosixPath:
    """Return the place of a member below its archive's folder. Raises ConfigError."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or len(parts) > 8 or not all(is_name(part) for part in parts):
        raise ConfigError(f"{name[:100]!r} is not a name to unpack", hint=NAME_RULE)
    return PurePosixPath(*parts)


def _write(source: IO[bytes] | None, path: Path, *, executable: bool) -> None:
    if source is None:
        raise ConfigError(f"{path.name} cannot be read")
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    path.chmod(0o755 if executable else 0o644)
