# SPDX-License-Identifier: GPL-3.0-or-later
"""Line protocol by its own rules, read with another hand; and, where Debian's InfluxDB is
installed, by InfluxDB.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.link import prometheus
from satlab.link.options import LinkOptions
from satlab.run import influx, scenario_run
from satlab.run.influx import Database, Feed, line

TIME = 1_764_000_000_000


def record(
    suffix: str | None = None, job: str = "satlab_ping", *, is_file: bool = False, **fields: Any
) -> dict[str, Any]:
    about = {
        "time": TIME,
        "is_file": is_file,
        "job_name": job,
        "agent_name": "client",
        "job_instance_id": 7,
        "scenario_instance_id": 3,
        "owner_scenario_instance_id": 2,
        "flag": 1,
    }
    return {**fields, "_metadata": {**about, **({} if suffix is None else {"suffix": suffix})}}


def test_a_record_becomes_a_point_with_openbachs_names() -> None:
    assert (
        line(record("https://server/", rtt_ms=601, ok=True), "r-1")
        == "satlab_ping,@agent_name=client,@job_instance_id=7,@owner_scenario_instance_id=2,@run_id=r-1,@scenario_instance_id=3,@stored_file=false,@suffix=https://server/"
        " rtt_ms=601.0,ok=true 1764000000000"
    )
    assert ',@stored_file=true ping_json="files/a \\"b\\".json" ' in line(
        record(is_file=True, ping_json='files/a "b".json'), "r"
    )
    assert line(record(time=1, nothing=None), "r") == ""


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_a_number_that_the_line_protocol_has_not_is_left_out(number: float) -> None:
    assert " rtt_ms=1.0 " in line(record(rtt_ms=1, jitter_ms=number), "r")
    assert line(record(jitter_ms=number), "r") == ""


def link_sample(second: float = 0.0, **figures: Any) -> dict[str, Any]:
    """A sample of a link whose return direction another emulator carries."""
    return {"type": "sample", "t_unix_s": TIME / 1000 + second, "forward": figures, "return": None}


def test_a_sample_of_the_link_becomes_a_point_for_each_direction() -> None:
    figures = {
        "queue_bytes": 3000,
        "rate_bps": 1e6,
        "late_p99_us": None,
        "frames_by_modcod": {"4": 1},
        "heard": {},
    }
    assert influx.link_points(link_sample(0.1, **figures), "r-1") == [
        "satlink,@agent_name=sat,@run_id=r-1,@stored_file=false,@suffix=forward "
        "queue_bytes=3000.0,rate_bps=1000000.0 1764000000100"
    ]
    assert influx.link_points({"type": "header", "run_id": "r"}, "r-1") == []
    assert influx.link_points(link_sample(), "r-1") == []


# --- read back with another hand: the rules of InfluxDB 1.x's line protocol reference -------------


def split(text: str, at: str) -> list[str]:
    """Split at a character that is neither escaped nor within quotes."""
    parts, quoted, position, start = [], False, 0, 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == '"':
            quoted = not quoted
        elif text[position] == at and not quoted:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [*parts, text[start:]]


def plain(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text)


def read(point: str) -> tuple[str, dict[str, str], dict[str, str], int]:
    head, fields, when = split(point, " ")
    name, *tags = split(head, ",")
    pairs = [split(tag, "=") for tag in tags]
    values = [split(field, "=") for field in split(fields, ",")]
    return (
        plain(name),
        {plain(k): plain(v) for k, v in pairs},
        {plain(k): v for k, v in values},
        int(when),
    )


TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
TRICKY = st.text(st.sampled_from(r'a ,="\\' + "\n\0\t$'é"), max_size=12)


@given(
    suffix=TEXT | TRICKY,
    text=TEXT | TRICKY,
    number=st.integers() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_escaping_holds_for_any_text(suffix: str, text: str, number: float) -> None:
    """One line, one point: nothing in a value becomes another tag, field or point."""
    if abs(number) > 1e308:
        return
    fit = "".join("\ufffd" if c == "\\" or not c.isprintable() else c for c in suffix)
    point = line(record(suffix.replace('"', "'"), said=text, number=number), "r")
    name, tags, fields, when = read(point)
    assert (name, when) == ("satlab_ping", TIME)
    assert tags.get("@suffix", "") == fit.replace('"', "'")
    assert set(tags) - {"@suffix"} == {
        "@agent_name",
        "@job_instance_id",
        "@owner_scenario_instance_id",
        "@run_id",
        "@scenario_instance_id",
        "@stored_file",
    }
    assert set(fields) == {"said", "number"}
    assert float(fields["number"]) == float(number)
    said = re.sub(r'\\([\\"])', r"\1", fields["said"][1:-1])
    assert said == text.replace("\0", "\ufffd")


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("http://db", Database("db")),
        (
            "http://u:p%40@db:99/lab",
            Database("db", 99, "lab", user="u", password="p@"),  # noqa: S106
        ),
        ("https://[::1]/", Database("::1", secure=True)),
    ],
)
def test_urls(url: str, database: Database) -> None:
    assert Database.of(url) == database
    assert "p@" not in str(database)


@pytest.mark.parametrize(
    "url", ["", "db:8086", "ftp://db", "http://", "http://db/a/b", "http://db:x", "http://db?q=1"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Database.of(url)


# --- a run's statistics ---------------------------------------------------------------------------


class Taker:
    """Stand-in for a database: accepts points, or fails on request."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.failure: Exception | None = None

    def write(self, points: list[str]) -> None:
        if self.failure:
            raise self.failure
        self.points.extend(points)


