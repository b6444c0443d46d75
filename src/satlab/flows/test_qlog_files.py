# SPDX-License-Identifier: GPL-3.0-or-later
"""qlog files are read by other processes as by this one."""

from dataclasses import replace
from pathlib import Path

import pytest

from satlab.check.trace import qlog_reader
from satlab.check.trace.qlog import QlogError
from satlab.flows import qlog_files
from satlab.flows.endpoint_commands import Place
from satlab.flows.test_measurements import course, qlog, stream

EVENTS = [stream("transport:packet_sent", 5, 0, 1000)]


def place(folder: Path, index: int = 0, stack: str = "ngtcp2") -> Place:
    folder.mkdir(exist_ok=True)
    return replace(course(folder, stack=stack).place, index=index)


def test_other_processes_read_what_this_one_would(tmp_path: Path) -> None:
    places = [place(tmp_path / str(index), index) for index in range(3)]
    for one in places:
        qlog(one.folder, "server", EVENTS)
    with qlog_files.reading(places) as take:
        for one in places:
            assert take(one, "server") == qlog_files.read(one, "server")
            with pytest.raises(QlogError, match="no file") as caught:
                take(one, "client")
            assert caught.value.kind == "missing"


def test_a_process_that_ends_while_it_reads_leaves_its_files_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qlog(tmp_path, "server", EVENTS)
    monkeypatch.setattr(qlog_reader, "MODULE", "satlab.none")
    with (
        qlog_files.reading([place(tmp_path)]) as take,
        pytest.raises(QlogError, match=r"the process that read it failed: .*No module named"),
    ):
        take(place(tmp_path), "server")


def test_flows_without_qlog_begin_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qlog_files, "ThreadPoolExecutor", None)
    with qlog_files.reading([place(tmp_path, stack="quinn")]) as take:
        assert take is qlog_files.read
