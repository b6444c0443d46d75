#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: load a page in a fresh headless browser, again and again, and report its timings.

Times are those of Kosek et al., IFIP Networking 2022: Response Start (`responseStart` of the
navigation), First Contentful Paint and Page Load Time (`loadEventStart`), in ms since the start of
the navigation. A load counts only if every object of the page came, whole, over the requested
protocol. Exit statuses: 0 all loads ok, 1 a load is not ok or the job was stopped, 2 arguments, 3
no browser, driver or page.
"""

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import urlsplit

import browser_logs
import collect_agent
import page_observation
from cpu_curve import CpuCurve, stat_of
from firefox import HEIGHT, WIDTH, Firefox, write_profile
from jobkit import JobError, argument_parser, need, page_name, real, run_job, whole
from page_scripts import AWAIT_CLICK, READ_INTERACTION, READ_TIMELINE, YARDSTICK
from page_target import PROTOCOLS, Target, read_target
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.remote.remote_connection import RemoteConnection
from served_page import add_certificates, add_pages
from urllib3.exceptions import HTTPError

DRIVER_GRACE_S = (
    15.0  # what the driver may take beyond the deadline of the load before it counts as hung
)
SCRIPT_TIMEOUT_S = 10.0
PR_SET_CHILD_SUBREAPER = 36  # prctl(2), <linux/prctl.h>

# The navigation opens its own connection: no socket is opened ahead of it, whose handshake would
# not be in its times.
PREFERENCES = {
    "net.network_prediction_options": 2
}  # 2: never (chrome/browser/preloading/preloading_prefs.h)


class Stopped(BaseException):
    """SIGTERM or SIGINT: the load under way is given up, finished ones are kept.

    Like KeyboardInterrupt no Exception, or a broad `except` of a library could swallow it.
    """


STOPPED = threading.Event()
"""Set with the exception, which Python drops when it falls into a destructor: then the load under
way is the last.
"""


PROFILES: list[str] = []
"""Folders of browsers so far."""


Driver = webdriver.Chrome | Firefox


@dataclass(frozen=True)
class Programs:
    """The browser and its driver, with their versions. Firefox needs none: `driver` is empty."""

    browser: str
    driver: str
    browser_version: str
    driver_version: str


# --- the browser ----------------------------------------------------------------------------------


def browser_arguments(target: Target, profile: Path, *, sandbox: bool) -> list[str]:
    """Return Chromium's arguments: nothing but the page's own requests leaves it, and one server
    key is trusted.
    """
    scheme, port, _ = PROTOCOLS[target.protocol]
    server = f"[{target.server}]" if target.server.version == 6 else str(target.server)
    known = ",".join(f"MAP {host} {server}" for host in target.hosts)
    arguments = [
        "--headless=new",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--no-default-browser-check",
        "--no-proxy-server",
        "--disk-cache-size=1",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-default-apps",
        "--disable-domain-reliability",
        "--disable-extensions",
        "--disable-sync",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--metrics-recording-only",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--host-resolver-rules={known},MAP * ~NOTFOUND",
    ]
    if scheme == "https":
        arguments.append(f"--ignore-certificate-errors-spki-list={target.spki}")
    if target.protocol == "h3":
        arguments.append(
            f"--origin-to-force-quic-on={','.join(f'{host}:{port}' for host in target.hosts)}"
        )
    else:
        arguments.append("--disable-quic")
    return arguments if sandbox else [*arguments, "--no-sandbox"]


def may_sandbox() -> bool:
    """Return whether Chromium can build its sandbox: not as root, and only where users may make
    user namespaces.
    """
    done = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)
    return os.geteuid() != 0 and done.returncode == 0


@contextlib.contextmanager
def fresh_browser(
    target: Target,
    programs: Programs,
    timeout_s: float,
    *,
    is_observed: bool = False,
    logs: Path | None = None,
) -> Iterator[webdriver.Chrome]:
    """Start driver and browser with a new profile, and remove all of them afterwards. `Firefox` has
    the methods of a driver that loads use, but not those of observed or slowed loads.

    `logs`: folder for the browser's log of the network and the keys of its connections.
    """
    with tempfile.TemporaryDirectory(
        prefix="satlab_page_load_", ignore_cleanup_errors=True
    ) as scratch:
        PROFILES.append(scratch)
        if not programs.driver:
            try:
                write_profile(Path(scratch) / "profile", target)
                firefox = Firefox(programs.browser, Path(scratch) / "profile", target, timeout_s)
                yield cast(webdriver.Chrome, firefox)
            finally:
                end_children()
            return
        options = webdriver.ChromeOptions()
        options.binary_location = programs.browser
        options.add_experimental_option("prefs", PREFERENCES)
        for argument in browser_arguments(target, Path(scratch) / "profile", sandbox=may_sandbox()):
            options.add_argument(argument)
        if is_observed or len(target.hosts) > 1:
            page_observation.switch_on(options)
        if logs:
            browser_logs.switch_on(options, logs)
        service = webdriver.ChromeService(executable_path=programs.driver)
        try:
            driver = webdriver.Chrome(options=options, service=service)
            if isinstance(driver.command_executor, RemoteConnection):
                driver.command_executor.client_config.timeout = timeout_s + DRIVER_GRACE_S
            driver.set_page_load_timeout(timeout_s)
            driver.set_script_timeout(SCRIPT_TIMEOUT_S)
            yield driver
            if logs:
                driver.quit()  # an ordinary end: the browser completes its log
        finally:
            end_children()


def remove_what_is_left() -> None:
    """End processes and remove profiles: a signal may have interrupted the ordinary clean-up."""
    end_children()
    for folder in PROFILES:
        shutil.rmtree(folder, ignore_errors=True)


def adopt_orphans() -> None:
    """Become the parent of the processes of a crashed driver or browser, to find and end them."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise JobError(
            f"prctl: {os.strerror(ctypes.get_errno())}", "a Linux kernel of 3.4 or later is needed"
        )


