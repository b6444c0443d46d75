# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack the root file system of an OCI image archive (OCI image layout 1.0) and read its
configuration, with limits.

Nothing is written outside the target, because links are resolved with the image as root.
Device nodes and set-user-ID bits are dropped.
"""

import json
import os
import platform
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from satlab.common import plain_files
from satlab.common.archive import (
    GZIP,
    ArchiveError,
    Kind,
    Limits,
    Member,
    Reader,
    Section,
    is_zstd,
)
from satlab.common.errors import ConfigError
from satlab.common.plain_files import RefusedError
from satlab.lab import sandbox

MAX_FILES, MAX_BYTES = 300_000, 8 << 30
"""Limits of all layers together. The image's archive has at most as many bytes, and MAX_BLOBS
files.
"""
MAX_BLOBS = 1000
MAX_JSON_BYTES = 4 << 20
MAX_LINKS = 40
"""The kernel's limit (path_resolution(7))."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True)
class ImageConfig:
    """How a container of an image starts (OCI image configuration 1.0): command, variables, working
    directory.
    """

    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"


def unpack(file: Path, target: Path) -> ImageConfig:
    """Unpack all layers of an image into `target`, an empty folder, and return its configuration.

    Raises:
        ConfigError: the file is not an OCI archive, or exceeds a limit.
        HostError: a layer needs zstd, which is not installed.
    """
    try:
        with plain_files.opened(file) as opened:
            _check_kind(opened)
            image = _Image(opened)
            manifest = _manifest(image)
            left = Limits(MAX_BYTES, MAX_FILES)
            for layer in manifest["layers"]:
                left = _unpack_layer(image, layer, target, left)
            return (
                _config(image.json(_blob_path(manifest["config"]["digest"])))
                if "config" in manifest
                else _NONE
            )
    except _OtherKindError as error:
        raise ConfigError(f"{file}: {error}", hint=error.hint.format(file=file)) from error
    except _INVALID as error:
        raise ConfigError(
            f"{file} is not an OCI archive: {error}",
            hint=f"if skopeo inspect oci-archive:{file} fails, too, it is damaged: copy it again",
        ) from error


def _unpack_layer(image: "_Image", layer: Mapping[str, Any], target: Path, left: Limits) -> Limits:
    """Apply a layer, and return the remaining limits for the next layers."""
    kind = str(layer.get("mediaType", ""))
    _, _, compression = kind.partition("+")
    if compression not in _COMPRESSIONS:
        raise _OtherKindError(
            f"a layer has the type {kind[-80:]!r}, and tar, gzip and zstd are read", _COMPRESS_ANEW
        )
    with image.content(_blob_path(layer["digest"])).decompressed() as source:
        reader, count = Reader(source, left), 0
        for count, member in enumerate(reader, 1):  # noqa: B007 - also read below
            _apply(reader, member, target)
    return replace(left, files=left.files - count, total_bytes=left.total_bytes - reader.offset)


class _OtherKindError(Exception):
    """The file is an archive of another kind; `hint` has {file} where its name is meant."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


_COMPRESSIONS = ("", "gzip", "zstd")
_COMPRESS_ANEW = "build or push the image with layers that gzip compresses, and copy it again"
_WHOLE = (
    (lambda start: start.startswith(GZIP), "gzip", "gunzip {file}"),
    (lambda start: is_zstd(start[:4]), "zstd", "unzstd {file}"),
    (lambda start: start.startswith(b"\xfd7zXZ\0"), "xz", "unxz {file}"),
    (lambda start: start.startswith(b"BZh"), "bzip2", "bunzip2 {file}"),
)
"""Archives that are compressed as a whole: by their first bytes, with a command that unpacks them."""
_INVALID = (
    ArchiveError,
    OSError,
    RefusedError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
)
_NONE = ImageConfig()


def _config(document: Mapping[str, Any]) -> ImageConfig:
    """Read an image's configuration; every field may be null or missing."""
    found = document.get("config") or {}
    argv = (*_texts(found.get("Entrypoint")), *_texts(found.get("Cmd")))
    variables = [text.partition("=") for text in _texts(found.get("Env"))]
    [directory] = _texts([found.get("WorkingDir") or "/"])
    if not PurePosixPath(directory).is_absolute() or ".." in PurePosixPath(directory).parts:
        raise ValueError(f"its working directory {directory[:80]!r} is not absolute")
    if why := sandbox.variables_fault({name: value for name, _, value in variables}):
        raise ValueError(f"its configuration: {why}")
    return ImageConfig(argv, {name: value for name, _, value in variables}, directory)


