# SPDX-License-Identifier: GPL-3.0-or-later
"""Any client and server, given as command lines: a download, judged by the client's exit, its files
and the packets.

A command is split into words as in a shell (quotes, no expansion), but no shell runs it.
PLACEHOLDERS are replaced in its words.
"""

import os
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from satlab.check.endpoint.pair import (
    CLIENT,
    NAME,
    PORT,
    SERVER,
    EndpointPair,
    EndpointProgram,
    Environment,
    TransferRequest,
    read_only,
)
from satlab.check.samples import STALL_S, Sample, Status
from satlab.check.sandboxed_program import ExitReport
from satlab.check.suite import Case
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.common import plain_files
from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.plain_files import RefusedError
from satlab.lab.sandbox import Mount

PLACEHOLDERS = {
    "host": "the server's address",
    "port": "the server's port",
    "name": "the server's name, in its certificate and in /etc/hosts",
    "bytes": "size of the file",
    "path": "path of the file in the URL",
    "url": "https://name:port/path",
    "www": "folder that the server serves; it has the file",
    "cert": "the server's certificate chain, PEM",
    "key": "the server's private key, PEM",
    "ca": "certificate that the client trusts, PEM",
    "out": "empty folder: the client must leave the file there, and nothing else",
    "qlog": "folder for qlog files, one per endpoint",
    "state": (
        "folder of each side that is kept between two connections: sessions, tokens, what is known"
        " of the path"
    ),
}
PAYLOAD = "payload"
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
BLOCK_BYTES = 1 << 20
MIN_COMPLETE_SHARE = 0.98
"""Share of the payload that must have arrived if the client leaves no file."""


@dataclass(frozen=True)
class CommandLinePair(EndpointPair):
    """The words of both commands; `allow_read` are files and folders that they need besides the
    host's programs.

    `environment` has variables by side.
    """

    stack: str
    client_words: tuple[str, ...]
    server_words: tuple[str, ...]
    allow_read: tuple[Path, ...] = ()
    environment: Environment = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.stack

    def commands(self) -> Mapping[str, Sequence[str]]:
        return {CLIENT: self.client_words, SERVER: self.server_words}

    def unsupported_reason(self, case: Case) -> str:
        if case.direction == "upload":
            return "uploads of external programs are not supported: nothing times their arrival"
        words = (*self.client_words, *self.server_words)
        if case.second_after_s is not None and not any("{state}" in word for word in words):
            return (
                "neither command has a {state} to keep a session, or what is known of the path, in"
            )
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server and write the file that it serves."""
        www = request.folder / "www"
        www.mkdir()
        (www / PAYLOAD).write_bytes(random.Random(request.seed).randbytes(request.size))  # noqa: S311 - not a secret
        keys = request.pki
        for name in ("state", "qlog"):
            (request.folder / SERVER / name).mkdir()
        mounts = (*read_only(www, keys.server_cert, keys.server_key), *map(Mount, self.allow_read))
        return EndpointProgram(
            _filled(self.server_words, request, SERVER), mounts, self.environment.get(SERVER, {})
        )

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client, with an empty folder for the download of each connection."""
        if number == 0:  # after the program's first start we write nothing to its folders
            for name in (*map(_out, range(request.connections)), "state", "qlog"):
                (request.folder / CLIENT / name).mkdir()
        mounts = (*read_only(request.pki.ca_cert), *map(Mount, self.allow_read))
        words = _filled(self.client_words, request, CLIENT, number)
        return EndpointProgram(words, mounts, self.environment.get(CLIENT, {}))

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        return {side: request.folder / side / "qlog" for side in (SERVER, CLIENT)}

    def sample(
        self,
        request: TransferRequest,
        number: int,
        ended: ExitReport,
        wire: CapturedTransfer | None,
    ) -> Sample:
        if wire is None:
            return request.sent_nothing(ended)
        status, reason = self._outcome(request, number, ended, wire)
        # The headers of a complete transfer are spread over its payload. The headers of an
        # incomplete transfer are unknown.
        times = wire.times_s(request.marks, request.size if status == "ok" else wire.arrived_bytes)
        return Sample(
            request.case.id, request.seed, status, reason, times, handshake_ms=wire.handshake_ms
        )

    def _outcome(
        self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer
    ) -> tuple[Status, str]:
        if ended.is_out_of_time:
            return at_time_limit(request, wire)
        if ended.reason:
            return "failed", ended.reason
        if any("{out}" in word for word in self.client_words):
            fault = compare(
                request.folder / CLIENT / _out(number), [request.folder / "www" / PAYLOAD]
            )
            output = f"; its last output: {ended.output_tail}" if ended.output_tail else ""
            return ("failed", fault + output) if fault else ("ok", "")
        if wire.arrived_bytes < MIN_COMPLETE_SHARE * request.size:
            return (
                "failed",
                (
                    f"the client ended with status 0, but {wire.arrived_bytes} of {request.size}"
                    " bytes arrived"
                ),
            )
        return "ok", ""


