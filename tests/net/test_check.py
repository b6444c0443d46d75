# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check` on the real clock: built-in stacks, planted faults, an endpoint of the QUIC
interop runner.
"""

import dataclasses
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benches import clock_agreement
from satlab.check import case_link, check_run, sandboxed_program
from satlab.check.backend import real_clock
from satlab.check.check_result import CheckResult
from satlab.check.check_run import CheckRequest
from satlab.check.endpoint import command_pair, interop_endpoint, lockstep
from satlab.check.endpoint.interop_image import Image
from satlab.check.endpoint.oci_image import ImageConfig
from satlab.check.samples import Sample
from satlab.check.trace import pcap
from satlab.check.trace.captured_transfer import transfer_of
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.processes import wait
from satlab.lab import lab
from satlab.lab.sandbox import Limits, Mount, Sandbox
from satlab.link.config import LinkRequest, LinkSet, Timeline, TimelineStep
from satlab.run import link_probe
from tests.net.conftest import built_ngtcp2

pytestmark = pytest.mark.net
PROBE = link_probe.probe_link

NGTCP2 = paths.ROOT / "tests/endpoints/ngtcp2"
HEAD = """
schema: satlab/suite/1
source: the test
link: {rtt_ms: 650, queue_bdp: 1.0}
"""
SMALL = """
marks_mb: [0.5, 2]
cases:
  - {id: small, forward_mbps: 10, return_mbps: 2, targets_s: [30, 60], timeout_s: 30}
  - {id: brief, forward_mbps: 10, return_mbps: 2, targets_s: [30, 60], timeout_s: 4}
  - {id: up, forward_mbps: 10, return_mbps: 5, targets_s: [30, 60], direction: upload, timeout_s: 30}
  - {id: again, forward_mbps: 10, return_mbps: 2, targets_s: [null, null], second_after_s: 1, timeout_s: 30}
  - {id: resumed, forward_mbps: 10, return_mbps: 2, targets_s: [null, null], second_after_s: 1, zero_rtt: false}
"""
WIDE = """
marks_mb: [2, 16]
cases: [{id: wide, forward_mbps: 50, return_mbps: 10, targets_s: [null, null], timeout_s: 60}]
"""
LIGHT = """
marks_mb: [0.4, 0.8]
cases:
  - {id: light, forward_mbps: 10, return_mbps: 2, targets_s: [null, null], timeout_s: 60}
  - {id: again, forward_mbps: 10, return_mbps: 2, targets_s: [null, null], timeout_s: 60, second_after_s: 1}