def end_children() -> None:
    """Kill all that this job started. A profile that is thrown away needs no orderly end."""
    while children := descendants(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def processes() -> dict[int, tuple[int, float, float]]:
    """Return parent, user and system CPU seconds of each process, ended and awaited children
    included (proc(5)).
    """
    tick = os.sysconf("SC_CLK_TCK")
    table = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := stat_of(int(entry.name)):
            user, system, children_user, children_system = map(int, fields[11:15])
            cpu = (user + children_user) / tick, (system + children_system) / tick
            table[int(entry.name)] = (int(fields[1]), *cpu)
    return table


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, nearest first."""
    table = processes()
    found, last = [], {root}
    while last := {pid for pid, (parent, *_) in table.items() if parent in last}:
        found += sorted(last)
    return found


def cpu_seconds() -> tuple[float, float]:
    """Return user and system CPU seconds of driver and browser so far."""
    table = processes()
    rows = [table[pid] for pid in descendants(os.getpid()) if pid in table]
    return sum(row[1] for row in rows), sum(row[2] for row in rows)


def thread_waits() -> dict[str, float]:
    """Return for how many seconds each thread of driver and browser could run and had no core, by
    its path in /proc.

    The run-queue wait of schedstat (the kernel's scheduler/sched-stats.rst); empty where the kernel
    has none.
    """
    waits = {}
    for pid in descendants(os.getpid()):
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                waits[str(path)] = int(path.read_text(encoding="ascii").split()[1]) / 1e9
    return waits


def waits_between(
    before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the waits of all threads together, and of the thread that waited most;

    None where they are unknown.
    """
    waits = [wait - before.get(path, 0.0) for path, wait in after.items()]
    return {
        "cpu_wait_s": round(sum(waits), 3) if waits else None,
        "cpu_wait_longest_s": round(max(waits), 3) if waits else None,
    }


def yardstick_ms(driver: Driver) -> float:
    """Return how long the browser takes for a known task."""
    taken_ms, _ = driver.execute_script(YARDSTICK)
    return round(float(taken_ms), 1)


def interaction_ms(driver: Driver) -> float | None:
    """Click in the middle of the window, and return how long the page took to show its answer."""
    driver.execute_script(AWAIT_CLICK)
    if isinstance(driver, Firefox):
        driver.click(WIDTH // 2, HEIGHT // 2)
    else:
        actions = ActionBuilder(driver, duration=0)
        actions.pointer_action.move_to_location(WIDTH // 2, HEIGHT // 2).click()  # type: ignore[no-untyped-call]
        actions.perform()
    longest = driver.execute_async_script(READ_INTERACTION)
    return None if longest is None else float(longest)


# --- one load -------------------------------------------------------------------------------------


def load(
    target: Target,
    programs: Programs,
    index: int,
    timeout_s: float,
    cpu_slowdown: float = 1.0,
    *,
    clicks: bool = False,
) -> dict[str, Any]:
    """Load the page once and return its record (schema satlab/page-load/1).

    `cpu_slowdown`: by how much the browser's main thread is slower than the host lets it be.
    `clicks`: a click follows the load event.

    Raises nothing but `Stopped`.
    """
    record = empty_record(target, programs, index)
    record |= {"cpu_slowdown": cpu_slowdown, "clicked": clicks}
    started = time.monotonic()
    record["start_unix_s"] = time.time()
    timeline: dict[str, Any] | None = None
    try:
        with fresh_browser(target, programs, timeout_s) as driver:
            if cpu_slowdown > 1:
                driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": cpu_slowdown})
            record["yardstick_ms"] = yardstick_ms(driver)
            before, waited_before, curve = cpu_seconds(), thread_waits(), CpuCurve()
            started = time.monotonic()
            record["start_unix_s"] = time.time()
            with curve:
                timed_out = navigate(driver, target.url)
            record["cpu_curve"] = curve.samples
            record["wall_s"] = round(time.monotonic() - started, 3)
            after, waited_after = cpu_seconds(), thread_waits()
            record["cpu_user_s"], record["cpu_system_s"] = (
                round(b - a, 2) for a, b in zip(before, after, strict=True)
            )
            record |= waits_between(waited_before, waited_after)
            if timed_out:
                record |= {"status": "censored", "reason": f"no load event within {timeout_s:g} s"}
            timeline = driver.execute_async_script(READ_TIMELINE, not timed_out)
            if len(target.hosts) > 1:
                page_observation.complete(timeline, page_observation.events_of(driver))
            record["yardstick_ms"] = max(record["yardstick_ms"], yardstick_ms(driver))
            if clicks and not timed_out:
                timeline["interaction_to_next_paint_ms"] = interaction_ms(driver)
    except (WebDriverException, HTTPError, OSError, subprocess.SubprocessError) as error:
        if (
            record["status"] != "censored"
        ):  # a page that is stuck may not answer the question for its timeline either
            record["reason"] = one_line(error)
    record["wall_s"] = record["wall_s"] or round(time.monotonic() - started, 3)
    return judge(record, timeline, target) if timeline else record


def observe(
    target: Target, programs: Programs, index: int, timeout_s: float, logs: Path | None = None
) -> dict[str, Any]:
    """Load the page once and record its requests and pictures (schema satlab/page-observation/1).

    Pictures take CPU time from the browser, so the times of this load are never among the figures
    of the others.
    """
    record, found = empty_record(target, programs, index), page_observation.nothing()
    timeline: dict[str, Any] | None = None
    try:
        with fresh_browser(target, programs, timeout_s, is_observed=True, logs=logs) as driver:
            trace = page_observation.Trace(driver)
            curve = CpuCurve()
            record["start_unix_s"] = time.time()
            with curve:
                timed_out = navigate(driver, target.url)
            record["cpu_curve"] = curve.samples
            if timed_out:
                record |= {"status": "censored", "reason": f"no load event within {timeout_s:g} s"}
            timeline = driver.execute_async_script(READ_TIMELINE, not timed_out)
            if not timed_out:
                found = page_observation.read(driver, trace, target.url, timeline)
            elif len(target.hosts) > 1:
                page_observation.complete(timeline, page_observation.events_of(driver))
    except (WebDriverException, HTTPError, OSError, page_observation.ObservationError) as error:
        if record["status"] != "censored":
            return page_observation.document(record | {"reason": one_line(error)}, found)
    return page_observation.document(judge(record, timeline, target) if timeline else record, found)


def navigate(driver: Driver, url: str) -> bool:
    """Load `url` up to its load event; return whether the deadline passed first."""
    try:
        driver.get(url)
    except TimeoutException:
        return True
    return False


def one_line(error: Exception) -> str:
    """Return the first line of an error, without the driver's stack."""
    text = (getattr(error, "msg", None) or str(error) or type(error).__name__).strip()
    return text.split("\n")[0][:300]


def empty_record(target: Target, programs: Programs, index: int) -> dict[str, Any]:
    """Return the record of a load of which nothing is known: a failed one."""
    times = (
        "response_start_ms",
        "first_contentful_paint_ms",
        "page_load_time_ms",
        "load_event_end_ms",
    )
    return {
        "schema": "satlab/page-load/1",
        "url": target.url,
        "protocol": target.protocol,
        "page": target.page,
        "load_index": index,
        "status": "failed",
        "reason": "",
        "start_unix_s": 0.0,
        "wall_s": 0.0,
        **dict.fromkeys(
            ("connect_start_ms", "connect_end_ms", *times, "largest_contentful_paint_ms")
        ),
        "cumulative_layout_shift": None,
        "clicked": False,
        "interaction_to_next_paint_ms": None,
        "expected_objects": len(target.expected),
        "expected_bytes": sum(target.expected.values()),
        "objects": 0,
        "body_bytes": 0,
        "protocols": {},
        "browser": programs.browser_version,
        "driver": programs.driver_version,
        "server": "",
        "cpu_user_s": None,
        "cpu_system_s": None,
        "cpu_wait_s": None,
        "cpu_wait_longest_s": None,
        "yardstick_ms": None,
        "cpu_slowdown": 1.0,
        "cpu_curve": [],
        "long_tasks_ms": None,
        "resources": [],
    }


def judge(record: dict[str, Any], timeline: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Fill in what the browser's timeline says, and decide: ok, failed with every reason, or
    censored as it was.

    A failed load keeps its resources but has no times, so that nobody can average them. A censored
    load has the times that were reached before the deadline, and never a load event, even if one
    came while the timeline was read.
    """
    censored = record["status"] == "censored"
    if (
        urlsplit(timeline["url"]).netloc != target.host
    ):  # not this page's timeline: an error page, or the empty tab
        return (
            record
            if censored
            else record | {"reason": f"the browser shows {timeline['error'] or timeline['url']}"}
        )
    resources = timeline["resources"]
    record = record | {
        "objects": len(resources),
        "body_bytes": sum(r["encoded_body_bytes"] for r in resources),
        "protocols": dict(Counter(r["next_hop_protocol"] for r in resources)),
        "server": timeline["server"],
        "resources": resources,
    }
    if not censored:
        faults = faults_of(timeline, target)
        record |= {"status": "failed" if faults else "ok", "reason": "; ".join(faults)}
    if record["status"] == "failed":
        return record
    times = {
        "response_start_ms": timeline["response_start_ms"],
        "first_contentful_paint_ms": timeline["first_contentful_paint_ms"],
        "page_load_time_ms": None if censored else timeline["load_event_start_ms"],
        "load_event_end_ms": None if censored else timeline["load_event_end_ms"],
        "largest_contentful_paint_ms": timeline["largest_contentful_paint_ms"],
    }
    others = (
        "connect_start_ms",
        "connect_end_ms",
        "long_tasks_ms",
        "cumulative_layout_shift",
        "interaction_to_next_paint_ms",
    )
    return (
        record
        | {key: timeline.get(key) for key in others}
        | {key: value or None for key, value in times.items()}  # 0 there means: not yet
    )


def faults_of(timeline: Mapping[str, Any], target: Target) -> list[str]:
    """Return every reason why a load that reached its load event does not count."""
    expected = PROTOCOLS[target.protocol][2]
    sizes = {target.key(r["name"]): r["encoded_body_bytes"] for r in timeline["resources"]}
    wrong = [r for r in timeline["resources"] if r["next_hop_protocol"] != expected]
    bad = [r for r in timeline["resources"] if r["response_status"] != 200]
    faults = [
        some(
            [f"{target.key(r['name'])} {r['next_hop_protocol'] or 'unknown'}" for r in wrong],
            f"not over {expected}",
        ),
        some([f"{target.key(r['name'])} {r['response_status']}" for r in bad], "status not 200"),
        some([path for path in target.expected if path not in sizes], "missing"),
        some([path for path in sizes if path not in target.expected], "not of the page"),
        some(
            [
                f"{p} {sizes[p]} of {n}"
                for p, n in target.expected.items()
                if p in sizes and sizes[p] != n
            ],
            "wrong body bytes",
        ),
        (
            f"{len(timeline['resources'])} requests for {len(sizes)} objects"
            if len(timeline["resources"]) != len(sizes)
            else ""
        ),
        "" if timeline["first_contentful_paint_ms"] else "no first contentful paint",
    ]
    return [fault for fault in faults if fault]


def some(items: Sequence[str], what: str) -> str:
    """Word a list of offenders briefly; empty if there is none."""
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return f"{what}: {', '.join(items[:3])}{more}" if items else ""


# --- the job --------------------------------------------------------------------------------------


def find_programs(browser: str) -> Programs:
    """Find Debian's Firefox, or Chromium and its driver, and ask their versions."""
    if browser == "firefox":
        firefox = need("firefox-esr", "apt-get install firefox-esr")
        need("certutil", "apt-get install libnss3-tools")
        return Programs(firefox, "", version_of(firefox), "WebDriver BiDi")
    names = {"browser": ("chromium", "google-chrome"), "driver": ("chromedriver",)}
    found = {}
    for role, candidates in names.items():
        path = next(filter(None, map(shutil.which, candidates)), None)
        if path is None:
            raise JobError(
                f"{candidates[0]}: not installed", "apt-get install chromium chromium-driver"
            )
        found[role] = path
    return Programs(found["browser"], found["driver"], *map(version_of, found.values()))


def version_of(program: str) -> str:
    """Return the version that a program prints."""
    answer = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    return answer.stdout.strip()[:200]


def publish(record: Mapping[str, Any], folder: Path) -> None:
    """Store the record, and send its times if they count."""
    now = collect_agent.now()
    path = folder / f"page_load-{record['load_index']:04}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    delivered(collect_agent.store_files(now, suffix=record["url"], page_load_json=str(path)))
    statistics = {"page_load_ok": int(record["status"] == "ok")}
    if record["status"] == "ok":
        names = (
            "response_start_ms",
            "first_contentful_paint_ms",
            "page_load_time_ms",
            "largest_contentful_paint_ms",
            "cumulative_layout_shift",
            "interaction_to_next_paint_ms",
        )
        statistics |= {name: record[name] for name in names if record[name] is not None}
        statistics |= {"body_bytes": record["body_bytes"], "objects": record["objects"]}
    else:
        print(
            f"load {record['load_index']}: {record['status']}: {record['reason']}", file=sys.stderr
        )
    delivered(collect_agent.send_stat(now, suffix=record["url"], **statistics))


def publish_observation(content: Mapping[str, Any], folder: Path) -> None:
    """Store an observed load."""
    path = folder / f"page_observation-{content['load_index']:04}.json"
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    delivered(
        collect_agent.store_files(
            collect_agent.now(), suffix=content["url"], page_observation_json=str(path)
        )
    )
    if content["status"] != "ok":
        print(
            f"observed load {content['load_index']}: {content['status']}: {content['reason']}",
            file=sys.stderr,
        )


def delivered(answer: object) -> None:
    """Raise if the collector refused: a sample must not get lost in silence."""
    if str(answer).startswith("KO"):
        raise JobError(
            f"the collector refused a sample: {answer}", "see the collector's log", status=1
        )


def measure(
    target: Target,
    runs: int,
    timeout_s: float,
    observed: int = 0,
    cpu_slowdown: float = 1.0,
    *,
    browser: str = "chromium",
    clicks: bool = False,
    keeps_logs: bool = False,
) -> bool:
    """Load the page `runs` times, one after the other, and then observed; return whether all loads
    are ok.
    """
    programs = find_programs(browser)
    all_ok = True
    with tempfile.TemporaryDirectory(prefix="satlab_page_load_records_") as folder:
        for index in range(runs):
            try:
                record = load(target, programs, index, timeout_s, cpu_slowdown, clicks=clicks)
            except Stopped:
                publish(empty_record(target, programs, index) | {"reason": "stopped"}, Path(folder))
                raise
            publish(record, Path(folder))
            all_ok = all_ok and record["status"] == "ok"
            if STOPPED.is_set():
                raise Stopped
        for index in range(observed):
            logs = Path(folder) if keeps_logs else None
            try:
                content = observe(target, programs, index, timeout_s, logs)
            except Stopped:
                record = empty_record(target, programs, index) | {"reason": "stopped"}
                publish_observation(
                    page_observation.document(record, page_observation.nothing()), Path(folder)
                )
                raise
            publish_observation(content, Path(folder))
            if logs:
                browser_logs.publish(logs, content["url"])
            all_ok = all_ok and content["status"] == "ok"
            if STOPPED.is_set():
                raise Stopped
    return all_ok


def parser() -> argparse.ArgumentParser:
    """Return the arguments; those that the descriptor names come from scenarios, the folders from
    the environment.
    """
    options = argument_parser(__doc__)
    options.add_argument(
        "protocol",
        choices=tuple(PROTOCOLS),
        help="h1: HTTP/1.1 without TLS; h2, h3: HTTP/2, HTTP/3",
    )
    options.add_argument("server_ip", type=ip_address, help="address of the server")
    options.add_argument(
        "-p", "--page", type=page_name, default="kepler", help="page to load (default: kepler)"
    )
    options.add_argument(
        "-n", "--runs", type=whole(0, 10_000), default=3, help="number of loads (default: 3)"
    )
    options.add_argument(
        "-t",
        "--timeout",
        type=real(1, 3600),
        default=33.0,
        help="deadline of a load, s (default: 33)",
    )
    options.add_argument(
        "-o",
        "--observed",
        type=whole(0, 100),
        default=0,
        help="further loads whose requests and pictures are recorded (default: 0)",
    )
    options.add_argument(
        "-c",
        "--cpu-slowdown",
        type=real(1, 20),
        default=1.0,
        help="make the browser's main thread so many times slower, but not in observed loads"
        " (default: 1)",
    )
    options.add_argument(
        "-l",
        "--logs",
        type=int,
        choices=(0, 1),
        default=0,
        help="1: also store NetLog and TLS keys of the observed loads (default: 0)",
    )
    options.add_argument(
        "-b",
        "--browser",
        choices=("chromium", "firefox"),
        default="chromium",
        help="browser (default: chromium)",
    )
    options.add_argument(
        "-i",
        "--click",
        type=int,
        choices=(0, 1),
        default=0,
        help="1: click in the middle of the page after its load event (default: 0)",
    )
    add_pages(options)
    add_certificates(options)
    return options


def stop(_number: int, _frame: FrameType | None) -> None:
    """Leave the load under way. Further signals must not disturb the clean-up."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    STOPPED.set()
    raise Stopped


def main() -> int:
    """Load and publish; the exit status is 0 when all loads are ok."""
    arguments = parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if not arguments.runs + arguments.observed:
            raise JobError("no load is asked for", "set runs or observed", status=2)
        adopt_orphans()
        target = read_target(
            arguments.page, arguments.protocol, arguments.server_ip, arguments.root, arguments.pki
        )
        if arguments.browser == "firefox" and (
            arguments.observed or arguments.cpu_slowdown > 1 or len(target.hosts) > 1
        ):
            what = (
                "firefox: observed loads, cpu_slowdown and pages of several domains need chromium"
            )
            raise JobError(what, "leave them out, or set browser=chromium", status=2)
        asked = arguments.runs, arguments.timeout, arguments.observed, arguments.cpu_slowdown
        options = {"clicks": bool(arguments.click), "keeps_logs": bool(arguments.logs)}
        return 0 if measure(target, *asked, browser=arguments.browser, **options) else 1
    except Stopped:
        remove_what_is_left()
        what = "stopped before all loads were done"
        raise JobError(what, "finished loads are kept", status=1) from None


if __name__ == "__main__":
    run_job(__file__, main)
