# SPDX-License-Identifier: GPL-3.0-or-later
"""What all commands share: the program, its options' types, one printer for errors, and the way stopping is told."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from satlab import __version__
from satlab.common.console import printable
from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.link.config import Aqm, Emulator, LossUnit, Timing
from satlab.link.options import LOSS_MODELS, QUEUES, LinkOptions

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


_LINK_OPTIONS: dict[str, Any] = {
    "profile": Profile,
    "seed": Seed,
    "loss": Loss,
    "loss_unit": LossUnits,
    "queue_bdp": QueueBdp,
    "terrestrial_delay_ms": Terrestrial,
    "emulator": EmulatorName,
    "queue": QueueLimit,
    "aqm": AqmName,
    "aqm_interval_ms": AqmInterval,
    "ecn": Ecn,
    "loss_model": LossModelText,
    "jitter_ms": JitterMs,
    "timing": TimingName,
    "timeline": TimelineFile,
    "probes": ProbesTo,
    "lan_loss": LanLoss,
    "lenient": Lenient,
}
"""What stands on the command line for each field of `LinkOptions`, whose defaults hold."""


def with_link(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Put options of a link, all or those named, in the place of a command's parameter `link: LinkOptions`."""
    defaults = LinkOptions()
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, default=getattr(defaults, name), annotation=_LINK_OPTIONS[name])
        for name in names or _LINK_OPTIONS
    ]

    def wrap(function: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(function, eval_str=True)
        shown: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            shown += options if parameter.name == "link" else [parameter.replace(kind=keyword)]

        @functools.wraps(function)
        def taking(**given: Any) -> int:
            link = LinkOptions(**{option.name: given.pop(option.name) for option in options})
            return function(link=link, **given)

        taking.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        taking.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return taking

    return wrap


def command(group: typer.Typer = app, **settings: Any) -> Callable[[Callable[..., int]], None]:
    """Register a command whose return value is the exit status, and whose expected failures become messages."""

    def register(function: Callable[..., int]) -> None:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            raise typer.Exit(status_of(lambda: function(*args, **kwargs)))

        group.command(**settings)(guarded)

    return register


def status_of(function: Callable[[], int]) -> int:
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
