# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m tools.try_ci_templates FOLDER` (root): tries the action and the templates of docs/ci on
what a hosted runner has.

A fresh Debian container for each job: compilers, Python, Rust. GitHub's user may use sudo; GitLab's
is root. The commit that is checked out is cloned there; the stack under test is
tests/endpoints/planted. FOLDER keeps the container's root, caches, artifacts and logs. `--template
NAME` tries one of them. The template github-action needs the package of `make release`, `--package
FILE`; without it that one is left out. `--programs FOLDER` are programs of this commit that the
first job finds built, which otherwise takes it minutes. Prints a JSON line for each job; status 1:
a job did not end as it must.
"""

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from satlab.common import install, paths, yaml_text
from satlab.vm import box

TEMPLATES = paths.ROOT / "docs" / "ci"
ACTION = paths.ROOT / "action.yml"
PLANTED = paths.ROOT / "tests/endpoints/planted/lockstep.py"
PACKAGES = """
sudo git ca-certificates curl procps iproute2 xz-utils python3 python3-venv gcc g++ make cmake
pkg-config libc6-dev
"""
"""Debian packages that the images of hosted runners have as well."""
PROGRAMS = ("satlink", "satvirtual", "satbox")
"""Of the launcher's group lockstep."""
SOURCE = "/srv/satlab"
"""Where a container sees the repository of satlab: it replaces the address in GitLab's template."""
DEADLINE_S = 3600.0


@dataclass(frozen=True)
class Template:
    """A job as its service runs it, from its file.

    `script` decides the status. `keeps` follows on main after a success, `after` in any case and
    without effect on the status. Paths are of the job's folder: `cached` from one job to the next,
    `artifacts` of every job.
    """

    service: str
    user: str
    home: str
    folder: str
    script: str
    keeps: str
    after: str
    cached: tuple[str, ...]
    artifacts: tuple[str, ...]
    has_checkout: bool
    """The service checks out satlab, not the script."""
    variables: Mapping[str, str] = field(default_factory=dict)
    branch_variable: str | None = None
    results: str = "."
    """Folder of check.json and check.xml."""


GITHUB = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "outputs"}
PUSH, ALWAYS = "github.event_name == 'push'", "always()"


def _steps(name: str) -> list[dict[str, Any]]:
    [job] = yaml_text.read(TEMPLATES / name)["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def _runs(steps: list[dict[str, Any]], condition: str | None) -> str:
    return "\n".join(step["run"] for step in steps if "run" in step and step.get("if") == condition)


def _places(steps: list[dict[str, Any]], action: str) -> tuple[str, ...]:
    """Return the paths of the actions for caches or artifacts."""
    used = [
        step["with"]["path"]
        for step in steps
        if step.get("uses", "").startswith(f"actions/{action}")
    ]
    return tuple(dict.fromkeys(word.rstrip("/") for path in used for word in path.split()))


def github() -> Template:
    """Read github-actions.yml: its steps with commands, and the paths of the actions for caches and
    artifacts.
    """
    return Template(
        "github-actions",
        "vagrant",
        "/home/vagrant",
        "/home/vagrant/work",
        **_of_steps(_steps("github-actions.yml")),
        has_checkout=True,
        variables=GITHUB,
    )


def _of_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "script": _runs(steps, None),
        "keeps": _runs(steps, PUSH),
        "after": _runs(steps, ALWAYS),
        "cached": _places(steps, "cache"),
        "artifacts": _places(steps, "upload-artifact"),
    }


def action(source: str = SOURCE, package: str = "", sha256: str = "") -> Template:
    """Read github-action.yml, with the step of action.yml in place of its use; '' for `package`:
    satlab's commit.
    """
    steps = _steps("github-action.yml")
    [use] = [step for step in steps if step.get("uses", "").startswith("OWNER/satlab@")]
    given = {**use["with"], "package": package, "package-sha256": sha256}
    use["run"] = action_script(given, source)
    return Template(
        "github-action",
        "root",
        "/root",
        "/github/workspace",
        **_of_steps(steps),
        has_checkout=False,
        variables=GITHUB,
        results="satellite",
    )


def action_script(given: Mapping[str, str], source: str) -> str:
    """Return the commands of action.yml for its inputs, as GitHub fills them in; its caches are
    left out.
    """
    about = yaml_text.read(ACTION)
    inputs: dict[str, str] = {
        **{name: entry["default"] for name, entry in about["inputs"].items()},
        **given,
    }
    lines = [f"export GITHUB_ACTION_PATH={shlex.quote(source)}"]
    for step in about["runs"]["steps"]:
        if "run" in step:
            for name, text in step["env"].items():
                value = re.sub(
                    r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], text
                )
                lines.append(f"export {name}={shlex.quote(value)}")
            lines.append(step["run"])
    return "\n".join(lines)


def gitlab(source: str = SOURCE, commit: str = "HEAD") -> Template:
    """Read gitlab-ci.yml; what a user fills in is satlab's repository and commit."""
    text = (TEMPLATES / "gitlab-ci.yml").read_text()
    text = re.sub(
        r"\bCOMMIT\b", commit, text.replace("https://HOST/OWNER/satlab", f"file://{source}")
    )
    job = yaml_text.load(text)["satellite"]
    cached = [path.rstrip("/") for cache in job["cache"] for path in cache["paths"]]
    artifacts = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    return Template(
        "gitlab-ci",
        "root",
        "/root",
        "/builds/group/stack",
        "\n".join(job["script"]),
        "",
        "\n".join(job["after_script"]),
        tuple(cached),
        tuple(path.rstrip("/") for path in artifacts),
        has_checkout=False,
        variables={"CI": "true", "CI_DEFAULT_BRANCH": "main"},
        branch_variable="CI_COMMIT_BRANCH",
    )


@dataclass(frozen=True)
class Job:
    """A run of the template: the stack's fault, whether it is of main, whether caches are restored,
    its status.
    """

    name: str
    fault: str
    is_main: bool
    has_cache: bool
    status: int


JOBS = (
    Job("first run of main", "none", is_main=True, has_cache=False, status=0),
    Job("no change", "none", is_main=False, has_cache=True, status=0),
    Job("planted slowdown", "static", is_main=False, has_cache=True, status=1),
)


def put_stack(work: Path, fault: str, python: str = "/usr/bin/python3") -> None:
    """Write the repository of a stack: `make lockstep` builds its adapter."""
    stack = work / "stack"
    stack.mkdir(parents=True)
    shutil.copy(PLANTED, stack / "planted.py")
    program = stack / "lockstep"
    program.write_text(f'#!/bin/sh\nexec {python} "$(dirname "$0")/planted.py" {fault}\n')
    program.chmod(0o755)
    (work / "Makefile").write_text("lockstep:\n\tmkdir -p build && cp -p stack/* build/\n")


def root_of(folder: Path) -> Path:
    """Return the root of all containers, made if it is missing."""
    root, archive = folder / "root", folder / "root.tar"
    if not root.is_dir():
        box.make_root(archive, PACKAGES.split())
        root.mkdir()
        box.unpack(archive, root)
        archive.unlink()
        tools = root / "home/vagrant/.cargo/bin"
        tools.mkdir(parents=True)
        for name in ("cargo", "rustc"):
            (tools / name).symlink_to(f"/opt/rust/bin/{name}")
        subprocess.run(["chown", "-R", "1000:1000", str(tools.parent)], check=True)
    return root


def inside(
    folder: Path, template: Template, work: Path, script: str, branch: str
) -> tuple[int, float]:
    """Run a script in a container whose changes are thrown away; return its status and duration, s."""
    rust = subprocess.run(
        ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
    ).stdout.strip()
    variables = {
        **template.variables,
        "HOME": template.home,
        "PATH": f"/opt/rust/bin:{paths.STANDARD_PATH}",
    }
    if template.branch_variable:
        variables[template.branch_variable] = branch
    argv = ["systemd-nspawn", "--quiet", f"--directory={folder / 'root'}", "--volatile=overlay"]
    argv += ["--register=no", "--keep-unit", "--link-journal=no", "--console=pipe"]
    argv += ["--resolv-conf=replace-host", "--overlay=/etc/ssl/certs::/etc/ssl/certs"]
    argv += ["--capability=all", "--system-call-filter=@known"]  # a hosted runner is a VM
    argv += [f"--bind-ro={folder / 'source'}:{SOURCE}", f"--bind-ro={rust}:/opt/rust"]
    argv += [f"--bind={work}:{template.folder}", "--as-pid2", "runuser", "-u", template.user, "--"]
    argv += ["env", *(f"{name}={value}" for name, value in variables.items())]
    argv += ["bash", "-eo", "pipefail", "-c", f"cd {template.folder}\n{script}"]
    began = time.monotonic()
    with (work / "log").open("ab") as log:
        done = subprocess.run(
            argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False
        )
    return done.returncode, round(time.monotonic() - began, 1)


def prepared(folder: Path, template: Template, job: Job, programs: Path | None) -> Path:
    """Return the job's folder as the service makes it: the stack, satlab's commit or not, and what
    caches hold.
    """
    work, cache = folder / "work", folder / "cache"
    shutil.rmtree(work, ignore_errors=True)
    put_stack(work, job.fault)
    if template.has_checkout:
        subprocess.run(
            ["git", "clone", "--quiet", f"file://{folder / 'source'}", str(work / "satlab")],
            check=True,
        )
    if job.has_cache:
        for name in template.cached:
            (work / name).parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "-a", str(cache / name), str(work / name)], check=True)
    elif programs is not None:
        put_programs(folder / "source", work, programs)
    owner = "1000:1000" if template.user == "vagrant" else "0:0"
    subprocess.run(["chown", "-R", owner, str(work)], check=True)
    return work


def put_programs(source: Path, work: Path, programs: Path) -> None:
    """Put programs into a job's folder as the launcher would have built them, with the sum of their
    sources.
    """
    target, state = work / "satlab" / "target" / "release", work / "satlab" / ".satlab"
    for place in (target, state):
        place.mkdir(parents=True)
    built_from = install.sources_sum(source)
    for name in PROGRAMS:
        shutil.copy(programs / name, target / name)
        (state / f"release-{name}.sources").write_text(built_from)


def keep(work: Path, place: Path, names: tuple[str, ...]) -> list[str]:
    """Copy paths of a job's folder; return those that are missing."""
    shutil.rmtree(place, ignore_errors=True)
    for name in names:
        if (work / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", str(work / name), str(place / name)], check=True)
    return [name for name in names if not (place / name).exists()]


def run(folder: Path, template: Template, job: Job, programs: Path | None) -> dict[str, Any]:
    """Run a job and return its line of output."""
    work, branch = prepared(folder, template, job, programs), "main" if job.is_main else "change"
    status, duration_s = inside(folder, template, work, template.script, branch)
    missing = []
    if job.is_main and status == 0:
        if template.keeps:
            inside(folder, template, work, template.keeps, branch)
        missing += keep(work, folder / "cache", template.cached)
    inside(folder, template, work, template.after, branch)
    name = f"{template.service}-{job.name.replace(' ', '-')}"
    missing += keep(work, folder / "artifacts" / name, template.artifacts)
    shutil.copy(work / "log", folder / f"{name}.log")
    results = work / template.results
    compared = (
        (json.loads((results / "check.json").read_text() or "{}").get("compared") or ())
        if not missing
        else ()
    )
    if (results / "check.xml").is_file():
        ET.parse(results / "check.xml")  # noqa: S314 - written by the job: a service would refuse what does not parse
    grew = sorted({one["grew"] for one in compared if one["is_slower"]})
    is_expected = status == job.status and bool(grew) is (job.status == 1) and not missing
    return {
        "template": template.service,
        "job": job.name,
        "status": status,
        "duration_s": duration_s,
        "grew": grew,
        "missing": missing,
        "as_expected": is_expected,
    }


def main(folder: Path, chosen: str | None, programs: Path | None, package: Path | None) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    root_of(folder)
    shutil.rmtree(folder / "source", ignore_errors=True)
    clone = ["git", "clone", "--quiet", f"file://{paths.ROOT}", str(folder / "source")]
    subprocess.run(clone, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=folder / "source",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    is_good = True
    templates = [github(), gitlab(commit=commit)]
    if package is not None:
        shutil.copy(package, folder / "source" / "satlab.deb")
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        templates.append(action(package=f"{SOURCE}/satlab.deb", sha256=digest))
    for template in templates:
        if chosen not in (None, template.service):
            continue
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for job in JOBS:
            line = run(folder, template, job, programs)
            print(json.dumps(line), flush=True)
            is_good &= line["as_expected"]
            if job.is_main and line["status"] != 0:
                break
    return 0 if is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--template", choices=("github-actions", "gitlab-ci", "github-action"))
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--package", type=Path)
    asked = parser.parse_args()
    sys.exit(main(asked.folder.absolute(), asked.template, asked.programs, asked.package))
