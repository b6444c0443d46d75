# SPDX-License-Identifier: GPL-3.0-or-later
import http.server
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collect.video import Video, records
from satlab.common import paths
from satlab.lab import web_target


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_video")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with the video's manifest and segments."""
    web_target.build(web_target.load("video"), tmp_path / "www" / "video")
    return tmp_path / "www"


def test_segments_have_the_bytes_of_their_bitrates(job: ModuleType, root: Path) -> None:
    rates = job.read_rates(root, "video", 4.0)
    assert [rate["bitrate_bps"] for rate in rates] == [
        400_000,
        800_000,
        1_600_000,
        3_200_000,
        6_400_000,
    ]
    assert all(
        (root / "video/site" / rate["path"]).stat().st_size == rate["bytes"] for rate in rates
    )
    with pytest.raises(job.JobError, match="page other"):
        job.read_rates(root, "other", 4.0)


def test_a_browser_reaches_the_server_and_the_player_alone(job: ModuleType, tmp_path: Path) -> None:
    if not shutil.which("chromium"):
        pytest.skip("needs Chromium")
    made = job.Video("video", "h3", IPv4Address("198.18.4.2"), [], 4.0, 1, 20.0, "pin=")
    argv = job.browser_argv(made, tmp_path, 8000)
    assert (
        "--host-resolver-rules=MAP video.satlab.test 198.18.4.2,MAP * ~NOTFOUND,EXCLUDE 127.0.0.1"
        in argv
    )
    assert "--origin-to-force-quic-on=video.satlab.test:443" in argv
    assert "--ignore-certificate-errors-spki-list=pin=" in argv


def test_a_browser_that_ends_by_itself_is_a_fault(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "browser_argv", lambda *_: ["false"])
    made = job.Video("video", "h3", IPv4Address("198.18.4.2"), [], 4.0, 1, 20.0, "")
    playback = job.play(made, threading.Event())
    assert job.document(made, playback, 1.0)["fault"] == "the browser ended with status 1"


