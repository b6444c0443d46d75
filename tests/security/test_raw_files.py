# SPDX-License-Identifier: GPL-3.0-or-later
"""T16 of the threat table: whatever a job leaves in its folder, the run's records are made, within
bounds.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import collect
from collect import PageLoad, raw
from collect.fixtures import example_run
from collect.fixtures.example_run import Example

pytestmark = pytest.mark.timeout(60)  # a reader that waits for a writer waits for ever
TRANSFER = "satlab_iperf3-2/iperf3_json.json"
LOAD = "satlab_page_load-3/page_load_json.json"
FIGURES = {TRANSFER: "goodput_bps", LOAD: "page_load_time_ms"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return example_run.write(tmp_path, Example(duration_s=6.0, loads={"h1": 2}))


def failed(run: Path, metric: str) -> list[str]:
    """Return the reasons of failed samples; the other files of the run still have their figures."""
    rows = collect.summaries(collect.collect(run))
    assert [row for row in rows if row["metric"] == "link_cpu_s" and row["status"] == "ok"]
    return [row["reason"] for row in rows if row["metric"] == metric and row["status"] == "failed"]


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def link_out(path: Path) -> None:
    copy = path.parents[4] / "outside.json"
    shutil.copy(path.parents[4] / "kept.json", copy)
    path.symlink_to(copy)


REPLACED: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "is not a plain file"),
    "link": (link_out, "is not a plain file"),
    "link to nothing": (lambda path: path.symlink_to("nowhere"), "is not a plain file"),
    "folder": (Path.mkdir, "is not a plain file"),
    "sparse": (sparse, f"has more than {raw.DOCUMENT_BYTES} bytes"),
    "values": (
        lambda path: path.write_bytes(b"[" + b"1," * raw.MOST_VALUES + b"1]"),
        "holds more than",
    ),
    "deep": (lambda path: path.write_bytes(b"[" * 100_000), "JSON"),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(("make", "reason"), REPLACED.values(), ids=REPLACED)
def test_t16_a_special_or_oversized_file_is_a_failed_sample(
    run: Path, name: str, make: Callable[[Path], object], reason: str
) -> None:
    path = run / "raw" / "files" / name
    path.rename(run.parent / "kept.json")  # a link to a good document has no figures either
    make(path)
    reasons = failed(run, FIGURES[name])
    assert len(reasons) == 1
    assert reasons[0].startswith(f"{path.name}: ")
    assert reason in reasons[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t16_devices_are_not_opened(run: Path) -> None:
    path = run / "raw" / "files" / TRANSFER
    path.unlink()
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero, which never ends
    assert failed(run, "goodput_bps") == ["iperf3_json.json: is not a plain file"]


def test_t16_a_folder_that_is_a_link_is_not_followed(run: Path, tmp_path: Path) -> None:
    folder = run / "raw" / "files" / "satlab_page_load-3"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    reason = failed(run, "page_load_time_ms")[0]
    assert "is missing: the job stored no result" in reason
    content = raw.read_json(run / "raw", f"files/{LOAD}", PageLoad.model_validate_json)
    assert isinstance(content, raw.Unreadable)


@pytest.mark.parametrize(
    "name", ["../manifest.json", "files/../../manifest.json", "/etc/passwd", "a\0b", ""]
)
def test_t16_names_lead_nowhere_else(run: Path, name: str) -> None:
    content = raw.read_json(run / "raw", name, PageLoad.model_validate_json)
    assert content == raw.Unreadable(f"{Path(name).name}: lies outside its folder")


def test_t16_faults_are_not_listed_without_bound(run: Path) -> None:
    path = run / "raw" / "files" / LOAD
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"resources": [1] * 5000}))
    assert failed(run, "page_load_time_ms") == ["page_load_json.json: has 5000 faults"]


HUGE = 10**400


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (TRANSFER, lambda document: document["end"]["sum_received"].update(bytes=HUGE)),
        (TRANSFER, lambda document: document["start"]["timestamp"].update(timesecs=HUGE)),
        (LOAD, lambda document: document.update(objects=HUGE)),
    ],
)
def test_t16_impossible_values_are_failed_samples(
    run: Path, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    path = run / "raw" / "files" / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    (reason,) = failed(run, FIGURES[name])
    assert "its values make no sense" in reason


def test_t16_names_that_are_no_text_end_nothing(run: Path) -> None:
    (run / "raw" / "files" / os.fsdecode(b"\xff\xfe-1")).mkdir()
    rows = collect.summaries(collect.collect(run))
    assert [row for row in rows if row["labels"].get("file") == "raw/files/\ufffd\ufffd-1"]


def test_t16_lines_have_bounds(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "LINE_BYTES", 1000)
    frame = collect.collect(run)
    (note,) = [
        row for row in collect.summaries(frame) if row["labels"].get("file") == "raw/link.jsonl"
    ]
    assert (note["metric"], note["status"]) == ("raw_file_ok", "failed")
    assert note["reason"] == "link.jsonl: line 2: has more than 1000 bytes; the rest was left out"
    monkeypatch.setattr(raw, "LINES_BYTES", 1000)
    reasons = {row["reason"] for row in collect.summaries(collect.collect(run))}
    assert "link.jsonl: has more than 1000 bytes" in reasons
