# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of delay and attenuation that a profile names, next to its XML, through a whole run: with
and without loop.
"""

import shutil
from pathlib import Path

import pytest

from satlab.common import paths
from tests import json_lines
from tests.net.conftest import AsPlanned, satlab

pytestmark = pytest.mark.net

FILES = {
    # 125 ms up to step 2, 75 ms at step 3, which a file without loop holds: steps of a second, the
    # first is step 1.
    "orbit.txt": "# STEP ms\n1 125\n2 125\n3 75\n",
    # 0 and 1 dB, again and again: steps 0, 1, 2 of a loop that begins with step 1.
    "rain.txt": "1 0\n2 1\n",
}
DELAY = """<delay_type>FileDelay</delay_type>
        <file_path>orbit.txt</file_path>
        <refresh_period>1000</refresh_period>
        <loop>false</loop>"""
RAIN = """<attenuation_type>File</attenuation_type>
        <file_attenuation_file>rain.txt</file_attenuation_file>
        <file_attenuation_loop>true</file_attenuation_loop>"""
EDITS = (
    ("<delay_type>ConstantDelay</delay_type>\n        <delay_value>125</delay_value>", DELAY),
    (
        (
            "<attenuation_type>Ideal</attenuation_type>\n       "
            " <ideal_attenuation_value>0.0</ideal_attenuation_value>"
        ),
        RAIN,
    ),
)


def profile(folder: Path) -> Path:
    """The GEO profile whose terminal has a delay and a downlink attenuation from files next to its
    XML.
    """
    shutil.copytree(paths.PROFILES / "geo", folder)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    file = folder / "profile_st.xml"
    up, mark, down = file.read_text().partition("<downlink_attenuation>")
    assert EDITS[0][0] in up and EDITS[1][0] in down
    file.write_text(up.replace(*EDITS[0]) + mark + down.replace(*EDITS[1]))
    return folder


def changes(link: Path, field: str, direction: str) -> list[tuple[float, float]]:
    """Time since the first change of the profile, s, and value of each change of a field."""
    own = [line for line in json_lines.read(link, "change") if line["origin"] == "profile"]
    zero = min(line["t_s"] for line in own)
    mine = [line for line in own if line["direction"] == direction and field in line["set"]]
    assert all(line["error"] is None for line in mine)
    # A thread that has seen a later moment begins then: a hundredth of a second is far above that.
    return [(round(line["t_s"] - zero, 2), line["set"][field]) for line in mine]


def test_files_of_a_profile_change_the_link_of_a_run(tmp_path: Path, as_planned: AsPlanned) -> None:
    folder = profile(tmp_path / "profile")

    def attempt(runs: Path) -> Path:
        words = f"run bulk_udp --runs {runs} --profile {folder} --no-report"
        settings = "--set duration=6 --set bandwidth=2M"
        satlab(*f"{words} {settings}".split())
        return next(runs.glob("*/raw/link.jsonl"))

    link = as_planned(attempt)
    # They start with the scenario, and step with the second; what does not change is not reported.
    assert changes(link, "delay_ms", "forward") == [(0.0, 250.0), (2.0, 200.0)]
