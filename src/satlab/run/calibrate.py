# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the emulated link against its plan: by probes before a run, by release errors during it.

Each check has an expected value and limits. A run with a check out of its limits is kept, and
marked as a whole (exit status 4).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collect import calibration, opensand
from collect.calibration import Calibration, CalibrationCheck
from satlab.link.calibration_bounds import Expectation, expectation
from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan
from satlab.run import link_rate_cache
from satlab.run.link_probe import PROBE_DATAGRAM_BYTES, PROBE_OVERLOAD, Probe

IP_UDP_HEADER_BYTES = 28
HOST_LOSS = 1e-4
"""Loss ratio of the host that is allowed on top of the binomial limits, as for its sockets and
interfaces (host_load.py); one packet in any case.
"""
LOSS_DEVIATIONS = 4
LATE_RATIO_LIMIT = 0.01
"""Share of packets that may leave later than satlink's limit on the release error (header of its
metrics) while the scenario runs. The release error on a quiet host is in docs/results.md.
"""


def check(
    name: str,
    unit: str,
    expected: float,
    measured: float | None,
    low: float,
    high: float,
    note: str = "",
) -> CalibrationCheck:
    """Compare a measured value with its limits; a missing value is never ok."""
    is_ok = measured is not None and low <= measured <= high
    return CalibrationCheck(
        name=name,
        unit=unit,
        expected=expected,
        measured=measured,
        low=low,
        high=high,
        ok=is_ok,
        note=note,
    )


def before(
    plan: LinkPlan, probe: Probe, emulator: Emulator = "satlink", *, has_defects: bool = False
) -> list[CalibrationCheck]:
    """Judge the probes before the scenario, without losses by OpenSAND's defects, which come with
    load.
    """
    expected = expectation(plan, emulator)
    rtt = probe.rtt.mean_ms if probe.rtt else None
    note = probe.notes.get("rtt", str(probe.rtt))
    low, high = expected.rtt_low_ms, expected.rtt_high_ms
    checks = [check("rtt_ms", "ms", expected.rtt_ms, rtt, low, high, note)]

    name, rate = "forward_udp_goodput_bps", expected.rate_bps
    sent = f"UDP, {PROBE_DATAGRAM_BYTES}-byte payloads, {PROBE_OVERLOAD:g} x link rate"
    note = probe.notes.get("rate", sent)
    low, high = expected.rate_low_bps, expected.rate_high_bps
    checks.append(check(name, "bit/s", rate, probe.rate_bps, low, high, note))

    if expected.loss and not has_defects:
        checks.append(_loss_check(plan, probe))
    return checks


def repeated(checks: Sequence[CalibrationCheck], spoilt: Sequence[str]) -> list[CalibrationCheck]:
    """Add the results of earlier probes, which a pause of the host spoilt, to the note of the first
    check.
    """
    if not spoilt:
        return list(checks)
    note = f"{checks[0].note}; probed {len(spoilt) + 1} times, before: {'; '.join(spoilt)}"
    return [checks[0].model_copy(update={"note": note}), *checks[1:]]


def _loss_check(plan: LinkPlan, probe: Probe) -> CalibrationCheck:
    """Judge the losses other than queue drops, within four standard deviations of the binomial
    distribution.

    A lost frame loses every packet with a byte in it. With the loss unit `frame`, a packet of n
    bytes in frames of m bytes is lost with probability 1 - (1 - p)^k, with k between n/m (rounded
    up) and one more. Losses in bursts are recorded but not judged: a probe of some seconds sees too
    few bursts.
    """
    p, note = plan.forward.loss_ratio, probe.notes.get("rate", "")
    carried = probe.packets - probe.queue_drops
    if carried <= 0:
        return check("forward_loss_ratio", "", p, None, 0, 0, note or "no packet was seen")
    low, high = p, p
    if plan.forward.loss_unit == "frame":
        spans = math.ceil(
            (PROBE_DATAGRAM_BYTES + IP_UDP_HEADER_BYTES) / plan.forward.frame_payload_bytes
        )
        high = 1 - (1 - p) ** (spans + 1)
    if set(plan.forward.loss_models) - {"bernoulli"}:
        low, high = 0.0, 1.0
    slack = LOSS_DEVIATIONS * math.sqrt(high * (1 - high) / carried) + max(HOST_LOSS, 1 / carried)
    measured = max(0, probe.lost_packets - probe.queue_drops) / carried
    counts = (
        f"{probe.lost_packets} of {probe.packets} lost, {probe.queue_drops} of them by the queue"
    )
    return check(
        "forward_loss_ratio", "", p, measured, max(0.0, low - slack), high + slack, note or counts
    )


