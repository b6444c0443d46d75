# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


def test_a_command_names_what_is_asked_for(module: Callable[[str], ModuleType]) -> None:
    job = module("satlab_ip_route")
    options = job.parser().parse_args(
        ["add", "198.51.100.0/24", "-g", "192.0.2.2", "-i", "lan0", "-w", "20", "-r", "40"]
    )
    expected = "198.51.100.0/24 via 192.0.2.2 dev lan0 initcwnd 20 initrwnd 40"
    assert job.requested(options) == expected.split()
    assert job.parser().parse_args(["delete", "default"]).destination == "default"


@pytest.mark.net
@pytest.mark.parametrize("operation", ["add", "replace", "delete"])
@pytest.mark.promise("P50")
def test_routes_are_as_before_when_the_job_ends(
    trial: Callable[[str], Any], node: Any, operation: str
) -> None:
    if operation != "add":
        node.run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.2", "initcwnd", "7")
    before = node.run("ip", "route")
    words = [] if operation == "delete" else ["-g", "192.0.2.2", "-w", "33"]
    job = trial("satlab_ip_route")
    process = job.start(operation, "198.51.100.0/24", *words, within=node.within)
    job.ready()
    during = node.run("ip", "route")
    assert ("initcwnd 33" in during) == (operation != "delete")
    assert "initcwnd 7" not in during
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    assert node.run("ip", "route") == before


@pytest.mark.net
def test_a_route_may_stay_and_what_the_kernel_refuses_is_reported(
    trial: Callable[[str], Any], node: Any
) -> None:
    job, within = trial("satlab_ip_route"), node.within
    assert job.run("add", "198.51.100.0/24", "-i", "lan0", "-s", within=within)[0] == 0
    assert "198.51.100.0/24 dev lan0" in node.run("ip", "route")
    status, output = job.run("add", "198.51.100.0/24", "-i", "lan0", "-s", within=within)
    assert (status, "File exists" in output) == (3, True)
    status, output = job.run("add", "203.0.113.0/24", within=within)
    assert (status, "a gateway or a device is needed" in output) == (2, True)
