# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in lock-step with the virtual clock, in their sandboxes: aioquic's adapter, and planted
faults.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from satlab.check import check_run
from satlab.check.check_result import CheckResult
from satlab.check.check_run import CheckRequest
from satlab.check.endpoint import lockstep
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from tests.net.conftest import built_ngtcp2

pytestmark = pytest.mark.net

AIOQUIC = f"{sys.executable} {paths.ROOT / 'tests/endpoints/aioquic/lockstep.py'}"
SUITE = """
schema: satlab/suite/1
name: brief
source: the test
link: {rtt_ms: 650, queue_bdp: 1.0}
marks_mb: [0.1, 0.5]
cases:
  - {id: down, forward_mbps: 10, return_mbps: 2, targets_s: [30, 60], timeout_s: 60}
  - {id: up, forward_mbps: 10, return_mbps: 2, direction: upload, targets_s: [30, 60], timeout_s: 60}
  - {id: again, forward_mbps: 10, return_mbps: 2, second_after_s: 5, targets_s: [30, 60], timeout_s: 60}
  - {id: lossy, forward_mbps: 10, return_mbps: 2, loss: {unit: packet, ratio: 0.02}, targets_s: [null, null]}
"""


def check(
    tmp_path: Path,
    client: str,
    server: str,
    *cases: str,
    out: str = "runs",
    content: str = SUITE,
    **more: Any,
) -> CheckResult:
    suite = tmp_path / "brief.yml"
    suite.write_text(content)
    programs = lockstep.parse(client, server, [Path(sys.prefix)], **more)
    request = CheckRequest(str(suite), cases, runs=1, out=tmp_path / out, programs=programs)
    return check_run.run(request, ProgressLog(quiet=True))


def outcome(found: CheckResult, case: str) -> str:
    """Return what satvirtual printed, without the names of temporary files."""
    document = json.loads((found.folder / "raw" / f"{case}-1.outcome.json").read_text())
    del document["request"]["programs"]
    return json.dumps(document)


CASES = ("down", "up", "again", "lossy")


def repeated(tmp_path: Path, program: str) -> CheckResult:
    """Check a program twice against itself: all cases pass, and a repeat is identical."""
    found, again = (check(tmp_path, program, program, *CASES, out=out) for out in ("a", "b"))
    for case in CASES:
        [one] = found.samples[case]
        assert (one.status, one.reason) == ("ok", ""), case
        half, whole = one.times_s
        assert half is not None and whole is not None and one.floors_s[1] < whole < 60
        assert one.spent_s is not None and sum(one.spent_s.values()) == pytest.approx(
            whole, abs=1e-6
        )
        assert outcome(found, case) == outcome(again, case), case
    return found


def assert_early_data(found: CheckResult) -> None:
    """The second connection sends its request as 0-RTT data: a round trip less."""
    [first], [second] = found.samples["down"], found.samples["again"]
    assert second.time_to_first_byte_ms is not None and first.time_to_first_byte_ms is not None
    assert 600 < first.time_to_first_byte_ms - second.time_to_first_byte_ms < 700


def assert_early_data_and_losses(found: CheckResult) -> None:
    assert_early_data(found)
    [first] = found.samples["down"]
    assert (found.samples["lossy"][0].lost_packets or 0) > 0 == (first.lost_packets or 0)


@pytest.mark.promise("P74")
def test_aioquic_passes_the_same_cases_with_causes_and_repeats_are_identical(
    tmp_path: Path,
) -> None:
    found = repeated(tmp_path, AIOQUIC)
    assert found.input.stack == "aioquic"
    assert_early_data_and_losses(found)


def test_ngtcp2_passes_and_repeats_are_identical(tmp_path: Path) -> None:
    repeated(tmp_path, str(built_ngtcp2(tmp_path / "build") / "ngtcp2-lockstep"))


@pytest.fixture
def picoquic() -> str:
    if not paths.PICOQUIC_LOCKSTEP.is_file():
        pytest.skip("picoquic is not built: ./satlab --install picoquic")
    return str(paths.PICOQUIC_LOCKSTEP)


def test_picoquic_passes_and_repeats_are_identical(tmp_path: Path, picoquic: str) -> None:
    """Packets of the handshake count as lost: picoquic expects a round trip of 250 ms."""
    found = repeated(tmp_path, picoquic)
    assert_early_data(found)
    [plain], [lossy] = found.samples["down"], found.samples["lossy"]
    assert (lossy.lost_packets or 0) > (plain.lost_packets or 0) + 2
    for case in ("down", "up", "lossy"):
        assert not NOT_TOLD & set(spent(found, case)), case
    assert "flow control" not in spent(found, "down")


