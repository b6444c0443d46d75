# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs find on the nodes of the embedded lab: a user for this run alone, the pages, a certificate authority."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from satlab.common import paths
from satlab.common.topology import Role
from satlab.netlab import pki, privileges, web_target
from satlab.netlab.grants import Grants
from satlab.netlab.lab import Lab


def pages() -> list[str]:
    """Name the pages that can be served."""
    return sorted(p.parent.name for p in paths.WEB_TARGETS.glob("*/page.yml"))


class LabHost:
    """Runs jobs inside a lab's namespaces; `folder` (private, outside the run folder) holds pages and keys.

    `entities`: who plays them, entity to node; None: every node plays itself. `jobs`: folders of further jobs,
    `granted`: what the operator lets these do.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        entities: Mapping[str, str] | None = None,
        jobs: Iterable[Path] = (),
        granted: Grants | None = None,
    ) -> None:
        self._lab, self._entities, self._granted = lab, entities, granted or {}
        self._uid = privileges.new_uid()
        self._visible = [*privileges.program_paths(), folder.resolve(), *(each.resolve() for each in jobs)]
        self._www, self._pki = folder / "www", folder / "pki"
        folder.chmod(0o711)
        hosts = []
        for name in pages():
            page = web_target.load(name)
            web_target.build(page, self._www / name)
            hosts.append(page.host)
        server = lab.topology.nodes[lab.topology.node_of(Role.SERVER)]
        addresses = [ip_address(str(i.address)) for i in server.interfaces.values()]
        pki.create(self._pki, hosts, addresses, datetime.now(UTC))
        privileges.give_tree(self._pki, self._uid)
        self._control = Path(lab.config.control) if lab.config.control else None
        if self._control:  # its folder is closed: a job sees it only where it is shown
            privileges.give(self._control, self._uid)

    def node(self, entity: str) -> str:
        """Return the node that plays an entity."""
        return entity if self._entities is None else self._entities[entity]

    def enter_argv(self, entity: str, job: str) -> list[str]:
        """Return the argv prefix that runs a job's command on an entity's node with the privileges granted to it."""
        visible = (
            [*self._visible, self._control] if self._control and job in privileges.LINK_CONTROLLERS else self._visible
        )
        capabilities = privileges.CAPABILITIES if job in privileges.SHIPPED else self._granted
        drop = privileges.drop_argv(self._uid, capabilities.get(job, ()), visible)
        return [*self._lab.enter_argv(self.node(entity)), *drop]

    def environment(self, entity: str) -> dict[str, str]:
        """Return the places of pages, certificates, our programs and the control socket, and the agent's name."""
        control = {"SATLAB_CONTROL": str(self._control)} if self._control else {}
        return {
            "SATLAB_WWW": str(self._www),
            "SATLAB_PKI": str(self._pki),
            "PATH": f"{paths.PROGRAMS}:{paths.STANDARD_PATH}",
            "SATLAB_AGENT": self.node(entity),
            **control,
        }

    def grant(self, path: Path) -> None:
        """Let the run's user own a file, or a folder without what is in it."""
        privileges.give(path, self._uid)
        self.allow_entry(path)

    def allow_entry(self, path: Path) -> None:
        """Let the run's user reach a file or folder, wherever it lies."""
        if not any(path.resolve().is_relative_to(known) for known in self._visible):
            self._visible.append(path.resolve())
