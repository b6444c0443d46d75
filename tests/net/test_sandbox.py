# SPDX-License-Identifier: GPL-3.0-or-later
"""T11 of the threat table: limits and isolation of untrusted programs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.check import sandboxed_program
from satlab.check.sandboxed_program import ExitReport, SandboxedProcess
from satlab.common import paths, scratch
from satlab.common.processes import wait
from satlab.lab import privileges, sandbox
from satlab.lab.job_host import JOB_LIMITS
from satlab.lab.sandbox import Limits, Mount, Place, Sandbox
from satlab.openbach.job_process import JobProcess
from tests.sandbox_place import new_place, run_to_its_end

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

NOWHERE = Place()
SMALL = Limits(seconds=5, memory_bytes=64 << 20, processes=32, disk_bytes=8 << 20)


@pytest.fixture(autouse=True)
def unmounted(tmp_path: Path) -> Iterator[None]:
    yield
    scratch.remove(tmp_path)


def written(tmp_path: Path, limits: Limits) -> Path:
    """Return a folder for a program to write, with the size of its limits; what an earlier one
    wrote is still there.
    """
    out = tmp_path / "out"
    if not out.exists():
        out.mkdir()
        scratch.sized(out, limits.disk_bytes, limits.files)
    return out


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with new_place(tmp_path) as made:
        yield made


def run(script: str, tmp_path: Path, limits: Limits = SMALL, place: Place = NOWHERE) -> ExitReport:
    """Run a shell script in a sandbox that may write to /out. Its output is in tmp_path/log."""
    out = written(tmp_path, limits)
    box = Sandbox(mounts=(Mount(out, "/out", writable=True),), limits=limits, place=place)
    os.chown(out, box.uid, box.uid)
    program = sandboxed_program.start(box, ["sh", "-c", script], tmp_path / "log")
    try:
        ended = program.poll(20)
        assert ended is not None, "the program exceeded its limits and was not ended"
        return ended
    finally:
        program.stop()
        assert not [*tmp_path.glob("log.root"), *tmp_path.glob("log.sandbox")] and not processes_of(
            box.uid
        )


def processes_of(uid: int) -> list[str]:
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                processes.append(entry.name)
        except OSError:
            continue
    return processes


def test_a_log_may_have_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--out runs`, the default, is one."""
    monkeypatch.chdir(tmp_path)
    assert run("exit 0", Path()).reason == ""


def test_a_sandbox_that_does_not_start_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "SATBOX", shutil.which("cat"))
    ended = run_to_its_end(Sandbox(limits=SMALL), ["true"], tmp_path / "log")
    assert re.match(r"its sandbox did not start: .*cat: true: No such file", ended.reason), (
        ended.reason
    )


def held(tmp_path: Path, uid: int) -> SandboxedProcess:
    """Hold a program that reads its standard input and then makes a file."""
    out = written(tmp_path, SMALL)
    os.chown(out, uid, uid)
    box = Sandbox(uid=uid, mounts=(Mount(out, "/out", writable=True),), limits=SMALL, held=True)
    return sandboxed_program.start(box, ["sh", "-c", "cat > /out/begun"], tmp_path / "log")


def test_p387_a_held_program_starts_when_it_is_released(tmp_path: Path) -> None:
    program = held(tmp_path, privileges.new_uid())
    assert wait(lambda: not program.is_waiting, 20)
    assert program.poll(0.3) is None and not (tmp_path / "out" / "begun").exists()
    program.release()
    ended = program.poll(20)
    assert ended is not None and ended.reason == ""
    assert (tmp_path / "out" / "begun").read_bytes() == b""  # its standard input is empty


