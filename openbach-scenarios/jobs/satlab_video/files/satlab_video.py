#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: play an adaptive video over HTTP/1.1, HTTP/2 or HTTP/3, and report bitrate, stalls
and start-up.

The player in Chromium is dash.js (dash_player.html) or our own (player.html); the job serves both on
the loopback interface. Only a picture of one colour is decoded. A segment has as many bytes as its
bitrate and its length make. Exit statuses: 0 played to the end, 1 not, or the job was stopped, 2
arguments, 3 no browser, segments, pin or (`--player dashjs`) dash.js.
"""

import argparse
import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import collect_agent
from jobkit import JobError, argument_parser, page_name, real, run_job, stop_event, store_json
from served_page import HOST_SUFFIX, add_certificates, add_pages, read_pin

OWN_PLAYER = Path(__file__).with_name("player.html")
DASH_PLAYER = Path(__file__).with_name("dash_player.html")
DASHJS = "node_modules/dashjs/dist/modern/umd/dash.all.min.js"
"""The library, below $SATLAB_DASHJS or the job's folder."""
PROTOCOLS = {"h1": ("http", 80), "h2": ("https", 443), "h3": ("https", 443)}
SESSIONS = {"QUIC_SESSION": "h3", "HTTP2_SESSION": "h2"}
"""Events of Chromium's network log that begin a session with a host; without any it was HTTP/1.1.
"""
END_FIELDS = ("player", "startup_s", "stalls", "stalled_s", "switches", "bitrate_bps")
"""What only dash.js reports at the end."""
START_S = 60.0
"""Time for the browser and the first segments, beyond four times the length of the video."""
MAX_REPORT = 1 << 16
MAX_FAULT, MAX_NAME = 300, 100


@dataclass(frozen=True)
class Video:
    """The video and its server.

    `rates`: path, bytes and bitrate of a segment, from low to high.
    """

    page: str
    protocol: str
    server: IPv4Address
    rates: Sequence[dict[str, Any]]
    segment_s: float
    segments: int
    buffer_s: float
    spki: str
    dashjs: bytes = b""
    """The library dash.js; empty: our own player plays."""

    @property
    def host(self) -> str:
        """Return the name that the browser maps to the server's address."""
        return self.page + HOST_SUFFIX

    def settings(self) -> str:
        """Return what the player has to know, as JSON."""
        origin = f"{PROTOCOLS[self.protocol][0]}://{self.host}"
        about = {"origin": origin, "rates": self.rates, "segment_s": self.segment_s}
        return json.dumps(about | {"segments": self.segments, "buffer_s": self.buffer_s})


