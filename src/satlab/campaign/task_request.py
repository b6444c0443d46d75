# SPDX-License-Identifier: GPL-3.0-or-later
"""The request of a task to a host. Requests are typed, and the host makes the command itself.

A remote host accepts `Run`, `Check` and `Flows`. These name parts that ship with satlab, bounded
values, or a whole file of flows; they cannot name a command line, an output, a program, a file or
an address. `LocalRun` may name files and addresses of the campaign's user. It runs only on hosts
with that user's files, never over ssh or in a pod.
"""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_serializer

from satlab.check import suite as suites
from satlab.common import paths
from satlab.common.errors import ConfigError, Fault
from satlab.link import testbed_parameters
from satlab.link.config import Bursts, GilbertElliott, Loss, Queue
from satlab.link.option_model import options_of
from satlab.link.options import LinkOptions
from satlab.service.root_helper.protocol import RunLink

FLOWS = "flows.json"
"""File of a request's flows in the attempt's folder."""
WORD = (
    r"(-?[0-9]{1,18}(\.[0-9]{1,18})?(e[+-]?[0-9]{1,3})?[A-Za-z%]{0,8}"
    r"|[A-Za-z][A-Za-z0-9_-]{0,63}"
    r"|[0-9]{1,6}(,[0-9]{1,6}){1,7})"
)
"""A value of a scenario: a number with or without its unit, a name, or numbers with commas; no
path, address, URL.
"""
Rule = Literal["run", "check", "flows"]
Clock = Literal["virtual", "real"]
Lab = Literal["netns", "virtual"]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
ValueName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Word = Annotated[str, Field(pattern=rf"^{WORD}$")]
Seconds = Annotated[float, Field(ge=0, le=10_000)]
Rate = Annotated[float, Field(ge=0.001, le=100_000)]
Delay = Annotated[float, Field(ge=0, le=10_000)]
OneLoss = Loss | GilbertElliott | Bursts
Losses = OneLoss | Annotated[tuple[OneLoss, ...], Field(max_length=16)]


class Strict(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _OfLink(Strict):
    """A run over a link, in a lab of network namespaces."""

    rule: ClassVar[Rule] = "run"
    lab: ClassVar[Lab] = "netns"
    link: Any

    @field_serializer("link")
    def _sparse(self, link: LinkOptions | RunLink) -> dict[str, Any]:
        return link.model_dump(mode="json", exclude_defaults=True)

    @property
    def seed(self) -> int:
        """Return the seed of losses and jitter."""
        seed: int = self.link.seed
        return seed

    def with_seed(self, seed: int) -> Self:
        """Return a copy of the request with another seed."""
        return self.model_copy(update={"link": self.link.model_copy(update={"seed": seed})})


class _OnClock(Strict):
    """A request for either clock; on the real clock it needs a lab."""

    clock: Clock = "virtual"

    @property
    def lab(self) -> Lab:
        """Return the kind of lab that the request needs: network namespaces, or the virtual clock."""
        return "netns" if self.clock == "real" else "virtual"


class Run(_OfLink):
    """`satlab run` of a shipped scenario over a shipped profile. `values` are those of `--set`."""

    verb: Literal["run"]
    scenario: Name
    link: RunLink
    values: Annotated[dict[ValueName, Word], Field(max_length=100)] = {}

    def words(self) -> list[str]:
        """Return the command.

        Raises ConfigError if the host has no such scenario or profile, or a value must not be set.
        """
        document = shipped_scenario(self.scenario)
        faults = [
            Fault(
                f"values.{name}",
                "cannot be set: not of the scenario, or an address",
                "leave it out",
            )
            for name in self.values
            if name not in _settable(document)
        ]
        if self.link.profile not in paths.shipped_profiles():
            faults.append(Fault("link.profile", f"{self.link.profile} does not ship with satlab"))
        if faults:
            raise ConfigError(f"the run of {self.scenario} cannot be done", faults)
        return _run_words(self.scenario, self.link.options(), self.values)


class LocalRun(_OfLink):
    """`satlab run` with files or addresses of the campaign's user. `names` are the fields that have
    such a file or address.

    Paths of files are absolute. Such a task runs only on hosts that have the user's files: this
    host, or nodes of Slurm.
    """

    verb: Literal["run-here"]
    names: Annotated[
        tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1, max_length=200)
    ]
    scenario: Annotated[str, Field(pattern=r"^[^-\x00][^\x00]{0,4095}$")]
    link: LinkOptions
    values: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=1000)
    ] = {}

    def words(self) -> list[str]:
        """Return the command."""
        return _run_words(self.scenario, self.link, self.values)


