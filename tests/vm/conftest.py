# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab as booted containers, provisioned once for all tests of the stage."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.common import paths, terminals
from satlab.common.topology import Size, control_address
from satlab.lab import netns
from satlab.link.options import LinkOptions
from satlab.vm import inventory, provision
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import VmFolder
from tests import second_terminal
from tests.vm import nspawn, package_proxy, standin_repository
from tests.vm.provisioned import Provisioned

ROOT = Path(__file__).resolve().parents[2]
collect_ignore = (
    ["test_second_terminal.py"]
    if nspawn.TERMINALS == 1
    else ["test_nspawn.py", "test_through_serve.py"]
)
"""Tests of the other stage: a skipped test fails in CI."""
NET4SAT = os.environ.get("SATLAB_NET4SAT")
"""Folder of a clone of CNES's package repository, served in place of the stand-in of OpenSAND and
OpenBACH, with the key that the role pins.
"""
NET4SAT_HOST = "net4sat.satlab.test"


def _name_grafana_s_source(controller: Path, key: Path, standin: str) -> None:
    """Do what is the user's: name Grafana's repository, which here is the stand-in, on the
    controller's host.
    """
    etc = controller / "etc" / "apt"
    shutil.copy(key, etc / "keyrings" / "standin.asc")
    signed = (
        f"[signed-by=/etc/apt/keyrings/standin.asc] {standin}/net4sat/{standin_repository.SUITE}"
    )
    (etc / "sources.list.d" / "standin.list").write_text(
        f"deb {signed} {standin_repository.SUITE} stable\n"
    )
    # The lists of the common root lack this source: this host reads all lists, as one with a fresh
    # image does.
    for known in (controller / "var/lib/apt/lists").glob("*_*"):
        known.unlink()


@pytest.fixture(scope="session")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provisioned]:
    scratch = tmp_path_factory.mktemp("vm")
    # This host's kernel may have no netem; the terrestrial segment then adds nothing.
    named = second_terminal.write(scratch / "lab.yml") if nspawn.TERMINALS == 2 else paths.LAB_FILE
    here = provision.without_terrestrial_delay(terminals.named(named))
    repository = standin_repository.build(
        scratch / "repository", ROOT / "tests/net/standin_opensand.py"
    )
    folder = VmFolder(nspawn.STATE / "lab")
    shutil.rmtree(folder.path, ignore_errors=True)
    began = time.monotonic()
    size = Size.SMALL if nspawn.TERMINALS == 2 else Size.FULL
    with nspawn.booted(here, size, folder) as containers:
        boot_s = time.monotonic() - began
        address = str(control_address(inventory.machines(here)))
        standin = f"http://{standin_repository.HOST}"
        variables = {
            "base_apt_proxy": f"http://{address}:{package_proxy.PORT}",
            "pep_pepsal": True,
            "collector_grafana": True,
            "openbach_controller_repository": f"http://{address}:{package_proxy.PORT}/openbach.git",
            "openbach_controller_commit": repository.commit,
        }
        folders = {standin_repository.HOST: repository.folder, address: repository.folder}
        if NET4SAT:
            variables |= {"net4sat_uri": f"http://{NET4SAT_HOST}"}
            folders[NET4SAT_HOST] = Path(NET4SAT)
        else:
            variables |= {
                "net4sat_uri": f"{standin}/net4sat",
                "net4sat_key": str(repository.key),
            }
        sources = package_proxy.Sources(
            mirrors=frozenset({"deb.debian.org", "security.debian.org"}),
            folders=folders,
            cache=nspawn.STATE / "packages",
        )
        choices = VmOptions(size, "satlink", variables)
        if size is Size.FULL:
            _name_grafana_s_source(nspawn.LAYERS / "controller" / "tree", repository.key, standin)
        provision.prepare(folder, here, choices, LinkOptions(), containers.connection())
        # Next to all other tests the start of Python on a host may take minutes.
        os.environ["ANSIBLE_TIMEOUT"] = "300"
        # What plays know of the hosts does not change: one of them asks.
        os.environ |= {
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(scratch / "facts"),
        }
        with package_proxy.serving(package_proxy.listen(nspawn.LAB_ID, address), sources):
            began = time.monotonic()
            recap = provision.play(folder, "site.yml", enter=containers.enter)
            yield Provisioned(containers, here, choices, recap, boot_s, time.monotonic() - began)
    assert not netns.present(nspawn.LAB_ID)
