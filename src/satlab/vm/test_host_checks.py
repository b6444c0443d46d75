# SPDX-License-Identifier: GPL-3.0-or-later
"""What is missing on a host is reported at once, each with its remedy; output of Vagrant and
Ansible is understood.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import yaml

from satlab.common import topology
from satlab.common.errors import ExitStatus, HostError, RunError
from satlab.common.topology import Size
from satlab.vm import box, host_checks, provision, vagrant
from satlab.vm.host_checks import Host
from satlab.vm.provision import PlayRecap, VmFolder

HERE = topology.load()
GOOD = {
    ("vagrant", "plugin", "list"): "vagrant-libvirt (0.11.2, system)",
    ("virsh", "--connect", "qemu:///system", "list", "--name"): "",
    ("vagrant", "box", "list"): f"{box.NAME} (libvirt, 0)",
}


@dataclass(frozen=True)
class Fake(Host):
    """A host whose programs print what a test sets."""

    answers: Mapping[tuple[str, ...], str] = field(default_factory=lambda: GOOD)

    def output(self, *argv: str) -> str | None:
        return self.answers.get(argv)


def host(folder: Path, *, free_mib: int = 32000, kvm: bool = True, **changes: object) -> Fake:
    (folder / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {free_mib * 1024} kB\n")
    if kvm:
        (folder / "kvm").touch()
    settings = {"which": lambda _: "/usr/bin/it", "free_disk_mib": lambda _: 100000} | changes
    return Fake(kvm=folder / "kvm", meminfo=folder / "meminfo", **settings)  # type: ignore[arg-type]


def said(folder: Path, fake: Fake, *, size: Size = Size.SMALL, box_name: str | None = None) -> str:
    with pytest.raises(HostError) as caught:
        host_checks.check(HERE, size, "kvm", box_name, folder, fake)
    assert caught.value.status is ExitStatus.HOST
    return f"{caught.value} | {caught.value.hint}"


def test_a_good_host_has_no_faults_and_emulation_is_called_slow(tmp_path: Path) -> None:
    assert host_checks.check(HERE, Size.FULL, "kvm", box.NAME, tmp_path, host(tmp_path)) == []
    (note,) = host_checks.check(HERE, Size.SMALL, "qemu", None, tmp_path, host(tmp_path, kvm=False))
    assert "slower than KVM" in note


def test_no_kvm_is_reported_with_both_ways_on(tmp_path: Path) -> None:
    text = said(tmp_path, host(tmp_path, kvm=False))
    assert "kvm is not there" in text
    assert "LAB_DRIVER=qemu" in text


def test_too_little_memory_is_reported_with_figures(tmp_path: Path) -> None:
    assert "3000 MiB of memory are free, 6144 are needed" in said(
        tmp_path, host(tmp_path, free_mib=3000)
    )
    assert "10240 are needed" in said(tmp_path, host(tmp_path, free_mib=9000), size=Size.FULL)


@pytest.mark.promise("P96")
def test_all_that_is_missing_is_reported_at_once(tmp_path: Path) -> None:
    fake = host(tmp_path, free_mib=100, kvm=False, which=lambda _: None, free_disk_mib=lambda _: 5)
    text = said(tmp_path, fake)
    for part in ("vagrant", "qemu-system-x86", "apt-get install", "memory", "disk", "kvm"):
        assert part in text


def test_a_box_that_is_not_there_and_a_libvirt_that_is_away(tmp_path: Path) -> None:
    answers = {key: value for key, value in GOOD.items() if key[0] == "vagrant"} | {
        ("vagrant", "box", "list"): ""
    }
    text = said(tmp_path, host(tmp_path, answers=answers), box_name=box.NAME)
    assert "libvirt does not answer" in text
    assert "make box" in text


def test_another_network_with_the_subnet_is_reported_before_anything_is_made(
    tmp_path: Path,
) -> None:
    virsh = ("virsh", "--connect", "qemu:///system")
    answers = GOOD | {
        (*virsh, "net-list", "--all", "--name"): "vagrant-libvirt\n",
        (*virsh, "net-dumpxml", "vagrant-libvirt"): (
            "<ip address='192.168.121.1' netmask='255.255.255.0'/>"
        ),
    }
    assert host_checks.check(HERE, Size.SMALL, "kvm", None, tmp_path, host(tmp_path)) == []
    chosen = {"LAB_MANAGEMENT_SUBNET": "192.168.121.0/24"}
    text = said(tmp_path, host(tmp_path, answers=answers, environment=chosen))
    assert (
        "LAB_MANAGEMENT_SUBNET=192.168.121.0/24: libvirt's network vagrant-libvirt has it" in text
    )
    assert "LAB_MANAGEMENT_NETWORK=vagrant-libvirt" in text


def test_settings_are_checked() -> None:
    assert host_checks.settings({}) == (Size.SMALL, "kvm", None)
    chosen = {"LAB_SIZE": "full", "LAB_DRIVER": "qemu", "LAB_BOX": "a/b"}
    assert host_checks.settings(chosen) == (Size.FULL, "qemu", "a/b")
    with pytest.raises(HostError, match="LAB_SIZE=tiny"):
        host_checks.settings({"LAB_SIZE": "tiny"})


# --- what others say ------------------------------------------------------------------------------

PLAY = """\
TASK [base : Install what every host needs] ****
ok: [st]
fatal: [gw]: FAILED! => {"changed": false, "msg": "Failed to update apt cache: \\"W:Failed to fetch\\"\\nsecond"}

