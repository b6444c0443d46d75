# SPDX-License-Identifier: GPL-3.0-or-later
"""Time from a bare machine to the first figure (root, Debian's mirror, a quiet host), by package or
clone: `python -m tools.first_figure dist/satlab_*.deb --suite trixie`, `... . --suite trixie`.

For each round a bare Debian root is unpacked, which is not timed. In it the commands of README run:
the package of `make release` is installed, or this repository is cloned, and the demo runs. Prints a
JSON line for each round and one with the medians. Status 1: a command failed, or a median is above
its target; 3: the host cannot do it; 4: measured, but a demo was out of calibration.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from satlab.common.errors import ExitStatus, HostError
from satlab.vm import box

APT = "apt-get -q update && apt-get -q -y --no-install-recommends install"


@dataclass(frozen=True)
class Way:
    """A way to the first figure: commands, one after the other."""

    install: str
    demo: str


PACKAGE = Way(f"{APT} /satlab.deb", "satlab demo")
CLONE = Way(f"{APT} git && git clone -q /satlab.git satlab", "cd satlab && ./satlab demo")
SUITES = ("bookworm", "trixie")
TARGETS_S = {"demo_s": 90.0, "total_s": 120.0}
"""What README's reader waits for at most: the demo, and all from the bare machine on."""
DEADLINE_S = 900.0
NO_SERVICES = "#!/bin/sh\nexit 101\n"
"""/usr/sbin/policy-rc.d: packages start no services in a root that is not booted (invoke-rc.d(8)).
"""


@dataclass(frozen=True)
class Round:
    """Times of a round, s, and the exit status of the demo; one that was not reached is None."""

    install_s: float
    demo_s: float | None
    demo_status: int | None

    @property
    def total_s(self) -> float | None:
        """From the bare machine to the first figure."""
        return None if self.demo_s is None else round(self.install_s + self.demo_s, 1)

    @property
    def is_measured(self) -> bool:
        """Whether the demo came to its figures."""
        return self.demo_status in (ExitStatus.OK, ExitStatus.UNCALIBRATED)


Run = Callable[[str], int]
"""Runs a command in the machine and returns its exit status."""


def measure(run: Run, way: Way) -> Round:
    """Install and run the demo in a bare machine."""
    clock = time.monotonic
    began = clock()
    status = run(way.install)
    installed = clock()
    if status:
        return Round(round(installed - began, 1), None, None)
    status = run(way.demo)
    return Round(round(installed - began, 1), round(clock() - installed, 1), status)


def summary(rounds: Sequence[Round]) -> dict[str, object]:
    """Return the medians, and whether they are within their targets; a round that failed fails all."""
    if not all(one.is_measured for one in rounds):
        return {
            "rounds": len(rounds),
            "median": None,
            "targets_s": TARGETS_S,
            "status": int(ExitStatus.FAILED),
        }
    times = [asdict(one) | {"total_s": one.total_s} for one in rounds]
    medians = {
        name: statistics.median(each[name] for each in times) for name in ("install_s", *TARGETS_S)
    }
    is_late = any(medians[name] > target for name, target in TARGETS_S.items())
    is_off = any(one.demo_status == ExitStatus.UNCALIBRATED for one in rounds)
    status = ExitStatus.FAILED if is_late else ExitStatus.UNCALIBRATED if is_off else ExitStatus.OK
    return {"rounds": len(rounds), "median": medians, "targets_s": TARGETS_S, "status": int(status)}


def inside(root: Path, command: str) -> list[str]:
    """Return what runs a command in a root, in a mount namespace of its own, which its mounts end
    with.

    By pivot_root(2): in a chroot the kernel makes no user namespace, which sandboxes of jobs need.
    """
    place = shlex.quote(str(root))
    mounts = [f"mount --bind {place} {place}"]
    mounts += [
        f"mount --rbind /{name} {shlex.quote(str(root / name))}" for name in ("proc", "sys", "dev")
    ]
    mounts += [f"mount -t tmpfs tmpfs {shlex.quote(str(root / name))}" for name in ("run", "tmp")]
    enter = f"cd {place} && pivot_root . . && umount --lazy ."
    script = " && ".join(
        [*mounts, enter, f"exec /bin/sh -c {shlex.quote(f'cd /root && {command}')}"]
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def prepare(archive: Path, root: Path, source: Path) -> Way:
    """Unpack a bare root and put the package or a repository into it.

    Raises:
        HostError: tar or git is missing or fails.
    """
    root.mkdir()
    box.unpack(archive, root)
    if source.is_dir():
        box.run(["git", "clone", "-q", "--bare", str(source), str(root / "satlab.git")])
    else:
        (root / "satlab.deb").write_bytes(source.read_bytes())
    for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):  # mirrors are the host's
        (root / name).write_bytes(Path("/", name).read_bytes())
    (root / "etc/hosts").write_text(
        "127.0.0.1 localhost\n::1 localhost\n"
    )  # by Debian's installer, not by a package
    services = root / "usr/sbin/policy-rc.d"
    services.write_text(NO_SERVICES)
    services.chmod(0o755)
    return CLONE if source.is_dir() else PACKAGE


def rounds(source: Path, suite: str, count: int, scratch: Path, log: Path) -> Iterable[Round]:
    """Yield each round. The output of its commands is appended to `log`."""
    archive = scratch / "root.tar"
    box.run(
        [
            "mmdebstrap",
            "--variant=minbase",
            "--include=ca-certificates",
            suite,
            str(archive),
            *box.mirrors(suite),
        ]
    )
    for number in range(1, count + 1):
        root = scratch / f"root-{number}"
        way = prepare(archive, root, source)

        def run(command: str, root: Path = root) -> int:
            environment = {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND": "noninteractive",
                "HOME": "/root",
            }
            environment |= {
                name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")
            }
            with log.open("a", encoding="utf-8") as output:
                output.write(f"$ {command}\n")
                output.flush()
                done = subprocess.run(
                    inside(root, command),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=DEADLINE_S,
                    check=False,
                )
            return done.returncode

        yield measure(run, way)
        box.run(["rm", "-rf", "--one-file-system", str(root)])


def main(argv: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path, help="package of `make release`, or a clone")
    parser.add_argument("--suite", default=box.SUITE, choices=SUITES, help="release of Debian")
    parser.add_argument(
        "--rounds", type=int, default=3, choices=range(1, 21), metavar="N", help="1 to 20"
    )
    parser.add_argument(
        "--log", type=Path, default=Path("first-figure.log"), help="takes the commands' output"
    )
    given = parser.parse_args(argv)
    try:
        if os.geteuid() != 0 or not given.source.exists():
            raise HostError(
                f"needs root and {given.source}", "run: make release, then this as root"
            )
        found = []
        with tempfile.TemporaryDirectory(prefix="satlab-first-figure-") as scratch:
            place = Path(scratch)
            for one in rounds(given.source, given.suite, given.rounds, place, given.log):
                found.append(one)
                print(json.dumps(asdict(one) | {"total_s": one.total_s}), flush=True)
    except HostError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    result = summary(found)
    print(json.dumps(result))
    return int(str(result["status"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
