# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a link: what a user requests (`LinkRequest`) and what satlink reads
(`LinkConfig`, link.json).

The models mirror `schemas/link-config.schema.json`, and read their limits from it.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from satlab.common import ipv6, netns_names, plain_words, terminals
from satlab.common.errors import ConfigError, Fault
from satlab.common.terminals import ProfileTerminal
from satlab.common.topology import InterfaceEnd, NetworkKind, Role, Topology
from satlab.link.schema_limits import limits

DEFAULT_BDP = 1.2
"""Drop-tail limit in bandwidth-delay products of the direction."""
METRICS_INTERVAL_MS = 100
MOST_NUMBERS = 10_000
"""Most numbers of a list of losses."""

Emulator = Literal["satlink", "opensand"]
"""The emulator of the satellite segment: satlink, or the real OpenSAND."""

Timing = Literal["standard", "opensand"]
"""Frames are released at their end, as in the standards, or in batches as by OpenSAND 8.2."""
Aqm = Literal["codel", "fq-codel", "pie", "dualpi2"]
"""Active queue management."""
LossUnit = Literal["packet", "frame"]
"""The unit of a loss: an IP packet, or a BBFRAME or burst."""

Ratio = Annotated[float, limits("forward.loss.ratio")]
Milliseconds = Annotated[float, limits("forward.jitter.uniform_ms")]
DelayMs = Annotated[float, limits("terrestrial_one_way_delay_ms")]
Seconds = Annotated[float, limits("timeline.steps.at_s")]
SymbolRate = Annotated[int, limits("timeline.steps.set.symbol_rate_baud")]
Seed = Annotated[int, limits("seed")]

# "return" is a keyword of Python; a plain alias would take the Python name away from type checkers.
RETURN = AliasChoices("return", "return_")


class LinkModel(BaseModel):
    """Read-only. Fields that the schema does not name are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True
    )  # built where used: commands start sooner


class _Sparse(LinkModel):
    """Leaves out None values, for which satlink has defaults."""

    @model_serializer(mode="wrap")
    def _chosen(self, full: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in full(self).items() if value is not None}


class _Queue(_Sparse):
    """Active queue management: RFC 8289, 8290, 8033 or 9332; `ecn` marks in place of an early drop
    (RFC 3168).
    """

    aqm: Aqm | None = None
    ecn: bool | None = None
    target_ms: Milliseconds | None = None
    interval_ms: Milliseconds | None = None
    step_ms: Milliseconds | None = None


class BdpQueue(_Queue):
    """Queue limit as a multiple of the direction's bandwidth-delay product."""

    bdp: Annotated[float, limits("forward.queue.bdp"), Field(allow_inf_nan=False)]


class BytesQueue(_Queue):
    """Queue limit in bytes."""

    bytes: Annotated[int, limits("forward.queue.bytes")]


class PacketsQueue(_Queue):
    """Queue limit in packets."""

    packets: Annotated[int, limits("forward.queue.packets")]


class _Loss(_Sparse):
    unit: LossUnit = "packet"


class Loss(_Loss):
    """Independent losses: `ratio` of IP packets, or of BBFRAMEs and bursts (`unit`)."""

    ratio: Ratio = 0.0


class GilbertElliott(_Loss):
    """Loss chain with a good and a bad state. `p` (good to bad) and `r` (bad to good) are
    probabilities per unit or per `step_ms`; each state has a loss ratio.

    Bad periods shorter than `min_burst_ms` count as good.
    """

    model: Literal["gilbert-elliott"] = "gilbert-elliott"
    p: Ratio
    r: Ratio
    good_ratio: Ratio | None = None
    bad_ratio: Ratio | None = None
    step_ms: Annotated[Milliseconds, Field(gt=0)] | None = None
    min_burst_ms: Milliseconds | None = None


class Bursts(_Loss):
    """Every packet is lost for `duration_ms` of each `period_ms`, for the first time at
    `first_ms`.
    """

    model: Literal["bursts"] = "bursts"
    period_ms: Annotated[Milliseconds, Field(gt=0)]
    duration_ms: Milliseconds
    first_ms: Milliseconds | None = None


class Trace(_Loss):
    """Recorded losses from a file: either a line 0 or 1 for each unit, or lines START END in s."""

    model: Literal["trace"] = "trace"
    file: Annotated[str, limits("forward.loss.file")]


