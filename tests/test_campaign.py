# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole campaigns under Snakemake: killed and resumed, and what the engine costs."""

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from satlab.campaign import dataset, engine
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.common import paths
from tests import campaigns

pytestmark = pytest.mark.skipif(
    not engine.is_installed() or not paths.SATVIRTUAL.exists(),
    reason="needs Snakemake and satvirtual",
)
COUNT = 30


@pytest.mark.promise("P93")
def test_p207_each_task_is_once_in_the_dataset_after_five_kills(tmp_path: Path) -> None:
    log = campaigns.interrupted(tmp_path / "c", COUNT, seed=7)
    assert len(log) == len(campaigns.KILLS), log
    assert not [line for line in log if ": 0 killed" in line], log
    plan = campaigns.plan(COUNT)
    assert campaigns.rows_of_tasks(tmp_path / "c", COUNT) == Counter(
        {task.id: 1 for task in plan.tasks}
    )
    where = CampaignFolder(tmp_path / "c")
    assert {len(where.attempts(task)) for task in plan.tasks} == {1}


@pytest.mark.timing
def test_p211_the_engine_starts_a_task_soon_after_another_ended(tmp_path: Path) -> None:
    assert campaigns.start(tmp_path / "c", COUNT).wait(campaigns.DEADLINE_S) == 0
    records = dataset.collect(
        campaigns.plan(COUNT), CampaignFolder(tmp_path / "c")
    ).records.values()
    attempts = sorted(
        (record.last for record in records if record), key=lambda attempt: attempt.began_unix_s
    )
    assert len(attempts) == COUNT
    # Two at a time: from the end of one task to the begin of the next but one.
    gaps = [
        later.began_unix_s - one.ended_unix_s
        for one, later in zip(attempts, attempts[2:], strict=False)
    ]
    # About 0.3 s alone on the host. An engine that polls, or starts anew for each task, takes
    # longer.
    assert median(gaps) < 5
