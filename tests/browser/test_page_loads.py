# SPDX-License-Identifier: GPL-3.0-or-later
"""The web server and page load jobs against each other, in two namespaces joined by a wire without
delay.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from collect import observed_page_loads
from satlab.common.paths import JOBS, SCHEMAS, SHIM
from satlab.lab import pki, web_target
from satlab.run.page_import import page_folder
from tests import job_programs, json_lines, namespaces
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.browser]

CLIENT, SERVER = "198.18.200.1", "198.18.200.2"
DEADLINE_S = 180.0
BLACK_HOLE = """
import socket
listener = socket.create_server(("198.18.200.2", 80))
kept = []
while True:
    kept.append(listener.accept())
"""

LOGGING_SERVER = """
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def __init__(self, *args):
        super().__init__(*args, directory=sys.argv[1])
    def log_request(self, code="-", size="-"):
        with open(sys.argv[2], "a") as log:
            log.write(f"{self.command} {self.path}\\n")
http.server.ThreadingHTTPServer(("198.18.200.2", 80), Handler).serve_forever()
"""


@dataclass
class Pair:
    """Two joined namespaces, and a folder with page, certificates and what the jobs send."""

    client: str
    server: str
    folder: Path
    instances: int = 0

    def start(self, node: str, *argv: str) -> "subprocess.Popen[str]":
        inside = ["ip", "netns", "exec", node, *argv]
        return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def job(self, node: str, name: str, *argv: str, **environment: str) -> "Job":
        self.instances += 1
        raw = self.folder / f"raw-{self.instances}"
        raw.mkdir()
        home = self.folder / f"home-{self.instances}"
        home.mkdir()
        own = {
            "HOME": str(home),
            "TMPDIR": str(home),
            "SATLAB_WWW": str(self.folder / "www"),
            "SATLAB_PKI": str(self.folder / "pki"),
        } | environment
        return Job(
            self.start(node, *job_programs.command(name, node, raw, *argv, **own)), raw, home
        )


@dataclass
class Job:
    process: "subprocess.Popen[str]"
    raw: Path
    home: Path

    def statistics(self) -> list[dict[str, Any]]:
        return json_lines.read(self.raw / "stats.jsonl")

    def end(self, *, expect: int) -> str:
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == expect, errors
        assert not list(self.home.glob("satlab_*")), "temporary folders are left"
        return "\n".join(line for line in errors.splitlines() if " debug: " not in line)

    def files(self, statistic: str) -> list[Any]:
        paths = [record[statistic] for record in self.statistics() if statistic in record]
        return [json.loads((self.raw / path).read_text()) for path in paths]

    def loads(self) -> list[Any]:
        records = self.files("page_load_json")
        schema = json.loads((SCHEMAS / "page-load.schema.json").read_text())
        for record in records:
            jsonschema.validate(record, schema)
        return records


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not shutil.which("chromium"):
        pytest.skip("needs chromium and chromedriver")
    folder = tmp_path_factory.mktemp("web")
    pages = [web_target.load(name) for name in ("kepler", "article", "shop")]
    for page in pages:
        web_target.build(page, folder / "www" / page.name)
    pki.create(
        folder / "pki", [page.host for page in pages], [ip_address(SERVER)], datetime.now(UTC)
    )
    client, server = (f"webtest-{os.getpid()}-{role}" for role in ("client", "server"))
    try:
        for node in (client, server):
            namespaces.add(node)
            # As in the lab: a link-local address that comes late would make Chromium drop its
            # requests.
            off = (f"net.ipv6.conf.{which}.disable_ipv6=1" for which in ("all", "default"))
            namespaces.run("ip", "netns", "exec", node, "sysctl", "-qw", *off)
        namespaces.join(
            namespaces.End(client, "lan0", CLIENT), namespaces.End(server, "lan0", SERVER)
        )
        for node, address in ((client, CLIENT), (server, SERVER)):
            words = f"198.18.200.0/24 dev lan0 proto kernel scope link src {address} congctl cubic"
            namespaces.run("ip", "-n", node, "route", "replace", *words.split())
        yield Pair(client, server, folder)
    finally:
        namespaces.remove(client, server)


@contextlib.contextmanager
def web_server(pair: Pair, protocol: str, *argv: str, **environment: str) -> Iterator[Job]:
    job = pair.job(
        pair.server, "satlab_web_server", "-P", protocol, "-B", SERVER, *argv, **environment
    )
    try:
        until(
            lambda: job.process.poll() is not None or any("ready" in s for s in job.statistics()),
            "readiness",
        )
        assert job.process.poll() is None, job.process.communicate()
        yield job
    finally:
        job.process.terminate()
        job.process.wait(DEADLINE_S)


@contextlib.contextmanager
def program(pair: Pair, *argv: str) -> Iterator["subprocess.Popen[str]"]:
    process = pair.start(pair.server, *argv)
    try:
        until(lambda: listed(pair, "-ltnH"), "a listener")
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def page_load(pair: Pair, protocol: str, *argv: str, **environment: str) -> Job:
    return pair.job(pair.client, "satlab_page_load", protocol, SERVER, *argv, **environment)


def loaded(pair: Pair, protocol: str, name: str = "kepler", *argv: str) -> Job:
    """Load a page from a server of ours, once unless told otherwise; all loads must be whole."""
    with web_server(pair, protocol, "-p", name):
        job = page_load(pair, protocol, "-p", name, *(argv or ("-n", "1")))
        job.end(expect=0)
    return job


def listed(pair: Pair, *argv: str) -> str:
    """Return what a program on the server prints of its sockets."""
    inside = ["ip", "netns", "exec", pair.server, "ss", *argv, "sport = :80"]
    return subprocess.run(inside, capture_output=True, check=True, text=True).stdout


def processes_in(pair: Pair) -> list[int]:
    listed = subprocess.run(
        ["ip", "netns", "pids", pair.client], capture_output=True, text=True, check=True
    )
    return [int(pid) for pid in listed.stdout.split()]


@pytest.mark.parametrize(("protocol", "spoken"), [("h1", "http/1.1"), ("h3", "h3")])
@pytest.mark.promise("P42")
def test_two_loads_are_whole_and_over_the_protocol(pair: Pair, protocol: str, spoken: str) -> None:
    with web_server(pair, protocol) as server:
        job = page_load(pair, protocol, "-n", "2")
        job.end(expect=0)
    loads = job.loads()
    assert [(r["status"], r["objects"], r["body_bytes"]) for r in loads] == [
        ("ok", 75, 815_804)
    ] * 2
    assert [r["protocols"] for r in loads] == [{spoken: 75}] * 2
    for record in loads:
        times = [
            record[f"{name}_ms"]
            for name in ("response_start", "first_contentful_paint", "page_load_time")
        ]
        assert 0 < times[0] < times[1] < times[2] < 33_000
        assert record["cpu_user_s"] > 0
    sent = [s for s in job.statistics() if "page_load_time_ms" in s]
    assert [s["page_load_time_ms"] for s in sent] == [r["page_load_time_ms"] for r in loads]
    assert {s["_metadata"]["suffix"] for s in sent} == {loads[0]["url"]}
    (server_file,) = server.files("server_json")
    assert server_file["server"] == {"h1": "h2o", "h3": "gtlsserver"}[protocol]
    assert server_file["congestion_control"]["observed"] == {"h1": ["cubic"], "h3": []}[protocol]
    assert server.end(expect=0) == ""
    assert processes_in(pair) == []


@pytest.mark.parametrize(("protocol", "spoken"), [("h1", "http/1.1"), ("h2", "h2"), ("h3", "h3")])
def test_firefox_loads_the_page_over_the_protocol(pair: Pair, protocol: str, spoken: str) -> None:
    if not shutil.which("firefox-esr") or not shutil.which("certutil"):
        pytest.skip("needs firefox-esr and certutil: ./satlab --install firefox")
    job = loaded(pair, protocol, "kepler", "-n", "1", "-b", "firefox", "-i", "1")
    (record,) = job.loads()
    assert record["protocols"] == {spoken: 75}
    assert "Firefox" in record["browser"]
    names = ("response_start", "first_contentful_paint", "page_load_time")
    times = [record[f"{name}_ms"] for name in names]
    assert 0 < times[0] < times[1] < times[2] < 33_000
    assert record["cumulative_layout_shift"] is None, "Firefox reports none"
    assert processes_in(pair) == []


def test_a_shift_of_the_layout_and_a_click_are_measured(pair: Pair) -> None:
    """A paragraph goes down 400 ms after the start; the handler of a click takes 80 ms."""
    folder = pair.folder / "www" / "moving"
    (folder / "site").mkdir(parents=True, exist_ok=True)
    document = b"""<!DOCTYPE html><link rel="icon" href="data:,"><style>p {height: 300px}</style><p>moves</p>
