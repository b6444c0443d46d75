#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run one iperf3 transfer as server or client. Its figures come from iperf3's JSON,
which is stored.
"""

import argparse
import ipaddress
import json
import subprocess
import syslog
import threading
import time
from typing import Any

import collect_agent
from jobkit import argument_parser, run_job, start_stoppable, stop_event, store_json, whole

READY_S = 15.0
"""How long the client tries to reach a server that is not listening yet."""
CONNECT_TIMEOUT_MS = 10_000
MARGIN_S = 60.0
"""How long a client's iperf3 may take beyond the transfer: a full buffer drains, results cross the
link.
"""

_NOT_READY = "Connection refused"
_INTERRUPTED = "interrupt"

Report = dict[str, Any]


def run(arguments: list[str], stop: threading.Event, timeout_s: float | None = None) -> Report:
    """Run iperf3 to its end, or until `stop`, and return its JSON; a failure is in the key `error`.

    A stopped iperf3 prints the JSON of what it has, with an error. Before it handles signals it
    prints nothing.
    """
    pipe = subprocess.PIPE
    process = start_stoppable(["iperf3", *arguments], stop, stdout=pipe, stderr=pipe, text=True)
    failure = ""
    try:
        output, log = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        failure = f"not over after {timeout_s:g} s"
        process.kill()
        output, log = process.communicate()
    if process.returncode and not failure:
        failure = f"exit status {process.returncode}: {log.strip()}"
        if stop.is_set() and process.returncode < 0:
            failure = f"{_INTERRUPTED} before it had started"
    return _read(output, failure)


def _read(output: str, failure: str) -> Report:
    """Read iperf3's JSON.

    It may report an error and yet exit with 0, or fail and print nothing of use.
    """
    try:
        report = json.loads(output)
    except ValueError:
        return {"error": failure or "iperf3 printed no JSON"}
    if not isinstance(report, dict):
        return {"error": "iperf3 printed no JSON object"}
    if failure and "error" not in report:
        report["error"] = failure
    return report


def server_arguments(options: argparse.Namespace) -> list[str]:
    """Return iperf3's arguments for a server that takes one transfer."""
    bind = ["-B", str(options.bind)] if options.bind else []
    return ["-s", "-1", "-J", "-i", str(options.metrics_interval), "-p", str(options.port), *bind]


def client_arguments(options: argparse.Namespace) -> list[str]:
    """Return iperf3's arguments for a client."""
    arguments = ["-c", str(options.server_ip), "-J", "-p", str(options.port)]
    arguments += ["-i", str(options.metrics_interval)]
    length = ["-n", str(options.bytes)] if options.bytes else ["-t", str(options.duration_s)]
    arguments += [*length, "--connect-timeout", str(CONNECT_TIMEOUT_MS)]
    if options.reverse:
        arguments.append("-R")
    if options.protocol == "udp":
        return [*arguments, "-u", "-b", options.bandwidth, "-l", str(options.datagram_bytes)]
    if options.protocol == "tcp" and options.cong_control:
        return [*arguments, "-C", options.cong_control]
    return arguments


def interval_statistics(stream: Report) -> Report:
    """Translate one interval of one stream to OpenBACH's iperf3 statistics."""
    names = {
        "bits_per_second": "throughput",
        "bytes": "sent_data",
        "snd_cwnd": "cwnd",
        "retransmits": "retransmissions",
        "packets": "sent_pkts",
        "lost_packets": "lost_pkts",
        "lost_percent": "plr",
    }
    statistics = {name: stream[key] for key, name in names.items() if key in stream}
    if "jitter_ms" in stream:
        statistics["jitter"] = stream["jitter_ms"] / 1000
    return statistics


def total_statistics(report: Report) -> Report:
    """Return the totals of the transfer at this side; {} if it did not come to its end."""
    end = report.get("end", {})
    sending = any(
        stream.get("sender") for line in report.get("intervals", []) for stream in line["streams"]
    )
    total = end.get("sum_sent" if sending else "sum_received") or end.get("sum")
    if not total:
        return {}
    statistics = {"average_throughput": total["bits_per_second"], "total_transfer": total["bytes"]}
    if not sending and "sum_received" not in end:
        # Before 3.11 the one total of UDP has the bytes that were sent.
        measured = [line["sum"] for line in report["intervals"] if not line["sum"].get("omitted")]
        arrived = sum(span["bytes"] for span in measured)
        statistics = {
            "average_throughput": arrived * 8 / total["seconds"] if total["seconds"] > 0 else 0.0,
            "total_transfer": arrived,
        }
    if sending and "retransmits" in total:
        statistics["total_retransmission"] = total["retransmits"]
    if not sending and "lost_percent" in total:
        statistics |= {"total_lost_pkts": total["lost_packets"], "total_plr": total["lost_percent"]}
    return statistics


