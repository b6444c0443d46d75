# SPDX-License-Identifier: GPL-3.0-or-later
"""Anybody's client and server, by their command lines: a download over whatever they speak, judged from outside.

A command is split as a shell would (quotes, no expansion), never given to one. In its words these are replaced:
"""

import filecmp
import os
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from satlab.check.endpoint.pair import CLIENT, NAME, PORT, SERVER, EndpointProgram, LabPair, TransferRequest, shown
from satlab.check.samples import Sample, Status
from satlab.check.sandbox.sandbox import ExitReport
from satlab.check.suite import Case
from satlab.check.trace.pcap import CapturedTransfer
from satlab.common.errors import ConfigError, Fault, HostError

PLACEHOLDERS = {
    "host": "the server's address",
    "port": "its port",
    "name": "its name, which its certificate has and /etc/hosts knows",
    "bytes": "how much is to be transferred",
    "path": "where on the server it is, as in a URL",
    "url": "all of that as https://name:port/path",
    "www": "folder that the server serves, which holds the file of that path",
    "cert": "server's certificate chain, PEM",
    "key": "its private key, PEM",
    "ca": "certificate that the client may trust, PEM",
    "out": "empty folder: what the client leaves there must be the file",
    "qlog": "folder for qlog files, each end's own",
    "state": "folder that stays between two connections, for sessions and tokens",
}
PAYLOAD = "payload"
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
HANG_S = 5.0
"""A transfer that was cut off and had not moved for so long hung; else it was only slow."""
COMPLETE = 0.98
"""Share of the payload that must have crossed where the client leaves no file."""


