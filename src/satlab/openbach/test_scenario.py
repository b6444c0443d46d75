# SPDX-License-Identifier: GPL-3.0-or-later
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.openbach.conftest import EXAMPLE, Write, start, stop, sub
from satlab.openbach.descriptor import Descriptor, load_jobs
from satlab.openbach.model import BoundScenario, StartJob
from satlab.openbach.scenario import bind, load, validate_paths

Jobs = Mapping[str, Descriptor]
ENTITIES = ("client", "server")


def faults(path: Path, jobs: Jobs) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, jobs, ENTITIES)
    assert all(fault.place.startswith(str(path.parent)) for fault in caught.value.faults)
    return [str(fault).replace(f"{path.parent}/", "") for fault in caught.value.faults]


def words(bound: BoundScenario, position: int = 0) -> list[object]:
    action = bound.functions[position].action
    assert isinstance(action, StartJob)
    return list(action.words)


def test_the_example_of_a_real_openbach_is_valid(write: Write, jobs: Jobs) -> None:
    path = write(
        EXAMPLE["openbach_functions"], **{key: EXAMPLE[key] for key in ("arguments", "constants")}
    )
    bound = bind(load(path, jobs, ENTITIES), {"duration": "5", "cc": "bbr"})
    client = "-p 5201 -i 1.0 -n 1 client 10.77.0.2 -t 5.0 tcp -C bbr".split()
    assert words(bound, 1) == client
    assert bound.values == {"duration": "5", "cc": "bbr", "server_ip": "10.77.0.2", "port": "5201"}


def test_no_functions_are_accepted(write: Write, jobs: Jobs) -> None:
    assert bind(load(write([]), jobs, ENTITIES), {}).functions == ()


RETRY = {"policy": "retry", "retry": 1}

