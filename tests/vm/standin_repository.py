# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the repositories of OpenSAND, OpenBACH and Grafana: their names, versions and
layout, signed, small.

So the tasks, units and templates of the roles really run where those repositories cannot be
reached. What is proved is that the roles ask for what the repositories have, not that OpenSAND or
OpenBACH work.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "packages.satlab.test"
SUITE = "bookworm"
PACKAGES = {
    # name: (version, dependencies), as in the repository's own list of bookworm/stable
    "opensand": ("8.2.0", "opensand-core (>= 8.2.0), libopensand-gse-encap-plugin (>= 8.2.0)"),
    "opensand-core": ("8.2.0", "python3"),
    "libopensand-gse-encap-plugin": ("8.2.0", "opensand-core (= 8.2.0)"),
    "collect-agent": ("1.4.5", "python3"),
    "pepsal": ("2.0.2", ""),
    "grafana": ("11.0.0", "python3"),
}
OTHER_VERSIONS = {"opensand": "8.3.0", "collect-agent": "1.5.0"}
"""Newer releases, which a pinned host must not take."""
_INSTALLER = """\
#!/bin/sh
# Stand-in for OpenBACH's installer: reaches every host of its inventory, then starts what stands for the controller.
set -eu
grep -q '^ansible==12' "$PIP_CONSTRAINT"
grep -q '^\\[controller\\]' inventory/satlab
sed -n 's/^\\([0-9.]*\\) openbach_name=.*/\\1/p' inventory/satlab | while read -r address; do
  ssh -n -o BatchMode=yes -o StrictHostKeyChecking=yes "$address" sudo -n true
done
sudo install -D -m 644 standin_controller.py /opt/openbach-standin/controller.py
sudo systemd-run --unit=openbach-standin python3 /opt/openbach-standin/controller.py
"""


@dataclass(frozen=True)
class Repository:
    """A folder to be served as `HOST`, the key that signs it, and the commit of its OpenBACH."""

    folder: Path
    key: Path
    commit: str


def build(folder: Path, opensand: Path) -> Repository:
    """Build the repository; `opensand` is the program that plays OpenSAND."""
    folder.mkdir(parents=True)
    with _keyring() as home:
        identity = "satlab stand-in <standin@satlab.test>"
        _gpg(home, "--quick-generate-key", "--passphrase", "", identity, "default", "default", "1d")
        key = folder / "standin.asc"
        key.write_text(_gpg(home, "--armor", "--export", identity))
        served = folder / "served"
        pool = served / "net4sat" / SUITE / "pool"
        pool.mkdir(parents=True)
        versions = [(name, *rest) for name, rest in PACKAGES.items()]
        versions += [(name, version, "") for name, version in OTHER_VERSIONS.items()]
        for name, version, depends in versions:
            _deb(folder / "trees" / f"{name}-{version}", pool, name, version, depends, opensand)
        _index(served / "net4sat" / SUITE, home)
    return Repository(served, key, _openbach(folder / "openbach", served / "openbach.git"))


def _deb(tree: Path, pool: Path, name: str, version: str, depends: str, opensand: Path) -> None:
    (tree / "DEBIAN").mkdir(parents=True)
    lines = [
        f"Package: {name}",
        f"Version: {version}",
        "Architecture: amd64",
        "Maintainer: stand-in <x@satlab.test>",
    ]
    lines += [f"Depends: {depends}"] if depends else []
    (tree / "DEBIAN/control").write_text("\n".join([*lines, "Description: stand-in", ""]))
    if name == "opensand-core":
        program = tree / "usr/bin/opensand"
        program.parent.mkdir(parents=True)
        program.write_text("#!/usr/bin/python3\n" + opensand.read_text())
        program.chmod(0o755)
    if name == "pepsal":
        _unit(tree, name, "/bin/sleep infinity")
    if name == "grafana":
        _unit(tree, "grafana-server", "/usr/bin/python3 /usr/share/grafana/server.py")
        program = tree / "usr/share/grafana/server.py"
        program.parent.mkdir(parents=True)
        program.write_text(Path(__file__).with_name("standin_grafana.py").read_text())
        for folder in ("dashboards", "datasources"):
            (tree / "etc/grafana/provisioning" / folder).mkdir(parents=True)
        (tree / "DEBIAN/preinst").write_text(
            "#!/bin/sh\nset -e\ngetent group grafana || groupadd --system grafana\n"
        )
        (tree / "DEBIAN/preinst").chmod(0o755)
    _run(
        [
            "dpkg-deb",
            "--build",
            "--root-owner-group",
            str(tree),
            str(pool / f"{name}_{version}_amd64.deb"),
        ]
    )


def _unit(tree: Path, name: str, command: str) -> None:
    unit = tree / f"lib/systemd/system/{name}.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart={command}\n\n[Install]\nWantedBy=multi-user.target\n")


def _index(root: Path, home: Path) -> None:
    component = root / "dists" / SUITE / "stable" / "binary-amd64"
    component.mkdir(parents=True)
    (component / "Packages").write_text(_run(["apt-ftparchive", "packages", "pool"], cwd=root))
    release = root / "dists" / SUITE
    fields = {"Suite": SUITE, "Codename": SUITE, "Components": "stable", "Architectures": "amd64"}
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    text = _run(["apt-ftparchive", *options, "release", str(release)])
    (release / "Release").write_text(text)
    _gpg(home, "--clearsign", "--output", str(release / "InRelease"), str(release / "Release"))


def _openbach(tree: Path, bare: Path) -> str:
    """Make a git repository that has OpenBACH's entry points, served as plain files; return its
    commit.
    """
    (tree / "ansible/inventory").mkdir(parents=True)
    installer = tree / "ansible/ansible-playbook"
    installer.write_text(_INSTALLER)
    installer.chmod(0o755)
    controller = Path(__file__).with_name("standin_controller.py")
    (tree / "ansible" / controller.name).write_text(controller.read_text())
    (tree / "ansible/install.yml").write_text("---\n[]\n")
    (tree / "ansible/inventory/README.md").write_text("stand-in\n")
    _run(["git", "-C", str(tree), "init", "-q", "-b", "master"])
    _run(["git", "-C", str(tree), "add", "."])
    person = ["-c", "user.name=stand-in", "-c", "user.email=x@satlab.test"]
    _run(["git", "-C", str(tree), *person, "commit", "-q", "-m", "stand-in"])
    _run(["git", "-C", str(tree), "tag", "openbach-2.7.0"])
    _run(["git", "clone", "-q", "--bare", str(tree), str(bare)])
    _run(["git", "-C", str(bare), "update-server-info"])
    return _run(["git", "-C", str(bare), "rev-parse", "HEAD"]).strip()


@contextmanager
def _keyring() -> Iterator[Path]:
    """Yield an empty home of GnuPG.

    Its path is short: the agent's sockets lie there (unix(7): 107 bytes).
    """
    with tempfile.TemporaryDirectory(prefix="gpg-") as name:
        yield Path(name)
        _run(["gpgconf", "--homedir", name, "--kill", "gpg-agent"])


def _gpg(home: Path, *words: str) -> str:
    return _run(
        ["gpg", "--batch", "--yes", "--pinentry-mode", "loopback", "--homedir", str(home), *words]
    )


def _run(argv: list[str], cwd: Path | None = None) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        argv, cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=120
    ).stdout