class ListedLosses(_Loss):
    """The units of these numbers are lost, once. They count from 1 since these losses are in force;
    what the queue drops does not count.
    """

    model: Literal["list"] = "list"
    numbers: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(min_length=1, max_length=MOST_NUMBERS),
    ]


class Reorder(_Sparse):
    """A share `ratio` of the packets is held back (0: packets keep their order).

    A held packet goes on behind the `packets` that came after it (None: any number), and at the
    latest after `ms`.
    """

    ratio: Ratio
    packets: Annotated[int, limits("timeline.steps.set.reorder.packets")] | None = None
    ms: Annotated[float, limits("timeline.steps.set.reorder.ms")]


class UniformJitter(LinkModel):
    """Jitter that is uniform between 0 and `uniform_ms`."""

    uniform_ms: Milliseconds


class NormalJitter(LinkModel):
    """Jitter with a normal distribution, cut at 0."""

    mean_ms: Milliseconds
    sigma_ms: Milliseconds


Queue = BdpQueue | BytesQueue | PacketsQueue
LossProcess = Loss | GilbertElliott | Bursts | Trace | ListedLosses


class Direction(_Sparse):
    """Settings of one direction of the satellite link, on top of the profile; several losses add
    up.
    """

    queue: Queue = BdpQueue(bdp=DEFAULT_BDP)
    loss: LossProcess | tuple[LossProcess, ...] = Loss()
    jitter: UniformJitter | NormalJitter | None = None
    outages_s: tuple[tuple[Seconds, Seconds], ...] | None = None


_TERRESTRIAL = {"delay_ms", "loss", "jitter", "reorder", "duplicate", "corrupt", "outage"}
"""Possible changes of a terrestrial direction."""


class Handover(_Sparse):
    """Handover to another link. None: the value of profile and configuration.

    `waiting`: packets in the queue move to the new link, leave over the old link, or are dropped.
    With `rate_mbps` the new link is a plain line of this rate without frames, which counts
    `header_bytes` for each packet in addition to IP.
    """

    waiting: Literal["keep", "flush", "drop"]
    delay_ms: DelayMs | None = None
    symbol_rate_baud: SymbolRate | None = None
    rate_mbps: Annotated[float | None, limits("timeline.steps.set.handover.rate_mbps")] = None
    header_bytes: Annotated[int | None, limits("timeline.steps.set.handover.header_bytes")] = None
    queue: Queue | None = None


class GatewayChange(LinkModel):
    """Change of gateway for one terminal or for all: the id of the new gateway in the profile, and
    the treatment of waiting packets.
    """

    id: Annotated[int, limits("timeline.steps.set.gateway.id")]
    waiting: Literal["keep", "flush", "drop"]


class LinkSet(_Sparse):
    """Changes of one direction of a running link, or of both directions of its satellite segment;
    at least one.

    `delay_ms` is one way. `duplicate` is the share of packets that come twice, `corrupt` that of
    UDP datagrams with a flipped bit in the payload and a checksum that fits. `outage`: true until
    false, or for seconds. `attenuation_db` reduces the Es/N0, in addition to the profile's
    attenuation. `modcod`: an id of EN 302 307-1 that stays in force, or "acm" for adaptive coding
    again; forward direction only. `terminal`: the change is for this terminal only (the ST is 1);
    None: for all terminals of the direction. `gateway` changes both directions. A terrestrial
    direction has no queue and no fields of a radio link.
    """

    direction: Literal["forward", "return", "both", "terrestrial_down", "terrestrial_up"]
    terminal: Annotated[int | None, limits("timeline.steps.set.terminal")] = None
    delay_ms: DelayMs | None = None
    loss: LossProcess | tuple[LossProcess, ...] | None = None
    jitter: UniformJitter | NormalJitter | None = None
    reorder: Reorder | None = None
    duplicate: Ratio | None = None
    corrupt: Ratio | None = None
    outage: (
        Annotated[bool, Field(strict=True)]
        | Annotated[float, limits("timeline.steps.set.outage")]
        | None
    ) = None
    queue: Queue | None = None
    attenuation_db: Annotated[float | None, limits("timeline.steps.set.attenuation_db")] = None
    modcod: Annotated[int, limits("timeline.steps.set.modcod")] | Literal["acm"] | None = None
    symbol_rate_baud: SymbolRate | None = None
    handover: Handover | None = None
    gateway: GatewayChange | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        given = self.model_fields_set - {"direction", "terminal"}
        if not given:
            names = ", ".join(
                name for name in type(self).model_fields if name not in ("direction", "terminal")
            )
            raise ValueError(f"nothing to change: give {names}")
        if self.direction.startswith("terrestrial") and (foreign := given - _TERRESTRIAL):
            raise ValueError(f"a terrestrial direction has no {', '.join(sorted(foreign))}")
        if self.direction.startswith("terrestrial") and self.terminal is not None:
            raise ValueError("all terminals share a terrestrial direction")
        if self.modcod is not None and self.direction != "forward":
            raise ValueError("only the direction forward has MODCODs")
        if self.gateway is not None and self.direction != "both":
            raise ValueError("a terminal has one gateway for both directions")
        return self