# What OpenBACH refuses when a scenario is saved: section by section of its reference, in its order.
FAULTS: list[tuple[Any, str]] = [
    ({"arguments": {"a": ""}}, "main.json: arguments.a: nothing uses"),
    ({"constants": {"a": ""}}, "main.json: constants.a: nothing uses"),
    (
        [start(0, arguments={"text": "$x"})],
        "function 0: start_job_instance.work.text: the placeholder $x",
    ),
    (
        {
            "openbach_functions": [start(0, arguments={"text": "$a"})],
            "arguments": {"a": ""},
            "constants": {"a": ""},
        },
        "constants.a: is an argument and a constant",
    ),
    (
        {"openbach_functions": [start(0, arguments={"text": "$a"})], "constants": {"a": 1}},
        "constants.a: 1 is not a string",
    ),
    (
        [{"stop_job_instances": {"openbach_function_ids": []}}],
        "openbach_functions.0: id: has no id",
    ),
    ([{**start(0), "id": "0"}], 'openbach_functions.0: id: "0" is not an integer'),
    ([{**start(0), "id": True}], "id: true is not an integer"),
    ([start(1), start(1)], "function 1: id: another function"),
    ([{"id": 0}], "function 0: has nothing to do"),
    ([{**start(0), **stop(0, 0)}], "function 0: has more than one thing to do"),
    ([{"id": 0, "start_job": {}}], "function 0: start_job: unknown function"),
    ([start(0, wait={"ended_ids": [7]})], "function 0: wait.ended_ids: there is no function 7"),
    ([start(0, wait={"launched_ids": ["0"]})], "wait.launched_ids.0"),
    ([start(0, wait={"time": "soon"})], "wait.time: 'soon' is not a number"),
    ([start(0, wait={"time": -1})], "wait.time: -1.0 s is negative"),
    ([start(0, on_fail={"policy": "Hope"})], "on_fail.policy: unknown policy 'hope'"),
    ([start(0, on_fail={"policy": "Retry"})], "on_fail.retry: the number of retries is missing"),
    ([start(0, on_fail={"policy": "Retry", "retry": "2"})], "on_fail.retry"),
    (
        [{"id": 0, "start_job_instance": {"work": {}}}],
        "start_job_instance.entity_name: the entity is",
    ),
    ([{"id": 0, "start_job_instance": {"entity_name": "client"}}], "names no job to start"),
    (
        [{"id": 0, "start_job_instance": {"entity_name": "client", "work": {}, "serve": {}}}],
        "names more than one job: work, serve",
    ),
    ([start(0, "play")], "start_job_instance.play: there is no such job"),
    ([start(0, arguments={"x": 1})], "start_job_instance.work.x: the job does not take"),
    (
        [start(0, arguments={"number": "x"})],
        "start_job_instance.work.number: 'x' is not a whole number",
    ),
    ([{"id": 0, "start_scenario_instance": {"scenario_name": "a"}}], "arguments: is missing"),
    ({"openbach_functions": {}}, "openbach_functions: {} is not a list"),
    ({"arguments": {"a": None}}, "arguments.a: null is not a string"),
    ([{"id": 0, "openbach_function": {}}], "openbach_function: unknown function"),
    ([start(0, on_fail={"policy": "Retry", "retry": "$a"})], "on_fail.retry"),
    ([start(0, arguments={"number": "$$5"})], "'$5' is not a whole number"),
    ([start(0, arguments={"number": [None]})], "number.0: a value is a string"),
    ([start(0, "iperf3", {"client": {}})], "iperf3.client.server_ip: is required and has no value"),
    ([start(0, "iperf3")], "iperf3.mode: no subcommand is given (choose one of server, client)"),
    (
        [start(0, "iperf3", {"server": {}, "client": {"server_ip": "::1"}})],
        "iperf3.mode: server and client are both given",
    ),
    ([start(0, "iperf3", {"client": {"server_ip": "server"}})], "'server' is not an IP address"),
    ([{"id": 0, "restart_job_instance": {"date": None}}], "restart_job_instance: the embedded lab"),
    ([{"id": 0, "stop_job_instance": {}}], "stop_job_instance.openbach_function_id: is missing"),
    ([{"id": 0, "stop_job_instances": {"openbach_function_ids": 1}}], "1 is not a list"),
    ([{"id": 0, "start_scenario_instance": {"arguments": {}}}], "scenario_name: is missing"),
    # What OpenBACH accepts, and what then hangs, fails late, or happens too early.
    (
        [start(0, wait={"ended_ids": [0]})],
        "function 0: wait: functions wait for each other: 0 -> 0",
    ),
    (
        [
            start(1, wait={"launched_ids": [2]}),
            start(2, wait={"finished_ids": [3]}),
            start(3, wait={"running_ids": [1]}),
        ],
        "functions wait for each other",
    ),
    (
        [start(0), stop(1, 0, wait={"launched_ids": [0]}), start(2, wait={"finished_ids": [1]})],
        "function 2: wait.finished_ids: waits for the end of function 1",
    ),
    (
        [start(0, on_fail={"policy": "Ignore"}), start(1, wait={"launched_ids": [0]})],
        "function 1: wait.launched_ids: waits for the launch of function 0",
    ),
    ([start(0, on_fail=RETRY), start(1, wait={"launched_ids": [0]})], "wait.launched_ids"),
    ([start(0, wait={"started_ids": []})], "wait.started_ids: unknown key"),
    ([{"id": 0, "if": {}}], "if: OpenBACH accepts this and cannot execute it"),
    ([{"id": 0, "push_file": {}}], "push_file: the embedded lab does not execute this"),
    (
        [{"id": 0, "start_job_instance": {"entity_name": "$x", "work": {}}}],
        "placeholders do not work",
    ),
    ([{"id": 0, "start_job_instance": {"entity_name": "moon", "work": {}}}], "no entity 'moon'"),
    ([stop(0, 7)], "there is no function 7 to stop"),
    ([start(0), stop(1, 0, wait={"launched_ids": [0]}), stop(2, 1)], "function 1 starts no job"),
    (
        [start(0, "serve")],
        "function 0: the job serve runs until it is stopped, and no function stops it",
    ),
    ([start(0, "serve"), stop(1, 0)], "function 1 may stop it before it starts"),
    (
        [start(0, "serve"), stop(1, 0, wait={"finished_ids": [0]})],
        "the function that stops it waits for its end",
    ),
    (
        [
            start(0, "serve"),
            start(1, wait={"finished_ids": [0]}),
            stop(2, 0, wait={"finished_ids": [1]}),
        ],
        "function 0: the job serve",
    ),
    ([start(0, interval=5)], "is repeated every 5 s for ever"),
    ([start(0, interval=0)], "interval: 0 s is not above 0"),
    ([sub(0, "gone")], "sub-scenario gone cannot be read"),
    ([sub(0, "../main")], "'../main' is not the name of a scenario"),
    ([start(0, arguments={"of": "3 1"})], "the path '3 1' leads to no job instance"),
    (
        {"openbach_functions": [start(0, arguments={"number": "$a"})], "constants": {"a": "x"}},
        "is not a whole number",
    ),
    ([start(0, arguments={"text": "5$"})], "starts no placeholder"),
    ({"argument": {}}, "argument: unknown key"),
    ({"arguments": {"a-b": ""}}, "arguments.a-b: is not a name"),
    (
        {"openbach_functions": [sub(0, "$x")], "arguments": {"x": ""}},
        "scenario_name: placeholders do not work here",
    ),
    ([start(0, arguments={"number": [1, 2]})], "number: takes 1 value(s), not 2"),
    (
        [start(0, arguments={"number": [[1], [2]]})],
        "number: is given 2 times and is not repeatable",
    ),
    *[
        ([{"id": 0, name: {}}], f"{name}: OpenBACH accepts this and cannot execute it")
        for name in "while assign_collector install_agent uninstall_agent list_job_instances".split()
    ],
    ([start(number) for number in range(201)], "more than 200 functions"),
]


