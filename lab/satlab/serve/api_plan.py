# SPDX-License-Identifier: GPL-3.0-or-later
"""What the supervisor tells the API process."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class ApiPlan(BaseModel):
    """What the API process is told. `listener`, `certificate`, `key`: file descriptors; the last two make it TLS."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    state: Path
    hosts: list[str]
    helper: Path
    listener: int
    certificate: int | None = None
    key: int | None = None