PLAY RECAP *****
gw                         : ok=3    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0
st                         : ok=4    changed=2    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
"""


def put(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> VmFolder:
    made = VmFolder(tmp_path / "lab")
    made.make()
    return made


@pytest.fixture
def ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what makes ansible-playbook a shell script."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    return partial(put, tmp_path / "ansible-playbook")


def test_a_failed_play_names_host_task_and_cause(
    folder: VmFolder, ansible: Callable[[str], None]
) -> None:
    ansible(f"cat <<'END'\n{PLAY}END\nexit 2")
    with pytest.raises(RunError) as caught:
        provision.play(folder, "site.yml")
    assert (
        str(caught.value)
        == "site.yml: gw: base : Install what every host needs: Failed to update apt cache:"
        ' "W:Failed to fetch" second'
    )
    assert (folder.path / "ansible.log").read_text() == PLAY


def test_a_play_keeps_one_python_on_each_host_unless_the_user_names_a_strategy(
    folder: VmFolder, ansible: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ansible('echo "$ANSIBLE_STRATEGY $ANSIBLE_STRATEGY_PLUGINS"')
    monkeypatch.delenv("ANSIBLE_STRATEGY", raising=False)
    provision.play(folder, "site.yml")
    monkeypatch.setenv("ANSIBLE_STRATEGY", "linear")
    provision.play(folder, "site.yml")
    ours, theirs = (line.split() for line in (folder.path / "ansible.log").read_text().splitlines())
    assert ours[0] == "mitogen_linear"
    assert (Path(ours[1]) / "mitogen_linear.py").exists()
    assert theirs[0] == "linear"


HOSTILE_SETTINGS = {
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
    "ANSIBLE_CALLBACKS_ENABLED": "profile_tasks",
    "ANSIBLE_CONFIG": "/nowhere.cfg",
    "ANSIBLE_DISPLAY_FAILED_STDERR": "1",
    "ANSIBLE_DISPLAY_OK_HOSTS": "0",
    "ANSIBLE_FORCE_COLOR": "1",
    "ANSIBLE_HOST_KEY_CHECKING": "0",
    "ANSIBLE_SSH_ARGS": "-o StrictHostKeyChecking=no",
    "ANSIBLE_STDOUT_CALLBACK": "minimal",
    "ANSIBLE_VERBOSITY": "2",
    "CLICOLOR_FORCE": "1",
    "FORCE_COLOR": "1",
    "LANG": "no_WHERE.UTF-8",
    "LC_ALL": "no_WHERE.UTF-8",
    "LC_MESSAGES": "de_DE.UTF-8",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
}


def test_t07_the_settings_of_a_play_are_not_those_of_the_user_s_shell(folder: VmFolder) -> None:
    users = {"PATH": "/bin", "SSH_AUTH_SOCK": "/s", "ANSIBLE_TIMEOUT": "300", **HOSTILE_SETTINGS}
    made = provision.environment(folder, users)
    assert (made["PATH"], made["SSH_AUTH_SOCK"], made["ANSIBLE_TIMEOUT"]) == ("/bin", "/s", "300")
    assert not {name for name, value in HOSTILE_SETTINGS.items() if made.get(name) == value}
    assert made["LC_ALL"] == "C.UTF-8" and made["ANSIBLE_FORCE_COLOR"] == "0"
    assert not {"ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_SSH_ARGS"} & set(made), "ansible.cfg's hold"


PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - {name: write a file, ansible.builtin.debug: {msg: "höllo"}}
    - {name: install the emulator, ansible.builtin.fail: {msg: "no package matching satlink"},
       when: fails}
"""


