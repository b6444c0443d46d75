# SPDX-License-Identifier: GPL-3.0-or-later
"""`/metrics`: what it counts, who may read it, and that the dashboard asks for what there is."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.link import prometheus
from satlab.service import listen
from satlab.service.api import request_guard
from satlab.service.api.conftest import HOST, Clock, FakeHelper, start
from satlab.service.api.dependencies import Context
from satlab.service.api.settings import Settings
from satlab.service.app import create_app

TOKEN = "0123456789abcdef" * 2
DASHBOARD = paths.ROOT / "docs" / "dashboards" / "grafana-prometheus.json"
LAUNCH = "/project/satlab/scenario/ping/scenario_instance/"
LINE = re.compile(r'[a-z][a-z0-9_]+(\{[a-z_]+="[^"\\]*"(,[a-z_]+="[^"\\]*")*\})? -?[0-9.e+-]+')


def sample(of: float = 1.0, modcod: str = "4") -> dict[str, object]:
    """A sample that has every figure of a direction, of terminals and of FIFOs."""
    fifo = {"fifo": "EF", **dict.fromkeys(prometheus.OF_FIFO, of)}
    figures = {
        **dict.fromkeys(prometheus.HELP, of),
        "frames_by_modcod": {modcod: of},
        "fifos": [fifo],
    }
    figures["terminals"] = [
        {"terminal": 2, **dict.fromkeys(prometheus.OF_TERMINAL, of), "fifos": [fifo]}
    ]
    return {"type": "sample", "t_unix_s": 1.8e9, "forward": figures, "return": None}


def write(path: Path, *samples: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in ({"type": "header"}, *samples))


def value(text: str, series: str) -> float:
    [found] = [
        line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == series
    ]
    return float(found)


def types(text: str) -> dict[str, str]:
    return {
        line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")
    }


def metrics_of(context: Context) -> Path:
    running = next(each for each in context.queue.live() if each.run_id)
    return context.settings.runs / str(running.run_id) / "raw" / "link.jsonl"


@pytest.fixture
def link_metrics(runner: TestClient, context: Context) -> Path:
    """Start a run; return the file of its link's metrics."""
    runner.post(LAUNCH, json={"arguments": {"count": "3"}})
    context.queue.step()
    return metrics_of(context)


@pytest.mark.promise("P63")
def test_p366_runs_are_counted_by_outcome_with_their_time(
    runner: TestClient, context: Context, helper: FakeHelper, clock: Clock
) -> None:
    numbers = [
        runner.post(LAUNCH, json={"arguments": {"count": "3"}}).json()["scenario_instance_id"]
        for _ in range(4)
    ]
    context.queue.stop(numbers[3])
    for number, status in zip(numbers[:2], (0, 1), strict=True):
        run_id = start(context, number)
        clock.now += 30
        helper.end(run_id, status)
        context.queue.step()
    text = runner.get("/metrics").text
    assert value(text, "satlab_serve_runs_launched_total") == 4
    by_outcome = {
        each: value(text, f'satlab_serve_runs_total{{outcome="{each}"}}')
        for each in ("ok", "failed", "stopped")
    }
    assert by_outcome == {"ok": 1, "failed": 1, "stopped": 1}
    assert value(text, 'satlab_serve_run_seconds_total{outcome="failed"}') == 30
    assert (value(text, "satlab_serve_queue_length"), value(text, "satlab_serve_running")) == (0, 1)


def test_p366_refused_logins_and_answers_are_counted(
    viewer: TestClient, anonymous: TestClient
) -> None:
    for _ in range(6):
        anonymous.post("/login/", json={"login": "nobody", "password": "x"})
    before = viewer.get("/metrics").text
    assert value(before, 'satlab_serve_logins_refused_total{reason="wrong"}') == 5
    assert value(before, 'satlab_serve_logins_refused_total{reason="limited"}') == 1
    assert viewer.get("/nothing/").status_code == 404
    assert viewer.get("/version/", headers={"host": "evil.example"}).status_code == 421
    after = viewer.get("/metrics").text
    count = 'satlab_serve_requests_total{code="4xx"}'
    assert value(after, count) == value(before, count) + 2


def test_p366_an_exception_is_an_answer_with_500(viewer: TestClient, context: Context) -> None:
    context.store.write("DROP TABLE marks")
    assert viewer.get("/ui/runs").status_code >= 500
    text = viewer.get("/metrics").text
    assert value(text, 'satlab_serve_requests_total{code="5xx"}') == 1


@pytest.mark.promise("P63")
def test_p367_counts_of_the_running_lab_only_grow(runner: TestClient, context: Context) -> None:
    runner.post(LAUNCH, json={"arguments": {"count": "3"}})
    assert "satlab_link" not in runner.get("/metrics").text
    context.queue.step()
    assert "satlab_link" not in runner.get("/metrics").text  # its lab is not up yet
    write(metrics_of(context), sample(5), sample(7))
    first = runner.get("/metrics").text
    assert value(first, 'satlab_link_out_bytes_total{lab="serve",direction="forward"}') == 12
    assert value(first, 'satlab_link_queue_bytes{lab="serve",direction="forward"}') == 7
    of_fifo = 'satlab_link_fifo_sent_packets_total{lab="serve",direction="forward",terminal="2",fifo="EF"}'
    assert value(first, of_fifo) == 12
    write(metrics_of(context), sample(3, modcod="11"))
    second = runner.get("/metrics").text
    assert value(second, 'satlab_link_out_bytes_total{lab="serve",direction="forward"}') == 15
    by_modcod = 'satlab_link_modcod_frames_total{lab="serve",direction="forward",modcod="%s"}'
    assert (value(second, by_modcod % 4), value(second, by_modcod % 11)) == (12, 3)
    counters = {name for name, kind in types(second).items() if kind == "counter"}
    assert counters == {name for name in types(second) if name.endswith("_total")}