def feed_of(taker: Taker, file: Path) -> Feed:
    return Feed(cast("Database", taker), file.parent, file.name, "r")


def test_points_that_were_not_accepted_are_repeated(tmp_path: Path) -> None:
    file, database = tmp_path / "stats.jsonl", Taker()
    feed = feed_of(database, file)
    assert not feed.step()
    file.write_text(json.dumps(record(a=1)) + "\n" + json.dumps(record(a=2))[:20])
    database.failure = HostError("away")
    with pytest.raises(HostError):
        feed.step()
    database.failure = None
    assert feed.step()
    assert [point.split(" ")[1] for point in database.points] == ["a=1.0"]
    with file.open("a") as lines:
        lines.write(json.dumps(record(a=2))[20:] + "\n")
    feed.drain()
    assert feed.sent == len(database.points) == 2


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    file, database = tmp_path / "stats.jsonl", Taker()
    foreign = ["x", "[]", "1", "{}", '{"_metadata": {}, "a": 1}', "[" * 100_000, "\udcff"]
    lines = [*foreign, json.dumps(record(a=1))]
    file.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    feed = feed_of(database, file)
    feed.drain()
    assert (feed.sent, len(database.points)) == (1, 1)


@pytest.mark.parametrize(
    "hostile",
    [
        '{"a": "\\ud800", "_metadata": {"job_name": "j", "is_file": false, "time": 1}}',
        '{"a": 1, "_metadata": {"job_name": "j", "is_file": false, "time": Infinity}}',
        json.dumps(record(a="x" * (2 * influx.BATCH_BYTES))),
    ],
    ids=["lone surrogate", "infinite time", "long line"],
)
def test_t72_a_record_of_a_job_does_not_end_the_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    (tmp_path / "stats.jsonl").write_text(f"{hostile}\n{json.dumps(record(b=1))}\n")
    sent: list[bytes] = []
    monkeypatch.setattr(Database, "_post", lambda *words: sent.append(words[-1]))
    Feed(Database("localhost"), tmp_path, "stats.jsonl", "r").drain()
    assert b" b=1.0 " in b"".join(sent)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_t72_only_plain_files_of_a_run_are_sent(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "stats.jsonl")
    feed = feed_of(Taker(), tmp_path / "stats.jsonl")
    assert not feed.step()
    assert feed.refused


@pytest.mark.parametrize("text", ["[]", "{}", "[" * 100_000, "x"])
def test_t72_a_broken_manifest_is_a_message(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match="manifest"):
        influx.send([tmp_path], "http://127.0.0.1:1")


