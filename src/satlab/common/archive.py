# SPDX-License-Identifier: GPL-3.0-or-later
"""Untrusted tar archives, read as a stream with limits (POSIX.1-2017, pax, "ustar Interchange
Format"; GNU tar).

Limits apply before bytes are in memory; `tarfile` reads extended headers of any size. `Reader`
yields the members and changes nothing. `Place` writes plain files and folders below one folder,
through descriptors that follow no link.
"""

import contextlib
import enum
import os
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any, Protocol, Self

from satlab.common.errors import HostError

BLOCK = 512
CHUNK = 1 << 16
MOST_EXTENSIONS = 4
"""Largest number of extended headers before one member."""
READ = ("path", "linkpath", "size")
"""The pax records that we use; others, such as times and owners, are ignored."""
SPARSE = "GNU.sparse."
GZIP = b"\x1f\x8b"
"""First bytes of a gzip stream."""


ZSTD = b"\x28\xb5\x2f\xfd"
"""First bytes of a zstd frame."""
_NOBODY = 65534
"""User and group without any files (Debian Policy 9.2.2)."""


class ArchiveError(Exception):
    """An archive is damaged, exceeds a limit, or would write outside its folder; the message names
    the member.
    """


class Source(Protocol):
    """A source of bytes: `read(n)` returns at most n bytes, none at the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""


@dataclass(frozen=True)
class Limits:
    """Limits of one archive. `total_bytes`: the stream, with headers. `header_bytes`: one extended
    header.
    """

    total_bytes: int
    files: int
    path_bytes: int = 1024
    depth: int = 32
    header_bytes: int = 64 << 10


class Kind(enum.Enum):
    """The kind of a member; OTHER is a device or a pipe."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARDLINK = "hard link"
    OTHER = "device or pipe"


KINDS = {
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.CONTTYPE: Kind.FILE,
    tarfile.DIRTYPE: Kind.FOLDER,
    tarfile.SYMTYPE: Kind.SYMLINK,
    tarfile.LNKTYPE: Kind.HARDLINK,
    tarfile.CHRTYPE: Kind.OTHER,
    tarfile.BLKTYPE: Kind.OTHER,
    tarfile.FIFOTYPE: Kind.OTHER,
}
_PAX, _PAX_OF_ALL = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE), tarfile.XGLTYPE
_LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}


@dataclass(frozen=True)
class Member:
    """One member.

    `name` and `link` are as in the archive; `size` in bytes, 0 unless it is a file. `offset`:
    position of its content in the stream, bytes.
    """

    name: str
    kind: Kind
    size: int
    mode: int
    link: str
    offset: int


