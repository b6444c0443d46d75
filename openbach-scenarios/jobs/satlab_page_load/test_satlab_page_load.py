# SPDX-License-Identifier: GPL-3.0-or-later
import contextlib
import copy
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import WebDriverException

from collect import PageLoad, PageObservation
from satlab.common.paths import ROOT
from satlab.lab import web_target
from satlab.openbach.descriptor import load_job
from tests import job_programs

HERE = Path(__file__).parent
SERVER = IPv4Address("198.18.4.2")
PIN = "Q/l5cdUGp3pw+9q767PczWkv4/hgpbtdVQ1fRER5+hs="


job = job_programs.load("satlab_page_load")
PROGRAMS = job.Programs(
    "/usr/bin/chromium", "/usr/bin/chromedriver", "Chromium 1", "ChromeDriver 1"
)


def target(protocol: str = "h3") -> Any:
    objects = web_target.load("kepler").objects
    expected = {"/" if o.loaded_as == "document" else f"/{o.path}": o.size_bytes for o in objects}
    return job.Target("kepler", protocol, SERVER, expected, PIN if protocol == "h3" else "")


@pytest.fixture
def timeline() -> Any:
    """Return what Chromium 156 reported of a load over HTTP/3 without delay."""
    return json.loads((HERE / "fixtures" / "timeline-h3.json").read_text())


def judged(timeline: Any, protocol: str = "h3", status: str = "failed") -> Any:
    page = target(protocol)
    started = job.empty_record(page, PROGRAMS, 0) | {
        "status": status,
        "start_unix_s": 1.0,
        "wall_s": 2.0,
    }
    record = job.judge(started, timeline, page)
    PageLoad.model_validate(record)
    return record


def test_a_whole_load_is_ok_and_its_times_are_those_of_the_timeline(timeline: Any) -> None:
    record = judged(timeline)
    assert (record["status"], record["reason"]) == ("ok", "")
    assert (record["objects"], record["body_bytes"]) == (75, 815_804)
    assert record["protocols"] == {"h3": 75}
    assert record["response_start_ms"] == timeline["response_start_ms"]
    assert record["first_contentful_paint_ms"] == timeline["first_contentful_paint_ms"]
    assert record["page_load_time_ms"] == timeline["load_event_start_ms"]
    assert record["load_event_end_ms"] == timeline["load_event_end_ms"]


def set_field(number: int, **values: Any) -> Callable[[Any], None]:
    return lambda t: t["resources"][number].update(values)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (set_field(5, next_hop_protocol="h2"), "not over h3: /css/c5.css h2"),
        (set_field(0, next_hop_protocol=""), "not over h3: / unknown"),
        (set_field(30, response_status=404, encoded_body_bytes=9), "status not 200"),
        (set_field(30, encoded_body_bytes=9), "wrong body bytes"),
        (lambda t: t["resources"].pop(40), "missing: /"),
        (
            lambda t: t["resources"].append(
                t["resources"][3] | {"name": "https://kepler.satlab.test/x"}
            ),
            "not of the page",
        ),
        (lambda t: t["resources"].append(t["resources"][3]), "76 requests for 75 objects"),
        (lambda t: t.update(first_contentful_paint_ms=None), "no first contentful paint"),
        (
            lambda t: t.update(url="chrome-error://chromewebdata/", error="ERR_X"),
            "the browser shows ERR_X",
        ),
        (
            lambda t: t.update(url="https://elsewhere.test/"),
            "the browser shows https://elsewhere.test/",
        ),
    ],
)
def test_a_load_that_differs_in_one_thing_fails_and_has_no_times(
    timeline: Any, damage: Callable[[Any], Any], reason: str
) -> None:
    damage(timeline)
    record = judged(timeline)
    assert record["status"] == "failed"
    assert reason in record["reason"]
    assert (
        record["page_load_time_ms"]
        is record["first_contentful_paint_ms"]
        is record["response_start_ms"]
        is None
    )


