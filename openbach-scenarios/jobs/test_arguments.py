# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines that the jobs refuse with status 2, before they do anything."""

import shlex
from collections.abc import Callable
from types import ModuleType

import pytest

PAGE = "h1 198.18.4.2"
REFUSED: dict[str, tuple[str, ...]] = {
    "satlab_await": ("", "satlab_ping", "satlab_pep -d soon"),
    "satlab_capture": (
        "",
        "lan0 -t 0",
        "lan0 -m 1001",
        "lan0 -s -1",
        "a/b",
        "'a name'",
        16 * "x",
    ),
    "satlab_curl": (
        "https://198.18.4.2/",
        "http://a.host/",
        "file:///etc/passwd",
        "http://1.2.3.4/?x",
        "http://[::1/",
        "http://198.18.4.2/ -n 0",
        "http://198.18.4.2/ -t 3601",
    ),
    "satlab_fec": ("192.0.2.1 192.0.2.2 some", "192.0.2.1 192.0.2.2 none -m 575", "a b none"),
    "satlab_ftp": (
        "",
        "server -b host",
        "client 127.0.0.1",
        "client 127.0.0.1 both",
        "-p 0 server",
    ),
    "satlab_ip_route": (
        "add host",
        "add 192.0.2.1/24",
        "flush default",
        "add default -w 0",
        "add default",
    ),
    "satlab_iperf3": ("", "client a.host", "client ::1 -t 0", "client ::1 -n -1", "server -x"),
    "satlab_link": (
        "",
        "set forward",
        "set up -d 1",
        "set forward -o soon",
        "set forward -c QPSK",
        "set forward -q 5",
        "set forward -A codel",
        "set forward -n 2",
        "set forward -t 20 -D 0.1",
        "set forward -m bursts:1",
        "set forward -m bursts:1,2,3",
        "set forward -m trace:file",
        "set forward -m bursts:a,b",
    ),
    "satlab_load": (
        "",
        "send host",
        "send 127.0.0.1 --gap cauchy",
        "send 127.0.0.1 --gap-shape 1",
        "send 127.0.0.1 -f 65",
        "send 127.0.0.1 --size pareto --size-shape 1",
        "-p 0 receive",
        "send 127.0.0.1 --size-bytes 1473",
        "send 127.0.0.1 --gap normal --gap-shape nan",
    ),
    "satlab_opensand": ("", "moon", "gw -r 0"),
    "satlab_packet_filter": (
        "output drop",
        "OUTPUT",
        "OUTPUT dscp 64",
        "OUTPUT mark 0",
        "OUTPUT -p sctp drop",
        "OUTPUT -i 'a;b' drop",
        "INPUT jump",
        "INPUT -s host drop",
        "OUTPUT drop",
        "OUTPUT --dport 5 drop",
        "OUTPUT -p icmp --sport 5 drop",
        "OUTPUT -i lan0 drop",
        "INPUT -o lan0 drop",
    ),
    "satlab_page_load": (
        "h1",
        "h4 198.18.4.2",
        "h1 server",
        f"{PAGE} -n 10001",
        f"{PAGE} -t 0",
        f"{PAGE} -t nan",
        f"{PAGE} -o 101",
        f"{PAGE} -p ../x",
        f"{PAGE} -p 'x,MAP * 8.8.8.8'",
    ),
    "satlab_pep": ("", "none host host", "none 192.0.2.1 192.0.2.2 -l 0"),
    "satlab_ping": ("", "host", "192.0.2.1 -c 0"),
    "satlab_postprocess": (
        "",
        "rtt_ms",
        "a/b comparison",
        "rtt_ms histogram -b 0",
        "rtt_ms -j x comparison",
    ),
    "satlab_rate": ("0 INPUT", "1 input", "1 INPUT -i 'a b'", "1 INPUT sctp"),
    "satlab_rrul": (
        "",
        "server -B host",
        "-p 65535 server",
        "client host",
        "client 192.0.2.1 -f 65",
        "client 192.0.2.1 -t 9",
        "client 192.0.2.1 -s 10",
        "client 192.0.2.1 -i 0",
    ),
    "satlab_satperf": (
        "",
        "client a.host b",
        "client 1.2.3.4 -x",
        "-w -1 server",
        "-C 'a b' client 198.18.4.2 kepler.satlab.test",
    ),
    "satlab_set_tos": ("", "64", "-1", "x", "0 -p icmp", "0 -s host", "46 --source-port 5"),
    "satlab_shape": (
        "lan0",
        "lan0 7999",
        "lan0 x",
        "'a b' 10000",
        "lan0 10000 netem",
        "lan0 1e6",
    ),
    "satlab_socket_stats": ("-i 0", "-p 0", "-p 65536", "-a host"),
    "satlab_stream": (
        "",
        "send host",
        "send 127.0.0.1 -s 23",
        "send 127.0.0.1 -d 64",
        "-p 0 receive",
    ),
    "satlab_system_load": ("-i 0", "-i nan", "-i x"),
    "satlab_tcp_conf": ("-w -1", "-w 10001", "-C 'Cubic;'", "-p E", "-c host"),
    "satlab_video": ("", "h4 192.0.2.1", "h1 host", "h1 192.0.2.1 -p ../x"),
    "satlab_vpn": ("", "192.0.2.1", "a b c d"),
    "satlab_web_server": (
        "-P h4",
        "-p ../etc",
        "-B localhost",
        "-B '127.0.0.1;'",
        "--port 0",
        "--port 65536",
        "-C 'cubic --evil'",
        "--root '/tmp/a;b'",
        "--pki '/tmp/a b'",
        "extra",
    ),
}


@pytest.mark.parametrize(
    ("job", "words"), [(job, words) for job, refused in REFUSED.items() for words in refused]
)
def test_t03_bad_arguments_are_refused(
    module: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    words: str,
) -> None:
    monkeypatch.setattr("sys.argv", [job, *shlex.split(words)])
    with pytest.raises(SystemExit) as caught:
        module(job).main()
    assert caught.value.code == 2