def at_time_limit(request: TransferRequest, wire: CapturedTransfer) -> tuple[Status, str]:
    """Return the outcome of a client that its time limit ended. A slow transfer is nobody's fault:
    its marks are censored. A test case has failed.
    """
    limit_s = request.case.timeout_s
    last_s = max((one.t_s for one in wire.arrivals), default=0.0)
    if limit_s - last_s >= STALL_S:
        return "failed", f"it stalled: nothing arrived after {last_s:.1f} s"
    arrived = wire.payload_bytes(request.size, limit_s)
    reason = f"time limit of {limit_s:g} s reached after {arrived} of {request.size} bytes"
    return "censored" if request.marks else "failed", reason


def compare(out: Path, served: Iterable[Path]) -> str:
    """Return the first fault of a client's files: they must equal the served files."""
    expected = {file.name: file for file in served}
    try:
        received = plain_files.modes(out)
    except OSError:
        return "wrong file: the folder for downloads is missing"
    for name, file in sorted(expected.items()):
        size = file.stat().st_size
        try:
            with plain_files.below(out, name) as copy, file.open("rb") as original:
                length = os.fstat(copy.fileno()).st_size
                is_same = length == size and _are_equal(copy, original, size)
        except (OSError, RefusedError):
            return f"wrong file: {name} is missing"
        if not is_same:
            return (
                f"wrong file: {name} differs from the server's ({length} bytes, the server's has"
                f" {size})"
            )
    unexpected = sorted(received.keys() - expected.keys())
    return f"wrong file: {unexpected[0][:60]!r} was not requested" if unexpected else ""


def _are_equal(one: BinaryIO, other: BinaryIO, size: int) -> bool:
    return all(
        one.read(BLOCK_BYTES) == other.read(BLOCK_BYTES) for _ in range(0, size, BLOCK_BYTES)
    )


def _out(number: int) -> str:
    """Return the name of the folder for the download of a connection."""
    return f"out-{number}" if number else "out"


def _filled(
    words: tuple[str, ...], request: TransferRequest, side: str, number: int = 0
) -> tuple[str, ...]:
    """Replace placeholders. Every word stays one word."""
    client, keys = request.folder / CLIENT, request.pki
    values = {
        "host": request.host,
        "port": str(PORT),
        "name": NAME,
        "bytes": str(request.size),
        "path": f"/{PAYLOAD}",
        "url": f"https://{NAME}:{PORT}/{PAYLOAD}",
        "www": str(request.folder / "www"),
        "cert": str(keys.server_cert),
        "key": str(keys.server_key),
        "ca": str(keys.ca_cert),
        "out": str(client / _out(number)),
        "state": str(request.folder / side / "state"),
        "qlog": str(request.folder / side / "qlog"),
    }
    return tuple(_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in words)


def parse(
    client: str | None,
    server: str | None,
    allow_read: Iterable[Path] = (),
    environment: Environment | None = None,
) -> CommandLinePair:
    """Parse the commands of both endpoints.

    The path that `programs_folder` returns for each program is readable, too.

    Raises:
        ConfigError: with every fault.
    """
    texts = {"--client-cmd": client or "", "--server-cmd": server or ""}
    needed = list(map(plain_files.named, allow_read))
    faults = not_shown("--allow-read", needed)
    words: dict[str, list[str]] = {}
    for option, text in texts.items():
        faults += [
            Fault(option, f"{{{name}}} is unknown", ", ".join(PLACEHOLDERS))
            for name in sorted(set(_PLACEHOLDER.findall(text)) - PLACEHOLDERS.keys())
        ]
        if found := program_words(option, text, faults):
            words[option] = found
            needed.append(programs_folder(Path(found[0])))
            faults += not_shown(option, needed[-1:])
    faults = faults or leading_away(words, needed)
    if faults:
        raise ConfigError("the commands of the endpoints", faults)
    client_words, server_words = map(tuple, words.values())
    name = " to ".join(named_file(each).name for each in words.values())
    visible = outside_the_host_programs(needed)
    return CommandLinePair(name, client_words, server_words, visible, environment or {})


