# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs and scenarios that the tests of this folder share."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.openbach.descriptor import Descriptor, load_job

MakeJob = Callable[..., Descriptor]
Write = Callable[..., Path]


def platforms(name: str, **more: str) -> dict[str, Any]:
    program = f"/opt/openbach/agent/jobs/{name}/{name}.py"
    return {
        "ansible_system": "Debian",
        "ansible_distribution": "Debian",
        "command": f"/opt/openbach/virtualenv/bin/python3 {program}",
        "supported_platforms": [{"ansible_distribution_release": "bookworm"}],
        **more,
    }


def option(
    name: str, flag: str, type_: str = "str", count: object = 1, **more: object
) -> dict[str, object]:
    return {"name": name, "type": type_, "count": count, "flag": flag, **more}


# What OpenBACH's own iperf3 job (2.13) takes, as far as the example of its reference needs it.
IPERF3: dict[str, Any] = {
    "optional": [
        option("metrics_interval", "-i", "float"),
        option("port", "-p", "int"),
        option("num_flows", "-n", "int"),
        option("reverse", "-R", "None", 0),
    ],
    "subcommand": [
        {
            "group_name": "mode",
            "choices": [
                {
                    "name": "server",
                    "optional": [option("exit", "-1", "None", 0), option("bind", "-B", "ip")],
                },
                {
                    "name": "client",
                    "required": [{"name": "server_ip", "type": "ip", "count": 1}],
                    "optional": [option("duration_time", "-t", "float")],
                    "subcommand": [
                        {
                            "group_name": "protocol",
                            "optional": True,
                            "choices": [
                                {"name": "tcp", "optional": [option("cong_control", "-C")]},
                                {"name": "udp", "optional": [option("bandwidth", "-b")]},
                            ],
                        }
                    ],
                },
            ],
        }
    ],
}


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """Write a job folder and read it."""

    def make(
        name: str = "work",
        arguments: Mapping[str, Any] | None = None,
        *,
        persistent: bool = False,
        program: str = "",
        **platform: str,
    ) -> Descriptor:
        files = tmp_path / "jobs" / name / "files"
        files.mkdir(parents=True)
        document = {
            "general": {
                "description": "",
                "job_version": "1.0",
                "keywords": [],
                "persistent": persistent,
            },
            "platform_configuration": platforms(name, **platform),
            "arguments": dict(arguments or {}),
        }
        (files / f"{name}.yml").write_text(yaml.safe_dump(document))
        (files / f"{name}.py").write_text(program)
        return load_job(files.parent)

    return make


@pytest.fixture
def jobs(make_job: MakeJob) -> dict[str, Descriptor]:
    """Return a job that takes a few things, a persistent one, and OpenBACH's iperf3."""
    work = {
        "required": [],
        "optional": [
            option("text", "-t"),
            option("number", "-n", "int"),
            option("of", "-o", "job"),
            option("sub", "-s", "scenario"),
        ],
    }
    return {
        "work": make_job("work", work),
        "serve": make_job("serve", work, persistent=True),
        "iperf3": make_job("iperf3", IPERF3),
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a scenario with these functions and header."""

    def put(functions: object = None, *, name: str = "main", **header: Any) -> Path:
        path = tmp_path / f"{name}.json"
        document = {
            "name": name,
            "openbach_functions": functions if functions is not None else [],
            **header,
        }
        path.write_text(json.dumps(document))
        return path

    return put


def start(number: int, job: str = "work", arguments: object = None, **more: Any) -> dict[str, Any]:
    """Return a function that starts a job; `wait` and `on_fail` go into `more`."""
    call = {"entity_name": "client", job: arguments if arguments is not None else {}}
    call |= {key: more.pop(key) for key in ("offset", "interval") if key in more}
    return {"id": number, "start_job_instance": call, **more}


def stop(number: int, *targets: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "stop_job_instances": {"openbach_function_ids": list(targets)}, **more}


def sub(number: int, name: str, arguments: object = None, **more: Any) -> dict[str, Any]:
    call = {"scenario_name": name, "arguments": arguments if arguments is not None else {}}
    return {"id": number, "start_scenario_instance": call, **more}


EXAMPLE: dict[str, Any] = {
    "name": "iperf3_transfer",
    "description": "Start an iperf3 server, then a TCP client, wait for its end, stop the server",
    "arguments": {"duration": "s", "cc": "TCP congestion control"},
    "constants": {"server_ip": "10.77.0.2", "port": "5201"},
    "openbach_functions": [
        {
            "id": 1,
            "label": "iperf3 server",
            "start_job_instance": {
                "entity_name": "server",
                "offset": 0,
                "iperf3": {"port": "$port", "metrics_interval": 1, "server": {"exit": True}},
            },
        },
        {
            "id": 2,
            "label": "iperf3 client",
            "start_job_instance": {
                "entity_name": "client",
                "offset": 0,
                "iperf3": {
                    "port": "$port",
                    "metrics_interval": 1,
                    "num_flows": 1,
                    "client": {
                        "server_ip": "$server_ip",
                        "duration_time": "$duration",
                        "tcp": {"cong_control": "$cc"},
                    },
                },
            },
            "wait": {"launched_ids": [1], "time": 2},
            "on_fail": {"policy": "Retry", "retry": 2, "delay": 5},
        },
        {
            "id": 3,
            "label": "stop server",
            "stop_job_instance": {"openbach_function_id": 1},
            "wait": {"finished_ids": [2], "time": 1},
        },
    ],
}
"""The example that ran on a real OpenBACH 2.7."""