"""
GOOD_CLIENT = (
    "gtlsclient -q --no-quic-dump --no-http-dump --exit-on-all-streams-close --download={out}"
    " {host} {port} {url}"
)
GOOD_SERVER = "gtlsserver -q --no-quic-dump --no-http-dump -d {www} {host} {port} {key} {cert}"


@pytest.fixture(autouse=True)
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, satlink: Path) -> None:
    """Use suites of this file, do not probe the link, and lower the limits: neither link nor disk
    is under test.
    """
    (tmp_path / "suites").mkdir()
    for name, text in (("small", SMALL), ("wide", WIDE), ("light", LIGHT)):
        (tmp_path / "suites" / f"{name}.yml").write_text(f"{HEAD}name: {name}{text}")
    shutil.copy(paths.SUITES / "interop.yml", tmp_path / "suites")
    monkeypatch.setattr(paths, "SUITES", tmp_path / "suites")
    monkeypatch.setattr(
        link_probe, "probe_link", lambda *_: link_probe.Probe(None, None, 0, 0, 0, {})
    )
    monkeypatch.setattr(
        real_clock, "Limits", functools.partial(Limits, processes=64, disk_bytes=32 << 20)
    )
    monkeypatch.setenv("PATH", "/usr/sbin", prepend=":")


def check(tmp_path: Path, suite: str, *cases: str, **options: Any) -> CheckResult:
    found = check_run.run(
        CheckRequest(suite, cases, runs=1, out=tmp_path / "runs", clock="real", **options),
        ProgressLog(quiet=True),
    )
    document = json.loads((found.folder / "check.json").read_text())
    jsonschema.validate(document, json.loads((paths.SCHEMAS / "check.schema.json").read_text()))
    assert not [
        one for one in lab.list_labs() if one.lab_id.startswith(f"check-{os.getpid() % 100000}-")
    ]
    return found


def sample(tmp_path: Path, suite: str, case: str, **options: Any) -> Sample:
    [found] = check(tmp_path, suite, case, **options).samples[case]
    return found


def times(found: Sample) -> tuple[float, ...]:
    assert found.status == "ok", found.reason
    reached = tuple(time for time in found.times_s if time is not None)
    assert len(reached) == len(found.times_s)
    return reached


@pytest.fixture
def _satperf() -> None:
    if not paths.SATPERF.exists():
        pytest.skip(f"{paths.SATPERF} is not built")


@pytest.fixture
def _ngtcp2() -> None:
    if not shutil.which("gtlsclient"):
        pytest.skip("ngtcp2-client is not installed")


# --- built-in stacks ------------------------------------------------------------------------------


@pytest.mark.usefixtures("_satperf")
@pytest.mark.promise("P77")
def test_satperf_is_timed_and_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_probe, "probe_link", PROBE)
    found = sample(tmp_path, "small", "small", stack="quinn")
    half, whole = times(found)
    # Handshake, request and slow start from ten packets: 0.5 MB need 6 to 7 round trips.
    assert 3.5 < half < 6.5 and half < whole < 10
    assert found.handshake_ms is not None and 600 < found.handshake_ms < 1200
    assert found.goodput_interop_bps is not None and 1e6 < found.goodput_interop_bps < 10e6
    assert found.return_packets is not None and found.return_packets > 300
    assert found.client_cpu_s and found.server_cpu_s and found.client_peak_bytes
    folder = tmp_path / "runs"
    assert list(folder.glob("*/raw/small-1/client-0.pcap")) and list(
        folder.glob("*/raw/small-1/client/client-0.jsonl")
    )


@pytest.mark.usefixtures("_satperf")
def test_an_upload_and_a_second_download_with_a_session(tmp_path: Path) -> None:
    found = check(tmp_path, "small", "up", "again", stack="quiche")
    assert 3 < times(found.samples["up"][0])[0] < 8
    # The client hands aggregates to its interface (GSO); the capture has packets, as the link
    # carries them.
    [captured] = (tmp_path / "runs").glob("*/raw/up-1/client-0.pcap")
    lengths = [one.length for one in pcap.read(captured)]
    assert max(lengths) <= 1500 and sum(length > 1000 for length in lengths) > 1400
    (again,) = found.samples["again"]
    assert 3 < times(again)[0] < 6.5
    # What quiche does not report is in its qlog.
    assert (
        again.warnings == () and again.retransmitted_share is not None and again.spent_s is not None
    )
    assert sum(again.spent_s.values()) == pytest.approx(times(again)[-1], abs=0.3)


@pytest.mark.usefixtures("_satperf")
def test_a_server_resumes_from_what_a_sample_s_first_connection_taught_it(tmp_path: Path) -> None:
    found = sample(tmp_path, "small", "resumed", stack="quinn", server={"careful_resume": "on"})
    half, whole = times(found)
    # 0.5 MB take seven round trips without it, and about four with it.
    assert 2 < half < 4.2 and half < whole < 6.5
    assert found.careful_resume is not None
    phases = found.careful_resume["phases"]
    assert [one["phase"] for one in phases][:3] == ["reconnaissance", "unvalidated", "validating"]
    assert phases[0]["t_s"] < phases[1]["t_s"] < half
    assert [one for one in found.symptoms if one.startswith("careful resume: a jump to 0.")], (
        found.symptoms
    )
    # Both connections' server could write its file, which is nobody else's.
    [file] = (tmp_path / "runs").glob("*/raw/resumed-1/server/paths.json")
    assert json.loads(file.read_text())["schema"] == "satlab/resume-state/1"


@pytest.mark.usefixtures("_ngtcp2")
def test_debian_s_ngtcp2_is_timed_from_its_packets(tmp_path: Path) -> None:
    found = sample(tmp_path, "small", "small", stack="ngtcp2")
    half, whole = times(found)
    assert (
        3 < half < whole < 12 and found.handshake_ms is not None and 600 < found.handshake_ms < 1500
    )
    # The rest is from its qlog: the answer takes a round trip after the handshake, and each moment
    # has a cause.
    assert (
        found.warnings == ()
        and found.time_to_first_byte_ms is not None
        and found.retransmitted_share is not None
    )
    assert found.handshake_ms + 600 < found.time_to_first_byte_ms < found.handshake_ms + 1200
    assert (
        found.sources["time_to_first_byte_ms"] == "qlog of the client"
        and found.retransmitted_share < 0.5
    )
    assert found.spent_s is not None and sum(found.spent_s.values()) == pytest.approx(
        whole, abs=0.2
    )
    assert found.spent_s["handshake"] == pytest.approx(
        found.time_to_first_byte_ms / 1e3 - 0.3, abs=0.2
    )


@pytest.mark.usefixtures("_ngtcp2")
def test_a_broken_qlog_is_reported_and_times_are_kept(tmp_path: Path) -> None:
    server = script(
        "printf '[[[[' | tr '[' '\\036' > {qlog}/x.sqlog; echo '{}' >> {qlog}/x.sqlog; exec"
        f" {GOOD_SERVER}"
    )
    found = sample(tmp_path, "small", "small", pair=command_pair.parse(GOOD_CLIENT, server))
    times(found)
    assert [(one.kind, one.side) for one in found.warnings] == [
        ("broken", "server"),
        ("missing", "client"),
    ]
    assert found.sources == {"time_to_first_byte_ms": "packets"} and found.spent_s is None
    assert found.time_to_first_byte_ms is not None and found.time_to_first_byte_ms > 1200
    assert found.retransmitted_share is None and found.lost_packets is None


@pytest.mark.timing
def test_tcp_goes_through_both_proxies(tmp_path: Path) -> None:
    found = sample(tmp_path, "small", "small", stack="tcp-pep")
    half, whole = times(found)
    # The proxy before the link answers the handshake; a window of 100 packets saves the first round
    # trips.
    assert found.handshake_ms is not None and found.handshake_ms < 300
    assert half < whole < 6
    assert found.retransmitted_share is not None and 0 <= found.retransmitted_share < 0.5


@pytest.mark.usefixtures("_ngtcp2")
def test_the_ledger_closes_to_the_packet(tmp_path: Path) -> None:
    """Also in a busy host: what a socket's full buffer loses is counted, and nothing else may be
    missing.
    """
    found = sample(tmp_path, "small", "small", stack="ngtcp2")
    times(found)
    assert found.ledgers is not None
    for one in found.ledgers.values():
        assert (
            one["lost_before_link"],
            one["unaccounted"],
            one["lost_after_link"],
            one["lost"],
        ) == (0, 0, 0, 0), one
    forward = found.ledgers["forward"]
    assert (forward["sent"] or 0) > 1400 and forward["spurious"] is not None


def test_a_stack_of_others_is_compared_on_both_clocks(tmp_path: Path) -> None:
    """aioquic in lock-step and over UDP, with the same settings: the lab adds time, and cannot save
    any.
    """
    folder = paths.ROOT / "tests/endpoints/aioquic"
    environment = Path(sys.prefix).resolve()  # a link would lead out of the sandbox
    python, readable = f"{environment}/bin/python", [folder, environment]
    words = f"{python} {folder}/transfer.py"
    compared = clock_agreement.Compared(
        programs=lockstep.parse(*(f"{python} {folder}/lockstep.py",) * 2, readable),
        pair=command_pair.parse(
            f"{words} client {{host}} {{port}} {{bytes}} {{ca}} {{name}}",
            f"{words} server {{host}} {{port}} {{bytes}} {{cert}} {{key}}",
            readable,
        ),
    )
    found = clock_agreement.measure("light", ["light"], 0.8, 1, compared, ProgressLog(quiet=True))
    assert found["stacks"]["virtual"] == "aioquic" and found["cases"][0]["reasons"] == []
    for mark in found["cases"][0]["marks"]:
        assert mark["virtual_s"] > 1.3 and 0.95 < mark["real_s"] / mark["virtual_s"] < 3, mark


# --- planted faults -------------------------------------------------------------------------------


@pytest.mark.usefixtures("_satperf")
@pytest.mark.parametrize(
    ("planted", "named"),
    [
        ({"client": {"stream_receive_window": 1 << 20}}, "constant window"),
        ({"server": {"initial_window": 1}}, "small initial window"),
    ],
)
@pytest.mark.promise("P77")
def test_a_planted_window_is_named(planted: dict[str, Any], named: str, tmp_path: Path) -> None:
    found = sample(tmp_path, "wide", "wide", stack="quinn", **planted)
    times(found)
    assert [one for one in found.symptoms if one.startswith(named)], found.symptoms


@pytest.mark.timing
@pytest.mark.usefixtures("_satperf")
@pytest.mark.promise("P76")
def test_acknowledgements_after_200_ms_are_named(tmp_path: Path) -> None:
    """The defect of the virtual clock's table on the real clock: each of about six round trips of
    slow start takes 200 ms more. A server asks its client for late acknowledgements.
    """
    late = {"max_ack_delay_ms": 200, "ack_threshold": 1000}
    sound, planted = (
        sample(tmp_path / name, "wide", "wide", stack="quinn", server=options)
        for name, options in (("sound", {}), ("planted", late))
    )
    before, now = sound.spent_s, planted.spent_s
    assert before is not None and now is not None
    # What the host took in either transfer is no cause of the defect.
    grown = {cause: now[cause] - before[cause] for cause in now if cause != "host"}
    assert max(grown, key=grown.__getitem__) == "late acks" and grown["late acks"] > 0.4, grown


@pytest.mark.usefixtures("_satperf")
def test_a_lost_handshake_packet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = case_link.for_lab
    outage = TimelineStep(at_s=0, set=LinkSet(direction="return", outage=0.6))

    def dark(*args: Any) -> LinkRequest:
        return dataclasses.replace(
            usual(*args), timeline=Timeline(starts="on-request", steps=(outage,))
        )

    monkeypatch.setattr(case_link, "for_lab", dark)
    found = sample(tmp_path, "small", "small", stack="quinn")
    times(found)
    assert [one for one in found.symptoms if one.startswith("lost handshake packet")], (
        found.symptoms
    )


CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def slow_group() -> Iterator[Path]:
    """Yield a group whose processes share a thousandth of a core (cgroups(7), both versions)."""
    v2 = CGROUPS / "cgroup.controllers"
    parent = CGROUPS if v2.exists() else CGROUPS / "cpu"
    group = parent / f"satlab-test-{os.getpid()}"
    try:
        group.mkdir()
        if v2.exists():
            (group / "cpu.max").write_text("1000 1000000")
        else:
            (group / "cpu.cfs_period_us").write_text("1000000")
            (group / "cpu.cfs_quota_us").write_text("1000")
    except OSError as error:
        pytest.skip(f"this host cannot limit CPU time: {error}")
    yield group
    assert wait(lambda: not (group / "cgroup.procs").read_text(), 10)
    group.rmdir()


@pytest.fixture
def starved_server(slow_group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move each gtlsserver (it runs when a client starts) to the slow group, and not its
    supervisor.
    """
    usual = sandboxed_program.start

    def limited(box: Sandbox, argv: Sequence[str], log: Path) -> sandboxed_program.SandboxedProcess:
        if log.name == "client-0.log":
            [server] = [
                pid
                for pid in children(os.getpid())
                if Path(f"/proc/{pid}/comm").read_text() == "gtlsserver\n"
            ]
            (slow_group / "cgroup.procs").write_text(str(server))
        return usual(box, argv, log)

    monkeypatch.setattr(sandboxed_program, "start", limited)