<script>
const until = performance.now() + 400;
document.onclick = () => { const end = performance.now() + 80; while (performance.now() < end); };
requestAnimationFrame(function wait() {
  if (performance.now() < until) return requestAnimationFrame(wait);
  document.querySelector('p').style.marginTop = '400px';
});
</script><img src="slow.gif">"""
    (folder / "site" / "index.html").write_bytes(document)
    script = LOGGING_SERVER.replace(
        "    def log_request",
        "    def do_GET(self):\n        import time\n"
        "        if 'gif' in self.path: time.sleep(1)\n        super().do_GET()\n    def log_request",
    )
    picture = b"GIF89a\x01\x00\x01\x00\x00\xff\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x00;"
    (folder / "site" / "slow.gif").write_bytes(picture)
    rows = ["path,bytes,loaded_as", f"index.html,{len(document)},document"]
    rows.append(f"slow.gif,{len(picture)},image")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")
    argv = (sys.executable, "-c", script, str(folder / "site"), str(pair.folder / "log"))
    with program(pair, *argv):
        job = page_load(pair, "h1", "-p", "moving", "-n", "1", "-i", "1")
        job.end(expect=0)
    (record,) = job.loads()
    # half of the window's area moves by 400 of its 1024 (or fewer) pixels
    assert 0.05 < record["cumulative_layout_shift"] < 1
    assert 80 <= record["interaction_to_next_paint_ms"] < 2000


def test_an_observed_load_has_pictures_phases_of_requests_netlog_and_keys(pair: Pair) -> None:
    observed = loaded(pair, "h3", "kepler", "-n", "1", "-o", "1", "-l", "1")
    (content,) = observed.files("page_observation_json")
    jsonschema.validate(content, json.loads((SCHEMAS / "page-observation.schema.json").read_text()))
    assert (content["status"], len(content["requests"])) == ("ok", 75)
    assert {one["protocol"] for one in content["requests"]} == {"h3"}
    assert content["requests"][0]["tls_ms"] is not None, "the navigation opens its connection"
    shares = [frame["visual_completeness"] for frame in content["frames"]]
    assert (shares[0], shares[-1]) == (0, 1)
    assert 1 <= sum(frame["jpeg"] is not None for frame in content["frames"]) <= 20
    load = observed_page_loads.PageObservation.model_validate(content)
    assert (
        content["first_contentful_paint_ms"] / 2
        < (load.speed_index_ms or 0)
        < content["frames"][-1]["t_ms"] + 1
    )
    assert len(observed.loads()) == 1, "the observed load is none of these"
    (netlog,) = observed.files("netlog_json")
    kinds = {number: name for name, number in netlog["constants"]["logEventTypes"].items()}
    assert "QUIC_SESSION" in {kinds[event["type"]] for event in netlog["events"]}
    (keys,) = [one["tls_keys_txt"] for one in observed.statistics() if "tls_keys_txt" in one]
    assert "CLIENT_TRAFFIC_SECRET_0" in (observed.raw / keys).read_text()


@pytest.mark.parametrize(
    ("name", "protocol", "spoken"),
    [
        ("article", "h1", "http/1.1"),
        ("article", "h2", "h2"),
        ("article", "h3", "h3"),
        ("shop", "h1", "http/1.1"),
        ("shop", "h3", "h3"),
    ],
)
@pytest.mark.promise("P43")
def test_a_page_of_several_domains_is_whole(
    pair: Pair, name: str, protocol: str, spoken: str
) -> None:
    page = web_target.load(name)
    (record,) = loaded(pair, protocol, name).loads()
    assert (record["status"], record["body_bytes"]) == ("ok", page.total_bytes), record["reason"]
    assert record["protocols"] == {spoken: len(page.objects)}
    assert {urlsplit(one["name"]).hostname for one in record["resources"]} == set(page.hosts)


def test_p321_keys_of_a_load_open_the_packets_of_the_client(pair: Pair) -> None:
    if not (shutil.which("tshark") and shutil.which("dumpcap")):
        pytest.skip("needs tshark")
    with web_server(pair, "h3", "-p", "article"):
        capture = pair.job(pair.client, "satlab_capture", "lan0", "-s", "0", "-m", "20")
        ready = pair.job(pair.client, "satlab_await", "satlab_capture")
        ready.end(expect=0)
        load = page_load(pair, "h3", "-p", "article", "-n", "0", "-o", "1", "-l", "1")
        load.end(expect=0)
        capture.process.terminate()
        capture.end(expect=0)
    assert load.loads() == [], "no load was measured"
    (packets,) = [
        capture.raw / one["capture_pcapng"]
        for one in capture.statistics()
        if "capture_pcapng" in one
    ]
    (keys,) = [load.raw / one["tls_keys_txt"] for one in load.statistics() if "tls_keys_txt" in one]

    def frames(*options: str) -> list[str]:
        shown = "-Y http3 -T fields -e quic.stream.stream_id".split()
        argv = ["tshark", "-r", str(packets), *options, *shown]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()

    assert len(frames("-o", f"tls.keylog_file:{keys}")) >= len(web_target.load("article").objects)
    assert frames() == [], "without the keys nobody sees them"


def test_each_domain_has_connections_of_its_own(pair: Pair) -> None:
    job = loaded(pair, "h3", "article", "-n", "0", "-o", "1")
    (content,) = job.files("page_observation_json")
    assert content["status"] == "ok", content["reason"]
    opened: dict[str, set[str]] = {}
    for one in content["requests"]:
        opened.setdefault(urlsplit(one["url"]).hostname or "", set()).add(one["connection"])
    assert set(opened) == set(web_target.load("article").hosts)
    assert not any(a & b for a, b in combinations(opened.values(), 2))


def test_an_imported_page_is_whole_over_http_3_with_its_domains(pair: Pair, tmp_path: Path) -> None:
    kinds = {
        "": "text/html",
        "a.css": "text/css",
        "a.js": "text/javascript",
        "a.png": "image/png",
        "b": "text/html",
    }
    entries = []
    for number, (path, mime) in enumerate(kinds.items()):
        url, content = f"https://www{number % 3}.example.com/{path}", {"size": 9_000}
        answer = {
            "status": 200,
            "bodySize": 9_000 + number,
            "content": content | {"mimeType": mime},
        }
        entries.append({"request": {"method": "GET", "url": url}, "response": answer})
    (tmp_path / "x.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    page = page_folder.run(
        tmp_path / "x.har", "imported", PurePosixPath("index.html"), tmp_path
    ).page
    web_target.build(page, pair.folder / "www" / "imported")
    (record,) = loaded(pair, "h3", "imported").loads()
    assert (record["status"], record["body_bytes"]) == ("ok", 5 * 9_000 + 10), record["reason"]
    assert {urlsplit(one["name"]).hostname for one in record["resources"]} == {
        f"{domain}imported.satlab.test" for domain in ("", "www1.example.com.", "www2.example.com.")
    }


def test_the_browser_asks_for_each_object_once_and_for_nothing_else(pair: Pair) -> None:
    site, log = pair.folder / "www" / "kepler" / "site", pair.folder / "requests.log"
    with program(pair, sys.executable, "-c", LOGGING_SERVER, str(site), str(log)):
        job = page_load(pair, "h1", "-n", "1")
        job.end(expect=0)
    asked = Counter(log.read_text().splitlines())
    objects = web_target.load("kepler").objects
    expected = Counter("GET /" + ("" if o.loaded_as == "document" else o.path) for o in objects)
    assert asked == expected + Counter(["HEAD /"]), (
        "one HEAD, after the load, asks for the server's name"
    )


def test_the_browser_finds_images_and_style_sheets_valid(pair: Pair) -> None:
    look = f"""
