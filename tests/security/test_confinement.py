# SPDX-License-Identifier: GPL-3.0-or-later
"""T23 to T27 of the threat table: what a hostile job, and a hostile program under test, try against
the host.

Each attempt is made by both, with and without CAP_NET_ADMIN and CAP_NET_RAW. Limits do not depend
on these.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from socket import if_nameindex

import pytest

from satlab.check import sandboxed_program
from satlab.common import netns_names, paths, scratch
from satlab.common.errors import HostError
from satlab.lab import job_host, netns, privileges, sandbox
from satlab.lab.job_host import LabHost
from satlab.lab.sandbox import Limits, Mount, Place, Sandbox
from satlab.openbach import descriptor, runner
from satlab.openbach.model import BoundScenario, Function, OnFail, StartJob, Wait
from tests import process_search
from tests.sandbox_place import lab_in_name, new_place, run_to_its_end
from tests.security.test_jobs import add_job

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SCOPE = "host_links"
"""Some tests make links in the host's namespace, others compare it: one worker takes all."""
MIB = 1 << 20
SMALL = Limits(
    seconds=30,
    memory_bytes=128 * MIB,
    processes=64,
    disk_bytes=64 * MIB,
    files=2000,
    grace_s=1,
    descendants_grace_s=0.5,
)
ADMIN = "satlab_pep"
"""A job that has CAP_NET_ADMIN and CAP_NET_RAW."""


@dataclass(frozen=True)
class Outcome:
    """What a program printed, why it failed, and the folder that it could write."""

    output: str
    reason: str
    files: Path


@dataclass(frozen=True)
class Attacker:
    """Runs Python programs as a job or as a program under test;

    `shown` is a folder that it may read.
    """

    kind: str
    place: Place
    folder: Path
    shown: Path
    is_admin: bool

    def run(self, program: str, *words: str) -> Outcome:
        return self._job(program, words) if self.kind == "job" else self._program(program, words)

    def _job(self, program: str, words: tuple[str, ...]) -> Outcome:
        name = ADMIN if self.is_admin else "prober"
        add_job(self.shown, name, program)
        known = descriptor.load_jobs(self.shown)[name]
        function = Function(1, "f", Wait(), OnFail(), StartJob("client", known, words))
        (self.folder / "private").mkdir()
        host = LabHost(lab_in_name(self.place), self.folder / "private", jobs=[self.shown])
        raw, scenario = self.folder / "raw", BoundScenario("attack", {}, (function,))
        result = runner.run(scenario, host, raw, lambda _: None, threading.Event(), 60.0)
        return Outcome((raw / f"logs/{name}-1.log").read_text(), result.reason, raw / "files")

    def _program(self, program: str, words: tuple[str, ...]) -> Outcome:
        out, log = self.folder / "out", self.folder / "log"
        out.mkdir()
        scratch.sized(out, SMALL.disk_bytes, SMALL.files)
        capabilities = ("net_admin", "net_raw") if self.is_admin else ()
        mounts = (*sandbox.programs(), Mount(self.shown), Mount(out, writable=True))
        variables = {"SATLAB_RAW": str(self.folder), "FILES": str(out)}
        box = Sandbox(
            place=self.place,
            mounts=mounts,
            capabilities=capabilities,
            limits=SMALL,
            variables=variables,
        )
        privileges.chown(out, box.uid)
        ended = run_to_its_end(box, [sys.executable, "-c", program, *words], log, 60)
        return Outcome(log.read_text(), ended.reason, out)


@pytest.fixture(params=["job", "job with net_admin", "program", "program with net_admin"])
def attacker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attacker]:
    monkeypatch.setattr(job_host, "JOB_LIMITS", replace(SMALL, seconds=None))
    kind, _, admin = request.param.partition(" with ")
    shown = tmp_path / "shown"
    shown.mkdir()
    with new_place(tmp_path) as place:
        yield Attacker(kind, place, tmp_path, shown, bool(admin))
    scratch.remove(tmp_path)  # pytest's own removal is recursive, and does not unmount


# --- T23: capabilities ----------------------------------------------------------------------------

