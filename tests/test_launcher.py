# SPDX-License-Identifier: GPL-3.0-or-later
"""`./satlab test` over a Makefile of its own, in a folder where everything is installed."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from satlab.common import paths
from tests import slurm

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROGRAMS = ("satlink", "satbox", "satpep", "satperf", "satfec", "satvirtual")
PLOTS = "src/satlab/report/plots"
MAKEFILE = """\
lint:
	@echo $@ done, niceness $$(nice); touch begun-$@; exit $(or $(LINT_STATUS),0)
rust:
	@echo $@ done
python unit soak:
	@for one in $(BACKGROUND); do until [ -e begun-$$one ]; do sleep 0.1; done; done; \
	echo "$@ $(ARGS)"; sleep 1; exit $(or $(PYTHON_STATUS),0)
vm-nspawn:
	@echo $@ done, niceness $$(nice); touch begun-$@; exit $(or $(VM_STATUS),0)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the launcher and all that it would install, as if it had."""
    packages = (
        f".satlab/packages/{name}"
        for name in ("influxdb", "openssh-server", "libwrap0", *slurm.NAMES)
    )
    for name in ("crates", *packages, ".satlab/snakemake/bin", ".venv/bin", "target/ci"):
        (tmp_path / name).mkdir(parents=True)
    locks = (f"requirements-{which}.lock" for which in ("dev", "build", "campaign", "picoquic"))
    for name in ("Cargo.toml", "Cargo.lock", *locks):
        shutil.copy(paths.ROOT / name, tmp_path)
    plots = tmp_path / PLOTS
    shutil.copytree(paths.ROOT / PLOTS, plots)
    locked = hashlib.sha256((plots / "package-lock.json").read_bytes()).hexdigest()
    (tmp_path / ".satlab/plots.sha256").write_text(f"{locked}  -\n")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    shutil.copy(paths.ROOT / "satlab", tmp_path)
    lock = hashlib.sha256((tmp_path / "requirements-dev.lock").read_bytes()).hexdigest()
    (tmp_path / ".satlab/requirements-dev.lock.sha256").write_text(f"{lock}  -\n")
    for installed, own in (("snakemake", "campaign"), ("picoquic", "picoquic")):
        pins = b"".join(
            (tmp_path / f"requirements-{which}.lock").read_bytes() for which in ("build", own)
        )
        (tmp_path / f".satlab/{installed}.sha256").write_text(
            f"{hashlib.sha256(pins).hexdigest()}  -\n"
        )
    (tmp_path / ".satlab/picoquic").mkdir()
    others = (".venv/bin/python", ".satlab/snakemake/bin/python", ".satlab/picoquic/picoquicdemo")
    for file in (*others, *(f"target/ci/{name}" for name in PROGRAMS)):
        (tmp_path / file).write_text("#!/bin/sh\n")
        (tmp_path / file).chmod(0o755)
    later = (tmp_path / "satlab").stat().st_mtime + 3600
    for groups in ("test", "test-test-vm", "lab-quic-vm"):
        stamp = tmp_path / f".satlab/packages-{groups}"
        stamp.touch()
        os.utime(stamp, (later, later))
    return tmp_path


def launch(clone: Path, *words: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    argv = [str(clone / "satlab"), "test", *words]
    # On a busy host these start late: the other tests end only after they began.
    settings |= {"BACKGROUND": "lint vm-nspawn"} if words[:1] == ("all",) else {}
    return subprocess.run(
        argv, env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False
    )


def phases(stderr: str) -> list[str]:
    (line,) = re.findall(r"^satlab: durations: (.*)$", stderr, re.MULTILINE)
    return re.findall(r"(\S[^;]*) \d+ s \(CPU \d+ s\);", line)


def test_the_durations_of_all_phases_come_last(clone: Path) -> None:
    done = launch(clone, "-k", "word")
    assert done.returncode == 0, done.stderr
    *side_by_side, last = done.stdout.splitlines()
    assert sorted(line.partition(" done")[0] for line in side_by_side if " done" in line) == [
        "lint",
        "rust",
    ]
    assert (f"lint done, niceness {os.nice(0)}" in side_by_side, last) == (True, "python -k word")
    assert phases(done.stderr) == ["installation", "lint rust", "python"]
    assert int(re.findall(r"python (\d+) s", done.stderr)[0]) >= 1


def test_a_failed_phase_ends_the_tests_and_those_before_it_are_shown(clone: Path) -> None:
    done = launch(clone, PYTHON_STATUS="1")
    assert done.returncode != 0
    assert phases(done.stderr) == ["installation", "lint rust"]


def test_p383_lint_and_the_vm_lab_have_a_smaller_weight_and_come_last(clone: Path) -> None:
    """Never none, as in the kernel's idle class: on a busy host they end, too."""
    done = launch(clone, "all")
    assert done.returncode == 0, done.stderr
    ours = os.nice(0)
    vm_lab, lint = (
        f"{name} done, niceness {min(ours + more, 19)}"
        for name, more in (("vm-nspawn", 5), ("lint", 15))
    )
    assert done.stdout.splitlines() == ["rust done", "python ", vm_lab, lint]
    assert phases(done.stderr) == ["installation", "rust", "python", "lint and vm-nspawn, the rest"]


