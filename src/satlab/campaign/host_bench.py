# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench host`: how many labs this host bears at once, and how exact its timers are, within
a minute.

The result is kept for campaigns (docs/campaigns.md), with the stamp of the host that it was
measured on.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from satlab.campaign import host_stamp, link_bench
from satlab.common.console import ProgressLog
from satlab.common.files import write_atomically

LIMIT_S = 60.0
"""No further number of labs is tried if all tries together would take longer than this, s."""
MOST_LABS = 32


def measure(log: ProgressLog) -> dict[str, Any]:
    """Calibrate 1, 2, 4 ... labs of 20 Mbit/s at once until one of them is out of calibration, and
    keep the result.

    `labs`: the largest number at which all held; 0 if one lab alone does not. `timer_p99_us`: how
    late a thread of the real-time class wakes up.

    Raises:
        ConfigError, HostError: this host cannot run a lab.
    """
    began, count, tried = time.monotonic(), 1, dict[str, list[list[str]]]()
    digest, facts = host_stamp.stamp()
    wakes = link_bench.wakes()
    while count <= MOST_LABS:
        before = time.monotonic()
        with log.step(f"{count} labs at once") as step:
            tried[str(count)] = link_bench.labs_at_once(count)
            failed = sum(bool(deviations) for deviations in tried[str(count)])
            step.outcome = f"{failed} out of calibration" if failed else "all in calibration"
        now = time.monotonic()
        if failed or now - began + 2 * (now - before) > LIMIT_S:
            break
        count *= 2
    held = [int(number) for number, labs in tried.items() if not any(labs)]
    result = {
        "schema": host_stamp.SCHEMA,
        "stamp": digest,
        "facts": facts,
        "measured_unix_s": round(time.time(), 1),
        "labs": max(held, default=0),
        "tried": tried,
        "timer_p99_us": round(wakes.late.p99_us or 0.0, 1),
        "took_s": round(time.monotonic() - began, 1),
    }
    file = host_stamp.file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(file, json.dumps(result, indent=1) + "\n")
    return result


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result as text."""
    rows = []
    for count, labs in result["tried"].items():
        bad = sorted({name for deviations in labs for name in deviations})
        rows.append(
            f"{count} labs at once:"
            f" {'out of calibration: ' + ', '.join(bad) if bad else 'all in calibration'}"
        )
    rows.append(f"timers: 99 % of wake-ups within {result['timer_p99_us']:g} us")
    rows.append(
        f"campaigns measure {max(1, result['labs'])} labs at once on this host (stamp"
        f" {result['stamp']})"
    )
    return rows
