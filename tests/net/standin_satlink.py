# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for satlink: `plan` answers a fixed plan, `run` joins the TUNs without delay.

Environment: STANDIN_MODE = pass (default), mute (never ready), die (ends at once with status 3),
bad-profile.
"""

import fcntl
import json
import os
import select
import signal
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyroute2 import netns

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
BUFFER_BYTES = 65536
PAIRS = {"st": "gw", "gw": "st", "near": "far", "far": "near"}


def link_plan(config: dict) -> dict:  # type: ignore[type-arg]
    """Return a plan that the schema allows; its figures mean nothing."""
    both = {
        "symbol_rate_baud": 1e6,
        "modcod_id": 7,
        "modcod": "QPSK 3/4",
        "es_n0_db": 10.0,
        "rate_bps": 1e6,
    }
    both |= {"one_way_delay_ms": 0.0, "queue_bytes": 10**6, "bdp_bytes": 10**6, "loss_ratio": 0.0}
    both |= {"loss_unit": "packet", "udp_goodput_bps": 1e6, "tcp_goodput_bps": 1e6}
    return {
        "schema": "satlab/link-plan/1",
        "version": "stand-in",
        "profile": config["profile"],
        "profile_sha256": "0" * 64,
        "timing": config["timing"],
        "seed": config["seed"],
        "forward": both | {"frame_ns": 1, "frame_payload_bytes": 1},
        "return": both | {"superframe_ns": 1, "slots_per_superframe": 1, "burst_payload_bytes": 1},
        "terrestrial_one_way_delay_ms": config["terrestrial_one_way_delay_ms"],
        "rtt_ms": {"configured": 0.0, "min": 0.0, "mean": 0.0, "max": 0.0},
        "advice": [],
    }


def attach(end: dict[str, str]) -> int:
    """Open a TUN of another namespace."""

    def enter() -> int:
        netns.setns(end["netns"], flags=0)
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            device, TUNSETIFF, struct.pack("16sH22x", end["tun"].encode(), IFF_TUN | IFF_NO_PI)
        )
        return device

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(enter).result()


def carry(config: dict) -> None:  # type: ignore[type-arg]
    """Copy packets from each TUN to its pair until SIGTERM."""
    tuns = {name: attach(config[name]) for name in PAIRS}
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda *_: None)
    print(json.dumps({"ready": True}), flush=True)
    names = {device: name for name, device in tuns.items()}
    while wake not in (readable := select.select([wake, *names], [], [])[0]):
        for device in readable:
            os.write(tuns[PAIRS[names[device]]], os.read(device, BUFFER_BYTES))


def main() -> int:
    """Run as satlink would be run."""
    verb, config = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    mode = os.environ.get("STANDIN_MODE", "pass")
    if verb == "plan" and mode == "bad-profile":
        print("geo/profile_gw.xml:12: access/dama/cra: out of range (0 to 100)", file=sys.stderr)
        print("geo/topology.xml:3: frequency_plan: missing (add it)", file=sys.stderr)
        print("hint: fix the profile", file=sys.stderr)
        return 2
    if verb == "plan":
        print(json.dumps(link_plan(config)))
    elif mode == "die":
        print("error: TUN busy", file=sys.stderr)
        return 3
    elif mode == "mute":
        signal.pause()
    else:
        carry(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
