# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/stats.jsonl: the statistics that jobs send.

The shim `collect_agent` writes it, and runs where neither satlab nor pydantic is installed.
"""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict


@with_config(ConfigDict(extra="forbid"))
class Metadata(TypedDict):
    """The job that sent a statistic, and the time."""

    time: Annotated[int, Field(description="time in ms since the epoch")]
    is_file: bool
    job_name: str
    agent_name: str
    job_instance_id: int
    scenario_instance_id: int
    owner_scenario_instance_id: int
    flag: Annotated[int, Field(ge=0, le=3)]
    suffix: NotRequired[str]
    file_names: Annotated[
        NotRequired[dict[str, str]],
        Field(description="names that stored files had, by statistic (not in OpenBACH)"),
    ]


@with_config(ConfigDict(extra="allow"))
class Statistic(TypedDict):
    """One line of raw/stats.jsonl: OpenBACH rstats-to-collector record; other keys are statistics."""

    _metadata: Metadata
