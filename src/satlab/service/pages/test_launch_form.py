# SPDX-License-Identifier: GPL-3.0-or-later
import json
from typing import Any

import pytest

from satlab.common import paths
from satlab.link.option_model import options_of
from satlab.openbach.descriptor import load_jobs
from satlab.service.pages import launch_form
from satlab.service.pages.launch_form import Field, Form, form_of, read
from satlab.service.root_helper.protocol import RunLink

JOBS = load_jobs(paths.JOBS)
SCENARIOS: dict[str, dict[str, Any]] = {
    p.stem: json.loads(p.read_text()) for p in paths.SCENARIOS.glob("*.json")
}


def form(name: str) -> Form:
    return form_of(SCENARIOS[name], SCENARIOS, JOBS, paths.PROFILES)


def field_of(made: Form, identity: str) -> Field:
    return next(field for field in made.fields if field.id == identity)


def filled(made: Form, **changes: str) -> dict[str, str]:
    given = {field.id: field.value for field in made.fields}
    return given | {key.replace("__", "."): value for key, value in changes.items()}


@pytest.mark.promise("P59")
def test_kind_unit_and_choices_come_from_the_jobs() -> None:
    bulk, page = form("bulk_tcp"), form("page_load")
    duration = field_of(bulk, "argument.duration")
    assert (duration.kind, duration.unit, duration.required) == ("integer", "s", True)
    assert duration.help == SCENARIOS["bulk_tcp"]["arguments"]["duration"]
    assert field_of(page, "argument.protocol").choices[:1] == ("h1",)
    runs = field_of(page, "constant.runs")
    assert (runs.kind, runs.value, runs.required) == ("integer", "3", False)
    assert "Number of loads" in runs.help


def test_an_argument_is_followed_into_sub_scenarios() -> None:
    pep = field_of(form("seed_002_cell"), "argument.tcp_pep")
    assert {"haproxy", "pepsal"} <= set(pep.choices)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_shipped_scenario_has_a_form_that_can_be_sent(name: str) -> None:
    made = form(name)
    values = {f.id: f.choices[0] if f.choices else "10" for f in made.arguments}
    request = read(made, filled(made) | values)
    assert request.faults == {}
    assert set(request.arguments) == set(SCENARIOS[name].get("arguments", {}))
    assert request.constants == {}
    assert request.link is not None
    assert request.link.profile == "geo"


def test_the_link_has_a_field_for_each_option_that_the_root_helper_takes() -> None:
    made = form("page_load")
    assert [field.name for field in made.link] == [option.name for option in options_of(RunLink)]
    delay, ecn, queue = (
        field_of(made, f"link.{name}") for name in ("terrestrial_delay_ms", "ecn", "queue_bdp")
    )
    assert (delay.kind, delay.unit, delay.value) == ("number", "ms", "")
    assert delay.help.endswith("; 0 to 10000.")
    assert (ecn.choices, ecn.value, queue.value) == (("no", "yes"), "no", "1.2")
    filled_in = filled(
        made, argument__protocol="h1", link__aqm="codel", link__ecn="yes", link__jitter_ms="2.5"
    )
    link = read(made, filled_in).link
    assert link is not None
    assert link.model_dump(exclude_defaults=True) == {"aqm": "codel", "ecn": True, "jitter_ms": 2.5}


def test_terminals_and_ip_versions_can_be_chosen() -> None:
    made = form("fairness")
    terminals, ip = field_of(made, "link.terminals"), field_of(made, "link.ip")
    assert (terminals.kind, terminals.value) == ("integer", "")
    assert (ip.choices, ip.value) == (("4", "6", "both"), "4")
    link = read(made, filled(made, argument__duration="5", link__terminals="3", link__ip="6")).link
    assert link is not None
    assert link.model_dump(exclude_defaults=True) == {"terminals": 3, "ip": "6"}


def test_only_constants_that_were_changed_are_sent() -> None:
    made = form("page_load")
    request = read(
        made, filled(made, argument__protocol="h3", constant__runs="5", constant__page="")
    )
    assert (request.arguments, request.constants) == ({"protocol": "h3"}, {"runs": "5"})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"argument.protocol": ""}, "argument.protocol"),
        ({"argument.protocol": "ftp"}, "argument.protocol"),
        ({"constant.runs": "many"}, "constant.runs"),
        ({"constant.runs": "1.5"}, "constant.runs"),
        ({"link.loss": "much"}, "link.loss"),
        ({"link.loss": "2"}, "link.loss"),
        ({"link.loss": "nan"}, "link.loss"),
        ({"link.profile": "../geo"}, "link.profile"),
        ({"link.loss_model": "trace:/etc/passwd"}, "link.loss_model"),
        ({"link.queue": "a lot"}, "link.queue"),
        ({"link.aqm": "red"}, "link.aqm"),
        ({"link.seed": "-1"}, "link.seed"),
        ({"link.ecn": "yes"}, "link.ecn"),
        ({"link.terminals": "65"}, "link.terminals"),
        ({"link.terminals": "two"}, "link.terminals"),
        ({"link.ip": "5"}, "link.ip"),
        ({"link.emulator": "opensand", "link.loss": "0.1"}, "link.emulator"),
    ],
)
def test_each_fault_stands_at_its_field(change: dict[str, str], place: str) -> None:
    made = form("page_load")
    request = read(made, filled(made, argument__protocol="h1") | change)
    assert place in request.faults, request.faults


def test_every_fault_is_reported_at_once() -> None:
    made = form("page_load")
    assert (
        len(
            read(
                made, filled(made, argument__protocol="", constant__runs="x", link__loss="2")
            ).faults
        )
        == 3
    )


@pytest.mark.parametrize(
    "functions", [None, {}, [None], [{"start_job_instance": 1}], [{"start_job_instance": {"a": 1}}]]
)
def test_any_document_has_a_form(functions: object) -> None:
    document = {
        "name": "a",
        "arguments": {"x": "y"},
        "constants": [],
        "openbach_functions": functions,
    }
    made = form_of(document, {}, JOBS, paths.PROFILES)
    assert [field.id for field in made.arguments] == ["argument.x"]


def test_scenarios_that_start_each_other_have_a_form() -> None:
    def starts(name: str, other: str) -> dict[str, Any]:
        call = {"start_scenario_instance": {"scenario_name": other, "arguments": {"x": "$x"}}}
        return {"name": name, "arguments": {"x": ""}, "openbach_functions": [call]}

    both = {"a": starts("a", "b"), "b": starts("b", "a")}
    assert form_of(both["a"], both, JOBS, paths.PROFILES).arguments[0].kind == "text"


@pytest.mark.parametrize(
    ("name", "unit", "label"),
    [
        ("server_max_ack_delay_ms", "ms", "Server max ACK delay"),
        ("proxy_st_cc", "", "Proxy ST congestion control"),
        ("duration", "s", "Duration"),
        ("s", "s", "S"),
    ],
)
def test_labels_are_words_and_name_a_unit_once(name: str, unit: str, label: str) -> None:
    assert launch_form._label(name, unit) == label