def test_refused_points_are_not_repeated(tmp_path: Path) -> None:
    file, database = tmp_path / "stats.jsonl", Taker()
    file.write_text(json.dumps(record(a=1)) + "\n")
    database.failure = influx.RefusedError("400 field type conflict")
    feed = feed_of(database, file)
    feed.drain()
    assert (feed.sent, feed.refused) == (0, "400 field type conflict")


def test_a_database_that_is_away_fails_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:  # bound, not listening: nobody answers
        taken.bind(("127.0.0.1", 0))
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw" / "stats.jsonl").write_text(json.dumps(record(a=1)) + "\n")
        with influx.feeding(
            f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path, "r", ProgressLog()
        ):
            pass
    assert "send it later: satlab influx" in capsys.readouterr().err


# --- InfluxDB itself ------------------------------------------------------------------------------

CONFIGURATION = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
query-log-enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
[monitor]
store-enabled = false
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an InfluxDB of our own on free ports of loopback."""
    unpacked = paths.ROOT / ".satlab" / "packages" / "influxdb" / "usr" / "bin"
    program = shutil.which("influxd", path=f"{os.environ['PATH']}:{unpacked}")
    if program is None:
        pytest.skip("InfluxDB is not installed (Debian package influxdb)")
    folder = tmp_path_factory.mktemp("influx")
    port = free_port()
    (folder / "influx.conf").write_text(
        CONFIGURATION.format(folder=folder, port=port, rpc=free_port())
    )
    argv = [program, "-config", str(folder / "influx.conf")]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(argv, stdout=log, stderr=log) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    Database.of(url).prepare()
                    break
                except HostError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.promise("P52")
def test_influxdb_returns_the_points(server: str, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "manifest.json").write_text('{"run_id": "20260101-000000-ping-geo-0001"}')
    records = [
        record("Flow 1, a=b", rtt_ms=601),
        record(rtt_ms=602.5),
        record(is_file=True, ping_json='a "b"\nc'),
    ]
    (tmp_path / "raw" / "stats.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in records)
    )
    assert influx.send([tmp_path], server) == 3
    assert influx.send([tmp_path], server) == 3, "sending again makes nothing twice"
    (series,) = Database.of(server).query('SELECT * FROM "satlab_ping"')
    rows = [dict(zip(series["columns"], row, strict=True)) for row in series["values"]]
    assert sorted(row["rtt_ms"] for row in rows if row["rtt_ms"]) == [601, 602.5]
    assert {row["@suffix"] for row in rows} == {"Flow 1, a=b", None}
    assert [row["ping_json"] for row in rows if row["@stored_file"] == "true"] == ['a "b"\nc']
    assert {row["time"] for row in rows} == {TIME}
    assert {row["@run_id"] for row in rows} == {"20260101-000000-ping-geo-0001"}


def test_influxdb_returns_the_link(server: str, tmp_path: Path) -> None:
    run_id = "20260101-000000-ping-geo-0002"
    (tmp_path / "raw").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps({"run_id": run_id}))
    samples = [
        link_sample(n / 10, queue_bytes=1000 * n, frame_fill_ratio=0.5, late_p99_us=12.5)
        for n in range(3)
    ]
    lines = [{"type": "header"}, *samples, {"type": "end"}]
    (tmp_path / "raw" / "link.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    for _ in range(2):  # sending again makes nothing twice
        assert influx.send([tmp_path], server) == 3
    (series,) = Database.of(server).query(f'SELECT * FROM "satlink" WHERE "@run_id" = \'{run_id}\'')  # noqa: S608
    rows = [dict(zip(series["columns"], row, strict=True)) for row in series["values"]]
    assert [row["queue_bytes"] for row in rows] == [0, 1000, 2000]
    assert [row["time"] for row in rows] == [TIME, TIME + 100, TIME + 200]
    assert {(row["@suffix"], row["frame_fill_ratio"], row["late_p99_us"]) for row in rows} == {
        ("forward", 0.5, 12.5)
    }


@settings(max_examples=100)
@given(suffix=TEXT | TRICKY, text=TEXT | TRICKY)
def test_influxdb_reads_any_text_as_one_point(server: str, suffix: str, text: str) -> None:
    database = Database.of(server)
    database.query('DROP MEASUREMENT "tried"')
    database.write([line(record(suffix, "tried", said=text, after=1), "r")])
    (series,) = database.query('SELECT * FROM "tried"')
    (row,) = series["values"]
    found = dict(zip(series["columns"], row, strict=True))
    fit = "".join("\ufffd" if c == "\\" or not c.isprintable() else c for c in suffix)
    assert (found.get("@suffix") or "") == fit
    assert (found["said"], found["after"]) == (text.replace("\0", "\ufffd"), 1)
    assert len(series["columns"]) == (9 if fit else 8) + 1


def test_influxdb_refuses_by_name(server: str) -> None:
    with pytest.raises(influx.RefusedError, match="400"):
        Database.of(server).write(["no point"])
    with pytest.raises(HostError, match="parsing"):
        Database.of(server).query("NONSENSE")


def test_a_database_that_keeps_points_for_another_time_stays_as_it_is(server: str) -> None:
    database = Database.of(f"{server}/short")
    database.query("CREATE DATABASE short WITH DURATION 90d REPLICATION 1 NAME openbach")
    database.prepare()
    database.write([f"m v=1 {int(time.time() * 1000)}"])  # one older than 90 days would be refused
    assert [row[1] for row in database.query("SHOW RETENTION POLICIES ON short")[0]["values"]] == [
        "2160h0m0s"
    ]


@pytest.mark.net
def test_a_run_sends_its_statistics(server: str, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not paths.SATLINK.exists():
        pytest.skip("needs root and satlink")
    link = LinkOptions(profile="leo")
    settings_ = {"count": "3"}
    request = scenario_run.RunRequest(
        paths.SCENARIOS / "ping.json", link, settings_, tmp_path, report=False, influx=server
    )
    outcome = scenario_run.execute(
        scenario_run.prepare(request), ProgressLog(quiet=True), threading.Event()
    )
    (series,) = Database.of(server).query(
        f'SELECT rtt_ms FROM "satlab_ping" WHERE "@run_id" = \'{outcome.folder.name}\' AND rtt_ms > 0'  # noqa: S608
    )
    records = [
        json.loads(text) for text in (outcome.folder / influx.STATISTICS).read_text().splitlines()
    ]
    assert sorted(row[1] for row in series["values"]) == sorted(
        r["rtt_ms"] for r in records if "rtt_ms" in r
    )
    directions = Database.of(server).query(
        f'SELECT sum(out_packets) FROM "satlink" WHERE "@run_id" = \'{outcome.folder.name}\' GROUP BY "@suffix"'  # noqa: S608
    )
    assert {each["tags"]["@suffix"] for each in directions} >= {"forward", "return"}
    assert all(each["values"][0][1] >= 3 for each in directions)


# --- the dashboard --------------------------------------------------------------------------------

DASHBOARD = paths.ROOT / "docs" / "dashboards" / "grafana-satlab.json"


@pytest.mark.promise("P52")
def test_the_dashboard_shows_what_jobs_send(server: str) -> None:
    """Every query of the dashboard returns a series after all declared statistics and link figures
    were sent.
    """
    database = Database.of(server)
    for file in paths.JOBS.glob("*/files/satlab_*.yml"):
        names = [statistic["name"] for statistic in yaml.safe_load(file.read_text())["statistics"]]
        figures = {
            name: 1.0 for name in names if not name.endswith(("_json", "_pcapng"))
        }  # those are files
        database.write([line(record("s", file.stem, is_file=False, **figures), "some-run")])
    database.write(
        influx.link_points(link_sample(**dict.fromkeys(prometheus.HELP, 1.0)), "some-run")
    )
    board = json.loads(DASHBOARD.read_text())
    queries = [target["query"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) == len(set(queries)) >= 10
    for query in [*queries, board["templating"]["list"][0]["query"]]:
        for name, value in {
            "$run": "some-run",
            "$timeFilter": "time > 0",
            "$__interval": "1s",
        }.items():
            query = query.replace(name, value)  # noqa: PLW2901
        series = database.query(query)
        assert series, query
        assert all(None not in row for each in series for row in each["values"]), query
