# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and files that a playbook names, for the sandboxes of one job: from a folder, without a
network.
"""

import hashlib
import json
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common import scratch
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError
from satlab.lab import job_overlay, job_packages
from satlab.lab.job_host import LabHost
from satlab.lab.job_overlay import Layers
from satlab.lab.job_packages import Apt, Pip
from satlab.link.options import LinkOptions
from satlab.openbach import descriptor, runner
from satlab.openbach.fixtures.executor_shapes import start
from satlab.openbach.fixtures.upstream_shapes import write_job
from satlab.openbach.model import BoundScenario, Function, OnFail, StartJob, Wait
from satlab.run import playbook_packages, scenario_run
from tests import json_lines
from tests.net.conftest import executed
from tests.sandbox_place import lab_in_name

pytestmark = pytest.mark.net
QUIET = ProgressLog(quiet=True)
NAMES = ("satlab-standin", "satlab-standin-data")
"""A package and the one that it depends on; the host has neither."""
OWN_FILE = "/etc/satlab-standin/own.conf"
PROGRAM = f"""
import json, os, pathlib, shutil, subprocess
import collect_agent
with collect_agent.use_configuration("none"):
    program = shutil.which("satlab-standin")
    old, data = pathlib.Path("/usr/bin/satlab-old"), pathlib.Path("/usr/share/satlab-standin/data")
    library = subprocess.run(["/usr/bin/python3", "-c", "import satlab_standin"], capture_output=True).returncode == 0
    try:
        open("/usr/bin/mine", "w").close()
        writes = 1
    except OSError:
        writes = 0
    said = subprocess.run([program], capture_output=True, text=True).stdout.strip() if program else ""
    own = pathlib.Path("{OWN_FILE}")
    seen = dict(said=said, old=int(os.access(old, os.X_OK)), data=int(data.exists()), library=int(library))
    seen |= dict(own=own.read_text() if own.exists() else "", writes=writes, root=int(os.geteuid() == 0))
    collect_agent.send_stat(collect_agent.now(), **seen)
"""


def deb(folder: Path, name: str, depends: str, files: dict[str, str], script: str) -> str:
    """Build a package; return its entry in the list of packages."""
    tree = folder / f"tree-{name}"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = (
        f"Package: {name}\nVersion: 1:1.0-1\nArchitecture: all\nMaintainer: x <x@satlab.test>\n"
    )
    fields += "Description: stand-in\n" + (f"Depends: {depends}\n" if depends else "")
    (tree / "DEBIAN/control").write_text(fields)
    for each in ("preinst", "postinst"):
        (tree / "DEBIAN" / each).write_text(script)
        (tree / "DEBIAN" / each).chmod(0o755)
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o755)
    file = folder / f"{name}.deb"
    argv = ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(file)]
    subprocess.run(argv, check=True, capture_output=True)
    content = file.read_bytes()
    return (
        f"{fields}Filename: ./{file.name}\nSize: {len(content)}\nSHA256:"
        f" {hashlib.sha256(content).hexdigest()}\n\n"
    )


@pytest.fixture
def apt(tmp_path: Path) -> Apt:
    """Return apt-get with one source, a folder; what the host has installed it knows."""
    repository = tmp_path / "repository"
    repository.mkdir()
    script = f"#!/bin/sh\ntouch {tmp_path}/a-script-has-run\n"
    first, second = NAMES
    entries = deb(
        repository,
        first,
        second,
        {
            "usr/bin/satlab-standin": "#!/bin/sh\necho stand-in\n",
            "bin/satlab-old": "#!/bin/sh\n",
            "usr/lib/python3/dist-packages/satlab_standin.py": "",
        },
        script,
    )
    entries += deb(repository, second, "", {"usr/share/satlab-standin/data": "x"}, script)
    (repository / "Packages").write_text(entries)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] copy:{repository} ./\n")
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(f"""
Dir::State "{tmp_path}/state"; Dir::State::status "/var/lib/dpkg/status"; Dir::Cache "{tmp_path}/cache";
Dir::Etc::sourcelist "{tmp_path}/sources.list"; Dir::Etc::sourceparts "/dev/null"; APT::Sandbox::User "root";
""")
    made = Apt({"APT_CONFIG": str(tmp_path / "apt.conf")})
    done = made.run("update")
    assert done.returncode == 0, done.stderr
    return made


@dataclass(frozen=True)
class Bench:
    """A folder with the jobs `fping`, whose playbook names packages and a file, and `other`,
    without.
    """

    folder: Path

    @property
    def jobs(self) -> dict[str, descriptor.Descriptor]:
        return descriptor.sort_upstream(self.folder / "jobs")[0]

    def request(self) -> scenario_run.RunRequest:
        """Return the request of a run of `fping`."""
        scenario = self.folder / "seen.json"
        functions = [start(0, "client", "fping", {})]
        scenario.write_text(json.dumps({"name": "seen", "openbach_functions": functions}))
        runs, jobs = self.folder / "runs", (self.folder / "jobs",)
        link = LinkOptions(profile="leo")
        return scenario_run.RunRequest(scenario, link, runs=runs, report=False, jobs=jobs)

    def see(self, made: "dict[str, Layers]") -> dict[str, dict[str, Any]]:
        """Run both jobs without a lab; return what each of them saw."""
        names = sorted(self.jobs)
        functions = [
            Function(number, name, Wait(), OnFail(), StartJob("client", self.jobs[name], ()))
            for number, name in enumerate(names, 1)
        ]
        private, raw = self.folder / "private", self.folder / "raw"
        private.mkdir(mode=0o700)
        host = LabHost(lab_in_name(), private, jobs=[self.folder / "jobs"], layers=made)
        scenario = BoundScenario("seen", {}, tuple(functions))
        result = runner.run(scenario, host, raw, lambda _: None, threading.Event(), 60.0)
        assert result.ok, [result.reason, *(log.read_text() for log in (raw / "logs").iterdir())]
        assert all(job.cpu_s is not None for job in result.jobs), "its use is known"
        sent = json_lines.read(raw / "stats.jsonl")
        return {record["_metadata"]["job_name"]: record for record in sent}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    shape = {"packages": [NAMES[0]]}
    folder = write_job(tmp_path / "jobs", "fping", shape, PROGRAM)
    playbook = folder / "install_fping.yml"
    (folder / "files/own.conf").write_text("own")
    tasks = [*yaml.safe_load(playbook.read_text()), {"copy": {"src": "own.conf", "dest": OWN_FILE}}]
    tasks.append({"shell": f"touch {tmp_path}/a-playbook-has-run"})
    playbook.write_text(yaml.safe_dump(tasks))
    write_job(tmp_path / "jobs", "other", {}, PROGRAM)
    yield Bench(tmp_path)
    scratch.remove(tmp_path / "private")  # its jobs' folder is a file system


def host_files() -> dict[str, tuple[int, int]]:
    """Return what an installation would change."""
    places = (
        "/var/lib/dpkg/status",
        "/usr/bin",
        "/usr/share",
        "/etc",
        "/opt",
        "/var/cache/apt/archives",
    )
    found = {place: Path(place).stat() for place in places if Path(place).exists()}
    return {place: (about.st_mtime_ns, about.st_ino) for place, about in found.items()}


EVERYTHING = {"said": "stand-in", "old": 1, "data": 1, "library": 1, "own": "own"}


@pytest.fixture(params=["stacked", "beneath variables"])
def stacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Try both ways to show layers; a kernel without overlayfs has one."""
    if request.param != "stacked":
        monkeypatch.setattr(job_overlay, "_stacks_here", lambda _: False)
    elif "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no overlayfs")
    yield request.param == "stacked"