def test_picoquic_and_aioquic_transfer_to_each_other(tmp_path: Path, picoquic: str) -> None:
    for out, pair in (("a", (picoquic, AIOQUIC)), ("b", (AIOQUIC, picoquic))):
        for case in ("down", "up"):
            [one] = check(tmp_path, *pair, case, out=out + case).samples[case]
            assert (one.status, one.reason) == ("ok", ""), (pair, case)


def test_picoquic_s_variables_choose_its_congestion_control_and_its_credit(
    tmp_path: Path, picoquic: str
) -> None:
    """A receiver's small window blocks the sender, until picoquic widens it."""
    narrow = {"client": {"RECEIVE_WINDOW": "65536"}, "server": {"CONGESTION_CONTROL": "cubic"}}
    parts = spent(check(tmp_path, picoquic, picoquic, "down", environment=narrow), "down")
    assert parts["flow control"] > 0.3, parts
    wrong = {"server": {"CONGESTION_CONTROL": "none"}}
    found = check(tmp_path, picoquic, picoquic, "down", out="wrong", environment=wrong)
    assert "is no algorithm of picoquic" in found.samples["down"][0].reason


@pytest.fixture
def quiche() -> str:
    program = paths.PROGRAMS / "examples" / "quiche-lockstep"
    if not program.is_file():
        pytest.skip(
            f"{program} is missing: an example of the crate satperf with its feature quiche"
        )
    return str(program)


def test_quiche_takes_the_virtual_time_and_repeats_are_identical(
    tmp_path: Path, quiche: str
) -> None:
    """quiche reads the clock itself: the adapter replaces it."""
    assert_early_data_and_losses(repeated(tmp_path, quiche))


def test_quiche_and_aioquic_transfer_to_each_other(tmp_path: Path, quiche: str) -> None:
    """quiche takes the interface's certificates, of aioquic as a server and as a client."""
    for out, pair in (("a", (quiche, AIOQUIC)), ("b", (AIOQUIC, quiche))):
        [one] = check(tmp_path, *pair, "down", out=out).samples["down"]
        assert (one.status, one.reason) == ("ok", ""), pair


