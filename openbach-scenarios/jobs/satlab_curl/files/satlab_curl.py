#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: measure connection time and time to first byte of HTTP/1.1 requests with curl."""

import argparse
import json
import re
import subprocess
import syslog
import threading
import time
from typing import Any

import collect_agent
from jobkit import (
    argument_parser,
    real,
    run_job,
    start_stoppable,
    stop_event,
    store_json,
    whole,
)

WRITE_OUT = "%{json}"
TIMED_OUT = 28
"""curl's exit status after --max-time."""
MARGIN_S = 10.0

Request = dict[str, Any]


def request(url: str, timeout_s: float, stop: threading.Event) -> Request:
    """Make one request over a new connection; a failed one has no times, one cut off has those that
    were reached.
    """
    argv = ["curl", "--disable", "--noproxy", "*", "--http1.1", "--silent", "--show-error"]
    argv += ["--output", "/dev/null", "--write-out", WRITE_OUT]
    argv += ["--globoff", "--max-time", f"{timeout_s:g}", url]
    started = time.time()
    pipe = subprocess.PIPE
    try:
        with start_stoppable(argv, stop, stdout=pipe, stderr=pipe, text=True) as curl:
            try:
                output, log = curl.communicate(timeout=timeout_s + MARGIN_S)
            except subprocess.TimeoutExpired as error:
                curl.kill()
                return _result(started, "failed", str(error), {})
    except OSError as error:
        return _result(started, "failed", str(error), {})
    return judge(started, curl.returncode, output, log)


def judge(started: float, code: int, output: str, log: str) -> Request:
    """Return the request by curl's output: ok, censored, or failed with its reason."""
    try:
        timing = json.loads(output)
    except ValueError:
        return _result(started, "failed", log.strip() or f"curl ended with status {code}", {})
    if code == TIMED_OUT:
        return _result(started, "censored", log.strip(), timing)
    if code or timing["response_code"] != 200:
        return _result(started, "failed", log.strip() or f"status {timing['response_code']}", {})
    return _result(started, "ok", "", timing)


def _result(started: float, status: str, reason: str, timing: Request) -> Request:
    times = {
        "connect_ms": "time_connect",
        "ttfb_ms": "time_starttransfer",
        "total_ms": "time_total",
    }
    return {
        "start_unix_s": started,
        "status": status,
        "reason": reason,
        # 0 means: not reached. The total of a request that was cut off is its deadline.
        **{
            name: round(timing[key] * 1000, 3) if timing.get(key) else None
            for name, key in times.items()
        },
        "bytes": timing.get("size_download", 0),
    }


def publish(url: str, requests: list[Request]) -> bool:
    """Send and store what was measured; return whether all requests succeeded and were stored."""
    for one in requests:
        times = {key: one[key] for key in ("connect_ms", "ttfb_ms") if one["status"] == "ok"}
        if times:
            collect_agent.send_stat(round(one["start_unix_s"] * 1000), **times)
        else:
            collect_agent.send_log(syslog.LOG_ERR, f"{one['status']}: {one['reason']}")
    document = {"schema": "satlab/curl/1", "url": url, "requests": requests}
    stored = store_json("curl_json", document) == "OK"
    return stored and all(one["status"] == "ok" for one in requests)


def _url(text: str) -> str:
    """Accept a URL with an address; one of IPv6 that is not in brackets, as scenarios put it there,
    gets them.
    """
    found = re.fullmatch(
        r"http://([0-9.]+|\[[0-9a-f:]+\]|([0-9a-f]*:[0-9a-f:]*))(:\d{1,5})?(/[A-Za-z0-9_./-]*)",
        text,
    )
    if not found or (found[2] and found[2].count(":") < 2):
        raise argparse.ArgumentTypeError("must be http://ADDRESS/PATH")
    return f"http://[{found[2]}]{found[4]}" if found[2] else text


def main() -> int:
    """Run the job."""
    parser = argument_parser(__doc__)
    parser.add_argument("url", type=_url)
    parser.add_argument("-n", "--requests", type=whole(1, 9999), default=1)
    parser.add_argument("-t", "--timeout", type=real(1, 3600), default=33.0)
    stop, options = stop_event(), parser.parse_args()
    requests: list[Request] = []
    while len(requests) < options.requests and not stop.is_set():
        made = request(options.url, options.timeout, stop)
        requests += [] if stop.is_set() else [made]
    is_complete = publish(options.url, requests) and not stop.is_set()
    return 0 if is_complete else 1


if __name__ == "__main__":
    run_job(__file__, main)
