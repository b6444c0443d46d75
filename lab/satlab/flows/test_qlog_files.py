# SPDX-License-Identifier: GPL-3.0-or-later
"""qlog files are read by other processes as by this one."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from satlab.check.trace.qlog import QlogError
from satlab.flows import qlog_files
from satlab.flows.programs import Place
from satlab.netlab.pki import Pki


def place(folder: Path, index: int = 0, stack: str = "ngtcp2") -> Place:
    flow = {"from": "server1", "to": "client1", "stack": stack}
    return Place(index, flow, 10, {}, Pki(folder, ""), folder / "ca", folder, folder / "payload", 1 << 20)


def write(folder: Path, side: str, vantage: str | None = None) -> None:
    header = {"qlog_format": "JSON-SEQ", "trace": {"vantage_point": {"type": vantage or side}}}
    frame = {"frame_type": "stream", "stream_id": 0, "offset": 0, "length": 1000}
    event = {"time": 5, "name": "transport:packet_sent", "data": {"frames": [frame]}}
    (folder / side / "qlog").mkdir(parents=True)
    text = "".join(f"\x1e{json.dumps(one)}\n" for one in (header, event))
    (folder / side / "qlog" / "a.sqlog").write_text(text)


def test_other_processes_read_what_this_one_would(tmp_path: Path) -> None:
    places = [place(tmp_path / str(index), index) for index in range(3)]
    for index in range(3):
        write(tmp_path / str(index), "server")
    with qlog_files.reading(places) as take:
        for one in places:
            assert take(one, "server") == qlog_files.read(one, "server")
            with pytest.raises(QlogError, match="no file") as caught:
                take(one, "client")
            assert caught.value.kind == "missing"


def test_a_process_that_ends_while_it_reads_leaves_its_files_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "server")
    monkeypatch.setattr(qlog_files, "_stand_back", partial(os._exit, 9))
    with (
        qlog_files.reading([place(tmp_path)]) as take,
        pytest.raises(QlogError, match="the process that read it ended"),
    ):
        take(place(tmp_path), "server")


def test_flows_without_qlog_begin_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qlog_files, "ProcessPoolExecutor", None)
    with qlog_files.reading([place(tmp_path, stack="quinn")]) as take:
        assert take is qlog_files.read