@pytest.fixture(scope="module")
def quic_go(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("go") is None:
        pytest.skip("no Go here, which quic-go's adapter is built with")
    program = tmp_path_factory.mktemp("quic-go") / "build" / "lockstep"
    program.parent.mkdir()  # the sandbox's user may read it
    built = subprocess.run(
        ["make", "-C", paths.ROOT / "tests/endpoints/quic-go", f"OUT={program.parent}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "no such host" in built.stderr or "connection refused" in built.stderr:
        pytest.skip(f"quic-go cannot be downloaded: {built.stderr[-200:]}")
    assert built.returncode == 0, built.stderr
    return str(program)


NOT_TOLD = {"idle", "host", "unknown"}
"""Causes of a sender that does not report why it sends no more; no host is late here."""


def spent(found: CheckResult, case: str) -> dict[str, float]:
    [one] = found.samples[case]
    assert one.status == "ok" and one.spent_s is not None, one.reason
    return {cause: time for cause, time in one.spent_s.items() if time}


def test_quic_go_takes_seeded_choices_and_repeats_are_identical(
    tmp_path: Path, quic_go: str
) -> None:
    """Its goroutines run in the same order each time. The longer transfer overflows the queue: there
    repeats differed with the runtime's own scheduler and garbage collection.
    """
    assert_early_data_and_losses(repeated(tmp_path, quic_go))
    content = SUITE.replace("[0.1, 0.5]", "[1, 8]").replace("queue_bdp: 1.0", "queue_bdp: 0.3")
    content = content.replace(
        "forward_mbps: 10, return_mbps: 2", "forward_mbps: 100, return_mbps: 10"
    )
    one, two = (
        outcome(check(tmp_path, quic_go, quic_go, "down", out=out, content=content), "down")
        for out in ("c", "d")
    )
    assert one == two


def test_quic_go_s_server_reports_the_state_of_each_connection(
    tmp_path: Path, quic_go: str
) -> None:
    found = check(tmp_path, quic_go, quic_go, "down", "again")
    assert_early_data(found)
    for case in ("down", "again"):
        parts = spent(found, case)
        assert not NOT_TOLD & set(parts) and parts["slow start"] > 1.0, parts
    # With 0-RTT the request comes a round trip earlier; then the handshake limits what is sent.
    assert spent(found, "again")["handshake"] == pytest.approx(0.325 + 0.65, abs=0.1)


@pytest.mark.parametrize(("case", "receiver"), [("down", "client"), ("up", "server")])
def test_quic_go_s_sender_reports_that_the_credit_is_used_up(
    case: str, receiver: str, tmp_path: Path, quic_go: str
) -> None:
    """Without that report the sender would be one that leaves its window unused."""
    narrow = {receiver: {"RECEIVE_WINDOW": "65536"}}
    parts = spent(check(tmp_path, quic_go, quic_go, case, environment=narrow), case)
    assert max(parts, key=parts.__getitem__) == "flow control", parts
    assert not NOT_TOLD & set(parts), parts


def script(text: str) -> str:
    return f"sh -c {shlex.quote(text)}"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (script("echo no key >&2; exit 3"), "the server: it ended with status 3: no key"),
        (script("echo '{' >&0; cat >/dev/null"), "the server: its message is not valid"),
        (
            script("head -c 100M /dev/zero; echo; echo much; exit 1"),
            "the server: it ended with status 1",
        ),
        (
            script("wc -l </proc/net/dev; exit 1"),
            "it ended with status 1: 3",
        ),  # two lines above that of lo
    ],
)
def test_t39_a_program_in_its_sandbox_fails_with_its_reason(
    server: str, words: str, tmp_path: Path
) -> None:
    """A sandbox has no network, and what a program does there ends its own sample alone."""
    [found] = check(tmp_path, AIOQUIC, server, "down").samples["down"]
    assert found.status == "failed" and words in found.reason, found.reason


def test_variables_reach_a_program(tmp_path: Path) -> None:
    environment = {"server": {"OWN": "yes"}}
    server = script('echo "own $OWN"; exit 1')
    [found] = check(tmp_path, AIOQUIC, server, "down", environment=environment).samples["down"]
    assert found.reason.endswith("own yes")


# --- an ordinary user -----------------------------------------------------------------------------

USER = 1_999_999_777
PLANTED = f"{Path(sys.executable).resolve()} {paths.ROOT / 'tests/endpoints/planted/lockstep.py'}"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of an ordinary user, who is nobody else on this host."""
    folder = Path(tempfile.mkdtemp(prefix="satlab-user-"))
    try:
        (folder / "brief.yml").write_text(SUITE)
        (folder / "secret").write_text("the user's own\n")
        for path in (folder, *folder.iterdir()):
            os.chown(path, USER, USER)
            path.chmod(0o700)
        yield folder
    finally:
        shutil.rmtree(folder)


def as_user(home: Path, server: str, **limits: str) -> subprocess.CompletedProcess[str]:
    argv = [
        *f"{sys.executable} -m satlab check --suite brief.yml --cases down --runs 1 --json".split(),
        "--virtual-client",
        PLANTED,
        "--virtual-server",
        server,
    ]
    kept = {name: os.environ[name] for name in (paths.PROGRAMS_VARIABLE,) if name in os.environ}
    environment = (
        {"PATH": paths.STANDARD_PATH, "HOME": str(home), "PYTHONPATH": paths.PYTHONPATH}
        | kept
        | limits
    )
    identity: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    return subprocess.run(
        argv, cwd=home, env=environment, capture_output=True, text=True, check=False, **identity
    )


@pytest.mark.promise("P82")
def test_an_ordinary_user_runs_programs_in_lock_step(home: Path) -> None:
    done = as_user(home, PLANTED)
    assert done.returncode == ExitStatus.OK, done.stderr
    [case] = json.loads(done.stdout)["cases"]
    assert case["samples"][0]["status"] == "ok"
    check_file = next((home / "runs").glob("*/check.json"))
    assert check_file.stat().st_uid == USER


def test_t46_an_ordinary_user_s_sandbox_has_no_network_no_capability_and_not_the_user_s_files(
    home: Path,
) -> None:
    attempts = [
        "grep CapEff /proc/self/status",
        f"cat {home}/secret || echo unseen",
        "echo $(wc -l </proc/net/dev) $(ls /proc | grep -c '^[0-9]')",
    ]
    done = as_user(home, script(f"({'; '.join(attempts)}) 2>/dev/null; exit 1"))
    [case] = json.loads(done.stdout)["cases"]
    reason = case["samples"][0]["reason"].removeprefix("the server: it ended with status 1: ")
    capabilities, seen, counts = reason.split(" | ")
    devices, processes = counts.split()
    assert (
        int(capabilities.split()[1], 16) == 0 and devices == "3" and seen == "unseen"
    )  # two lines above that of lo
    assert int(processes) < 10


def test_t46_nothing_runs_where_a_user_cannot_make_a_sandbox(home: Path) -> None:
    programs = home / "programs"
    programs.mkdir(mode=0o755)
    for program in ("satlink", "satvirtual"):
        (programs / program).symlink_to(paths.PROGRAMS / program)
    (programs / "satbox").write_text(
        "#!/bin/sh\necho the kernel allows no user namespace >&2\nexit 5\n"
    )
    (programs / "satbox").chmod(0o755)
    done = as_user(home, script(f"touch {home}/ran"), **{paths.PROGRAMS_VARIABLE: str(programs)})
    assert (
        done.returncode == ExitStatus.HOST
        and "not root: a program under test runs in a sandbox" in done.stderr
    )
    assert not (home / "ran").exists() and not (home / "runs").exists()