def send(report: Report) -> None:
    """Send the statistics of every interval and the totals.

    iperf3 dates the start of the test to the second, so times are as coarse; the JSON has exact
    intervals.
    """
    start_ms = report.get("start", {}).get("timestamp", {}).get("timesecs", 0) * 1000
    last_ms = start_ms
    for line in report.get("intervals", []):
        for number, stream in enumerate(line["streams"], start=1):
            last_ms = start_ms + round(stream["end"] * 1000)
            collect_agent.send_stat(last_ms, f"Flow{number}", **interval_statistics(stream))
    if totals := total_statistics(report):
        collect_agent.send_stat(last_ms, **totals)


def keep(report: Report) -> bool:
    """Send and store what a transfer left; return whether it is complete."""
    failure = report.get("error")
    if failure:
        collect_agent.send_log(syslog.LOG_ERR, f"iperf3: {failure}")
    if not report.get("intervals"):
        return not failure
    send(report)
    answer = store_json("iperf3_json", report)
    return not failure and answer == "OK"


def congestion_fault(report: Report, requested: str | None) -> str:
    """Return how the sender's congestion control differs from the requested one; '' when it does
    not.
    """
    used = report.get("end", {}).get("sender_tcp_congestion")
    if requested and used != requested:
        return f"the sender used congestion control {used}, not {requested}"
    return ""


def serve(options: argparse.Namespace, stop: threading.Event) -> int:
    """Accept transfers until stopped, or one with `exit`; 0 when all succeeded."""
    good = True
    while not stop.is_set():
        report = run(server_arguments(options), stop)
        is_kept = keep(report)
        # An agent that stops this job ends iperf3 first: not a failure, and no reason to start
        # another one.
        if stop.is_set() or _INTERRUPTED in str(report.get("error", "")):
            break
        good = is_kept and good
        # Without data: it cannot listen, or a stranger called.
        if options.exit or not report.get("intervals"):
            break
    return 0 if good else 1


def transfer(options: argparse.Namespace, stop: threading.Event) -> int:
    """Make one transfer; 0 when it was complete, with the requested congestion control."""
    deadline = time.monotonic() + READY_S
    while True:
        report = run(client_arguments(options), stop, options.duration_s + MARGIN_S)
        waiting = _NOT_READY in str(report.get("error", "")) and not report.get("intervals")
        # iperf3's server takes a probe for a client, so only a transfer shows whether it listens.
        if not waiting or time.monotonic() >= deadline or stop.wait(0.1):
            break
    complete = keep(report)
    fault = ""
    if not report.get("error"):
        fault = congestion_fault(report, getattr(options, "cong_control", None))
    if fault:
        collect_agent.send_log(syslog.LOG_ERR, fault)
    return 0 if complete and report.get("intervals") and not fault else 1


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("-p", "--port", type=int, default=5201)
    parser.add_argument("-i", "--metrics-interval", type=float, default=0.1)
    modes = parser.add_subparsers(dest="mode", required=True)
    server = modes.add_parser("server")
    server.add_argument("-B", "--bind", type=ipaddress.ip_address)
    server.add_argument("-1", "--exit", action="store_true")
    client = modes.add_parser("client")
    client.add_argument("server_ip", type=ipaddress.ip_address)
    client.add_argument("-t", "--duration_s", type=whole(1, 10**9), default=10)
    client.add_argument("-n", "--bytes", type=whole(0, 10**18), default=0)
    client.add_argument("-R", "--reverse", action="store_true")
    protocols = client.add_subparsers(dest="protocol")
    tcp = protocols.add_parser("tcp")
    tcp.add_argument("-C", "--cong_control")
    udp = protocols.add_parser("udp")
    udp.add_argument("-b", "--bandwidth", default="1M")
    udp.add_argument("-l", "--datagram_bytes", type=int, default=1200)
    return parser.parse_args()


def main() -> int:
    """Run the job."""
    stop, options = stop_event(), _arguments()
    return (serve if options.mode == "server" else transfer)(options, stop)


if __name__ == "__main__":
    run_job(__file__, main)