def named_file(words: Sequence[str]) -> Path:
    """Return the script that an interpreter runs, or the program."""
    return next((Path(word) for word in words[1:] if Path(word).is_file()), Path(words[0]))


def program_words(option: str, text: str, faults: list[Fault]) -> list[str] | None:
    """Return the words of a command, with the path of its program. Without one, add that to `faults`
    and return None.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        faults.append(Fault(option, str(error)))
        return None
    program = shutil.which(words[0]) if words else None
    if program is None:
        faults.append(
            Fault(option, f"{words[0]} is not a program", "build it, or correct its path")
            if words
            else Fault(option, "is missing", "both commands are needed")
        )
        return None
    return [str(plain_files.named(Path(program))), *words[1:]]


def programs_folder(program: Path) -> Path:
    """Return the path that must be readable to run a program: its folder, or only the program if
    that folder is the root or directly below it (/home).
    """
    return program.parent if len(program.parts) > MIN_FOLDER_PARTS else program


MIN_FOLDER_PARTS = 3
"""Parts of a program's path: the root, a folder, the program."""


def not_shown(option: str, paths: Iterable[Path]) -> list[Fault]:
    """Return why a sandbox would not show paths."""
    faults = []
    for path in outside_the_host_programs(paths):
        if not os.path.lexists(path):
            faults.append(Fault(option, f"{path} does not exist"))
        elif path.resolve() != path:
            reason = f"{path} is or leads over a symbolic link"
            faults.append(Fault(option, reason, "name what the link leads to"))
    return faults


def leading_away(commands: Mapping[str, Sequence[str]], shown: Sequence[Path]) -> list[Fault]:
    """Return why programs of commands (by option) that are links would not start in a sandbox that
    shows these paths. The Python of a virtual environment is a link to another one.
    """
    faults = []
    for option, (program, *_) in commands.items():
        target = Path(program).resolve()
        if outside_the_host_programs([target]) and not any(map(target.is_relative_to, shown)):
            folder = target.parent.parent if target.parent.name == "bin" else target.parent
            reason = f"{program} leads to {target}, which the sandbox would not show"
            faults.append(Fault(option, reason, f"add --allow-read {folder}"))
    return faults


def outside_the_host_programs(files: Iterable[Path]) -> tuple[Path, ...]:
    """Leave out paths that every sandbox shows."""
    return tuple(
        path
        for path in dict.fromkeys(files)
        if path.parts[1:2] not in (("usr",), ("bin",), ("sbin",))
    )


def ngtcp2() -> CommandLinePair:
    """Return ngtcp2's client and server from Debian's packages (GnuTLS), with windows for 250
    Mbit/s at 650 ms.

    Raises:
        HostError: ngtcp2 is not installed.
    """
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    programs = [shutil.which(name, path=places) for name in ("gtlsclient", "gtlsserver")]
    if None in programs:
        raise HostError(
            "ngtcp2's programs are not installed", "apt-get install ngtcp2-client ngtcp2-server"
        )
    client, server = map(str, programs)
    quiet = ("--quiet", "--no-quic-dump", "--no-http-dump", "--qlog-dir={qlog}")
    windows = (
        "--max-data=64M",
        "--max-stream-data-bidi-local=64M",
        "--max-window=64M",
        "--max-stream-window=64M",
    )
    state = ("--session-file={state}/session", "--tp-file={state}/parameters", "--download={out}")
    return CommandLinePair(
        f"ngtcp2 {_version('ngtcp2-client')}",
        (
            client,
            *quiet,
            *windows,
            *state,
            "--exit-on-all-streams-close",
            "{host}",
            "{port}",
            "{url}",
        ),
        (server, *quiet, "--htdocs={www}", "{host}", "{port}", "{key}", "{cert}"),
    )


def _version(package: str) -> str:
    argv = ["dpkg-query", "--show", "--showformat=${Version}", package]
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=10, check=True
        ).stdout.partition("+")[0]
    except (OSError, subprocess.SubprocessError):
        return "of unknown version"
