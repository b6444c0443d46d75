# SPDX-License-Identifier: GPL-3.0-or-later
import re
import socket
import subprocess
import sys
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest

from satlab.openbach.descriptor import load_job
from tests import job_programs

HERE = Path(__file__).parent
LOOPBACK = IPv4Address("127.0.0.1")


job = job_programs.load("satlab_web_server")


@pytest.fixture
def page_request(tmp_path: Path) -> Any:
    for name in ("server.key", "server.crt"):
        (tmp_path / name).touch()
    return job.Request(
        Path("/www/kepler/site"), "h3", IPv4Address("198.18.4.2"), 443, "cubic", tmp_path, tmp_path
    )


def with_field(page_request: Any, **fields: Any) -> Any:
    return job.Request(**(vars(page_request) | fields))


def host(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str, str]]) -> None:
    """Pretend that these programs are installed and answer so (status, stdout, stderr) whatever
    they are asked.
    """

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, *answers.get(Path(argv[0]).name, (127, "", "")))

    monkeypatch.setattr(job, "find", lambda name: f"/usr/sbin/{name}" if name in answers else None)
    monkeypatch.setattr(job, "run", run)


OLD_H2O = (78, "h2o version 2.2.5\n", "unknown listen type")
NEW_H2O = (0, "h2o version 2.3.0\n", "")
GTLSSERVER = (0, "  --cc=(cubic|reno|bbr|bbr2)\n", "")


def nginx(version: str, modules: str = "") -> tuple[int, str, str]:
    return 0, "", f"nginx version: nginx/{version}\nconfigure arguments: {modules}"


@pytest.mark.parametrize(
    ("installed", "protocol", "name"),
    [
        ({"h2o": OLD_H2O, "nginx": nginx("1.22.1")}, "h1", "h2o"),
        ({"nginx": nginx("1.22.1")}, "h1", "nginx"),
        ({"h2o": NEW_H2O, "gtlsserver": GTLSSERVER}, "h3", "h2o"),
        (
            {
                "h2o": OLD_H2O,
                "gtlsserver": GTLSSERVER,
                "nginx": nginx("1.28.0", "--with-http_v3_module"),
            },
            "h3",
            "gtlsserver",
        ),
        ({"h2o": OLD_H2O, "nginx": nginx("1.28.0", "--with-http_v3_module")}, "h3", "nginx"),
    ],
)
def test_the_first_server_that_can_do_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch, page_request: Any, installed: Any, protocol: str, name: str
) -> None:
    host(monkeypatch, installed)
    assert job.choose(with_field(page_request, protocol=protocol)).name == name


@pytest.mark.parametrize(
    ("installed", "algorithm", "reason"),
    [
        ({}, "cubic", "gtlsserver is not installed"),
        ({"gtlsserver": GTLSSERVER}, "vegas", "gtlsserver has no congestion control vegas"),
        ({"nginx": nginx("1.22.1")}, "cubic", "nginx here has no HTTP/3"),
        ({"nginx": nginx("1.26.3", "--with-http_v3_module")}, "cubic", "nginx here has reno alone"),
        ({"h2o": OLD_H2O}, "cubic", "h2o here has no HTTP/3"),
    ],
)
def test_without_a_server_each_reason_is_reported(
    monkeypatch: pytest.MonkeyPatch, page_request: Any, installed: Any, algorithm: str, reason: str
) -> None:
    host(monkeypatch, installed)
    with pytest.raises(job.JobError, match=re.escape(reason)) as caught:
        job.choose(with_field(page_request, congestion_control=algorithm))
    assert caught.value.status == 3
    assert caught.value.hint == "apt-get install ngtcp2-server"


def test_h2o_neither_compresses_nor_upgrades_nor_speaks_tls_on_h1(page_request: Any) -> None:
    config = job.h2o_config(with_field(page_request, protocol="h1", port=80))
    assert config["listen"] == {"host": "198.18.4.2", "port": 80}
    assert (
        config["compress"],
        config["file.send-compressed"],
        config["http1-upgrade-to-http2"],
    ) == (
        "OFF",
        "OFF",
        "OFF",
    )


def test_nginx_neither_compresses_nor_speaks_http2(page_request: Any) -> None:
    text = job.nginx_config(with_field(page_request, protocol="h1", port=80))
    assert "gzip off;" in text
    assert "http2" not in text
    assert "listen 198.18.4.2:80;" in text
    assert "quic" in job.nginx_config(page_request)


def test_a_missing_key_is_reported(page_request: Any) -> None:
    (page_request.pki / "server.key").unlink()
    with pytest.raises(job.JobError, match=r"server\.key: cannot be read"):
        job.key_pair(page_request)