@pytest.mark.usefixtures("_ngtcp2", "starved_server")
@pytest.mark.parametrize("control", ["cubic", "bbr"])
def test_a_server_without_cpu_is_named(control: str, tmp_path: Path) -> None:
    """Its qlog shows windows that are full whenever it runs: processor time and waits name the
    host, not its states.
    """
    usual = command_pair.ngtcp2()
    pair = dataclasses.replace(
        usual, server_words=(*usual.server_words[:1], f"--cc={control}", *usual.server_words[1:])
    )
    found = sample(tmp_path, "light", "light", pair=pair)
    times(found)
    assert [one for one in found.symptoms if one.startswith("CPU limit: the server")], (
        found.symptoms
    )
    assert not [one for one in found.symptoms if one.startswith("CPU limit: the client")], (
        found.symptoms
    )
    assert found.server_cpu_s is not None and found.server_cpu_s < 1
    assert "cpu_wait_ratio.server" in found.calibration


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    own = [
        int(word)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for word in task.read_text().split()
    ]
    return own + [below for each in own for below in children(each)]


def script(text: str) -> str:
    return f"sh -c {shlex.quote(text)}"


CLIENTS = {
    "exit 127": "exit status 127",
    "no-such-program {out}": "a program is missing",
    "exec sleep 1000": "the client sent nothing: it did not end",
    f"{GOOD_CLIENT}; echo x >> {{out}}/payload": "wrong file",
    f"{GOOD_CLIENT}; cat /dev/zero > {{out}}/more": "it wrote 32 MiB or more",
    f"{GOOD_CLIENT}; f() {{ f | f & }}; f; sleep 100": "fork bomb",
}
SERVERS = {"exit 127": "127", "echo no key; exit 1": "the server: it ended with status 1: no key"}