class Reader:
    """Yields the members of an archive in their order; `content` belongs to the last yielded
    member.

    Raises ArchiveError.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits = source, limits
        self._offset, self._left, self._padding, self._count = 0, 0, 0, 0

    def __iter__(self) -> Iterator[Member]:
        """Yield the members; unread content is skipped."""
        while (member := self._next()) is not None:
            yield member

    @property
    def offset(self) -> int:
        """Return the number of bytes of the archive read so far."""
        return self._offset

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes of the member's content: an archive in an archive is a
        source, too.
        """
        data = self._some(min(size, self._left)) if size and self._left else b""
        self._left -= len(data)
        return data

    def content(self) -> Iterator[bytes]:
        """Yield the rest of the member's content, in parts of at most CHUNK bytes."""
        while data := self.read(CHUNK):
            yield data

    def _next(self) -> Member | None:
        given: dict[str, str] = {}
        for _ in range(MOST_EXTENSIONS + 1):
            header = self._header()
            if header is None:
                return None
            if header.type in _PAX:
                given |= _records(self._extension(header))
            elif header.type == _PAX_OF_ALL:
                self._extension(header)  # of all members: times and owners
            elif header.type in _LONG:
                given[_LONG[header.type]] = _text(self._extension(header).split(b"\0", 1)[0])
            else:
                return self._member(header, given)
        raise ArchiveError(
            f"the archive has too many or too large headers: more than {MOST_EXTENSIONS} of one"
            " member"
        )

    def _header(self) -> tarfile.TarInfo | None:
        """Return the next header; None at the end."""
        for _ in self.content():
            pass
        self._exactly(self._padding)
        self._padding = 0
        block = self._exactly(BLOCK, may_end=True)
        if not block.strip(b"\0"):
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise ArchiveError(f"the archive is damaged: {error}") from error
        if header.size < 0:
            raise ArchiveError(f"{header.name[:100]!r} has a negative size")
        return header

    def _extension(self, header: tarfile.TarInfo) -> bytes:
        if header.size > self._limits.header_bytes:
            raise ArchiveError(
                f"the archive has too many or too large headers: one of {header.size} bytes"
            )
        data = self._exactly(header.size)
        self._padding = -header.size % BLOCK
        return data

    def _member(self, header: tarfile.TarInfo, given: dict[str, str]) -> Member:
        name, link = given.get("path", header.name), given.get("linkpath", header.linkname)
        kind = KINDS.get(header.type)
        if kind is None:
            raise ArchiveError(f"{name[:100]!r} is of a kind that is not read ({header.type!r})")
        size = _size(given["size"]) if "size" in given else header.size
        size = size if kind is Kind.FILE else 0
        limits, self._count = self._limits, self._count + 1
        if self._count > limits.files:
            raise ArchiveError(f"the archive holds more than {limits.files} files")
        if self._offset + size > limits.total_bytes:
            raise ArchiveError(f"the archive holds more than {limits.total_bytes} bytes")
        for path in (name, link):
            if (
                len(os.fsencode(path)) > limits.path_bytes
                or path.count("/") > limits.depth
                or "\0" in path
            ):
                raise ArchiveError(f"{path[:100]!r} is too long or too deep a name")
        self._left, self._padding = size, -size % BLOCK
        return Member(name, kind, size, header.mode, link, self._offset)

    def _exactly(self, size: int, *, may_end: bool = False) -> bytes:
        parts: list[bytes] = []
        while size:
            data = self._some(size, may_end=may_end and not parts)
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _some(self, size: int, *, may_end: bool = False) -> bytes:
        try:
            data = self._source.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise ArchiveError(f"the archive cannot be read: {error}") from error
        self._offset += len(data)
        if not data and not may_end:
            raise ArchiveError("the archive ends early")
        if self._offset > self._limits.total_bytes:
            raise ArchiveError(f"the archive holds more than {self._limits.total_bytes} bytes")
        return data


