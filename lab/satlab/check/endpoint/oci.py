# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system of an OCI image archive (OCI image layout 1.0), unpacked with bounds.

Nothing in an image can lead out of the target: its links are followed as a process in the image would see them, device
nodes and set-user bits are left out.
"""

import io
import json
import os
import platform
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from satlab.common.errors import ConfigError

MOST_FILES, MOST_BYTES = 300_000, 8 << 30
"""Of all layers together."""
MOST_JSON = 4 << 20
MOST_LINKS = 40
"""As the kernel (path_resolution(7))."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


def unpack(archive: Path, target: Path) -> None:
    """Unpack an image's layers into `target`, an empty folder.

    Raises:
        ConfigError: it is no such archive, or is beyond the bounds.
    """
    try:
        with tarfile.open(archive) as image:
            budget = _Budget()
            for layer in _layers(image):
                with _blob(image, layer["digest"]) as data, tarfile.open(fileobj=data, mode="r|*") as members:
                    for member in members:
                        budget.take(member)
                        _apply(members, member, target)
    except (tarfile.TarError, OSError, ValueError, KeyError, IndexError, EOFError, zlib.error) as error:
        raise ConfigError(f"{archive} is no OCI archive: {error}", hint="skopeo copy ... oci-archive:FILE") from error


class _Budget:
    def __init__(self) -> None:
        self._files, self._bytes = MOST_FILES, MOST_BYTES

    def take(self, member: tarfile.TarInfo) -> None:
        self._files -= 1
        self._bytes -= member.size
        if self._files < 0 or self._bytes < 0:
            raise ValueError(f"its layers hold more than {MOST_FILES} files or {MOST_BYTES} bytes")


def _layers(image: tarfile.TarFile) -> Iterator[dict[str, Any]]:
    """Go from the index to the manifest of this machine's image; give its layers from the lowest."""
    document = _json(image, "index.json")
    mine = _ARCHITECTURES.get(platform.machine(), platform.machine())
    for _ in range(3):
        if "layers" in document:
            yield from document["layers"]
            return
        found = document["manifests"]
        fitting = [one for one in found if one.get("platform", {}).get("architecture", mine) == mine]
        if not fitting:
            raise ValueError(f"it has no image for {mine}")
        document = _json(image, _place(fitting[0]["digest"]))
    raise ValueError("its index leads to no manifest")


def _json(image: tarfile.TarFile, name: str) -> dict[str, Any]:
    with _open(image, name) as file:
        document: dict[str, Any] = json.loads(file.read(MOST_JSON))
    return document


def _blob(image: tarfile.TarFile, digest: str) -> IO[bytes]:
    return _open(image, _place(digest))


def _place(digest: str) -> str:
    kind, _, name = digest.partition(":")
    if not (kind.isalnum() and name.isalnum()):
        raise ValueError(f"{digest[:80]!r} is no digest")
    return f"blobs/{kind}/{name}"


def _open(image: tarfile.TarFile, name: str) -> IO[bytes]:
    for spelt in (name, f"./{name}"):
        try:
            file = image.extractfile(spelt)
        except KeyError:
            continue
        return file or io.BytesIO()
    raise ValueError(f"it has no {name}")


def _apply(members: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """Put one member of a layer into the tree, or take away what it says is gone."""
    path = PurePosixPath("/", member.name)
    if not path.name:
        return
    folder = _resolved(root, path.parent)
    folder.mkdir(parents=True, exist_ok=True)
    if path.name == _OPAQUE:
        for entry in folder.iterdir():
            _remove(entry)
    elif path.name.startswith(_WHITEOUT):
        _remove(folder / _name(path.name.removeprefix(_WHITEOUT)))
    else:
        _put(members, member, folder / _name(path.name), root)


def _put(members: tarfile.TarFile, member: tarfile.TarInfo, place: Path, root: Path) -> None:
    if member.isdir():
        if place.is_symlink() or not place.is_dir():
            _remove(place)
            place.mkdir()
        place.chmod(member.mode & 0o777 | stat.S_IRWXU)
        return
    _remove(place)
    if member.issym():
        place.symlink_to(member.linkname)
    elif member.islnk():
        source = PurePosixPath("/", member.linkname)
        os.link(_resolved(root, source.parent) / _name(source.name), place, follow_symlinks=False)
    elif member.isreg():
        data = members.extractfile(member)
        with place.open("xb") as file:
            shutil.copyfileobj(data or io.BytesIO(), file)
        place.chmod(member.mode & 0o777 | stat.S_IRUSR)


def _name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name[:80]!r} is no name")
    return name


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _resolved(root: Path, path: PurePosixPath) -> Path:
    """Follow a path as a process with this root would; what is not there yet is taken as folders."""
    here, todo, links = root, [*path.parts[1:]][::-1], 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.parent if here != root else root
            continue
        following = here / part
        if not following.is_symlink():
            here = following
            continue
        links += 1
        if links > MOST_LINKS:
            raise ValueError(f"{str(path)[:80]!r} leads through too many links")
        target = PurePosixPath(following.readlink())
        here = root if target.is_absolute() else here
        todo += [part for part in target.parts if part != "/"][::-1]
    return here
