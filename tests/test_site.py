# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site's rules; `make lint` builds the whole site by them."""

import subprocess
from pathlib import Path

import pytest

from satlab.common import paths
from tests import sphinx_site


@pytest.mark.parametrize(
    ("link", "said"), [("../README.md", ""), ("missing.md", "missing.md"), ("#nowhere", "nowhere")]
)
def test_a_broken_link_fails(link: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Read me\n\nText.\n")
    (tmp_path / "docs/index.md").write_text(f"# Index\n\n[link]({link})\n")
    done = sphinx_site.build(tmp_path, tmp_path / "out")
    assert (done.returncode == 0) is (not said) and said in done.stderr, done.stderr
    assert (tmp_path / "out/docs/index.html").is_file()


def test_lint_builds_the_site() -> None:
    done = subprocess.run(["make", "-n", "-C", str(paths.ROOT), "lint"], capture_output=True, text=True, check=True)
    assert "-m sphinx -q -W" in done.stdout
