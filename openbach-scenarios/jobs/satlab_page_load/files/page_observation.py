# SPDX-License-Identifier: GPL-3.0-or-later
"""What the browser records of an observed page load: its requests with their phases, and pictures
of the page.

Requests come from events of Chromium's DevTools protocol (domain Network), pictures from its trace.
Both use the same clock. Visual completeness is defined as in WebPageTest: the share of the change
of the colour histogram, from the empty to the final page, that has happened (P. Meenan, "Speed Index",
WebPageTest's documentation, 2012).
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import websocket
from page_scripts import LONG_TASKS, MEASURE
from selenium.webdriver import Chrome, ChromeOptions

CATEGORIES = ("disabled-by-default-devtools.screenshot", "blink.user_timing")
"""Of the trace: pictures, and the start of the navigation."""
TRACE_DEADLINE_S = 20.0
MOST_PICTURES = 20
WIDTH_PX = 160
BINS = 64
Event = Mapping[str, Any]


class ObservationError(Exception):
    """Why a load that ended was not observed."""


def switch_on(options: ChromeOptions) -> None:
    """Let the driver keep the events of the network."""
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    options.add_experimental_option(
        "perfLoggingPrefs", {"enableNetwork": True, "enablePage": False}
    )


class Trace:
    """A trace of the page.

    The driver has only traces of the whole browser, which have no pictures.
    """

    def __init__(self, driver: Chrome) -> None:
        """Start it. Raises ObservationError."""
        address = driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
        url = f"ws://{address}/devtools/page/{driver.current_window_handle}"
        with _failing_alike():
            self._socket = websocket.create_connection(
                url, timeout=TRACE_DEADLINE_S, suppress_origin=True
            )
            config = {"includedCategories": CATEGORIES, "excludedCategories": ["*"]}
            self._ask(1, "Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
            self._until(lambda message: message.get("id") == 1)

    def end(self) -> list[Event]:
        """End it, and return its events. Raises ObservationError."""
        with _failing_alike():
            self._ask(2, "Tracing.end", {})
            messages = self._until(
                lambda message: message.get("method") == "Tracing.tracingComplete"
            )
            self._socket.close()
        parts = [
            one["params"]["value"]
            for one in messages
            if one.get("method") == "Tracing.dataCollected"
        ]
        return [event for part in parts for event in part]

    def _ask(self, number: int, method: str, params: Event) -> None:
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))

    def _until(self, is_last: Callable[[Event], bool]) -> list[Event]:
        messages: list[Event] = []
        while not messages or not is_last(messages[-1]):
            messages.append(json.loads(self._socket.recv()))
            if "error" in messages[-1]:
                raise ObservationError(
                    f"the browser's trace: {messages[-1]['error'].get('message')}"
                )
        return messages


@contextlib.contextmanager
def _failing_alike() -> Iterator[None]:
    try:
        yield
    except (websocket.WebSocketException, OSError, ValueError) as error:
        raise ObservationError(f"the browser's trace: {error!r}") from error


def nothing() -> dict[str, Any]:
    """Return what is known of a load that could not be observed."""
    return {"long_tasks": [], "requests": [], "frames": []}


def document(record: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored (schema satlab/page-observation/1) of a load's record and of what was
    found in it.
    """
    kept = (
        "url",
        "protocol",
        "page",
        "load_index",
        "status",
        "reason",
        "start_unix_s",
        "browser",
        "server",
        "response_start_ms",
        "first_contentful_paint_ms",
        "largest_contentful_paint_ms",
        "page_load_time_ms",
        "cpu_curve",
    )
    return {"schema": "satlab/page-observation/1", **{name: record[name] for name in kept}, **found}


def read(driver: Chrome, trace: Trace, url: str, timeline: Mapping[str, Any]) -> dict[str, Any]:
    """Read what was recorded of the load of `url`, of which `timeline` is the page's own account.

    The page is left.

    Raises:
        ObservationError, WebDriverException: it cannot be read.
    """
    tasks = driver.execute_async_script(LONG_TASKS)
    events = events_of(driver)
    complete(timeline, events)
    marks = trace.end()
    origin_s = origin(marks, url)
    shots = screenshots(marks, origin_s, float(timeline["response_start_ms"]))
    driver.get("about:blank")
    measured = driver.execute_async_script(MEASURE, [data for _, data in shots], WIDTH_PX)
    if isinstance(measured, str):
        raise ObservationError(f"pictures of the page: {measured}")
    return {
        "long_tasks": [[round(start, 1), round(length, 1)] for start, length in tasks],
        "requests": requests(
            events,
            origin_s,
            {one["name"]: one["encoded_body_bytes"] for one in timeline["resources"]},
        ),
        "frames": frames([t for t, _ in shots], measured),
    }