@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.parametrize(
    ("client", "server", "words"),
    [(script(client), GOOD_SERVER, words) for client, words in CLIENTS.items()]
    + [(GOOD_CLIENT, script(server), words) for server, words in SERVERS.items()],
)
def test_a_planted_fault_of_a_program_is_named(
    client: str, server: str, words: str, tmp_path: Path
) -> None:
    # The whole time limit passes where a client or server only waits.
    is_short = "sleep 1000" in client or server != GOOD_SERVER
    pair = command_pair.parse(client, server)
    found = sample(tmp_path, "small", "brief" if is_short else "small", pair=pair)
    status = "unsupported" if "exit 127" in f"{client}{server}" else "failed"
    assert found.status == status and words in found.reason, found


# --- endpoints ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.promise("P78")
def test_an_endpoint_that_follows_the_contract_passes_over_geo(tmp_path: Path) -> None:
    cases = ("handshake", "transfer", "http3", "resumption", "ecn")
    with interop_endpoint.opened(NGTCP2) as pair:
        found = check(tmp_path, "interop", *cases, pair=pair)
    outcomes = {
        case: (samples[0].status, samples[0].reason) for case, samples in found.samples.items()
    }
    assert outcomes.pop("ecn")[0] == "unsupported"
    assert outcomes == dict.fromkeys(cases[:4], ("ok", ""))
    assert found.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED)


