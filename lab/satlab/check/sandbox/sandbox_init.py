# SPDX-License-Identifier: GPL-3.0-or-later
"""`sandbox_init.py SPEC`: run one untrusted program, and write to the report's descriptor how it ended.

The program has its own user, process and mount namespaces, and root file system; only the granted capabilities; and
limits on time, memory, processes, disk and output. Its network namespace is that of this program. The first process of
its process namespace (init) enforces the limits, and all other processes end with it. The program cannot reach it.

Standard library alone, so that it starts fast; needs root. SPEC is the JSON that sandbox.py writes.
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
"""Folders of the host's root that have programs; the others have users' and services' data."""
OWN_PLACES = ("proc", "sys", "dev", "tmp", "run")
"""Made anew in every sandbox."""
POLL_S = 0.05
DISK_POLL_S = 0.2
TERMINATE_S = 2.0
OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES = 256 << 10, 16 << 10
MAX_FILES = 20_000
FORKS = 4
"""Processes and threads that a program may start in total, as a multiple of those that it may have at once: a fork bomb
may have failed before it is polled."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Start the init process of new namespaces and wait for it."""
    spec = json.loads(sys.argv[1])
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _check(_LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID), "unshare")
    first = os.fork()
    if first == 0:
        os._exit(_first(spec))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _first(spec: dict[str, Any]) -> int:
    """The init process: everything in its namespace ends with it."""
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(1))
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _build_root(spec)
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        read_end, write_end = os.pipe()
        program = os.fork()
        if program == 0:
            os.close(read_end)
            _run_program(spec, write_end)
        os.close(write_end)
        report = _Supervisor(spec, program, read_end, terminated).run()
    except OSError as error:
        reason = f"its sandbox cannot be built: {error}"
        report = {"status": -signal.SIGKILL, "stop_reason": reason, "cpu_s": 0, "peak_bytes": 0}
    os.write(spec["report"], json.dumps(report).encode())
    return 0


# --- the root -------------------------------------------------------------------------------------------------------


def _build_root(spec: dict[str, Any]) -> None:
    """Mount the root file system on `spec["root"]`, an empty folder: programs, read-only, and the spec's mounts."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.umask(0o022)
    root, base = Path(spec["root"]), Path(spec["base"])
    # A source may lie below what becomes the root, so all are opened before.
    held = [(os.open(source, os.O_PATH), root / target[1:], writable) for source, target, writable in spec["mounts"]]
    names = HOST_PLACES if spec["base"] == "/" else sorted({each.name for each in base.iterdir()} - set(OWN_PLACES))
    programs = [name for name in names if os.path.lexists(base / name)]
    held[:0] = [(os.open(base / name, os.O_PATH | os.O_NOFOLLOW), root / name, False) for name in programs]
    _mount_tmpfs(root, "mode=0755,size=4m")
    for name, options in (("tmp", f"mode=1777,size={spec['disk_bytes']}"), ("run", "mode=0755,size=1m")):
        _mount_tmpfs(root / name, options)
    _make_devices(root / "dev")
    for handle, target, writable in held:
        _bind(handle, target, writable=writable)
    for name, kind, more in (("proc", "proc", 0), ("sys", "sysfs", MS_RDONLY)):
        (root / name).mkdir()
        _mount(kind, root / name, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC | more)
    if spec["hosts"] is not None:
        _replace_file(root / "etc/hosts", spec["hosts"], root / "run/hosts")
    _check(_LIBC.sethostname(spec["name"].encode(), len(spec["name"])), "sethostname")


def _mount_tmpfs(folder: Path, options: str) -> None:
    folder.mkdir(exist_ok=True)
    _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _make_devices(folder: Path) -> None:
    folder.mkdir()
    for name in DEVICES:
        _bind(os.open(f"/dev/{name}", os.O_PATH), folder / name, writable=True)
    _mount_tmpfs(folder / "shm", "mode=1777,size=64m")
    (folder / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")


def _replace_file(target: Path, text: str, scratch: Path) -> None:
    """Mount a file with `text` over `target` if that is a file."""
    scratch.write_text(text)
    if target.is_file() and not target.is_symlink():
        _mount(scratch, target, None, MS_BIND)


def _bind(handle: int, target: Path, *, writable: bool) -> None:
    """Bind-mount an open file or folder on `target`; symbolic links are copied."""
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


def _run_program(spec: dict[str, Any], output: int) -> None:
    """Drop all privileges and run the program in this process. Does not return; errors go to the program's output."""
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(spec["report"])
        os.setsid()
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go when memory is short
        os.chroot(spec["root"])
        os.chdir(spec["cwd"])
        _set_limits(spec)
        _drop_privileges(spec["uid"], spec["capabilities"])
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606 - an argument vector
    except OSError as error:
        os.write(2, f"{spec['argv'][0]}: {error.strerror}\n".encode())
    os._exit(126)