class TimelineStep(LinkModel):
    """A link change at its time, s since the start of the timeline."""

    at_s: Seconds
    set_: LinkSet = Field(alias="set")


Steps = Annotated[tuple[TimelineStep, ...], limits("timeline.steps")]


class Timeline(LinkModel):
    """Changes at known times; time 0 is the emulator's start, or the request that starts the
    timeline.

    `file` is where the user wrote it; satlink does not read it.
    """

    starts: Literal["at-once", "on-request"]
    steps: Steps
    file: SkipJsonSchema[str | None] = Field(default=None, exclude=True)


class OtherLoad(_Sparse):
    """Traffic of another terminal on the return carrier; from the emulator's start, or `from_s`, up
    to `until_s`.
    """

    terminal: Annotated[int, limits("others.terminal")]
    return_kbps: Annotated[int, limits("others.return_kbps")]
    from_s: Seconds | None = None
    until_s: Seconds | None = None


class Attachment(LinkModel):
    """A TUN device: the file of its network namespace, and its name."""

    netns: Annotated[str, limits("st.netns")]
    tun: Annotated[str, limits("st.tun")]


class Further(_Sparse, Attachment):
    """A terminal besides the ST: its TUN, the subnets of its LAN, its addresses, and its id in the
    profile (None: equal to the ST).
    """

    subnet: Annotated[str, limits("terminals.subnet")]
    subnet6: Annotated[str | None, limits("terminals.subnet6")] = None
    address: Annotated[str | None, limits("terminals.address")] = None
    address6: Annotated[str | None, limits("terminals.address6")] = None
    id: Annotated[int | None, limits("terminals.id")] = None


class FurtherGateway(Attachment):
    """A gateway besides the GW, for another spot: its TUN, and its id in the profile."""

    id: Annotated[int, limits("gateways.id")]


class Probes(LinkModel):
    """A collector of OpenSAND's probes at ADDRESS:PORT, reached from satlab's own network
    namespace.

    `from_`: namespaces in which entities of OpenSAND send theirs to the same ports of 127.0.0.1;
    satlink sends them on.
    """

    address: str
    netns: Literal["parent"] = "parent"
    from_: Annotated[tuple[str, ...], limits("probes.from")] = Field(
        default=(), validation_alias=AliasChoices("from", "from_"), serialization_alias="from"
    )

    @property
    def port(self) -> int:
        """Port of the probes. Logs go to the next port."""
        return int(self.address.rpartition(":")[2])