def test_what_another_domain_hides_is_read_from_the_events() -> None:
    url = "https://static.article.satlab.test/css/2.css"
    hidden = {
        "name": url,
        "next_hop_protocol": "",
        "response_status": 0,
        "encoded_body_bytes": 0,
        "transfer_bytes": 0,
    }
    known = {
        "name": "https://article.satlab.test/",
        "next_hop_protocol": "h3",
        "response_status": 200,
    }
    events = [
        {
            "method": "Network.requestWillBeSent",
            "params": {"requestId": "7", "request": {"url": url, "method": "GET"}},
        },
        {
            "method": "Network.responseReceived",
            "params": {"requestId": "7", "response": {"protocol": "h3", "status": 200}},
        },
        {"method": "Network.dataReceived", "params": {"requestId": "7", "dataLength": 1000}},
        {"method": "Network.dataReceived", "params": {"requestId": "7", "dataLength": 234}},
        {"method": "Network.dataReceived", "params": {"requestId": "8", "dataLength": 99}},
        {
            "method": "Network.loadingFinished",
            "params": {"requestId": "7", "encodedDataLength": 1300},
        },
    ]
    timeline = {"resources": [dict(known), dict(hidden)]}
    job.page_observation.complete(timeline, events)
    assert timeline["resources"][0] == known
    assert timeline["resources"][1] == hidden | {
        "next_hop_protocol": "h3",
        "response_status": 200,
        "encoded_body_bytes": 1234,
        "transfer_bytes": 1300,
    }


def test_objects_of_other_domains_are_expected_there(tmp_path: Path) -> None:
    web_target.build(web_target.load("article"), tmp_path / "article")
    found = job.read_target("article", "h1", SERVER, tmp_path, tmp_path)
    assert found.hosts == web_target.load("article").hosts
    assert found.expected["//static.article.satlab.test/css/2.css"] == 26_666
    assert (
        found.key("http://static.article.satlab.test/css/2.css")
        == "//static.article.satlab.test/css/2.css"
    )
    assert found.key("http://article.satlab.test/") == "/"
    arguments = job.browser_arguments(found, tmp_path, sandbox=True)
    (rules,) = (one for one in arguments if one.startswith("--host-resolver-rules="))
    assert rules.partition("=")[2].split(",") == [
        *(f"MAP {host} {SERVER}" for host in found.hosts),
        "MAP * ~NOTFOUND",
    ]


def test_logs_that_are_missing_or_too_large_are_named_and_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored: list[str] = []

    def store(*_: object, **files: str) -> str:
        stored.extend(files)
        return "OK"

    monkeypatch.setattr(job.collect_agent, "store_files", store)
    (tmp_path / "tls_keys.txt").write_text("CLIENT_RANDOM 00 00\n")
    job.browser_logs.publish(tmp_path, "https://kepler.satlab.test/")
    assert stored == ["tls_keys_txt"]
    assert (
        "netlog_json of the observed load is not stored: it has 0 bytes" in capsys.readouterr().err
    )
    with (tmp_path / "tls_keys.txt").open("wb") as large:
        large.truncate(job.browser_logs.MOST_KEYS + 1)
    job.browser_logs.publish(tmp_path, "https://kepler.satlab.test/")
    assert stored == ["tls_keys_txt"]


def test_every_reason_is_given(timeline: Any) -> None:
    for number in range(10, 20):
        timeline["resources"][number].update(next_hop_protocol="http/1.1", response_status=500)
    reason = judged(timeline)["reason"]
    assert "not over h3" in reason
    assert "status not 200" in reason
    assert "and 7 more" in reason


def test_the_wrong_protocol_fails_h1_too(timeline: Any) -> None:
    record = judged(timeline, protocol="h1")
    assert record["status"] == "failed"
    assert "not over http/1.1" in record["reason"]


def test_a_load_beyond_the_deadline_is_censored_and_keeps_what_it_reached(timeline: Any) -> None:
    timeline.update(load_event_start_ms=0, load_event_end_ms=0)
    del timeline["resources"][60:]
    record = judged(timeline, status="censored")
    assert record["status"] == "censored"
    assert record["page_load_time_ms"] is None
    assert record["load_event_end_ms"] is None
    assert record["response_start_ms"] == timeline["response_start_ms"]
    assert record["objects"] == 60


def test_the_timeline_of_another_page_is_not_taken(timeline: Any) -> None:
    timeline.update(url="data:,")
    for status in ("censored", "failed"):
        record = judged(timeline, status=status)
        assert record["status"] == status
        assert (record["response_start_ms"], record["objects"], record["resources"]) == (
            None,
            0,
            [],
        )


