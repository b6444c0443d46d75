# SPDX-License-Identifier: GPL-3.0-or-later
import base64
import shutil
from collections.abc import Callable
from ipaddress import IPv4Address
from types import ModuleType
from typing import Any

import pytest


def test_both_ends_make_the_same_keys(module: Callable[[str], ModuleType]) -> None:
    job = module("satlab_vpn")
    keys = {
        job.private_key(secret, IPv4Address(end))
        for secret in "ab"
        for end in ("192.0.2.1", "192.0.2.2")
    }
    assert len(keys) == 4
    for key in map(base64.b64decode, keys):
        assert (len(key), key[0] & 7, key[31] & 192) == (32, 0, 64), "clamped (RFC 7748, section 5)"


@pytest.mark.net
@pytest.mark.promise("P51")
def test_traffic_passes_while_both_ends_are_there(trial: Callable[[str], Any], node: Any) -> None:
    if not shutil.which("wg"):
        pytest.skip("needs wireguard-tools")
    near = trial("satlab_vpn")
    outside, inside = ("192.0.2.1", "192.0.2.2"), ("198.19.0.1", "198.19.0.2")
    there = near.start(
        *outside[::-1],
        *inside[::-1],
        within=node.far.within,
        JOB_INSTANCE_ID="7",
        LOG_LEVEL="debug",
    )
    here = near.start(*outside, *inside, within=node.within, LOG_LEVEL="debug")
    try:
        near.ready()
        assert "0% packet loss" in node.run("ping", "-c", "2", "-i", "0.2", "198.19.0.2")
    finally:
        for process in (here, there):
            process.terminate()
        print(*(process.communicate(timeout=120)[0] for process in (here, there)))
    assert [process.returncode for process in (here, there)] == [0, 0]
    assert "wg1" not in node.run("ip", "link")
    assert {record["in_kernel"] for record in near.records() if "in_kernel" in record} <= {0, 1}
