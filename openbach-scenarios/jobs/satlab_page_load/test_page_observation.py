# SPDX-License-Identifier: GPL-3.0-or-later
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collect import PageObservation
from tests import job_programs

job = job_programs.load("satlab_page_load")
page_observation = job.page_observation
URL = "https://kepler.satlab.test/"
ORIGIN_S = 5000.0
TIMING = {
    "requestTime": ORIGIN_S + 0.002,
    "dnsStart": 1.0,
    "dnsEnd": 1.5,
    "connectStart": 1.5,
    "sslStart": 601.5,
    "sslEnd": 1201.5,
    "connectEnd": 1201.5,
    "sendStart": 1202.0,
    "sendEnd": 1202.25,
    "receiveHeadersEnd": 1802.0,
}


def network(name: str, **params: Any) -> dict[str, Any]:
    return {"method": f"Network.{name}", "params": params}


def recorded_trace() -> Any:
    """Return marks of Chromium 156's trace of a load over HTTP/3 without delay; of pictures, a
    digest.
    """
    return json.loads((Path(__file__).parent / "fixtures" / "trace-h3.json").read_text())


def load_events() -> list[dict[str, Any]]:
    """Return what the driver's log has of a document, its style sheet, and the HEAD that follows."""
    head = {"url": URL, "method": "HEAD", "initialPriority": "High", "headers": {}}
    document = {
        "url": URL,
        "method": "GET",
        "initialPriority": "VeryHigh",
        "headers": {"Accept": "text/html"},
    }
    style = {
        "url": f"{URL}css/c0.css",
        "method": "GET",
        "initialPriority": "VeryHigh",
        "headers": {},
    }
    response = {
        "protocol": "h2",
        "status": 200,
        "statusText": "",
        "mimeType": "text/html",
        "connectionId": 11,
        "remoteIPAddress": "198.18.4.2",
        "headers": {"server": "h2o", "set-cookie": "a\nb"},
        "timing": TIMING,
    }
    reused = TIMING | dict.fromkeys(
        ("dnsStart", "dnsEnd", "connectStart", "connectEnd", "sslStart", "sslEnd"), -1
    )
    sent = {
        "sendStart": 5.0,
        "sendEnd": 5.5,
        "receiveHeadersEnd": 605.5,
        "requestTime": ORIGIN_S + 2.4,
    }
    return [
        network(
            "requestWillBeSent",
            requestId="1",
            timestamp=ORIGIN_S + 0.001,
            request=document,
            type="Document",
        ),
        network("responseReceived", requestId="1", response=response),
        network(
            "loadingFinished", requestId="1", timestamp=ORIGIN_S + 1.9, encodedDataLength=17_600
        ),
        network(
            "requestWillBeSent",
            requestId="2",
            timestamp=ORIGIN_S + 2.4,
            request=style,
            type="Stylesheet",
        ),
        network("resourceChangedPriority", requestId="2", newPriority="Low"),
        network("responseReceived", requestId="2", response=response | {"timing": reused | sent}),
        network("loadingFinished", requestId="2", timestamp=ORIGIN_S + 3.1, encodedDataLength=500),
        network(
            "requestWillBeSent", requestId="3", timestamp=ORIGIN_S + 4, request=head, type="Fetch"
        ),
    ]


BODIES = {URL: 17_323, f"{URL}css/c0.css": 190}


def test_phases_are_those_of_the_protocol_and_add_up() -> None:
    document, style = page_observation.requests(load_events(), ORIGIN_S, BODIES)
    phases = {
        name: document[f"{name}_ms"]
        for name in ("blocked", "dns", "connect", "tls", "send", "wait", "receive")
    }
    assert phases == pytest.approx(
        {
            "blocked": 2.0,
            "dns": 0.5,
            "connect": 600,
            "tls": 600,
            "send": 0.25,
            "wait": 599.75,
            "receive": 96.0,
        },
        abs=0.01,
    )
    assert document["end_ms"] - document["start_ms"] == pytest.approx(sum(phases.values()), abs=1.0)
    assert [style[f"{name}_ms"] for name in ("dns", "connect", "tls")] == [None] * 3, (
        "a connection that was there"
    )
    assert style["blocked_ms"] == pytest.approx(5.0)


