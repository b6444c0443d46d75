#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: one file transfer over FTP; `server` on one node, then `client` on another.

The server supports only what a transfer in passive mode needs of RFC 959 and RFC 2428. It opens no
file: a download of `SIZE.bin` sends SIZE bytes of a repeated pseudo-random block, and an upload is
counted and discarded. Exit statuses: 0 done or stopped, 1 the transfer failed, 2 arguments, 3 the
host cannot do it.
"""

import argparse
import contextlib
import ftplib
import random
import re
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import collect_agent
from jobkit import (
    JobError,
    argument_parser,
    ignore_stops,
    on_stop,
    port,
    ready,
    real,
    run_job,
    store_json,
    whole,
)

BLOCK = random.Random("satlab_ftp").randbytes(1 << 16)  # noqa: S311 - content that no link compresses
MAX_BYTES = 100_000_000_000
MAX_SESSIONS, MAX_LINE = 20, 512
IDLE_S = 60.0
"""How long a side waits for the next byte, s."""
SAMPLE_S = 1.0
MAX_INTERVALS = 100_000
RECEIVED = re.compile(r"226 received (\d+) bytes, (\d+) at first, then for (\d+\.\d+) s")
"""The server's last reply to an upload: as `Count`."""


# --- what both sides count ------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """Payload at a receiver: all bytes, those that were there when it began to count, and how long
    the others took.
    """

    total: int
    first: int
    lasted_s: float

    @property
    def goodput_bps(self) -> float:
        """Rate of what came after the first bytes, whose own time is unknown."""
        return 8 * (self.total - self.first) / self.lasted_s


@dataclass
class Meter:
    """Payload of one side; times in s of `time.monotonic`."""

    total: int = 0
    first: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int, now_s: float) -> None:
        """Count bytes that were sent or received."""
        with self._lock:
            if not self.total:
                self.first, self.first_s = size, now_s
            self.total += size
            self.last_s = now_s

    def count(self) -> Count:
        """Return what was counted."""
        return Count(self.total, self.first, self.last_s - self.first_s)


@contextlib.contextmanager
def sampled(meter: Meter) -> Iterator[list[int]]:
    """Send the throughput of each interval during the block; yield the bytes of each interval."""
    over, intervals = threading.Event(), list[int]()

    def sample() -> None:
        before, at = meter.total, time.monotonic()
        while not over.wait(SAMPLE_S):
            now, passed = meter.total, time.monotonic() - at
            collect_agent.send_stat(collect_agent.now(), throughput_bps=8 * (now - before) / passed)
            if len(intervals) < MAX_INTERVALS:
                intervals.append(now - before)
            before, at = now, at + passed

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield intervals
    finally:
        over.set()
        thread.join()


def content(size: int) -> Iterator[bytes]:
    """Yield `size` bytes in blocks."""
    whole, rest = divmod(size, len(BLOCK))
    for _ in range(whole):
        yield BLOCK
    if rest:
        yield BLOCK[:rest]


# --- the server -----------------------------------------------------------------------------------


class Session(socketserver.StreamRequestHandler):
    """One control connection (RFC 959, section 5.4)."""

    timeout = IDLE_S
    server: "Server"

    def handle(self) -> None:
        """Answer commands until the client leaves."""
        self.listener: socket.socket | None = None
        if not self.server.seats.acquire(blocking=False):
            self.reply("421 too many sessions")
            return
        try:
            self.reply("220 satlab_ftp")
            while line := self.rfile.readline(MAX_LINE):
                verb, _, argument = line.decode("ascii", "replace").strip().partition(" ")
                self.command(verb.upper(), argument)
                if verb.upper() == "QUIT":
                    break
        except OSError:
            pass  # the client has gone, or was silent for too long
        finally:
            self.close_listener()
            self.server.seats.release()
            if self.server.once:
                threading.Thread(target=self.server.shutdown, daemon=True).start()

    def reply(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode("ascii"))

    def command(self, verb: str, argument: str) -> None:
        """Carry out one command."""
        simple = {
            "USER": "331 any password",
            "PASS": "230 welcome",
            "SYST": "215 UNIX Type: L8",
            "TYPE": "200 binary",
            "NOOP": "200 ok",
            "QUIT": "221 goodbye",
        }
        if verb in simple:
            self.reply(simple[verb])
        elif verb in ("PASV", "EPSV"):
            self.listen(verb)
        elif verb == "SIZE":
            size = size_of(argument)
            self.reply("550 no such file" if size is None else f"213 {size}")
        elif verb == "RETR":
            self.send_file(size_of(argument))
        elif verb == "STOR":
            self.take_file()
        else:
            self.reply("502 not implemented")

    def listen(self, verb: str) -> None:
        """Open a port for the next transfer."""
        self.close_listener()
        here = str(self.connection.getsockname()[0])
        self.listener = socket.create_server((here, 0), backlog=1)
        self.listener.settimeout(IDLE_S)
        port = self.listener.getsockname()[1]
        if verb == "EPSV":
            self.reply(f"229 passive (|||{port}|)")
        else:
            self.reply(f"227 passive ({here.replace('.', ',')},{port >> 8},{port & 255})")

    def close_listener(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def data(self, announcement: str) -> socket.socket | None:
        """Return the data connection, from the client's address alone (RFC 2577, section 3);

        None without one.
        """
        if self.listener is None:
            self.reply("425 passive mode first")
            return None
        self.reply(announcement)
        try:
            connection, (address, _) = self.listener.accept()
        except TimeoutError:
            self.reply("425 nobody has connected")
            return None
        finally:
            self.close_listener()
        if address != self.client_address[0]:
            connection.close()
            self.reply("425 the data connection comes from another host")
            return None
        connection.settimeout(IDLE_S)
        return connection

    def send_file(self, size: int | None) -> None:
        """Send a download."""
        if size is None:
            self.reply("550 no such file: SIZE.bin")
            return
        connection = self.data("150 here it comes")
        if connection is None:
            return
        with connection:
            for block in content(size):
                connection.sendall(block)
                self.server.meter.take(len(block), time.monotonic())
        self.reply(f"226 sent {size} bytes")

    def take_file(self) -> None:
        """Count and discard an upload."""
        connection = self.data("150 go ahead")
        if connection is None:
            return
        own = Meter()
        with connection:
            while block := connection.recv(1 << 18):
                now_s = time.monotonic()
                own.take(len(block), now_s)
                self.server.meter.take(len(block), now_s)
        done = own.count()
        self.reply(
            f"226 received {done.total} bytes, {done.first} at first, then for"
            f" {done.lasted_s:.6f} s"
        )


class Server(socketserver.ThreadingTCPServer):
    """The server. `once`: it ends with its first session."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, address: tuple[str, int], *, once: bool) -> None:
        super().__init__(address, Session)
        self.once, self.meter = once, Meter()
        self.seats = threading.BoundedSemaphore(MAX_SESSIONS)


