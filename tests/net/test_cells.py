# SPDX-License-Identifier: GPL-3.0-or-later
"""T11 of the threat table: what a program that nobody vouches for can do, and how each of its tricks ends."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from satlab.check.sandbox import sandbox
from satlab.check.sandbox.sandbox import ExitReport, Limits, Mount, Sandbox

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

SMALL = Limits(seconds=5, memory_bytes=64 << 20, processes=32, disk_bytes=8 << 20)


def run(script: str, tmp_path: Path, bounds: Limits = SMALL, cell: Sandbox | None = None) -> ExitReport:
    """Run a shell script in a cell that may write to /out; give how it ended. What it said is in tmp_path/log."""
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    cell = cell or Sandbox(bounds=bounds)
    os.chown(out, cell.uid, cell.uid)
    cell = Sandbox(
        cell.uid, (*cell.binds, Mount(out, "/out", writable=True)), bounds=bounds, environment=cell.environment
    )
    program = sandbox.start(["unshare", "--net", "--"], cell, ["sh", "-c", script], tmp_path / "log")
    try:
        ended = program.poll(20)
        assert ended is not None, "the cell outlived its bounds"
        return ended
    finally:
        program.stop()
        assert not (tmp_path / "log.cell").exists() and not processes_of(cell.uid)


def processes_of(uid: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 100", "it did not end within 2 s"),
        ("trap '' TERM; while :; do sleep 1; done", "it did not end within 2 s"),
        ("f() { f | f & }; f; sleep 100", "it forks without end"),
        ("cat /dev/zero > /out/large", "it wrote 8 MiB or more"),
        ("while :; do head -c 1000000 /dev/zero > /out/f$((i = i + 1)); done", "it wrote 8 MiB or more"),
        ("cat /dev/zero > /tmp/large; sleep 100", "it wrote 8 MiB or more"),
        ("head -c 500000000 /dev/zero | tail", "it took more than 64 MiB of memory"),
        ("setsid sleep 100 & exit 0", ""),
    ],
)
def test_t11_every_excess_ends_with_its_name_and_leaves_nothing(script: str, why: str, tmp_path: Path) -> None:
    ended = run(script, tmp_path, Limits(2, 64 << 20, 32, 8 << 20) if "within" in why else SMALL)
    assert ended.why.startswith(why) and bool(ended.why) is bool(why), ended


def test_t11_it_sees_nothing_of_people_and_writes_nowhere_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with subprocess.Popen(["sleep", "60"]) as victim:
        script = f"""
            cat {secret}; ls /root /home /var /run/netns; cat /proc/{victim.pid}/environ; kill {victim.pid}
            touch /usr/x /etc/x /x; mount -t tmpfs none /out; unshare --mount true; chroot / true; su -c id
            ip link set lo up; nsenter --net=/proc/1/ns/net true; cat /proc/1/environ; env
            echo DONE
        """
        run(script, tmp_path)
        assert victim.poll() is None
        victim.kill()
    said = (tmp_path / "log").read_text()
    assert "DONE" in said and "secret\n" not in said
    for refused in ("/usr/x", "/etc/x", "/x", "mount", "unshare", "chroot", "lo", "/proc/1/environ"):
        assert refused in said, refused
    assert not any(name in said for name in ("SUDO", "TOKEN", "PYTHONPATH"))


def test_t11_no_privilege_and_a_user_of_its_own(tmp_path: Path) -> None:
    run("cat /proc/self/status", tmp_path)
    status = dict(line.split(":\t", 1) for line in (tmp_path / "log").read_text().splitlines() if ":\t" in line)
    assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1" and int(status["Uid"].split()[0]) >= 1_900_000_000
    assert int(status["NSpid"].split()[-1]) < 10


def test_t11_its_network_is_the_one_it_was_started_in(tmp_path: Path) -> None:
    run("ls /sys/class/net; cat /proc/net/dev", tmp_path)
    interfaces = {line.partition(":")[0].strip() for line in (tmp_path / "log").read_text().splitlines() if ":" in line}
    assert interfaces == {"lo"}


def test_t11_endless_talk_is_cut_short_and_its_end_kept(tmp_path: Path) -> None:
    ended = run("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last words", tmp_path)
    assert (ended.status, ended.said.endswith("last words")) == (0, True)
    assert (tmp_path / "log").stat().st_size < 400_000


def test_a_cell_tells_status_and_means(tmp_path: Path) -> None:
    ended = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 127", tmp_path)
    assert ended.status == 127 and ended.cpu_s > 0.01 and ended.peak_bytes > 100_000
    assert run("kill -SEGV $$", tmp_path).reason == "it ended with signal 11"


def test_a_program_that_is_stopped_ends_by_itself_if_it_can(tmp_path: Path) -> None:
    program = sandbox.start(
        [], Sandbox(), ["sh", "-c", "trap 'echo bye; exit 3' TERM; while :; do sleep 0.1; done"], tmp_path / "log"
    )
    assert program.poll(0.5) is None
    ended = program.stop()
    assert (ended.status, ended.said) == (3, "bye")


def test_an_image_s_root_is_what_a_program_sees(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for program in ("sh", "ls"):
        file = Path(shutil.which(program) or program).resolve()
        told = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
        for each in (file, *map(Path, re.findall(r"(/\S+)", told))):
            target = root / (f"bin/{program}" if each == file else str(each)[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, target)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "hosts").write_text("1.2.3.4 image\n")
    script = "ls /; while read line; do echo $line; done < /etc/hosts; echo x > /etc/hosts; echo x > /bin/x"
    running = sandbox.start([], Sandbox(base=root, hosts="5.6.7.8 lab\n"), ["/bin/sh", "-c", script], tmp_path / "log")
    ended = running.poll(20) or running.stop()
    said = (tmp_path / "log").read_text().split("\n")
    assert ended.why == "" and {"bin", "etc", "proc", "tmp", "5.6.7.8 lab"} <= set(said), said
    assert "usr" not in said or (root / "usr").exists()
    assert not (root / "bin" / "x").exists() and (root / "etc" / "hosts").read_text() == "1.2.3.4 image\n"