def test_p387_a_held_program_that_is_stopped_never_starts(tmp_path: Path) -> None:
    uid = privileges.new_uid()
    program = held(tmp_path, uid)
    assert wait(lambda: not program.is_waiting, 20)
    assert program.stop().status == -signal.SIGTERM
    assert not (tmp_path / "out" / "begun").exists() and not processes_of(uid)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 100", "it did not end within 2 s"),
        ("trap '' TERM; while :; do sleep 1; done", "it did not end within 2 s"),
        ("f() { f | f & }; f; sleep 100", "fork bomb"),
        ("cat /dev/zero > /out/large", "it wrote 8 MiB or more"),
        (
            "while :; do head -c 1000000 /dev/zero > /out/f$((i = i + 1)); done",
            "it wrote 8 MiB or more",
        ),
        ("cat /dev/zero > /tmp/large; sleep 100", "it wrote 8 MiB or more"),
        ("head -c 500000000 /dev/zero | tail", "it took more than 64 MiB of memory"),
        ("setsid sleep 100 & exit 0", ""),
    ],
)
def test_t11_a_program_that_exceeds_a_limit_is_ended_with_the_reason(
    script: str, reason: str, tmp_path: Path
) -> None:
    ended = run(script, tmp_path, Limits(2, 64 << 20, 32, 8 << 20) if "within" in reason else SMALL)
    assert ended.stop_reason.startswith(reason) and bool(ended.stop_reason) is bool(reason), ended


def test_t11_a_writable_folder_without_a_size_is_refused(tmp_path: Path) -> None:
    """Nothing but the size of a file system bounds what a program keeps in files that no folder
    names any more.
    """
    (tmp_path / "plain").mkdir()
    (tmp_path / "large").mkdir()
    scratch.sized(tmp_path / "large", 2 * SMALL.disk_bytes, SMALL.files)
    for name in ("plain", "large"):
        box = Sandbox(mounts=(Mount(tmp_path / name, "/out", writable=True),), limits=SMALL)
        ended = run_to_its_end(box, ["true"], tmp_path / "log")
        assert "more than the limits" in ended.reason, ended


def test_t11_all_sandboxes_together_leave_a_quarter_of_the_memory_to_the_host(
    tmp_path: Path,
) -> None:
    run("exit 0", tmp_path)
    names = {"cgroup1": "memory/satlab/memory.limit_in_bytes", "cgroup2": "satlab/memory.max"}
    enforced_by = sandbox.enforced_by()["memory"]
    if enforced_by not in names:
        pytest.skip("this host has no control group for memory")
    limit = int((Path("/sys/fs/cgroup") / names[enforced_by]).read_text())
    assert limit == pytest.approx(
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.75, rel=0.01
    )