def test_a_missing_network_log_is_a_fault_of_what_is_stored(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    playback = job.Playback([{"index": 0}], "")
    playback.ended.set()  # the player has reported its end
    monkeypatch.setattr(job, "browser_argv", lambda *_: ["true"])
    monkeypatch.setattr(job, "Playback", lambda **_: playback)
    made = job.Video("video", "h3", IPv4Address("198.18.4.2"), [], 4.0, 1, 20.0, "")
    assert "network log" in job.document(made, job.play(made, threading.Event()), 1.0)["fault"]


def test_segments_over_another_protocol_are_a_fault(job: ModuleType) -> None:
    made = job.Video("video", "h3", IPv4Address("198.18.4.2"), [], 4.0, 1, 20.0, "")
    playback = job.Playback([{"index": 0}], "", "h1")
    assert job.document(made, playback, 1.0)["fault"] == "segments came over h1"


@pytest.mark.parametrize(
    ("session", "protocol"), [("QUIC_SESSION", "h3"), ("HTTP2_SESSION", "h2"), ("SOCKET", "h1")]
)
def test_the_protocol_is_that_of_the_browser_s_sessions_with_the_host(
    job: ModuleType, tmp_path: Path, session: str, protocol: str
) -> None:
    log, types = tmp_path / "network.json", {"SOCKET": 1, "QUIC_SESSION": 2, "HTTP2_SESSION": 3}
    lines = [
        {"params": {"host": host}, "phase": 1, "source": {"id": 1}, "time": "1", "type": kind}
        for host, kind in (("other.test", 2), ("video.satlab.test", types[session]))
    ]
    head = json.dumps({"constants": {"logEventTypes": types}})[:-1]
    log.write_text(
        f'{head},\n"events": [\n'
        + "".join(json.dumps(line, separators=(",", ":")) + ",\n" for line in lines)
    )
    assert job.spoken(log, "video.satlab.test") == protocol
    log.write_text("")
    with pytest.raises(job.JobError):
        job.spoken(log, "video.satlab.test")


def test_reports_of_a_player_are_bounded(job: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.collect_agent, "send_stat", lambda *_, **__: None)
    playback = job.Playback(most_segments=2)
    for _ in range(5):
        playback.take("/segment", {"bitrate_bps": 1, "buffer_s": 0, "stalled_s": 0})
    playback.take("/end", {"error": "x" * 1000, "player": "dash.js" * 100, "unknown": 1})
    assert (len(playback.segments), len(playback.error)) == (2, 300)
    assert playback.by_player == {"player": ("dash.js" * 100)[:100]}


def test_dash_js_that_is_not_there_is_an_error_only_if_it_was_asked_for(
    job: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATLAB_DASHJS", str(tmp_path))
    assert job.read_dashjs("auto") == job.read_dashjs("own") == b""
    with pytest.raises(job.JobError, match=r"dash\.js"):
        job.read_dashjs("dashjs")
    file = tmp_path / job.DASHJS
    file.parent.mkdir(parents=True)
    file.write_bytes(b"library")
    assert job.read_dashjs("auto") == job.read_dashjs("dashjs") == b"library"
    assert job.read_dashjs("own") == b""


class Server(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def served(root: Path) -> Iterator[None]:
    """Serve the segments on port 80 of the loopback interface, as the job expects a server."""
    try:
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.80", 80), partial(Server, directory=str(root / "video/site"))
        )
    except OSError as error:
        pytest.skip(f"port 80 of 127.0.0.80: {error}")
    with server:  # closes its socket: a connection that the browser leaves open would hold it
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@pytest.mark.browser
def test_a_video_is_played_to_its_end(
    trial: Callable[[str], Any], root: Path, served: None, tmp_path: Path
) -> None:
    del served
    job = trial("satlab_video")
    words = ("h1", "127.0.0.80", "-t", "4", "-s", "1", "--root", str(root), "--pki", str(tmp_path))
    status, output = job.run(*words, HOME=str(tmp_path))
    assert status == 0, output
    (file,) = (tmp_path / "files").rglob("video_json*.json")
    content = json.loads(file.read_text())
    Video.model_validate(content)
    assert [each["index"] for each in content["segments"]] == [0, 1, 2, 3]
    assert content["segments"][0]["bitrate_bps"] < content["segments"][-1]["bitrate_bps"]


@pytest.mark.browser
def test_dash_js_plays_a_video_to_its_end(
    trial: Callable[[str], Any], root: Path, served: None, tmp_path: Path
) -> None:
    del served
    if not (paths.DASHJS / "node_modules").exists():
        pytest.skip("needs dash.js: ./satlab --install dashjs")
    job = trial("satlab_video")
    words = ["h1", "127.0.0.80", "-t", "6", "-s", "1", "-P", "dashjs", "--root", str(root)]
    status, output = job.run(*words, HOME=str(tmp_path), SATLAB_DASHJS=str(paths.DASHJS))
    assert status == 0, output
    content = Video.model_validate(job.stored("video_json"))
    assert content.player.startswith("dash.js 5.")
    assert {each.index for each in content.segments} == set(range(6))
    assert 0 < (content.startup_s or 0) < 30
    assert 4e5 < (content.bitrate_bps or 0) <= 6.4e6 * 4, "segments of 1 s have the bytes of 4 s"
    figures = {record.metric: record.value for record in records(content, {})}
    assert figures["video_bitrate_bps"] == content.bitrate_bps
    assert figures["video_switches_count"] == content.switches


@pytest.mark.browser
def test_a_server_that_is_not_there_is_the_reason(
    trial: Callable[[str], Any], root: Path, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.81", 0))
    words = ("h1", "127.0.0.81", "-t", "4", "--root", str(root), "--pki", str(tmp_path))
    status, output = trial("satlab_video").run(*words, HOME=str(tmp_path))
    assert (status, "Failed to fetch" in output) == (1, True), output