LINKS = """
import subprocess, sys
name, pids = sys.argv[1], sys.argv[2:]
def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True).returncode
print(ip("link", "add", "own0", "type", "bridge"))
for pid in pids:
    ip("link", "add", name, "netns", pid, "type", "bridge")
    ip("link", "add", name + "b", "type", "bridge")
    ip("link", "set", name + "b", "netns", pid)
    ip("link", "add", name + "m", "netns", pid, "type", "veth")
"""


def test_t23_a_capability_ends_at_the_lab(attacker: Attacker) -> None:
    name, before = f"t{secrets.token_hex(4)}", {name for _, name in if_nameindex()}
    own = attacker.run(LINKS, name, "1", str(os.getpid())).output.split("\n")[0]
    assert (own == "0") is attacker.is_admin, "it acts in its own network if it is granted"
    assert not [link for _, link in if_nameindex() if link.startswith(name)]
    assert {name for _, name in if_nameindex()} == before


# A namespace gets an id in the attacker's (RTM_NEWNSID), then a macvlan is put on its interface
# (IFLA_LINK_NETNSID).
MACVLAN = """
import socket, struct, sys
def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\\0" * (-len(value) % 4)
def ask(kind, body):
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.sendto(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body, (0, 0))
    return -struct.unpack_from("=i", netlink.recv(4096), 16)[0]
name, index, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print(ask(88, b"\\0" * 4 + attribute(1, struct.pack("=i", 7)) + attribute(2, struct.pack("=I", pid))))
kind = attribute(1, b"macvlan\\0")
link = attribute(5, struct.pack("=I", index)) + attribute(37, struct.pack("=i", 7))
print(ask(16, b"\\0" * 16 + attribute(3, name.encode() + b"\\0") + link + attribute(18, kind)))
"""


@pytest.fixture
def host_link() -> Iterator[int]:
    """Make an interface in a network namespace of the host's user namespace; return its index."""
    name = f"t{secrets.token_hex(4)}"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        yield next(index for index, found in if_nameindex() if found == name)
    finally:
        subprocess.run(["ip", "link", "delete", name], check=True)


def test_t23_nothing_is_put_on_an_interface_of_the_host(attacker: Attacker, host_link: int) -> None:
    said = attacker.run(MACVLAN, "mv0", str(host_link), str(os.getpid())).output.split()
    assert len(said) == 2 and int(said[1]) != 0, said


def test_t23_without_user_namespaces_what_needs_a_capability_is_refused(attacker: Attacker) -> None:
    there = replace(attacker, place=Place(attacker.place.network))
    if attacker.is_admin and attacker.kind == "program":
        with pytest.raises(sandboxed_program.NotStartedError, match="allows no user namespace"):
            there.run("print(1)")
        return
    outcome = there.run("print(1)")
    assert ("allows no user namespace" in outcome.reason) is attacker.is_admin
    assert (outcome.output == "1\n") is not attacker.is_admin


def test_t23_without_user_namespaces_a_lab_has_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = tmp_path / "satbox"
    refuses.write_text("#!/bin/sh\nexit 5\n")
    refuses.chmod(0o755)
    lab_id = f"t{secrets.token_hex(4)}"
    monkeypatch.setattr(paths, "SATBOX", refuses)
    try:
        netns._create(lab_id, ["client"])
        assert netns.present(lab_id) == ["client"]
        assert not netns_names.user_path(lab_id).exists()
        refuses.write_text("#!/bin/sh\necho error: no space >&2; exit 3\n")
        with pytest.raises(HostError, match="namespaces: no space"):
            netns._create(lab_id, ["server"])
    finally:
        netns.remove(lab_id)


# --- T31: the spec --------------------------------------------------------------------------------

LOOK = """
import os
for name in ("cmdline", "environ", "root/etc/passwd", "fd", "cwd/.", "maps"):
    try:
        path = "/proc/1/" + name
        text = " ".join(os.listdir(path)) if os.path.isdir(path) else open(path, "rb").read().decode(errors="replace")
    except OSError as error:
        text = error.strerror
    print(repr(text))
found = open("/proc/1/cmdline").read().split("\\0")
print([os.path.exists(word) for word in found if word.endswith((".json", ".sandbox"))])
"""


def test_t31_what_a_sandbox_is_made_from_is_not_seen(attacker: Attacker) -> None:
    said = attacker.run(LOOK).output
    assert "memory_bytes" not in said and "user_namespace" not in said, said
    lines = said.split("\n")
    assert lines[1:4] == ["'Permission denied'"] * 3, lines
    assert lines[6] == "[False]", "satbox names the file; the program has no such file"


