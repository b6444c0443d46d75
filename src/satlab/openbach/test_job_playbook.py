# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a playbook, and what is not taken from it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.openbach import job_playbook
from satlab.openbach.fixtures.upstream_shapes import JOBS, write_jobs
from satlab.openbach.job_playbook import Contents

JOB = "probe"
AGENT = f"/opt/openbach/agent/jobs/{JOB}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / JOB / "files/src").mkdir(parents=True)
    (tmp_path / JOB / "templates").mkdir()
    (tmp_path / JOB / "files/src/probe.py").write_text("program")
    (tmp_path / JOB / "files/probe.conf").write_text("setting")
    (tmp_path / JOB / "templates/plain.j2").write_text("plain")
    (tmp_path / JOB / "templates/filled.j2").write_text("{{ secret }}")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / JOB / "files/link").symlink_to(tmp_path / "outside")
    return tmp_path / JOB


def read(folder: Path, *tasks: dict[str, Any]) -> Contents:
    (folder / f"install_{JOB}.yml").write_text(yaml.safe_dump(list(tasks)))
    return job_playbook.contents(folder)


def test_packages_of_blocks_and_of_conditions_are_distinguished(folder: Path) -> None:
    found = read(
        folder,
        {"apt": {"name": ["fping", "iproute2"]}},
        {
            "block": [
                {"ansible.builtin.apt": {"pkg": "{{ item }}"}, "with_items": ["curl", "fping"]}
            ]
        },
        {"apt": {"pkg": ["old-curl"]}, "when": "ansible_distribution_version == '20.04'"},
        {"block": [{"apt": {"name": "nested"}}], "when": "x"},
        {"apt": {"name": ["gone"], "state": "absent"}},
    )
    assert (found.packages, found.maybe) == (("fping", "iproute2", "curl"), ("old-curl", "nested"))


def test_packages_are_read_in_each_form(folder: Path) -> None:
    """Calls in one line, versions, and names of OpenBACH's own archive."""
    found = read(
        folder,
        {"apt": "name=d-itg-openbach state=present"},
        {"apt": {"name": "nuttcp=8.2.2-2", "force": True}},
        {"apt": "name=gone state=absent"},
        {"apt": "name={{ item }}", "with_items": ["owamp-client"]},
        {"pip": {"name": "python-iptables", "version": "0.12.0", "virtualenv": "/opt/v"}},
        {"pip": "name={{ item }} executable=pip3", "with_items": ["scapy", "blinker==1.7.0"]},
        {"block": [{"pip": {"name": ["pyftpdlib", "-r x", "../y"]}, "remote_user": "x"}]},
    )
    assert found.packages == ("d-itg", "nuttcp", "owamp-client")
    assert found.python == ("python-iptables", "scapy", "blinker", "pyftpdlib")
    assert found.left_out == ()


def test_files_have_their_place_and_rights(folder: Path) -> None:
    words = f"src={{{{ item.src }}}} dest={AGENT}/ mode={{{{ item.mode }}}}"
    found = read(
        folder,
        {"copy": words, "loop": [{"src": "src/probe.py", "mode": "0755"}]},
        {
            "ansible.builtin.copy": {
                "src": "probe.conf",
                "dest": "/etc/{{ job_name }}/own.conf",
                "mode": 0o666,
            }
        },
        {"copy": {"content": "inline", "dest": "/usr/share/probe.txt"}},
        {"template": {"src": "plain.j2", "dest": "/etc/plain"}},
    )
    placed = {str(each.target): (each.content, oct(each.mode)) for each in found.files}
    assert placed == {
        f"{AGENT}/probe.py": (b"program", "0o755"),
        "/etc/probe/own.conf": (b"setting", "0o644"),
        "/usr/share/probe.txt": (b"inline", "0o644"),
        "/etc/plain": (b"plain", "0o644"),
    }
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (
            {"copy": {"src": "probe.conf", "dest": "/etc/../root/.ssh/x"}},
            "are put below /usr, /etc, /opt",
        ),
        ({"copy": {"src": "probe.conf", "dest": "/root/x"}}, "are put below /usr, /etc, /opt"),
        ({"copy": {"src": "probe.conf", "dest": "etc/x"}}, "are put below /usr, /etc, /opt"),
        ({"copy": {"src": "probe.conf", "dest": "/etc"}}, "are put below /usr, /etc, /opt"),
        ({"copy": {"src": "probe.conf", "dest": "//etc/x"}}, "are put below /usr, /etc, /opt"),
        ({"copy": {"src": "/etc/shadow", "dest": "/etc/x"}}, "its source is not a file of the job"),
        (
            {"copy": {"src": "../../outside", "dest": "/etc/x"}},
            "its source is not a file of the job",
        ),
        ({"copy": {"src": "link", "dest": "/etc/x"}}, "its source is not a file of the job"),
        ({"copy": {"src": "src", "dest": "/etc/x"}}, "its source is not a file of the job"),
        ({"copy": {"src": "probe.conf", "dest": "{{ home }}/x"}}, "its place is not written out"),
        ({"template": {"src": "filled.j2", "dest": "/etc/x"}}, "it is a template with expressions"),
        ({"shell": "rm -rf /"}, "tasks of shell are not done"),
        ({"ansible.builtin.git": {"repo": "x"}}, "tasks of ansible.builtin.git are not done"),
    ],
)
def test_t42_what_is_not_taken_is_named(folder: Path, task: dict[str, Any], reason: str) -> None:
    found = read(folder, task)
    assert not found.files
    assert not found.packages
    (line,) = found.left_out
    assert reason in line