def test_a_load_event_after_the_deadline_does_not_count(timeline: Any) -> None:
    record = judged(timeline, status="censored")
    assert (record["status"], record["page_load_time_ms"], record["load_event_end_ms"]) == (
        "censored",
        None,
        None,
    )


def test_a_driver_that_fails_leaves_a_failed_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> Any:
        raise WebDriverException("session not created\nwith a long\nstack")

    monkeypatch.setattr(job, "fresh_browser", crash)
    record = job.load(target(), PROGRAMS, 7, 33.0)
    PageLoad.model_validate(record)
    assert (record["status"], record["reason"], record["load_index"]) == (
        "failed",
        "session not created",
        7,
    )


def test_the_browser_is_slowed_down_before_its_known_task(
    monkeypatch: pytest.MonkeyPatch, timeline: Any
) -> None:
    said: list[Any] = []

    class Driver:
        def execute_cdp_cmd(self, name: str, params: Any) -> None:
            said.append((name, params))

        def execute_script(self, _: str) -> tuple[float, int]:
            said.append("task")
            return 40.0, 0

        def get(self, _: str) -> None:
            said.append("page")

        def execute_async_script(self, *_: Any) -> Any:
            return timeline

    monkeypatch.setattr(job, "fresh_browser", lambda *_: contextlib.nullcontext(Driver()))
    record = job.load(target(), PROGRAMS, 0, 33.0, 4.0)
    assert PageLoad.model_validate(record).cpu_slowdown == 4
    slow = ("Emulation.setCPUThrottlingRate", {"rate": 4.0})
    assert said == [slow, "task", "page", "task"]
    said.clear()
    assert job.load(target(), PROGRAMS, 0, 33.0)["cpu_slowdown"] == 1
    assert said == ["task", "page", "task"]


def test_a_click_follows_the_timeline_and_its_answer_is_of_loads_that_count(
    monkeypatch: pytest.MonkeyPatch, timeline: Any
) -> None:
    said: list[str] = []

    class Driver:
        def execute_script(self, script: str) -> Any:
            said.append("prevent" if script == job.AWAIT_CLICK else "task")
            return 40.0, 0

        def get(self, _: str) -> None:
            said.append("page")

        def execute_async_script(self, script: str, *_: Any) -> Any:
            said.append("timeline" if script == job.READ_TIMELINE else "answer")
            return timeline if script == job.READ_TIMELINE else 24

    class Actions:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.pointer_action = self

        def move_to_location(self, x: int, y: int) -> Any:
            assert (x, y) == (640, 512)
            return self

        def click(self) -> None:
            said.append("click")

        def perform(self) -> None:
            pass

    monkeypatch.setattr(job, "ActionBuilder", Actions)
    monkeypatch.setattr(job, "fresh_browser", lambda *_: contextlib.nullcontext(Driver()))
    record = job.load(target(), PROGRAMS, 0, 33.0, clicks=True)
    assert PageLoad.model_validate(record).interaction_to_next_paint_ms == 24
    assert said == ["task", "page", "timeline", "task", "prevent", "click", "answer"]
    timeline["resources"].pop()
    record = job.load(target(), PROGRAMS, 0, 33.0, clicks=True)
    assert (record["status"], record["interaction_to_next_paint_ms"]) == ("failed", None)


def test_a_layout_that_never_shifts_is_a_figure(timeline: Any) -> None:
    assert judged(timeline)["cumulative_layout_shift"] is None, "an older browser"
    timeline["cumulative_layout_shift"] = 0
    assert judged(timeline)["cumulative_layout_shift"] == 0


def test_all_loads_run_although_one_fails(monkeypatch: pytest.MonkeyPatch, timeline: Any) -> None:
    published = []
    broken = copy.deepcopy(timeline)
    broken["resources"].pop()
    timelines = iter([timeline, broken, timeline])
    monkeypatch.setattr(job, "find_programs", lambda _: PROGRAMS)
    monkeypatch.setattr(job, "load", lambda *_, **__: judged(next(timelines)))
    monkeypatch.setattr(job, "publish", lambda record, _folder: published.append(record["status"]))
    assert job.measure(target(), 3, 33.0) is False
    assert published == ["ok", "failed", "ok"]


