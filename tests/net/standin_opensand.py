# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for OpenSAND: takes its command line, serves the TAPs, and carries frames over UDP
from ST to GW and back.

ST and GW send to the SAT, which sends on to the GW's address and to the STs' multicast group, as
OpenSAND does. The sending side paces frames to `RATE_BPS` and delays them by `DELAY_S`.

Environment: OPENSAND_MODE = carry (default), topology (ends with status 14), crash (an error, then
SIGSEGV), idle (initialized, never logged on, carries nothing), lossy (loses each hundredth packet,
and logs it as 8.2.0 does); OPENSAND_ENTITY = sat, gw or st: the mode is for this one alone;
OPENSAND_LATE_S = s until SAT and GW are initialized; OPENSAND_NOTE = file that gets a JSON line of
each call, and of each frame with a VLAN tag.

Probes go to a file in `path_local`, as 8.2.0 writes them, once in `PROBES_S`.
"""

import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES = 65536
VLAN_TAG = bytes((0x81, 0x00))
KINDS = {"Satellite": "sat", "Gateway": "gw", "Terminal": "st"}
TO_SAT = {"gw": 55008, "st": 55006}
GW_PORT, ST_GROUP, ST_PORT = 55007, "239.137.194.221", 55009
DELAY_S = 0.261
"""One way: the 250 ms of the geo profile, and half of the 22 ms that OpenSAND's ticks add to the
round trip.
"""
RATE_BPS = 19.2e6
QUEUE_S = 3.6
LOST_EACH = 100
PROBES_S = 0.1


def main() -> int:
    """Run as OpenSAND would be run."""
    if "-V" in sys.argv:
        print("OpenSAND stand-in")
        return 0
    arguments = sys.argv[1:]
    files = {
        option: Path(arguments[arguments.index(option) + 1])
        for option in ("-i", "-t", "-p")
        if option in arguments
    }
    text = files["-i"].read_text()
    kind = KINDS[_text(text, "entity_type")]
    mode = os.environ.get("OPENSAND_MODE", "carry")
    if os.environ.get("OPENSAND_ENTITY", kind) != kind:
        mode = "carry"
    if mode == "topology":
        log("ERROR", kind, f"cannot load {files['-t']}")
        return 14
    if mode == "crash":
        log("ERROR", kind, "cannot initialize the physical layer")
        os.kill(os.getpid(), signal.SIGSEGV)
    started_s = time.time()
    if kind != "st":
        time.sleep(float(os.environ.get("OPENSAND_LATE_S", "0")))
    log("EVENT", kind, "Blocks initialized")
    note(kind, initialized_s=time.time(), started_s=started_s)
    if mode == "idle":
        signal.pause()
    addresses = {
        k: re.findall(r"<emu_address>([\d.]+)<", part)
        for k, part in re.findall(r"<(\w+s)>(.*?)</\1>", text, re.DOTALL)
    }
    if kind == "sat":
        relay(addresses["gateways"][0])
    else:
        probes = Probes(kind, Path(_text(text, "path_local")), collector(text))
        log_to(collector(text, "logs"), f"[EVENT][{kind}0][status] Blocks initialized")
        serve(
            kind,
            text.partition(f"<entity_{kind}>")[2],
            addresses["satellites"][0],
            probes,
            lossy=mode == "lossy",
        )
    return 0


class Probes:
    """A file of probes in OpenSAND's form:

    `;` between cells, local times, `name (unit)`; some cells are empty.
    """

    def __init__(self, kind: str, folder: Path, collector: tuple[str, int] | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._due_s = 0.0
        self._rows = 0
        names = [f"spot_0.{kind}.phy.delay (ms)", f"spot_0.{kind}.queue_loss.packets.be (packets)"]
        self._kind, self._collector = kind, collector
        self._file = (folder / f"{kind}0_1.csv").open("w")
        self._file.write(";".join(["Date", *names]) + "\n")

    def put(self, now_s: float, delay_ms: float, lost: int) -> bool:
        """Write a row where one is due; return whether one was."""
        is_due = now_s >= self._due_s
        if is_due:
            self._due_s, self._rows = now_s + PROBES_S, self._rows + 1
            date = datetime.fromtimestamp(time.time()).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            self._file.write(f"{date};{delay_ms if self._rows % 2 else ''};{lost}\n")
            self._file.flush()
            log_to(
                self._collector,
                f"{time.time() * 1000:.0f} spot_0.{self._kind}.phy.delay {delay_ms:.0f} entity"
                f" {self._kind}0",
            )
        return is_due


def collector(xml: str, kind: str = "probes") -> tuple[str, int] | None:
    """Return the collector of `probes` or `logs` that the storage names, if it is on."""
    if re.findall(r"<enable_collector>(\w+)</", xml) != ["true"]:
        return None
    return _text(xml, "collector_address"), int(_text(xml, f"collector_{kind}"))


def log_to(target: tuple[str, int] | None, text: str) -> None:
    """Send a datagram, as OpenSAND does; whether it arrives does not matter."""
    if target is None:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(text.encode(), target)


def note(kind: str, **seen: float) -> None:
    """Record how this program was called, and a time or a tag that it saw."""
    file = os.environ.get("OPENSAND_NOTE")
    if file is None:
        return
    call = {
        **seen,
        "kind": kind,
        "argv": sys.argv[1:],
        "netns": Path("/proc/self/ns/net").stat().st_ino,
        "own_session": os.getsid(0) == os.getpid(),
        "niceness": os.nice(0),
        "stdin": str(Path("/proc/self/fd/0").readlink()),
    }
    with Path(file).open("a") as lines:
        lines.write(json.dumps(call) + "\n")


def log(level: str, kind: str, text: str) -> None:
    """Write a line of the form that OpenSAND's logs have."""
    date = datetime.fromtimestamp(time.time()).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    print(f"[{date}][{level}][{kind}][status] {text}", file=sys.stderr, flush=True)