@pytest.mark.skipif(
    not Path(sys.executable).with_name("ansible-playbook").exists(),
    reason="needs Ansible: ./satlab --install vm",
)
@pytest.mark.parametrize("settings", [{}, HOSTILE_SETTINGS], ids=["plain", "hostile"])
def test_what_ansible_says_is_read_whatever_the_user_s_shell_sets(
    folder: VmFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    for name, value in {"ANSIBLE_STRATEGY": "linear", **settings}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    folder.inventory.write_text(yaml.safe_dump({"all": {"hosts": {"client": host}}}))
    tasks: list[str] = []
    recap = provision.play(
        folder, str(tmp_path / "play.yml"), "-e", '{"fails": false}', on_task=tasks.append
    )
    assert recap == {"client": PlayRecap(1, 0, 0, 0)}
    assert tasks == ["write a file"]
    with pytest.raises(RunError, match="client: install the emulator: no package matching satlink"):
        provision.play(folder, str(tmp_path / "play.yml"), "-e", '{"fails": true}')


def test_a_long_message_of_ssh_is_reported_to_its_last_words(
    folder: VmFolder, ansible: Callable[[str], None]
) -> None:
    warning = f"Data could not be sent: {'@' * 700}" + r"\r\nHost key verification failed."
    text = (
        'fatal: [client]: UNREACHABLE! => {"changed": false, "msg": "'
        + warning
        + '", "unreachable": true}'
    )
    ansible(f"cat <<'END'\n{text}\nEND\nexit 4")
    with pytest.raises(
        RunError, match=r"client: start: Data could .* \.\.\. @+  Host key verification failed\.$"
    ):
        provision.play(folder, "verify.yml")


def test_a_play_that_hangs_is_ended(folder: VmFolder, ansible: Callable[[str], None]) -> None:
    ansible("echo 'TASK [base : wait]'\nexec sleep 60")
    with pytest.raises(RunError, match="Ansible hangs"):
        provision.play(folder, "site.yml", deadline_s=0.5)


def test_a_play_is_found_from_wherever_it_is_entered(
    folder: VmFolder, ansible: Callable[[str], None]
) -> None:
    ansible('test "$PWD" = / && test -f "$2" && test -f "$3"')
    folder.inventory.touch()
    provision.play(folder, "site.yml", enter=["env", "--chdir=/"])


def test_a_recap_is_read_by_host(folder: VmFolder, ansible: Callable[[str], None]) -> None:
    ansible(f"cat <<'END'\n{PLAY}END")
    assert provision.play(folder, "site.yml") == {
        "gw": PlayRecap(3, 0, 0, 1),
        "st": PlayRecap(4, 2, 0, 0),
    }


def tool(folder: Path, script: str) -> vagrant.Vagrant:
    """Return a Vagrant that is a shell script."""
    put(folder / "vagrant", script)
    return vagrant.Vagrant(enter=["env", f"PATH={folder}:/usr/bin:/bin"])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("==> st: Waiting for domain to get an IP address...", "look at its console"),
        (
            "Call to virDomainCreateWithFlags failed: cannot set up guest memory",
            "libvirt refused a machine",
        ),
        ("The box could not be found or", "make box"),
        (
            "Address 192.168.121.0 does not match with network name satlab-management.",
            "LAB_MANAGEMENT_SUBNET",
        ),
        (
            "Call to virNetworkCreate failed: internal error: Network is already in use by interface"
            " eth0",
            "LAB_MANAGEMENT_SUBNET",
        ),
        ("operation failed: Storage source conflict with pool: virtimages", "LAB_POOL"),
        ("No usable storage pool found! Please check", "LAB_POOL"),
        ("something else", "the message says"),
    ],
)
def test_a_failed_up_has_a_hint(tmp_path: Path, folder: VmFolder, text: str, hint: str) -> None:
    with pytest.raises(HostError) as caught:
        tool(tmp_path, f"echo '{text}'; exit 1").up(folder, ["st"], lambda _: None)
    assert hint in caught.value.hint
    assert text in (folder.path / "vagrant.log").read_text()


def test_an_up_without_an_end_is_ended(
    tmp_path: Path, folder: VmFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vagrant.UP_DEADLINE_S, "kvm", 5.0)
    with pytest.raises(HostError, match="did not end within") as caught:
        tool(tmp_path, "echo 'Waiting for domain to get an IP address'; sleep 60").up(
            folder, ["st"], lambda _: None
        )
    assert "does not boot" in caught.value.hint


def test_states_and_host_keys_are_read(tmp_path: Path) -> None:
    key = "ssh-ed25519 " + "A" * 68
    machine = tool(
        tmp_path, f'[ "$1" = status ] && echo "1732,st,state,running" || echo "{key} root@st"'
    )
    assert machine.states() == {"st": "running"}
    assert machine.host_key("st") == key


def test_keys_that_are_not_there_name_the_machine(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="st: has no key of its own"):
        vagrant.Vagrant(environment={"VAGRANT_DOTFILE_PATH": str(tmp_path)}).keys(["st"])


def test_t07_the_list_of_hosts_is_private_and_holds_the_learnt_keys(folder: VmFolder) -> None:
    machines = HERE.machines
    assert machines
    vagrant.pin(folder, machines, {"st": "ssh-ed25519 AAAA"})
    assert folder.known_hosts.read_text() == "198.19.0.13 ssh-ed25519 AAAA\n"
    assert folder.known_hosts.stat().st_mode & 0o777 == 0o600
    assert "StrictHostKeyChecking=yes" in provision.ssh_options(folder)
