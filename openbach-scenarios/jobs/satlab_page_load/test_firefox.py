# SPDX-License-Identifier: GPL-3.0-or-later
import json
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import websocket
from selenium.common.exceptions import TimeoutException, WebDriverException

from satlab.lab import web_target
from tests import job_programs

job = job_programs.load("satlab_page_load")
firefox = sys.modules["firefox"]


def target(protocol: str) -> Any:
    server = IPv4Address("198.18.4.2")
    return job.Target("kepler", protocol, server, {"/": 10}, "", Path("/pki"))


class Socket:
    """Firefox's end of a session: it answers each method, but where its answer is None."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asked, self.waiting = answers, list[Any](), list[Any]()

    def send(self, text: str) -> None:
        asked = json.loads(text)
        self.asked.append(asked)
        if (answer := self.answers.get(asked["method"], {})) is not None:
            head = {"type": "success", "id": asked["id"], "result": {}}
            self.waiting += [{"method": "an.event", "params": {}}, head | answer]

    def settimeout(self, _: float) -> None:
        pass

    def recv(self) -> str:
        if not self.waiting:
            raise websocket.WebSocketTimeoutException
        return json.dumps(self.waiting.pop(0))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that opens a BiDi session with a fake Firefox."""

    def make(answers: dict[str, Any]) -> tuple[Any, Socket]:
        tree = {"browsingContext.getTree": {"result": {"contexts": [{"context": "7"}]}}}
        socket = Socket(tree)
        (tmp_path / "WebDriverBiDiServer.json").write_text('{"ws_port": 9}')
        monkeypatch.setattr(websocket, "create_connection", lambda *_, **__: socket)
        driver = firefox.Firefox("true", tmp_path, target("h3"), 33.0)
        socket.answers |= answers
        return driver, socket

    return make


def test_a_profile_knows_the_server_alone_and_forces_the_protocol() -> None:
    quic = firefox.preferences(target("h3"))
    name = "network.http.http3.alt-svc-mapping-for-testing"
    assert quic[name] == "kepler.satlab.test;h3=:443"
    assert quic["network.http.http3.force-use-alt-svc-mapping-for-testing"] is True
    assert quic["network.dns.forceResolve"] == "198.18.4.2"
    assert quic["network.http.speculative-parallel-limit"] == 0
    assert firefox.preferences(target("h2"))["network.http.http3.enable"] is False


@pytest.mark.parametrize(("protocol", "trusts"), [("h1", False), ("h3", True)])
def test_t08_a_profile_trusts_the_run_s_authority_where_there_is_tls(
    protocol: str, trusts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(firefox.subprocess, "run", lambda argv, **_: said.append(argv))
    firefox.write_profile(tmp_path / "profile", target(protocol))
    added = [argv[argv.index("-i") + 1] for argv in said if "-A" in argv]
    assert added == (["/pki/ca.crt"] if trusts else [])
    assert "user_pref(" in (tmp_path / "profile" / "user.js").read_text()


def test_scripts_get_their_arguments_and_their_value_comes_back(start: Any) -> None:
    value = {"result": {"type": "success", "result": {"value": '{"a": [1]}'}}}
    driver, socket = start({"script.evaluate": value})
    assert driver.execute_async_script("arguments[1](arguments[0])", "</script>") == {"a": [1]}
    asked = socket.asked[-1]["params"]
    assert '...["</script>"]' in asked["expression"]
    assert (asked["target"], asked["awaitPromise"]) == ({"context": "7"}, True)


@pytest.mark.parametrize("said", [7, "no JSON", "[" * 100_000])
def test_t16_a_page_that_replaces_json_is_a_failed_load(said: object, start: Any) -> None:
    value = {"result": {"type": "success", "result": {"value": said}}}
    driver, _ = start({"script.evaluate": value})
    with pytest.raises(WebDriverException, match="is no JSON"):
        driver.execute_script("return 1")


def test_errors_and_silence_are_those_of_a_driver(start: Any) -> None:
    refused = {"type": "error", "message": "NS_ERROR_X" + "x" * 1000}
    driver, _ = start({"browsingContext.navigate": refused})
    with pytest.raises(WebDriverException, match="NS_ERROR_X") as caught:
        driver.get("https://kepler.satlab.test/")
    assert len(str(caught.value)) < 400
    silent, _ = start({"browsingContext.navigate": None})
    with pytest.raises(TimeoutException):
        silent.get("https://kepler.satlab.test/")


def test_a_firefox_that_ends_at_once_is_a_failed_load(tmp_path: Path) -> None:
    with pytest.raises(WebDriverException, match="firefox ended with status 0"):
        firefox.Firefox("true", tmp_path, target("h1"), 33.0)


@pytest.mark.parametrize("more", [("-o", "1"), ("-c", "2"), ("-p", "article")])
def test_what_needs_chromium_is_refused(
    more: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in ("kepler", "article"):
        web_target.build(web_target.load(page), tmp_path / page)
    words = ["h1", "198.18.4.2", "--root", str(tmp_path), "-b", "firefox", *more]
    monkeypatch.setattr(sys, "argv", ["job", *words])
    monkeypatch.setattr(job, "adopt_orphans", lambda: None)
    monkeypatch.setattr(job.signal, "signal", lambda *_: None)
    with pytest.raises(job.JobError, match="need chromium") as caught:
        job.main()
    assert caught.value.status == 2