@pytest.mark.usefixtures("_ngtcp2")
def test_a_second_download_of_an_endpoint_finds_what_the_first_one_kept(tmp_path: Path) -> None:
    with interop_endpoint.opened(NGTCP2) as pair:
        found = sample(tmp_path, "light", "again", pair=pair)
    half, whole = times(found)
    assert 1 < half < whole < 12
    # The client's session is in its own folder, and the second connection sent its request as early
    # data.
    [session] = (tmp_path / "runs").glob("*/raw/again-1/client/state/session")
    assert session.stat().st_size > 0
    first, second = sorted((tmp_path / "runs").glob("*/raw/again-1/client-*.pcap"))
    server = interop_endpoint.SERVER_ADDRESS
    early = [transfer_of(pcap.read(one), server, interop_endpoint.PORT) for one in (first, second)]
    assert [one is not None and one.count("0-rtt", from_server=False) > 0 for one in early] == [
        False,
        True,
    ]


CLAIMS = (
    ("--key-update=1s", "--quiet", "keyupdate", "no key update: the client"),
    (
        'options+=("${session[@]}" --disable-early-data)',
        ":",
        "resumption",
        "no session was resumed",
    ),
)


@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.parametrize(("does", "pretends", "case", "words"), CLAIMS)
def test_an_endpoint_that_only_claims_a_test_case_fails(
    does: str, pretends: str, case: str, words: str, tmp_path: Path
) -> None:
    """It accepts the case and leaves all files.

    The honest one passes: its script differs in one word.
    """
    folder = shutil.copytree(NGTCP2, tmp_path / "endpoint")
    script_file = folder / "run_endpoint.sh"
    text = script_file.read_text()
    assert text.count(does) == 1
    script_file.write_text(text.replace(does, pretends))
    with interop_endpoint.opened(folder) as pair:
        found = sample(tmp_path, "interop", case, pair=pair)
    assert found.status == "failed" and words in found.reason, found
    with interop_endpoint.opened(NGTCP2) as pair:
        assert sample(tmp_path / "honest", "interop", case, pair=pair).status == "ok"