def test_p367_the_next_lab_starts_at_0_and_none_shows_nothing(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    frames = 'satlab_link_frames_total{lab="serve",direction="forward"}'
    for _ in range(2):
        runner.post(LAUNCH, json={"arguments": {"count": "3"}})
    context.queue.step()
    earlier = metrics_of(context)
    write(earlier, sample(100))
    assert value(runner.get("/metrics").text, frames) == 100
    helper.end(earlier.parents[1].name, 0)
    context.queue.step()
    assert "satlab_link" not in runner.get("/metrics").text
    write(metrics_of(context), sample(1))
    assert value(runner.get("/metrics").text, frames) == 1


def test_p367_the_text_follows_the_format(runner: TestClient, link_metrics: Path) -> None:
    write(link_metrics, sample())
    answer = runner.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert not [line for line in lines if not line.startswith("# ") and not LINE.fullmatch(line)]
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("# ")]
    assert len(series) == len(set(series))
    names = list(types(answer.text))
    assert {name.partition("{")[0] for name in series} == set(names)
    assert answer.text.count("# HELP") == len(names)


def test_p368_the_dashboard_asks_for_what_there_is(runner: TestClient, link_metrics: Path) -> None:
    write(link_metrics, sample())
    text = runner.get("/metrics").text
    lines = text.splitlines()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len(panels) >= 10
    for panel in panels:
        for target in panel["targets"]:
            names = re.findall(r"satlab_\w+", target["expr"])
            assert names and set(names) <= types(text).keys(), target["expr"]
            rated = re.findall(r"rate\((satlab_\w+)\[", target["expr"])
            assert {types(text)[name] for name in rated} <= {"counter"}
            assert {types(text)[name] for name in set(names) - set(rated)} <= {"gauge"}
            labels = set(
                re.findall(
                    r'(\w+)="', "\n".join(line for line in lines if line.startswith(tuple(names)))
                )
            )
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels


# --- who may read it ------------------------------------------------------------------------------


@pytest.fixture
def with_token(app: FastAPI, settings: Settings, tmp_path: Path) -> TestClient:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    opened = replace(settings, metrics_token_sha256=listen.token_digest(file))
    other = create_app(app.state.context.store, FakeHelper(), opened, runs_queue=False)
    return TestClient(other, base_url=f"http://{HOST}", raise_server_exceptions=False)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_t01_metrics_are_for_accounts_and_the_bearer_of_the_token(
    anonymous: TestClient, viewer: TestClient, with_token: TestClient
) -> None:
    assert viewer.get("/metrics").status_code == 200
    assert anonymous.get("/metrics").status_code == 403
    assert (
        anonymous.get("/metrics", headers=bearer(TOKEN)).status_code == 401
    )  # the service has no token
    assert with_token.get("/metrics", headers=bearer(TOKEN)).status_code == 200
    for wrong in ("", TOKEN[:-1], TOKEN + "0", "é", "null", "None"):
        answer = with_token.get(
            "/metrics", headers={b"authorization": f"Bearer {wrong}".encode("latin-1")}
        )
        assert answer.status_code == 401 and "satlab_serve" not in answer.text
    assert (
        with_token.get("/metrics", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    )
    assert with_token.get(f"/metrics?token={TOKEN}").status_code == 403
    assert (
        with_token.get("/metrics", headers=bearer(TOKEN) | {"host": "evil.example"}).status_code
        == 421
    )
    text = with_token.get("/metrics", headers=bearer(TOKEN)).text
    assert value(text, 'satlab_serve_logins_refused_total{reason="token"}') == 7


@pytest.mark.parametrize(
    "path",
    ["/project/satlab/", "/openapi.json", "/scenario_instance/1/", "/login/users/", "/ui/runs"],
)
def test_t01_the_token_opens_metrics_alone(with_token: TestClient, path: str) -> None:
    for headers in (bearer(TOKEN), {"cookie": f"{request_guard.COOKIE}={TOKEN}"}):
        assert with_token.get(path, headers=headers, follow_redirects=False).status_code in (
            303,
            403,
            404,
        )


def test_t01_metrics_name_no_account_project_scenario_or_run(
    runner: TestClient, context: Context, link_metrics: Path
) -> None:
    write(link_metrics, sample())
    text = runner.get("/metrics").text
    run_id = link_metrics.parents[1].name
    assert not [
        word
        for word in ("ping", "runner", "admin", run_id, str(context.settings.state))
        if word in text
    ]


def test_t01_a_token_is_private_and_long(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="No such file"):
        listen.token_digest(file)
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read") as caught:
        listen.token_digest(file)
    assert "chmod 600" in caught.value.hint
    file.chmod(0o600)
    for bad in ("", "short", "a" * 31, "a" * 257, "a b" * 20, "\x00" * 40, f"{TOKEN}\n{TOKEN}"):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="a token has 32 to 256"):
            listen.token_digest(file)
    assert listen.token_digest(None) is None
