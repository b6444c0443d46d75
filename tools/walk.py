# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk through tutorials as a newcomer does:

`python3 tools/walk.py FOLDER docs/tutorials/*.md`, in a fresh clone.

Each file that a tutorial shows is written, each command runs as it is printed, with a clock;
`runs/NAME-DATE-TIME` is the newest such folder. FOLDER keeps all output and a picture of every new
page. Prints a JSON line for each command. Standard library alone: a fresh clone has nothing else.
Status 1: a command ended with an unexpected status.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

EXPECTED = (0, 1, 4)
"""1: something was found or became slower, which tutorials show; 4: the host was out of
calibration.
"""
DEADLINE_S = 3600.0
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^# (\S+\.(?:yml|yaml|json))\b.*$")
DATED = re.compile(r"\bruns/([a-z0-9-]+)-\d{8}-\d{6}\b")
WINDOW = "1200,2400"


@dataclass(frozen=True)
class Step:
    """A file to write (`name`), or a command (`name` is empty)."""

    text: str
    name: str = ""


@dataclass(frozen=True)
class Walked:
    """A command that ended: its exit status (None at the deadline), duration, and the pages that it
    wrote.
    """

    tutorial: str
    command: str
    status: int | None
    took_s: float
    pages: Sequence[str]


def steps(markdown: str) -> Iterator[Step]:
    """Yield the files and commands of a tutorial in their order; a file is a block whose first line
    is its name.
    """
    for language, text in BLOCK.findall(markdown):
        first = text.partition("\n")[0]
        if language == "sh":
            yield from (Step(command) for command in commands(text))
        elif named := NAMED.match(first):
            yield Step(text, named[1])


def commands(block: str) -> list[str]:
    """Return the commands of a block, a line each; a line that ends with a backslash goes on."""
    joined = block.replace("\\\n", " ")
    return [
        " ".join(line.split())
        for line in joined.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def with_newest(command: str, tree: Path) -> str:
    """Return a command with the newest folder in place of each dated one."""

    def newest(found: re.Match[str]) -> str:
        folders = sorted(
            (tree / "runs").glob(f"{found[1]}-[0-9]*"), key=lambda path: path.stat().st_mtime
        )
        return f"runs/{folders[-1].name}" if folders else found[0]

    return DATED.sub(newest, command)


def walk(tutorial: Path, tree: Path, out: Path) -> Iterator[Walked]:
    """Do the steps of a tutorial in the tree; pages are drawn into `out`."""
    for number, step in enumerate(steps(tutorial.read_text(encoding="utf-8")), start=1):
        if step.name:
            (tree / step.name).write_text(step.text, encoding="utf-8")
            continue
        began_unix_s, began = time.time(), time.monotonic()
        log = out / f"{tutorial.stem}-{number:02}.log"
        status = _run(with_newest(step.text, tree), tree, log)
        took_s = round(time.monotonic() - began, 1)
        pages = [
            page
            for page in sorted((tree / "runs").rglob("*.html"))
            if page.stat().st_mtime >= began_unix_s
        ]
        for page in pages:
            draw(page, out / f"{log.stem}-{page.parent.name}-{page.stem}.png")
        names = [str(page.relative_to(tree)) for page in pages]
        yield Walked(tutorial.stem, step.text, status, took_s, names)


def _run(command: str, tree: Path, log: Path) -> int | None:
    with log.open("w", encoding="utf-8") as output:
        output.write(f"$ {command}\n")
        output.flush()
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tree,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    return done.returncode


def draw(page: Path, picture: Path) -> None:
    """Draw a page with Chromium, if it is there."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    argv += [
        f"--window-size={WINDOW}",
        "--virtual-time-budget=8000",
        f"--screenshot={picture}",
        page.resolve().as_uri(),
    ]
    subprocess.run(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False
    )


def main(argv: Sequence[str]) -> int:
    """Walk through the tutorials and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="takes logs and pictures; made if it is missing")
    parser.add_argument("tutorials", type=Path, nargs="+", help="Markdown files")
    given = parser.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    good = True
    for tutorial in given.tutorials:
        for walked in walk(tutorial, Path.cwd(), given.folder):
            print(json.dumps(asdict(walked)), flush=True)
            good = good and walked.status in EXPECTED
    return 0 if good else 1


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main(sys.argv[1:]))
