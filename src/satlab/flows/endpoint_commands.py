# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of both ends of a flow on the real clock: commands, and the files that they may
read.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from satlab.check.endpoint import command_pair
from satlab.check.endpoint.pair import NAME, SERVER, EndpointProgram, read_only
from satlab.common import paths
from satlab.common.errors import ConfigError, HostError
from satlab.flows import connection_migration, udp_traffic
from satlab.lab.pki import Pki
from satlab.run.host_needs import CONTROLS

FIRST_PORT = 4433
"""Server's port of the first flow; each further flow has the next one."""
PAYLOAD = "payload"
WINDOW_BYTES = 64 << 20
"""Flow control window of ngtcp2 without `window_bytes`, as satperf's."""
DATAGRAM_BYTES = 1200
"""UDP payload of cross traffic without `datagram_bytes`, as under the virtual clock."""
_PICOQUIC_CONTROLS = {"reno": "newreno", "cubic": "cubic", "bbr": "bbr1", "bbr3": "bbr"}
"""picoquic's names of congestion controls."""
UDP_HEADER_BYTES, TCP_HEADER_BYTES = 8, 20
"""RFC 768; RFC 9293, without options (RFC 6691)."""
Side = Literal["server", "client"]


@dataclass(frozen=True)
class Place:
    """Where a flow runs. `nodes` and their `addresses` by side; `keys`: the server's copy; `ca`:
    the client's. `folder` has a writable folder for each end. `payload`: the file that ngtcp2 and
    picoquic send. `send_bytes`: the most that satperf keeps for retransmission. `handshake_s`:
    duration of a handshake.
    """

    index: int
    flow: Mapping[str, Any]
    life_s: float
    addresses: Mapping[str, str]
    keys: Pki
    ca: Path
    folder: Path
    payload: Path
    send_bytes: int
    handshake_s: float = 0.0
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Return the flow's port at the server's side."""
        return FIRST_PORT + self.index

    @property
    def is_forward(self) -> bool:
        """Return whether the server's side sends."""
        return str(self.flow["from"]).startswith(SERVER)

    @property
    def protocol(self) -> Literal["udp", "tcp"]:
        """Return the transport protocol of the flow's packets."""
        return "tcp" if self.flow["stack"] == "tcp" else "udp"

    @property
    def sender(self) -> Side:
        """Return the side that sends."""
        return "server" if self.is_forward else "client"

    @property
    def receiver(self) -> Side:
        """Return the side that receives."""
        return "client" if self.is_forward else "server"

    def output(self, side: str) -> Path:
        """Return the file of satperf's lines."""
        return self.folder / side / "satperf.jsonl"

    def qlog(self, side: str) -> Path:
        """Return the folder of the qlog of ngtcp2 and picoquic."""
        return self.folder / side / "qlog"


def check(request: Mapping[str, Any]) -> None:
    """Check that this host has the programs and congestion controls that the flows of a request
    need.

    Raises:
        ConfigError: its kernel has not loaded a congestion control.
        HostError: programs are not installed.
    """
    flows = request["flows"]
    stacks = {flow["stack"] for flow in flows}
    if "ngtcp2" in stacks:
        command_pair.ngtcp2()
    if "picoquic" in stacks and not paths.PICOQUIC.exists():
        raise HostError(f"{paths.PICOQUIC} is missing", "build it: ./satlab --install picoquic")
    if "tcp" in stacks and shutil.which("iperf3") is None:
        raise HostError("iperf3 is not installed", "apt-get install iperf3")
    if stacks & {"quinn", "quiche", "noq"} and not paths.SATPERF.exists():
        raise HostError(f"{paths.SATPERF} is missing", "build it: ./satlab --install quic")
    if "fec" in request and not paths.SATFEC.exists():
        raise HostError(f"{paths.SATFEC} is missing", "build it: ./satlab --install fec")
    available = CONTROLS.read_text().split()
    for index, flow in enumerate(flows):
        control = flow.get("congestion_control")
        if flow["stack"] == "tcp" and control not in available:
            what = f"flows[{index}].congestion_control: {control} is not loaded in this kernel"
            raise ConfigError(
                what, hint=f"one of {', '.join(available)}; or: modprobe tcp_{control}"
            )


def first_program(place: Place) -> EndpointProgram:
    """Return the program of `first_side`."""
    return _PROGRAMS[place.flow["stack"]][0](place)