class Check(_OnClock):
    """One sample of `satlab check`, of one case of a shipped suite."""

    rule: ClassVar[Rule] = "check"
    verb: Literal["check"]
    suite: Name
    case: Name
    stack: Literal["quinn", "quiche", "ngtcp2", "tcp-pep"] = "quinn"
    seed: Seed

    def words(self) -> list[str]:
        """Return the command. Raises ConfigError when the host has no such suite or case."""
        if self.case not in _cases(self.suite):
            raise ConfigError(f"{self.suite} has no case {self.case}", hint="satlab list suites")
        stack = ["--stack", self.stack] if self.clock == "real" else []
        words = ["satlab", "check", "--suite", self.suite, "--cases", self.case]
        words += ["--clock", self.clock, *stack, "--runs", "1", "--seed", str(self.seed)]
        return [*words, "--out", ".", "--json", "--quiet"]


class Half(Strict):
    """One direction of a wire."""

    rate_mbps: Rate
    delay_ms: Delay
    queue: Queue
    header_bytes: int = Field(default=0, ge=0, le=255)
    loss: Losses = Loss()


class Step(Strict):
    """Changes of one moment."""

    at_s: Seconds
    direction: Literal["forward", "return", "both"]
    rate_mbps: Rate | None = None
    delay_ms: Delay | None = None
    queue: Queue | None = None
    loss: Losses | None = None
    outage_s: Seconds | None = None
    waiting: Literal["keep", "flush", "drop"] | None = None


class Wire(Strict):
    """The link of flows."""

    forward: Half
    return_: Half = Field(alias="return")
    timeline: Annotated[tuple[Step, ...], Field(max_length=10_000)] = ()


class Fec(Strict):
    """A tunnel that repairs losses."""

    code: Annotated[str, Field(pattern=r"^(none|adaptive|[0-9]{1,4},[0-9]{1,4})$")]
    hold_ms: int = Field(ge=0, le=10_000)


class Saved(Strict):
    """What an earlier connection learned."""

    cwnd_bytes: int = Field(ge=2400, le=1 << 32)
    rtt_ms: float = Field(ge=0.001, le=60_000)


FlowId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$")]


class Flow(Strict):
    """One flow."""

    id: FlowId
    group: FlowId = "all"
    from_: Name = Field(alias="from")
    to: Name
    stack: Literal["quinn", "noq", "udp", "quiche", "ngtcp2", "picoquic", "tcp"]
    congestion_control: Literal["reno", "cubic", "bbr", "bbr2", "bbr3"] | None = None
    start_s: Seconds
    stop_s: Seconds | None = None
    bytes: int | None = Field(default=None, ge=1, le=10_000_000_000)
    rate_mbps: Rate | None = None
    datagram_bytes: int | None = Field(default=None, ge=1200, le=1472)
    ack_threshold: int | None = Field(default=None, ge=1, le=1_000_000)
    max_ack_delay_ms: int | None = Field(default=None, ge=1, le=16_000)
    initial_window: int | None = Field(default=None, ge=1, le=10_000)
    slow_start: Literal["standard", "search"] | None = None
    careful_resume: Literal["off", "on", "unvalidated"] | None = None
    saved: Saved | None = None
    migrate_s: Annotated[tuple[Seconds, ...], Field(max_length=1000)] | None = None
    window_bytes: int | None = Field(default=None, ge=65_536, le=1 << 32)


class FlowsFile(Strict):
    """A file of flows (schemas/virtual-flows.schema.json) that names no other file: without `link`
    and traces.
    """

    schema_: Literal["satlab/virtual-flows/1"] = Field(alias="schema")
    seed: int = Field(ge=0, lt=1 << 32)
    duration_s: float = Field(gt=0, le=10_000)
    bin_ms: int = Field(default=100, ge=10, le=10_000)
    host_latency_us: int = Field(default=0, ge=0, le=100_000)
    wire: Wire
    fec: Fec | None = None
    tcp_hystart: bool | None = None
    phases_s: Annotated[tuple[Seconds, ...], Field(max_length=1000)] = ()
    flows: Annotated[tuple[Flow, ...], Field(min_length=1, max_length=256)]