def size_of(name: str) -> int | None:
    """Return the size that a file's name asks for; None if there is no such file."""
    found = re.fullmatch(r"/?(\d{1,12})\.bin", name)
    size = int(found[1]) if found else 0
    return size if 0 < size <= MAX_BYTES else None


def serve(options: argparse.Namespace) -> int:
    """Serve until the job is stopped, or to the end of the first session."""
    with Server((str(options.bind), options.port), once=options.exit) as server:

        def stop(*_: object) -> None:
            threading.Thread(target=server.shutdown, daemon=True).start()

        on_stop(stop)
        with ready("satlab_ftp"), sampled(server.meter):
            server.serve_forever(poll_interval=0.1)
    return 0


# --- the client -----------------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818 - an ordinary end
    """SIGTERM or SIGINT came, or the deadline."""


def transfer(options: argparse.Namespace, meter: Meter) -> Count:
    """Carry the file over; return what its receiver counted."""
    with contextlib.closing(ftplib.FTP(timeout=IDLE_S)) as session:  # noqa: S321 - the protocol that is measured
        session.connect(str(options.server_ip), options.port)
        session.login()
        session.voidcmd("TYPE I")
        verb = f"{'RETR' if options.direction == 'download' else 'STOR'} {options.size_bytes}.bin"
        connection = session.transfercmd(verb)
        with connection:
            if options.direction == "download":
                while block := connection.recv(1 << 18):
                    meter.take(len(block), time.monotonic())
            else:
                for block in content(options.size_bytes):
                    connection.sendall(block)
                    meter.take(len(block), time.monotonic())
        answer = session.voidresp()
        with contextlib.suppress(ftplib.Error, OSError):
            session.quit()
    if options.direction == "download":
        return meter.count()
    counted = RECEIVED.match(answer)
    if counted is None:
        raise OSError(f"the server does not report what it received: {answer[:100]}")
    return Count(int(counted[1]), int(counted[2]), float(counted[3]))


