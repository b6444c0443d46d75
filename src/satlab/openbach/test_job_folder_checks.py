# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.openbach.conftest import MakeJob
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.job_folder_checks import check_folder
from satlab.run import validate

COPY = (
    "- name: Copy\n  ansible.builtin.copy:\n    src: '{{ item.file }}'\n    dest: /x\n  loop:"
    " [{file: work.py}]\n"
)


@pytest.fixture
def job(make_job: MakeJob) -> Descriptor:
    """Return a job whose folder is whole."""
    found = make_job("work")
    for verb in ("install", "uninstall"):
        (found.files.parent / f"{verb}_work.yml").write_text(COPY)
    return found


def test_a_whole_folder_has_no_fault(job: Descriptor) -> None:
    assert check_folder(job) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("install_work.yml", None, "install_work.yml: cannot be read: No such file"),
        ("uninstall_work.yml", None, "uninstall_work.yml: cannot be read"),
        ("install_work.yml", "a: 1", "is not a list of tasks"),
        ("install_work.yml", "[", "is not YAML"),
        (
            "install_work.yml",
            "- hosts: all\n  tasks: []\n",
            "install_work.yml: 0: is a play, not a task",
        ),
        (
            "install_work.yml",
            COPY.replace("work.py", "gone.py"),
            "copies gone.py, which is not in files/",
        ),
        ("install_work.yml", "- copy: {src: gone.txt, dest: /x}\n", "copies gone.txt"),
        ("files/work.py", None, "work.py is started, and work.py is not in files/"),
        ("files/work_rstats_filter.conf", "storage=true\n", "is not a filter"),
        (
            "files/work_rstats_filter.conf",
            "[default]\nstorage=maybe\n",
            "is not a filter: Not a boolean: maybe",
        ),
    ],
)
@pytest.mark.promise("P46")
def test_each_fault_is_named(job: Descriptor, name: str, text: str | None, said: str) -> None:
    path = job.files.parent / name
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    found = [str(fault) for fault in check_folder(job)]
    assert any(said in fault for fault in found), found


def test_folders_are_checked_with_all_below(job: Descriptor, tmp_path: Path) -> None:
    validate.check(tmp_path)
    (job.files / "work.py").unlink()
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "a.json").write_text("7")
    (tmp_path / "scenarios" / "b.json").write_text(
        '[{"at_s": -1, "set": {"direction": "both", "outage": 1}}]'
    )
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError) as caught:
        validate.check(tmp_path)
    said = [str(fault) for fault in caught.value.faults]
    assert any("work.py is started" in fault for fault in said)
    assert any("b.json.0.at_s" in fault for fault in said)
    assert any("a.json: 7 is not an object" in fault for fault in said)


def test_everything_of_the_product_is_valid() -> None:
    validate.check(paths.JOBS.parent)