def test_requests_of_the_page_alone_are_kept_with_their_last_priority() -> None:
    found = page_observation.requests(load_events(), ORIGIN_S, BODIES)
    assert [(one["url"], one["priority"]) for one in found] == [
        (URL, "VeryHigh"),
        (f"{URL}css/c0.css", "Low"),
    ]
    assert (found[0]["protocol"], found[0]["connection"], found[0]["body_bytes"]) == (
        "h2",
        "11",
        17_323,
    )
    assert found[0]["response_headers"] == [
        ["server", "h2o"],
        ["set-cookie", "a"],
        ["set-cookie", "b"],
    ]


def test_a_request_without_an_answer_has_no_phases() -> None:
    events = [
        load_events()[0],
        network("loadingFailed", requestId="1", timestamp=ORIGIN_S + 1, errorText="net::X"),
    ]
    (one,) = page_observation.requests(events, ORIGIN_S, BODIES)
    assert (one["error"], one["wait_ms"], one["status"], one["end_ms"]) == (
        "net::X",
        None,
        0,
        pytest.approx(1000),
    )


def test_times_begin_with_the_navigation_to_the_page() -> None:
    marks = recorded_trace()
    begun = page_observation.origin(marks, URL)
    assert [
        mark["args"]["data"]["documentLoaderURL"] for mark in marks if mark["ts"] == begun * 1e6
    ] == [URL]
    with pytest.raises(page_observation.ObservationError):
        page_observation.origin(marks, "https://elsewhere.test/")


def test_pictures_before_the_page_and_repeated_ones_are_left_out() -> None:
    marks = recorded_trace()
    begun = page_observation.origin(marks, URL)
    shots = page_observation.screenshots(marks, begun, 57.4)
    assert [t for t, _ in shots] == sorted(t for t, _ in shots)
    assert shots[0][0] > 57.4
    assert len(shots) < len(page_observation.screenshots(marks, begun, -1000.0)), (
        "there were some before"
    )
    assert all(one != after for (_, one), (_, after) in pairwise(shots))
    again = {"name": "Screenshot", "ts": (begun + 100) * 1e6, "args": {"snapshot": shots[-1][1]}}
    before = {"name": "Screenshot", "ts": (begun - 1) * 1e6, "args": {"snapshot": "another"}}
    assert page_observation.screenshots([*marks, again, before], begun, 57.4) == shots


# --- visual progress ------------------------------------------------------------------------------


def picture(dark: int, pixels: int = 1000) -> dict[str, Any]:
    """Return a picture of which so many pixels are black, and the others white."""
    return {"bins": [dark, *[0] * 62, pixels - dark] * 3, "jpeg": f"jpeg{dark:03}"}


def test_visual_completeness_is_the_share_of_the_change_that_has_happened() -> None:
    pictures = [picture(0), picture(200), picture(400)]
    found = page_observation.frames([100.0, 1000.0, 2000.0], pictures)
    assert [(f["t_ms"], f["visual_completeness"]) for f in found] == [
        (0, 0),
        (100, 0),
        (1000, 0.5),
        (2000, 1.0),
    ]
    assert [f["jpeg"] for f in found] == [None, "jpeg000", "jpeg200", "jpeg400"]


def test_what_changes_against_the_final_page_does_not_count() -> None:
    start, final = page_observation.white(picture(400)["bins"]), picture(400)["bins"]
    grey = [0] * 30 + [400] + [0] * 32 + [600]
    assert page_observation.completeness(start, grey * 3, final) == 0.5, (
        "white went, black did not come"
    )
    assert page_observation.completeness(start, picture(1000)["bins"], final) == 1.0
    assert page_observation.completeness(start, start, start) == 1.0, (
        "a page that stays white is complete"
    )


def test_at_most_so_many_pictures_are_kept_those_that_change_most() -> None:
    rng = random.Random(3)  # noqa: S311 - shares of an example
    shares = [*sorted(rng.random() for _ in range(60)), 1.0]
    kept = page_observation.chosen(shares, 20)
    assert len(kept) == 20
    assert {0, 60} <= kept
    assert page_observation.chosen([0.0, 0.01, 0.5, 0.51, 1.0], 3) == {0, 2, 4}


def test_what_is_stored_follows_its_schema() -> None:
    found = {
        "long_tasks": [[620.1, 61.0]],
        "requests": page_observation.requests(load_events(), ORIGIN_S, BODIES),
        "frames": page_observation.frames([100.0, 2000.0], [picture(1), picture(400)]),
    }
    target = job.Target("kepler", "h2", "198.18.4.2", {"/": 17_323}, "")
    programs = job.Programs("", "", "Chromium 1", "ChromeDriver 1")
    content = page_observation.document(job.empty_record(target, programs, 0), found)
    PageObservation.model_validate(content)