@dataclass
class Playback:
    """The reports of the player."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    error: str = "not played to the end"
    spoken: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    by_player: dict[str, Any] = field(default_factory=dict)
    """`END_FIELDS`, only from dash.js."""
    most_segments: int = 1 << 16

    def take(self, path: str, content: dict[str, Any]) -> None:
        """Take a report of the player."""
        if path == "/segment" and len(self.segments) < self.most_segments:
            self.segments.append(content)
            names = ("bitrate_bps", "buffer_s", "stalled_s")
            figures = {name: float(content[name]) for name in names}
            collect_agent.send_stat(collect_agent.now(), **figures)
        elif path == "/end":
            self.error = str(content["error"])[:MAX_FAULT]
            self.by_player = {name: content[name] for name in END_FIELDS if name in content}
            if "player" in self.by_player:
                self.by_player["player"] = str(content["player"])[:MAX_NAME]
            self.ended.set()


def read_rates(root: Path, page: str, segment_s: float) -> list[dict[str, Any]]:
    """Return the segments of ROOT/PAGE/manifest.csv, from low to high: its objects but the
    document.
    """
    try:
        with (root / page / "manifest.csv").open(encoding="utf-8", newline="") as file:
            rows = [
                (row["path"], int(row["bytes"]))
                for row in csv.DictReader(file)
                if row["loaded_as"] != "document"
            ]
    except (OSError, KeyError, ValueError) as error:
        raise JobError(
            f"page {page}: {error!r}", "generate the page, and set SATLAB_WWW"
        ) from error
    if not rows:
        raise JobError(f"page {page}: holds no segments", "play another page")
    rates = [
        {"path": path, "bytes": size, "bitrate_bps": round(8 * size / segment_s)}
        for path, size in rows
    ]
    return sorted(rates, key=lambda rate: int(rate["bytes"]))


def browser_argv(video: Video, profile: Path, port: int) -> list[str]:
    """Return Chromium's argv: it knows the server and the player alone, and trusts one key."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise JobError("chromium: not installed", "apt-get install chromium")
    scheme, quic_port = PROTOCOLS[video.protocol]
    argv = [
        found,
        "--headless=new",
        "--no-first-run",
        "--no-proxy-server",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--disable-sync",
        "--disable-domain-reliability",
        "--disable-default-apps",
        "--metrics-recording-only",
        # the player comes from the loopback interface, the segments from the server
        "--disable-web-security",
        "--autoplay-policy=no-user-gesture-required",
        f"--user-data-dir={profile}",
        f"--log-net-log={network_log(profile)}",
        f"--host-resolver-rules=MAP {video.host} {video.server},MAP * ~NOTFOUND,EXCLUDE 127.0.0.1",
        *([f"--ignore-certificate-errors-spki-list={video.spki}"] if scheme == "https" else []),
        f"--origin-to-force-quic-on={video.host}:{quic_port}"
        if video.protocol == "h3"
        else "--disable-quic",
    ]
    can_confine = (
        os.geteuid() != 0
        and subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0
    )
    return [*argv, *([] if can_confine else ["--no-sandbox"]), f"http://127.0.0.1:{port}/"]


def network_log(profile: Path) -> Path:
    """Return the file of Chromium's network log."""
    return profile.with_name("network.json")


def spoken(log: Path, host: str) -> str:
    """Return the protocol that the browser spoke to a host, by the sessions in its network log."""
    try:
        with log.open(encoding="utf-8") as lines:
            types = json.loads(next(lines).rstrip(",\n") + "}")["constants"]["logEventTypes"]
            begins = {types[name]: protocol for name, protocol in SESSIONS.items()}
            for line in lines:
                if (
                    line.startswith('{"params"') and host in line and line.endswith("\n")
                ):  # the last may be incomplete
                    event = json.loads(line.rstrip("]},\n") + "}")
                    if event["type"] in begins:
                        return begins[event["type"]]
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise JobError(f"the browser's network log: {error!r}", "see the job's log") from error
    return "h1"


def handler(video: Video, playback: Playback) -> type[BaseHTTPRequestHandler]:
    """Return what serves the player to the browser, and takes its reports."""
    player = DASH_PLAYER if video.dashjs else OWN_PLAYER
    page = player.read_text(encoding="utf-8").replace("VIDEO;", f"{video.settings()};", 1).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(video.dashjs if self.path == "/dash.js" else page)

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if size <= MAX_REPORT:
                playback.take(self.path, json.loads(self.rfile.read(size)))
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Handler


def play(video: Video, stop: threading.Event) -> Playback:
    """Play the video to its end, to the deadline, or until `stop`."""
    playback = Playback(most_segments=10 * video.segments)
    deadline = time.monotonic() + START_S + 4 * video.segments * video.segment_s
    with (
        tempfile.TemporaryDirectory(prefix="satlab_video_", ignore_cleanup_errors=True) as scratch,
        ThreadingHTTPServer(("127.0.0.1", 0), handler(video, playback)) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        argv = browser_argv(video, Path(scratch) / "profile", server.server_address[1])
        browser = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=sys.stderr, start_new_session=True
        )
        try:
            while not playback.ended.wait(0.2) and time.monotonic() < deadline:
                if stop.is_set():
                    playback.error = "stopped"
                    break
                if browser.poll() is not None:
                    playback.error = f"the browser ended with status {browser.returncode}"
                    break
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended with all that it started
                os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            server.shutdown()
        try:
            playback.spoken = (
                spoken(network_log(Path(scratch) / "profile"), video.host)
                if playback.segments
                else ""
            )
        except JobError as error:  # the segments that came are stored, with the fault
            playback.error = playback.error or str(error)
    return playback


