# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of the pages work with the server of the API's tests."""

from pathlib import Path

import pytest

from collect.fixtures import example_run
from satlab.service.api.conftest import *  # noqa: F403 - its fixtures
from satlab.service.api.conftest import _cheap_passwords as _cheap_passwords  # noqa: PLC0414


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run folder with page loads and a transfer, and a report."""
    example = example_run.Example(loads={"h1": 2, "h3": 2}, censored=1, observed=1)
    folder = example_run.write(tmp_path_factory.mktemp("runs"), example)
    (folder / "report").mkdir()
    policy = (
        '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; script-src'
        ' &#39;x&#39;">'
    )
    (folder / "report" / "index.html").write_text(f"<head>{policy}</head><script>1</script>")
    return folder