@pytest.mark.parametrize(("content", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_each_fault_is_named(write: Write, jobs: Jobs, content: Any, said: str) -> None:
    """`content`: the functions of a scenario, or what its file has in place of the usual."""
    document = dict(content) if isinstance(content, dict) else {"openbach_functions": content}
    found = faults(write(document.pop("openbach_functions", []), **document), jobs)
    assert any(said in fault for fault in found), found


def test_each_cycle_is_reported_once_in_the_order_of_waiting(write: Write, jobs: Jobs) -> None:
    waits = {1: "launched_ids", 2: "finished_ids", 3: "running_ids"}
    functions = [start(number, wait={key: [number % 3 + 1]}) for number, key in waits.items()]
    found = faults(write([*functions, start(9, wait={"ended_ids": [9]})]), jobs)
    cycles = sorted(fault.partition("each other: ")[2].partition(" (")[0] for fault in found)
    assert cycles[1] == "9 -> 9"
    assert cycles[0] in ("1 -> 2 -> 3 -> 1", "2 -> 3 -> 1 -> 2", "3 -> 1 -> 2 -> 3")
    assert len(cycles) == 2


@pytest.mark.promise("P28")
def test_every_fault_is_reported_at_once(write: Write, jobs: Jobs) -> None:
    functions = [
        {
            "id": 1,
            "start_job_instance": {"entity_name": "moon", "work": {"number": "x", "y": 1}},
            "wait": {"tim": 1},
        },
        start(2, "play", wait={"launched_ids": [9]}),
        stop(3, 8),
    ]
    found = faults(write(functions, constants={"unused": ""}), jobs)
    assert len(found) == 7, found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "main",\n  ]', "main.json:2:3: is not JSON"),
        ('{"name": "main", "name": "b", "openbach_functions": []}', "the key 'name' stands twice"),
        ('{"name": NaN, "openbach_functions": []}', "NaN is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "[] is not an object"),
        ('{"openbach_functions": []}', "name: the scenario needs a name"),
        ('{"name": "../x", "openbach_functions": []}', "name: the scenario needs a name"),
        ('{"name": "main"}', "openbach_functions: the list of functions is missing"),
        ("1" * 5000, "is not JSON"),
        (" " * (1 << 20) + "{}", "is larger than"),
    ],
)
def test_bad_json(tmp_path: Path, jobs: Jobs, text: str, said: str) -> None:
    path = tmp_path / "main.json"
    path.write_text(text)
    assert any(said in fault for fault in faults(path, jobs))


