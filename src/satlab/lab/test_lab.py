# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the lab needs no privileges: ids, names, lock, files, interrupts.

The rest is in tests/net.
"""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from satlab.common import netns_names, processes
from satlab.common.errors import ConfigError, HostError
from satlab.lab import lab, netns


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lab, "RUN", tmp_path / "satlab")
    monkeypatch.setattr(netns, "RUN_NETNS", tmp_path / "netns")
    return tmp_path / "satlab"


@pytest.mark.parametrize("lab_id", ["", "-a", "A", "a.b", "a/b", "../a", "a" * 17, "a\n", "é"])
def test_unusable_lab_ids_are_refused(lab_id: str) -> None:
    with pytest.raises(ConfigError, match="is not usable"):
        lab.down(lab_id)


def test_names_keep_labs_apart(tmp_path: Path) -> None:
    """With a hyphen between the parts, node st of lab x-proxy would be node proxy-st of lab x."""
    assert netns_names.name("x-proxy", "st") != netns_names.name("x", "proxy-st")
    (tmp_path / "netns").mkdir()
    for entry in ("satlab-x.st", "satlab-x-y.client", "satlab-x-y.st", "other", "satlab-"):
        (tmp_path / "netns" / entry).touch()
    assert netns.present("x") == ["st"]
    assert netns.present("x-y") == ["client", "st"]
    assert netns.lab_ids() == {"x", "x-y"}


def test_absent_lab() -> None:
    assert lab.list_labs() == []
    assert lab.status("demo").phase == "absent"
    with pytest.raises(ConfigError, match="no lab named"):
        lab.Lab.attach("demo")


@pytest.mark.parametrize("record", [None, "", "{", '{"schema": "satlab/lab-state/0"}'])
def test_a_lab_without_a_usable_record_is_broken(run_folder: Path, record: str | None) -> None:
    (run_folder / "demo").mkdir(parents=True)
    if record is not None:
        (run_folder / "demo" / "lab.json").write_text(record)
    assert [(found.lab_id, found.phase) for found in lab.list_labs()] == [("demo", "broken")]
    with pytest.raises(HostError, match="has no record"):
        lab.Lab.attach("demo")


def test_files_are_private_and_written_whole(tmp_path: Path) -> None:
    lab._write(tmp_path / "a", "old")
    lab._write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_lock_admits_one_at_a_time_and_leaves_nothing(run_folder: Path) -> None:
    inside, most, entered = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, entered
        for _ in range(20):
            with lab._locked("demo"):
                inside, entered = inside + 1, entered + 1
                most = max(most, inside)
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entered) == (1, 80)
    assert not run_folder.exists()


def test_waiting_for_the_lock_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "LOCK_DEADLINE_S", 0.05)
    with (
        lab._locked("demo"),
        lab._locked("other"),
        pytest.raises(HostError, match="another satlab"),
        lab._locked("demo"),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_held_back_until_checked(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), lab._Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), number)
        interrupts.check()
    assert signal.getsignal(number) is before


def test_a_signal_that_nobody_checked_is_not_lost() -> None:
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt), lab._Interrupts():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_is_known_by_its_start_and_a_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = processes.start_ticks(child.pid)
        assert ticks is not None
        assert processes.start_ticks(child.pid) == ticks
        child.kill()
        assert processes.wait(lambda: processes.start_ticks(child.pid) is None, 120)
    assert processes.start_ticks(child.pid) is None
