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
    player: str = Field(
        default="own", max_length=100, description="dash.js and its version, or own"
    )
    startup_s: float | None = Field(
        default=None,
        ge=0,
        description="by the events of dash.js, as the fields below: from the first request to the"
        " first picture; null: our own player",
    )
    stalls: int | None = Field(default=None, ge=0)
    stalled_s: float | None = Field(default=None, ge=0)
    switches: int | None = Field(default=None, ge=0, description="changes of the bitrate on screen")
    bitrate_bps: float | None = Field(
        default=None, ge=0, description="mean bitrate on screen, over the time of the video"
    )


def records(video: Video, labels: Mapping[str, str]) -> list[Record]:
    """Return the figures of a video that was played to its end; otherwise one failed sample.

    `video_bitrate_bps` (mean over the video), `video_startup_ms` (from the first request to the
    first picture; of our own player, to the first segment's end), `video_stalls_count`,
    `video_stalled_s`, `video_switches_count`. dash.js may load a segment again in another bitrate;
    its bitrate is that of the pictures on screen.
    """
    played = {segment.index: segment.bitrate_bps for segment in video.segments}
    about = {
        **labels,
        "page": video.page,
        "protocol": video.protocol,
        "player": video.player,
        "n": str(len(played)),
    }
    if video.fault or len(played) != video.requested_segments:
        reason = video.fault or f"{len(played)} of {video.requested_segments} segments"
        return [failed("video_bitrate_bps", about, reason)]
    rates = [played[index] for index in sorted(played)]
    first, last = video.segments[0], video.segments[-1]
    startup_s, switches = video.startup_s, video.switches
    if startup_s is None:
        startup_s = first.finished_s - first.requested_s
    if switches is None:
        switches = sum(rate != after for rate, after in itertools.pairwise(rates))
    bitrate_bps = sum(rates) / len(rates) if video.bitrate_bps is None else video.bitrate_bps
    stalls = last.stalls if video.stalls is None else video.stalls
    stalled_s = last.stalled_s if video.stalled_s is None else video.stalled_s
    return [
        Record("video_bitrate_bps", bitrate_bps, about),
        Record("video_startup_ms", 1000 * startup_s, about),
        Record("video_stalls_count", stalls, about),
        Record("video_stalled_s", stalled_s, about),
        Record("video_switches_count", switches, about),
    ]
