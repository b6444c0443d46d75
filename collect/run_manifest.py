# SPDX-License-Identifier: GPL-3.0-or-later
"""manifest.json: the origin of a run, and how it ended."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from collect.raw import Model


@with_config(ConfigDict(extra="forbid"))
class Leg(TypedDict):
    """Parameters of one leg of connections: those in use (from `ss -ti` and satpep), and those
    requested.
    """

    node: str
    protocol: Literal["tcp", "quic"]
    leg: Annotated[str, Field(description="interface of the node, or side of the QUIC proxy")]
    congestion_control: NotRequired[str]
    congestion_control_asked: NotRequired[str]
    initial_window: NotRequired[
        Annotated[
            str, Field(description="initial windows in packets; several if connections differed")
        ]
    ]
    initial_window_asked: NotRequired[str]
    ack_threshold: NotRequired[str]
    fault: NotRequired[
        Annotated[
            str,
            Field(description="how the parameters in use differ from the requested ones"),
        ]
    ]


@with_config(ConfigDict(extra="forbid"))
class EnforcedBy(TypedDict, total=False):
    """How the limits of jobs are enforced: by control groups, or by satbox's samples (watch); empty
    for the VM lab.
    """

    memory: Literal["cgroup2", "cgroup1", "watch"]
    processes: Literal["cgroup2", "cgroup1", "watch"]
    disk: Literal["file system", "watch"]
    capabilities: Literal["user namespace", "not granted"]


class Manifest(Model):
    """manifest.json: the inputs and programs of a run; written at its start and at its end.

    Times in seconds since the epoch.
    """

    model_config = ConfigDict(frozen=False)
    run_id: str
    scenario: str
    scenario_sha256: str
    profile: str
    profile_sha256: str
    arguments: dict[str, str]
    seed: int
    started_unix_s: float
    satlab_version: str
    lab: Literal["netns", "vm"]
    emulator: str
    ended_unix_s: float | None
    status: Literal["running", "ok", "failed", "interrupted"]
    reason: str
    exit_status: int | None
    host: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, str] = Field(description="SHA-256 of every file below raw/, by relative path")
    legs: list[Leg] = Field(default_factory=list)
    enforced_by: EnforcedBy = Field(default_factory=EnforcedBy)
    schema_: Literal["satlab/manifest/1"] = Field(alias="schema")