def observed(load: Any) -> Any:
    content = job.page_observation.document(load, job.page_observation.nothing())
    PageObservation.model_validate(content)
    return content


@pytest.mark.promise("P45")
def test_observed_loads_follow_the_others_and_are_stored_apart(
    monkeypatch: pytest.MonkeyPatch, timeline: Any
) -> None:
    published: list[Any] = []
    monkeypatch.setattr(job, "find_programs", lambda _: PROGRAMS)
    monkeypatch.setattr(job, "load", lambda *_, **__: judged(timeline))
    monkeypatch.setattr(
        job, "observe", lambda *_: observed(judged(timeline) | {"status": "failed"})
    )
    monkeypatch.setattr(job, "publish", lambda record, _: published.append(record["schema"]))
    monkeypatch.setattr(
        job, "publish_observation", lambda content, _: published.append(content["schema"])
    )
    assert job.measure(target(), 2, 33.0, 1) is False
    assert published == ["satlab/page-load/1"] * 2 + ["satlab/page-observation/1"]


def test_a_load_whose_trace_is_not_whole_is_a_failed_observation(
    monkeypatch: pytest.MonkeyPatch, timeline: Any
) -> None:
    class Driver:
        def execute_async_script(self, *_: Any) -> Any:
            return timeline

        def get_log(self, _: str) -> list[Any]:
            return []

    class Trace:
        def __init__(self, *_: Any) -> None:
            pass

        def end(self) -> list[Any]:
            return []

    monkeypatch.setattr(job, "fresh_browser", lambda *_, **__: contextlib.nullcontext(Driver()))
    monkeypatch.setattr(job, "navigate", lambda *_: False)
    monkeypatch.setattr(job.page_observation, "Trace", Trace)
    content = job.observe(target(), PROGRAMS, 0, 33.0)
    assert (content["status"], content["frames"], content["page_load_time_ms"]) == (
        "failed",
        [],
        None,
    )
    assert content["reason"] == "the browser's trace has no start of the navigation"


def test_a_stopped_load_is_a_failed_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise job.Stopped

    published: list[Any] = []
    monkeypatch.setattr(job, "find_programs", lambda _: PROGRAMS)
    monkeypatch.setattr(job, "load", stopped)
    monkeypatch.setattr(job, "publish", lambda record, _folder: published.append(record))
    with pytest.raises(job.Stopped):
        job.measure(target(), 3, 33.0)
    assert [(r["status"], r["reason"]) for r in published] == [("failed", "stopped")]
    published.clear()
    monkeypatch.setattr(job, "observe", stopped)
    monkeypatch.setattr(
        job, "publish_observation", lambda content, _folder: published.append(content)
    )
    with pytest.raises(job.Stopped):
        job.measure(target(), 0, 33.0, observed=3)
    assert [(r["status"], r["reason"], r["frames"]) for r in published] == [
        ("failed", "stopped", [])
    ]


def test_what_a_signal_left_of_a_browser_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: Any) -> Any:
        (tmp_path / "profile").mkdir()
        job.PROFILES.append(str(tmp_path / "profile"))
        raise job.Stopped

    monkeypatch.setattr(job, "PROFILES", [])
    monkeypatch.setattr(job, "adopt_orphans", lambda: None)
    monkeypatch.setattr(job, "end_children", lambda: None)
    monkeypatch.setattr(job, "read_target", stopped)
    monkeypatch.setattr(sys, "argv", ["satlab_page_load", "h1", "198.18.4.2"])
    monkeypatch.setattr(job.signal, "signal", lambda *_: None)
    with pytest.raises(job.JobError, match="stopped") as caught:
        job.main()
    assert caught.value.status == 1
    assert not (tmp_path / "profile").exists()


def test_a_sample_that_the_collector_refuses_is_not_lost_in_silence() -> None:
    job.delivered("OK")
    with pytest.raises(job.JobError):
        job.delivered("KO: disk full")


def test_t08_one_key_is_trusted_and_nothing_is_overridden() -> None:
    arguments = job.browser_arguments(target("h3"), Path("/p"), sandbox=False)
    assert f"--ignore-certificate-errors-spki-list={PIN}" in arguments
    assert "--origin-to-force-quic-on=kepler.satlab.test:443" in arguments
    names = {a.split("=")[0] for a in arguments}
    blanket = {
        "--ignore-certificate-errors",
        "--allow-insecure-localhost",
        "--test-type",
        "--disable-web-security",
    }
    assert not names & blanket


