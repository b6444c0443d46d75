# SPDX-License-Identifier: GPL-3.0-or-later
"""Chromium loads pages over HTTP/3 through two transparent proxies:

Kepler in each mode, several domains in one.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.lab import pki, web_target
from tests import job_programs, json_lines
from tests.pep_chain import CLIENT, DEADLINE_S, SERVER, Chain, chain
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.browser]
NAME = "kepler.satlab.test"
LOADS = int(os.environ.get("SATLAB_SATPEP_LOADS", "1"))


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for program in ("chromium", "gtlsserver", "nft"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            pytest.skip(f"needs {program}")
    if not paths.SATPEP.exists():
        pytest.skip(f"{paths.SATPEP} is not built")
    folder = tmp_path_factory.mktemp("satpep")
    pages = [web_target.load(name) for name in ("kepler", "article")]
    for page in pages:
        web_target.build(page, folder / "www" / page.name)
    pki.create(
        folder / "pki", [page.host for page in pages], [ip_address(SERVER)], datetime.now(UTC)
    )
    with chain(folder, folder / "pki") as made:
        yield made


def job(row: Chain, role: str, name: str, place: Path, *argv: str) -> "subprocess.Popen[str]":
    """Start an OpenBACH job on a node; what it sends goes to `place`."""
    (place / "raw").mkdir(parents=True)
    home = row.home()
    places = {"HOME": str(home), "TMPDIR": str(home), "SATLAB_PKI": str(row.pki)}
    www = str(row.folder / "www")
    words = job_programs.command(name, role, place / "raw", *argv, SATLAB_WWW=www, **places)
    return row.start(role, *words)


@contextlib.contextmanager
def web_server(row: Chain, place: Path, *argv: str) -> Iterator[None]:
    """Serve a page over HTTP/3 on the server;

    `place` is for what the job sends. After a fault all proxies end.
    """
    server = job(row, "server", "satlab_web_server", place, "-P", "h3", "-B", SERVER, *argv)
    try:
        until(
            lambda: server.poll() is not None or any("ready" in s for s in statistics(place)),
            "readiness",
        )
        yield
    except BaseException:
        row.end()
        raise
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE_S)


def stored(place: Path, statistic: str) -> list[Any]:
    """Return the JSON files that a job has stored."""
    names = [s[statistic] for s in statistics(place) if statistic in s]
    return [json.loads((place / "raw" / name).read_text()) for name in names]


def statistics(place: Path) -> list[dict[str, Any]]:
    return json_lines.read(place / "raw" / "stats.jsonl")


@pytest.mark.parametrize("mode", ["default", "h3-capable", "warm"])
@pytest.mark.promise("P68")
def test_the_whole_page_comes_over_h3_through_both_proxies(row: Chain, mode: str) -> None:
    there, here = row.folder / f"{mode}-s", row.folder / f"{mode}-c"
    with web_server(row, there):
        gw = row.transparent("gw", "--mode=h3-capable" if mode == "warm" else f"--mode={mode}")
        prime = (f"--prime={NAME}", f"--next-hop={SERVER}:443") if mode == "warm" else ()
        st = row.transparent("st", f"--mode={mode}", *prime)
        if mode == "warm":
            st.line("primed")
        load = job(row, "client", "satlab_page_load", here, "h3", SERVER, "-n", str(LOADS))
        _, errors = load.communicate(timeout=DEADLINE_S * LOADS)
        assert load.returncode == 0, errors
    loads = stored(here, "page_load_json")
    assert [(r["status"], r["objects"], r["body_bytes"]) for r in loads] == [
        ("ok", 75, 815_804)
    ] * LOADS
    assert [r["protocols"] for r in loads] == [{"h3": 75}] * LOADS
    for proxy in (gw, st):
        assert proxy.end() == 0
        pages = [line for line in proxy.lines("closed") if line["from_server"]["bytes"] > 815_804]
        assert len(pages) == LOADS
        assert {line["alpn"] for line in pages} == {"h3"}
        # Connections that fetch a ticket come from the proxy itself.
        clients = [
            line for line in proxy.lines("accepted") if line["client"].startswith(f"{CLIENT}:")
        ]
        assert len(clients) >= LOADS
    if mode == "warm":
        assert all(line["zero_rtt"] for line in st.lines("closed"))


@pytest.mark.promise("P43")
def test_each_domain_of_a_page_comes_through_both_proxies_by_connections_of_its_own(
    row: Chain,
) -> None:
    page = web_target.load("article")
    there, here = row.folder / "domains-s", row.folder / "domains-c"
    with web_server(row, there, "-p", page.name):
        gw, st = (
            row.transparent(role, "--mode=h3-capable", f"--domains-of={page.host}")
            for role in ("gw", "st")
        )
        load = job(
            row, "client", "satlab_page_load", here, "h3", SERVER, "-n", "1", "-p", page.name
        )
        _, errors = load.communicate(timeout=DEADLINE_S)
        assert load.returncode == 0, errors
    (record,) = stored(here, "page_load_json")
    assert (record["status"], record["body_bytes"]) == ("ok", page.total_bytes), record["reason"]
    assert record["protocols"] == {"h3": len(page.objects)}
    for proxy in (gw, st):
        assert proxy.end() == 0
        assert {line["server_name"] for line in proxy.lines("accepted")} == set(page.hosts)
        assert all(line["outcome"] != "failed" for line in proxy.lines("closed"))
