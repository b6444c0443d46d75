# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs and scenarios of OpenBACH itself, in their shapes: accepted as a controller accepts them,
each doubt noted.
"""

import sys
from pathlib import Path

import pytest

from satlab.common import paths, topology
from satlab.common.errors import ConfigError, Fault
from satlab.openbach import descriptor, job_folder_checks, scenario, upstream_descriptors
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.fixtures.executor_shapes import (
    EXECUTORS,
    EXTRA_JOBS,
    REFUSED,
    shapes,
    start,
    write_scenario,
    write_scenarios,
)
from satlab.openbach.fixtures.upstream_shapes import JOBS, write_job, write_jobs
from satlab.openbach.job_arguments import argv
from satlab.run import validate


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jobs(tmp_path_factory.mktemp("core_jobs"))


@pytest.fixture(scope="module")
def known(jobs: Path) -> dict[str, Descriptor]:
    return descriptor.all_jobs([jobs])


@pytest.fixture(scope="module")
def further(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the jobs of openbach-extra as well."""
    return write_jobs(write_jobs(tmp_path_factory.mktemp("all_jobs")), EXTRA_JOBS)


@pytest.mark.promise("P49")
def test_every_shape_of_a_core_job_is_read(jobs: Path) -> None:
    found, bad = descriptor.sort_upstream(jobs)
    assert not bad, {name: list(map(str, error.faults)) for name, error in bad.items()}
    assert found.keys() == JOBS.keys()
    assert len(found) == 28
    assert not any(job.persistent for job in found.values()), "a hint"
    assert all(not job_folder_checks.check_folder(job) for job in found.values()), (
        "programs in sub-folders are found"
    )
    accepted = len(shapes()) - len(REFUSED)
    assert (len(EXECUTORS), len(shapes()), accepted) == (31, 67, 61), "docs/openbach.md"


@pytest.mark.parametrize(
    ("job", "place", "said"),
    [
        ("iperf3", "platform_configuration", "list form of OpenBACH 2.6"),
        ("iperf3", "choices.1.required.0.flag", "a required argument is positional"),
        ("ip_link", "optional.1.type", "string is not a type of OpenBACH: str is meant"),
        ("pep", "general.maintainer", "unknown key"),
        ("fping", "install_fping.yml", "which the embedded lab does not: fping iproute2"),
    ],
)
def test_what_a_controller_passes_over_is_a_warning(
    jobs: Path, job: str, place: str, said: str
) -> None:
    warnings = descriptor.sort_upstream(jobs)[0][job].warnings
    assert any(place in fault.place and said in fault.reason for fault in warnings), list(
        map(str, warnings)
    )
    (folder,) = jobs.glob(f"*/{job}")
    with pytest.raises(ConfigError):
        descriptor.load_job(folder)


def test_releases_named_by_version_become_names(jobs: Path) -> None:
    platforms = descriptor.sort_upstream(jobs)[0]["fping"].platforms
    assert [platform.release for platform in platforms] == ["focal", "jammy", "noble"]


def test_arguments_of_upstream_s_iperf3_become_its_command_line(jobs: Path) -> None:
    iperf3 = descriptor.sort_upstream(jobs)[0]["iperf3"]
    given = {
        "port": 5201,
        "num_flows": 1,
        "client": {"server_ip": "10.77.0.2", "duration_time": 5, "tcp": {}},
    }
    assert argv(iperf3, given) == tuple("-p 5201 -n 1 client 10.77.0.2 -t 5.0 tcp".split())
    program = str(iperf3.files / "src" / "iperf3.py")
    assert iperf3.command() == ["/usr/bin/env", "python3", program]
    assert Path(program).is_file()
    assert sys.executable not in iperf3.command()


def test_words_of_a_rule_may_begin_with_a_dash(jobs: Path, tmp_path: Path) -> None:
    """The job takes all further words; a single text could pass for an option."""
    iptables = descriptor.sort_upstream(jobs)[0]["iptables"]
    rule = ["-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"]
    assert argv(iptables, {"rule": rule}) == tuple(rule)
    apache2 = descriptor.sort_upstream(jobs)[0]["apache2"]
    with pytest.raises(ConfigError):
        argv(apache2, {"operation": "-k"})
    functions = [start(0, "client", "iptables", {"rule": [rule]})]
    file = write_scenario(tmp_path, "rule", {"openbach_functions": functions})
    assert validate.check(file, jobs=jobs) == []


