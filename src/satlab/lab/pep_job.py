# SPDX-License-Identifier: GPL-3.0-or-later
"""The job satlab_pep outside a scenario: a proxy on one node during a block."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from satlab.common import paths, plain_files, scratch
from satlab.common.errors import HostError
from satlab.common.processes import finish, wait
from satlab.common.topology import Role
from satlab.lab import privileges, sandbox
from satlab.lab.job_host import JOB_LIMITS
from satlab.lab.lab import Lab
from satlab.lab.sandbox import Mount, Sandbox

JOB = "satlab_pep"
READY_S = 20.0
MOST_BYTES, MOST_FOLDERS = 1 << 20, 100
"""Limits of files and folders that the job writes: bytes read, entries looked at."""
END_S = 10.0
_PROGRAM = paths.JOBS / JOB / "files" / f"{JOB}.py"
_NUMBERS = ("JOB_INSTANCE_ID", "SCENARIO_INSTANCE_ID", "OWNER_SCENARIO_INSTANCE_ID")


def proxies(up: Lab) -> list[str]:
    """Name the nodes that proxies run on."""
    return [name for name, node in up.topology.nodes.items() if node.role is Role.PROXY]


@contextlib.contextmanager
def proxy(
    up: Lab,
    node: str,
    words: Sequence[str],
    folder: Path,
    *,
    engine: str,
    readable: Sequence[Path] = (),
) -> Iterator[None]:
    """Run the job on a node during the block, as a separate user. The job is ready when the block
    starts.

    `folder`: where the job's records are written. `words`: further options of the job. `readable`:
    new folders that the job's user shall own.

    Raises:
        HostError: the job is not ready in time; the text has its output.
    """
    uid, capabilities = privileges.new_uid(), privileges.CAPABILITIES[JOB]
    if why := sandbox.lacking(up.place(node), capabilities):
        raise HostError(f"{JOB}: {why}", sandbox.ALLOW)
    folder.mkdir()
    with scratch.folder("pep") as ours:
        (ours / "root").mkdir()
        raw = ours / "raw"
        raw.mkdir()
        scratch.sized(raw, JOB_LIMITS.disk_bytes, JOB_LIMITS.files)
        for place in (raw, *readable):
            privileges.chown_tree(place, uid)
        mounts = (
            *sandbox.programs(),
            *up.place(node).name(),
            Mount.ours(raw, writable=True),
            *map(Mount.ours, readable),
        )
        box = Sandbox(
            uid,
            up.place(node),
            mounts,
            name=node,
            capabilities=capabilities,
            limits=JOB_LIMITS,
            variables=_environment(node, raw),
        )
        nodes = up.topology.nodes
        ends = [nodes[up.topology.node_of(role)].address for role in (Role.CLIENT, Role.SERVER)]
        enter = box.argv(ours / "sandbox.json", ours / "root")
        argv = [*enter, sys.executable, str(_PROGRAM), engine, *ends, *words]
        try:
            with _running(argv, raw, folder / "log"):
                yield
        finally:
            scratch.copy_out(raw, folder)


def connections(folder: Path) -> int:
    """Return how many connections the proxy split, from the record that it wrote at its end."""
    folder = folder.resolve()
    records = plain_files.walk(folder / "files", 2, MOST_FOLDERS, MOST_FOLDERS)
    names = [f"files/{found.name}" for found in records if Path(found.name).name == "pep_json.json"]
    text = plain_files.start_of(folder, names[0], MOST_BYTES) if names else None
    return int(json.loads(text)["connections"]) if text else 0


def _environment(node: str, folder: Path) -> dict[str, str]:
    """Return the variables of a job; its records go to the folder."""
    return {
        "PATH": f"{paths.PROGRAMS}:{paths.STANDARD_PATH}",
        "PYTHONPATH": str(paths.SHIM),
        "JOB_NAME": JOB,
        "PYTHONDONTWRITEBYTECODE": "1",
        "SATLAB_RAW": str(folder.absolute()),
        "SATLAB_AGENT": node,
    } | dict.fromkeys(_NUMBERS, "1")


@contextlib.contextmanager
def _running(argv: list[str], raw: Path, log: Path) -> Iterator[None]:
    def said(folder: Path, name: str) -> str:
        return plain_files.start_of(folder.resolve(), name, MOST_BYTES) or ""

    with log.open("wb") as words:
        nothing = subprocess.DEVNULL
        job = subprocess.Popen(
            argv,
            env=sandbox.ENVIRONMENT,
            cwd=sandbox.HOME,
            stdin=nothing,
            stdout=words,
            stderr=words,
        )
    try:
        is_ready = wait(
            lambda: job.poll() is not None or '"ready"' in said(raw, "stats.jsonl"), READY_S
        )
        if not is_ready or job.poll() is not None:
            raise HostError(
                f"a PEP does not start: {said(log.parent, log.name).strip()}",
                "see that line's hint",
            )
        yield
    finally:
        finish(job, END_S)
