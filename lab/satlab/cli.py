# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line. stdout is data, stderr is talk; one printer for errors; statuses are in `errors.ExitStatus`."""

import dataclasses
import fnmatch
import functools
import getpass
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer

from satlab import __version__
from satlab.errors import ConfigError, ExitStatus, SatlabError
from satlab.linkplan import Aqm, Emulator, LossUnit, Timing
from satlab.options import LOSS_MODELS, QUEUES, LinkOptions
from satlab.ui import Talk, printable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A satellite path on one host: OpenBACH scenarios over an emulated DVB-S2/RCS2 link, measured and calibrated.",
    epilog="Exit status: 0 done, 1 failed, 2 usage or configuration, 3 host cannot, 4 out of calibration, "
    "5 unsupported, 130 stopped.",
)

Runs = Annotated[Path, typer.Option("--runs", help="Folder that run folders are made in.")]
Profile = Annotated[str, typer.Option("--profile", "-p", help="Link: geo, leo, or a folder of OpenSAND 8.2 XML.")]
LabName = Annotated[str, typer.Option("--lab", "-l", help="Name of the lab; several live side by side.")]
Seed = Annotated[int, typer.Option(help="Seed of the losses; same seed, same losses.", min=0)]
Loss = Annotated[float, typer.Option(help="Loss ratio on the satellite link, each direction, 0 to 1.", min=0, max=1)]
LossUnits = Annotated[LossUnit, typer.Option(help="What is lost at a time: packet (IP) or frame (BBFRAME, burst).")]
QueueBdp = Annotated[float, typer.Option(help="Queue limit, multiples of each direction's BDP.", min=0.001)]
QueueLimit = Annotated[
    str | None, typer.Option("--queue", help=f"Queue limit in place of --queue-bdp: {QUEUES}.", show_default=False)
]
AqmName = Annotated[Aqm | None, typer.Option(help="Active queue management; without it the queue drops at its limit.")]
AqmInterval = Annotated[
    float | None,
    typer.Option(help="Interval of codel, fq-codel, ms; at least the RTT. Default: 100.", min=0.001, max=3600000),
]
Ecn = Annotated[bool, typer.Option("--ecn", help="With --aqm: mark ECN-capable packets in place of early drops.")]
LossModelText = Annotated[
    str | None,
    typer.Option("--loss-model", help=f"A further loss process: {LOSS_MODELS}. Takes --loss-unit.", show_default=False),
]
JitterMs = Annotated[float, typer.Option(help="Jitter, ms: uniform from 0 to this, order kept.", min=0, max=3600000)]
TimingName = Annotated[
    Timing, typer.Option(help="Frames as the standards open them, or in batches on OpenSAND's ticks (10 and 26.5 ms).")
]
TimelineFile = Annotated[
    Path | None,
    typer.Option(
        help="JSON list of changes at their times, s since the lab is up; of a run, since its scenario starts.",
        show_default=False,
    ),
]
LanLoss = Annotated[
    float, typer.Option(help="Loss ratio on the client's LAN, e.g. its Wi-Fi, each direction, 0 to 1.", min=0, max=1)
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Only warn of what OpenSAND's loader takes of a profile although it is wrong.")
]
ProbesTo = Annotated[
    str | None,
    typer.Option(
        help="ADDRESS:PORT of a collector that gets the link's samples over UDP as OpenSAND's probes (its port: 5361).",
        show_default=False,
    ),
]
Terrestrial = Annotated[
    float | None, typer.Option(help="One-way delay gateway to server, ms. Default: vagrant/lab.yml.", min=0, max=10000)
]
EmulatorName = Annotated[
    Emulator,
    typer.Option(help="Who carries the satellite segment; opensand must be installed, or SATLAB_OPENSAND set."),
]
PLACEHOLDERS = "{host} {port} {name} {bytes} {path} {url} {www} {cert} {key} {ca} {out} {state}: docs/regression.md."
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def main() -> None:
    """Run the program and end with the status of its outcome."""
    from satlab.vm.cli import app as vm_app  # its commands are made with the helpers of this module

    app.add_typer(vm_app, name="vm")
    app(prog_name="satlab")


