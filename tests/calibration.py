# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test may excuse of a calibration: a busy host.

Rate, loss and RTT must hold; the host loses no packet.
"""

import json
from collections.abc import Callable
from pathlib import Path

EXCUSED = (
    "late_packet_ratio",
    "browser_wait_ratio",
    "browser_host_ratio",
    "cpu_wait_ratio",
    "cpu_others_ratio",
    "cpu_steal_ratio",
    "memory_wait_ratio",
)
ATTEMPTS = 2


def faults(folder: Path) -> list[str]:
    """Return the checks of rate, loss and RTT that do not hold in a run's folder, or in a sample's
    of `satlab check`.

    A check that is not there does not hold; losses over OpenSAND cannot be judged. Fails the test
    with the reason of a run that ended before its calibration.
    """
    paths = (folder / "raw" / "calibration.json", folder / "calibration.json")
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise AssertionError(f"no calibration in {folder}: {_reason(folder)}")
    checks = {check["name"]: check for check in json.loads(path.read_text())["checks"]}
    plan = folder / "plan.json"
    is_opensand = plan.exists() and json.loads(plan.read_text())["emulator"] == "opensand"
    needed = {"rtt_ms", "forward_udp_goodput_bps"} | (
        set() if is_opensand else {"forward_loss_ratio"}
    )
    missing = [f"{name} is missing" for name in sorted(needed - checks.keys())]
    return missing + [
        f"{name} {check['measured']}, not {check['low']} to {check['high']}: {check['note']}"
        for name, check in checks.items()
        if not check["ok"] and not name.startswith(EXCUSED)
    ]


def _reason(folder: Path) -> str:
    """Return why a run ended as it did."""
    manifest = folder / "manifest.json"
    return str(json.loads(manifest.read_text())["reason"]) if manifest.exists() else "no manifest"


def calibrated(run: Callable[[], Path]) -> Path:
    """Run something that leaves a calibration, once more if its link was not as planned; return the
    folder.

    Fails the test when the link was not as planned the second time, either.
    """
    found: list[list[str]] = []
    for _ in range(ATTEMPTS):
        folder = run()
        found.append(faults(folder))
        if not found[-1]:
            return folder
    raise AssertionError(f"the link is not as planned: {found}")
