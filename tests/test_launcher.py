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


@pytest.mark.parametrize("broken", ["", "rust", "python", "vm-nspawn", "lint"])
def test_p383_lint_and_the_vm_lab_run_beside_the_tests_with_less_weight(
    broken: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything is installed, and the verbs are those of a Makefile that prints them; a failure of
    any of them fails all.
    """
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(run_tests, "MAKE", ("make", "--no-print-directory", "-C", str(tmp_path)))
    monkeypatch.setattr(run_tests.Suite, "_compile", lambda *_: [])
    monkeypatch.setattr(install, "install", lambda *_, **__: None)
    monkeypatch.setattr(install, "STATE", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(f"STATUS_{broken}", "1")
    monkeypatch.setattr("sys.argv", ["run_tests", "all", "-k", "word"])
    assert run_tests.main() == int(bool(broken))
    said, ours = capfd.readouterr().out, os.nice(0)
    lines = {
        "rust": f"rust  niceness {ours}",
        "python": f"python -k word niceness {ours}",
        "vm-nspawn": f"vm-nspawn -k word niceness {min(ours + 5, 19)}",
        "lint": f"lint  niceness {min(ours + 15, 19)}",
    }
    assert lines[broken] in said if broken else said.splitlines() == [*lines.values()]