# --- T24: processes -------------------------------------------------------------------------------

LEAVE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", sys.argv[2]], {})
    os._exit(0)
os.wait()
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
for pid in (1, int(sys.argv[1])):
    try:
        os.kill(pid, 9)
        print("done")
    except OSError as error:
        print(error.strerror)
"""


def test_t24_nothing_that_a_program_starts_is_left_and_the_host_s_processes_are_not_seen(
    attacker: Attacker,
) -> None:
    seconds = f"300.{secrets.randbelow(10**9)}"
    with subprocess.Popen(["sleep", "60"]) as victim:
        said = attacker.run(LEAVE, str(victim.pid), seconds).output.split("\n")
        assert victim.poll() is None
        victim.kill()
    seen = json.loads(said[0])
    assert seen[0] == 1 and len(seen) <= 4 and seen[-1] < 100, seen
    assert said[1:3] == ["Operation not permitted", "No such process"]
    assert not process_search.having(seconds, "cmdline")


# --- T25: memory, disk, processes -----------------------------------------------------------------

UNLINKED = """
import array, ctypes, os, socket, time
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
ends = socket.socketpair()
held = 0
try:
    for n in range(200):
        f = os.open(os.path.join(FILES, "x"), os.O_CREAT | os.O_RDWR)
        os.unlink(os.path.join(FILES, "x"))
        os.write(f, b"x" * (1 << 20))
        KEEP
        held += 1
except OSError:
    pass
print("held", held, "MiB", flush=True)
time.sleep(20)
"""
"""Files of 1 MiB that no folder names, kept in another way each."""
# The module mmap would keep a descriptor.
MAPPED = "libc.mmap(None, 1 << 20, 1, 1, f, 0); os.close(f)"
SENT = (
    "ends[0].sendmsg([b'.'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [f]))],"
    " socket.MSG_DONTWAIT); os.close(f)"
)
HOGS = {
    "memory": ("b = [b'x' * 1000000 for _ in range(400)]", "128 MiB of memory"),
    "memfd": (
        (
            "import os, time\nfor n in range(400): os.write(os.memfd_create(str(n)), b'x' *"
            " 1048576)\ntime.sleep(20)"
        ),
        "128 MiB of memory",
    ),
    "SysV shared memory": (
        """
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(40):
    segment = libc.shmget(0, 10 << 20, 0o1600)
    ctypes.memset(libc.shmat(segment, None, 0), 1, 10 << 20)
time.sleep(20)
""",
        "128 MiB of memory",
    ),
    "unlinked files": (UNLINKED.replace("KEEP", "pass"), "64 MiB or more"),
    "unlinked files that are mapped": (UNLINKED.replace("KEEP", MAPPED), "64 MiB or more"),
    "unlinked files in messages": (UNLINKED.replace("KEEP", SENT), "64 MiB or more"),
    "messages of unix sockets": (
        """
import socket, time
kept = []
for _ in range(1000):
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kept.append(ends)
    ends[0].setblocking(False)
    ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
    try:
        while True:
            ends[0].send(b"x" * 32000)
    except OSError:
        pass
time.sleep(20)
""",
        "128 MiB of memory",
    ),
    "folders": (
        (
            "import os, time\nfor n in range(200000): os.mkdir(os.path.join(FILES,"
            " str(n)))\ntime.sleep(20)"
        ),
        "more than 2000 files",
    ),
    "deep folders": (
        (
            "import os, time\nos.chdir(FILES)\nfor n in range(2500): os.mkdir('d');"
            " os.chdir('d')\ntime.sleep(20)"
        ),
        "more than 2000 files",
    ),
    "processes": (
        (
            "import os\nfor n in range(200):\n    if os.fork() == 0: os.execv('/bin/sleep',"
            " ['sleep', '20'])\nos.wait()"
        ),
        "more than 64 processes",
    ),
}


@pytest.mark.parametrize("attacker", ["job", "program"], indirect=True)
@pytest.mark.parametrize("hog", HOGS)
def test_t25_a_program_that_takes_more_than_its_share_is_ended_with_the_reason(
    attacker: Attacker, hog: str
) -> None:
    program, reason = HOGS[hog]
    where = (
        'import os; FILES = os.environ.get("FILES") or os.path.join(os.environ["SATLAB_RAW"],'
        ' "files")\n'
    )
    outcome = attacker.run(where + program)
    assert reason in outcome.reason or reason in outcome.output, (outcome.reason, outcome.output)
    held = [
        int(line.split()[1]) for line in outcome.output.splitlines() if line.startswith("held ")
    ]
    assert all(mib <= SMALL.disk_bytes // MIB for mib in held), outcome.output


SOCKETS = """
import errno, json, os, socket, struct, sys, time
held, found = [], {}
def when_others_are_gone(make):
    for _ in range(100):  # the kernel counts a closed socket a little longer
        try:
            return make()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            time.sleep(0.05)
    return make()