def test_the_soak_alone(clone: Path) -> None:
    done = launch(clone, "soak", "--rounds", "3")
    assert (done.returncode, done.stdout) == (0, "soak --rounds 3\n"), done.stderr


@pytest.mark.parametrize("failing", ["PYTHON_STATUS", "VM_STATUS", "LINT_STATUS"])
def test_a_failure_on_any_side_fails_all(clone: Path, failing: str) -> None:
    done = launch(clone, "all", **{failing: "1"})
    assert done.returncode != 0
    assert "niceness" in done.stdout, "what the others said is shown"


NPM = """\
#!/bin/sh
[ -n "$NPM_STATUS" ] && exit "$NPM_STATUS"
[ "$1 $2" = "ci --prefix" ] && [ -f "$3/package-lock.json" ] && touch "$3/installed"
"""


def test_the_library_of_plots_comes_from_its_lock_file_once(clone: Path) -> None:
    """Where npm has none, everything else is installed: reports are larger."""
    npm, stamp = clone / "programs/npm", clone / ".satlab/plots.sha256"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    expected = stamp.read_text()
    stamp.unlink()
    path = f"{npm.parent}:{os.environ['PATH']}"
    failed = launch(clone, "soak", PATH=path, NPM_STATUS="1")
    assert (failed.returncode, stamp.exists()) == (0, False), failed.stderr
    assert "reports have 2 MB" in failed.stderr
    for _ in range(2):
        done = launch(clone, "soak", PATH=path)
        assert (done.returncode, stamp.read_text()) == (0, expected), done.stderr
    assert (clone / ".satlab/plots/installed").exists()


def test_a_newer_checkout_of_the_same_sources_is_not_built_again(clone: Path) -> None:
    """CI restores programs from a cache into a fresh checkout, whose files are newer."""
    programs = [clone / "target/release" / name for name in ("satlink", "satbox", "satvirtual")]
    stub = clone / ".cargo/bin"
    for folder in (stub, clone / "target/release"):
        folder.mkdir(parents=True)
    for name in ("cargo", "rustc"):
        (stub / name).write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo {name} 1.99.0 || touch "{clone}/built"\n'
        )
        (stub / name).chmod(0o755)
    sums = "".join(
        f"{hashlib.sha256((clone / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("Cargo.lock", "Cargo.toml")
    )
    for program in programs:
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        os.utime(program, (0, 0))
        stamp = clone / f".satlab/release-{program.name}.sources"
        stamp.write_text(f"{hashlib.sha256(sums.encode()).hexdigest()}  -\n")
    later = (clone / "satlab").stat().st_mtime + 3600
    stamp = clone / ".satlab/packages-lockstep"
    stamp.touch()
    os.utime(stamp, (later, later))

    def install() -> None:
        argv = [str(clone / "satlab"), "--install", "lockstep"]
        subprocess.run(argv, env=os.environ | {"HOME": str(clone)}, check=True, timeout=60)

    install()
    assert not (clone / "built").exists()
    with (clone / "Cargo.toml").open("a") as file:
        file.write("# changed\n")
    install()
    assert (clone / "built").exists()
