# SPDX-License-Identifier: GPL-3.0-or-later
"""A suite of targets, `suites/*.yml` (satlab/suite/1): links, transfers and their target times."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from satlab.common import paths, plain_words, yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.link.config import MOST_NUMBERS, RETURN, LossProcess, Ratio, Reorder

MB = 1_000_000
MOST_MARKS, MOST_CASES, MOST_MODES = 20, 1000, 100
MOST_FILES_BYTES = 1 << 30
"""Largest size of all files of a case, bytes."""
MOST_FILES = 2000
Mark = Annotated[float, Field(ge=0.001, le=1000)]
"""Payload in 10^6 bytes, from 1 kB to 1 GB, so that it fits in a sandbox."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SuiteLink(_Model):
    """Parameters of all links of a suite: round-trip time without frames, ms; queue of each
    direction, in BDP of that direction.
    """

    rtt_ms: float = Field(ge=1, le=2000)
    queue_bdp: float = Field(gt=0, le=100)


class Change(_Model):
    """A change of the link `at_s` after the start of the first transfer.

    `forward_mbps`: rate, Mbit/s. `rtt_ms`: round-trip time without frames. `outage_s`: time in
    which neither direction carries anything.
    """

    at_s: float = Field(ge=0, le=3600)
    forward_mbps: float | None = Field(default=None, gt=0.1, le=1000)
    rtt_ms: float | None = Field(default=None, ge=1, le=10_000)
    outage_s: float | None = Field(default=None, gt=0, le=300)

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.forward_mbps is None and self.rtt_ms is None and self.outage_s is None:
            raise ValueError("nothing to change: give forward_mbps, rtt_ms or outage_s")
        return self


class Rebinding(_Model):
    """A NAT at the client's gateway that gives its flows other ports, and with `address` another
    address: `first_s` after the first packet to the server, and then every `every_s`.
    """

    address: bool = False
    first_s: float = Field(default=1, gt=0, le=3600)
    every_s: float = Field(default=5, ge=0.1, le=3600)


PacketNumbers = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=MOST_NUMBERS)]


class Drops(_Model):
    """Single packets of each direction that are lost: their numbers, from 1 on, among the packets
    that cross the satellite link of that direction since the start of the first transfer. What the
    queue drops is not counted.
    """

    forward: PacketNumbers = ()
    return_: PacketNumbers = Field(
        default=(), validation_alias=RETURN, serialization_alias="return"
    )

    @model_validator(mode="after")
    def _drops_something(self) -> Self:
        if not self.forward and not self.return_:
            raise ValueError("drops nothing: set forward or return")
        return self


