# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a Vagrant box from Debian packages alone: `python -m satlab.vm.box FOLDER`, as root, in
about two minutes.

It is for hosts that cannot reach public boxes. The user of the box is `vagrant` with Vagrant's
well-known key, which Vagrant replaces at the first boot. Host keys are made at the first boot and
printed on the console.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from satlab.common import escape
from satlab.common.console import say
from satlab.common.errors import HostError

NAME = "satlab/bookworm"
SUITE = "bookworm"


def mirrors(suite: str) -> tuple[str, ...]:
    """Return apt's sources of a Debian release, with its updates."""
    base = "deb http://deb.debian.org/debian"
    return (
        f"{base} {suite} main",
        f"{base} {suite}-updates main",
        f"{base}-security {suite}-security main",
    )


MIRRORS = mirrors(SUITE)
BASE_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "procps",
    "openssh-server",
    "sudo",
    "python3",
    "python3-apt",
    "iproute2",
    "iputils-ping",
    "nftables",
    "ca-certificates",
    "rsync",
)
BOOT_PACKAGES = ("linux-image-cloud-amd64", "initramfs-tools", "iperf3")
"""Packages: to boot, and for the hosts of the link, so that these need no package lists.
"""
DISK_MIB = 8192
DEADLINE_S = 1800
INSECURE_KEY = (
    "ssh-rsa"
    " AAAAB3NzaC1yc2EAAAABIwAAAQEA6NF8iallvQVp22WDkTkyrtvp9eWW6A8YVr+kz4TjGYe7gHzIw+niNltGEFHzD8+v1I2YJ6oXevct1YeS0o9HZyN1Q9qgCgzUFtdOKLv6IedplqoPkcmF0aYet2PkEDo3MlTBckFXPITAMzF8dJSIFo9D8HfdOV0IAdx4O7PtixWKn5y2hMNG0zQPyUecp4pzC6kivAIhyfHilFR61RGL+GPXQ2MWZWFYbAGjyiYJnAmCP3NOTd0jMZEnDkbUvxhMmBYSdETk1rRgm+R4LOzFUGaHqHDLKLX+FIPKcF96hrucXzcWyLbIbEgE98OHlnVYCzRdK8jlqm8tehUc9c9WhQ=="  # noqa: E501
    " vagrant insecure public key"
)
_CONSOLE_UNIT = """\
[Unit]
Description=Print the host's keys on the console
After=ssh.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cat /etc/ssh/ssh_host_ed25519_key.pub >/dev/ttyS0'

[Install]
WantedBy=multi-user.target
"""
_KEYS_UNIT = """\
[Unit]
Description=Make the host's keys
Before=ssh.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -q -t ecdsa -N "" -f /etc/ssh/ssh_host_ecdsa_key
ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key

[Install]
WantedBy=multi-user.target
"""
# Interpreted on a busy host, a boot takes minutes: not a fault of a service.
_PATIENCE = "[Manager]\nDefaultTimeoutStartSec=900s\nDefaultDeviceTimeoutSec=900s\nDefaultStartLimitIntervalSec=0\n"
_NO_WATCHDOG = "[Service]\nWatchdogSec=0\n"
_WATCHED = ("systemd-networkd", "systemd-logind", "systemd-journald", "systemd-udevd")
# A measuring host must not update itself meanwhile, and has no snapshots that need scrubbing.
_MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service")
_EXTLINUX = """\
DEFAULT linux
TIMEOUT 1
LABEL linux
  KERNEL /vmlinuz
  INITRD /initrd.img
  APPEND root=LABEL=satlab-root rw console=ttyS0 net.ifnames=0 quiet cryptomgr.notests nowatchdog
"""


def run(argv: Sequence[str], *, deadline_s: float = DEADLINE_S) -> None:
    """Run a command; the error holds the end of its log.

    Raises:
        HostError: it is missing, fails or takes too long.
    """
    try:
        subprocess.run(
            argv,
            check=True,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        packages = "mmdebstrap qemu-utils extlinux fdisk e2fsprogs"
        raise HostError(f"{argv[0]} is missing", f"apt-get install {packages}") from error
    except subprocess.CalledProcessError as error:
        last = " | ".join(error.stderr.strip().splitlines()[-4:])
        raise HostError(f"{argv[0]} failed: {last}", "is the package mirror reachable?") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"{argv[0]} did not end within {deadline_s:g} s", "is the package mirror reachable?"
        ) from error


def make_root(
    archive: Path,
    packages: Sequence[str],
    mirrors: Sequence[str] = MIRRORS,
    *,
    has_lists: bool = False,
) -> None:
    """Make a Debian root file system with the user `vagrant`, as a tar archive, with apt's package
    lists if asked.
    """
    hooks = [
        'chroot "$1" useradd --create-home --shell /bin/bash vagrant',
        'install -d -m 700 -o 1000 -g 1000 "$1/home/vagrant/.ssh"',
        'echo "vagrant ALL=(ALL) NOPASSWD: ALL" >"$1/etc/sudoers.d/vagrant"',
        'chmod 440 "$1/etc/sudoers.d/vagrant"',
        'rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/resolv.conf" "$1/etc/hostname"',
        ': >"$1/etc/machine-id"',
    ]
    options = [word for hook in hooks for word in ("--customize-hook", hook)]
    settings = ['--aptopt=Acquire::Languages "none"', '--aptopt=Acquire::Retries "3"']
    settings += ["--skip=cleanup/apt/lists"] if has_lists else []
    include = f"--include={','.join(packages)}"
    run(
        [
            "mmdebstrap",
            "--variant=minbase",
            include,
            *settings,
            *options,
            SUITE,
            str(archive),
            *mirrors,
        ]
    )


