# SPDX-License-Identifier: GPL-3.0-or-later
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satlab.common.errors import ConfigError
from satlab.openbach.conftest import EXAMPLE, IPERF3, MakeJob, option
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.job_arguments import InstanceOf, argv


@pytest.fixture
def iperf3(make_job: MakeJob) -> Descriptor:
    return make_job("iperf3", IPERF3)


def one(make_job: MakeJob, **argument: object) -> Descriptor:
    """Return a job with one option `x`, flag `-x`."""
    return make_job("one", {"optional": [{**option("x", "-x"), **argument}]})


def refused(job: Descriptor, values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        argv(job, values)
    return [str(fault) for fault in caught.value.faults]


def test_the_examples_client_has_the_argv_of_a_real_openbach(iperf3: Descriptor) -> None:
    values = EXAMPLE["openbach_functions"][1]["start_job_instance"]["iperf3"]
    client = {"server_ip": "10.77.0.2", "duration_time": "5", "tcp": {"cong_control": "bbr"}}
    expected = "-p 5201 -i 1.0 -n 1 client 10.77.0.2 -t 5.0 tcp -C bbr".split()
    assert list(argv(iperf3, {**values, "port": "5201", "client": client})) == expected


def test_positionals_come_first_then_options_then_flags(make_job: MakeJob) -> None:
    required = [
        {"name": "b", "type": "str", "count": 1},
        {"name": "a", "type": "int", "count": "+"},
    ]
    flags = [
        option("v", "-v", "None", 0),
        option("w", "-w", "None", 0),
        option("x", "-x", "ip", repeatable=True),
    ]
    job = make_job("j", {"required": required, "optional": flags})
    values = {"v": True, "w": False, "x": [["::1"], ["1.2.3.4"]], "a": [1, "2"], "b": "t"}
    assert list(argv(job, values)) == ["t", "1", "2", "-x", "::1", "-x", "1.2.3.4", "-v"]


def test_the_form_that_openbach_returns_is_accepted(iperf3: Descriptor) -> None:
    values = {"port": [["5201"]], "reverse": [[True]], "server": {"exit": [[True]]}}
    assert list(argv(iperf3, values)) == ["-p", "5201", "-R", "server", "-1"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "mode: no subcommand is given"),
        ({"server": {}, "client": {"server_ip": "::1"}}, "mode: server and client are both given"),
        ({"client": {}}, "client.server_ip: is required"),
        ({"client": {"server_ip": "a.host"}}, "is not an IP address"),
        ({"server": {"exit": 1}}, "neither true nor false"),
        ({"server": {}, "what": 1}, "what: the job does not take this argument here"),
        ({"server": {}, "tcp": {}}, "tcp: the job does not take this argument here"),
        ({"server": {}, "port": [1, 2]}, "takes 1 value(s), not 2"),
        ({"server": {}, "port": [[1], [2]]}, "not repeatable"),
        ({"server": {}, "port": []}, "takes 1 value(s), not 0"),
        ({"server": {}, "port": [None]}, "port.0: a value is"),
        ({"server": {}, "port": True}, "only flags"),
        ({"server": {}, "port": 1.5}, "is not a whole number"),
        ({"server": {}, "port": "$$5"}, "'$5' is not a whole number"),
        ({"server": {}, "metrics_interval": "nan"}, "is not a number"),
        ({"server": []}, "server: [] is not an object"),
        ({"server": {"bind": "$who"}}, "$who is not defined"),
    ],
)
def test_what_does_not_fit_is_refused(
    iperf3: Descriptor, values: dict[str, Any], said: str
) -> None:
    found = refused(iperf3, values)
    assert any(said in fault for fault in found), found


def test_every_fault_is_reported_at_once(iperf3: Descriptor) -> None:
    assert (
        len(
            refused(
                iperf3, {"port": "x", "num_flows": "y", "what": 1, "client": {"server_ip": 7.5}}
            )
        )
        == 4
    )


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        ("int", "007", "7"),
        ("int", 3.0, "3"),
        ("float", 5, "5.0"),
        ("str", 5, "5"),
        ("str", "", ""),
        ("network", "10.0.0.1/8", "10.0.0.0/8"),
        ("ratio", "To", "1099511627776"),
        ("ratio", "", "1"),
        ("date", "2026-01-01T00:00:00Z", "1767225600000"),
        ("date", 1767225600000, "1767225600000"),
        ("job", "3 1", InstanceOf("job", (3, 1))),
        ("scenario", [[[0]]][0], InstanceOf("scenario", (0,))),
        ("job", [[[3, 1]]], InstanceOf("job", (3, 1))),
    ],
)
def test_types(make_job: MakeJob, kind: str, value: object, word: object) -> None:
    assert argv(one(make_job, type=kind), {"x": value}) == ("-x", word)


@pytest.mark.parametrize(
    ("kind", "value"), [("ratio", "Q"), ("date", "soon"), ("job", "a"), ("network", "x/8")]
)
def test_values_outside_their_type(make_job: MakeJob, kind: str, value: object) -> None:
    assert len(refused(one(make_job, type=kind), {"x": value})) == 1


def test_choices_are_enforced(make_job: MakeJob) -> None:
    job = one(make_job, type="float", choices=[1, 2])
    assert argv(job, {"x": "1"}) == ("-x", "1.0")
    assert "not one of 1, 2" in refused(job, {"x": 3})[0]


@settings(max_examples=300)
@given(
    text=st.one_of(
        st.text(st.characters()),
        st.sampled_from(["-x", "--", "-1", "\0", "\ud800", "; id", "$(id)", "a\nb"]),
    )
)
def test_t03_any_text_is_exactly_one_element_or_refused(
    text_jobs: list[Descriptor], text: str
) -> None:
    option_job, positional_job = text_jobs
    value = text.replace("$", "$$")
    safe = (
        "\0" not in text
        and not text.startswith("-")
        and text.encode(errors="replace").decode() == text
    )
    for job, before in ((option_job, ("-x",)), (positional_job, ())):
        if safe:
            assert argv(job, {"x": value}) == (*before, text)
        else:
            assert refused(job, {"x": value})


@pytest.fixture
def text_jobs(make_job: MakeJob) -> list[Descriptor]:
    positional = {"required": [{"name": "x", "type": "str", "count": 1}]}
    return [one(make_job), make_job("positional", positional)]
