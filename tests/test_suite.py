# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of tests/plugin.py: what a skip is in CI, and what runs when."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from satlab.common import paths

MARKERS = "markers=net\ntiming\nlong"


def pytest_of(folder: Path, source: str, *arguments: str, **environment: str) -> str:
    """Run pytest with tests/plugin.py over a file of tests; return its output and exit status."""
    (folder / "test_made.py").write_text(source)
    argv = [sys.executable, *"-m pytest -p tests.plugin -p no:cacheprovider -ra".split()]
    places = ["-c", "/dev/null", f"--rootdir={folder}", f"--basetemp={folder / 'temp'}"]
    done = subprocess.run(
        [*argv, *places, "-o", MARKERS, *arguments, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{paths.ROOT}:{paths.PYTHONPATH}"} | environment,
        timeout=100,
    )
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


SKIPS = """
import pytest, unittest
def test_call(): pytest.skip("no such program")
@pytest.mark.skipif(True, reason="needs root")
def test_mark(): pass
@pytest.fixture
def lacking(): pytest.skip("not built")
def test_setup(lacking): pass
def test_import(): pytest.importorskip("no_such_module")
def test_allowed(): pytest.skip("no limit of CPU time here: [Errno 30] Read-only file system")
@pytest.mark.xfail(reason="known")
def test_xfail(): assert False
def test_passes(): pass
"""
MODULE = 'import pytest\npytest.skip("needs another system", allow_module_level=True)\n'


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [
        ("true", "2 failed, 1 passed, 1 skipped, 1 xfailed, 3 errors"),
        ("", "1 passed, 6 skipped, 1 xfailed"),
    ],
)
def test_a_skip_fails_in_ci_unless_its_reason_is_allowed(
    ci: str, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    said = pytest_of(tmp_path, SKIPS, "--continue-on-collection-errors", CI=ci)
    assert outcome in said, said
    assert said.count("skipped in CI: ") >= (5 if ci else 0), said


TIMING = """
import pathlib, time, pytest
LOG = pathlib.Path(__file__).with_name("log")
def run(kind):
    with LOG.open("a") as log: print(kind, 1, file=log)
    time.sleep(1.0)
    with LOG.open("a") as log: print(kind, -1, file=log)
@pytest.mark.timing
@pytest.mark.parametrize("n", range(6))
def test_timing(n): run("timing")
@pytest.mark.parametrize("n", range(4))
def test_other(n): run("other")
"""


@pytest.mark.timing
def test_what_measures_time_has_two_neighbours_of_its_kind(tmp_path: Path) -> None:
    said = pytest_of(tmp_path, TIMING, "-n", "4", "--dist", "loadscope")
    assert "10 passed" in said, said
    running, seen = Counter[str](), set()
    for line in (tmp_path / "log").read_text().splitlines():
        kind, change = line.split()
        running[kind] += int(change)
        seen.add((running["timing"], running["other"]))
    assert {timing for timing, _ in seen} == {0, 1, 2, 3}, seen
    assert all(other == 0 for timing, other in seen if timing), seen


SHARED = """
import os, pathlib, pytest
@pytest.fixture(scope="module")
def shared(): return os.getpid()
@pytest.mark.parametrize("n", range(8))
def test_shared(shared, n):
    with pathlib.Path(__file__).with_name("log").open("a") as log: print(shared, file=log)
    assert os.listdir("/run") == ["lock"]
"""


def test_a_file_that_shares_a_fixture_has_one_worker_with_a_run_folder_of_its_own(
    tmp_path: Path,
) -> None:
    said = pytest_of(tmp_path, SHARED, "-n", "2", "--dist", "loadscope")
    assert "8 passed" in said, said
    assert len(set((tmp_path / "log").read_text().splitlines())) == 1


ORDER = """
import pytest
@pytest.mark.timing
@pytest.mark.net
def test_timing(): pass
@pytest.mark.net
def test_short(): pass
@pytest.mark.net
@pytest.mark.long
def test_long(): pass
def test_pure(): pass
"""
WHOLE = 'import pytest\n@pytest.fixture(scope="module")\ndef one(): pass\ndef test_whole(): pass\n'


def test_p287_what_is_long_begins_early_and_what_measures_time_comes_last(tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text(WHOLE)
    said = pytest_of(tmp_path, ORDER, "--collect-only", "-q")
    assert re.findall(r"::test_(\w+)", said) == ["whole", "pure", "long", "short", "timing"], said


REPEATS = """
import pathlib, pytest
def fails_once(name):
    place = pathlib.Path(__file__).with_name(name)
    if not place.exists():
        place.touch()
        pytest.fail("the first time")
@pytest.mark.net
@pytest.mark.parametrize("n", range(3))
def test_real_time(n): fails_once(f"real-{n}")
@pytest.mark.net
def test_broken(): assert False
def test_pure(): fails_once("pure")
"""


@pytest.mark.parametrize(
    ("most", "outcome"),
    [("5", "2 failed, 3 passed, 4 rerun"), ("2", "3 failed, 2 passed, 2 rerun")],
)
def test_a_test_in_real_time_may_fail_once_and_a_suite_a_few_times(
    most: str, outcome: str, tmp_path: Path
) -> None:
    said = pytest_of(tmp_path, REPEATS, "--max-suite-reruns", most)
    assert outcome in said, said
    assert "repeated: test_made.py::test_real_time[0]: Failed: the first time" in said, said


LEAVES = """
import subprocess
def test_leaves(): subprocess.Popen(["sleep", "{seconds}"], start_new_session=True)
def test_ends(): subprocess.run(["true"])
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_p285_a_process_that_tests_leave_is_named_and_ended_and_fails_them(
    workers: str, tmp_path: Path
) -> None:
    seconds = f"100{workers}.5"  # another one than in the same test on another worker
    said = pytest_of(tmp_path, LEAVES.format(seconds=seconds), "-n", workers)
    for words in ("2 passed", f"left by tests: sleep {seconds}", "exit status 1"):
        assert words in said, said
    found = subprocess.run(["pgrep", "-f", f"^sleep {seconds}"], capture_output=True, check=False)
    assert not found.stdout


def test_documentation_of_crates_has_no_tests() -> None:
    """`make rust` does not look for them, which would take a run of rustdoc for each crate."""
    fence = re.compile(r"^\s*//[/!] *```(\w*)$", re.MULTILINE)
    for file in (paths.ROOT / "crates").rglob("*.rs"):
        assert set(fence.findall(file.read_text())[::2]) <= {"text"}, file


@pytest.mark.parametrize(
    "manifest", sorted(paths.ROOT.glob("crates/*/Cargo.toml")), ids=lambda path: path.parent.name
)
def test_p284_no_test_of_a_crate_is_left_out(manifest: Path) -> None:
    """Where one program has all tests of a crate, it names each file.

    What is not built as a test has none.
    """
    crate, content = manifest.parent, tomllib.loads(manifest.read_text())
    if not content["package"].get("autotests", True):
        named = re.findall(r"^mod (\w+);$", (crate / "tests" / "all.rs").read_text(), re.MULTILINE)
        named += [target["name"] for target in content["test"]]
        assert {file.stem for file in (crate / "tests").glob("*.rs")} <= set(named)
    untested = [
        crate / target["path"] for target in content.get("bin", ()) if not target.get("test", True)
    ]
    for program in untested.copy():
        modules = re.findall(r"^mod (\w+);$", program.read_text(), re.MULTILINE)
        places = [(program.with_name(f"{name}.rs"), program.parent / name) for name in modules]
        untested += [file if file.exists() else folder / "mod.rs" for file, folder in places]
    for file in (*untested, *crate.glob("examples/**/*.rs")):
        assert not re.search(r"^\s*#\[(test|cfg\(test\))\]", file.read_text(), re.MULTILINE), file
