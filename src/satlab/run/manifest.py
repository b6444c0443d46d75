# SPDX-License-Identifier: GPL-3.0-or-later
"""The origin of a run: versions, hashes, seed, host (`collect.Manifest`).

Written before a run and after.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from collect import Manifest
from satlab import __version__
from satlab.common.files import write_atomically

MEASURING_PACKAGES = (
    "iperf3",
    "iputils-ping",
    "curl",
    "chromium",
    "chromium-driver",
    "h2o",
    "nginx",
    "ngtcp2-server",
    "haproxy",
    "pepsal",
    "nftables",
)


def write(about: Manifest, path: Path) -> None:
    write_atomically(path, json.dumps(about.model_dump(by_alias=True), indent=1) + "\n")


def sha256(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scenario_sha256(path: Path) -> str:
    """Return the hex digest of a scenario, whatever its spaces and the values of its constants are:
    these are in the manifest.
    """
    document = json.loads(path.read_bytes())
    if isinstance(document.get("constants"), dict):
        document["constants"] = sorted(document["constants"])
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def host() -> dict[str, Any]:
    """Describe the host as far as figures depend on it, without its name."""
    memory = _value("/proc/meminfo", "MemTotal", ":")
    return {
        "kernel": platform.release(),
        "system": _value("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "cpu": _value("/proc/cpuinfo", "model name", ":"),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory.split()[0]) * 1024 if memory else None,
        "load_1min": os.getloadavg()[0],
    }


def versions(satlink: Path, opensand: Path | None = None) -> dict[str, str]:
    """Return the versions of the emulators and of the installed Debian packages that measure."""
    known = {
        "satlab": __version__,
        "python": platform.python_version(),
        "satlink": _output([str(satlink), "--version"]).removeprefix("satlink "),
        "opensand": _output([str(opensand), "-V"]) if opensand else "",
    }
    if shutil.which("dpkg-query"):
        listing = _output(
            ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n", *MEASURING_PACKAGES]
        )
        known |= dict(line.split(" ", 1) for line in listing.splitlines() if line.count(" ") == 1)
    return {name: version for name, version in known.items() if version}


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip()


def _value(path: str, name: str, mark: str) -> str:
    """Return what stands behind the first `name` and `mark` in a file; "" without such a line."""
    for line in Path(path).read_text().splitlines():
        found, _, value = line.partition(mark)
        if found.strip() == name:
            return value.strip()
    return ""
