# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and files that playbooks of further jobs name, for the sandboxes of these jobs.

Only with the operator's consent (`--job-packages`). A playbook is read, never run (decision 0012).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from satlab.common import scratch
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.lab import job_overlay, job_packages, privileges
from satlab.lab.job_overlay import Layers
from satlab.lab.job_packages import Apt, Pip
from satlab.openbach import job_playbook
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.job_playbook import Contents


@contextmanager
def of_jobs(
    jobs: Iterable[Descriptor], log: ProgressLog, apt: Apt | None = None, pip: Pip | None = None
) -> Iterator[Mapping[str, Layers]]:
    """Make the layers of jobs that are not shipped, by job; they are removed when the block ends.
    Packages that the host's sources lack are named in the log.

    Raises HostError: packages cannot be fetched (no network), or exceed the bounds.
    """
    further = {job.name: job.files.parent for job in jobs if job.name not in privileges.SHIPPED}
    if not further:
        yield {}
        return
    with scratch.folder("packages", mode=0o711) as place:
        made: dict[str, Layers] = {}
        for name, folder in further.items():
            found = job_playbook.contents(folder)
            for line in found.left_out:
                log.line(f"note: {name}: its playbook: {line}")
            own = place / name
            own.mkdir(mode=0o711)
            made[name] = _make(name, found, own, log, apt or Apt(), pip or Pip())
        yield made


def _make(job: str, found: Contents, folder: Path, log: ProgressLog, apt: Apt, pip: Pip) -> Layers:
    """Fill the folder of a job."""
    made = job_overlay.of(folder)
    try:
        names = apt.known([*found.packages, *found.maybe])
        for name in found.packages:
            if name not in names:
                log.line(f"note: {job}: its playbook: the host's package sources have no {name}")
        wheels = _wheels(job, found.python, names, folder, log, apt, pip)
        files = list({file.name: file for file in wheels}.values())  # two may need a third
        packages = apt.missing(names)
        if packages:
            fetched = folder / "fetched"
            fetched.mkdir(mode=0o755)
            files += apt.fetch(packages, fetched)
        if files:
            unpacked = ", ".join(
                [*packages, *(file.stem for file in files if file.suffix == ".whl")]
            )
            log.line(f"{job}: unpacking {unpacked} for this job alone")
            place = folder / "sandbox"
            place.mkdir(mode=0o700)
            job_packages.unpack(files, folder / "packages", place)
    except HostError as error:
        raise HostError(f"{job}: {error}", error.hint) from error
    for file in found.files:
        target = folder / "files" / file.target.relative_to("/")
        try:
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        except OSError as error:  # the playbook has a folder there, or too long a name
            log.line(f"note: {job}: its playbook: {file.target}: {error.strerror}")
    if not made.stacked:
        log.line(
            f"note: {job}: this kernel stacks no folders (overlayfs): its packages are below"
            f" {job_overlay.SHOWN_AT}"
        )
    return made


def _wheels(
    job: str,
    packages: Iterable[str],
    names: list[str],
    folder: Path,
    log: ProgressLog,
    apt: Apt,
    pip: Pip,
) -> Iterator[Path]:
    """Yield wheels of Python packages. One that is Debian's too is added to `names` instead."""
    for number, package in enumerate(packages):
        if known := apt.known([job_packages.debian_name(package)]):
            names += known
            continue
        fetched = folder / f"wheels-{number}"
        fetched.mkdir(mode=0o755)
        try:
            yield from pip.fetch(package, fetched)
        except HostError as error:
            log.line(f"note: {job}: its playbook: the Python package {package}: {error}")