def relay(gateway: str) -> None:
    """Be the satellite."""
    up = {port: udp("", port) for port in TO_SAT.values()}
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    targets = {TO_SAT["st"]: (gateway, GW_PORT), TO_SAT["gw"]: (ST_GROUP, ST_PORT)}
    while True:
        for ready in select.select(list(up.values()), [], [])[0]:
            out.sendto(ready.recv(FRAME_BYTES), targets[ready.getsockname()[1]])


def serve(kind: str, own: str, satellite: str, probes: Probes, *, lossy: bool) -> None:
    """Be a ground entity: frames of the TAP go to the satellite, after pacing and delay, and back."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(
        tap,
        TUNSETIFF,
        struct.pack("16sH22x", _text(own, "tap_iface").encode(), IFF_TAP | IFF_NO_PI),
    )
    down = udp(
        _text(own, "emu_address") if kind == "gw" else "", GW_PORT if kind == "gw" else ST_PORT
    )
    if kind == "st":  # no interface is named: the kernel takes the one of the route to the group
        down.setsockopt(
            socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(ST_GROUP) + bytes(4)
        )
        log("EVENT", kind, "Login complete with MAC 1")
    waiting: deque[tuple[float, bytes]] = deque()
    free_s, count, dropped = 0.0, 0, 0
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable = select.select([tap, down.fileno()], [], [], timeout)[0]
        now = time.monotonic()
        if down.fileno() in readable:
            os.write(tap, down.recv(FRAME_BYTES))
        if probes.put(now, DELAY_S * 1000, dropped):
            dropped = 0
        if tap in readable:
            frame = os.read(tap, FRAME_BYTES)
            if frame[12:14] == VLAN_TAG:
                note(kind, priority=frame[14] >> 5)
            count += 1
            if lossy and count % LOST_EACH == 0:
                log("ERROR", kind, "error during encapsulation : EncapErrorSizeBuffer")
                log("ERROR", kind, f"SF#1: error while processing packet #{count}")
            elif free_s >= now + QUEUE_S:
                dropped += 1
            else:
                free_s = max(free_s, now) + len(frame) * 8 / RATE_BPS
                waiting.append((free_s + DELAY_S, frame))
        while waiting and waiting[0][0] <= now:
            down.sendto(waiting.popleft()[1], (satellite, TO_SAT[kind]))


def udp(address: str, port: int) -> socket.socket:
    """Open a UDP socket with a large buffer."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1048580)
    found.bind((address, port))
    return found


def _text(xml: str, name: str) -> Any:
    """Return the first element's text; enough for the files of this repository."""
    return re.findall(rf"<{name}>([^<]+)</{name}>", xml)[0]


if __name__ == "__main__":
    sys.exit(main())
