# SPDX-License-Identifier: GPL-3.0-or-later
"""satpep as a program: transparent chains, clients' addresses, ends and faults.

Page loads: tests/browser.

A proxy with `--prime` connects by itself, and one without a usable next hop answers like a server:
both stand in for client and origin here.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.paths import SCHEMAS
from satlab.lab import pki
from tests.pep_chain import CLIENT, DEADLINE_S, SERVER, Chain, Satpep, chain
from tests.polling import until

pytestmark = pytest.mark.net
NAME = "origin.satlab.test"
NOWHERE = "127.0.0.1:9"


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not shutil.which("nft"):
        pytest.skip("needs nftables")
    if not paths.SATPEP.exists():
        pytest.skip(f"{paths.SATPEP} is not built")
    folder = tmp_path_factory.mktemp("satpep")
    pki.create(folder / "pki", [NAME], [ip_address(SERVER)], datetime.now(UTC))
    with chain(folder, folder / "pki") as made:
        yield made


def caller(row: Chain, port: int, *argv: str, name: str = NAME) -> Satpep:
    """Something on the client that keeps connecting to the server as `name` until it gets a session
    ticket.
    """
    request = (
        *f"--mode=warm --prime={name} --prime-alpn=test --next-hop={SERVER}:{port} --drain-ms=0".split(),
    )
    return row.satpep("client", *request, *argv, listen=("127.0.0.1:0",))


def origin(row: Chain) -> Satpep:
    """Something on the server that takes connections on both ports."""
    return row.satpep("server", f"--next-hop={NOWHERE}", "--drain-ms=0")


@pytest.mark.parametrize("port", [443, 4433])
@pytest.mark.parametrize("mode", ["default", "h3-capable", "warm"])
@pytest.mark.promise("P68")
def test_both_proxies_take_what_passes_and_keep_the_client_s_address(
    row: Chain, mode: str, port: int
) -> None:
    proxies = [row.transparent("gw", f"--mode={mode}"), row.transparent("st", f"--mode={mode}")]
    ends = [origin(row), caller(row, port)]
    ends[1].line("primed")
    # A caller leaves with its ticket, maybe before the proxies have reached the server for it.
    while len(ends) < 30 and not ends[0].lines("accepted"):
        ends.append(caller(row, port))
        ends[-1].line("primed")
    for proxy in (*proxies, ends[0]):
        accepted = proxy.line("accepted")
        assert accepted["client"].startswith(f"{CLIENT}:")
        assert accepted["destination"] == f"{SERVER}:{port}"
        assert (accepted["server_name"], accepted["alpn"]) == (NAME, ["test"])
    assert proxies[1].line("closed")["connection"] == 1
    assert not any(proxy.end() for proxy in (*ends, *proxies))
    schema = json.loads((SCHEMAS / "satpep.schema.json").read_text())
    for proxy in (*proxies, *ends):
        kinds = [line["type"] for line in proxy.lines()]
        assert (kinds[0], kinds[-1]) == ("ready", "summary")
        for line in proxy.lines():
            jsonschema.validate(line, schema)


def test_t49_domains_of_a_host_pass_with_its_certificate_and_no_other_name_does(row: Chain) -> None:
    of_host = f"--domains-of={NAME}"
    gw, server = row.transparent("gw", of_host), origin(row)
    strict = row.transparent("st", "--mode=h3-capable")
    refused = caller(row, 443, of_host, name=f"static.{NAME}")
    closed = strict.line("closed")
    assert closed["outcome"] == "failed"
    assert "not valid for name" in closed["reason"], (
        "without the option each name needs a certificate of its own"
    )
    assert [proxy.end() for proxy in (refused, strict)] == [0, 0]
    st = row.transparent("st", "--mode=h3-capable", of_host)
    client = caller(row, 443, of_host, name=f"static.{NAME}")
    client.line("primed")
    assert gw.line("accepted")["server_name"] == f"static.{NAME}"
    assert client.end() == 0
    foreign = caller(row, 443, of_host, name="static.other.test")
    until(
        lambda: [line for line in st.lines("closed") if "other.test" in line["reason"]],
        "the refusal",
    )
    assert [proxy.end() for proxy in (foreign, st, server, gw)] == [0] * 4


@pytest.mark.promise("P67")
def test_a_killed_proxy_is_noticed_and_a_new_one_works(row: Chain) -> None:
    gw_place, gw_next = "198.18.202.1:443", f"--next-hop={SERVER}:443"
    first, server = row.transparent("gw", gw_next), origin(row)
    limit = "--handshake-timeout-ms=1500"
    st = row.transparent("st", "--mode=h3-capable", limit, f"--next-hop={gw_place}")
    first.process.send_signal(signal.SIGKILL)
    assert first.process.wait(DEADLINE_S) == -signal.SIGKILL
    client = caller(row, 443)
    failed = st.line("closed")
    assert failed["outcome"] == "failed"
    assert failed["reason"] == "next hop: no answer within 1.5s"
    again = row.transparent("gw", gw_next)
    client.line("primed")
    assert again.line("accepted")["client"].startswith(f"{CLIENT}:")
    assert [proxy.end() for proxy in (client, st, again, server)] == [0] * 4


def fails(row: Chain, *argv: str, listen: str = "127.0.0.1:443") -> tuple[int, str]:
    """Run a proxy that must not start; return its status and its error text."""
    proxy = row.spawn("client", *argv, listen=(listen,))
    status = proxy.process.wait(DEADLINE_S)
    assert proxy.lines() == []
    return status, proxy.errors.read_text()


def test_what_keeps_it_from_starting_is_one_line_and_a_status(row: Chain, tmp_path: Path) -> None:
    status, errors = fails(row, f"--next-hop={SERVER}:443", listen="198.18.99.99:443")
    assert (status, errors.splitlines()[0]) == (
        3,
        "error: 198.18.99.99:443: Cannot assign requested address (os error 99)",
    )
    with_port = row.satpep(
        "client", f"--next-hop={SERVER}:443", "--drain-ms=0", listen=("127.0.0.1:443",)
    )
    status, errors = fails(row, f"--next-hop={SERVER}:443")
    assert (status, errors.splitlines()[0]) == (
        3,
        "error: 127.0.0.1:443: Address already in use (os error 98)",
    )
    assert with_port.end() == 0
    other = pki.create(tmp_path / "pki", [NAME], [ip_address(SERVER)], datetime.now(UTC))
    status, errors = fails(
        row, f"--next-hop={SERVER}:443", f"--key={other.server_key}", "--max-streams=0"
    )
    assert status == 2
    assert errors.startswith("error: ")
    status, errors = fails(row)
    assert status == 2
    assert errors.startswith(
        "error: next-hop: without it, only --transparent knows the destination\n"
    )


def test_t08_it_refuses_to_run_outside_a_lab() -> None:
    if not paths.SATPEP.exists():
        pytest.skip(f"{paths.SATPEP} is not built")
    argv = f"{paths.SATPEP} quic --listen=127.0.0.1:0 --next-hop={NOWHERE} --cert=c --key=k --ca=a".split()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this is not a network namespace of a lab")
    assert done.stdout == ""