import importlib.util, json, sys
from ipaddress import IPv4Address
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
spec = importlib.util.spec_from_file_location("job", sys.argv[1])
job = importlib.util.module_from_spec(spec)
sys.modules["job"] = job
spec.loader.exec_module(job)
target = job.read_target("kepler", "h1", IPv4Address("{SERVER}"), Path(sys.argv[2]), Path("/nowhere"))
job.adopt_orphans()
with job.fresh_browser(target, job.find_programs("chromium"), 33.0) as driver:
    assert not job.navigate(driver, target.url)
    print(json.dumps(driver.execute_script('''return {{
        images: [...document.images].filter(i => i.complete
            && i.naturalWidth == i.width && i.naturalHeight == i.height).length,
        sheets: [...document.styleSheets].filter(s => s.cssRules.length > 0).length,
        frames: frames.length, encoding: document.characterSet, text: document.querySelector("p").innerText}}''')))
"""
    script = JOBS / "satlab_page_load" / "files" / "satlab_page_load.py"
    environment = ["env", f"PYTHONPATH={SHIM}"]
    with web_server(pair, "h1"):
        argv = [*environment, sys.executable, "-c", look, str(script), str(pair.folder / "www")]
        process = pair.start(pair.client, *argv)
        out, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    found = json.loads(out)
    assert (found["images"], found["sheets"], found["frames"]) == (32, 9, 33)
    assert found["encoding"] == "windows-1252", "what browsers take ISO-8859-1 for"
    assert found["text"].endswith("\xa7 \xe9 \xfc.")


def test_t08_a_wrong_certificate_fails_the_load(pair: Pair) -> None:
    other = pki.create(
        pair.folder / "other-pki", ["kepler.satlab.test"], [ip_address(SERVER)], datetime.now(UTC)
    )
    with web_server(pair, "h3"):
        job = page_load(pair, "h3", "-n", "1", SATLAB_PKI=str(other.folder))
        errors = job.end(expect=1)
    (record,) = job.loads()
    assert (record["status"], record["page_load_time_ms"]) == ("failed", None)
    assert "ERR_QUIC" in record["reason"], errors


@pytest.mark.parametrize("protocol", ["h1", "h3"])
@pytest.mark.promise("P35")
def test_a_missing_file_is_a_failed_sample(pair: Pair, tmp_path: Path, protocol: str) -> None:
    www = tmp_path / "www"
    shutil.copytree(pair.folder / "www" / "kepler", www / "kepler")
    (www / "kepler" / "site" / "txt" / "d05.txt").unlink()
    with web_server(pair, protocol, SATLAB_WWW=str(www)):
        job = page_load(pair, protocol, "-n", "1")
        job.end(expect=1)
    (record,) = job.loads()
    assert record["status"] == "failed"
    assert "status not 200: /txt/d05.txt 404" in record["reason"]
    assert not [s for s in job.statistics() if "page_load_time_ms" in s]


def test_no_server_is_a_failed_sample(pair: Pair) -> None:
    job = page_load(pair, "h1", "-n", "1")
    job.end(expect=1)
    assert [r["reason"] for r in job.loads()] == ["unknown error: net::ERR_CONNECTION_REFUSED"]


@pytest.mark.promise("P35")
def test_a_load_without_an_end_is_censored(pair: Pair) -> None:
    with program(pair, sys.executable, "-c", BLACK_HOLE):
        job = page_load(pair, "h1", "-n", "1", "-t", "5")
        job.end(expect=1)
    (record,) = job.loads()
    assert (record["status"], record["reason"]) == ("censored", "no load event within 5 s")
    assert 5 <= record["wall_s"] < 13
    assert record["page_load_time_ms"] is None


def test_a_killed_browser_is_a_failed_sample_and_the_next_load_starts_anew(pair: Pair) -> None:
    with program(pair, sys.executable, "-c", BLACK_HOLE):
        job = page_load(pair, "h1", "-n", "2", "-t", "5")

        def browsers() -> list[int]:
            return [p for p in processes_in(pair) if b"--remote-debugging-port" in command_line(p)]

        until(browsers, "a browser")
        until(lambda: listed(pair, "-tnH", "state", "established"), "a request")
        for pid in browsers():
            os.kill(pid, signal.SIGKILL)
        job.end(expect=1)
    first, second = job.loads()
    assert (first["status"], second["status"]) == ("failed", "censored")
    assert first["reason"]
    assert processes_in(pair) == []


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_stopped_job_keeps_finished_loads_and_leaves_no_process(pair: Pair) -> None:
    with web_server(pair, "h1"):
        job = page_load(pair, "h1", "-n", "50")
        until(lambda: any("page_load_json" in s for s in job.statistics()), "a finished load")
        job.process.send_signal(signal.SIGTERM)
        errors = job.end(expect=1)
    assert "stopped before all loads were done" in errors
    loads = job.loads()
    assert loads[0]["status"] == "ok"
    assert [r["reason"] for r in loads][-1] in ("", "stopped")
    assert processes_in(pair) == []


@pytest.mark.parametrize(
    ("protocol", "place"), [("h1", f"TCP {SERVER}:80"), ("h3", f"UDP {SERVER}:443")]
)
def test_a_port_in_use_is_one_clear_line_and_status_3(
    pair: Pair, protocol: str, place: str
) -> None:
    with web_server(pair, protocol):
        second = pair.job(pair.server, "satlab_web_server", "-P", protocol, "-B", SERVER)
        errors = second.end(expect=3)
    assert errors.splitlines()[0] == f"error: {place}: port in use"


def test_another_congestion_control_on_the_route_ends_the_server(pair: Pair) -> None:
    with web_server(pair, "h1", "-C", "reno") as server:
        job = page_load(pair, "h1", "-n", "2")
        job.process.communicate(timeout=DEADLINE_S)
        errors = server.end(expect=1)
    assert errors.splitlines()[0] == "error: TCP uses cubic, not reno"
    (server_file,) = server.files("server_json")
    assert server_file["congestion_control"] == {"asked": "reno", "observed": ["cubic"]}
    assert [
        s["congestion_control_ok"] for s in server.statistics() if "congestion_control_ok" in s
    ] == [0]