def second_program(place: Place) -> EndpointProgram:
    """Return the program of `second_side`. The flow begins when it starts."""
    return _PROGRAMS[place.flow["stack"]][1](place)


# --- satperf --------------------------------------------------------------------------------------


def _satperf_words(place: Place, side: Side) -> list[str]:
    flow = place.flow
    words = ["--stack", flow["stack"], "--congestion-control", flow["congestion_control"]]
    words += ["--output", str(place.output(side))]
    of_sender = {
        "initial-window": flow.get("initial_window"),
        "slow-start": flow.get("slow_start"),
        "ack-threshold": flow.get("ack_threshold"),
        "max-ack-delay-ms": flow.get("max_ack_delay_ms"),
        "send-window": place.send_bytes,
    }
    window = flow.get("window_bytes")
    of_receiver = {"receive-window": window, "stream-receive-window": window}
    options = of_sender if side == place.sender else of_receiver
    return words + [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    ]


def _satperf_server(place: Place) -> EndpointProgram:
    keys = place.keys
    argv = [str(paths.SATPERF), "server", "--listen", f"{place.addresses[SERVER]}:{place.port}"]
    argv += ["--once", "--cert", str(keys.server_cert), "--key", str(keys.server_key)]
    argv += _satperf_words(place, "server")
    return EndpointProgram(tuple(argv), read_only(paths.SATPERF, keys.server_cert, keys.server_key))


def _satperf_client(place: Place) -> EndpointProgram:
    argv = [str(paths.SATPERF), "client", "--connect", f"{place.addresses[SERVER]}:{place.port}"]
    argv += ["--server-name", NAME, "--ca", str(place.ca), "--timeout", f"{place.life_s + 60:.3f}"]
    size = place.flow.get("bytes")
    argv += ["--duration", f"{place.life_s:.3f}"] if size is None else ["--bytes", str(size)]
    argv += ["--direction", "download" if place.is_forward else "upload"]
    argv += _satperf_words(place, "client")
    for index, at_s in enumerate(place.flow.get("migrate_s", ())):
        after_s = max(0.001, at_s - place.flow["start_s"])
        argv += [
            "--migrate",
            f"{after_s:.3f}:{connection_migration.taken(place.addresses['client'], index)}",
        ]
    return EndpointProgram(tuple(argv), read_only(paths.SATPERF, place.ca))


# --- ngtcp2 ---------------------------------------------------------------------------------------


def _ngtcp2_words(place: Place, side: Side) -> list[str]:
    flow, window = place.flow, place.flow.get("window_bytes", WINDOW_BYTES)
    words = ["--quiet", "--no-quic-dump", "--no-http-dump", f"--qlog-dir={place.qlog(side)}"]
    words += [f"--cc={flow['congestion_control']}", f"--max-data={window}"]
    words += [f"--max-stream-data-bidi-{end}={window}" for end in ("local", "remote")]
    words += [f"--max-window={window}", f"--max-stream-window={window}"]
    if (size := flow.get("datagram_bytes")) is not None:
        words += [f"--max-udp-payload-size={size}", "--no-pmtud"]
    if (let_pass := flow.get("ack_threshold")) is not None and side == place.receiver:
        words.append(f"--ack-thresh={let_pass + 1}")
    return words


def _ngtcp2_programs() -> tuple[str, str]:
    pair = command_pair.ngtcp2()
    return pair.server_words[0], pair.client_words[0]


def _ngtcp2_server(place: Place) -> EndpointProgram:
    keys, www = place.keys, place.payload.parent
    argv = [_ngtcp2_programs()[0], *_ngtcp2_words(place, "server"), f"--htdocs={www}"]
    argv += [place.addresses[SERVER], str(place.port), str(keys.server_key), str(keys.server_cert)]
    return EndpointProgram(tuple(argv), read_only(www, keys.server_cert, keys.server_key))


def _ngtcp2_client(place: Place) -> EndpointProgram:
    argv = [_ngtcp2_programs()[1], *_ngtcp2_words(place, "client"), "--exit-on-all-streams-close"]
    for at_s in place.flow.get("migrate_s", ()):
        # Its time counts from the end of the handshake on.
        after_s = at_s - place.flow["start_s"] - place.handshake_s
        argv.append(f"--change-local-addr={max(1, round(after_s * 1000))}ms")
    if not place.is_forward:
        argv.append(f"--data={place.payload}")
    url = f"https://{NAME}:{place.port}/{PAYLOAD if place.is_forward else ''}"
    argv += [place.addresses[SERVER], str(place.port), url]
    return EndpointProgram(tuple(argv), read_only(place.payload.parent))


