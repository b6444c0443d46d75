# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of scenarios before a lab is up: defaults of shipped ones, bounds, what the kernel has."""

import json
import platform
import re
import resource
from pathlib import Path

import pytest

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError, HostError
from satlab.link.options import LinkOptions
from satlab.openbach import descriptor, scenario
from satlab.run import catalog, host_needs, manifest, scenario_run, scenario_value_checks

PEPS = ("haproxy", "pepsal")
SCENARIOS = sorted(paths.SCENARIOS.glob("*.json"))


def faults(name: str, **values: str) -> str:
    """Return what is said against values of a shipped scenario."""
    request = scenario_run.RunRequest(
        paths.SCENARIOS / f"{name}.json", LinkOptions(), values, Path("runs")
    )
    with pytest.raises(ConfigError) as caught:
        scenario_run.prepare(request)
    return "; ".join(map(str, caught.value.faults))


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
@pytest.mark.promise("P30")
def test_p372_a_shipped_scenario_runs_without_values(file: Path) -> None:
    arguments = json.loads(file.read_text()).get("arguments", {})
    values = catalog.settings(file, arguments, {})
    assert values.keys() == arguments.keys()
    loaded = scenario.load(file, descriptor.load_jobs(paths.JOBS), LinkOptions().topology().nodes)
    assert scenario.bind(loaded, values).values.items() >= values.items()


def test_p372_defaults_are_of_arguments_that_there_are_and_what_is_given_counts() -> None:
    known = yaml_text.load(catalog.DEFAULTS.read_text())
    arguments = {file.stem: json.loads(file.read_text()).get("arguments", {}) for file in SCENARIOS}
    assert known.pop("all").keys() <= {name for names in arguments.values() for name in names}
    assert all(values.keys() <= arguments[name].keys() for name, values in known.items())
    bulk = paths.SCENARIOS / "bulk_tcp.json"
    assert catalog.settings(bulk, ["duration"], {}) == {"duration": "15"}
    assert catalog.settings(bulk, ["duration"], {"duration": "3"}) == {"duration": "3"}
    assert catalog.defaults("page_load", ["protocol"]) == {"protocol": "h3"}
    assert catalog.defaults("web_tcp", ["protocol"]) == {"protocol": "h2"}
    assert "[duration=15]" in catalog.shipped("scenarios")["bulk_tcp"]


def test_p372_a_scenario_of_one_s_own_has_no_defaults(tmp_path: Path) -> None:
    file = tmp_path / "bulk_tcp.json"
    file.write_text((paths.SCENARIOS / "bulk_tcp.json").read_text())
    assert catalog.settings(file, ["duration"], {}) == {}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("bulk_tcp", {"duration": "0"}, "0 is below 1"),
        ("bulk_tcp", {"duration": "-3"}, "-3 is below 1"),
        ("bulk_tcp", {"port": "65536"}, "65536 is above 65535"),
        ("ping", {"count": "0"}, "0 is below 1"),
        ("page_load", {"runs": "-1"}, "-1 is below 0"),
        ("video", {"duration": "100000"}, "100000.0 is above 86400"),
        ("ftp", {"size_bytes": "0"}, "0 is below 1"),
        ("load", {"duration": "0"}, "0.0 is below 0.1"),
    ],
)
@pytest.mark.promise("P28")
def test_p373_numbers_out_of_bounds_are_refused(
    name: str, values: dict[str, str], said: str
) -> None:
    assert said in faults(name, **values)


@pytest.mark.parametrize("name", ["bulk_tcp", "fec", "vpn"])
def test_p373_a_congestion_control_that_the_kernel_lacks_is_refused(name: str) -> None:
    said = faults(name, cong_control="bbrv9")
    assert "congestion control bbrv9: the kernel does not have it" in said and "cubic" in said


def test_p373_a_congestion_control_whose_module_is_installed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_needs, "MODULES", tmp_path)
    monkeypatch.setattr(host_needs, "CONTROLS", tmp_path / "controls")
    (tmp_path / "controls").write_text("reno cubic\n")
    assert host_needs.congestion_controls() == {"reno", "cubic"}
    place = tmp_path / platform.release()
    place.mkdir()
    (place / "modules.dep").write_text(
        "kernel/net/ipv4/tcp_bbr.ko.xz: kernel/net/x.ko\nkernel/net/sched/sch_fq.ko:\n"
    )
    (place / "modules.builtin").write_text("kernel/net/ipv4/tcp_vegas.ko\n")
    assert host_needs.congestion_controls() == {"reno", "cubic", "bbr", "vegas"}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        (
            "page_load",
            {"page": "kelper"},
            "page=kelper: there is no such page (did you mean kepler?)",
        ),
        (
            "demo",
            {"page": "nothing"},
            "there is no such page (known: article, kepler, shop, video)",
        ),
        ("bulk_tcp", {"durration": "3"}, "has no such name (did you mean duration?)"),
        ("bulk_tcp", {"duration": "100000"}, "duration=100000: is longer than the run may last"),
        ("bulk_tcp", {"duration": "15s"}, "duration=15s: is not a whole number of seconds (for"),
        ("page_load", {"protocol": "h4"}, "protocol=h4: is not one of h1, h2, h3"),
        ("page_load", {"observed": "101"}, "101 is above 100"),
        (
            "page_load",
            {"browser": "firefox", "observed": "2"},
            "observed=2: Firefox has none",
        ),
        (
            "page_load",
            {"browser": "firefox", "page": "article"},
            "page=article: Firefox loads pages of one domain alone",
        ),
        ("page_load", {"browser": "opera"}, "opera"),
        ("responsiveness", {"duration": "9"}, "9 is below 10"),
    ],
)
@pytest.mark.promise("P29")
def test_a_dry_run_refuses_what_a_run_could_not_do(
    name: str, values: dict[str, str], said: str
) -> None:
    assert said in faults(name, **values)


