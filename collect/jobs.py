# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/jobs.jsonl: where each job instance ran, and how it ended (schemas/jobs.schema.json)."""

from collections.abc import Iterable, Mapping, Set
from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record

MEASURING = (
    "satlab_curl",
    "satlab_iperf3",
    "satlab_page_load",
    "satlab_ping",
    "satlab_rrul",
    "satlab_satperf",
    "satlab_stream",
    "satlab_ftp",
    "satlab_load",
    "satlab_video",
)
"""Jobs whose files become figures.

Other jobs (servers) are services: they ordinarily end by being stopped.
"""

SERVING = {
    "satlab_ftp": "server",
    "satlab_iperf3": "server",
    "satlab_load": "receive",
    "satlab_rrul": "server",
    "satlab_satperf": "server",
    "satlab_stream": "receive",
}
"""The argument that makes a measuring job the serving side, which is stopped when the other has
ended.
"""

LOG_TAIL = 400
"""Characters of a failed job's log that its reason quotes."""


JobEnd = Literal["Not Running", "Error", "Stopped", "Agent Unreachable", "Not Scheduled", "Unknown"]


class Job(Model):
    """One line of raw/jobs.jsonl: one ended job instance."""

    job_instance_id: int
    scenario_instance_id: int
    owner_scenario_instance_id: int
    function_id: int
    label: str
    job: str
    entity: str
    argv: tuple[str, ...]
    start_unix_s: float
    stop_unix_s: float
    exit_code: int | None = Field(
        description="exit code; negative: the signal that ended the job; null: the job could not be started"
    )
    status: JobEnd
    log: str
    cpu_s: float | None = Field(
        default=None, ge=0, description="CPU time of all processes of the job; null: unknown"
    )
    waited_s: float | None = Field(
        default=None,
        ge=0,
        description="time in which a thread of the job was runnable and had no core",
    )
    peak_bytes: int | None = Field(default=None, ge=0, description="peak memory")

    @property
    def folder(self) -> str:
        """The folder of the instance's stored files, below raw/files/."""
        return f"{self.job}-{self.job_instance_id}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that identify the instance in its records."""
        return {
            "job": self.job,
            "instance": str(self.job_instance_id),
            "entity": self.entity,
            "function": self.label,
        }


def records(jobs: Iterable[Job], run_start_unix_s: float, stored: Set[str]) -> list[Record]:
    """Return `job_ok` per instance; its labels `start_s` and `stop_s` are seconds since the start
    of the run.

    `stored`: names of the folders in raw/files/.
    """
    return [_record(job, run_start_unix_s, stored) for job in jobs]


def _record(job: Job, origin: float, stored: Set[str]) -> Record:
    labels: Mapping[str, str] = job.labels | {
        "start_s": f"{job.start_unix_s - origin:.3f}",
        "stop_s": f"{job.stop_unix_s - origin:.3f}",
    }
    is_service = job.job not in MEASURING or (
        SERVING.get(job.job) in job.argv and job.folder in stored
    )
    if job.status == "Not Running" or (job.status == "Stopped" and is_service):
        return Record("job_ok", 1.0, labels)
    if job.status == "Stopped":
        return Record(
            "job_ok", None, labels, status="censored", reason="stopped before it ended by itself"
        )
    ended = (
        "without an exit status" if job.exit_code is None else f"ended with status {job.exit_code}"
    )
    tail = job.log.strip()[-LOG_TAIL:]
    reason = f"{job.status}: {ended}" + (f": {tail}" if tail else "")
    return Record("job_ok", None, labels, status="failed", reason=reason)