def overlays() -> set[str]:
    """Return the mounts of overlayfs that this process sees. The VM lab's nodes have some."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line for line in mounts if " - overlay " in line}


def test_t41_packages_are_for_their_job_alone_and_change_nothing_of_the_host(
    bench: Bench, apt: Apt, stacking: bool, tmp_path: Path
) -> None:
    before, overlays_before = host_files(), overlays()
    with playbook_packages.of_jobs(bench.jobs.values(), QUIET, apt) as made:
        assert set(made) == {"fping", "other"}
        place = made["fping"].folder.parent
        seen = bench.see(dict(made))
        assert overlays() <= overlays_before, "no layer is mounted on the host"
    expected = EVERYTHING if stacking else EVERYTHING | {"old": 0, "data": 0, "own": ""}
    assert {key: seen["fping"][key] for key in expected} == expected
    other = {"said": "", "old": 0, "data": 0, "library": 0, "own": ""}
    assert {key: seen["other"][key] for key in other} == other
    assert all((each["writes"], each["root"]) == (0, 0) for each in seen.values())
    assert not list(tmp_path.glob("a-*-has-run")), "neither scripts of packages nor the playbook"
    assert host_files() == before
    assert not place.exists(), "it is removed with the run"


def test_t41_without_consent_nothing_is_fetched(
    bench: Bench, apt: Apt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("apt-get was called")

    monkeypatch.setattr(Apt, "run", refuse)
    request = bench.request()
    assert scenario_run.prepare(request).with_layers == []
    consented = scenario_run.prepare(replace(request, job_packages=True))
    assert [job.name for job in consented.with_layers] == ["fping"]
    with (
        pytest.raises(AssertionError, match="apt-get was called"),
        playbook_packages.of_jobs(consented.with_layers, QUIET),
    ):
        pass


@pytest.mark.promise("P49")
def test_a_run_with_consent_has_the_packages_of_its_jobs(
    bench: Bench, apt: Apt, satlink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del satlink
    monkeypatch.setattr(playbook_packages, "Apt", lambda: apt)
    request = replace(bench.request(), job_packages=True)
    outcome = executed(request)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    (seen,) = json_lines.read(outcome.folder / "raw/stats.jsonl")
    assert seen["said"] == "stand-in"


def refused(bench: Bench, apt: Apt, reason: str) -> None:
    with (
        pytest.raises(HostError, match=reason),
        playbook_packages.of_jobs(bench.jobs.values(), QUIET, apt),
    ):
        pass


def test_what_cannot_be_fetched_is_named_before_a_lab_is_up(
    bench: Bench, apt: Apt, tmp_path: Path
) -> None:
    (tmp_path / "repository/satlab-standin-data.deb").unlink()
    refused(bench, apt, "fping: packages of jobs cannot be fetched")


def test_what_the_sources_lack_is_named_and_the_rest_is_there(
    bench: Bench, apt: Apt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sources.list").write_text("")
    apt.run("update")
    with playbook_packages.of_jobs(bench.jobs.values(), ProgressLog(), apt) as made:
        assert (made["fping"].folder / f"files{OWN_FILE}").read_text() == "own"
    said = capsys.readouterr().err
    assert "fping: its playbook: the host's package sources have no satlab-standin" in said


@pytest.fixture
def index() -> Iterator[Pip]:
    """Yield pip with one index, a folder that every user may read, with the wheel of a package."""
    about = "satlab_wheel-1.0.dist-info"
    files = {
        "satlab_wheel.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: satlab-wheel\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with zipfile.ZipFile(f"{folder}/satlab_wheel-1.0-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        yield Pip(("--no-index", "-f", folder))


def test_python_packages_come_from_the_index_or_are_named(
    bench: Bench, apt: Apt, index: Pip, capsys: pytest.CaptureFixture[str]
) -> None:
    playbook = bench.folder / "jobs/other/install_other.yml"
    pip = {"pip": {"name": ["satlab-wheel", "satlab-nowhere"], "virtualenv": "/opt/v"}}
    playbook.write_text(yaml.safe_dump([*yaml.safe_load(playbook.read_text()), pip]))
    program = bench.folder / "jobs/other/files/src/other.py"
    program.write_text(program.read_text().replace("satlab_standin", "satlab_wheel"))
    with playbook_packages.of_jobs(bench.jobs.values(), ProgressLog(), apt, index) as made:
        seen = bench.see(dict(made))
    assert seen["other"]["library"] == 1
    said = capsys.readouterr().err
    assert "other: its playbook: the Python package satlab-nowhere: pip:" in said


def test_a_job_writes_to_its_own_etc(bench: Bench, apt: Apt) -> None:
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no overlayfs")
    writing = PROGRAM.replace("/usr/bin/mine", "/etc/sysctl.d/satlab-mine.conf")
    (bench.folder / "jobs/other/files/src/other.py").write_text(writing)
    with playbook_packages.of_jobs(bench.jobs.values(), QUIET, apt) as made:
        seen = bench.see(dict(made))
    assert (seen["other"]["writes"], seen["fping"]["writes"]) == (1, 0)
    assert not Path("/etc/sysctl.d/satlab-mine.conf").exists()


def test_t43_a_package_that_is_too_large_or_unsound_is_refused(
    bench: Bench, apt: Apt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_packages, "MAX_FETCHED_BYTES", 10)
    refused(bench, apt, "more than 150 packages")
    broken, target, place = tmp_path / "broken.deb", tmp_path / "target", tmp_path / "place"
    broken.write_bytes(b"!<arch>\nnonsense")
    tmp_path.chmod(0o755)
    for folder in (target, place):
        folder.mkdir()
    with pytest.raises(HostError, match=r"broken\.deb cannot be unpacked"):
        job_packages.unpack([broken], target, place)
    monkeypatch.setattr(job_packages, "MAX_UNPACKED_BYTES", 1 << 16)
    large = deb(tmp_path, "large", "", {"usr/share/large": "x" * (1 << 20)}, "#!/bin/sh\n")
    assert "large" in large
    with pytest.raises(HostError, match=r"large\.deb cannot be unpacked"):
        job_packages.unpack([tmp_path / "large.deb"], target, place)


def test_t41_a_package_writes_nowhere_else(tmp_path: Path) -> None:
    """One brings a link, the next a file behind it; and a program that would run as its owner."""
    outside, target, place, trees = (
        tmp_path / name for name in ("outside", "target", "place", "trees")
    )
    for folder in (outside, target, place, trees):
        folder.mkdir()
    (trees / "tree-first/usr/share").mkdir(parents=True)
    (trees / "tree-first/usr/share/way").symlink_to(outside)
    (trees / "tree-second/usr/bin").mkdir(parents=True)
    (trees / "tree-second/usr/bin/owner").write_text("x")
    (trees / "tree-second/usr/bin/owner").chmod(0o4755)
    for name, files in (("first", {}), ("second", {"usr/share/way/mine": "x"})):
        deb(trees, name, "", files, "#!/bin/sh\n")
    try:
        job_packages.unpack([trees / "first.deb", trees / "second.deb"], target, place)
    except HostError as error:
        assert "second.deb cannot be unpacked" in str(error)
    assert (target / "usr/share/way").is_symlink() or (target / "usr/share/way/mine").is_file()
    assert list(outside.iterdir()) == []
    assert all(path.lstat().st_uid != 0 for path in target.rglob("*")), (
        "what runs as its owner does not run as root"
    )