def during(
    metrics: Iterable[Mapping[str, Any]], expected: Expectation, since_unix_s: float = 0.0
) -> list[CalibrationCheck]:
    """Judge satlink's release error from `since_unix_s` (Unix time, s; start of the scenario) to
    the end of `metrics`.

    A single late packet is always within tolerance.
    """
    limit, has_end = None, False
    released, late = Counter[str](), Counter[str]()
    worst = dict.fromkeys(expected.watched, 0.0)
    for line in metrics:  # one at a time: the lines of a long run do not fit in memory
        has_end = has_end or line.get("type") == "end"
        if line.get("type") == "header" and limit is None:
            limit = line.get("late_limit_us")
        if line.get("type") == "sample" and line["t_unix_s"] > since_unix_s:
            for direction in expected.watched:
                if (one := line[direction]) is not None:
                    released[direction] += one["out_packets"]
                    late[direction] += one["late_packets"]
                    worst[direction] = max(worst[direction], one["late_max_us"] or 0.0)
    if not has_end:
        note = "the emulator's metrics have no end line: it died or was killed"
        return [check("late_packet_ratio", "", 0, None, 0, LATE_RATIO_LIMIT, note)]
    checks = []
    for direction in expected.watched:
        count, note = released[direction], "no packet crossed"
        if count:
            note = f"later than {limit} us, of {count}; max {worst[direction]:.0f} us"
        most = max(LATE_RATIO_LIMIT, 1 / max(count, 1))
        ratio = late[direction] / max(count, 1)
        checks.append(check(f"late_packet_ratio.{direction}", "", 0, ratio, 0, most, note))
    return checks


def opensand_losses(
    since: Mapping[str, int | None], until: Mapping[str, int | None]
) -> list[CalibrationCheck]:
    """Judge the losses in OpenSAND's logs during the scenario: any loss other than at a full queue
    marks the run. `since` and `until` are counts by cause. Losses during the probe at full rate,
    before the scenario, are only noted.
    """
    checks = []
    for loss in opensand.LOSSES:
        before, after = since.get(loss.cause), until[loss.cause]
        if before is None or after is None:
            lost, note = None, "OpenSAND's logs cannot be read"
        elif after > before:
            lost = after - before
            note = f"{loss.meaning}; {before} more during calibration. Remedy: {loss.remedy}"
        else:
            lost, note = after - before, f"none in its logs; {before} more during calibration"
        checks.append(check(f"opensand_losses.{loss.cause}", loss.unit, 0, lost, 0, 0, note))
    return checks


def deviations(checks: Sequence[CalibrationCheck]) -> list[str]:
    """Return the checks that did not hold, in words."""
    return [calibration.deviation(check) for check in checks if not check.ok]


def write(path: Path, run_id: str, checks: Sequence[CalibrationCheck]) -> bool:
    """Write raw/calibration.json; return whether every check held."""
    found = Calibration(
        schema="satlab/calibration/1",
        run_id=run_id,
        ok=all(c.ok for c in checks),
        checks=list(checks),
    )
    path.write_text(found.model_dump_json(by_alias=True, indent=1) + "\n")
    if not found.ok and (rates := link_rate_cache.of_host()):
        rates.forget()
    return found.ok
