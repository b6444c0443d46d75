# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher, and `./satlab test` over a Makefile of the test's."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from satlab.common import install, paths
from tools import run_tests

INSTALL = "import sys\nprint('installs', *sys.argv[1:], flush=True)\n"
MAKEFILE = """\
lint rust python vm-nspawn:
	@echo "$@ $(ARGS) niceness $$(nice)"; exit $(or $(STATUS_$@),0)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose environment is that of uv.lock; its Python prints its arguments."""
    for folder in (".venv/bin", ".satlab", "src/satlab/common"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(paths.ROOT / "satlab", tmp_path)
    (tmp_path / "uv.lock").write_text("version = 1\n")
    locked = hashlib.sha256(f"{tmp_path}\nversion = 1\n".encode()).hexdigest()
    (tmp_path / ".satlab/python").write_text(f"{locked} build\n")
    (tmp_path / "src/satlab/common/install.py").write_text(INSTALL)
    python = tmp_path / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    return tmp_path


def launch(clone: Path, *words: str) -> list[str]:
    (clone / "link").unlink(missing_ok=True)
    (clone / "link").symlink_to(clone / "satlab")
    argv = [str(clone / "link"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def test_words_go_to_the_program_the_installation_or_the_tests(clone: Path) -> None:
    assert launch(clone, "list", "a b") == ["-m satlab list a b"]
    assert launch(clone, "--install", "lab") == ["-m satlab.common.install lab"]
    assert launch(clone, "test", "all") == [f"{clone}/tools/run_tests.py all"]


def test_the_environment_is_made_anew_when_the_lock_has_changed(clone: Path) -> None:
    (clone / "uv.lock").write_text("version = 2\n")
    assert launch(clone, "list") == ["installs python", "-m satlab list"]
    (clone / ".satlab/python").unlink()
    assert launch(clone, "list") == ["installs python", "-m satlab list"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is installed; the verbs are those of a Makefile that prints them."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(run_tests, "MAKE", ("make", "--no-print-directory", "-C", str(tmp_path)))
    monkeypatch.setattr(run_tests.Suite, "_compile", lambda *_: [])
    monkeypatch.setattr(install, "install", lambda *_, **__: None)
    monkeypatch.setattr(install, "STATE", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


@pytest.mark.usefixtures("root")
def test_p383_lint_and_the_vm_lab_run_beside_the_tests_with_less_weight(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["suite", "all", "-k", "word"])
    assert run_tests.main() == 0
    said, ours = capfd.readouterr(), os.nice(0)
    assert said.out.splitlines() == [
        f"rust  niceness {ours}",
        f"python -k word niceness {ours}",
        f"vm-nspawn -k word niceness {min(ours + 5, 19)}",
        f"lint  niceness {min(ours + 15, 19)}",
    ]
    durations = said.err.rpartition("durations: ")[2].split("; ")
    assert [text.partition(" s (CPU")[0].rpartition(" ")[0] for text in durations] == [
        "installation",
        "rust",
        "python",
        "lint and vm-nspawn, the rest",
    ]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("verb", ["rust", "python", "vm-nspawn", "lint"])
def test_a_failure_on_any_side_fails_all(
    verb: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STATUS_{verb}", "1")
    monkeypatch.setattr("sys.argv", ["suite", "all"])
    assert run_tests.main() == 1
    assert f"{verb}  niceness" in capfd.readouterr().out