def test_h1_trusts_no_key_and_uses_no_quic() -> None:
    arguments = job.browser_arguments(target("h1"), Path("/p"), sandbox=True)
    assert "--disable-quic" in arguments
    assert not [a for a in arguments if "certificate" in a or "force-quic" in a]


@pytest.mark.parametrize("protocol", ["h1", "h3"])
def test_nothing_but_the_page_leaves_the_browser(protocol: str) -> None:
    arguments = job.browser_arguments(target(protocol), Path("/p"), sandbox=True)
    assert "--host-resolver-rules=MAP kepler.satlab.test 198.18.4.2,MAP * ~NOTFOUND" in arguments
    expected = {
        "--headless=new",
        "--no-proxy-server",
        "--disable-background-networking",
        "--user-data-dir=/p",
    }
    assert expected <= set(arguments)


def test_p294_a_host_s_name_is_mapped_to_an_address_of_ipv6(tmp_path: Path) -> None:
    page = replace(target(), server=IPv6Address("2001:2:0:1204::2"))
    arguments = job.browser_arguments(page, tmp_path, sandbox=True)
    assert (
        "--host-resolver-rules=MAP kepler.satlab.test [2001:2:0:1204::2],MAP * ~NOTFOUND"
        in arguments
    )


def test_sandbox_is_given_up_for_root_alone() -> None:
    assert "--no-sandbox" in job.browser_arguments(target(), Path("/p"), sandbox=False)
    assert "--no-sandbox" not in job.browser_arguments(target(), Path("/p"), sandbox=True)


def test_descendants_and_their_cpu_time_are_found() -> None:
    grandchild = "subprocess.run([sys.executable, '-c', 'sum(range(3_000_000))'])"
    burn = f"import subprocess, sys; {grandchild}; print(flush=True); input()"
    before = job.cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        assert child.pid in job.descendants(os.getpid())
        assert sum(job.cpu_seconds()) > sum(before)
        child.communicate(b"\n")
    assert child.pid not in job.descendants(os.getpid())


def test_target_is_read_from_the_generated_page(tmp_path: Path) -> None:
    web_target.build(web_target.load("kepler"), tmp_path / "kepler")
    (tmp_path / "spki.txt").write_text(PIN + "\n")
    expected = replace(target("h3"), pki=tmp_path)
    assert job.read_target("kepler", "h3", SERVER, tmp_path, tmp_path) == expected
    assert job.read_target("kepler", "h1", SERVER, tmp_path, Path("/nowhere")).spki == ""
    (tmp_path / "spki.txt").write_text("*\n")
    with pytest.raises(job.JobError, match="base64"):
        job.read_target("kepler", "h3", SERVER, tmp_path, tmp_path)
    with pytest.raises(job.JobError, match="page other"):
        job.read_target("other", "h3", SERVER, tmp_path, tmp_path)


def test_a_job_without_any_load_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["job", "h1", "198.18.4.2", "-n", "0"])
    monkeypatch.setattr(job.signal, "signal", lambda *_: None)
    with pytest.raises(job.JobError, match="no load is asked for") as caught:
        job.main()
    assert caught.value.status == 2


def test_the_descriptor_names_the_arguments_of_the_script() -> None:
    level = load_job(HERE).level
    assert [a.name for a in level.required] == ["protocol", "server_ip"]
    flags = {a.flag: a.name for a in level.optional}
    assert flags == {
        "-p": "page",
        "-n": "runs",
        "-t": "timeout",
        "-o": "observed",
        "-c": "cpu_slowdown",
        "-l": "logs",
        "-b": "browser",
        "-i": "click",
    }
    defaults = vars(job.parser().parse_args(["h1", "198.18.4.2"]))
    assert {a.name: a.default for a in level.optional} == {
        name: defaults[name] for name in flags.values()
    }


def test_the_task_list_installs_the_locked_selenium() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    [locked] = [package["version"] for package in packages if package["name"] == "selenium"]
    assert f"name: selenium=={locked}\n" in (HERE / "install_satlab_page_load.yml").read_text()