@pytest.mark.parametrize(
    "name",
    [
        "-oAPT::Update::Pre-Invoke=x",
        "a b",
        "../x.deb",
        "/tmp/x.deb",
        "x;id",
        "x=1.0",
        "x:i386",
        "x/sid",
        "{{ x }}",
    ],
)
def test_t42_only_names_of_packages_reach_apt(folder: Path, name: str) -> None:
    assert read(folder, {"apt": {"name": [name, "fping"]}}).packages == ("fping",)
    assert read(folder, {"apt": {"deb": name}}).packages == ()


def test_t43_names_and_files_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"apt": {"name": [f"package{number}" for number in range(51)]}}
    assert read(folder, many).packages == ()
    assert "more than 50 packages" in read(folder, many).left_out[0]
    monkeypatch.setattr(job_playbook, "MAX_FILE_BYTES", 3)
    assert (
        "more than 3 bytes"
        in read(folder, {"copy": {"src": "probe.conf", "dest": "/etc/x"}}).left_out[0]
    )


def test_a_playbook_that_cannot_be_read_has_nothing(folder: Path) -> None:
    assert job_playbook.contents(folder) == Contents()
    for text in ("{", "[1, [2], null]", "a: b", "- block: 3\n- copy: [1]\n- apt: 7\n"):
        (folder / f"install_{JOB}.yml").write_text(text)
        assert job_playbook.contents(folder) == Contents()


def test_shapes_of_upstream_s_jobs_are_read(tmp_path: Path) -> None:
    write_jobs(tmp_path)
    found = {
        path.parent.name: job_playbook.contents(path.parent)
        for path in tmp_path.glob("*/*/install_*.yml")
    }
    assert found.keys() == JOBS.keys()
    assert found["fping"].packages == ("fping", "iproute2")
    for name, each in found.items():
        assert [str(file.target) for file in each.files] == [
            f"/opt/openbach/agent/jobs/{name}/{name}.py"
        ]


def test_t64_a_loop_is_counted_before_its_files_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand copies of a file of 15 MiB would be 15 GB of memory."""
    with (folder / "files/large").open("wb") as large:
        large.truncate(15 << 20)
    monkeypatch.setattr(job_playbook, "_content", lambda *_, **__: pytest.fail("it is read"))
    loop = [{"n": number} for number in range(1000)]
    found = read(folder, {"copy": {"src": "large", "dest": "/opt/x/{{ item.n }}"}, "loop": loop})
    assert found == Contents(left_out=("names more than 50 packages or 200 files: none is used",))


def test_t64_files_of_a_loop_and_what_fills_them_are_bounded(folder: Path) -> None:
    with (folder / "files/large").open("wb") as large:
        large.truncate(15 << 20)
    loop = [{"n": number} for number in range(100)]
    found = read(folder, {"copy": {"src": "large", "dest": "/opt/x/{{ item.n }}"}, "loop": loop})
    assert len(found.files) == 4 and "67108864 in all" in found.left_out[0]
    filled = {
        "copy": {"content": "{{ item }}" * 10_000, "dest": "/opt/x/y"},
        "loop": ["x" * 100_000],
    }
    assert read(folder, filled).left_out == (
        "/opt/x/y: what fills it has more than 65536 characters",
    )


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "a/" * 2000, "a\x1b[2J", "\ud800", "."])
def test_t74_names_that_no_file_has_are_left_out(folder: Path, name: str) -> None:
    assert not read(folder, {"copy": {"src": name, "dest": "/opt/x/y"}}).files
    found = read(folder, {"copy": {"content": "", "dest": f"/opt/x/{name}/y"}})
    assert all(file.target.as_posix().isprintable() for file in found.files)