def _texts(value: object) -> tuple[str, ...]:
    """Return a checked list of words for a command line; empty for null."""
    texts = [] if value is None else value
    if not isinstance(texts, list) or not all(
        isinstance(text, str) and "\0" not in text for text in texts
    ):
        raise ValueError("its configuration has a value that is not a text")
    return tuple(texts)


def _check_kind(file: IO[bytes]) -> None:
    """Raise _OtherKindError for an archive that is compressed as a whole."""
    start = file.read(8)
    file.seek(0)
    for begins, name, command in _WHOLE:
        if begins(start):
            raise _OtherKindError(
                f"the archive is compressed with {name}", f"unpack it first: {command}"
            )


class _Image:
    """The places of files in an image's archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        reader = Reader(file, Limits(MAX_BYTES, MAX_BLOBS))
        self._members = {str(PurePosixPath(member.name)): member for member in reader}
        if self._names_an_image():
            return
        if "manifest.json" in self._members:
            raise _OtherKindError(
                "it is an archive of docker save, not of OCI",
                "convert it: skopeo copy docker-archive:{file} oci-archive:NEW",
            )
        if self._members and "oci-layout" not in self._members:
            raise _OtherKindError(
                "it has no index.json, as an OCI archive has",
                "if it is a root file system (docker export), unpack it, and name the folder",
            )

    def _names_an_image(self) -> bool:
        """Return whether there is an index of images; docker save of Docker 25 also writes one, which
        may be empty.
        """
        return "index.json" in self._members and bool(self.json("index.json").get("manifests"))

    def content(self, name: str) -> Section:
        """Return a file of the image. Raises ValueError."""
        member = self._members.get(name)
        if member is None or member.kind is not Kind.FILE:
            raise ValueError(f"it has no {name}")
        return Section(self._file, member.offset, member.size)

    def json(self, name: str) -> dict[str, Any]:
        """Return a document of the image."""
        document: dict[str, Any] = json.loads(self.content(name).read(MAX_JSON_BYTES))
        return document


def _manifest(image: _Image) -> dict[str, Any]:
    """Return the manifest of the image for this machine."""
    document = image.json("index.json")
    machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
    for _ in range(3):
        if "layers" in document:
            return document
        manifests = document["manifests"]
        matching = [
            one
            for one in manifests
            if one.get("platform", {}).get("architecture", machine) == machine
        ]
        if not matching:
            raise _OtherKindError(
                f"it has no image for {machine}",
                f"copy that one: skopeo copy --override-arch {machine} docker://IMAGE"
                " oci-archive:NEW",
            )
        document = image.json(_blob_path(matching[0]["digest"]))
    raise ValueError("its index names no manifest")


def _blob_path(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    if not (algorithm.isalnum() and value.isalnum()):
        raise ValueError(f"{digest[:80]!r} is not a digest")
    return f"blobs/{algorithm}/{value}"


def _apply(reader: Reader, member: Member, root: Path) -> None:
    """Write one member of a layer, or remove what its whiteout file names."""
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
        _put(reader, member, folder / _name(path.name), root)


def _put(reader: Reader, member: Member, target: Path, root: Path) -> None:
    if member.kind is Kind.FOLDER:
        if target.is_symlink() or not target.is_dir():
            _remove(target)
            target.mkdir()
        target.chmod(member.mode & 0o777 | stat.S_IRWXU)
        return
    _remove(target)
    if member.kind is Kind.SYMLINK:
        target.symlink_to(member.link)
    elif member.kind is Kind.HARDLINK:
        source = PurePosixPath("/", member.link)
        os.link(_resolved(root, source.parent) / _name(source.name), target, follow_symlinks=False)
    elif member.kind is Kind.FILE:
        with target.open("xb") as file:
            file.writelines(reader.content())
        target.chmod(member.mode & 0o777 | stat.S_IRUSR)


def _name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name[:80]!r} is not a file name")
    return name


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _resolved(root: Path, path: PurePosixPath) -> Path:
    """Resolve a path like a process with this root; missing parts count as folders."""
    current, remaining, links = root, [*path.parts[1:]][::-1], 0
    while remaining:
        part = remaining.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current = current.parent if current != root else root
            continue
        child = current / part
        if not child.is_symlink():
            current = child
            continue
        links += 1
        if links > MAX_LINKS:
            raise ValueError(f"{str(path)[:80]!r} has too many links")
        target = PurePosixPath(child.readlink())
        current = root if target.is_absolute() else current
        remaining += [part for part in target.parts if part != "/"][::-1]
    return current
