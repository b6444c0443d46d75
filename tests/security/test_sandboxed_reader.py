# SPDX-License-Identifier: GPL-3.0-or-later
"""T28 and T29 of the threat table: a process without rights parses raw files, with a deadline and
little memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab.common import paths
from satlab.common.errors import HostError
from satlab.lab import privileges
from satlab.run import sandboxed_reader
from tests.security.hostile_run import long_run, many_values, plant

LOAD = "raw/files/satlab_page_load-3/page_load_json.json"
MEASURE = """
import resource, sys
from pathlib import Path
from collect import run_records
run_records.collect(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return example_run.write(tmp_path, Example(duration_s=6.0, loads={"h1": 2}))


@pytest.fixture
def steered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed_reader, "MODULE", "tests.security.hungry_reader")
    monkeypatch.setattr(sandboxed_reader, "FILE_S", 4.0)
    monkeypatch.setattr(sandboxed_reader, "MEMORY_BYTES", 300 << 20)


def steer(run: Path, word: str, name: str = LOAD) -> None:
    path = run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"url": word}))


def reasons(run: Path) -> list[str]:
    """Return why page loads failed; the other files of the run still have their figures."""
    rows = collect.summaries(sandboxed_reader.collected(run).records)
    assert [row for row in rows if row["metric"] == "goodput_bps" and row["status"] == "ok"]
    assert [row for row in rows if row["metric"] == "link_cpu_s" and row["status"] == "ok"]
    found = [
        row["reason"]
        for row in rows
        if row["metric"] == "page_load_time_ms" and row["status"] == "failed"
    ]
    return [reason for reason in found if reason.startswith(Path(LOAD).name)]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("hang", "its reader did not end within 4 s"),
        ("eat", "more than 300 MiB of memory"),
        ("die", "its reader: "),
    ],
)
@pytest.mark.usefixtures("steered")
def test_t28_a_file_that_ends_its_reader_is_a_failed_sample(
    run: Path, word: str, reason: str
) -> None:
    steer(run, word)
    (found,) = reasons(run)
    assert reason in found, found


def test_t28_faults_without_number_end_their_reader_alone(run: Path) -> None:
    many_values(run / LOAD)
    (found,) = reasons(run)
    assert "more than 384 MiB of memory" in found or "has 1900000 faults" in found, found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.usefixtures("steered")
def test_t28_a_reader_has_no_right_to_anything(run: Path) -> None:
    (run.parent / "outside").write_text("not of the run")
    steer(run, "look")
    (found,) = reasons(run)
    lies, missing = "lies outside its folder", "[Errno 2] No such file or directory"
    expected = [True, "Network is unreachable", "0" * 16, ["out-0"], [lies, lies, lies, missing]]
    assert found == f"{Path(LOAD).name}: sees {expected}"


@pytest.mark.usefixtures("steered")
def test_t28_after_some_such_files_no_other_of_a_job_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_reader, "MOST_LEFT_OUT", 1)
    for word, name in {"die": LOAD, "hang": LOAD.replace("json.json", "json-2.json")}.items():
        steer(run, word, name)
    rows = collect.summaries(sandboxed_reader.collected(run).records)
    why = [row["reason"] for row in rows if row["reason"].startswith("page_load_json-2.json: ")]
    assert why and "1 other files ended their reader" in why[0]
    assert [row for row in rows if row["metric"] == "link_cpu_s" and row["status"] == "ok"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t28_an_ordinary_user_s_reader_has_the_same_limits(run: Path, tmp_path: Path) -> None:
    """Without root there is no sandbox; deadline and memory are those of root's reader."""
    steer(run, "eat")
    uid, state = privileges.new_uid(), tmp_path / "theirs"
    state.mkdir()
    for path in (run, *run.rglob("*"), state):
        os.chown(path, uid, uid)
    program = f"""
from pathlib import Path
import collect
from satlab.run import sandboxed_reader
sandboxed_reader.MODULE, sandboxed_reader.MEMORY_BYTES = "tests.security.hungry_reader", 300 << 20
rows = collect.summaries(sandboxed_reader.collected(Path({str(run)!r})).records)
print([row["reason"] for row in rows if row["metric"] == "page_load_time_ms" and row["status"] == "failed"][0])
"""
    argv = privileges.drop_argv(uid, [*privileges.program_paths(), run, state])
    environment = {
        "PYTHONPATH": paths.PYTHONPATH,
        "TMPDIR": str(state),
        "PATH": paths.STANDARD_PATH,
    }
    done = subprocess.run(
        [*argv, sys.executable, "-c", program],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "its reader took more than 300 MiB of memory" in done.stdout, (done.stdout, done.stderr)


def test_t28_a_reader_that_cannot_start_is_an_error(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed_reader, "MODULE", "collect.no_such_module")
    with pytest.raises(HostError, match=r"cannot be read: its reader: .*no_such_module"):
        sandboxed_reader.collected(run)
    assert not (run / "records.parquet").exists()


def peak_bytes(run: Path) -> int:
    environment = os.environ | {
        "PYTHONPATH": paths.PYTHONPATH,
        "POLARS_MAX_THREADS": sandboxed_reader.THREADS,
    }
    argv = [sys.executable, "-c", MEASURE, str(run)]
    return int(
        subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    )


def test_t29_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """Eight hours have 288,000 samples: `python -m tests.security.hostile_run` collects them."""
    short, long = (peak_bytes(long_run(tmp_path / str(n), n)) for n in (6_000, 26_000))
    assert (long - short) / 20_000 < 300, f"{short / 1e6:.0f} MB, {long / 1e6:.0f} MB"


def test_t29_hostile_files_of_all_kinds_are_failed_samples(run: Path) -> None:
    planted = plant(run, 40)
    rows = collect.summaries(sandboxed_reader.collected(run).records)
    bad = [
        row for row in rows if row["metric"] == "page_load_time_ms" and row["status"] == "failed"
    ]
    instances = {row["labels"].get("instance") for row in bad}
    good = {f"{number}" for number in range(100, 100 + len(planted)) if number % 5 in (1, 4)}
    assert instances >= {path.parent.name.rpartition("-")[2] for path in planted} - good
    assert all(row["reason"] for row in bad)
