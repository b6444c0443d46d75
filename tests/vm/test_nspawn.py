# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole VM lab in booted containers: every role, a second run that changes nothing, traffic, threats."""

import pytest

from tests.vm.stage import Provisioned

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(1800)]


def test_site_converges_on_every_host(provisioned: Provisioned) -> None:
    print(f"boot {provisioned.boot_s:.0f} s, site.yml {provisioned.play_s:.0f} s")
    assert set(provisioned.recap) == set(provisioned.containers.processes)
    assert all(r.failed == r.unreachable == 0 and r.changed > 0 for r in provisioned.recap.values())


def test_verify_is_green_and_changes_nothing(provisioned: Provisioned) -> None:
    assert all(r.changed == r.failed == r.unreachable == 0 for r in provisioned.play("verify.yml").values())


def test_a_second_run_changes_nothing(provisioned: Provisioned) -> None:
    changed = {name: recap.changed for name, recap in provisioned.play("site.yml").items()}
    assert changed == dict.fromkeys(changed, 0)