@pytest.mark.parametrize(
    ("protocol", "kind"), [("h1", socket.SOCK_STREAM), ("h3", socket.SOCK_DGRAM)]
)
def test_a_port_in_use_is_reported_in_one_line(
    page_request: Any, protocol: str, kind: socket.SocketKind
) -> None:
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind((str(LOOPBACK), 0))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        taken = with_field(
            page_request, protocol=protocol, bind=LOOPBACK, port=holder.getsockname()[1]
        )
        with pytest.raises(job.JobError, match="port in use") as caught:
            job.check_port(taken)
        assert caught.value.status == 3
        assert "\n" not in str(caught.value)
        assert job.is_ready(taken)
    job.check_port(taken)
    assert not job.is_ready(taken)


def test_udp_table_is_read_by_address_and_port() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
        " inode\n  12: 020412C6:01BB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0 "
        "       0 1 2 0 0\n"
    )
    if sys.byteorder == "little":
        assert job.udp_bound(table, IPv4Address("198.18.4.2"), 443)
    assert not job.udp_bound(table, IPv4Address("198.18.4.2"), 444)
    assert not job.udp_bound(table, IPv4Address("198.18.4.3"), 443)


def test_p294_addresses_of_ipv6_are_listened_on_and_found(page_request: Any) -> None:
    address = IPv6Address("2001:2:0:1204::2")
    request = with_field(page_request, bind=address, port=80, protocol="h1")
    assert "listen [2001:2:0:1204::2]:80;" in job.nginx_config(request)
    assert job.h2o_config(request)["listen"]["host"] == "2001:2:0:1204::2"
    row = (
        "  12: 020001200412000000000000{}:01BB 00000000000000000000000000000000:0000 07 0 0 0 0 0 0"
        " 1 2 0 0\n"
    )
    table = "  sl  local_address\n" + row.format("02000000")
    if sys.byteorder == "little":
        assert job.udp_bound(table, address, 443)
    assert not job.udp_bound(table, address, 444)
    assert not job.udp_bound("  sl\n" + row.format("03000000"), address, 443)


LISTING = """\
0 0 198.18.4.2:80 198.18.1.2:40000
\t ts sack cubic wscale:7,7 rto:1264 rtt:612/306 mss:1448 cwnd:10 send 189kbps app_limited
0 0 198.18.4.2:80 198.18.4.2:40002
\t ts sack bbr wscale:7,7 rto:204 cwnd:10
"""


def test_congestion_control_is_read_from_connections_with_others() -> None:
    assert job.congestion_controls(LISTING) == {"cubic"}
    assert job.congestion_controls("") == set()


def test_another_congestion_control_ends_the_job() -> None:
    job.check_congestion_control({"cubic"}, "cubic")
    job.check_congestion_control(set(), "cubic")
    with pytest.raises(job.JobError, match="TCP uses bbr, not cubic") as caught:
        job.check_congestion_control({"bbr", "cubic"}, "cubic")
    assert caught.value.status == 1


def test_the_descriptor_names_the_options_of_the_script() -> None:
    descriptor = load_job(HERE)
    assert descriptor.persistent
    assert {p.release for p in descriptor.platforms} == {"bookworm", "trixie", "jammy", "noble"}
    flags = {a.flag: a.name for a in descriptor.level.optional}
    assert flags == {
        "-p": "page",
        "-P": "protocol",
        "-B": "bind",
        "--port": "port",
        "-C": "congestion_control",
    }
    defaults = vars(job.parser().parse_args([]))
    for argument in descriptor.level.optional:
        if argument.default is not None:
            assert argument.default == defaults[argument.name]


def test_a_page_that_was_not_generated_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["satlab_web_server", "--root", str(tmp_path)])
    with pytest.raises(job.JobError, match=r"holds no index\.html") as caught:
        job.main()
    assert caught.value.status == 2


def test_the_record_of_the_server_is_stored(
    monkeypatch: pytest.MonkeyPatch, page_request: Any
) -> None:
    sent: dict[str, Any] = {}
    monkeypatch.setattr(job, "must_store_json", lambda name, content: sent.update({name: content}))
    monkeypatch.setattr(
        job.collect_agent, "send_stat", lambda _now, **values: sent.update(values) or "OK"
    )
    job.record(
        with_field(page_request, protocol="h1"),
        "kepler",
        job.Server("h2o", "2.2.5", ["h2o"]),
        {"bbr"},
    )
    content = sent["server_json"]
    assert content["congestion_control"] == {"asked": "cubic", "observed": ["bbr"]}
    assert content["server"] == "h2o"
    assert sent["congestion_control_ok"] == 0