def _flows_file(content: dict[str, Any]) -> dict[str, Any]:
    FlowsFile.model_validate_json(json.dumps(content))
    return content


class Flows(_OnClock):
    """All flows of a file (`FlowsFile`) on one clock."""

    rule: ClassVar[Rule] = "flows"
    verb: Literal["flows"]
    flows: Annotated[dict[str, Any], AfterValidator(_flows_file)]

    @property
    def seed(self) -> int:
        """Return the seed of the flows."""
        seed: int = self.flows["seed"]
        return seed

    def words(self) -> list[str]:
        """Return the command; it reads FLOWS in its folder."""
        if self.clock == "virtual":
            return ["satvirtual", "flows", FLOWS]
        return ["satlab", "flows", FLOWS, "--clock", "real", "--runs", ".", "--json", "--quiet"]


Portable = Annotated[Run | Check | Flows, Field(discriminator="verb")]
"""The requests that any host accepts."""
AnyRequest = Run | LocalRun | Check | Flows
Request = Annotated[AnyRequest, Field(discriminator="verb")]
"""The requests that a plan can hold."""


def files(request: AnyRequest) -> dict[str, Any]:
    """Return the JSON documents that the command reads in its folder, by name."""
    return {FLOWS: request.flows} if isinstance(request, Flows) else {}


def of_run(scenario: Path, link: LinkOptions, values: Mapping[str, str]) -> Run | LocalRun:
    """Return the request of a run: for any host, unless the run names files or addresses of this
    host's user.
    """
    given = {
        option.name: getattr(link, option.name)
        for option in options_of(LinkOptions)
        if getattr(link, option.name) != option.default
    }
    is_shipped = scenario.parent == paths.SCENARIOS
    names = [] if is_shipped else ["scenario"]
    names += [] if link.profile in paths.shipped_profiles() else ["profile"]
    if is_shipped:
        names += [
            f"values.{name}"
            for name in values
            if name not in _settable(shipped_scenario(scenario.stem))
        ]
    try:
        found = Run.model_validate(
            {"verb": "run", "scenario": scenario.stem, "link": given, "values": dict(values)}
        )
        if not names:
            return found
    except ValidationError as error:
        names += [
            ".".join(map(str, fault["loc"])).replace("link.", "options.")
            for fault in error.errors()
        ]
    called = scenario.stem if is_shipped else str(scenario)
    return LocalRun(
        verb="run-here",
        names=tuple(dict.fromkeys(names)),
        scenario=called,
        link=link,
        values=dict(values),
    )


def _run_words(scenario: str, link: LinkOptions, values: Mapping[str, str]) -> list[str]:
    """Return the command of a run. As `--set=NAME=VALUE` no value is mistaken for an option."""
    settings = [f"--set={name}={value}" for name, value in values.items()]
    words = ["satlab", "run", scenario, *link.arguments(), *settings]
    return [*words, "--runs", ".", "--no-report", "--quiet", "--json"]


@functools.cache
def shipped_scenario(name: str) -> Mapping[str, Any]:
    """Return a shipped scenario. Raises ConfigError."""
    if name not in {path.stem for path in paths.SCENARIOS.glob("*.json")}:
        raise ConfigError(
            f"{name} is not a scenario that ships with satlab", hint="satlab list scenarios"
        )
    document: dict[str, Any] = json.loads(
        (paths.SCENARIOS / f"{name}.json").read_text(encoding="utf-8")
    )
    return document


def _settable(document: Mapping[str, Any]) -> set[str]:
    """Return the values of a scenario that a request may set: all except those whose default is an
    address or a host.
    """
    constants: Mapping[str, str] = document.get("constants") or {}
    plain = {name for name, value in constants.items() if re.fullmatch(WORD, value)}
    return plain | set(document.get("arguments") or ()) | set(testbed_parameters.LIMITS)


@functools.cache
def _cases(suite: str) -> frozenset[str]:
    """Return the cases of a shipped suite. Raises ConfigError."""
    if suite not in {path.stem for path in paths.SUITES.glob("*.yml")}:
        raise ConfigError(
            f"{suite} is not a suite that ships with satlab", hint="satlab list suites"
        )
    return frozenset(case.id for case in suites.load(paths.SUITES / f"{suite}.yml").cases)
