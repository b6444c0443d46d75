# SPDX-License-Identifier: GPL-3.0-or-later
"""`cell.py SPEC`: run one program that nobody vouches for, and tell on the descriptor of the report how it ended.

The program has a user of its own, no capability but those granted, no way to more, process and mount namespaces of its
own, a root in which it can read what is shown and write where it is told, and bounds on time, memory, processes and
disk. Its network is the namespace that this program was started in. The first process of its namespace stays outside
its reach: it watches the bounds, keeps the talk within its own, and takes all processes with it when it ends.

A program of its own, and of the standard library alone, so that it starts fast; needs root. SPEC is the JSON that
`confine` writes.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x04000000, 0x08000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
MS_REMOUNT = 0x20
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 8, 24, 38, 47
PR_CAP_AMBIENT_RAISE = 2
LAST_CAPABILITY = 40
CAPABILITY_VERSION_3 = 0x20080522
"""<linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h>."""
DEVICES = ("null", "zero", "full", "random", "urandom")
HOST_PLACES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix")
"""What of a host's root holds programs; the rest holds people's and services' own."""
OWN_PLACES = ("proc", "sys", "dev", "tmp", "run")
"""What is made anew whatever the root."""
WATCH_S = 0.05
DISK_WATCH_S = 0.2
TERM_S = 2.0
TALK_HEAD, TALK_TAIL = 256 << 10, 16 << 10
MOST_FILES = 20_000
FORKS = 4
"""Processes and threads that a program may start in all, as a multiple of those that it may have at a time: one that
forks without end may have come to grief before anybody has looked."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Start the first process of the namespaces and end with it."""
    spec = json.loads(sys.argv[1])
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _check(_LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID), "unshare")
    first = os.fork()
    if first == 0:
        os._exit(_first(spec))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _first(spec: dict[str, Any]) -> int:
    """Be the namespace's first process; everything in it ends with us."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _build_root(spec)
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        ours, theirs = os.pipe()
        program = os.fork()
        if program == 0:
            os.close(ours)
            _become(spec, theirs)
        os.close(theirs)
        report = _Watch(spec, program, ours, asked).until_its_end()
    except OSError as error:
        report = {"status": -signal.SIGKILL, "why": f"the cell cannot be built: {error}", "cpu_s": 0, "peak_bytes": 0}
    os.write(spec["report"], json.dumps(report).encode())
    return 0


# --- the root -------------------------------------------------------------------------------------------------------


def _build_root(spec: dict[str, Any]) -> None:
    """Make `spec["root"]`, an empty folder, the root: read-only binds of programs, and what the spec shows."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.umask(0o022)
    root, base = Path(spec["root"]), Path(spec["base"])
    # Sources may lie below what becomes the root, so they are held before.
    held = [(os.open(source, os.O_PATH), root / target[1:], writable) for source, target, writable in spec["binds"]]
    names = HOST_PLACES if spec["base"] == "/" else sorted({each.name for each in base.iterdir()} - set(OWN_PLACES))
    programs = [name for name in names if os.path.lexists(base / name)]
    held[:0] = [(os.open(base / name, os.O_PATH | os.O_NOFOLLOW), root / name, False) for name in programs]
    _scratch(root, "mode=0755,size=4m")
    for name, options in (("tmp", f"mode=1777,size={spec['disk_bytes']}"), ("run", "mode=0755,size=1m")):
        _scratch(root / name, options)
    _make_devices(root / "dev")
    for handle, target, writable in held:
        _show(handle, target, writable=writable)
    for name, kind, more in (("proc", "proc", 0), ("sys", "sysfs", MS_RDONLY)):
        (root / name).mkdir()
        _mount(kind, root / name, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC | more)
    if spec["hosts"] is not None:
        _cover(root / "etc/hosts", spec["hosts"], root / "run/hosts")
    _check(_LIBC.sethostname(spec["name"].encode(), len(spec["name"])), "sethostname")


