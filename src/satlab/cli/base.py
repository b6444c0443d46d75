# SPDX-License-Identifier: GPL-3.0-or-later
"""Code shared by all commands: the program, options, and one printer for errors."""

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import typer.core
import typer.main

from satlab import __version__
from satlab.common import escape, plain_words
from satlab.common.console import fitting, for_tables, say
from satlab.common.errors import ConfigError, ExitStatus, SatlabError

if TYPE_CHECKING:
    from satlab.link.option_model import Group, Option, Options

WIDEST = 1000
"""Longest first sentence of a command, characters."""
Decorator = Callable[[Callable[..., int]], Callable[..., int]]


class _Light:
    """A command that does not convert absent values: for this typer imports pydantic, which takes a
    third of the time of `satlab list`.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            is_single = one.nargs != -1 and not getattr(one, "multiple", False)
            if is_single and "process_value" not in vars(one):
                one.process_value = functools.partial(_processed, one, one.process_value)
        return found


def _processed(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    if value is not None or parameter.required:
        try:
            return process(context, value)
        except typer.BadParameter as error:
            cause: Any = error.__cause__
            if hasattr(cause, "errors"):  # pydantic's
                reason, remedy = plain_words.of_fault(cause.errors()[0])
                reason = reason.removesuffix(".")
                error.message = f"{reason}: {remedy}." if remedy else f"{reason}."
            raise
    return parameter.callback(context, parameter, None) if parameter.callback else None


class _Program(_Light, typer.core.TyperGroup):
    """The program. Its own help and errors are plain text: rich takes more time than all the rest."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"rich_markup_mode": None})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the whole first sentence of each command; typer would cut it to one line."""
        shown = {name: each for name, each in self.commands.items() if not each.hidden}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(WIDEST)) for name, each in shown.items()]
            )


app = typer.Typer(
    cls=_Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "A satellite path on one host: OpenBACH scenarios over an emulated DVB-S2/RCS2 link,"
        " measured and calibrated."
    ),
    epilog=(
        "Exit status: 0 done, 1 failed, 2 usage or configuration, 3 host cannot, 4 out of"
        " calibration, 5 unsupported, 6 undecided, 130 stopped."
    ),
)

OUTPUT: "Group" = "Output"


def _is_folder(folder: Path | None) -> Path | None:
    """Refuse a number where a folder is meant: other commands count with the same option."""
    if folder is not None and folder.name.isdecimal() and not folder.exists():
        raise typer.BadParameter(f"here it is a folder, and there is no folder {folder.name}")
    return folder


Runs = Annotated[
    Path,
    typer.Option(
        "--runs",
        help="Folder in which run folders are made.",
        rich_help_panel=OUTPUT,
        callback=_is_folder,
    ),
]
LabName = Annotated[
    str, typer.Option("--lab", "-l", help="Name of the lab. Several labs can be up at once.")
]
Records = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the summary records as JSON lines on stdout.", rich_help_panel=OUTPUT
    ),
]
RecordsCsv = Annotated[
    bool,
    typer.Option(
        "--csv", help="Print the summary records as CSV on stdout.", rich_help_panel=OUTPUT
    ),
]
Jobs = Annotated[
    Path | None,
    typer.Option(
        help=(
            "Folder of jobs that satlab does not ship, for example those of OpenBACH. A field that"
            " OpenBACH ignores gives a warning."
        ),
        envvar="SATLAB_JOBS",
        resolve_path=True,
        callback=_is_folder,
    ),
]
Privileges = Annotated[
    Path | None,
    typer.Option(
        help=(
            "YAML file that grants capabilities to jobs that satlab does not ship, for example"
            " {fping: [net_raw]}."
        ),
        envvar="SATLAB_PRIVILEGES",
    ),
]
WaitQuiet = Annotated[
    float,
    typer.Option(
        "--wait-quiet",
        metavar="<s>",
        help="Before a measurement, wait up to this long until no process waits for a core.",
        min=0,
        max=86400,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        help="Repeat a run that is out of calibration up to this many times.", min=0, max=100
    ),
]
RateOnce = Annotated[
    bool,
    typer.Option(
        "--rate-once",
        help="Measure rate and losses of equal links on this host only once in half an hour.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only errors.", rich_help_panel=OUTPUT)
]


def link_options(*names: str) -> Decorator:
    """Return `with_options` for the options of a link."""
    from satlab.link.options import LinkOptions

    return with_options(LinkOptions, *names)