def events_of(driver: Chrome) -> list[Event]:
    """Return the events of the network that the driver has kept since the last call."""
    return [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]  # type: ignore[no-untyped-call]


def complete(timeline: Mapping[str, Any], events: Iterable[Event]) -> None:
    """Fill in what a page may not know of its objects from other domains: protocol, status, bytes.

    Resource Timing hides them without the header Timing-Allow-Origin, which not every server can
    send.
    """
    found: dict[str, dict[str, Any]] = {}
    urls: dict[str, str] = {}
    for event in events:
        what, params = event["method"].removeprefix("Network."), event["params"]
        number = str(params.get("requestId", ""))
        if what == "requestWillBeSent" and params["request"]["method"] == "GET":
            urls[number] = params["request"]["url"].partition("#")[0]
            found[urls[number]] = {"next_hop_protocol": "", "response_status": 0} | _NO_BYTES
        elif number in urls:
            _add(found[urls[number]], what, params)
    for resource in timeline["resources"]:
        if not resource["next_hop_protocol"] and not resource["response_status"]:
            resource.update(found.get(resource["name"], {}))


_NO_BYTES = {"encoded_body_bytes": 0, "transfer_bytes": 0}


def _add(known: dict[str, Any], what: str, params: Event) -> None:
    if what == "responseReceived":
        response = params["response"]
        known.update(
            next_hop_protocol=response.get("protocol", ""),
            response_status=int(response.get("status", 0)),
        )
    elif (
        what == "dataReceived"
    ):  # decoded bytes: those of the body, since no server of the lab compresses
        known["encoded_body_bytes"] += int(params["dataLength"])
    elif what == "loadingFinished":
        known["transfer_bytes"] = int(params["encodedDataLength"])


def origin(marks: Iterable[Event], url: str) -> float:
    """Return the start of the navigation to `url` in s on the clock of events and trace.

    Raises ObservationError.
    """
    for mark in marks:
        if mark.get("name") == "navigationStart":
            about = mark.get("args", {}).get("data", {})
            if about.get("isLoadingMainFrame") and about.get("documentLoaderURL") == url:
                return float(mark["ts"]) / 1e6
    raise ObservationError("the browser's trace has no start of the navigation")


# --- requests -------------------------------------------------------------------------------------


