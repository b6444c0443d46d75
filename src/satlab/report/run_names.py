# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of runs: by what differs between them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import collect
from satlab.report import measurements


@dataclass(frozen=True)
class RunSettings:
    """What a run was asked for: `arguments` and constants of its scenario, `link`: options of the
    link that are not the default, `files`: digests of scenario and profile.
    """

    scenario: str
    profile: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    link: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def without_seed(self) -> "RunSettings":
        """Return what equal runs share: their seeds may differ."""
        return replace(self, link={n: text for n, text in self.link.items() if n != "seed"})


def settings_of(about: collect.Manifest, options: Sequence[str]) -> RunSettings:
    """Return the settings of a run; `options` are those of its link, as on the command line."""
    link = link_values(options) | {"emulator": about.emulator, "seed": str(about.seed)}
    files = {"scenario": about.scenario_sha256[:8], "profile": about.profile_sha256[:8]}
    return RunSettings(about.scenario, about.profile, about.arguments, link, files)


def options_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the link's options of plan.json; none where it does not have them."""
    options = plan.get("options")
    return [str(word) for word in options] if isinstance(options, list) else []


def link_values(options: Sequence[str]) -> dict[str, str]:
    """Return the values of options without the profile; an option without a value is `yes`."""
    found: dict[str, str] = {}
    for word, following in zip(options, [*options[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word[2:].replace("-", "_")] = "yes" if following.startswith("--") else following
    found.pop("profile", None)
    return found


def of_folders(folders: Sequence[Path]) -> dict[str, str]:
    """Return the name of each run by its id.

    Raises collect.RunFolderError: a folder is no run's.
    """
    manifests = [collect.manifest(folder) for folder in folders]
    settings = [
        settings_of(about, options_of(measurements.plan(folder)))
        for folder, about in zip(folders, manifests, strict=True)
    ]
    return dict(zip((about.run_id for about in manifests), names(settings), strict=True))


def _without_folders(text: str) -> str:
    return re.sub(r"[^:\s]*/", "", text)


def differing(runs: Sequence[RunSettings]) -> list[dict[str, str]]:
    """Return what differs between runs, for each of them.

    Arguments count where runs of one scenario differ, or where all runs have them; a file where its
    name is the same. An option that a run was not given is `default`.
    """
    found: list[dict[str, str]] = []
    for run in runs:
        alike = [other for other in runs if other.scenario == run.scenario]
        own: dict[str, str] = {}
        if len(alike) < len(runs):
            own["scenario"] = run.scenario
        if any(other.profile != run.profile for other in runs):
            own["profile"] = run.profile
        for name, text in run.arguments.items():
            others = [other.arguments.get(name) for other in runs]
            among = others if None not in others else [each.arguments.get(name) for each in alike]
            if any(other != text for other in among):
                own[name] = text
        for name in dict.fromkeys(name for other in runs for name in other.link):
            values = {other.link.get(name, "default") for other in runs}
            if len(values) > 1:
                text = run.link.get(name, "default")
                is_clear = len(set(map(_without_folders, values))) == len(values)
                own[name] = _without_folders(text) if is_clear else text
        for name, digest in run.files.items():
            namesakes = (each for each in runs if getattr(each, name) == getattr(run, name))
            if any(other.files.get(name) != digest for other in namesakes):
                own[f"{name} file"] = digest
        found.append(own)
    return found


def words(differences: Mapping[str, str]) -> str:
    """Return what differs as a name: `bulk_tcp over geo, loss=0.01`."""
    values = dict(differences)
    heads = (values.pop("scenario", ""), values.pop("profile", ""))
    texts = [" over ".join(filter(None, heads)), *(f"{n}={text}" for n, text in values.items())]
    return ", ".join(filter(None, texts))


def titles(runs: Sequence[RunSettings]) -> list[str]:
    """Return what differs as a title for each run; equal runs have equal ones."""
    return [
        words(own) or f"{run.scenario} over {run.profile}"
        for run, own in zip(runs, differing(runs), strict=True)
    ]


def names(runs: Sequence[RunSettings]) -> list[str]:
    """Return a name for each run. Runs that are equal have numbers."""
    found = titles(runs)
    count, seen = Counter(found), Counter[str]()
    for place, name in enumerate(found):
        if count[name] > 1:
            seen[name] += 1
            found[place] = f"{name}, run {seen[name]}"
    return found