def _records(data: bytes) -> dict[str, str]:
    """Read pax records, `LENGTH KEY=VALUE\\n`, and return those that are used."""
    found, at = {}, 0
    while at < len(data) and data[at]:
        digits, _, _ = data[at : at + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[at + len(digits) + 1 : at + length - 1].partition(b"=")
        if not equals or data[at + length - 1 : at + length] != b"\n":
            raise ArchiveError("the archive is damaged: an extended header")
        name = _text(key)
        if name.startswith(SPARSE):
            raise ArchiveError("the archive holds a sparse file, which is not read")
        if name in READ:
            found[name] = _text(value)
        at += length
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ArchiveError(f"{text[:40]!r} is not a size")
    return int(text)


class Gunzip:
    """Reads the gzip stream (RFC 1952) of a source: at most `ratio` bytes for each byte of it,
    beyond `free_bytes`.

    An archive of zeros becomes 1000 times as large; archives of programs and text grow less than 20
    times.
    """

    def __init__(self, source: Source, ratio: int = 200, free_bytes: int = 64 << 20) -> None:
        self._source, self._ratio, self._free = source, ratio, free_bytes
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._in = self._out = 0
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes.

        Raises ArchiveError if the stream expands too far or ends early, zlib.error.
        """
        while size:
            if self._inflate.eof:
                self._rest = self._inflate.unused_data or self._take()
                if not self._rest.strip(b"\0"):
                    return b""
                self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
            data = self._rest or self._take()
            made = self._inflate.decompress(data, size)
            self._rest = self._inflate.unconsumed_tail
            self._out += len(made)
            if self._out > self._free + self._ratio * self._in:
                raise ArchiveError(f"the archive becomes more than {self._ratio} times as large")
            if made:
                return made
            if not data and not self._inflate.eof:
                raise ArchiveError("the archive ends early")
        return b""

    def _take(self) -> bytes:
        data = self._source.read(CHUNK)
        self._in += len(data)
        return data


class Unzstd:
    """Reads the zstd stream (RFC 8878) of a source during a block, within the bounds of `Gunzip`.

    Python has no zstd before 3.14, so the program zstd unpacks it: as nobody where we are root, and
    with windows of at most 128 MiB.
    """

    def __init__(self, source: Source, ratio: int = 200, free_bytes: int = 64 << 20) -> None:
        self._source, self._ratio, self._free = source, ratio, free_bytes
        self._in = self._out = 0
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        """Start zstd. Raises HostError if it is not installed."""
        program = shutil.which("zstd")
        if program is None:
            what = "zstd is missing: the archive is compressed with it"
            raise HostError(what, "install it: sudo apt-get install zstd")
        nobody: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()}
        self._process = subprocess.Popen(
            [program, "--decompress", "--stdout", "--quiet", "--memory=128MB"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C"},
            **nobody,
        )
        self._feeder.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End zstd."""
        self._process.kill()
        self._process.wait()
        self._feeder.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes.

        Raises ArchiveError if the stream expands too far, ends early or is not zstd's.
        """
        stdout, stderr = self._process.stdout, self._process.stderr
        if stdout is None or stderr is None:
            return b""
        made = os.read(stdout.fileno(), size)
        self._out += len(made)
        if self._out > self._free + self._ratio * self._in:
            raise ArchiveError(f"the archive becomes more than {self._ratio} times as large")
        if not made and size and self._process.wait() != 0:
            said = os.read(stderr.fileno(), 1000).decode(errors="replace").strip()
            raise ArchiveError(f"zstd cannot unpack it: {said.splitlines()[0] if said else ''}")
        return made

    def _feed(self) -> None:
        """Write the source into zstd, until its end or that of zstd."""
        stdin = self._process.stdin
        if stdin is None:
            return
        with contextlib.suppress(OSError):
            while data := self._source.read(CHUNK):
                self._in += len(data)
                stdin.write(data)
        with contextlib.suppress(OSError):
            stdin.close()


class Place:
    """A folder below which members are written: only new files and folders, relative to
    descriptors, never through a link.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._limits = limits
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Close the folder."""
        os.close(self._root)

    def put(self, member: Member, content: Iterable[bytes], mode: int = 0o666) -> None:
        """Write a member; the umask cuts `mode` of a file. Raises ArchiveError, OSError."""
        parts = self.parts(member.name)
        if member.kind not in (Kind.FILE, Kind.FOLDER):
            raise ArchiveError(
                f"{member.name[:100]!r} is neither file nor folder but a {member.kind.value}"
            )
        with contextlib.ExitStack() as stack:
            is_file = member.kind is Kind.FILE
            folder = self._root
            try:
                for part in parts[:-1] if is_file else parts:
                    folder = self._folder(part, folder)
                    stack.callback(os.close, folder)
                if not is_file:
                    return
                if not parts:
                    raise ArchiveError(f"{member.name[:100]!r} is not the name of a file")
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(parts[-1], flags, mode, dir_fd=folder), "wb") as file:
                    file.writelines(content)
            except (FileExistsError, NotADirectoryError) as error:
                raise ArchiveError(
                    f"{member.name[:100]!r} is there already, as another member"
                ) from error

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of a member's path.

        Raises ArchiveError unless it leads below the folder.
        """
        path = PurePosixPath(name)
        parts = path.parts
        if path.is_absolute() or ".." in parts or len(parts) > self._limits.depth or "\0" in name:
            raise ArchiveError(f"{name[:100]!r} is not a path below the folder")
        return parts

    @staticmethod
    def _folder(name: str, parent: int) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=parent)
        return os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
        )


def unpack(source: Source, folder: Path, limits: Limits) -> None:
    """Write all members, plain files and folders, below a folder. Raises ArchiveError, OSError."""
    reader = Reader(source, limits)
    with Place(folder, limits) as place:
        for member in reader:
            place.put(member, reader.content())


class Section:
    """A part of a file that can seek, as a source."""

    def __init__(self, file: IO[bytes], offset: int, size: int) -> None:
        self._file, self._at, self._left = file, offset, size

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""
        self._file.seek(self._at)
        data = self._file.read(min(size, self._left))
        self._at, self._left = self._at + len(data), self._left - len(data)
        return data

    @contextlib.contextmanager
    def decompressed(self) -> Iterator[Source]:
        """Yield the source, decompressed if it begins like gzip or zstd."""
        self._file.seek(self._at)
        start = self._file.read(4)
        if start.startswith(GZIP):
            yield Gunzip(self)
        elif is_zstd(start):
            with Unzstd(self) as source:
                yield source
        else:
            yield self


def is_zstd(start: bytes) -> bool:
    """Return whether the first four bytes are those of a zstd stream, which may begin with a frame
    to skip (RFC 8878, section 3.1.2).
    """
    is_skipped = start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5
    return start == ZSTD or is_skipped