def test_t11_it_reads_no_user_data_and_writes_to_its_folders_alone(
    tmp_path: Path, place: Place
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with subprocess.Popen(["sleep", "60"]) as victim:
        script = f"""
            cat {secret}; ls /root /home /var /run/netns; cat /proc/{victim.pid}/environ; kill {victim.pid}
            touch /usr/x /etc/x /x; mount -t tmpfs none /out; unshare --mount true; chroot / true; su -c id
            ip link set lo up; nsenter --net=/proc/1/ns/net true; cat /proc/1/environ; env
            echo DONE
        """
        run(script, tmp_path, place=place)
        assert victim.poll() is None
        victim.kill()
    output = (tmp_path / "log").read_text()
    assert "DONE" in output and "secret\n" not in output
    for refused in (
        "/usr/x",
        "/etc/x",
        "/x",
        "mount",
        "unshare",
        "chroot",
        "lo",
        "/proc/1/environ",
    ):
        assert refused in output, refused
    assert not any(name in output for name in ("SUDO", "TOKEN", "PYTHONPATH"))


def test_t11_it_has_no_privilege_and_its_own_user(tmp_path: Path) -> None:
    run("cat /proc/self/status", tmp_path)
    status = dict(
        line.split(":\t", 1)
        for line in (tmp_path / "log").read_text().splitlines()
        if ":\t" in line
    )
    assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1" and int(status["Uid"].split()[0]) >= 1_900_000_000
    assert int(status["NSpid"].split()[-1]) < 10


def test_t11_its_network_is_the_given_namespace(tmp_path: Path, place: Place) -> None:
    run("ls /sys/class/net; cat /proc/net/dev", tmp_path, place=place)
    interfaces = {
        line.partition(":")[0].strip()
        for line in (tmp_path / "log").read_text().splitlines()
        if ":" in line
    }
    assert interfaces == {"lo"}


def test_t11_endless_output_is_truncated_and_its_end_kept(tmp_path: Path) -> None:
    ended = run("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last words", tmp_path)
    assert (ended.status, ended.output_tail.endswith("last words")) == (0, True)
    assert (tmp_path / "log").stat().st_size < 400_000


def test_status_cpu_time_and_memory_are_reported(tmp_path: Path) -> None:
    ended = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 127", tmp_path)
    assert ended.status == 127 and ended.cpu_s > 0.01 and ended.peak_bytes > 100_000
    assert run("kill -SEGV $$", tmp_path).reason == "it ended with signal 11"


def test_a_stopped_program_can_end_by_itself(tmp_path: Path) -> None:
    program = sandboxed_program.start(
        Sandbox(),
        ["sh", "-c", "trap 'echo bye; exit 3' TERM; while :; do sleep 0.1; done"],
        tmp_path / "log",
    )
    assert program.poll(0.5) is None
    ended = program.stop()
    assert (ended.status, ended.output_tail) == (3, "bye")


def test_a_program_runs_in_the_root_of_an_image(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for program in ("sh", "ls"):
        file = Path(shutil.which(program) or program).resolve()
        libraries = subprocess.run(
            ["ldd", str(file)], capture_output=True, text=True, check=True
        ).stdout
        for each in (file, *map(Path, re.findall(r"(/\S+)", libraries))):
            target = root / (f"bin/{program}" if each == file else str(each)[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, target)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "hosts").write_text("1.2.3.4 image\n")
    script = (
        "ls /; while read line; do echo $line; done < /etc/hosts; echo x > /etc/hosts; echo x >"
        " /bin/x"
    )
    box = Sandbox(base=root, hosts="5.6.7.8 lab\n")
    ended = run_to_its_end(box, ["/bin/sh", "-c", script], tmp_path / "log")
    output = (tmp_path / "log").read_text().split("\n")
    assert ended.stop_reason == "" and {"bin", "etc", "proc", "tmp", "5.6.7.8 lab"} <= set(
        output
    ), output
    assert "usr" not in output or (root / "usr").exists()
    assert (
        not (root / "bin" / "x").exists()
        and (root / "etc" / "hosts").read_text() == "1.2.3.4 image\n"
    )


def test_a_mount_is_at_the_path_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("text\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    box = Sandbox(mounts=(Mount.ours(tmp_path / "link"),))
    ended = run_to_its_end(box, ["cat", str(tmp_path / "link" / "file")], tmp_path / "log")
    assert (ended.status, ended.output_tail) == (0, "text")


REPORTS = """
import os, signal, sys, time
def stopped(who):
    def handler(*_):
        os.write(1, (who + " stopped\\n").encode())
        os._exit(0)
    return handler
signal.signal(signal.SIGTERM, stopped("job"))
if not os.fork():
    signal.signal(signal.SIGTERM, stopped("child"))
    print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_t24_descendants_are_stopped_first_then_the_job_then_its_stop_command_runs(
    tmp_path: Path,
) -> None:
    root, log = tmp_path / "root", tmp_path / "log"
    root.mkdir()
    enter = Sandbox(mounts=sandbox.programs(), limits=JOB_LIMITS).argv(tmp_path / "spec", root)
    job = JobProcess(
        [*enter, sys.executable, "-c", REPORTS],
        stop_argv=[*enter, "echo", "after"],
        environment=sandbox.ENVIRONMENT,
        log=log,
    )
    assert wait(lambda: "up" in log.read_text(), 10)
    job.stop()
    assert wait(lambda: job.poll(time.monotonic()) is not None, 10)
    job.close()
    assert log.read_text().splitlines() == ["up", "child stopped", "job stopped", "after"]


def test_p271_what_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.root").mkdir()
    (tmp_path / "a.report").write_text('{"status": 7, "why": "of the killed one"}')
    ended = run_to_its_end(Sandbox(), ["true"], tmp_path / "a.log")
    assert (ended.status, ended.reason) == (0, "")
    assert [file.name for file in tmp_path.iterdir()] == ["a.log"]