def requests(
    events: Iterable[Event], origin_s: float, body_bytes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return the requests of the page in the order of their starts: those whose bodies its timeline
    has.

    `body_bytes`: by URL. Times in ms since the start of the navigation; a phase that a request does
    not have is None.
    """
    found: dict[str, dict[str, Event]] = {}
    for event in events:
        what, params = event["method"].removeprefix("Network."), event["params"]
        if what in _EVENTS and "requestId" in params:
            found.setdefault(params["requestId"], {})[what] = params
    whole = [one for one in found.values() if "requestWillBeSent" in one]
    of_page = [one for one in whole if one["requestWillBeSent"]["request"]["method"] == "GET"]
    made = [_request(one, origin_s, body_bytes) for one in of_page]
    return sorted(
        (one for one in made if one["url"] in body_bytes),
        key=lambda one: (one["start_ms"], one["url"]),
    )


_EVENTS = (
    "requestWillBeSent",
    "resourceChangedPriority",
    "responseReceived",
    "loadingFinished",
    "loadingFailed",
)


def _request(
    events: Mapping[str, Event], origin_s: float, body_bytes: Mapping[str, int]
) -> dict[str, Any]:
    sent = events["requestWillBeSent"]
    response: Event = events.get("responseReceived", {}).get("response", {})
    ended = events.get("loadingFinished") or events.get("loadingFailed") or {}
    priority = events.get("resourceChangedPriority", {}).get(
        "newPriority", sent["request"]["initialPriority"]
    )
    start_s, end_s = float(sent["timestamp"]), ended.get("timestamp")
    url = sent["request"]["url"].partition("#")[0]
    return {
        "url": url,
        "type": sent.get("type", "Other"),
        "priority": priority,
        "protocol": response.get("protocol", ""),
        "status": int(response.get("status", 0)),
        "status_text": response.get("statusText", ""),
        "mime_type": response.get("mimeType", ""),
        "connection": str(response.get("connectionId", "")),
        "address": response.get("remoteIPAddress", ""),
        "error": events.get("loadingFailed", {}).get("errorText", ""),
        "start_ms": _ms(start_s - origin_s),
        "end_ms": None if end_s is None else _ms(end_s - origin_s),
        **phases(response.get("timing"), start_s, end_s),
        "body_bytes": body_bytes.get(url),
        "transfer_bytes": int(ended.get("encodedDataLength", 0)),
        "request_headers": _headers(sent["request"].get("headers", {})),
        "response_headers": _headers(response.get("headers", {})),
    }


def phases(timing: Event | None, start_s: float, end_s: float | None) -> dict[str, float | None]:
    """Return the phases of a request in ms, as HAR 1.2 has them, but `connect` without `tls`.

    `timing`: ResourceTiming of the DevTools protocol, ms since its `requestTime` (s), -1 for what
    did not happen.
    """
    if timing is None:
        return dict.fromkeys(_PHASES)
    before_ms = (float(timing["requestTime"]) - start_s) * 1000
    # The browser has no earlier time for the end of TCP's handshake than the start of TLS's.
    tcp_end = timing["sslStart"] if timing["sslStart"] >= 0 else timing["connectEnd"]
    begun = [
        timing[name] for name in ("dnsStart", "connectStart", "sendStart") if timing[name] >= 0
    ]
    received = timing["receiveHeadersEnd"]
    return {
        "blocked_ms": round(max(0.0, before_ms + min(begun, default=0.0)), 3),
        "dns_ms": _between(timing["dnsStart"], timing["dnsEnd"]),
        "connect_ms": _between(timing["connectStart"], tcp_end),
        "tls_ms": _between(timing["sslStart"], timing["sslEnd"]),
        "send_ms": _between(timing["sendStart"], timing["sendEnd"]),
        "wait_ms": _between(timing["sendEnd"], received),
        "receive_ms": None
        if end_s is None
        else _between(received, (end_s - float(timing["requestTime"])) * 1000),
    }


_PHASES = ("blocked_ms", "dns_ms", "connect_ms", "tls_ms", "send_ms", "wait_ms", "receive_ms")


def _between(start: float, end: float) -> float | None:
    return None if start < 0 or end < 0 else round(max(0.0, end - start), 3)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _headers(headers: Mapping[str, Any]) -> list[list[str]]:
    return [[name, line] for name, value in headers.items() for line in str(value).split("\n")]


# --- pictures -------------------------------------------------------------------------------------


def screenshots(
    marks: Iterable[Event], origin_s: float, response_start_ms: float
) -> list[tuple[float, str]]:
    """Return (ms since the start of the navigation, picture in base64) of the trace, without
    repeated pictures.

    Until the first byte of the page the browser shows what was there before.
    """
    shots = [mark for mark in marks if mark.get("name") == "Screenshot"]
    found = [
        (round(float(shot["ts"]) / 1e3 - origin_s * 1e3, 1), str(shot["args"]["snapshot"]))
        for shot in shots
    ]
    found = sorted(
        (shot for shot in found if shot[0] >= response_start_ms), key=lambda shot: shot[0]
    )
    return [
        shot for number, shot in enumerate(found) if number == 0 or shot[1] != found[number - 1][1]
    ]


def frames(
    times_ms: Sequence[float], measured: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the visual progress from the white page at 0 on; at most MOST_PICTURES of its frames
    have a picture.
    """
    first = {"t_ms": 0.0, "visual_completeness": 0.0, "jpeg": None}
    if not measured:
        return [first]
    final = measured[-1]["bins"]
    shares = [completeness(white(final), one["bins"], final) for one in measured]
    kept = chosen(shares, MOST_PICTURES)
    return [
        first,
        *(
            {
                "t_ms": t,
                "visual_completeness": round(share, 4),
                "jpeg": one["jpeg"] if number in kept else None,
            }
            for number, (t, share, one) in enumerate(zip(times_ms, shares, measured, strict=True))
        ),
    ]


def white(like: Sequence[int]) -> list[int]:
    """Return the histogram of a white page with as many pixels as that of another page."""
    pixels = sum(like[:BINS])
    return ([0] * (BINS - 1) + [pixels]) * 3


def completeness(start: Sequence[int], now: Sequence[int], final: Sequence[int]) -> float:
    """Return how much of the change from the first to the final histogram has happened, 0 to 1."""
    change = sum(abs(f - s) for s, f in zip(start, final, strict=True))
    done = sum(
        min(abs(n - s), abs(f - s))
        for s, n, f in zip(start, now, final, strict=True)
        if (n - s) * (f - s) > 0
    )
    return done / change if change else 1.0


def chosen(shares: Sequence[float], most: int) -> set[int]:
    """Return the numbers of the frames whose pictures are kept: those that change most, the first
    and the last.
    """
    kept = list(range(len(shares)))
    while len(kept) > most:
        changes = [abs(shares[b] - shares[a]) for a, b in pairwise(kept[:-1])]
        del kept[1 + min(range(len(changes)), key=changes.__getitem__)]
    return set(kept)
