# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a link, and the request that they make.

Command line, web form, the root helper's verb and the printed command line are made from the fields
here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from satlab.common import did_you_mean
from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import LAB_FILE, PROFILES, SATLINK, shipped_profiles
from satlab.common.terminals import MOST as MOST_TERMINALS
from satlab.common.terminals import ProfileTerminal, clients, named, spots, with_terminals
from satlab.common.topology import Topology
from satlab.link import control, opensand
from satlab.link.config import (
    DEFAULT_BDP,
    MOST_NUMBERS,
    Aqm,
    BdpQueue,
    Bursts,
    BytesQueue,
    Direction,
    Emulator,
    GilbertElliott,
    LinkRequest,
    LinkSet,
    ListedLosses,
    Loss,
    LossProcess,
    LossUnit,
    PacketsQueue,
    Queue,
    Reorder,
    Timeline,
    TimelineStep,
    Timing,
    Trace,
    UniformJitter,
)
from satlab.link.option_model import Help, Options, invalid, options_of
from satlab.link.schema_limits import limits

LOSS_MODELS = (
    "gilbert-elliott:P,R[,STEP_MS[,MIN_BURST_MS]], bursts:PERIOD_MS,DURATION_MS or trace:FILE"
)
"""How a loss model is written."""
Way = Literal["forward", "return"]
"""A direction of the satellite link."""
NUMBERS = "1,3 or 2-7"
"""How numbers of packets are written."""
_OF_SOME_AQM = {"aqm_interval_ms": ("codel", "fq-codel"), "aqm_step_ms": ("dualpi2",)}
"""Options that only these AQM have."""
REORDER_PACKETS, REORDER_MS = 2, 50.0
"""Defaults of --reorder: a held packet goes on behind two later ones, the most that RFC 9002 takes
for reordering and not for loss, and after 50 ms at the latest, less than an eighth of a GEO round
trip, for the same reason.
"""
QUEUES = "1.2bdp, 60000bytes or 200packets"
"""How a queue limit is written."""