def test_bad_encoding_and_a_missing_file(tmp_path: Path, jobs: Jobs) -> None:
    path = tmp_path / "main.json"
    assert "cannot be read" in faults(path, jobs)[0]
    path.write_bytes(b'{"\xff')
    assert "not UTF-8 at byte 2" in faults(path, jobs)[0]


def test_a_persistent_job_that_is_stopped_is_fine(write: Write, jobs: Jobs) -> None:
    functions = [
        start(1, "serve"),
        start(2, wait={"launched_ids": [1]}),
        stop(3, 1, wait={"finished_ids": [2]}),
        start(4, wait={"finished_ids": [1]}),
    ]
    load(write(functions), jobs, ENTITIES)


# --- sub-scenarios --------------------------------------------------------------------------------


def test_values_reach_a_sub_scenario(write: Write, jobs: Jobs) -> None:
    inner = [start(0, arguments={"number": "$n", "text": "$$$t"})]
    write(inner, name="inner", arguments={"n": ""}, constants={"t": "x"})
    path = write([sub(0, "inner", {"n": "$m"})], arguments={"m": ""})
    scenario = load(path, jobs, ENTITIES)
    bound = bind(scenario, {"m": "7"}).functions[0].action
    assert words(bound.scenario) == ["-n", "7", "-t", "$x"]  # type: ignore[union-attr]
    with pytest.raises(ConfigError) as caught:
        bind(scenario, {"m": "x"})
    (fault,) = caught.value.faults
    assert str(path.with_name("inner.json")) in fault.place


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "arguments.n: the sub-scenario's argument has no value"),
        ({"n": "1", "z": "1"}, "z: the scenario inner has no"),
    ],
)
def test_faults_in_a_sub_scenarios_arguments(
    write: Write, jobs: Jobs, given: object, said: str
) -> None:
    write([start(0, arguments={"number": "$n"})], name="inner", arguments={"n": ""})
    assert any(said in fault for fault in faults(write([sub(0, "inner", given)]), jobs))


def test_faults_of_a_sub_scenario_are_reported_once_with_its_own_place(
    write: Write, jobs: Jobs
) -> None:
    write([start(0, "play")], name="inner")
    found = faults(write([sub(0, "inner"), sub(1, "inner")]), jobs)
    assert [fault for fault in found if fault.startswith("inner.json: function 0")] == found


def test_recursion_is_refused(write: Write, jobs: Jobs) -> None:
    write([sub(0, "main")], name="inner")
    assert "main -> inner -> main" in faults(write([sub(0, "inner")]), jobs)[0]


def test_nesting_and_number_are_bounded(write: Write, jobs: Jobs) -> None:
    for depth in range(20):
        write([sub(0, f"s{depth + 1}"), sub(1, f"s{depth + 1}")], name=f"s{depth}")
    write([], name="s20")
    found = faults(write([sub(0, "s0")]), jobs)
    assert any("nested more than 10 deep" in fault for fault in found)
    assert any("more than 100 sub-scenarios" in fault for fault in found)


def test_a_parent_may_stop_an_endless_sub_scenario(write: Write, jobs: Jobs) -> None:
    write([start(0, "serve")], name="inner")
    ending = {
        "id": 1,
        "stop_scenario_instance": {"openbach_function_id": 0},
        "wait": {"launched_ids": [0]},
    }
    load(write([sub(0, "inner"), ending]), jobs, ENTITIES)
    assert (
        "the scenario inner runs until it is stopped" in faults(write([sub(0, "inner")]), jobs)[0]
    )


def test_a_sub_scenario_must_have_the_name_it_is_called_by(
    write: Write, jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "inner.json").write_text(json.dumps({"name": "other", "openbach_functions": []}))
    assert "is called 'other', not 'inner'" in faults(write([sub(0, "inner")]), jobs)[0]