class Case(_Model):
    """One link, one transfer, and the target time for each mark of the suite (None: no target).

    Rates in Mbit/s for full-size IP packets. `rtt_ms` and `queue_bdp` replace the suite's.
    `queue_packets` is the limit of each direction's queue in packets, in place of a BDP. `loss`
    applies to both directions, as does `jitter_ms`: uniform from 0 up to it, without reordering.
    `reorder`, `duplicate` and `corrupt` apply to both directions from the start of the first
    transfer: packets held back until later ones have overtaken them, the share of packets that come
    twice, and the share of UDP datagrams with one flipped bit in the payload and a checksum that
    fits. `drops`: single packets that are lost.
    With `second_after_s` the sample is a second transfer, which starts this long after the end of
    the first one and may resume its session, unless `zero_rtt` is false. `source_mbps` is the rate
    at which the sender's application generates payload (None: all payload is available at once).
    `runs` is the number of samples in place of the suite's. `client` and `server` are options of
    satperf; options of the command line come after them. Other
    programs cannot run a case with these or with `source_mbps`. `changes` count from the start of the
    first transfer. With `neighbour` a second client behind the same address transfers as much at
    the same time; only under the virtual clock. `reference_s` are times of the suite's `reference`,
    which are shown and not judged.

    `test` is a test case of the QUIC interop runner, for its endpoints: files of `files_bytes`,
    `copies` of each size, with names of `name_length` characters. `server_test` is the server's
    test case if it differs. `host` is the server's name in the URLs: server4, server6 (no packet
    may be of IPv4) or server46 (both). `rebinding` puts a NAT on the path; with
    `large_certificate` the server's first flight is larger than it may be before the server has
    validated the client's address. The packets must show:

    - `handshakes`: so many; `retry`: whether the server sent a Retry, whose token came back;
    - `resumed`: the server accepted a session; `early_data`: the requests were in 0-RTT packets;
    - `key_update`: both sides sent packets of a second key phase;
    - `cipher`: the client offered this one alone; `client_hellos`: it sent at least so many;
    - `max_streams`: the server granted at most so many streams in its transport parameters;
    - `version2`: both sides changed from version 1 to 2; without it all was in version 1;
    - `ecn`: both sides marked their packets, and reported the marks of the other;
    - `rebinding`: the server validated each new path of the client;
    - `migrated`: the client changed to the server's preferred address, with a new connection id;
    - `large_certificate`: the server kept to three times what it had received.

    `lacking` is the reason why a test case cannot be run.
    """

    id: Name
    forward_mbps: float = Field(gt=0.1, le=1000)
    return_mbps: float = Field(ge=0.05, le=100)
    rtt_ms: float | None = Field(default=None, ge=1, le=2000)
    queue_bdp: float | None = Field(default=None, gt=0, le=100)
    queue_packets: int | None = Field(default=None, ge=1, le=100_000)
    direction: Literal["download", "upload"] = "download"
    loss: LossProcess | None = None
    jitter_ms: float | None = Field(default=None, gt=0, le=1000)
    reorder: Reorder | None = None
    duplicate: Ratio = 0.0
    corrupt: Ratio = 0.0
    drops: Drops | None = None
    changes: tuple[Change, ...] = Field(default=(), max_length=1000)
    second_after_s: float | None = Field(default=None, gt=0, le=1000)
    zero_rtt: bool = True
    runs: int | None = Field(default=None, ge=1, le=1000)
    source_mbps: float | None = Field(default=None, gt=0, le=1000)
    neighbour: bool = False
    client: dict[str, int | str] = {}
    server: dict[str, int | str] = {}
    targets_s: tuple[float | None, ...] = ()
    reference_s: tuple[float | None, ...] = ()
    timeout_s: float = Field(default=300, gt=0, le=3600)
    test: Name | None = None
    server_test: Name | None = None
    files_bytes: tuple[Annotated[int, Field(ge=1, le=1 << 30)], ...] = Field(
        default=(), max_length=MOST_FILES
    )
    copies: int = Field(default=1, ge=1, le=MOST_FILES)
    name_length: int = Field(default=8, ge=8, le=250)
    handshakes: int | None = Field(default=None, ge=1, le=1000)
    retry: bool | None = None
    resumed: bool = False
    early_data: bool = False
    key_update: bool = False
    cipher: Literal["chacha20"] | None = None
    client_hellos: int | None = Field(default=None, ge=1, le=100)
    max_streams: int | None = Field(default=None, ge=1)
    version2: bool = False
    ecn: bool = False
    migrated: bool = False
    host: Literal["server4", "server6", "server46"] = "server4"
    rebinding: Rebinding | None = None
    large_certificate: bool = False
    lacking: str = ""

    @property
    def sends_early_data(self) -> bool:
        """Whether the sample's request may go as 0-RTT data."""
        return self.second_after_s is not None and self.zero_rtt

    @property
    def file_sizes(self) -> tuple[int, ...]:
        """Sizes of all files of a test case, bytes."""
        return self.files_bytes * self.copies

    @property
    def has_several_paths(self) -> bool:
        """Whether client or server may have more than one address, or one of IPv6."""
        return self.host != "server4" or self.rebinding is not None

    @property
    def is_for_satperf(self) -> bool:
        """Whether the case sets options or a source rate, which only satperf has."""
        return bool(self.client or self.server or self.source_mbps is not None)


def _with_modes(schema: dict[str, Any]) -> None:
    schema["properties"]["modes"] = {
        "description": (
            "fields of cases by name of a mode: each case is taken in each mode, as CASE-MODE"
        ),
        "type": "object",
        "additionalProperties": {"type": ["object", "null"]},
    }


