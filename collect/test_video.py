# SPDX-License-Identifier: GPL-3.0-or-later
import json
from typing import Any

import jsonschema
import pytest

from collect import video
from satlab.common import paths

LABELS = {"entity": "client"}


def segment(
    index: int, bitrate_bps: float, stalls: int = 0, stalled_s: float = 0.0
) -> dict[str, Any]:
    return {
        "index": index,
        "bitrate_bps": bitrate_bps,
        "bytes": round(bitrate_bps / 2),
        "requested_s": index + 0.5,
        "finished_s": index + 1.25,
        "buffer_s": 4.0,
        "stalls": stalls,
        "stalled_s": stalled_s,
    }


def played(**changes: Any) -> dict[str, Any]:
    segments = [segment(0, 4e5), segment(1, 16e5, 1, 0.5), segment(2, 16e5, 1, 0.5)]
    return {
        "schema": "satlab/video/1",
        "start_unix_s": 1.0,
        "page": "video",
        "protocol": "h3",
        "segment_s": 4.0,
        "buffer_s": 20.0,
        "bitrates_bps": [4e5, 16e5],
        "requested_segments": 3,
        "fault": "",
        "segments": segments,
    } | changes


@pytest.mark.promise("P51")
def test_bitrate_start_stalls_and_switches() -> None:
    jsonschema.validate(
        played(), json.loads((paths.ROOT / "schemas/video.schema.json").read_text())
    )
    found = {
        record.metric: record.value
        for record in video.records(video.Video.model_validate(played()), LABELS)
    }
    assert found == {
        "video_bitrate_bps": pytest.approx(12e5),
        "video_startup_ms": pytest.approx(750),
        "video_stalls_count": 1,
        "video_stalled_s": 0.5,
        "video_switches_count": 1,
    }


def test_figures_of_dash_js_are_those_of_its_events() -> None:
    again = [segment(0, 4e5), segment(0, 16e5), segment(1, 16e5), segment(2, 16e5)]
    told = {"player": "dash.js 5.2.1", "startup_s": 2.5, "stalls": 2, "stalled_s": 1.5}
    told |= {"switches": 3, "bitrate_bps": 9e5}
    content = video.Video.model_validate(played(segments=again) | told)
    found = video.records(content, LABELS)
    assert {record.metric: record.value for record in found} == {
        "video_bitrate_bps": 9e5,
        "video_startup_ms": 2500,
        "video_stalls_count": 2,
        "video_stalled_s": 1.5,
        "video_switches_count": 3,
    }
    assert {record.labels["player"] for record in found} == {"dash.js 5.2.1"}
    missing = video.Video.model_validate(played(segments=again[:3]) | told)
    (record,) = video.records(missing, LABELS)
    assert record.reason == "2 of 3 segments"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fault": "stopped"}, "stopped"),
        ({"segments": []}, "0 of 3 segments"),
        ({"requested_segments": 4}, "3 of 4 segments"),
    ],
)
def test_a_video_that_did_not_end_is_a_failed_sample(changes: dict[str, Any], reason: str) -> None:
    (record,) = video.records(video.Video.model_validate(played(**changes)), LABELS)
    assert (record.status, record.reason) == ("failed", reason)