def _scratch(folder: Path, options: str) -> None:
    folder.mkdir(exist_ok=True)
    _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _make_devices(folder: Path) -> None:
    folder.mkdir()
    for name in DEVICES:
        _show(os.open(f"/dev/{name}", os.O_PATH), folder / name, writable=True)
    _scratch(folder / "shm", "mode=1777,size=64m")
    (folder / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")


def _cover(target: Path, text: str, own: Path) -> None:
    """Put a file of ours over one that is there; without one there, nothing reads it."""
    own.write_text(text)
    if target.is_file() and not target.is_symlink():
        _mount(own, target, None, MS_BIND)


def _show(handle: int, target: Path, *, writable: bool) -> None:
    """Let what a handle is on show up at `target`; links are copied as they are."""
    mode = os.fstat(handle).st_mode
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        target.symlink_to(os.readlink("", dir_fd=handle))
        return
    if stat.S_ISDIR(mode):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.touch()
    _mount(f"/proc/self/fd/{handle}", target, None, MS_BIND | MS_REC)
    device = stat.S_ISCHR(mode)
    flags = MS_BIND | MS_REMOUNT | MS_NOSUID | (0 if device else MS_NODEV) | (0 if writable else MS_RDONLY)
    _mount(None, target, None, flags)


# --- the program ----------------------------------------------------------------------------------------------------


def _become(spec: dict[str, Any], talk: int) -> None:
    """Give up everything, then become the program. Never comes back: what fails is said in the talk."""
    try:
        os.dup2(talk, 1)
        os.dup2(talk, 2)
        os.close(spec["report"])
        os.setsid()
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go when memory is short
        os.chroot(spec["root"])
        os.chdir(spec["cwd"])
        _bound(spec)
        _drop(spec["uid"], spec["capabilities"])
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606 - an argument vector
    except OSError as error:
        os.write(2, f"{spec['argv'][0]}: {error.strerror}\n".encode())
    os._exit(126)


def _bound(spec: dict[str, Any]) -> None:
    for kind, value in (
        (resource.RLIMIT_NPROC, FORKS * spec["processes"]),  # the watch names it, this holds until then
        (resource.RLIMIT_FSIZE, spec["disk_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 64 << 20),
        (resource.RLIMIT_NOFILE, 4096),
    ):
        _, most = resource.getrlimit(kind)
        least = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (least, least))


def _drop(uid: int, capabilities: list[int]) -> None:
    """Become a user with these capabilities (numbers) alone, and no way to more."""
    for number in set(range(LAST_CAPABILITY + 1)) - set(capabilities):
        _LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # an older kernel has fewer
    os.setgroups([])
    _prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    mask = sum(1 << number for number in capabilities)
    words = [mask & 0xFFFFFFFF] * 3 + [mask >> 32] * 3
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _check(_LIBC.capset(header, (ctypes.c_uint32 * 6)(*words)), "capset")
    for number in capabilities:
        _check(_LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0), "ambient capability")
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


# --- the watch ------------------------------------------------------------------------------------------------------


class _Watch:
    """Sees a program to its end, which comes by itself, by a bound, or because somebody asks."""

    def __init__(self, spec: dict[str, Any], program: int, talk: int, asked: list[int]) -> None:
        self._spec, self._program, self._talk, self._asked = spec, program, talk, asked
        self._began = time.monotonic()
        self._next_disk, self._asked_at = 0.0, 0.0
        self._peak, self._head, self._tail, self._left_out = 0, 0, b"", 0
        os.set_blocking(talk, False)
        self._wanted = _Wanted()
        self._wanted.start()

    def until_its_end(self) -> dict[str, Any]:
        """Wait for the end; give the report."""
        status, why = None, ""
        while status is None and not why:
            self._listen(WATCH_S)
            status = self._reap()
            why = "" if status is not None else self._excess()
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        while True:
            try:
                pid, raw = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            if pid == self._program:
                status = os.waitstatus_to_exitcode(raw)
        self._listen(0)
        if self._left_out:
            os.write(1, f"\n[{self._left_out} bytes left out]\n".encode() + self._tail)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = max(self._peak, used.ru_maxrss * 1024)
        cpu_s = round(used.ru_utime + used.ru_stime, 3)
        if status != 0:
            why = why or self._too_much_written()
        return {"status": status, "why": why, "cpu_s": cpu_s, "peak_bytes": peak, "waited_s": self._waited_s(cpu_s)}

    def _waited_s(self, cpu_s: float) -> float:
        return round(max(0.0, self._wanted.seconds() - cpu_s), 3)

    def _too_much_written(self) -> str:
        full = self._written() >= self._spec["disk_bytes"]
        return f"it wrote {self._spec['disk_bytes'] >> 20} MiB or more" if full else ""

    def _listen(self, seconds: float) -> None:
        """Take what the program says, as long as there is something, but not for ever."""
        if select.select([self._talk], [], [], seconds)[0]:
            for _ in range(64):
                try:
                    said = os.read(self._talk, 1 << 16)
                except BlockingIOError:
                    return
                if not said:
                    time.sleep(seconds)  # it has closed its talk: only the watch is left
                    return
                self._keep(said)

    def _keep(self, said: bytes) -> None:
        room = max(0, TALK_HEAD - self._head)
        if room:
            os.write(1, said[:room])
            self._head += len(said[:room])
        if said[room:]:
            self._tail = (self._tail + said[room:])[-TALK_TAIL:]
            self._left_out += len(said[room:])

    def _reap(self) -> int | None:
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, raw = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._program:
                    found = os.waitstatus_to_exitcode(raw)
        return found

    def _excess(self) -> str:
        """Return which bound was passed; nothing if none was."""
        now = time.monotonic()
        if self._asked:
            if not self._asked_at:
                self._asked_at = now
                os.kill(self._program, signal.SIGTERM)
            elif now - self._asked_at > TERM_S:
                return "it did not end when asked to"
        if now - self._began > self._spec["seconds"]:
            return f"it did not end within {self._spec['seconds']:g} s"
        threads, resident = _usage()
        self._peak = max(self._peak, resident)
        most = self._spec["processes"]
        if threads > most or _started() >= FORKS * most:
            return f"it forks without end: more than {most} processes at a time, or {FORKS} times as many in all"
        if resident > self._spec["memory_bytes"]:
            return f"it took more than {self._spec['memory_bytes'] >> 20} MiB of memory"
        if now >= self._next_disk:
            self._next_disk = now + DISK_WATCH_S
            return self._too_much_written()
        return ""

    def _written(self) -> int:
        """Return the bytes in the folders that it may write; the bound where there are too many files."""
        total = files = 0
        for _, target, writable in self._spec["binds"]:
            for folder, _, names in os.walk(self._spec["root"] + target) if writable else ():
                for name in names:
                    files += 1
                    with contextlib.suppress(OSError):
                        total += (Path(folder) / name).lstat().st_blocks * 512
                    if files > MOST_FILES:
                        return int(self._spec["disk_bytes"])
        scratch = os.statvfs(self._spec["root"] + "/tmp")  # noqa: S108 - the cell's own
        return int(self._spec["disk_bytes"]) if scratch.f_bavail == 0 else total


class _Wanted(threading.Thread):
    """Samples how long some thread of the namespace runs or could run (state R, proc(5)), whether it had a core or not.

    No counter of the kernel's has all that a thread waits for: not where a limit of its group's CPU time (cgroups(7))
    stops it. It samples by a clock of its own: a program that talks wakes the watch just when it runs.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._began, self._runnable, self._looked = time.monotonic(), 0, 0

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            time.sleep(WATCH_S)
            self._runnable += _is_runnable()
            self._looked += 1

    def seconds(self) -> float:
        """Return the time until now in which one was runnable, s."""
        return (time.monotonic() - self._began) * self._runnable / max(1, self._looked)


def _is_runnable() -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != "1":
            with contextlib.suppress(OSError):
                for thread in (entry / "task").iterdir():
                    if (thread / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R":
                        return True
    return False


def _started() -> int:
    """Return the last process number of this namespace, whose first is 1 (proc(5), /proc/loadavg)."""
    return int(Path("/proc/loadavg").read_text().split()[-1])


def _usage() -> tuple[int, int]:
    """Return threads and resident bytes of all processes of this namespace but the first (proc(5), /proc/PID/stat)."""
    threads = pages = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != "1":
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                threads += int(fields[17])
                pages += int(fields[21])
    return threads, pages * resource.getpagesize()


# --- system calls ---------------------------------------------------------------------------------------------------


def _mount(source: str | Path | None, target: str | Path, kind: str | None, flags: int, data: str = "") -> None:
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    result = _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode())
    _check(result, f"mount {target}")


def _prctl(option: int, value: int) -> None:
    _check(_LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
