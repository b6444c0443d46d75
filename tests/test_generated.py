# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in the tree that are made from others."""

import pytest

from satlab.common.paths import PROFILES, ROOT
from satlab.experiment import validate
from satlab.link.options import LinkOptions, shipped_profiles
from tools import generate


def test_generated_files_are_up_to_date() -> None:
    made = dict(generate.files())
    old = [path.relative_to(ROOT) for path, text in made.items() if not path.is_file() or path.read_text() != text]
    assert old == [], "make generate"
    shipped = {path for name in shipped_profiles() for path in (PROFILES / name).iterdir()}
    assert shipped == {path for path in made if path.is_relative_to(PROFILES)}


def test_the_base_is_not_a_profile() -> None:
    assert shipped_profiles() == ("geo", "geo-acm", "geo-dama", "leo")
    assert LinkOptions(profile="geo-dama").profile_folder() == PROFILES / "geo-dama"
    assert all(": terminal " in line for line in validate.check(PROFILES))


def test_a_change_of_what_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = {"topology.xml": {"frequency_plan/no_such_element": 1}}
    layers = iter([{"topology.xml": {"from": "topology.xml"}}, overlay])
    monkeypatch.setattr("yaml.safe_load", lambda _: next(layers))
    with pytest.raises(KeyError, match="no_such_element"):
        list(generate.profile("geo"))