def test_a_duration_may_be_as_long_as_the_deadline() -> None:
    jobs, nodes = descriptor.load_jobs(paths.JOBS), LinkOptions().topology().nodes
    loaded = scenario.load(paths.SCENARIOS / "bulk_tcp.json", jobs, nodes)
    bound = scenario.bind(loaded, {"duration": "900"})
    scenario_value_checks.check(bound, 900.0)
    with pytest.raises(ConfigError):
        scenario_value_checks.check(bound, 899.0)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
def test_a_shipped_scenario_fits_the_usual_deadline(file: Path) -> None:
    arguments = json.loads(file.read_text()).get("arguments", {})
    jobs, nodes = descriptor.load_jobs(paths.JOBS), LinkOptions().topology().nodes
    bound = scenario.bind(scenario.load(file, jobs, nodes), catalog.settings(file, arguments, {}))
    scenario_value_checks.check(bound, scenario_run.RunRequest(file).deadline_s)


def test_a_scenario_or_profile_with_a_typing_error_is_asked_for() -> None:
    with pytest.raises(ConfigError) as caught:
        catalog.scenario_file(Path("bulk_tpc"))
    assert caught.value.hint == "did you mean bulk_tcp?"
    with pytest.raises(ConfigError) as caught:
        LinkOptions(profile="geo-acn").profile_folder()
    assert caught.value.hint == "did you mean geo-acm?"


def test_the_digest_of_a_scenario_is_that_of_its_functions(tmp_path: Path) -> None:
    """The web writes the document again, with the constants of the launch."""
    shipped = paths.SCENARIOS / "page_load.json"
    document = json.loads(shipped.read_text())
    written = tmp_path / "page_load.json"
    document["constants"]["page"] = "article"
    written.write_text(json.dumps(document))
    assert manifest.scenario_sha256(written) == manifest.scenario_sha256(shipped)
    document["openbach_functions"][0]["label"] = "another"
    written.write_text(json.dumps(document))
    assert manifest.scenario_sha256(written) != manifest.scenario_sha256(shipped)


def test_a_pepsal_that_cannot_run_is_refused_before_a_lab_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = paths.SCENARIOS / "tcp.json"
    loaded = scenario.load(file, descriptor.load_jobs(paths.JOBS), LinkOptions().topology().nodes)
    values = {pep: catalog.settings(file, loaded.arguments, {"pep": pep}) for pep in PEPS}
    haproxy, pepsal = (scenario.bind(loaded, values[pep]) for pep in PEPS)
    monkeypatch.setattr(host_needs, "STANDARD_PATH", str(tmp_path))
    monkeypatch.setattr(host_needs, "STATUS", tmp_path / "status")
    with pytest.raises(HostError, match="pepsal is not installed"):
        host_needs.check(pepsal)
    host_needs.check(haproxy)
    program = tmp_path / "pepsal"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 20_000))
    (tmp_path / "status").write_text("CapInh:\t0\nCapEff:\t000001fffeffffff\n")
    with pytest.raises(HostError, match="open files to 1048576, and this host allows 20000"):
        host_needs.check(pepsal)
    (tmp_path / "status").write_text("CapEff:\t000001ffffffffff\n")
    host_needs.check(pepsal)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("page_load", {"browser": "firefox"}, "firefox-esr or certutil is not installed"),
        ("video", {"player": "dashjs"}, "dash.js is not installed"),
    ],
)
def test_a_browser_or_player_that_is_missing_is_named_before_a_lab_is_up(
    name: str,
    given: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = paths.SCENARIOS / f"{name}.json"
    loaded = scenario.load(file, descriptor.load_jobs(paths.JOBS), LinkOptions().topology().nodes)
    monkeypatch.setattr(host_needs, "STANDARD_PATH", str(tmp_path))
    monkeypatch.setattr(host_needs, "DASHJS", tmp_path)
    host_needs.check(scenario.bind(loaded, catalog.settings(file, loaded.arguments, {})))
    asked = scenario.bind(loaded, catalog.settings(file, loaded.arguments, given))
    with pytest.raises(HostError, match=re.escape(said)):
        host_needs.check(asked)