def document(video: Video, playback: Playback, start_unix_s: float) -> dict[str, Any]:
    """Return the job's file (schemas/video.schema.json)."""
    segments, fault = playback.segments, playback.error
    told = dict.fromkeys(END_FIELDS) | {"player": "own"} | playback.by_player
    if not fault and playback.spoken != video.protocol:
        fault = f"segments came over {playback.spoken}"
    return {
        "schema": "satlab/video/1",
        "start_unix_s": start_unix_s,
        "page": video.page,
        "protocol": video.protocol,
        "segment_s": video.segment_s,
        "buffer_s": video.buffer_s,
        "bitrates_bps": [rate["bitrate_bps"] for rate in video.rates],
        "requested_segments": video.segments,
        "fault": fault,
        "segments": segments,
        **told,
    }


def publish(made: dict[str, Any]) -> int:
    """Store the file; return the exit status."""
    answer = store_json("video_json", made)
    if made["fault"]:
        print(f"error: {made['fault']}\nhint: see the job's log", file=sys.stderr)
    return 0 if answer == "OK" and not made["fault"] else 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("protocol", choices=tuple(PROTOCOLS))
    options.add_argument("server_ip", type=IPv4Address)
    options.add_argument(
        "-p",
        "--page",
        type=page_name,
        default="video",
        help="page with the segments (default: video)",
    )
    options.add_argument(
        "-t", "--duration-s", type=real(1, 86400), default=60.0, help="length of the video, s"
    )
    options.add_argument(
        "-s",
        "--segment-s",
        type=real(0.5, 30),
        default=4.0,
        help="length of a segment, s (default: 4)",
    )
    options.add_argument(
        "-b",
        "--buffer-s",
        type=real(1, 600),
        default=20.0,
        help="longest playback buffer, s (default: 20)",
    )
    options.add_argument(
        "-P",
        "--player",
        choices=("auto", "dashjs", "own"),
        default="auto",
        help="auto: dash.js if it is installed, else our own (default)",
    )
    add_pages(options)
    add_certificates(options)
    return options


def read_dashjs(player: str) -> bytes:
    """Return the library dash.js as npm installed it; empty if our own player plays.

    Raises JobError if dash.js was asked for and is not there.
    """
    if player == "own":
        return b""
    folder = os.environ.get("SATLAB_DASHJS") or Path(__file__).parent
    try:
        return (Path(folder) / DASHJS).read_bytes()
    except OSError as error:
        if player == "dashjs":
            hint = "./satlab --install dashjs, or npm ci in the job's folder"
            raise JobError(f"dash.js: {error.strerror}", hint) from error
        print("dash.js is not installed: our own player plays", file=sys.stderr)
        return b""


def main() -> int:
    """Play and report."""
    options = parser().parse_args()
    stop = stop_event()
    video = Video(
        page=options.page,
        protocol=options.protocol,
        server=options.server_ip,
        rates=read_rates(options.root, options.page, options.segment_s),
        segment_s=options.segment_s,
        segments=max(1, round(options.duration_s / options.segment_s)),
        buffer_s=max(options.buffer_s, options.segment_s),
        spki="" if options.protocol == "h1" else read_pin(options.pki),
        dashjs=read_dashjs(options.player),
    )
    start_unix_s = time.time()
    return publish(document(video, play(video, stop), start_unix_s))


if __name__ == "__main__":
    run_job(__file__, main)