class PathOptions(Options):
    """Profile, emulator, and one value of each direction's queue, losses and timing."""

    profile: Annotated[
        str,
        Help(
            "Profile",
            "Profile of the link: geo, leo, geo-acm, geo-dama, geo-scpc, geo-aloha, geo-terminals,"
            " geo-spots, or a folder of OpenSAND XML.",
            "Link",
            metavar="PROFILE",
            short="p",
            opensand=True,
        ),
    ] = "geo"
    emulator: Annotated[
        Emulator,
        Help(
            "Emulator",
            "Program that carries the satellite segment; opensand must be installed, or named by"
            " SATLAB_OPENSAND.",
            "Link",
            opensand=True,
        ),
    ] = "satlink"
    seed: Annotated[
        int,
        limits("seed"),
        Help(
            "Seed",
            "Seed of losses and jitter. The same seed gives the same losses.",
            "Link",
            metavar="N",
        ),
    ] = 1
    terrestrial_delay_ms: Annotated[
        float | None,
        limits("terrestrial_one_way_delay_ms"),
        Help(
            "Terrestrial delay",
            "One-way delay from gateway to server. Default: the delay in vagrant/lab.yml.",
            "Link",
            unit="ms",
            opensand=True,
        ),
    ] = None
    queue_bdp: Annotated[
        float,
        limits("forward.queue.bdp"),
        Help(
            "Queue limit in BDP",
            "Queue limit as a multiple of the bandwidth-delay product (BDP) of each direction.",
            "Queue and AQM",
            unit="BDP",
        ),
    ] = DEFAULT_BDP
    loss: Annotated[
        float,
        limits("forward.loss.ratio"),
        Help(
            "Loss ratio",
            "Ratio of independent losses on the satellite link, in each direction.",
            "Losses",
            metavar="RATIO",
        ),
    ] = 0.0
    timing: Annotated[
        Timing,
        Help(
            "Timing",
            "standard: release a frame at its end. opensand: in batches, every 10 ms (forward) and"
            " 26.5 ms (return).",
            "Timing",
        ),
    ] = "standard"
    opensand_defects: Annotated[
        bool,
        Help(
            "OpenSAND's defects",
            "With --timing opensand: drop packets as OpenSAND 8.2.0 does in nearly full BBFRAMEs,"
            " and use the profile's FIFOs as queues.",
            "Timing",
        ),
    ] = False
    opensand_drift_us: Annotated[
        int,
        limits("opensand_drift_us"),
        Help(
            "Drift of OpenSAND's ticks",
            "With --opensand-defects: each tick of the forward link starts the next one this much"
            " late. 8.2.0: 100 to 350, depending on the host.",
            "Timing",
            unit="us",
        ),
    ] = 0
    jitter_ms: Annotated[
        float,
        limits("forward.jitter.uniform_ms"),
        Help(
            "Jitter",
            "Largest jitter. It is uniform from 0, and packets keep their order.",
            "Timing",
            unit="ms",
        ),
    ] = 0.0

    @field_validator("opensand_defects")
    @classmethod
    def _needs_its_timing(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("timing") != "opensand":
            raise invalid("needs --timing opensand", "add --timing opensand", "--timing")
        return value

    @field_validator("opensand_drift_us")
    @classmethod
    def _is_a_defect(cls, value: int, info: ValidationInfo) -> int:
        if value and not info.data.get("opensand_defects"):
            raise invalid(
                "needs --opensand-defects", "add --opensand-defects", "--opensand-defects"
            )
        return value


class LossOptions(Options):
    """Options of loss processes."""

    loss_unit: Annotated[
        LossUnit,
        Help(
            "Loss unit",
            "Losses hit single IP packets, or whole frames (BBFRAMEs or bursts).",
            "Losses",
        ),
    ] = "packet"
    loss_model: Annotated[
        str | None,
        Help(
            "Loss model",
            f"Loss process besides independent losses: {LOSS_MODELS}.",
            "Losses",
            metavar="MODEL",
        ),
    ] = None

    @field_validator("loss_model")
    @classmethod
    def _is_loss_model(cls, text: str | None) -> str | None:
        if text is not None:
            loss_model(text, "packet")
        return text

    def losses(self, ratio: float) -> LossProcess | tuple[LossProcess, ...]:
        """Return independent losses of `ratio`, the loss model, or both of them."""
        losses: list[LossProcess] = [Loss(ratio=ratio, unit=self.loss_unit)]
        if self.loss_model is not None:
            model = loss_model(self.loss_model, self.loss_unit)
            losses = [model] if ratio == 0 else [*losses, model]
        return losses[0] if len(losses) == 1 else tuple(losses)


class ImpairmentOptions(Options):
    """Reordering, duplication and corruption of single packets that come through."""

    reorder: Annotated[
        float | None,
        limits("timeline.steps.set.reorder.ratio"),
        Help(
            "Reorder ratio",
            "Share of packets held back until later ones have overtaken them, each direction.",
            "Impairments",
            metavar="RATIO",
        ),
    ] = None
    reorder_packets: Annotated[
        int | None,
        limits("timeline.steps.set.reorder.packets"),
        Help(
            "Reorder depth",
            "Most later packets that overtake a held one; default: 2, or without limit if"
            " --reorder-ms is given.",
            "Impairments",
            metavar="N",
        ),
    ] = None
    reorder_ms: Annotated[
        float | None,
        limits("timeline.steps.set.reorder.ms"),
        Help(
            "Reorder time",
            "Longest time that a packet is held back; default: 50.",
            "Impairments",
            unit="ms",
        ),
    ] = None
    duplicate: Annotated[
        float | None,
        limits("timeline.steps.set.duplicate"),
        Help(
            "Duplicate ratio",
            "Share of packets that come twice, the copy directly behind, each direction.",
            "Impairments",
            metavar="RATIO",
        ),
    ] = None
    corrupt: Annotated[
        float | None,
        limits("timeline.steps.set.corrupt"),
        Help(
            "Corrupt ratio",
            "Share of UDP datagrams with one flipped bit in the payload and a checksum that fits,"
            " each direction.",
            "Impairments",
            metavar="RATIO",
        ),
    ] = None

    @field_validator("reorder_packets", "reorder_ms")
    @classmethod
    def _needs_reorder(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("reorder", 0.0) is None:
            raise invalid("needs --reorder", "add --reorder RATIO", "--reorder")
        return value

    def impairments(self) -> dict[str, Any]:
        """Return the fields of a change that sets what was chosen."""
        fields: dict[str, Any] = {"duplicate": self.duplicate, "corrupt": self.corrupt}
        if self.reorder is not None:
            fields["reorder"] = reordering(self.reorder, self.reorder_packets, self.reorder_ms)
        return {name: value for name, value in fields.items() if value is not None}


class QueueOptions(Options):
    """Options of the queue of each direction."""

    queue: Annotated[
        str | None,
        Field(max_length=32),
        Help(
            "Queue limit",
            f"Queue limit with its unit, for example {QUEUES}.",
            "Queue and AQM",
            metavar="LIMIT",
        ),
    ] = None
    aqm: Annotated[
        Aqm | None,
        Help(
            "AQM",
            "Active queue management; dualpi2 has a queue of its own for L4S (RFC 9332). Without"
            " it the queue drops packets only at its limit.",
            "Queue and AQM",
        ),
    ] = None
    aqm_target_ms: Annotated[
        float | None,
        limits("forward.queue.target_ms"),
        Help(
            "AQM target",
            "Waiting time that the AQM accepts. Default: 5 for codel and fq-codel, 15 for pie and"
            " dualpi2.",
            "Queue and AQM",
            unit="ms",
        ),
    ] = None
    aqm_interval_ms: Annotated[
        float | None,
        limits("forward.queue.interval_ms"),
        Field(gt=0),
        Help(
            "AQM interval",
            "Interval of codel and fq-codel, at least the RTT. Default: 100.",
            "Queue and AQM",
            unit="ms",
        ),
    ] = None
    aqm_step_ms: Annotated[
        float | None,
        limits("forward.queue.step_ms"),
        Help(
            "AQM step",
            "Waiting time above which dualpi2 marks an L4S packet, at least the duration of a"
            " frame. Default: 1.",
            "Queue and AQM",
            unit="ms",
        ),
    ] = None
    ecn: Annotated[
        bool,
        Help(
            "ECN",
            "With --aqm: mark ECN-capable packets instead of dropping them early. dualpi2 always"
            " does.",
            "Queue and AQM",
        ),
    ] = False

    @field_validator("queue")
    @classmethod
    def _is_queue_limit(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None:
            queue_limit(text, {})
            if info.data.get("queue_bdp", DEFAULT_BDP) != DEFAULT_BDP:
                raise invalid(
                    "and --queue-bdp both set the limit of the queue",
                    "leave one out",
                    "--queue-bdp",
                )
        return text

    @field_validator("aqm_target_ms", "aqm_interval_ms", "aqm_step_ms", "ecn")
    @classmethod
    def _needs_aqm(cls, value: float | bool | None, info: ValidationInfo) -> float | bool | None:
        if value is not None and value is not False and "aqm" in info.data:
            if info.data["aqm"] is None:
                remedy = "add --aqm codel, fq-codel, pie or dualpi2"
                raise invalid("needs --aqm", remedy, "--aqm")
            owners = _OF_SOME_AQM.get(info.field_name or "")
            if owners and info.data["aqm"] not in owners:
                raise invalid(
                    f"cannot be set: {info.data['aqm']} has none",
                    f"leave it out, or use {' or '.join(owners)}",
                )
        return value

    def queue_rule(self, limit: str) -> Queue:
        """Return the queue. Its limit is `limit` unless `--queue` sets one."""
        times = {
            "target_ms": self.aqm_target_ms,
            "interval_ms": self.aqm_interval_ms,
            "step_ms": self.aqm_step_ms,
        }
        return queue_limit(
            self.queue or limit, {"aqm": self.aqm, "ecn": True if self.ecn else None, **times}
        )


class LabOptions(Options):
    """Options of the lab around the satellite link: terminals, IP versions, the client's LAN."""

    terminals: Annotated[
        int | None,
        Field(ge=1, le=MOST_TERMINALS),
        Help(
            "Terminals",
            "Number of equal terminals, each with its client (client, client-2, ...). Default: the"
            " terminals of the profile or of lab.yml",
            "Link",
            metavar="N",
        ),
    ] = None
    ip: Annotated[
        Literal["4", "6", "both"],
        Help(
            "IP versions",
            "IP versions of the nodes' addresses. 6: nodes have both, and scenarios reach their"
            " server over IPv6.",
            "Link",
        ),
    ] = "4"
    lan_loss: Annotated[
        float,
        limits("timeline.steps.set.loss.ratio"),
        Help(
            "LAN loss ratio",
            "Ratio of losses on the client's LAN, for example its Wi-Fi, in each direction.",
            "Losses",
            metavar="RATIO",
            opensand=True,
        ),
    ] = 0.0


class DropOptions(Options):
    """Single packets that are lost."""

    drop_forward: Annotated[
        str | None,
        Field(max_length=1000),
        Help(
            "Drop list, forward",
            f"Numbers of packets to the client that are lost on the satellite link: {NUMBERS}."
            " Packets count from the start of the link, of a run from that of its scenario.",
            "Losses",
            metavar="NUMBERS",
        ),
    ] = None
    drop_return: Annotated[
        str | None,
        Field(max_length=1000),
        Help(
            "Drop list, return",
            "The same of packets from the client.",
            "Losses",
            metavar="NUMBERS",
        ),
    ] = None

    @field_validator("drop_forward", "drop_return")
    @classmethod
    def _is_list(cls, text: str | None) -> str | None:
        if text is not None:
            packet_numbers(text)
        return text


class LocalOptions(Options):
    """Options of the command line only: files and addresses of the caller, and options for its own
    profiles.
    """

    lenient: Annotated[
        bool,
        Help(
            "Lenient",
            "Warn about faults of a profile that OpenSAND's loader accepts, and go on.",
            "Link",
            opensand=True,
        ),
    ] = False
    timeline: Annotated[
        Path | None,
        Help(
            "Timeline",
            "JSON file with timed changes of the link, in s since the scenario starts (`up`: since"
            " the lab is up).",
            "Timing",
            metavar="FILE",
            opensand=True,
        ),
    ] = None
    probes: Annotated[
        str | None,
        Help(
            "Probes",
            "Send the link's samples as OpenSAND's probes over UDP to this collector (OpenSAND's:"
            " port 5361).",
            "Output",
            metavar="ADDRESS:PORT",
            opensand=True,
        ),
    ] = None


class LinkOptions(
    LocalOptions, LabOptions, QueueOptions, ImpairmentOptions, DropOptions, LossOptions, PathOptions
):
    """All options of a link."""

    def arguments(self) -> list[str]:
        """Return the command line: the profile, and all options that are not at their defaults."""
        argv = ["--profile", self.profile]
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            if option.name != "profile" and value != option.default:
                argv += [option.flag] if value is True else [option.flag, str(value)]
        return argv

    def profile_folder(self) -> Path:
        """Return the folder of the profile."""
        shipped = shipped_profiles()
        folder = PROFILES / self.profile if self.profile in shipped else Path(self.profile)
        if not folder.is_dir():
            hint = did_you_mean.remedy(self.profile, shipped, "ours: {}; or the path of a folder")
            raise ConfigError(f"profile {self.profile}: no such folder", hint=hint)
        return folder

    def profile_terminals(self, satlink: Path = SATLINK) -> tuple[ProfileTerminal, ...]:
        """Return the profile's further terminals.

        None if their number is given: these terminals equal the ST. None with OpenSAND or its
        timing: such a lab has one terminal.

        Raises:
            ConfigError: the profile is not usable.
            HostError: satlink does not answer.
        """
        if self.terminals is not None or self._has_one_terminal:
            return ()
        described = opensand.describe(self.profile_folder().resolve(), satlink)
        return tuple(
            ProfileTerminal(further.entity_id, further.gateway) for further in described.further_sts
        )

    def topology(self, profile_terminals: Sequence[ProfileTerminal] | None = None) -> Topology:
        """Return the topology of `lab.yml` with these terminals; raises as `profile_terminals`.

        Without a number or terminals of the profile, there are as many as in `lab.yml`. Each
        gateway of the profile's terminals is a spot, with its own satellite network.
        """
        further = self.profile_terminals() if profile_terminals is None else profile_terminals
        found = named(LAB_FILE)
        names = 1 if self._has_one_terminal else len(clients(found))
        if self.ip != "4":
            found = found.model_copy(update={"ipv6": True})
        count = self.terminals or (1 + len(further) if further else names)
        return with_terminals(found.of_one_terminal(), count, spots(further))

    @property
    def _has_one_terminal(self) -> bool:
        """Whether the emulator carries the packets of only one terminal."""
        return "opensand" in (self.emulator, self.timing)

    def request(
        self,
        run_id: str = "lab",
        metrics: Path | None = None,
        logs: Path | None = None,
        timeline_starts: Literal["at-once", "on-request"] = "at-once",
        terminals: Sequence[ProfileTerminal] = (),
    ) -> LinkRequest:
        """Return the link's request; both directions get the same queue and loss processes.

        Raises ConfigError.

        `terminals` are the further ones of the profile.
        """
        if self.emulator == "opensand":
            self._refuse_what_opensand_cannot()
        direction = Direction(
            queue=self.queue_rule(f"{self.queue_bdp}bdp"),
            loss=self.losses(self.loss),
            jitter=UniformJitter(uniform_ms=self.jitter_ms) if self.jitter_ms else None,
        )
        return LinkRequest(
            profile=self.profile_folder(),
            emulator=self.emulator,
            seed=self.seed,
            timing=self.timing,
            opensand_defects=self.opensand_defects,
            opensand_drift_us=self.opensand_drift_us,
            forward=direction,
            return_=direction,
            terrestrial_one_way_delay_ms=self.terrestrial_delay_ms,
            run_id=run_id,
            metrics=metrics,
            logs=logs,
            timeline=self._timeline(timeline_starts),
            probes=self.probes,
            lan_loss=self.lan_loss,
            lenient=self.lenient,
            terminals=tuple(terminals),
        )

    def _timeline(self, starts: Literal["at-once", "on-request"]) -> Timeline | None:
        """Return the timeline; an empty one if the profile's files also have to wait for a request.

        Impairments and drop lists are its first steps, so that a calibration does not meet them.
        """
        impaired = tuple(TimelineStep(at_s=0.0, set=one) for one in self._at_start())
        if self.timeline is None and starts == "at-once" and not impaired:
            return None
        steps = (*impaired, *(control.load_steps(self.timeline) if self.timeline else ()))
        return Timeline(
            starts=starts, steps=steps, file=str(self.timeline) if self.timeline else None
        )

    def _at_start(self) -> Iterator[LinkSet]:
        """Yield the changes with which the timeline begins."""
        if impairments := self.impairments():
            yield LinkSet(direction="both", **impairments)
        lists: dict[Way, str | None] = {"forward": self.drop_forward, "return": self.drop_return}
        for direction, text in lists.items():
            if text is not None:
                yield with_drops(direction, self.losses(self.loss), packet_numbers(text))

    def _refuse_what_opensand_cannot(self) -> None:
        """Raise ConfigError for every option that OpenSAND does not support."""
        faults = [
            Fault(f"{option.flag} {value}", "OpenSAND cannot do this", "leave it out")
            for option in options_of(LinkOptions)
            if (value := getattr(self, option.name)) != option.default and not option.help.opensand
        ]
        if faults:
            raise ConfigError(
                "--emulator opensand: the link is what the profile says",
                faults,
                "or use satlink, which can",
            )


def queue_limit(text: str, management: Mapping[str, Any]) -> Queue:
    """Read a queue limit, and add AQM. Raises ValueError."""
    kinds: dict[str, type[Queue]] = {"bdp": BdpQueue, "bytes": BytesQueue, "packets": PacketsQueue}
    match = re.fullmatch(r"([0-9.e+-]+) ?(bdp|bytes|packets)", text)
    try:
        if match:
            return kinds[match[2]].model_validate({match[2]: match[1], **management})
    except ValidationError:
        pass
    raise invalid("is not a queue limit", f"write {QUEUES}")


def packet_numbers(text: str) -> tuple[int, ...]:
    """Read numbers of packets, e.g. 1,4-6. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        span = re.fullmatch(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?", part)
        if span is None:
            raise invalid("is not a list of packets", f"write {NUMBERS}")
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first or last - first >= MOST_NUMBERS:
            raise invalid("has a span that falls or is too long", f"at most {MOST_NUMBERS} packets")
        found.update(range(first, last + 1))
    if len(found) > MOST_NUMBERS:
        raise invalid("has too many packets", f"at most {MOST_NUMBERS}")
    return tuple(sorted(found))


def with_drops(
    direction: Way,
    losses: LossProcess | Sequence[LossProcess],
    numbers: Sequence[int],
) -> LinkSet:
    """Return the change of a direction that adds listed losses to its other ones."""
    others = losses if isinstance(losses, Sequence) else (losses,)
    return LinkSet(direction=direction, loss=(*others, ListedLosses(numbers=tuple(numbers))))


def reordering(ratio: float, packets: int | None, longest_ms: float | None) -> Reorder:
    """Return reordering by packets, by a time, or by what comes first of both."""
    if packets is None and longest_ms is None:
        packets = REORDER_PACKETS
    return Reorder(ratio=ratio, packets=packets, ms=longest_ms or REORDER_MS)


def loss_model(text: str, unit: LossUnit) -> LossProcess:
    """Read a loss model. Raises ValueError."""
    name, _, rest = text.partition(":")
    values = rest.split(",")
    try:
        match name, len(values):
            case "gilbert-elliott", 2 | 3 | 4:
                chain = dict(zip(("p", "r", "step_ms", "min_burst_ms"), values, strict=False))
                return GilbertElliott.model_validate({"unit": unit, **chain})
            case "bursts", 2:
                return Bursts.model_validate(
                    {"unit": unit, "period_ms": values[0], "duration_ms": values[1]}
                )
            case "trace", _ if rest:
                return Trace(unit=unit, file=str(Path(rest).resolve()))
    except ValidationError:
        pass
    raise invalid("is not a loss model", f"write {LOSS_MODELS}")