def command(group: typer.Typer = app, **settings: Any) -> Callable[[Callable[..., int]], None]:
    """Register a command whose return value is the exit status, and whose expected failures become messages."""

    def register(function: Callable[..., int]) -> None:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            raise typer.Exit(_status_of(lambda: function(*args, **kwargs)))

        group.command(**settings)(guarded)

    return register


def _status_of(function: Callable[[], int]) -> int:
    """Turn every expected failure into one message, its hint and its status."""
    try:
        return int(function())
    except SatlabError as error:
        report_error(error)
        return error.status
    except KeyboardInterrupt:
        report_error(SatlabError("interrupted"))
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        return ExitStatus.FAILED
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        report_error(SatlabError(what, "check free space and permissions, then run the same command again"))
        return ExitStatus.HOST


def report_error(error: SatlabError) -> None:
    """Print what failed with every fault, then one hint."""
    print(f"error: {printable(str(error))}", file=sys.stderr)
    for fault in error.faults if isinstance(error, ConfigError) else ():
        print(f"  {printable(str(fault))}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)


def stop_on_signal() -> threading.Event:
    """Give an event that SIGINT and SIGTERM set; a second signal interrupts at once."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        signal.signal(number, handle)

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stop


def print_json_lines(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as JSON lines on stdout."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False, allow_nan=False))


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE pairs."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {pair}: not NAME=VALUE", hint="for example: --set duration=15")
        settings[name] = value
    return settings


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    """Offer what goes without a command."""
    if version:
        print(f"satlab {__version__}")
        raise typer.Exit


def link_options(arguments: Mapping[str, Any]) -> LinkOptions:
    """Take the link's options out of a command's arguments, which bear the same names."""
    return LinkOptions(**{field.name: arguments[field.name] for field in fields(LinkOptions)})


# --- runs -----------------------------------------------------------------------------------------------------------


@command()
def run(
    scenario: Annotated[Path, typer.Argument(help="OpenBACH scenario (JSON).")],
    profile: Profile = "geo",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="NAME=VALUE: value of an argument, or another value for a constant; or the link's internet_delay_ms, "
            "satcom_delay_ms, satcom_loss_percent, satcom_attenuation_db. Repeatable.",
        ),
    ] = None,
    seed: Seed = 1,
    loss: Loss = 0.0,
    loss_unit: LossUnits = "packet",
    queue_bdp: QueueBdp = 1.2,
    terrestrial_delay_ms: Terrestrial = None,
    emulator: EmulatorName = "satlink",
    queue: QueueLimit = None,
    aqm: AqmName = None,
    aqm_interval_ms: AqmInterval = None,
    ecn: Ecn = False,
    loss_model: LossModelText = None,
    jitter_ms: JitterMs = 0.0,
    timing: TimingName = "standard",
    timeline: TimelineFile = None,
    probes: ProbesTo = None,
    lan_loss: LanLoss = 0.0,
    lenient: Lenient = False,
    deadline: Annotated[float, typer.Option(help="The scenario is stopped after this many seconds.", min=1)] = 900.0,
    runs: Runs = Path("runs"),
    json_lines: Annotated[bool, typer.Option("--json", help="Summary records as JSON lines on stdout.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Summary records as CSV on stdout.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, touch nothing.")
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave the HTML report out.")] = False,
    influx: Annotated[
        str | None,
        typer.Option(envvar="SATLAB_INFLUX", help="Send statistics to this InfluxDB 1.x, too: http://HOST:8086/DB."),
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Run one scenario in a fresh lab: calibrate, measure, collect, report."""
    chosen = link_options(locals())
    from satlab import run as running
    from satlab import testbed

    bed = testbed.choose(settings_of(settings or ()), chosen)
    request = running.RunRequest(
        scenario=scenario,
        link=bed.link,
        settings=bed.settings,
        at_start=bed.at_start,
        runs=runs,
        deadline_s=deadline,
        report=not no_report,
        influx=influx,
    )
    prepared = running.prepare(request)
    if dry_run:
        print(json.dumps(prepared.document(), indent=1))
        return ExitStatus.OK
    outcome = running.execute(prepared, Talk(quiet), stop_on_signal())
    print_records([outcome.folder], [outcome.records], json_lines=json_lines, csv=csv)
    return outcome.status


def print_records(folders: list[Path], frames: list[Any], *, json_lines: bool, csv: bool) -> None:
    """Print what a run found on stdout: a table for people, JSON lines or CSV for programs."""
    import collect
    from satlab import report

    if json_lines:
        for frame in frames:
            print_json_lines(collect.summaries(frame))
    elif csv:
        report.write_csv(frames, sys.stdout)
    else:
        from rich.console import Console

        console = Console()
        for table in report.terminal_tables(frames):
            console.print(table)
        for folder in folders:
            print(folder)


@command()
def demo(
    profile: Profile = "geo",
    duration: Annotated[float, typer.Option(help="Length of the TCP download, s.", min=5, max=300)] = 15,
    loads: Annotated[int, typer.Option(help="Page loads per protocol.", min=1, max=50)] = 3,
    runs: Runs = Path("runs"),
    json_lines: Annotated[bool, typer.Option("--json", help="Summary records as JSON lines on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Measure TCP goodput and page loads over HTTP/1.1 and HTTP/3, and show table and report. About three minutes."""
    from satlab import demo as demonstration

    show = demonstration.Demo(profile=profile, duration_s=duration, loads=loads, runs=runs)
    return show.run(Talk(quiet), stop_on_signal(), lambda f, r: print_records(f, r, json_lines=json_lines, csv=False))


@command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option(help="HTML file. Default: report/index.html of the first run.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Summary records as JSON lines on stdout.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Summary records as CSV on stdout.")] = False,
) -> int:
    """Rebuild records and report from raw files; several runs side by side."""
    from satlab import rebuild

    frames, path = rebuild.rebuild(folders, out, Talk())
    print_records([path], frames, json_lines=json_lines, csv=csv)
    return ExitStatus.OK


@command()
def reproduce(
    paper: Annotated[Literal["seed-002"], typer.Argument(help="seed-002: Kosek et al., IFIP Networking 2022.")],
    runs: Annotated[int | None, typer.Option(help="Runs of each cell. Default: 10.", min=1, max=10000)] = None,
    cells: Annotated[
        str | None, typer.Option(help="ORBIT/LOSS/TYPE,... with * for any: geo/0/h1,leo/*/quic*. Default: all 64.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Folder of an earlier campaign: do what is left of it.")] = None,
    parallel: Annotated[
        str, typer.Option(help="Labs at once: a number, or auto: as many as calibration bears.")
    ] = "auto",
    out: Annotated[Path, typer.Option(help="Folder that the campaign's folder is made in.")] = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, touch nothing.")
    ] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="The results as JSON on stdout.")] = False,
) -> int:
    """Repeat a paper's evaluation, each run in a fresh lab, and show its tables beside ours."""
    from satlab.reproduce import program, tables

    del paper
    chosen = None if cells is None else [pattern.strip() for pattern in cells.split(",")]
    execution, talk = program.prepare(program.Wanted(runs, chosen, resume, parallel, out))
    if dry_run:
        print(program.plan(execution))
        return ExitStatus.OK
    found, status = program.execute(execution, talk, stop_on_signal())
    if json_lines:
        print(json.dumps(tables.document(found)))
    else:
        tables.show(found)
    return status


