# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepares the environment of jobs on the nodes of the embedded lab: a user for this run, pages, a
certificate authority.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from satlab.common import paths, scratch
from satlab.common.errors import HostError
from satlab.common.processes import Entrance
from satlab.common.topology import Role
from satlab.lab import pki, privileges, sandbox, web_target
from satlab.lab.job_overlay import Layers
from satlab.lab.lab import Lab
from satlab.lab.netns import open_tun_to_jobs
from satlab.lab.privileges_file import Grants
from satlab.lab.sandbox import Limits, Mount, Sandbox, Usage

JOB_LIMITS = Limits(
    seconds=None,
    memory_bytes=4 << 30,
    processes=1024,
    disk_bytes=2 << 30,
    grace_s=2.0,
    descendants_grace_s=1.0,
)
"""The grace times are those of OpenBACH's agent. A browser has 200 threads; a capture may have 1
GB. The limit of written bytes is for all jobs of a run together; their files lie in memory until
the run has ended.
"""


OPEN_FILES = {"satlab_pep": 1 << 20}
"""Open files of jobs that need more than others: PEPsal sets this limit, and ends where it may not.
"""
BROWSERS = frozenset({"satlab_page_load", "satlab_video"})
"""Jobs that measure their browser's waits for a core themselves: sampling its 200 threads from
outside costs CPU time.
"""


class LabHost:
    """Runs jobs inside a lab's namespaces, each in its own sandbox.

    `folder` (only root can enter it; outside the run folder) holds pages, keys and the specs of
    sandboxes. `entities` maps each entity to its node; None: every node is its own entity. `jobs`
    are folders of further jobs, `granted` the capabilities that the operator grants them, and
    `layers` their additional files, by job.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        entities: Mapping[str, str] | None = None,
        jobs: Iterable[Path] = (),
        granted: Grants | None = None,
        layers: Mapping[str, Layers] | None = None,
    ) -> None:
        self._lab, self._entities, self._granted, self._layers = (
            lab,
            entities,
            granted or {},
            layers or {},
        )
        self._numbers = itertools.count()
        self._uid = privileges.new_uid()
        self._www, self._pki = folder / "www", folder / "pki"
        self._specs, self._root = folder / "sandboxes", folder / "root"
        self._written = folder / "written"
        for made in (self._specs, self._root, self._written):
            made.mkdir(mode=0o700)
        scratch.sized(self._written, JOB_LIMITS.disk_bytes, JOB_LIMITS.files)
        self._kept: dict[Path, Path] = {}
        hosts = []
        for name in web_target.names():
            page = web_target.load(name)
            web_target.build(page, self._www / name)
            hosts.append(page.host)
        server = lab.topology.nodes[lab.topology.node_of(Role.SERVER)]
        addresses = [ip_address(str(i.address)) for i in server.interfaces.values()]
        pki.create(self._pki, hosts, addresses, datetime.now(UTC))
        privileges.chown_tree(self._pki, self._uid)
        self._mounts = [*sandbox.programs(), *map(Mount, (self._www, self._pki, *jobs))]
        self._control = Path(lab.config.control) if lab.config.control else None
        if self._control:  # its folder is closed: a job sees it only through a mount
            privileges.chown(self._control, self._uid)

    def node(self, entity: str) -> str:
        """Return the node that plays an entity."""
        return entity if self._entities is None else self._entities[entity]

    def enter(self, entity: str, job: str, variables: Mapping[str, str]) -> Entrance:
        """Return the command that runs a job's command on an entity's node, with its variables and
        granted privileges.

        Raises:
            HostError: the host cannot grant them.
        """
        granted = privileges.CAPABILITIES if job in privileges.SHIPPED else self._granted
        node, allowed = self.node(entity), granted.get(job, ())
        capabilities = tuple(name for name in allowed if name != privileges.TUN)
        place = self._lab.place(node)
        if why := sandbox.lacking(place, capabilities):
            raise HostError(f"{job}: {why}", sandbox.ALLOW)
        shown = [*place.name()]
        if self._control and job in privileges.LINK_CONTROLLERS:
            shown.append(Mount.ours(self._control))
        number = next(self._numbers)
        if job in privileges.TUNNELS or privileges.TUN in allowed:
            shown += self._tunnel(str(number))
        layers = None if job in privileges.SHIPPED else self._layers.get(job)
        mounts = (*(layers.mounts() if layers else ()), *self._mounts, *shown)
        limits = replace(JOB_LIMITS, open_files=OPEN_FILES.get(job, JOB_LIMITS.open_files))
        box = Sandbox(
            self._uid,
            place,
            mounts,
            name=node,
            capabilities=capabilities,
            packet_rings="net_raw" in capabilities,
            limits=layers.limits(limits) if layers else limits,
            variables={**variables, **(layers.variables() if layers else {})},
        )
        spec = self._specs / f"{number}.json"
        argv = box.argv(spec, self._root, None if job in BROWSERS else _report(spec))
        return Entrance(
            tuple(layers.argv(argv, self._uid) if layers else argv), sandbox.ENVIRONMENT
        )

    def usage(self, argv: Sequence[str]) -> Usage | None:
        """Return the usage of a job that has ended; `argv` begins with the words of `enter`. None:
        the job ran without a sandbox (`benches confinement`), or its sandbox left no report.
        """
        satbox = str(paths.SATBOX)
        return (
            sandbox.read_report(_report(Path(argv[argv.index(satbox) + 2])))
            if satbox in argv
            else None
        )

    def _tunnel(self, number: str) -> list[Mount]:
        """Return the further mounts of a job that makes tunnels: the TUN device, and a folder for
        the sockets of wireguard-go.
        """
        folder = self._written / f"sockets-{number}"
        folder.mkdir(mode=0o700)
        privileges.chown(folder, self._uid)
        return [
            Mount.ours(open_tun_to_jobs(), writable=True),
            Mount(folder, "/var/run/wireguard", writable=True),
        ]

    def environment(self, entity: str) -> dict[str, str]:
        """Return variables with the places of pages, certificates, programs, control socket, home
        and agent.
        """
        control = {"SATLAB_CONTROL": str(self._control)} if self._control else {}
        return {
            "SATLAB_WWW": str(self._www),
            "SATLAB_PKI": str(self._pki),
            "SATLAB_DASHJS": str(paths.DASHJS),
            "PATH": f"{paths.PROGRAMS}:{paths.STANDARD_PATH}",
            "SATLAB_AGENT": self.node(entity),
            "HOME": sandbox.HOME,
            **control,
        }

    def grant(self, path: Path) -> None:
        """Make the run's user the owner of a file or a new folder. `keep` later copies the files
        that jobs wrote there.
        """
        source = path
        if path.is_dir():
            source = self._kept[path] = self._written / f"folder-{len(self._kept)}"
            source.mkdir()
        privileges.chown(source, self._uid)
        self._mounts.append(Mount(source, str(path), writable=True))

    def keep(self) -> None:
        """Copy the files that jobs wrote to granted folders. All jobs must have ended."""
        for path, source in self._kept.items():
            scratch.copy_out(source, path)


def _report(spec: Path) -> Path:
    return spec.with_suffix(".report")