HQ = ("retry", "chacha20", "multiplexing", "ecn", "ipv6", "rebind-port", "rebind-addr")
"""Test cases of the endpoint's program of HTTP/0.9, which other endpoints expect there."""


def http_09(folder: Path) -> Path:
    """Build the endpoint of ngtcp2 with HTTP/0.9."""
    return built_ngtcp2(folder, "endpoint")


@pytest.mark.long
@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.promise("P78")
def test_the_endpoint_of_ngtcp2_speaks_http_09_as_well(tmp_path: Path) -> None:
    cases = (*HQ, "zerortt", "v2")
    with interop_endpoint.opened(http_09(tmp_path / "ngtcp2")) as pair:
        found = check(tmp_path, "interop", *cases, pair=pair)
    outcomes = {
        case: (samples[0].status, samples[0].reason) for case, samples in found.samples.items()
    }
    assert [outcomes.pop(case)[0] for case in ("zerortt", "v2")] == ["unsupported"] * 2
    assert outcomes == dict.fromkeys(HQ, ("ok", ""))


PRETENDS = (
    ("chacha20", "$REQUESTS --chacha20", "$REQUESTS", "the client offered 0x1301"),
    ("retry", " --retry ;;", " ;;", "no Retry was sent"),
    ("ipv6", 'client "$host" 443', "client server4 443", "packets were of IPv4"),
)


@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.parametrize(("case", "does", "pretends", "words"), PRETENDS)
def test_an_endpoint_that_only_claims_a_test_case_of_http_09_fails(
    case: str, does: str, pretends: str, words: str, tmp_path: Path
) -> None:
    folder = http_09(tmp_path / "ngtcp2")
    script = folder / "run_endpoint.sh"
    text = script.read_text()
    assert does in text
    script.write_text(text.replace(does, pretends))
    with interop_endpoint.opened(folder) as pair:
        found = sample(tmp_path, "interop", case, pair=pair)
    assert found.status == "failed" and words in found.reason, found