class Suite(_Model):
    """The YAML file of a suite of satlab check.

    Times are from the client's first packet until `marks_mb` (10^6 bytes) have arrived.

    A suite without marks has test cases, which pass or fail as a whole. `modes` in the file are
    fields by name: each case is taken in each mode, as CASE-MODE. `own_targets`: the targets are
    satlab's own, not those of the source. `seed` of the first sample and the number of `runs` are
    defaults of the command line's.
    """

    model_config = ConfigDict(json_schema_extra=_with_modes)
    schema_: Literal["satlab/suite/1"] = Field(alias="schema")
    name: Name
    source: str = Field(min_length=1)
    reference: str = ""
    own_targets: bool = False
    link: SuiteLink
    seed: int = Field(default=1, ge=0, lt=1 << 53)
    runs: int | None = Field(default=None, ge=1, le=1000)
    marks_mb: tuple[Mark, ...] = Field(default=(), max_length=MOST_MARKS)
    cases: tuple[Case, ...] = Field(min_length=1, max_length=MOST_CASES)

    @property
    def targets(self) -> str:
        """Heading of the targets in a table: "target s", or "own target s" for satlab's own."""
        return "own target s" if self.own_targets else "target s"

    @model_validator(mode="before")
    @classmethod
    def _in_each_mode(cls, document: object) -> object:
        if not isinstance(document, dict) or (modes := document.get("modes")) is None:
            return document
        listed = document.get("cases")
        if not isinstance(modes, dict) or not all(
            isinstance(each or {}, dict) for each in modes.values()
        ):
            raise ValueError("modes are fields of cases, by name of a mode")
        if not isinstance(listed, list) or not all(isinstance(case, dict) for case in listed):
            raise ValueError("cases is a list of cases")
        if len(modes) > MOST_MODES or len(modes) * len(listed) > MOST_CASES:
            raise ValueError(
                f"more than {MOST_MODES} modes, or {MOST_CASES} cases in all modes together"
            )
        cases = [
            {**case, **(fields or {}), "id": f"{case.get('id')}-{mode}"}
            for case in listed
            for mode, fields in modes.items()
        ]
        return {key: value for key, value in document.items() if key != "modes"} | {"cases": cases}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if list(self.marks_mb) != sorted(set(self.marks_mb)):
            raise ValueError("marks_mb must be ascending")
        marks = len(self.marks_mb)
        wrong = {
            f"files_bytes has more than {MOST_FILES_BYTES} bytes together": [
                case.id for case in self.cases if sum(case.file_sizes) > MOST_FILES_BYTES
            ],
            f"files_bytes and copies make more than {MOST_FILES} files": [
                case.id for case in self.cases if len(case.file_sizes) > MOST_FILES
            ],
            "targets_s needs one value (or null) per mark": [
                case.id for case in self.cases if len(case.targets_s) != marks
            ],
            "without marks_mb a case needs test and files_bytes, or lacking": [
                case.id
                for case in self.cases
                if not marks and not case.files_bytes and not case.lacking
            ],
            "queue_bdp and queue_packets exclude each other": [
                case.id
                for case in self.cases
                if case.queue_bdp is not None and case.queue_packets is not None
            ],
            "reference_s needs the suite's reference, and one value (or null) per mark": [
                case.id
                for case in self.cases
                if case.reference_s and (not self.reference or len(case.reference_s) != marks)
            ],
            "duplicate ids": [
                name for name, count in Counter(case.id for case in self.cases).items() if count > 1
            ],
        }
        for rule, names in wrong.items():
            if names:
                raise ValueError(f"{rule}: {', '.join(names)}")
        return self

    def case(self, name: str) -> Case:
        """Return the case with this id. Raises StopIteration if there is none."""
        return next(case for case in self.cases if case.id == name)

    def selected(self, names: Sequence[str]) -> tuple[Case, ...]:
        """Return the named cases in the suite's order; all cases without names. A text may hold
        several names: "a,b".

        Raises:
            ConfigError: the suite has no case of a name.
        """
        names = [name for text in names for name in text.split(",")]
        known = [case.id for case in self.cases]
        faults = [
            Fault("--cases", f"{name} is not a case of {self.name}", ", ".join(known))
            for name in names
            if name not in known
        ]
        if faults:
            raise ConfigError(f"suite {self.name}", faults)
        return tuple(case for case in self.cases if not names or case.id in names)


def file_of(name: str) -> Path:
    """Return the file of a suite. A `name` that ends in .yml or .yaml is a path, any other name is
    that of a file in suites/.

    Raises:
        ConfigError: no suite of this name is shipped.
    """
    if name.endswith((".yml", ".yaml")):
        return Path(name)
    file = paths.SUITES / f"{name}.yml"
    if "/" in name or not file.is_file():
        known = ", ".join(sorted(path.stem for path in paths.SUITES.glob("*.yml")))
        raise ConfigError(
            f"no suite {name} is shipped ({known})", hint="or use a file: --suite FILE.yml"
        )
    return file


def load(path: Path) -> Suite:
    """Read and validate a suite.

    Raises:
        ConfigError: all faults of the file.
    """
    try:
        content = yaml_text.read(path)
        if content is None:
            raise ConfigError(f"{path} is empty", hint="shipped suites are in suites/")
        return Suite.model_validate(content)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint="shipped suites are in suites/"
        ) from error
    except ValidationError as error:
        faults = [
            Fault(
                f"{path}: {'.'.join(map(str, fault['loc'])) or 'suite'}",
                *plain_words.of_fault(fault),
            )
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{path} is no suite that can run", faults) from error
