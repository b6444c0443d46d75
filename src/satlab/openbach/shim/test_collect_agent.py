# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import collect_agent
import pytest
from pydantic import TypeAdapter

from satlab.common import paths
from satlab.openbach.stats_file import Statistic


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be a job of a run."""
    for name, value in {
        "SATLAB_RAW": str(tmp_path),
        "SATLAB_AGENT": "client",
        "JOB_NAME": "work",
        "JOB_INSTANCE_ID": "7",
        "SCENARIO_INSTANCE_ID": "3",
        "OWNER_SCENARIO_INSTANCE_ID": "2",
    }.items():
        monkeypatch.setenv(name, value)
    collect_agent.remove_stat()
    return tmp_path


def register(raw: Path, filter_file: str = "") -> bool:
    path = raw / "filter.conf"
    if filter_file:
        path.write_text(filter_file)
    return collect_agent.register_collect(str(path))


def records(raw: Path) -> list[dict[str, Any]]:
    path = raw / "stats.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    TypeAdapter(list[Statistic]).validate_python(found)
    return found


NOW = 1_764_000_000_000


def test_a_statistic_becomes_a_record_as_rstats_sends_it(raw: Path) -> None:
    assert register(raw)
    assert collect_agent.send_stat(NOW, "https://server/", page_load_time=1234) == "OK"
    metadata = {
        "time": NOW,
        "is_file": False,
        "job_name": "work",
        "agent_name": "client",
        "job_instance_id": 7,
        "scenario_instance_id": 3,
        "owner_scenario_instance_id": 2,
        "suffix": "https://server/",
        "flag": 3,
    }
    assert records(raw) == [{"page_load_time": 1234, "_metadata": metadata}]


def test_the_filter_decides_the_flag_and_groups_the_statistics(raw: Path) -> None:
    register(
        raw, "[default]\nstorage=true\nbroadcast=false\n[b]\nbroadcast=true\n[c]\nstorage=no\n"
    )
    assert collect_agent.send_stat(NOW, a=1, b=2, c=3, d=4) == "OK"
    assert [(record.pop("_metadata")["flag"], record) for record in records(raw)] == [
        (1, {"a": 1, "d": 4}),
        (3, {"b": 2}),
    ]
    assert "suffix" not in (raw / "stats.jsonl").read_text()


def test_the_default_rule_can_be_changed_and_read_again(raw: Path) -> None:
    register(raw, "[default]\nstorage=true\nbroadcast=false\n")
    assert collect_agent.change_config(storage=False, broadcast=True) == "OK"
    collect_agent.send_stat(NOW, a=1)
    assert collect_agent.reload_stat() == "OK"
    collect_agent.send_stat(NOW, a=2)
    assert [record["_metadata"]["flag"] for record in records(raw)] == [2, 1]


@pytest.mark.parametrize("text", ["no section\n", "[default]\nstorage=perhaps\n"])
def test_a_bad_filter_file_is_refused(raw: Path, text: str) -> None:
    assert not register(raw, text)


@pytest.mark.parametrize(
    ("timestamp", "statistics", "said"),
    [
        (1_764_000_000, {"a": 1}, "timestamp in milliseconds"),
        (NOW, {"a": float("nan")}, "not JSON"),
        (NOW, {"_metadata": {}}, "_metadata"),
        (NOW, {"a": "x" * 20_000}, "limited to 16384 bytes"),
    ],
)
def test_bad_statistics_are_refused(
    raw: Path, timestamp: int, statistics: dict[str, Any], said: str
) -> None:
    register(raw)
    answer = collect_agent.send_stat(timestamp, **statistics)
    assert answer.startswith("KO")
    assert said in answer
    assert records(raw) == []


def test_nothing_is_sent_without_registering(raw: Path) -> None:
    assert collect_agent.send_stat(NOW, a=1) == "KO: register_collect was not called"


@pytest.mark.parametrize("name", ["SATLAB_RAW", "JOB_INSTANCE_ID"])
def test_outside_a_run_a_job_cannot_register(
    raw: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name)
    assert not register(raw)
    with pytest.raises(SystemExit), collect_agent.use_configuration("/nonexistent"):
        pass


def test_a_private_file_stays_private(raw: Path) -> None:
    assert register(raw)
    for name, mode in {"open": 0o644, "closed": 0o600}.items():
        (raw / name).write_text("x")
        (raw / name).chmod(mode)
        assert collect_agent.store_files(NOW, **{name: raw / name}) == "OK"
        assert (raw / "files" / "work-7" / name).stat().st_mode & 0o777 == mode


def test_files_are_stored_without_overwriting(raw: Path) -> None:
    register(raw)
    source = raw / "result.json"
    for number in range(3):
        source.write_text(str(number))
        assert collect_agent.store_files(NOW, data_json=str(source), copy=number != 1) == "OK"
    stored = [record["data_json"] for record in records(raw)]
    assert stored == [f"files/work-7/data_json{number}.json" for number in ("", "-2", "-3")]
    assert [(raw / path).read_text() for path in stored] == ["0", "1", "2"]
    assert all(record["_metadata"]["is_file"] for record in records(raw))
    assert source.exists(), "copy=False leaves the file where it is"


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "x" * 65, "a\0b", "\uff41"])
def test_t04_names_that_become_paths_are_checked(
    raw: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    register(raw)
    (raw / "f").write_text("")
    before = sorted(raw.rglob("*"))
    named: dict[str, Any] = {name: str(raw / "f")}
    assert collect_agent.store_files(NOW, **named).startswith("KO")
    assert sorted(raw.rglob("*")) == before
    if "\0" not in name:
        monkeypatch.setenv("JOB_NAME", name)
        assert not register(raw)


BINDING: list[tuple[str, list[Any], dict[str, Any], type[Exception]]] = [
    ("send_stat", [NOW, None], {"a": 1}, TypeError),
    ("send_stat", [NOW, 3], {"a": 1}, TypeError),
    ("send_stat", [NOW, "x", True], {"a": 1}, TypeError),
    ("send_stat", [float(NOW)], {"a": 1}, TypeError),
    ("send_stat", [str(NOW)], {"a": 1}, TypeError),
    ("send_stat", [1 << 63], {"a": 1}, OverflowError),
    ("send_stat", [], {"a": 1}, TypeError),
    ("send_stat", [], {"timestamp": None, "a": 1}, TypeError),
    ("send_stat", [NOW], {"timestamp": NOW, "a": 1}, TypeError),
    ("send_stat", [NOW, "x"], {"suffix": "y", "a": 1}, TypeError),
    ("send_stat", [NOW], {"a": object()}, ValueError),
    ("send_stat", [NOW], {"a": {1, 2}}, ValueError),
    ("send_stat", [NOW], {"a": b"bytes"}, ValueError),
    ("send_stat", [NOW], {"a": 1 << 63}, OverflowError),
    ("send_stat", [NOW], {"a": [{"b": (object(),)}]}, ValueError),
    ("send_stat", [NOW], {"a": {1: 2}}, TypeError),
    ("send_stat", [NOW], {"a": 1, "metadatas": object()}, ValueError),
    ("store_files", [NOW, None], {"a": "FILE"}, TypeError),
    ("store_files", [NOW, "x", True], {"a": "FILE"}, TypeError),
    ("store_files", [float(NOW)], {"a": "FILE"}, TypeError),
    ("store_files", [NOW], {"a": 3}, TypeError),
    ("store_files", [NOW], {"a": None}, TypeError),
    ("store_files", [NOW], {"a": "/nonexistent/file"}, RuntimeError),
    ("send_log", [3.0, "x"], {}, TypeError),
    ("send_log", [3, b"x"], {}, TypeError),
    ("send_log", [3, None], {}, TypeError),
    ("send_log", [3], {"message": "x"}, TypeError),
    ("register_collect", [None], {}, TypeError),
    ("register_collect", ["FILE", "8"], {}, TypeError),
    ("connect", [], {"config_file": "FILE"}, TypeError),
]


@pytest.mark.parametrize(("call", "position", "named", "raised"), BINDING)
def test_what_the_agents_module_refuses_is_refused_here(
    raw: Path,
    call: str,
    position: list[Any],
    named: dict[str, Any],
    raised: type[Exception],
) -> None:
    register(raw)
    (raw / "file").touch()
    given = {name: str(raw / "file") if v == "FILE" else v for name, v in named.items()}
    with pytest.raises(raised):
        getattr(collect_agent, call)(*position, **given)
    assert records(raw) == []


def test_what_the_agents_module_takes_is_taken_here(raw: Path) -> None:
    register(raw)
    values = {"a": None, "b": [True, {"c": (1.5, "x")}], "d": -(1 << 63)}
    assert collect_agent.send_stat(timestamp=NOW, suffix=None, **values) == "OK"
    assert collect_agent.send_stat(NOW, suffix="x", a=1, metadatas={"agent_name": "y"}) == "OK"
    (raw / "file").touch()
    for path in (raw / "file", str(raw / "file"), os.fsencode(raw / "file")):
        assert collect_agent.store_files(NOW, "x", copy=True, a=path) == "OK"
    collect_agent.send_log(priority=6, log="x")
    first, second, *stored = records(raw)
    assert "suffix" not in first["_metadata"]
    assert (second["_metadata"]["suffix"], second["_metadata"]["agent_name"]) == ("x", "client")
    assert "metadatas" not in second
    assert [each["a"] for each in stored] == [f"files/work-7/a{n}" for n in ("", "-2", "-3")]


def test_a_job_that_cannot_connect_ends(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect_agent.connect(str(raw / "none")) is None  # type: ignore[func-returns-value]
    monkeypatch.delenv("SATLAB_RAW")
    with pytest.raises(SystemExit) as ended:
        collect_agent.connect(str(raw / "none"))
    assert ended.value.code == 1


SEND_MANY = f"""
import collect_agent
collect_agent.register_collect("/nonexistent")
for number in range(50):
    collect_agent.send_stat({NOW}, n=number, padding="x" * 5000)
"""


def test_records_of_many_processes_stay_whole(raw: Path) -> None:
    # Whole processes: a fork of this one, which has threads, may hang.
    environment = os.environ | {"PYTHONPATH": str(paths.SHIM)}
    running = [
        subprocess.Popen([sys.executable, "-c", SEND_MANY], env=environment) for _ in range(4)
    ]
    assert [process.wait(60) for process in running] == [0] * 4
    assert len(records(raw)) == 200


def test_logs_go_to_stderr_on_one_line(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collect_agent.send_log(3, "two\nlines \x1b[2J")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.rstrip("\n").endswith("error: two\\nlines \\x1b[2J")


def test_a_crash_is_logged_and_goes_on(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), collect_agent.use_configuration("/nonexistent"):
        _ = 1 / 0
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert collect_agent.send_stat(NOW, a=1).startswith("KO"), "the connection has ended"


def test_waiting_for_a_signal() -> None:
    seen: list[int] = []
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM}
    )  # or it could come before the wait
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    collect_agent.wait_for_signal(lambda signum, _: seen.append(signum))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert seen == [signal.SIGTERM]