def fetch(options: argparse.Namespace) -> int:
    """Run the client."""

    def stop(number: int, _frame: object) -> None:
        raise Stopped("the deadline" if number == signal.SIGALRM else "the stop")

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, stop)
    signal.setitimer(signal.ITIMER_REAL, options.deadline_s)
    meter, start_unix_s, found, reason = Meter(), time.time(), Count(0, 0, 0.0), ""
    with sampled(meter) as intervals:
        try:
            found = transfer(options, meter)
            reason = incomplete(found, options.size_bytes)
        except Stopped as why:
            reason = f"{why} came after {meter.total} of {options.size_bytes} bytes"
        except ftplib.all_errors as error:  # OSError is one of them
            reason = f"{type(error).__name__}: {error}"[:300]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    ignore_stops()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
    else:
        figures = {"goodput_bps": found.goodput_bps, "transfer_time_s": found.lasted_s}
        collect_agent.send_stat(collect_agent.now(), **figures)
    made: dict[str, object] = {
        "schema": "satlab/ftp/1",
        "direction": options.direction,
        "start_unix_s": start_unix_s,
        "size_bytes": options.size_bytes,
        "received_bytes": found.total,
        "first_bytes": found.first,
        "transfer_time_s": found.lasted_s,
        "interval_s": SAMPLE_S,
        "interval_bytes": intervals,
        "error": reason,
    }
    return 0 if store(made) and not reason else 1


def incomplete(found: Count, size: int) -> str:
    """Return why a transfer has no rate; empty if it has one."""
    if found.total != size:
        return f"{found.total} of {size} bytes came"
    return "" if found.lasted_s > 0 else "all bytes came at once: too few for a rate"


def store(made: dict[str, object]) -> bool:
    """Store the client's file; return whether it is stored."""
    answer = store_json("ftp_json", made)
    return answer == "OK"


# --- arguments ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("-p", "--port", type=port, default=2121)
    roles = options.add_subparsers(dest="role", required=True)
    here = roles.add_parser("server")
    here.add_argument("-b", "--bind", type=IPv4Address, default=IPv4Address("0.0.0.0"))  # noqa: S104 - a node of a lab
    here.add_argument("-1", "--exit", action="store_true", help="end after the first session")
    there = roles.add_parser("client")
    there.add_argument("server_ip", type=IPv4Address)
    there.add_argument("direction", choices=("download", "upload"))
    there.add_argument("-s", "--size-bytes", type=whole(1, MAX_BYTES), default=10_000_000)
    there.add_argument("-t", "--deadline-s", type=real(1, 86400), default=300.0)
    return options


def main() -> int:
    """Run one side."""
    options = parser().parse_args()
    try:
        return serve(options) if options.role == "server" else fetch(options)
    except OSError as error:
        raise JobError(error.strerror or str(error)) from error


if __name__ == "__main__":
    run_job(__file__, main)
