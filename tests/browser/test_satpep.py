# SPDX-License-Identifier: GPL-3.0-or-later
"""Chromium loads the Kepler page over HTTP/3 through two transparent proxies, in each of their modes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.common.paths import JOBS, SHIM
from satlab.netlab import pki, web_target
from tests.pepchain import CLIENT, DEADLINE_S, SERVER, Chain, chain
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
    web_target.build(web_target.load("kepler"), folder / "www" / "kepler")
    pki.create(folder / "pki", [NAME], [ip_address(SERVER)], datetime.now(UTC))
    with chain(folder, folder / "pki") as made:
        yield made


def job(row: Chain, role: str, name: str, place: Path, *argv: str) -> "subprocess.Popen[str]":
    """Start an OpenBACH job on a node; what it sends goes to `place`."""
    (place / "raw").mkdir(parents=True)
    home = row.home()
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": str(SHIM),
        "SATLAB_RAW": str(place / "raw"),
        "SATLAB_AGENT": role,
        "SATLAB_WWW": str(row.folder / "www"),
        "SATLAB_PKI": str(row.pki),
        "JOB_NAME": name,
        "JOB_INSTANCE_ID": "1",
        "SCENARIO_INSTANCE_ID": "1",
        "OWNER_SCENARIO_INSTANCE_ID": "1",
    }
    settings = [f"{key}={value}" for key, value in variables.items()]
    return row.start(role, "env", "-i", *settings, sys.executable, str(JOBS / name / "files" / f"{name}.py"), *argv)


def statistics(place: Path) -> list[dict[str, Any]]:
    path = place / "raw" / "stats.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("mode", ["default", "h3-capable", "warm"])
def test_the_whole_page_comes_over_h3_through_both_proxies(row: Chain, mode: str) -> None:
    there, here = row.folder / f"{mode}-s", row.folder / f"{mode}-c"
    server = job(row, "server", "satlab_web_server", there, "-P", "h3", "-B", SERVER)
    try:
        until(lambda: server.poll() is not None or any("ready" in s for s in statistics(there)), "readiness")
        gw = row.transparent("gw", "--mode=h3-capable" if mode == "warm" else f"--mode={mode}")
        prime = (f"--prime={NAME}", f"--next-hop={SERVER}:443") if mode == "warm" else ()
        st = row.transparent("st", f"--mode={mode}", *prime)
        if mode == "warm":
            st.line("primed")
        load = job(row, "client", "satlab_page_load", here, "h3", SERVER, "-n", str(LOADS))
        _, errors = load.communicate(timeout=DEADLINE_S * LOADS)
        assert load.returncode == 0, errors
    except BaseException:
        row.end()
        raise
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE_S)
    stored = [s["page_load_json"] for s in statistics(here) if "page_load_json" in s]
    loads = [json.loads((here / "raw" / path).read_text()) for path in stored]
    assert [(r["status"], r["objects"], r["body_bytes"]) for r in loads] == [("ok", 75, 815_804)] * LOADS
    assert [r["protocols"] for r in loads] == [{"h3": 75}] * LOADS
    for proxy in (gw, st):
        assert proxy.end() == 0
        pages = [line for line in proxy.lines("closed") if line["from_server"]["bytes"] > 815_804]
        assert len(pages) == LOADS
        assert {line["alpn"] for line in pages} == {"h3"}
        # Connections that fetch a ticket come from the proxy itself.
        clients = [line for line in proxy.lines("accepted") if line["client"].startswith(f"{CLIENT}:")]
        assert len(clients) >= LOADS
    if mode == "warm":
        assert all(line["zero_rtt"] for line in st.lines("closed"))