@command(name="check")
def check_suite(
    suite: Annotated[str, typer.Option(help="Name of a suite in baselines/.")] = "etosat",
    cases: Annotated[str | None, typer.Option(help="ID,ID,... of the suite. Default: all.")] = None,
    clock: Annotated[
        Literal["virtual", "real"],
        typer.Option(help="virtual: quinn-proto and the link model, stepped; real: programs over a lab (root)."),
    ] = "virtual",
    stack: Annotated[
        Literal["quinn", "quiche", "ngtcp2"],
        typer.Option(help="With --clock real: satperf with a library of its own, or a pair of Debian's."),
    ] = "quinn",
    client_cmd: Annotated[
        str | None,
        typer.Option(
            help="Your client's command, split as by a shell. In it and in --server-cmd stand " + PLACEHOLDERS
        ),
    ] = None,
    server_cmd: Annotated[str | None, typer.Option(help="Your server's; both imply --clock real.")] = None,
    show: Annotated[
        list[Path] | None, typer.Option(help="A file or folder that your programs need to read; repeatable.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(help="Samples of each case. Default: 5, more while a verdict is open.", min=1, max=1000),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first sample, the next ones follow.", min=0)] = 1,
    client: Annotated[
        list[str] | None, typer.Option(help="Option of the client's end, NAME=VALUE as in satperf; repeatable.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="Option of the server's end, likewise.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="check.json of an earlier check: is this build slower?")] = None,
    tolerance: Annotated[float, typer.Option(help="With --baseline: slowdown that nobody minds.", min=0, max=1)] = 0.03,
    out: Annotated[Path, typer.Option(help="Folder that the check's folder is made in.")] = Path("runs"),
    junit: Annotated[Path | None, typer.Option(help="JUnit XML file for a build server.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Markdown file for a pull request.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Check QUIC over satellite links against targets, or against an earlier build; 1 when one is missed."""
    from satlab import hand
    from satlab.regress import output, outside, page, program

    wanted = program.Wanted(
        suite, [] if cases is None else cases.split(","), runs, seed,
        program.options(client or []), program.options(server or []), baseline, tolerance, out,
        clock=clock, stack=stack,
    )  # fmt: skip
    if client_cmd or server_cmd:
        wanted = dataclasses.replace(wanted, clock="real", ends=outside.parse(client_cmd, server_cmd, show or ()))
    if wanted.clock == "real":
        hand.need_root()
        wanted = dataclasses.replace(wanted, stop=stop_on_signal())
    found = program.run(wanted, Talk(quiet))
    page.write(found)
    for file, text in ((junit, output.junit), (markdown, output.markdown)):
        if file is not None:
            file.write_text(text(found))
    if json_lines:
        print(json.dumps(found.document()))
    else:
        output.show(found)
    return found.status


@command()
def influx(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    to: Annotated[str, typer.Option(envvar="SATLAB_INFLUX", help="http://[user:password@]host[:8086][/database]")],
) -> int:
    """Send the statistics of runs to an InfluxDB 1.x; sending them twice changes nothing."""
    from satlab import influx as database

    print(f"{database.send(folders, to)} points")
    return ExitStatus.OK


@command()
def validate(
    paths: Annotated[
        list[Path], typer.Argument(help="Profiles, scenarios, time lines, jobs, pages, folders of these, lab.yml.")
    ],
    lenient: Lenient = False,
) -> int:
    """Check files without touching anything; every fault is printed."""
    from satlab import check

    talk = Talk()

    def checked(path: Path) -> int:
        for warning in check.check(path, lenient=lenient):
            talk.line(warning)
        talk.line(f"{path}: ok")
        return ExitStatus.OK

    return max([_status_of(functools.partial(checked, path)) for path in paths])


# --- service --------------------------------------------------------------------------------------------------------


@command()
def serve(
    listen: Annotated[str, typer.Option(help="Address and port; others than this host need --public.")] = (
        "127.0.0.1:8000"
    ),
    socket: Annotated[Path | None, typer.Option(help="Unix socket in place of an address.")] = None,
    state: Annotated[Path, typer.Option(help="Folder of accounts, queue and run folders.")] = Path("/var/lib/satlab"),
    public: Annotated[
        str | None, typer.Option(help="Serve others, who call the service by this host name; needs TLS and accounts.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    set_password: Annotated[
        str | None, typer.Option(metavar="LOGIN", help="Make an account or change its password, and end.")
    ] = None,
    role: Annotated[
        Literal["viewer", "runner", "admin"], typer.Option(help="With --set-password: what the account may do.")
    ] = "runner",
    quiet: Quiet = False,
) -> int:
    """Serve OpenBACH's REST API and the web pages; scenarios queue for the machine."""
    from satlab.serve import supervisor
    from satlab.serve.accounts import Role

    if set_password is not None:
        password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
        supervisor.set_password(state, set_password, Role[role.upper()], password)
        return ExitStatus.OK
    supervisor.run(supervisor.Wish(listen, socket, state, public, tls_cert, tls_key), Talk(quiet), stop_on_signal())
    return ExitStatus.OK


# --- the lab by hand ------------------------------------------------------------------------------------------------


@command()
def up(
    profile: Profile = "geo",
    lab: LabName = "lab",
    seed: Seed = 1,
    loss: Loss = 0.0,
    loss_unit: LossUnits = "packet",
    queue_bdp: QueueBdp = 1.2,
    terrestrial_delay_ms: Terrestrial = None,
    emulator: EmulatorName = "satlink",
    queue: QueueLimit = None,
    aqm: AqmName = None,
    aqm_interval_ms: AqmInterval = None,
    ecn: Ecn = False,
    loss_model: LossModelText = None,
    jitter_ms: JitterMs = 0.0,
    timing: TimingName = "standard",
    timeline: TimelineFile = None,
    probes: ProbesTo = None,
    lan_loss: LanLoss = 0.0,
    lenient: Lenient = False,
    quiet: Quiet = False,
) -> int:
    """Bring a lab up and leave it up. Doing it twice changes nothing."""
    chosen = link_options(locals())
    from satlab import hand

    hand.up(lab, chosen, Talk(quiet))
    return ExitStatus.OK


@command()
def status(
    lab: Annotated[str | None, typer.Option("--lab", "-l", help="Only this lab.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON line per lab.")] = False,
) -> int:
    """Show the labs that are up. Exit status 1 when a lab is broken or the one asked for is not there."""
    from satlab import hand

    return hand.status(lab, json_lines=json_lines)


@command()
def down(
    lab: LabName = "lab",
    every: Annotated[bool, typer.Option("--all", help="Every lab, also those of killed runs.")] = False,
    quiet: Quiet = False,
) -> int:
    """Take a lab down and leave nothing behind."""
    from satlab import hand

    hand.down(None if every else lab, Talk(quiet))
    return ExitStatus.OK


@command(context_settings={"ignore_unknown_options": True})
def shell(
    node: Annotated[str, typer.Argument(help="Node: client, proxy-st, st, sat, gw, proxy-gw, server.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command after `--`. Default: your shell.")] = None,
    lab: LabName = "lab",
) -> int:
    """Run a shell or one command inside a node."""
    from satlab import hand

    return subprocess.run(hand.enter(lab, node, command or []), check=False).returncode


# --- a link that runs -----------------------------------------------------------------------------------------------

link_app = typer.Typer(no_args_is_help=True, help="Change or show the link of a lab that is up.")
app.add_typer(link_app, name="link")
LinkDirection = Literal["forward", "return", "both", "terrestrial_down", "terrestrial_up"]


@command(group=link_app, name="set")
def link_set(
    direction: Annotated[LinkDirection, typer.Argument(help="Which direction; both: forward and return.")],
    lab: LabName = "lab",
    delay_ms: Annotated[float | None, typer.Option(help="One-way delay, ms.", min=0, max=10000)] = None,
    loss: Annotated[
        float | None, typer.Option(help="Loss ratio, 0 to 1, in place of all losses.", min=0, max=1)
    ] = None,
    loss_model: LossModelText = None,
    loss_unit: LossUnits = "packet",
    jitter_ms: Annotated[float | None, typer.Option(help="Jitter, ms: uniform from 0.", min=0, max=3600000)] = None,
    attenuation_db: Annotated[
        float | None, typer.Option(help="Taken off the Es/N0, dB, beyond what the profile takes.", min=0, max=100)
    ] = None,
    modcod: Annotated[
        str | None, typer.Option(help="forward: MODCOD of EN 302 307-1 that stays, 1 to 28; or acm.")
    ] = None,
    symbol_rate_baud: Annotated[
        float | None, typer.Option(help="Symbols per second, e.g. 10e6; the MODCOD stays.", min=1, max=1e10)
    ] = None,
    handover: Annotated[
        Literal["keep", "flush", "drop"] | None,
        typer.Option(
            help="Another link, with the delay, symbol rate and queue given, takes over at once; what waits moves to "
            "it, leaves with the old one, or is dropped."
        ),
    ] = None,
    outage: Annotated[str | None, typer.Option(help="on, off, or seconds after which it ends.")] = None,
    queue: QueueLimit = None,
    aqm: AqmName = None,
    aqm_interval_ms: AqmInterval = None,
    ecn: Ecn = False,
) -> int:
    """Change the link of a lab while it runs; the change stands in link.jsonl."""
    from satlab import hand

    options = LinkOptions(
        loss=loss or 0.0,
        loss_unit=loss_unit,
        loss_model=loss_model,
        queue=queue,
        aqm=aqm,
        aqm_interval_ms=aqm_interval_ms,
        ecn=ecn,
    )
    wanted = hand.Wanted(delay_ms, loss, jitter_ms, outage, attenuation_db, modcod, symbol_rate_baud, handover)
    hand.set_link(lab, direction, options, wanted)
    return ExitStatus.OK


@command(group=link_app, name="show")
def link_show(
    lab: LabName = "lab",
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON line.")] = False,
) -> int:
    """Show what holds on the link of a lab now."""
    from satlab import hand

    hand.show_link(lab, json_lines=json_lines)
    return ExitStatus.OK


@command(group=link_app, name="metrics")
def link_metrics(lab: LabName = "lab") -> int:
    """Print the last sample of the link in Prometheus' text format."""
    from satlab import hand

    hand.print_metrics(lab)
    return ExitStatus.OK


# --- benchmarks -----------------------------------------------------------------------------------------------------

bench_app = typer.Typer(no_args_is_help=True, help="Measure what this host can do.")
app.add_typer(bench_app, name="bench")


@command(group=bench_app)
def link(
    seconds: Annotated[float, typer.Option(help="How long each rate is held.", min=1, max=600)] = 30,
    rate_mbps: Annotated[
        list[float] | None, typer.Option(help="Forward rate, Mbit/s; repeatable. Default: 20, 250 and 1000.", min=20)
    ] = None,
    labs: Annotated[int, typer.Option(help="Then so many labs of 20 Mbit/s at once; 0: none.", min=0, max=64)] = 0,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Measure rate, CPU, release error, RTT and memory of the emulated link, beside a plain TUN copy."""
    from satlab import bench

    result = bench.link(seconds, labs, tuple(rate_mbps or bench.RATES_MBPS), Talk(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else bench.lines(result):
        print(line)
    return ExitStatus.OK


@command(group=bench_app)
def quic(
    slow: Annotated[bool, typer.Option(help="Also what takes an hour: Reno and CUBIC with 1 % of loss.")] = False,
    case: Annotated[str, typer.Option(help="Only cases whose names match, say '*reno*pep*'.")] = "*",
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Measure satperf over a veth pair and over 250 Mbit/s at 650 ms, for every stack and congestion control."""
    from satlab import bench_quic

    wanted = [one for one in bench_quic.CASES if (slow or not one.slow) and fnmatch.fnmatch(one.name, case)]
    result = bench_quic.quic(wanted, Talk(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else bench_quic.lines(result):
        print(line)
    return ExitStatus.OK


@command(group=bench_app, name="check")
def bench_check(
    comparisons: Annotated[int, typer.Option(help="Of equal builds, and of a slower one.", min=1, max=10000)] = 100,
    slowdown: Annotated[
        float, typer.Option(help="Of the slower build, as a share of the time.", min=0.01, max=1)
    ] = 0.1,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Count false alarms of `satlab check --baseline`, and slowdowns that it catches, under the virtual clock."""
    from satlab.regress import power

    found = power.measure(comparisons, slowdown, Talk(quiet))
    if json_lines:
        print(json.dumps(found))
    else:
        caught = ", ".join(f"{case} {count}" for case, count in found["caught"].items())
        print(f"of {comparisons}: false alarms {found['false_alarms']}; caught {caught}; {found['real_s']} s")
    return ExitStatus.OK


@command(group=bench_app, name="agree")
def bench_agree(
    suite: Annotated[str, typer.Option(help="Name of a suite in baselines/.")] = "etosat",
    cases: Annotated[str | None, typer.Option(help="ID,ID,... of the suite. Default: all without losses.")] = None,
    up_to_mb: Annotated[float, typer.Option(help="Transfer no more than the marks up to this.", min=0.001)] = 100,
    runs: Annotated[int, typer.Option(help="Samples of each clock.", min=1, max=100)] = 1,
    json_lines: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
    quiet: Quiet = False,
) -> int:
    """Compare the virtual clock with a real lab: quinn over the same links, time to each mark; 1 when they differ."""
    from satlab import hand
    from satlab.regress import agree

    hand.need_root()
    result = agree.measure(suite, [] if cases is None else cases.split(","), up_to_mb, runs, Talk(quiet))
    for line in [json.dumps(result, indent=1)] if json_lines else agree.lines(result):
        print(line)
    return ExitStatus.OK if result["agree"] else ExitStatus.FAILED