OTHERS = {
    "quinn": {
        "retry": "ok",
        "resumption": "ok",
        "zerortt": "ok",
        "http3": "ok",
        "v2": "unsupported",
    },
    "quic-go": {"zerortt": "ok", "keyupdate": "ok", "v2": "unsupported"},
    "aioquic": {"zerortt": "ok", "v2": "ok", "keyupdate": "unsupported"},
    "s2n-quic": {"retry": "ok", "ecn": "ok", "resumption": "unsupported"},
}
"""Test cases of the endpoints that other stacks than ngtcp2 have in tests/endpoints."""


@pytest.mark.long
@pytest.mark.parametrize("stack", OTHERS)
@pytest.mark.promise("P78")
def test_the_endpoints_of_other_stacks_pass(stack: str, tmp_path: Path) -> None:
    source, folder = paths.ROOT / "tests/endpoints" / stack, tmp_path / stack
    subprocess.run(["make", "-s", "-C", source, "endpoint", f"OUT={folder}"], check=True)
    with interop_endpoint.opened(folder) as pair:
        found = check(tmp_path, "interop", *OTHERS[stack], pair=pair)
    statuses = {case: samples[0].status for case, samples in found.samples.items()}
    assert statuses == OTHERS[stack], [one[0].reason for one in found.samples.values()]


def endpoint(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "run_endpoint.sh").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "run_endpoint.sh").chmod(0o755)
    return folder


READS_KEYS = (
    "cat /certs/cert.pem /certs/priv.key /certs/ca.pem >/dev/null && ls /www /downloads /logs ||"
    " exit 3; "
)
"""What a script does before it looks at TESTCASE: quic-go's, x/net's and neqo's read the
certificates.
"""


@pytest.mark.parametrize(
    ("text", "faults", "words"),
    [
        ("exit 0", 2, "it ended with status 0"),
        ("exit 1", 2, "it ended with status 1"),
        ("/quic-go/server", 2, "a program is missing"),
        ('[ "$ROLE" = client ] && exit 127; sleep 100', 1, "the server must refuse"),
        (f"{READS_KEYS} [ -x run_endpoint.sh ] && echo x >ticket || exit 3; exit 127", 0, ""),
    ],
)
def test_what_is_not_compliant_is_named(
    text: str, faults: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interop_endpoint, "COMPLIANCE_S", 3.0)
    with interop_endpoint.opened(endpoint(tmp_path / "endpoint", text)) as pair:
        found = sample(tmp_path, "interop", "handshake", pair=pair)
    assert found.status == ("failed" if faults else "unsupported")
    assert found.reason.count("not compliant") == faults and words in found.reason


@pytest.mark.usefixtures("_ngtcp2")
@pytest.mark.promise("P78")
def test_two_endpoints_are_paired_and_have_variables_and_a_directory(tmp_path: Path) -> None:
    """The client is an image's: its command finds its script in the working directory, and has our
    variables.
    """
    root = tmp_path / "image"
    (root / "q").mkdir(parents=True)
    shutil.copy(NGTCP2 / "run_endpoint.sh", root / "q/run.sh")
    text = (
        (root / "q/run.sh")
        .read_text()
        .replace("/setup.sh", "mkdir -p /logs/qlog")
        .replace("/wait-for-it.sh", ":")
    )
    (root / "q/run.sh").write_text(
        text.replace("set -u", 'set -u; [ "$PWD $OWN" = "/q yes" ] || exit 1')
    )
    config = ImageConfig(("./run.sh",), {"OWN": "no"}, "/q")
    image = Image("ours", Path("/"), (Mount(root / "q", "/q"),), config)
    variables = {"client": {"OWN": "yes", "CLIENT_PARAMS": "--cc=reno"}}
    with interop_endpoint.opened(NGTCP2) as usual:
        pair = dataclasses.replace(
            usual, images={**usual.images, "client": image}, environment=variables
        )
        found = check(tmp_path, "interop", "handshake", pair=pair, environment=variables)
    [one] = found.samples["handshake"]
    assert (one.status, one.reason) == ("ok", "")
    document = json.loads((found.folder / "check.json").read_text())
    assert (document["stack"], document["environment"]) == ("ours to ngtcp2", variables)
