# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a link: what satlink computes of a configuration, without a lab or privileges.

The models mirror `schemas/link-plan.schema.json`.
"""

import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from satlab.common.errors import ConfigError
from satlab.common.paths import SATLINK
from satlab.link.config import RETURN, Aqm, LinkConfig, LinkModel, LossUnit, Timing
from satlab.link.satlink import ask


class _DirectionPlan(LinkModel):
    """One direction: rates in bit/s, sizes in bytes, delay in ms, ratios in 0..1.

    `rate_bps` is the payload of the frames on air, encapsulation headers included; the goodputs are
    steady payload rates over IPv4: UDP with 1472-byte datagrams, TCP with 1448-byte segments.
    """

    symbol_rate_baud: int
    modcod_id: int
    modcod: str
    es_n0_db: float
    rate_bps: float
    one_way_delay_ms: float
    queue_bytes: int
    queue_discipline: Literal["drop-tail"] | Aqm = "drop-tail"
    queue_ecn: bool = False
    bdp_bytes: int
    loss_ratio: float
    loss_unit: LossUnit
    loss_models: tuple[Literal["bernoulli", "gilbert-elliott", "bursts", "trace", "list"], ...] = (
        "bernoulli",
    )
    jitter_mean_ms: float = 0.0
    udp_goodput_bps: float
    tcp_goodput_bps: float


class AcmPlan(LinkModel):
    """MODCODs that adaptive coding chooses from; Es/N0 in dB."""

    modcod_ids: tuple[int, ...]
    margin_db: float
    hysteresis_db: float
    report_period_ms: float


class ForwardPlan(_DirectionPlan):
    """DVB-S2 carrier: one frame lasts `frame_ns` and holds `frame_payload_bytes`.

    With `acm` the values are those at the start; without it the MODCOD is constant.
    """

    frame_ns: int
    frame_payload_bytes: int
    acm: AcmPlan | None = None


class FirstPacket(LinkModel):
    """One-way delay of an 84-byte IPv4 packet on an idle return link, ms."""

    min: float
    mean: float
    max: float


class DemandPlan(LinkModel):
    """Slots on demand: bursts of a superframe for all terminals and for the ST's constant rate, and
    the time between two requests.
    """

    carrier_slots: int
    cra_slots: int
    synchro_ms: float
    request_bytes: int = 0
    plan_bytes: int = 0
    first_packet_ms: FirstPacket
    other_terminals: int


class ReturnPlan(_DirectionPlan):
    """DVB-RCS2 carrier: `slots_per_superframe` bursts of `burst_payload_bytes` in each
    `superframe_ns`.
    """

    superframe_ns: int
    slots_per_superframe: int
    burst_payload_bytes: int
    demand: DemandPlan | None = None


class ScpcPlan(ForwardPlan):
    """A return link for one terminal (SCPC): a DVB-S2 carrier without slots on demand."""

    demand: None = None


class RttPlan(LinkModel):
    """RTT of an 84-byte IPv4 echo on an idle link, ms. `configured` is the propagation alone; the
    others include the frame model.
    """

    configured: float
    min: float
    mean: float
    max: float


class TerminalPlan(LinkModel):
    """State of a terminal with its own profile, at the start. `forward_rate_bps` is the rate of the
    whole carrier in the terminal's MODCOD.
    """

    terminal: int
    id: int
    gateway: int
    group: str
    forward_modcod: str
    forward_es_n0_db: float
    forward_rate_bps: float
    return_waveform: str
    return_es_n0_db: float
    cra_kbps: int
    cra_slots: int


class LinkPlan(LinkModel):
    """The figures of a link from the frame arithmetic: the expected values of measurements."""

    schema_: Literal["satlab/link-plan/1"] = Field(alias="schema")
    version: str
    profile: str
    profile_sha256: str
    timing: Timing
    seed: int
    forward: ForwardPlan
    return_: ReturnPlan | ScpcPlan = Field(validation_alias=RETURN, serialization_alias="return")
    terrestrial_one_way_delay_ms: float
    rtt_ms: RttPlan
    terminals: tuple[TerminalPlan, ...] = ()
    advice: tuple[str, ...]

    def to_json(self) -> str:
        """Return the text of `plan.json`."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def plan_link(config: LinkConfig, satlink: Path = SATLINK) -> LinkPlan:
    """Return satlink's plan of a configuration; also checks the profile.

    Raises:
        ConfigError: profile or configuration are wrong; holds satlink's own fault lines.
        HostError: the program is missing, hangs, or answers what its schema does not allow.
    """
    if config.emulator == "opensand":  # releases frames on its ticks, whatever the profile holds
        config = config.model_copy(update={"timing": "opensand"})
    with tempfile.NamedTemporaryFile("w", prefix="satlab-link-", suffix=".json") as file:
        file.write(config.to_json())
        file.flush()
        try:
            return ask(
                LinkPlan, satlink, "plan", [file.name], f"profile {config.profile} is not usable"
            )
        except ConfigError as error:  # name the user's timeline, not the file for satlink
            timeline = (config.timeline and config.timeline.file) or "timeline"
            text = str(error).replace(f"{file.name}: timeline.", f"{timeline}: ")
            text = text.replace(file.name, "the link")
            raise ConfigError(text, error.faults, error.hint) from error
