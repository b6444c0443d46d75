# SPDX-License-Identifier: GPL-3.0-or-later
"""Adaptive videos (schemas/video.schema.json): bitrate, stalls, start-up delay."""

import itertools
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "video_json"
MAIN_METRICS = ("video_bitrate_bps",)


class Segment(Model):
    """A segment that arrived; times in s since the player's start. `stalls` and `stalled_s` are
    totals of the playback so far.
    """

    index: int = Field(ge=0)
    bitrate_bps: float = Field(gt=0)
    bytes: int = Field(gt=0)
    requested_s: float
    finished_s: float
    buffer_s: float = Field(description="video that is loaded and not yet played")
    stalls: int = Field(ge=0)
    stalled_s: float = Field(ge=0)


class Video(Model):
    """An adaptive video as a client played it (job satlab_video)."""

    schema_: Literal["satlab/video/1"] = Field(alias="schema")
    start_unix_s: float
    page: str
    protocol: Literal["h1", "h2", "h3"]
    segment_s: float = Field(gt=0)
    buffer_s: float = Field(gt=0, description="longest playback buffer")
    bitrates_bps: list[float]
    requested_segments: int = Field(gt=0)
    fault: str = Field(description="why the video was not played to its end; empty if it was")
    segments: list[Segment]


def records(video: Video, labels: Mapping[str, str]) -> list[Record]:
    """Return the figures of a video that was played to its end; otherwise one failed sample.

    `video_bitrate_bps` (mean over the video), `video_startup_ms` (from the first request to the
    first segment's end), `video_stalls_count`, `video_stalled_s`, `video_switches_count`.
    """
    about = {
        **labels,
        "page": video.page,
        "protocol": video.protocol,
        "n": str(len(video.segments)),
    }
    if video.fault or len(video.segments) != video.requested_segments:
        reason = video.fault or f"{len(video.segments)} of {video.requested_segments} segments"
        return [failed("video_bitrate_bps", about, reason)]
    rates = [segment.bitrate_bps for segment in video.segments]
    first, last = video.segments[0], video.segments[-1]
    switches = sum(rate != after for rate, after in itertools.pairwise(rates))
    return [
        Record("video_bitrate_bps", sum(rates) / len(rates), about),
        Record("video_startup_ms", 1000 * (first.finished_s - first.requested_s), about),
        Record("video_stalls_count", last.stalls, about),
        Record("video_stalled_s", last.stalled_s, about),
        Record("video_switches_count", switches, about),
    ]
