# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host enforces of a sandbox's limits."""

import os

import pytest

from collect import EnforcedBy
from satlab.common import paths
from satlab.lab import sandbox

ENFORCED: EnforcedBy = {
    "memory": "cgroup2",
    "processes": "cgroup2",
    "disk": "file system",
    "capabilities": "user namespace",
}


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        ({}, []),
        ({"memory": "cgroup1", "processes": "cgroup1"}, []),
        ({"memory": "watch", "processes": "watch"}, ["mount cgroup version 2"]),
        ({"capabilities": "not granted"}, ["sysctl user.max_user_namespaces"]),
    ],
)
def test_a_host_that_enforces_less_is_named(lack: EnforcedBy, said: list[str]) -> None:
    found = list(sandbox.not_enforced(ENFORCED | lack))
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))


def test_t11_results_and_history_of_the_tree_are_not_seen() -> None:
    seen = [mount.source.resolve() for mount in sandbox.programs()]
    assert (paths.ROOT / "collect").resolve() in seen
    for hidden in (paths.ROOT, paths.ROOT / ".git", paths.ROOT / "runs", paths.ROOT / "target"):
        assert not any(hidden.resolve().is_relative_to(each) for each in seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_enforces_limits_here_fits_the_manifest() -> None:
    assert set(sandbox.enforced_by()) == set(ENFORCED)