@dataclass(frozen=True)
class CommandLinePair(LabPair):
    """The words of both commands; `shown` are files and folders that they need beside the host's programs."""

    name: str
    client_words: tuple[str, ...]
    server_words: tuple[str, ...]
    shown: tuple[Path, ...] = ()
    protocol: Literal["udp", "tcp"] = "udp"

    def lacks(self, case: Case) -> str:
        """Return why it cannot do a case."""
        if case.direction == "upload":
            return "uploads are not timed where they arrive with programs from outside"
        if case.second_after_s is not None and not any("{state}" in word for word in self.client_words):
            return "the client's command has no {state} to keep a session in"
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server and make what it serves."""
        www = request.folder / "www"
        www.mkdir()
        (www / PAYLOAD).write_bytes(random.Random(request.seed).randbytes(request.size))  # noqa: S311 - a file, no secret
        keys = request.pki
        (request.folder / SERVER / "qlog").mkdir()
        return EndpointProgram(
            _filled(self.server_words, request, SERVER), shown(www, keys.server_cert, keys.server_key, *self.shown)
        )

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client, with an empty folder for what it downloads."""
        if number == 0:  # after its first start nothing of ours is written where the program can write
            for name in (*map(_out, range(request.connections)), "state", "qlog"):
                (request.folder / CLIENT / name).mkdir()
        return EndpointProgram(
            _filled(self.client_words, request, CLIENT, number), shown(request.pki.ca_cert, *self.shown)
        )

    def qlog(self, request: TransferRequest, side: str) -> Path | None:
        """Return the folder that {qlog} names."""
        return request.folder / side / "qlog"

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Judge a download by how the client ended, what it left, and what crossed."""
        if wire is None:
            return request.failed(f"the client sent nothing{': ' if ended.reason else ''}{ended.reason}")
        status, reason = self._outcome(request, number, ended, wire)
        came = sum(one.size for one in wire.arrivals)
        # A whole transfer's headers are spread over it; of one that was cut off nobody knows how much they are.
        times = wire.times_s(request.marks, request.size if status == "ok" else came)
        handshake = wire.handshake_s
        return Sample(
            request.case.id, request.seed, status, reason, times,
            handshake_ms=None if handshake is None else handshake * 1000,
        )  # fmt: skip

    def _outcome(
        self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer
    ) -> tuple[Status, str]:
        if ended.why.startswith("it did not end within"):
            last_s = max((one.t_s for one in wire.arrivals), default=0.0)
            moved = request.case.timeout_s - last_s < HANG_S
            return ("censored", ended.why) if moved else ("failed", f"it hangs: nothing came after {last_s:.1f} s")
        if ended.reason:
            return "failed", ended.reason
        if any("{out}" in word for word in self.client_words):
            wrong = compare(request.folder / CLIENT / _out(number), [request.folder / "www" / PAYLOAD])
            said = f"; it said: {ended.said}" if ended.said else ""
            return ("failed", wrong + said) if wrong else ("ok", "")
        came = sum(one.size for one in wire.arrivals)
        if came < COMPLETE * request.size:
            return "failed", f"the client says it is done, but {came} of {request.size} bytes came"
        return "ok", ""


def compare(out: Path, wanted: Iterable[Path]) -> str:
    """Return what is wrong with the files of a client: each requested one must be there intact, and no other."""
    files = {file.name: file for file in wanted}
    if out.is_symlink() or not out.is_dir():
        return "wrong file: the folder for downloads is gone"
    left = {file.name: file for file in out.iterdir()}
    for name, file in sorted(files.items()):
        mine = left.get(name)
        if mine is None or mine.is_symlink() or not mine.is_file():
            return f"wrong file: {name} is missing"
        if not filecmp.cmp(mine, file, shallow=False):
            sizes = f"{mine.stat().st_size} bytes for {file.stat().st_size}"
            return f"wrong file: {name} is not what the server has ({sizes})"
    unasked = sorted(left.keys() - files.keys())
    return f"wrong file: nobody asked for {unasked[0][:60]!r}" if unasked else ""


def _out(number: int) -> str:
    """Name the folder for what a connection downloads."""
    return f"out-{number}" if number else "out"


def _filled(words: tuple[str, ...], request: TransferRequest, side: str, number: int = 0) -> tuple[str, ...]:
    """Put values in the place of names; every word stays one word."""
    theirs, keys = request.folder / CLIENT, request.pki
    values = {
        "host": request.host, "port": str(PORT), "name": NAME, "bytes": str(request.size), "path": f"/{PAYLOAD}",
        "url": f"https://{NAME}:{PORT}/{PAYLOAD}", "www": str(request.folder / "www"),
        "cert": str(keys.server_cert), "key": str(keys.server_key), "ca": str(keys.ca_cert),
        "out": str(theirs / _out(number)), "state": str(theirs / "state"), "qlog": str(request.folder / side / "qlog"),
    }  # fmt: skip
    return tuple(_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in words)


def parse(client: str | None, server: str | None, show: Iterable[Path] = ()) -> CommandLinePair:
    """Read the commands of both ends.

    Raises:
        ConfigError: with every fault.
    """
    texts = {"--client-cmd": client or "", "--server-cmd": server or ""}
    words: list[tuple[str, ...]] = []
    needed = [path.resolve() for path in show]
    faults = [Fault("--show", f"{path} is not there") for path in show if not path.exists()]
    for option, text in texts.items():
        try:
            split = shlex.split(text)
        except ValueError as error:
            faults.append(Fault(option, str(error)))
            continue
        unknown = {name for word in split for name in _PLACEHOLDER.findall(word)} - PLACEHOLDERS.keys()
        faults += [Fault(option, f"{{{name}}} is unknown", ", ".join(PLACEHOLDERS)) for name in sorted(unknown)]
        program = shutil.which(split[0]) if split else None
        if program is None:
            faults.append(Fault(option, f"{split[0]} is no program" if split else "is missing", "give both ends"))
            continue
        program = str(Path(program).absolute())
        words.append((program, *split[1:]))
        needed.append(Path(program).resolve().parent)
    if faults:
        raise ConfigError("the programs of the ends", faults)
    near, far = words
    return CommandLinePair(f"{Path(near[0]).name} to {Path(far[0]).name}", near, far, _beside_the_host(needed))


def _beside_the_host(places: Iterable[Path]) -> tuple[Path, ...]:
    """Leave out what every cell shows."""
    return tuple(path for path in dict.fromkeys(places) if path.parts[1:2] not in (("usr",), ("bin",), ("sbin",)))


def ngtcp2() -> CommandLinePair:
    """Return ngtcp2's client and server as Debian packs them (GnuTLS), with windows that hold 250 Mbit/s at 650 ms.

    Raises:
        HostError: they are not installed.
    """
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    found = [shutil.which(name, path=places) for name in ("gtlsclient", "gtlsserver")]
    if None in found:
        raise HostError("ngtcp2's programs are not installed", "apt-get install ngtcp2-client ngtcp2-server")
    client, server = map(str, found)
    quiet = ("--quiet", "--no-quic-dump", "--no-http-dump", "--qlog-dir={qlog}")
    windows = ("--max-data=64M", "--max-stream-data-bidi-local=64M", "--max-window=64M", "--max-stream-window=64M")
    state = ("--session-file={state}/session", "--tp-file={state}/parameters", "--download={out}")
    return CommandLinePair(
        f"ngtcp2 {_version('ngtcp2-client')}",
        (client, *quiet, *windows, *state, "--exit-on-all-streams-close", "{host}", "{port}", "{url}"),
        (server, *quiet, "--htdocs={www}", "{host}", "{port}", "{key}", "{cert}"),
    )


def _version(package: str) -> str:
    argv = ["dpkg-query", "--show", "--showformat=${Version}", package]
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True).stdout.partition("+")[0]
    except (OSError, subprocess.SubprocessError):
        return "of unknown version"