# --- bind -----------------------------------------------------------------------------------------


@pytest.fixture
def simple(write: Write, jobs: Jobs) -> Path:
    functions = [start(0, arguments={"number": "$n", "text": "$t"}, wait={"time": "$n"})]
    return write(functions, arguments={"n": "how many"}, constants={"t": "x"})


def test_a_constant_can_be_replaced(simple: Path, jobs: Jobs) -> None:
    bound = bind(load(simple, jobs, ENTITIES), {"n": "3", "t": "$y"})
    assert words(bound) == ["-n", "3", "-t", "$y"]
    assert bound.functions[0].wait.time == 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "arguments.n: the argument has no value (set n=VALUE (how many))"),
        ({"n": "1", "m": "2"}, "m=2: the scenario has no such name (known: n, t)"),
        ({"n": "many"}, "n=many: is not a whole number"),
        ({"n": "1", "t": "-x"}, "could pass for an option"),
    ],
)
def test_values_are_checked(simple: Path, jobs: Jobs, values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(load(simple, jobs, ENTITIES), values)
    assert any(said in str(fault) for fault in caught.value.faults)


def test_every_fault_of_the_values_is_reported_at_once(simple: Path, jobs: Jobs) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(load(simple, jobs, ENTITIES), {"m": "2", "t": "-x"})
    assert len(caught.value.faults) == 3


# --- the product's scenarios ----------------------------------------------------------------------

SHIPPED = sorted(paths.SCENARIOS.glob("*.json"))
VALUES = {
    "bulk_tcp": {"duration": "5"},
    "bulk_udp": {"duration": "5"},
    "demo": {},
    "fade": {"attenuation_db": "6"},
    "fairness": {"duration": "5"},
    "fairness_udp": {"duration": "5"},
    "fec": {"code": "5,100"},
    "fec_five": {"code": "none"},
    "fec_quic": {"code": "2,100"},
    "ftp": {"direction": "upload", "size_bytes": "100000"},
    "link_calibration": {"duration": "5"},
    "load": {"duration": "5"},
    "network_qos": {"duration": "5"},
    "one_way_delay": {"duration": "5"},
    "page_capture": {"protocol": "h3"},
    "page_load": {"protocol": "h3"},
    "page_load_terminals": {"protocol": "h3"},
    "ping": {"count": "3"},
    "responsiveness": {"duration": "10"},
    "seed_002_cell": {"tcp_pep": "haproxy"},
    "quic": {"pep": "quic"},
    "tcp": {"pep": "haproxy"},
    "traffic_mix": {"duration": "5"},
    "video": {"protocol": "h2", "duration": "5"},
    "voip": {"duration": "5"},
    "vpn": {"duration": "5"},
    "web_quic": {"pep": "quic-h3-capable"},
    "web_tcp": {"protocol": "h2", "pep": "none"},
}


def lab() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(paths.LAB_FILE.read_text())
    return document


def test_the_products_scenarios_are_valid() -> None:
    assert validate_paths([paths.SCENARIOS], load_jobs(paths.JOBS), lab()["nodes"]) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_products_scenarios_bind_and_agree_with_the_topology(path: Path) -> None:
    scenario = load(path, load_jobs(paths.JOBS), lab()["nodes"])
    assert scenario.name == path.stem
    assert path.with_suffix(".md").is_file()
    if "server_ip" in scenario.constants:
        assert (
            scenario.constants["server_ip"]
            == lab()["nodes"]["server"]["interfaces"]["inet0"]["address"]
        )
    assert bind(scenario, VALUES[path.stem]).functions


def test_validate_reports_the_faults_of_all_files(write: Write, jobs: Jobs, tmp_path: Path) -> None:
    write([start(0, "play")], name="a")
    write([stop(0, 1)], name="b")
    assert (
        len(validate_paths([tmp_path, tmp_path / "a.json", tmp_path / "jobs"], jobs, ENTITIES)) == 3
    )
