# SPDX-License-Identifier: GPL-3.0-or-later
"""What `--ip 6` makes of a scenario."""

import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.topology import load
from satlab.openbach import descriptor, scenario
from satlab.openbach.model import Scenario
from satlab.run import ipv6_scenarios

LAB = load()


def loaded(name: str) -> Scenario:
    return scenario.load(paths.SCENARIOS / f"{name}.json", descriptor.all_jobs(()), LAB.nodes)


def test_the_server_of_a_scenario_is_reached_over_ipv6() -> None:
    bulk = loaded("bulk_tcp")
    found = ipv6_scenarios.settings(bulk, {"duration": "5"}, LAB)
    assert found == {"duration": "5", "server_ip": "2001:2:0:1204::2"}
    bound = scenario.bind(bulk, found)
    ipv6_scenarios.check(bound)
    words = [str(word) for started in bound.jobs() for word in started.words]
    assert words.count("2001:2:0:1204::2") == 2
    assert "198.18.4.2" not in words
    own = {"duration": "5", "server_ip": "198.18.4.2"}
    assert ipv6_scenarios.settings(bulk, own, LAB) == own


def test_jobs_that_know_ipv4_alone_are_refused_by_name() -> None:
    for name, given, refused in (
        (
            "ftp",
            {"direction": "upload", "size_bytes": "1000"},
            ["satlab_ftp", "satlab_postprocess"],
        ),
        ("tcp", {"pep": "pepsal"}, ["satlab_pep pepsal"]),
    ):
        bound = scenario.bind(loaded(name), given)
        with pytest.raises(ConfigError) as caught:
            ipv6_scenarios.check(bound)
        assert [fault.place for fault in caught.value.faults] == refused


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tcp", {"pep": "haproxy"}),
        ("web_tcp", {"pep": "haproxy", "protocol": "h1"}),
        ("quic", {"pep": "quic"}),
        ("web_quic", {"pep": "quic-h3-capable"}),
    ],
)
@pytest.mark.promise("P23")
def test_p304_proxies_have_addresses_of_ipv6_on_both_sides(
    name: str, given: dict[str, str]
) -> None:
    found = loaded(name)
    bound = scenario.bind(found, ipv6_scenarios.settings(found, given, LAB))
    ipv6_scenarios.check(bound)
    (first, second) = (
        [str(word) for word in one.words] for one in bound.jobs() if one.job.name == "satlab_pep"
    )
    assert first[1:3] == second[1:3] == ["2001:2:0:1201::2", "2001:2:0:1204::2"]


@pytest.mark.parametrize("name", ["page_load", "page_load_terminals", "page_capture"])
def test_pages_are_loaded_over_ipv6(name: str) -> None:
    found = loaded(name)
    bound = scenario.bind(found, ipv6_scenarios.settings(found, {"protocol": "h3"}, LAB))
    ipv6_scenarios.check(bound)
    loads = [one.words for one in bound.jobs() if one.job.name == "satlab_page_load"]
    assert all("2001:2:0:1204::2" in map(str, words) for words in loads)
    assert loads


def test_p306_each_address_of_a_scenario_may_be_of_the_other_version() -> None:
    both = LAB.model_copy(update={"ipv6": True})
    ends = {"server_ip": "2001:2:0:1204::2", "client_ip": "2001:2:0:1201::2"}
    for name, given in (("bulk_tcp", {"duration": "5"}), ("tcp", {"pep": "haproxy"})):
        found = loaded(name)
        chosen = {key: value for key, value in ends.items() if key in found.constants}
        bound = scenario.bind(found, {**given, **chosen})
        ipv6_scenarios.check_chosen(bound, both)
        with pytest.raises(ConfigError, match="the lab has none"):
            ipv6_scenarios.check_chosen(bound, LAB)
        ipv6_scenarios.check_chosen(scenario.bind(found, given), LAB)
    bound = scenario.bind(loaded("tcp"), {"pep": "pepsal", **ends})
    with pytest.raises(ConfigError) as caught:
        ipv6_scenarios.check_chosen(bound, both)
    assert [fault.place for fault in caught.value.faults] == ["satlab_pep pepsal"]


@pytest.mark.parametrize(
    ("name", "given"), [("quic", {"pep": "none"}), ("page_load", {"protocol": "h3"})]
)
@pytest.mark.promise("P23")
def test_p294_quic_and_pages_without_proxies_have_addresses_of_ipv6(
    name: str, given: dict[str, str]
) -> None:
    found = loaded(name)
    bound = scenario.bind(found, ipv6_scenarios.settings(found, given, LAB))
    ipv6_scenarios.check(bound)
    words = [str(word) for started in bound.jobs() for word in started.words]
    assert words.count("2001:2:0:1204::2") >= 2
    assert not any(word.startswith("198.18.") for word in words)