def bytes_of_tcp():
    server = when_others_are_gone(lambda: socket.create_server(("127.0.0.1", 0), backlog=64))
    sent = 0
    for _ in range(400):
        try:
            near = socket.create_connection(server.getsockname())
        except OSError:
            break
        far, _ = server.accept()
        held.append((near, far))
        for end, option in ((near, socket.SO_SNDBUF), (far, socket.SO_RCVBUF)):
            end.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
        near.setblocking(False)
        try:
            while True:
                sent += near.send(b"x" * 65000)
        except OSError:
            pass
    return sent
def bytes_of_udp():
    sender = when_others_are_gone(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receivers = []
    try:
        while len(receivers) < 1500:
            receivers.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    except OSError:
        pass
    held.append(receivers)
    for receiver in receivers:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
        receiver.bind(("127.0.0.1", 0))
        for _ in range(8):
            sender.sendto(b"x" * 65000, receiver.getsockname())
    return sum(struct.unpack("I", receiver.getsockopt(socket.SOL_SOCKET, 55, 4))[0] for receiver in receivers)
def how_many(*kind):
    made = []
    try:
        made.append(when_others_are_gone(lambda: socket.socket(*kind)))
        while len(made) < 2000:
            made.append(socket.socket(*kind))
    except OSError as error:
        if not made:
            return errno.errorcode[error.errno]
    return len(made)
def a_ring():
    try:
        ring = when_others_are_gone(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        ring.setsockopt(263, 5, struct.pack("IIII", 1 << 16, 1, 2048, 32))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
found["netlink"] = how_many(socket.AF_NETLINK, socket.SOCK_RAW)
found["usersock"] = how_many(socket.AF_NETLINK, socket.SOCK_RAW, 2)
found["packet"] = how_many(socket.AF_PACKET, socket.SOCK_RAW)
found["raw"] = how_many(socket.AF_INET, socket.SOCK_RAW, 1)
found["ring"] = a_ring()
found["udp"] = bytes_of_udp()
held.clear()
found["tcp"] = bytes_of_tcp()
print(json.dumps(found))
"""


def test_t25_sockets_hold_no_more_than_is_stated(attacker: Attacker) -> None:
    """0008-confinement.md:

    TCP and UDP as much as memory; of kinds that nothing counts, so many sockets.
    """
    if sandbox.enforced_by()["memory"] == "watch":
        pytest.skip("this host has no control group for memory")
    subprocess.run(
        ["nsenter", f"--net={attacker.place.network}", "ip", "link", "set", "lo", "up"], check=True
    )
    outcome = attacker.run(SOCKETS)
    found = json.loads(outcome.output)
    # Copies of what it sent may fill twice rmem_max of each.
    held = 2 * int(Path("/proc/sys/net/core/rmem_max").read_text())
    most = min(128, max(64, SMALL.memory_bytes // held)) if attacker.is_admin else 0
    assert found["netlink"] <= 128
    assert found["usersock"] == "ENOSYS"
    assert (found["packet"], found["raw"]) == ((most, most) if most else ("EPERM", "EPERM")), found
    is_capture = attacker.is_admin and attacker.kind == "job"
    assert found["ring"] == ("done" if is_capture else "EPERM")
    assert found["udp"] <= SMALL.memory_bytes * 1.25
    assert found["tcp"] <= SMALL.memory_bytes * 1.25


CORKED = """
import os, socket, time
for _ in range(5):
    if os.fork() == 0:
        made = []
        try:
            while len(made) < 1500:
                made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError:
            pass
        time.sleep(20)
    time.sleep(1)
print(open("/proc/net/sockstat").readline().split()[2])
"""


def test_t25_a_network_has_so_many_sockets(attacker: Attacker) -> None:
    """Each may hold an incomplete datagram, which nothing counts."""
    assert int(attacker.run(CORKED).output) <= 4096


# --- T26: system calls ----------------------------------------------------------------------------

CALLS = """
import ctypes, errno, json, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    ctypes.set_errno(0)
    return "done" if libc.syscall(*numbers) >= 0 else errno.errorcode[ctypes.get_errno()]
def opened(family):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
buffer = ctypes.create_string_buffer(256)
name = ctypes.c_char_p(b"satlab-test")
print(json.dumps({
    "unshare a user namespace": call(272, 0x10000000),
    "unshare a network namespace": call(272, 0x40000000),
    "clone into a user namespace": call(56, 0x10000000 | 17, None, None, None, None),
    "clone3": call(435, buffer, 88),
    "join a namespace": call(308, 0, 0),
    "mount": call(165, b"none", b"/tmp", b"tmpfs", 0, None),
    "open a mount tree": call(428, -100, b"/", 1),
    "change the root": call(161, b"/tmp"),
    "read the session keyring": call(250, 11, -3, buffer, 256),
    "find a key": call(250, 10, -3, b"user", b"satlab-test", 0),
    "add a key": call(248, b"user", b"satlab-test", b"x", 1, -3),
    "io_uring": call(425, 8, buffer),
    "bpf": call(321, 0, buffer, 64),
    "userfaultfd": call(323, 0),
    "AF_VSOCK": opened(40),
    "AF_ALG": opened(38),
}))
"""
REFUSED = {"EPERM", "ENOSYS"}


@pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64"
)
def test_t26_calls_that_lead_out_are_refused(attacker: Attacker) -> None:
    said = json.loads(attacker.run(CALLS).output)
    assert len(said) == 16 and not {
        name: how for name, how in said.items() if how not in REFUSED
    }, said


# --- T27: files -----------------------------------------------------------------------------------

WRITES = """
import errno, json, os, sys
def written(path):
    try:
        with open(path, "x") as file:
            file.write("x")
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
print(json.dumps([written(path) for path in sys.argv[1:]]))
print(oct(os.stat("/usr/bin/su").st_mode), os.statvfs("/usr/bin/su").f_flag & os.ST_NOSUID)
"""


def test_t27_what_is_shown_is_read_only_with_all_mounts_below_it(attacker: Attacker) -> None:
    below = attacker.shown / ".below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "satlab-test", below], check=True)
    try:
        said = attacker.run(WRITES, f"{below}/x", "/usr/x", "/etc/x", "/sys/x", "/x").output.split(
            "\n"
        )
        assert json.loads(said[0]) == ["EROFS", "EROFS", "EROFS", "EROFS", "EACCES"]
        assert said[1].endswith(" 2"), "no program changes its user"
        assert not list(below.iterdir())
    finally:
        subprocess.run(["umount", "-l", below], check=True)


def test_t27_its_temporary_files_are_its_own(attacker: Attacker) -> None:
    name = f"satlab-test-{secrets.token_hex(4)}"
    places = ("/tmp", "/dev/shm", "/var/tmp", "/run")
    said = attacker.run(WRITES, *(f"{place}/{name}" for place in places)).output.split("\n")
    assert json.loads(said[0]) == ["done", "done", "ENOENT", "EACCES"]
    assert not [place for place in places if Path(place, name).exists()]


UNCOUNTED = """
import socket
kept, made = [], 0
try:
    for _ in range(4000):
        kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made += 1
except OSError as error:
    print(error.strerror)
print("made", made, flush=True)
"""


def test_t25_what_sockets_hold_uncounted_fits_into_the_memory_of_the_sandbox(
    attacker: Attacker,
) -> None:
    # Copies of what a socket sent, its queue of errors with SO_TIMESTAMPING, are nobody's memory.
    held = 2 * int(Path("/proc/sys/net/core/rmem_max").read_text())
    made = int(attacker.run(UNCOUNTED).output.split()[-1])
    assert 32 < made <= max(64, SMALL.memory_bytes // held)