def test_a_job_with_another_name_than_its_folder_is_read(tmp_path: Path) -> None:
    shape = {"more": {"name": "mbr_client"}}
    write_job(tmp_path, "mbr_manager", shape)
    found, bad = descriptor.sort_upstream(tmp_path)
    assert not bad
    assert found["mbr_manager"].name == "mbr_manager"
    assert any(
        "'mbr_client' is not the name" in each.reason for each in found["mbr_manager"].warnings
    )


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.promise("P49")
def test_scenarios_are_accepted_or_refused_for_the_right_reason(
    further: Path, tmp_path: Path, executor: str
) -> None:
    """OpenBACH 2.7.0 accepted each of them."""
    write_scenarios(tmp_path, executor)
    known, nodes = descriptor.all_jobs([further]), topology.load().nodes
    for name in EXECUTORS[executor]:
        warnings: list[Fault] = []
        faults = scenario.validate_paths([tmp_path / f"{name}.json"], known, nodes, warnings)
        reason = REFUSED.get(f"{executor}/{name}")
        assert {fault.reason for fault in faults} == ({reason} if reason else set()), list(
            map(str, faults)
        )
        known_doubts = {doubt for doubt, _ in upstream_descriptors.ELSEWHERE.values()}
        others = [each for each in warnings if each.reason not in known_doubts]
        assert all("there is no entity" in warning.reason for warning in others), list(
            map(str, others)
        )


def test_a_job_that_is_not_there_is_the_reason(
    known: dict[str, Descriptor], tmp_path: Path
) -> None:
    write_scenarios(tmp_path, "executor_service_ftp")
    faults = scenario.validate_paths([tmp_path], known, topology.load().nodes, [])
    assert {fault.reason for fault in faults} == {"there is no such job"}


_DOUBTFUL: dict[str, dict[str, object]] = {
    "link": {
        "openbach_functions": [
            start(0, "gw", "tc_configure_link", {"interface_name": "lan0", "clear": {}})
        ]
    },
    "other_entities": {
        "openbach_functions": [start(0, "midbox", "apache2", {"operation": "start"})]
    },
    "more_keys": {
        "owner": "nobody",
        "openbach_functions": [start(0, "server", "apache2", {"operation": "start"})],
    },
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other_entities", "there is no entity 'midbox'"),
        ("more_keys", "owner: unknown key"),
        ("link", "needs netem and ifb of the kernel"),
    ],
)
def test_what_openbach_accepts_of_a_scenario_is_a_warning(
    jobs: Path, tmp_path: Path, name: str, said: str
) -> None:
    file = write_scenario(tmp_path, name, _DOUBTFUL[name])
    (warning,) = validate.check(file, jobs=jobs)
    assert said in warning
    with pytest.raises(ConfigError):  # an unknown job, key or entity
        validate.check(file)


def test_a_job_that_stops_nothing_but_itself_ends_no_scenario_with_a_fault(
    jobs: Path, tmp_path: Path
) -> None:
    """Of the core jobs most are called persistent, and most of them end by themselves."""
    ping = start(0, "client", "fping", {"destination_ip": "198.18.4.2"})
    write_scenario(tmp_path, "delay", {"openbach_functions": [ping]})
    assert JOBS["fping"]["persistent"]
    assert validate.check(tmp_path, jobs=jobs) == []


def test_jobs_of_one_name_are_refused_and_hidden_folders_passed_over(tmp_path: Path) -> None:
    write_job(tmp_path / "a", "fping", JOBS["fping"])
    write_job(tmp_path / ".upload-x", "fping", JOBS["fping"])
    assert list(descriptor.sort_upstream(tmp_path)[0]) == ["fping"]
    write_job(tmp_path / "b", "fping", JOBS["fping"])
    with pytest.raises(ConfigError, match="two jobs are called fping"):
        descriptor.sort_upstream(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        descriptor.sort_upstream(tmp_path / "nothing")


def test_the_name_of_a_shipped_job_stays_with_it(tmp_path: Path) -> None:
    write_job(tmp_path, "satlab_ping", JOBS["fping"])
    assert descriptor.all_jobs([tmp_path])["satlab_ping"].files.is_relative_to(paths.JOBS)


def test_a_whole_folder_is_validated(jobs: Path) -> None:
    warnings = validate.check(jobs, jobs=jobs)
    assert any("list form" in warning for warning in warnings)
