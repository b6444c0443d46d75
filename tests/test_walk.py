# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk through tutorials: their files and commands in order, and what runs of them."""

import json
from pathlib import Path

import pytest

from satlab.common import paths
from tools import walk

TUTORIALS = sorted((paths.ROOT / "docs" / "tutorials").glob("*.md"))
TEXT = """
# Tutorial

```yaml
# queue.yml; a comment
loss: 1
```

```sh
cat queue.yml     # what is there
test -f runs/check-ci-20200101-000000/check.json && \\
  echo found
```

```text
not a command
```

```sh
exit 3
```
"""


def test_files_and_commands_are_done_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial = tmp_path / "tutorial.md"
    tutorial.write_text(TEXT)
    for name in ("check-ci-20260101-000000", "check-other-20270101-000000"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "check-ci-20260101-000000" / "check.json").touch()
    assert walk.main([str(tmp_path / "out"), str(tutorial)]) == 1
    done = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["status"] for one in done] == [0, 0, 3]
    assert all(one["took_s"] >= 0 for one in done)
    logs = sorted((tmp_path / "out").glob("*.log"))
    assert [log.read_text().splitlines()[1:] for log in logs] == [
        ["# queue.yml; a comment", "loss: 1"],
        ["found"],
        [],
    ]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_each_tutorial_has_commands_to_walk(tutorial: Path) -> None:
    found = list(walk.steps(tutorial.read_text()))
    assert any("./satlab" in step.text for step in found if not step.name)
    assert not [step.text for step in found if not step.name and step.text.endswith("\\")]