def build(folder: Path) -> Path:
    """Build `bookworm.box` into `folder` (made if missing)."""
    folder.mkdir(parents=True, exist_ok=True)
    box = folder / f"{SUITE}.box"
    with tempfile.TemporaryDirectory(prefix="satlab-box-", dir=folder) as name:
        scratch = Path(name)
        root = scratch / "root"
        root.mkdir()
        make_root(scratch / "root.tar", [*BASE_PACKAGES, *BOOT_PACKAGES])
        unpack(scratch / "root.tar", root)
        _make_bootable(root)
        disk = _make_disk(scratch, root)
        _pack(box, disk, scratch)
    return box


def unpack(archive: Path, root: Path) -> None:
    """Unpack a root with its extended attributes, without which ping loses its capability."""
    keep = ["--xattrs", "--xattrs-include=*", "--numeric-owner"]
    run(["tar", "-C", str(root), *keep, "-xf", str(archive)])


def _make_bootable(root: Path) -> None:
    keys = root / "home/vagrant/.ssh/authorized_keys"
    keys.write_text(INSECURE_KEY + "\n")
    keys.chmod(0o600)
    shutil.chown(keys, 1000, 1000)
    network = "[Match]\nName=eth0\n\n[Network]\nDHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=mac\n"
    (root / "etc/systemd/network/10-management.network").write_text(network)
    (root / "etc/fstab").write_text("LABEL=satlab-root / ext4 defaults,errors=remount-ro 0 1\n")
    (root / "etc/hostname").write_text("satlab\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 satlab\n")
    units = {"satlab-host-keys": _KEYS_UNIT, "satlab-console-keys": _CONSOLE_UNIT}
    for unit, text in units.items():
        (root / f"etc/systemd/system/{unit}.service").write_text(text)
    settings = {"system.conf.d": _PATIENCE} | {
        f"system/{unit}.service.d": _NO_WATCHDOG for unit in _WATCHED
    }
    for folder, text in settings.items():
        place = root / "etc/systemd" / folder
        place.mkdir(parents=True)
        (place / "60-satlab.conf").write_text(text)
    run(["systemctl", f"--root={root}", "enable", *units, "systemd-networkd"])
    run(["systemctl", f"--root={root}", "mask", *_MASKED])
    (root / "extlinux.conf").write_text(_EXTLINUX)


def _make_disk(scratch: Path, root: Path) -> Path:
    """Make a disk with one ext4 partition that boots by extlinux; return it as a qcow2 image."""
    raw, disk = scratch / "disk.raw", scratch / "box.img"
    offset = 1024 * 1024
    partition = scratch / "partition.raw"
    size_mib = DISK_MIB - 2
    with partition.open("wb") as file:
        file.truncate(size_mib * 1024 * 1024)
    # Syslinux reads neither 64-bit block numbers nor metadata checksums of ext4.
    features = "^64bit,^metadata_csum"
    named = ["-L", "satlab-root", "-O", features]
    run(["mkfs.ext4", "-q", "-F", *named, "-d", str(root), str(partition)])
    mount = scratch / "mount"
    mount.mkdir()
    run(["mount", "-o", "loop", str(partition), str(mount)])
    try:
        run(["extlinux", "--install", str(mount)])
    finally:
        run(["umount", str(mount)])
    with raw.open("wb") as file:
        file.truncate(DISK_MIB * 1024 * 1024)
    table = f"label: dos\nstart=2048, size={size_mib * 2048}, type=83, bootable\n"
    subprocess.run(
        ["sfdisk", "-q", str(raw)],
        input=table,
        text=True,
        check=True,
        capture_output=True,
        timeout=60,
    )
    with raw.open("r+b") as file:
        file.write(Path("/usr/lib/EXTLINUX/mbr.bin").read_bytes()[:440])
    run(
        [
            "dd",
            f"if={partition}",
            f"of={raw}",
            "bs=1M",
            f"seek={offset >> 20}",
            "conv=notrunc,sparse",
            "status=none",
        ]
    )
    run(["qemu-img", "convert", "-c", "-O", "qcow2", str(raw), str(disk)])
    return disk


def _pack(box: Path, disk: Path, scratch: Path) -> None:
    metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": DISK_MIB // 1024}
    (scratch / "metadata.json").write_text(json.dumps(metadata))
    (scratch / "Vagrantfile").write_text('Vagrant.configure("2") do |config|\nend\n')
    fresh = box.with_suffix(".new")
    with tarfile.open(fresh, "w") as archive:
        for name in ("metadata.json", "Vagrantfile"):
            archive.add(scratch / name, name)
        archive.add(disk, "box.img")
    fresh.replace(box)


if __name__ == "__main__":
    made = build(Path(sys.argv[1]))
    print(escape.lines(f"{made}: vagrant box add --name {NAME} {made}"), file=sys.stderr)
    say(made)
