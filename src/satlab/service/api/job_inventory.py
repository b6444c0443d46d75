# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents and jobs: every node of the lab is an agent; jobs are shipped or uploaded, and installed
on every agent.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.topology import Topology
from satlab.openbach import descriptor, upstream_descriptors
from satlab.openbach.descriptor import Descriptor
from satlab.service.api.api_answers import not_found
from satlab.service.api.database import Store


class Inventory:
    """`uploaded`: folder of uploaded jobs.

    `agents`: names of the nodes by the address of their first interface.

    `further`: folder of jobs that the operator has named; those with the name of an uploaded or
    shipped one are hidden.
    """

    def __init__(
        self, store: Store, topology: Topology, uploaded: Path, further: Path | None = None
    ) -> None:
        self._store, self._uploaded, self._further = store, uploaded, further
        self.agents = {node.address: name for name, node in topology.nodes.items()}
        self._addresses = {name: address for address, name in self.agents.items()}

    def agent(self, address: str) -> dict[str, Any]:
        """Return an agent as OpenBACH does. Raises ApiError: 404."""
        self.check_agent(address)
        row = self._store.row(
            "SELECT project FROM entities WHERE agent = ? ORDER BY project LIMIT 1", address
        )
        return {
            "name": self.agents[address],
            "address": address,
            "port": 1112,
            "collector_ip": "127.0.0.1",
            "reachable": True,
            "available": True,
            "status": "Available",
            "project": row["project"] if row else None,
            "reserved": None,
        }

    def address_of(self, node: str) -> str:
        """Return the address of a node. A terminal that only the lab of a run has is returned by
        its name.
        """
        return self._addresses.get(node, node)

    def check_agent(self, address: str) -> None:
        """Raises ApiError: 404 for an address that is not an agent's."""
        if address not in self.agents:
            raise not_found("Agent", agent_address=address)

    def jobs(self) -> dict[str, Descriptor]:
        """Return the jobs that can run."""
        return self.all_jobs()[0]

    def job(self, name: str) -> Descriptor:
        """Return a job that can run. Raises ApiError: 404."""
        job = self.jobs().get(name)
        if job is None:
            raise not_found("Job", job_name=name)
        return job

    def all_jobs(self) -> tuple[dict[str, Descriptor], dict[str, str]]:
        """Return the jobs that can run, and the names of the other jobs with the faults of their
        files.
        """
        uploaded = self._uploaded.iterdir() if self._uploaded.is_dir() else ()
        folders = {
            path.name: path for path in sorted(uploaded) if not path.name.startswith((".", "_"))
        }
        added = {row["name"]: Path(row["folder"]) for row in self._store.rows("SELECT * FROM jobs")}
        shipped = {
            name: folder
            for name, folder in added.items()
            if (folder / "files" / f"{name}.yml").is_file()
        }
        valid: dict[str, Descriptor] = {}
        invalid: dict[str, str] = {}
        further = (
            {job.name: job for job in upstream_descriptors.find_jobs(self._further)}
            if self._further
            else {}
        )
        for name, folder in sorted((further | folders | shipped).items()):
            try:
                valid[name] = _load(folder, (folder / "files" / f"{name}.yml").stat().st_mtime_ns)
            except OSError as error:
                invalid[name] = f"files/{name}.yml: {error.strerror}"
            except ConfigError as error:
                invalid[name] = "; ".join(
                    str(fault).replace(f"{folder}/", "") for fault in error.faults
                )[:1000]
        return valid, invalid

    def add_job(self, name: str, folder: Path) -> None:
        """Add a shipped job."""
        self._store.write("INSERT OR REPLACE INTO jobs VALUES (?, ?)", name, str(folder))

    def remove_job(self, name: str) -> None:
        self._store.write("DELETE FROM jobs WHERE name = ?", name)

    def is_installed(self, job: str, agent: str) -> bool:
        return (
            self._store.row("SELECT 1 FROM uninstalled WHERE job = ? AND agent = ?", job, agent)
            is None
        )

    def install(self, jobs: list[str], agents: list[str], *, installed: bool) -> None:
        """Install jobs on agents or uninstall them.

        Raises ApiError: 404, and then changes nothing.
        """
        for name in jobs:
            self.job(name)
        sql = "DELETE FROM uninstalled WHERE job = ? AND agent = ?"
        if not installed:
            sql = "INSERT OR IGNORE INTO uninstalled VALUES (?, ?)"
        with self._store.transaction() as connection:
            for address in agents:
                self.check_agent(address)
                connection.executemany(sql, [(name, address) for name in jobs])


@lru_cache(maxsize=256)
def _load(folder: Path, modified_ns: int) -> Descriptor:
    """Read a descriptor, one that is not shipped as a controller does; `modified_ns`: changed files
    are read again.
    """
    del modified_ns
    return descriptor.load_job(folder, is_upstream=not folder.is_relative_to(paths.JOBS))
