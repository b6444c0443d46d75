# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs find on the nodes of the embedded lab: the pages, and a certificate authority for this run alone."""

from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from satlab import paths, pki, webtarget
from satlab.lab import Lab
from satlab.topology import Role


def pages() -> list[str]:
    """Name the pages that can be served."""
    return sorted(p.parent.name for p in paths.WEB_TARGETS.glob("*/page.yml"))


class LabHost:
    """Runs jobs inside a lab's namespaces; `folder` (private, outside the run folder) holds pages and keys."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._www, self._pki = folder / "www", folder / "pki"
        hosts = []
        for name in pages():
            page = webtarget.load(name)
            webtarget.build(page, self._www / name)
            hosts.append(page.host)
        server = lab.topology.nodes[lab.topology.node_of(Role.SERVER)]
        addresses = [ip_address(str(i.address)) for i in server.interfaces.values()]
        pki.create(self._pki, hosts, addresses, datetime.now(UTC))

    def enter_argv(self, node: str) -> list[str]:
        """Give the argv prefix that runs a command inside `node`."""
        return self._lab.enter_argv(node)

    def environment(self, node: str) -> dict[str, str]:
        """Give where pages, certificates and the link's control socket are; the same on every node."""
        del node
        control = {"SATLAB_CONTROL": self._lab.config.control} if self._lab.config.control else {}
        return {"SATLAB_WWW": str(self._www), "SATLAB_PKI": str(self._pki), **control}