class LinkConfig(LinkModel):
    """The configuration that `satlink validate|plan|run` reads; `link.json`.

    `st` and `gw` are None if OpenSAND carries the satellite segment: satlink then serves only the
    terrestrial one.
    """

    schema_: Literal["satlab/link-config/1"] = Field(default="satlab/link-config/1", alias="schema")
    run_id: Annotated[str, limits("run_id")]
    profile: Annotated[str, limits("profile")]
    lenient: bool = False
    timing: Timing = "standard"
    opensand_defects: bool = False
    opensand_drift_us: Annotated[int, limits("opensand_drift_us")] = 0
    seed: Seed
    forward: Direction
    return_: Direction = Field(validation_alias=RETURN, serialization_alias="return")
    terrestrial_one_way_delay_ms: DelayMs
    st: Attachment | None
    gw: Attachment | None
    near: Attachment
    far: Attachment
    metrics: Annotated[str, limits("metrics")]
    metrics_interval_ms: Annotated[int, limits("metrics_interval_ms")]
    metrics_max_bytes: Annotated[int | None, limits("metrics_max_bytes")] = None
    probes: Probes | None = None
    control: Annotated[str | None, limits("control")] = None
    timeline: Timeline | None = None
    others: Annotated[tuple[OtherLoad, ...], limits("others")] = ()
    terminals: Annotated[tuple[Further, ...], limits("terminals")] = ()
    gateways: Annotated[tuple[FurtherGateway, ...], limits("gateways")] = ()

    @model_validator(mode="after")
    def _whole_segment(self) -> Self:
        if (self.st is None) != (self.gw is None):
            raise ValueError("st and gw are one segment: set both, or null for both")
        return self

    @property
    def emulator(self) -> Emulator:
        """The emulator of the satellite segment."""
        return "opensand" if self.st is None else "satlink"

    def to_json(self) -> str:
        """Return the text of `link.json`."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


@dataclass(frozen=True)
class LinkRequest:
    """A user's request of a link.

    `profile` is a folder of OpenSAND XML, whose satellite segment `emulator` carries;
    `terrestrial_one_way_delay_ms` replaces the topology's; `metrics` is the file of the link
    metrics, `logs` the folder of OpenSAND's logs (None: the lab's own folder). `probes` is the
    ADDRESS:PORT of a collector that gets every sample under OpenSAND's probe names. `terminals` are
    the profile's terminals for the topology's further terminals, in order; empty: these equal the
    ST. `lan_loss` is the share of packets lost on the client's LAN, each way. `lenient`: accept
    faults of a profile that OpenSAND's loader accepts. `opensand_defects`: emulate the losses and
    FIFOs of 8.2.0; only with OpenSAND's timing. `opensand_drift_us`: the time by which each forward
    tick is late; only with these defects.
    """

    profile: Path
    emulator: Emulator = "satlink"
    seed: int = 1
    timing: Timing = "standard"
    opensand_defects: bool = False
    opensand_drift_us: int = 0
    forward: Direction = field(default_factory=Direction)
    return_: Direction = field(default_factory=Direction)
    terrestrial_one_way_delay_ms: float | None = None
    run_id: str = "lab"
    metrics: Path | None = None
    logs: Path | None = None
    metrics_interval_ms: int = METRICS_INTERVAL_MS
    timeline: Timeline | None = None
    others: tuple[OtherLoad, ...] = ()
    probes: str | None = None
    lan_loss: float = 0.0
    lenient: bool = False
    terminals: tuple[ProfileTerminal, ...] = ()


def build_config(
    topology: Topology,
    lab_id: str,
    request: LinkRequest,
    *,
    metrics: Path,
    control: Path | None = None,
    metrics_max_bytes: int | None = None,
) -> LinkConfig:
    """Join a topology and a request to one configuration.

    `metrics`: the file if the request names none, with at most `metrics_max_bytes`. `control`: the
    socket on which the running link can be changed.

    Raises:
        ConfigError: a value is out of its limits; every fault.
    """
    st, gw = (
        _attachment(topology, lab_id, NetworkKind.SATELLITE, role)
        if request.emulator == "satlink"
        else None
        for role in (Role.ST, Role.GW)
    )
    far = _attachment(topology, lab_id, NetworkKind.INTERNET, Role.SERVER)
    near = _attachment(topology, lab_id, NetworkKind.INTERNET, None)
    delay_ms = request.terrestrial_one_way_delay_ms
    if delay_ms is None:
        delay_ms = (
            topology.networks[topology.network_of(NetworkKind.INTERNET)].one_way_delay_ms or 0.0
        )
    try:
        return LinkConfig(
            run_id=request.run_id,
            profile=str(request.profile.resolve()),
            lenient=request.lenient,
            timing=request.timing,
            opensand_defects=request.opensand_defects,
            opensand_drift_us=request.opensand_drift_us,
            seed=request.seed,
            forward=request.forward,
            return_=request.return_,
            terrestrial_one_way_delay_ms=delay_ms,
            st=st,
            gw=gw,
            near=near,
            far=far,
            metrics=str((request.metrics or metrics).resolve()),
            metrics_interval_ms=request.metrics_interval_ms,
            metrics_max_bytes=None if request.metrics else metrics_max_bytes,
            probes=_probes(topology, lab_id, request),
            control=str(control) if control else None,
            timeline=request.timeline,
            others=request.others,
            terminals=_further(topology, lab_id, request.terminals) if st else (),
            gateways=_gateways(topology, lab_id, request.terminals) if st else (),
        )
    except ValidationError as error:
        raise ConfigError(
            "the link cannot be used as requested", faults_of(error, "link")
        ) from error


def _gateways(
    topology: Topology, lab_id: str, found: tuple[ProfileTerminal, ...]
) -> tuple[FurtherGateway, ...]:
    """Return the gateways of the topology's further spots. satlink reports gateways that are
    missing in the profile.
    """
    pairs = zip(terminals.further_spots(topology), terminals.gateways(found), strict=False)
    return tuple(
        FurtherGateway(
            netns=str(netns_names.path(lab_id, spot.gateway)), tun=terminals.SAT, id=number
        )
        for spot, number in pairs
    )


def _further(
    topology: Topology, lab_id: str, found: tuple[ProfileTerminal, ...]
) -> tuple[Further, ...]:
    further, ids = terminals.further(topology), [one.id for one in found]
    if ids and len(ids) != len(further):
        raise ConfigError(
            f"the profile has {len(ids)} further terminals, the topology {len(further)}"
        )
    return tuple(
        Further(
            netns=str(netns_names.path(lab_id, one.st)),
            tun=terminals.SAT,
            subnet=str(one.subnet),
            subnet6=str(ipv6.subnet(one.subnet)) if topology.ipv6 else None,
            address=f"{own}/32",
            address6=f"{ipv6.address(own)}/128" if topology.ipv6 else None,
            id=number,
        )
        for one, number in itertools.zip_longest(further, ids)
        for own in [topology.nodes[one.st].interfaces[terminals.SAT].address]
    )


def _probes(topology: Topology, lab_id: str, request: LinkRequest) -> Probes | None:
    """Return the collector of probes; the nodes on the emulation network run OpenSAND's
    entities.
    """
    if request.probes is None:
        return None
    emulation = {
        name for name, network in topology.networks.items() if network.kind is NetworkKind.EMULATION
    }
    nodes = [
        n
        for n, node in topology.nodes.items()
        if emulation & {i.network for i in node.interfaces.values()}
    ]
    is_relay = request.emulator == "opensand"
    return Probes(
        address=request.probes,
        from_=tuple(str(netns_names.path(lab_id, n)) for n in nodes) if is_relay else (),
    )


def build_lan_config(topology: Topology, lab_id: str, path: LinkConfig, loss: float) -> LinkConfig:
    """Return the configuration of a second satlink: it carries the client's LAN and loses packets
    in both directions.

    It is a wire without delay, with seed and metrics interval of the `path`'s satlink, and
    `lan.jsonl` as its metrics.
    """
    # Down is from far to near: to the client.
    far, near = client_lan(topology)
    lossy = {"loss": {"ratio": loss, "unit": "packet"}}
    steps = [
        {"at_s": 0, "set": {"direction": one, **lossy}}
        for one in ("terrestrial_down", "terrestrial_up")
    ]
    return LinkConfig(
        run_id=path.run_id,
        profile=path.profile,
        seed=path.seed,
        forward=Direction(),
        return_=Direction(),
        terrestrial_one_way_delay_ms=0,
        st=None,
        gw=None,
        near=Attachment(netns=str(netns_names.path(lab_id, near.node)), tun=near.interface),
        far=Attachment(netns=str(netns_names.path(lab_id, far.node)), tun=far.interface),
        metrics=str(Path(path.metrics).with_name("lan.jsonl")),
        metrics_interval_ms=path.metrics_interval_ms,
        metrics_max_bytes=path.metrics_max_bytes,
        timeline=Timeline(starts="at-once", steps=tuple(map(TimelineStep.model_validate, steps))),
    )


def client_lan(topology: Topology) -> tuple[InterfaceEnd, InterfaceEnd]:
    """Return the interfaces on the client's network: first the other node's, then the client's."""
    client = topology.nodes[topology.node_of(Role.CLIENT)]
    ends = topology.ends(next(iter(client.interfaces.values())).network)
    near, far = sorted(ends, key=lambda end: topology.nodes[end.node].role is Role.CLIENT)
    return near, far


def _attachment(
    topology: Topology, lab_id: str, kind: NetworkKind, role: Role | None
) -> Attachment:
    """Return a network's interface at the node with `role`; None: the interface that is not the
    server's.
    """
    ends = topology.ends(topology.network_of(kind))
    roles = {end: topology.nodes[end.node].role for end in ends}
    end = next(e for e in ends if (roles[e] is role if role else roles[e] is not Role.SERVER))
    return Attachment(netns=str(netns_names.path(lab_id, end.node)), tun=end.interface)


def faults_of(error: ValidationError, place: str) -> list[Fault]:
    """Return every fault of a document at `place`."""
    return [
        Fault(".".join(map(str, (place, *e["loc"]))), *plain_words.of_fault(e))
        for e in error.errors(include_url=False)
    ]