def with_options(model: "type[Options]", *names: str) -> Decorator:
    """Replace the command's parameter of type `model` by command-line options.

    `names` selects fields of the model. Without names every field becomes an option.
    """
    from satlab.link.option_model import options_of

    options = {
        option.name: option for option in options_of(model) if not names or option.name in names
    }
    parameters = [_parameter(option) for option in options.values()]

    def wrap(function: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(function)
        (target,) = (
            name
            for name, parameter in signature.parameters.items()
            if parameter.annotation in (model, model.__name__)
        )
        shown: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            shown += parameters if name == target else [keyword]

        @functools.wraps(function)
        def call(**given: Any) -> int:
            chosen = model.of(**{name: given.pop(name) for name in options})
            return function(**given, **{target: chosen})

        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return call

    return wrap


def _parameter(option: "Option") -> inspect.Parameter:
    """Return the parameter from which typer makes the option.

    The model checks the limits of all options together, so typer gets none.
    """
    metavar = option.help.unit or option.help.metavar
    flags = [option.flag, *([f"-{option.help.short}"] if option.help.short else [])]
    is_number = float in (option.kind, *get_args(option.kind))
    info = typer.Option(
        *flags,
        parser=_number(option.help.unit) if is_number else None,
        help=option.text,
        metavar=f"<{metavar}>" if metavar else None,
        rich_help_panel=option.help.group,
        show_default=option.default is not None,
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        option.name, keyword, default=option.default, annotation=Annotated[option.kind, info]
    )


def _number(unit: str) -> Callable[[str], float]:
    """Return the reader of a number in `unit`."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            correct = plain_words.correct_number(text, unit)
            remedy = f": write {correct}" if correct else f", in {unit}" if unit else ""
            raise typer.BadParameter(f"{text!r} is not a number{remedy}.") from None

    return number


def command(
    group: typer.Typer = app,
    *,
    name: str | None = None,
    options: Callable[[], Decorator] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., int]], None]:
    """Register a command.

    Its return value is the exit status. A SatlabError is printed as a message. `options` returns
    the `with_options` of its options; it is called when these are needed, as it imports models.
    """

    def register(function: Callable[..., int]) -> None:
        def made() -> Any:
            whole = options()(function) if options else function

            @functools.wraps(whole)
            def guarded(*args: Any, **kwargs: Any) -> None:
                raise typer.Exit(status_of(lambda: whole(*args, **kwargs)))

            alone = typer.Typer(add_completion=False)
            alone.command()(guarded)
            return typer.main.get_command(alone)

        class Late(_Late):
            make = staticmethod(made)

        group.command(
            name or function.__name__.replace("_", "-"),
            cls=Late,
            help=function.__doc__,
            **settings,
        )(lambda: None)

    return register


class _Late(_Light, typer.core.TyperCommand):
    """A command whose parameters and function `make` adds when they are needed: a command does not
    import what only others need.
    """

    make: Callable[[], Any]

    @functools.cached_property
    def whole(self) -> Any:
        return self.make()

    @property
    def params(self) -> Any:
        return self.whole.params

    @params.setter
    def params(self, none: Any) -> None:
        """Ignore those of the function that typer was given: it has none."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Take an unknown option that is an argument of a scenario for one."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown = getattr(error, "option_name", "").removeprefix("--")
            if hasattr(error, "possibilities") and self.name == "run" and _is_argument(unknown):
                error.possibilities = [f"--set {unknown}=VALUE"]
            raise

    def invoke(self, ctx: Any) -> Any:
        self.callback = self.whole.callback
        return super().invoke(ctx)


def _is_argument(name: str) -> bool:
    """Return whether a shipped scenario has an argument of this name."""
    from satlab.run import catalog

    texts = catalog.shipped("scenarios").values()
    return any(re.search(rf"[\[ ]{re.escape(name)}=", text) for text in texts)


def status_of(function: Callable[[], int]) -> int:
    """Run a command. Print an expected failure with its hint, and return its exit status."""
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
        hint = "check free space and permissions, then run the same command again"
        if isinstance(error, FileNotFoundError) and error.filename:
            folder = Path(os.fsdecode(error.filename)).parent
            if not folder.is_dir():
                what, hint = f"{folder}: no such folder", "make it, then run the same command again"
        report_error(SatlabError(what, hint))
        return ExitStatus.HOST


def report_error(error: SatlabError) -> None:
    """Print an error, each of its faults, and its hint."""
    print(f"error: {escape.visible(str(error))}", file=sys.stderr)
    for fault in error.faults if isinstance(error, ConfigError) else ():
        print(f"  {escape.visible(str(fault))}", file=sys.stderr)
    if error.hint:
        print(f"hint: {escape.visible(error.hint)}", file=sys.stderr)


def print_json_lines(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as JSON lines on stdout."""
    for row in rows:
        say(json.dumps(row, allow_nan=False))


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE pairs."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"--set {pair}: not NAME=VALUE", hint="for example: --set duration=15"
            )
        settings[name] = value
    return settings


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Define the options that are valid without a command."""
    if version:
        print(f"satlab {__version__}")
        raise typer.Exit


def print_reason(folder: Path, reason: str) -> None:
    """Print on stderr why a run did not end well, and the logs that the reason names."""
    if reason:
        print(escape.lines(f"{folder.name}: {reason}"), file=sys.stderr)
    for path in named_logs(reason, folder):
        print(escape.lines(f"log of the job that failed: {path}"), file=sys.stderr)


def named_logs(reason: str, folder: Path) -> list[Path]:
    """Return the absolute paths of the logs that the reason of a failed run mentions."""
    names = dict.fromkeys(re.findall(r"\blogs/([\w.-]+\.log)\b", reason))
    return [folder.resolve() / "raw" / "logs" / name for name in names]


def print_records(
    folders: list[Path],
    frames: list[Any],
    *,
    json_lines: bool,
    csv: bool,
    names: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> None:
    """Print the results of runs on stdout: tables and reports for people, JSON lines or CSV for
    programs.

    `folders` are run folders, or one report file; `names` those of several runs by id; `quiet`:
    nothing for people.
    """
    import collect
    from satlab import report

    if json_lines:
        for frame in frames:
            print_json_lines(collect.summaries(frame))
    elif csv:
        report.write_csv(frames, sys.stdout)
    elif not quiet:
        console = for_tables()
        for table in report.terminal_tables(frames, names or {}):
            console.print(fitting(table, console))
        for folder in folders:
            page = folder / "report" / "index.html"
            say(page if page.is_file() else folder)