def _set_limits(spec: dict[str, Any]) -> None:
    for kind, value in (
        (resource.RLIMIT_NPROC, FORKS * spec["processes"]),  # holds until the supervisor polls, which reports it
        (resource.RLIMIT_FSIZE, spec["disk_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 64 << 20),
        (resource.RLIMIT_NOFILE, 4096),
    ):
        _, hard = resource.getrlimit(kind)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def _drop_privileges(uid: int, capabilities: list[int]) -> None:
    """Become a user with only these capabilities (numbers), who cannot gain more."""
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


# --- the supervisor -------------------------------------------------------------------------------------------------


class _Supervisor:
    """Runs in the init process until the program ends, exceeds a limit, or SIGTERM arrives (`terminated`)."""

    def __init__(self, spec: dict[str, Any], program: int, output: int, terminated: list[int]) -> None:
        self._spec, self._program, self._output, self._terminated = spec, program, output, terminated
        self._began = time.monotonic()
        self._next_disk, self._terminated_at = 0.0, 0.0
        self._peak, self._head_bytes, self._tail, self._omitted_bytes = 0, 0, b"", 0
        os.set_blocking(output, False)
        self._demand = _CpuDemand()
        self._demand.start()

    def run(self) -> dict[str, Any]:
        """Return the report, after all processes of the namespace have ended."""
        status, stop_reason = None, ""
        while status is None and not stop_reason:
            self._copy_output(POLL_S)
            status = self._reap()
            stop_reason = "" if status is not None else self._stop_reason()
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        while True:
            try:
                pid, raw = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            if pid == self._program:
                status = os.waitstatus_to_exitcode(raw)
        self._copy_output(0)
        if self._omitted_bytes:
            os.write(1, f"\n[{self._omitted_bytes} bytes omitted]\n".encode() + self._tail)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = max(self._peak, used.ru_maxrss * 1024)
        cpu_s = round(used.ru_utime + used.ru_stime, 3)
        if status != 0:
            stop_reason = stop_reason or self._disk_excess()
        return {
            "status": status, "stop_reason": stop_reason, "cpu_s": cpu_s, "peak_bytes": peak,
            "waited_s": round(max(0.0, self._demand.seconds() - cpu_s), 3),
        }  # fmt: skip

    def _disk_excess(self) -> str:
        is_full = self._written_bytes() >= self._spec["disk_bytes"]
        return f"it wrote {self._spec['disk_bytes'] >> 20} MiB or more" if is_full else ""

    def _copy_output(self, wait_s: float) -> None:
        """Copy the program's output: at most 4 MiB per call, so that limits are polled meanwhile."""
        if select.select([self._output], [], [], wait_s)[0]:
            for _ in range(64):
                try:
                    data = os.read(self._output, 1 << 16)
                except BlockingIOError:
                    return
                if not data:
                    time.sleep(wait_s)  # the program has closed its output: select does not wait any more
                    return
                self._log(data)

    def _log(self, data: bytes) -> None:
        room = max(0, OUTPUT_HEAD_BYTES - self._head_bytes)
        if room:
            os.write(1, data[:room])
            self._head_bytes += len(data[:room])
        if data[room:]:
            self._tail = (self._tail + data[room:])[-OUTPUT_TAIL_BYTES:]
            self._omitted_bytes += len(data[room:])

    def _reap(self) -> int | None:
        """Reap ended processes; return the program's status once it has ended."""
        status = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, raw = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._program:
                    status = os.waitstatus_to_exitcode(raw)
        return status

    def _stop_reason(self) -> str:
        """Return why the program must be killed now; empty if it may go on."""
        now = time.monotonic()
        if self._terminated:
            if not self._terminated_at:
                self._terminated_at = now
                os.kill(self._program, signal.SIGTERM)
            elif now - self._terminated_at > TERMINATE_S:
                return f"it did not end within {TERMINATE_S:g} s of SIGTERM"
        if now - self._began > self._spec["seconds"]:
            return f"it did not end within {self._spec['seconds']:g} s"
        threads, resident_bytes = _usage()
        self._peak = max(self._peak, resident_bytes)
        processes = self._spec["processes"]
        if threads > processes or _started() >= FORKS * processes:
            return f"fork bomb: it has more than {processes} processes, or started more than {FORKS} times as many"
        if resident_bytes > self._spec["memory_bytes"]:
            return f"it took more than {self._spec['memory_bytes'] >> 20} MiB of memory"
        if now >= self._next_disk:
            self._next_disk = now + DISK_POLL_S
            return self._disk_excess()
        return ""

    def _written_bytes(self) -> int:
        """Return the bytes in writable folders; the limit if there are more than MAX_FILES files."""
        total = files = 0
        for _, target, writable in self._spec["mounts"]:
            for folder, _, names in os.walk(self._spec["root"] + target) if writable else ():
                for name in names:
                    files += 1
                    with contextlib.suppress(OSError):
                        total += (Path(folder) / name).lstat().st_blocks * 512
                    if files > MAX_FILES:
                        return int(self._spec["disk_bytes"])
        scratch = os.statvfs(self._spec["root"] + "/tmp")  # noqa: S108 - the sandbox's own
        return int(self._spec["disk_bytes"]) if scratch.f_bavail == 0 else total


class _CpuDemand(threading.Thread):
    """Samples for how long a thread of the namespace runs or could run (state R, proc(5)), with or without a core.

    No counter of the kernel includes all waits: not those by a CPU limit of the thread's group (cgroups(7)). It samples
    in a thread of its own, because the supervisor wakes on output: just when the program runs.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._began, self._runnable, self._samples = time.monotonic(), 0, 0

    def run(self) -> None:
        while True:
            time.sleep(POLL_S)
            self._runnable += _is_runnable()
            self._samples += 1

    def seconds(self) -> float:
        """Return the time so far in which a thread was runnable."""
        return (time.monotonic() - self._began) * self._runnable / max(1, self._samples)


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
    """Return threads and resident bytes of all processes of this namespace except init (proc(5), /proc/PID/stat)."""
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