# --- picoquic -------------------------------------------------------------------------------------


def _picoquic_words(place: Place, side: Side) -> list[str]:
    own = place.folder / side
    words = [str(paths.PICOQUIC), "-G", _PICOQUIC_CONTROLS[place.flow["congestion_control"]], "-L"]
    words += ["-q", str(place.qlog(side)), "-T", str(own / "tickets"), "-N", str(own / "tokens")]
    return [*words, "-p", str(place.port)] if side == SERVER else words


def _picoquic_server(place: Place) -> EndpointProgram:
    keys, www = place.keys, place.payload.parent
    argv = _picoquic_words(place, "server")
    argv += ["-c", str(keys.server_cert), "-k", str(keys.server_key), "-w", str(www)]
    mounts = read_only(paths.PICOQUIC, www, keys.server_cert, keys.server_key)
    return EndpointProgram(tuple(argv), mounts)


def _picoquic_client(place: Place) -> EndpointProgram:
    argv = [*_picoquic_words(place, "client"), "-D", "-a", "h3", "-n", NAME, "-t", str(place.ca)]
    argv += [place.addresses[SERVER], str(place.port), f"/{PAYLOAD}"]
    return EndpointProgram(tuple(argv), read_only(paths.PICOQUIC, place.ca))


# --- TCP of the kernel ----------------------------------------------------------------------------


def _iperf3() -> str:
    return shutil.which("iperf3", path=paths.STANDARD_PATH) or "iperf3"


def _tcp_server(place: Place) -> EndpointProgram:
    argv = [_iperf3(), "--server", "--one-off"]
    argv += ["--bind", place.addresses[SERVER], "--port", str(place.port)]
    return EndpointProgram(tuple(argv), capabilities=("net_admin",))


def _tcp_client(place: Place) -> EndpointProgram:
    size = place.flow.get("bytes")
    # It is stopped at its end: iperf3 counts its time from the end of its own handshake on.
    amount = ["--time", f"{place.life_s + 60:.0f}"] if size is None else ["--bytes", str(size)]
    argv = [_iperf3(), "--client", place.addresses[SERVER], "--port", str(place.port), *amount]
    argv += ["--congestion", place.flow["congestion_control"]]
    if place.is_forward:
        argv.append("--reverse")
    if (datagram := place.flow.get("datagram_bytes")) is not None:
        argv += ["--set-mss", str(datagram + UDP_HEADER_BYTES - TCP_HEADER_BYTES)]
    return EndpointProgram(tuple(argv), capabilities=("net_admin",))


# --- datagrams ------------------------------------------------------------------------------------


def _datagrams(place: Place, side: Side) -> EndpointProgram:
    script = Path(udp_traffic.__file__)
    python = shutil.which("python3", path=paths.STANDARD_PATH) or "python3"
    # The receiver has the flow's port, whichever side it is.
    words = ["receive", place.addresses[side], str(place.port)]
    if side == place.sender:
        size = place.flow.get("datagram_bytes", DATAGRAM_BYTES)
        other = place.addresses[place.receiver]
        words = ["send", other, str(place.port), str(size), str(place.flow["rate_mbps"])]
    return EndpointProgram((python, "-I", str(script), *words), read_only(script))


_Maker = Callable[[Place], EndpointProgram]
_SATPERF: tuple[_Maker, _Maker] = (_satperf_server, _satperf_client)
_PROGRAMS: Mapping[str, tuple[_Maker, _Maker]] = {
    "quinn": _SATPERF,
    "quiche": _SATPERF,
    "noq": _SATPERF,
    "ngtcp2": (_ngtcp2_server, _ngtcp2_client),
    "picoquic": (_picoquic_server, _picoquic_client),
    "tcp": (_tcp_server, _tcp_client),
    "udp": (
        lambda place: _datagrams(place, place.receiver),
        lambda place: _datagrams(place, place.sender),
    ),
}
"""The two programs of each stack, in the order of their start. The flow begins with the second."""


def first_side(place: Place) -> Side:
    """Return the side whose program starts first: the receiver of datagrams, else the server."""
    return place.receiver if place.flow["stack"] == "udp" else "server"


def second_side(place: Place) -> Side:
    """Return the side whose program starts second, with which the flow begins."""
    return "client" if first_side(place) == "server" else "server"
