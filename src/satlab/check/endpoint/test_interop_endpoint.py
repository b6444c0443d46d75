# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints of the QUIC interop runner: images, environment, verdicts."""

import bz2
import gzip
import io
import json
import lzma
import os
import platform
import shutil
import struct
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from satlab.check import suite
from satlab.check.conftest import small
from satlab.check.endpoint import interop_endpoint, interop_image, oci_image
from satlab.check.endpoint.interop_endpoint import InteropPair
from satlab.check.endpoint.interop_image import Image
from satlab.check.endpoint.oci_image import ImageConfig
from satlab.check.endpoint.pair import CLIENT, SERVER, TransferRequest
from satlab.check.sandboxed_program import ExitReport
from satlab.check.trace import interop_evidence, quic_handshake
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram
from satlab.check.trace.pcap import UDP
from satlab.check.trace.quic_handshake import Handshake
from satlab.check.trace.quic_headers import VERSION_2, Kind
from satlab.common import ipv6, topology
from satlab.common.errors import ConfigError, HostError
from satlab.lab.pki import Pki

SCRIPT = Path(__file__).resolve().parents[4] / "tests/endpoints/ngtcp2"
DONE = ExitReport(0, "", 0.1, 1, "")
Member = tuple[str, Any]


def layer(*members: Member) -> bytes:
    """A layer: names with bytes (a file), None (a folder), or ("link", target), ("hard", target),
    ("device",).
    """
    kinds = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, what in members:
            member = tarfile.TarInfo(name)
            member.mode = 0o4755
            if what is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(what, bytes):
                member.size = len(what)
            else:
                member.type, member.linkname = kinds[what[0]], what[-1]
            tar.addfile(member, io.BytesIO(what) if isinstance(what, bytes) else None)
    return out.getvalue()


def image(path: Path, *layers: bytes, config: Any = None, kind: str = "", **changes: Any) -> Path:
    """An OCI archive; `config` is the member of that name in its image configuration, `kind` the
    media type of its layers.
    """
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    manifest: dict[str, Any] = {
        "layers": [{"digest": f"sha256:{n}", "mediaType": kind} for n in range(len(layers))]
    }
    if config is not None:
        manifest["config"] = {"digest": "sha256:c"}
    index = {"manifests": [{"digest": "sha256:m", "platform": {"architecture": machine}}]} | changes
    blobs = {
        "index.json": json.dumps(index).encode(),
        "blobs/sha256/m": json.dumps(manifest).encode(),
    }
    blobs["blobs/sha256/c"] = json.dumps({"config": config}).encode()
    blobs |= {f"blobs/sha256/{n}": data for n, data in enumerate(layers)}
    path.write_bytes(archive(blobs))
    return path


def archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def unpacked(tmp_path: Path, *layers: bytes) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    oci_image.unpack(image(tmp_path / "image.tar", *layers), root)
    return root


def test_layers_are_applied_in_order(tmp_path: Path) -> None:
    lower = layer(
        ("usr/bin", None),
        ("usr/bin/a", b"1"),
        ("bin", ("link", "usr/bin")),
        ("old/x", b""),
        ("gone", b""),
    )
    upper = layer(
        ("bin/b", b"2"),
        (".wh.gone", b""),
        ("old/.wh..wh..opq", b""),
        ("usr/bin/c", ("hard", "usr/bin/a")),
    )
    root = unpacked(tmp_path, lower, upper)
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert found == {"usr", "usr/bin", "usr/bin/a", "usr/bin/b", "usr/bin/c", "bin", "old"}
    assert (root / "usr/bin/a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [("../out", b"x")],
        [("/../../out", b"x")],
        [("a", ("link", "/../..")), ("a/out", b"x")],
        [("a", ("link", "../../..")), ("a/out", b"x")],
        [("out", ("hard", "../../secret"))],
        [("dev", ("device", "")), ("out/.wh...", b"")],
        [("a", ("link", "b")), ("b", ("link", "a")), ("a/out", b"x")],
    ],
)
def test_t04_t11_an_image_is_unpacked_in_its_folder_alone(
    members: list[Member], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    try:
        root = unpacked(tmp_path, layer(*members))
        assert not any(
            path.is_file() and path.read_bytes() == b"secret" for path in root.rglob("*")
        )
    except ConfigError:
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "root", "image.tar"}


def test_t11_images_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_image, "MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="bytes"):
        unpacked(tmp_path, layer(("a", bytes(600)), ("b", bytes(600))))


@pytest.mark.parametrize("inner", [True, False])
def test_t54_headers_of_an_image_take_no_memory(inner: bool, tmp_path: Path) -> None:
    """The archive and its layers are of others: an image of 610 KiB took 1.2 GB."""
    record = tarfile.TarInfo("x")
    record.type, record.size = tarfile.XHDTYPE, 40 << 20
    header = record.tobuf(tarfile.USTAR_FORMAT) + bytes(40 << 20)
    file = image(tmp_path / "image.tar", *([gzip.compress(header)] if inner else []))
    if not inner:
        file.write_bytes(header + file.read_bytes())
    (tmp_path / "root").mkdir()
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="too large headers"):
            oci_image.unpack(file, tmp_path / "root")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_t54_a_layer_that_becomes_a_thousand_times_as_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="times as large"):
        unpacked(tmp_path, layer(("a", bytes(160 << 20))))


def zstd(data: bytes, *options: str) -> bytes:
    return subprocess.run(
        ["zstd", "--quiet", "--stdout", *options], input=data, capture_output=True, check=True
    ).stdout


def skipped(data: bytes) -> bytes:
    """A frame to skip, as zstd:chunked has them for its table of contents."""
    return b"\x5a\x2a\x4d\x18" + struct.pack("<I", len(data)) + data


needs_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="needs zstd")


@needs_zstd
def test_layers_may_be_plain_gzip_or_zstd(tmp_path: Path) -> None:
    """zstd:chunked has a frame for each file, and frames to skip, also in front."""
    plain = gzip.decompress(layer(("a", b"1" * 5000), ("b", b"2")))
    frames = [plain[:1000], plain[1000:3000], plain[3000:]]
    chunked = skipped(b"table") + b"".join(zstd(frame) for frame in frames) + skipped(b"footer")
    large = gzip.decompress(layer(("c", os.urandom(3 << 20)), ("d", b"end")))
    layers = [plain, gzip.compress(plain), zstd(plain, "-19"), chunked, zstd(large, "--long=27")]
    for number, content in enumerate(layers):
        (tmp_path / str(number)).mkdir()
        root = unpacked(tmp_path / str(number), content)
        names = ("c", "d") if number == 4 else ("a", "b")
        assert sorted(path.name for path in root.iterdir()) == list(names)
    assert (tmp_path / "4/root/d").read_bytes() == b"end"


@needs_zstd
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-20], "zstd cannot unpack it"),
        (lambda data: data[:4] + data, "zstd cannot unpack it"),
        (lambda data: data[:9] + bytes(20) + data[29:], "zstd cannot unpack it|truncated|header"),
        (lambda data: data[:4], "zstd cannot unpack it"),
    ],
)
def test_t54_a_damaged_zstd_layer_is_refused(
    damage: Callable[[bytes], bytes], reason: str, tmp_path: Path
) -> None:
    content = zstd(gzip.decompress(layer(("a", os.urandom(9000)))))
    with pytest.raises(ConfigError, match=reason) as caught:
        unpacked(tmp_path, damage(content))
    assert "skopeo copy" not in caught.value.hint, "not the command that made it"


@needs_zstd
def test_t54_a_zstd_layer_expands_within_bounds(tmp_path: Path) -> None:
    plain = gzip.decompress(layer(("a", bytes(160 << 20))))
    with pytest.raises(ConfigError, match="times as large"):
        unpacked(tmp_path, zstd(plain))
    wide = zstd(os.urandom(1000) * 1000, "--ultra", "--long=29", "-1")
    shutil.rmtree(tmp_path / "root")
    with pytest.raises(ConfigError, match=r"zstd cannot unpack it.*(memory|[Ww]indow)"):
        unpacked(tmp_path, wide)


def test_without_zstd_the_remedy_is_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="zstd is missing") as caught:
        unpacked(tmp_path, b"\x28\xb5\x2f\xfd")
    assert "apt-get install zstd" in caught.value.hint


def test_archives_of_another_kind_are_named_with_what_to_do(tmp_path: Path) -> None:
    good = image(tmp_path / "good", layer(("a", b""))).read_bytes()
    index = b'{"schemaVersion": 2, "manifests": null}'
    docker, docker_25, exported = (
        archive({"manifest.json": b""}),
        archive({"index.json": index, "manifest.json": b""}),
        archive({"bin/sh": b""}),
    )
    for data, what, remedy in (
        (gzip.compress(good), "compressed with gzip", "gunzip "),
        (b"\x28\xb5\x2f\xfd" + good, "compressed with zstd", "unzstd "),
        (lzma.compress(good), "compressed with xz", "unxz "),
        (bz2.compress(good), "compressed with bzip2", "bunzip2 "),
        (docker, "docker save", "skopeo copy docker-archive:"),
        (docker_25, "docker save", "skopeo copy docker-archive:"),
        (exported, "no index.json", "unpack it, and name the folder"),
        (good[:700], "not an OCI archive", "copy it again"),
    ):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(ConfigError, match=what) as caught:
            oci_image.unpack(tmp_path / "x", tmp_path)
        assert remedy in caught.value.hint
    with pytest.raises(ConfigError, match=r"type.*tar\+lz4") as caught:
        oci_image.unpack(image(tmp_path / "y", b"", kind="tar+lz4"), tmp_path)
    assert "gzip" in caught.value.hint


def test_a_file_without_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no archive")
    with pytest.raises(ConfigError):
        oci_image.unpack(tmp_path / "x", tmp_path)
    other = [{"digest": "sha256:m", "platform": {"architecture": "vax"}}]
    for file in (
        image(tmp_path / "a", manifests=other),
        image(tmp_path / "b", manifests=[{"digest": "../m"}]),
    ):
        with pytest.raises(ConfigError):
            oci_image.unpack(file, tmp_path)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (None, ImageConfig()),
        (
            {
                "Entrypoint": ["./run_endpoint.sh"],
                "Cmd": ["-v"],
                "Env": ["PATH=/quic-go:/bin", "A=b=c"],
                "WorkingDir": "/q",
            },
            ImageConfig(("./run_endpoint.sh", "-v"), {"PATH": "/quic-go:/bin", "A": "b=c"}, "/q"),
        ),
        (
            {"Entrypoint": None, "Cmd": ["/run_endpoint.sh"], "Env": None},
            ImageConfig(("/run_endpoint.sh",)),
        ),
    ],
)
@pytest.mark.promise("P78")
def test_an_image_s_configuration_is_read(config: Any, found: ImageConfig, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert (
        oci_image.unpack(image(tmp_path / "image.tar", layer(("usr", None)), config=config), root)
        == found
    )


@pytest.mark.parametrize(
    "config",
    [
        {"WorkingDir": "/a/../.."},
        {"WorkingDir": "a"},
        {"Entrypoint": [1]},
        {"Env": "PATH"},
        {"Env": ["1A=b"]},
        {"Env": ["A B=c"]},
        {"Cmd": ["a\0"]},
        [1],
    ],
)
def test_t37_a_hostile_image_configuration_is_refused(config: Any, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(ConfigError):
        oci_image.unpack(
            image(tmp_path / "image.tar", layer(("usr", None)), config=config), tmp_path / "root"
        )


# --- endpoints ------------------------------------------------------------------------------------


def request(folder: Path, **case: Any) -> TransferRequest:
    fixed = {
        "id": "a",
        "forward_mbps": 10,
        "return_mbps": 2,
        "test": "transfer",
        "files_bytes": [100, 200],
    }
    read = small(cases=[fixed | case], marks_mb=())
    folder.mkdir(exist_ok=True)
    keys = Pki(folder / "pki", "")
    keys.folder.mkdir()
    for file in (keys.server_cert, keys.server_key, keys.ca_cert):
        file.write_text("PEM")
    for side in (SERVER, CLIENT):
        (folder / side).mkdir()
    return TransferRequest(
        read, read.cases[0], 7, str(interop_endpoint.SERVER_ADDRESS), keys, folder
    )


def test_the_lab_has_the_addresses_of_the_contract(tmp_path: Path) -> None:
    with interop_endpoint.opened(SCRIPT) as found:
        lab = found.topology(request(tmp_path, host="server46").case)
        assert not found.topology(request(tmp_path / "other").case).ipv6
    addresses = {
        (n, i): str(e.address) for n, node in lab.nodes.items() for i, e in node.interfaces.items()
    }
    assert addresses["client", "eth0"] == "193.167.0.100"
    assert addresses["proxy-st", "lan0"] == "193.167.0.2"
    assert addresses["server", "eth0"] == "193.167.100.100"
    assert addresses["proxy-gw", "inet0"] == "193.167.100.2"
    subnets = {str(route.destination) for route in topology.routes(lab)["client"]}
    assert "193.167.100.0/24" in subnets and "198.18.1.0/24" not in subnets
    six = ipv6.lines(lab, "client", topology.routes(lab)["client"], "cubic")
    assert "addr add fd00:cafe:cafe::100/64 dev eth0 nodad noprefixroute" in six
    via = "via fd00:cafe:cafe::2 dev eth0 congctl cubic"
    assert f"route add fd00:cafe:cafe:100::/64 {via}" in six
    known = dict.fromkeys(interop_endpoint.hosts().split("\n"))
    assert "fd00:cafe:cafe:100::100 server6 server46" in known


def test_environment_and_folders_are_those_of_the_contract(tmp_path: Path) -> None:
    transfer = request(tmp_path, test="keyupdate", server_test="transfer")
    with interop_endpoint.opened(SCRIPT) as found:
        server, client = found.server(transfer), found.client(transfer, 0)
    assert (server.environment["ROLE"], server.environment["TESTCASE"]) == ("server", "transfer")
    assert (client.environment["ROLE"], client.environment["TESTCASE"]) == ("client", "keyupdate")
    urls = client.environment["REQUESTS"].split()
    assert len(urls) == 2 and all(url.startswith("https://server4:443/") for url in urls)
    assert {file.name for file in (tmp_path / "www").iterdir()} == {
        url.rpartition("/")[2] for url in urls
    }
    places = {bind.target: bind.writable for bind in server.mounts}
    assert (
        places.items()
        >= {"/www": False, "/certs": False, "/logs": True, "/run_endpoint.sh": False}.items()
    )
    assert {bind.target: bind.writable for bind in client.mounts}["/downloads"] is True
    assert "/setup.sh" in places and server.argv == ("/run_endpoint.sh",)
    assert sorted(file.name for file in (tmp_path / CLIENT / "certs").iterdir()) == [
        "ca.pem",
        "cert.pem",
        "priv.key",
    ]


def test_a_second_download_has_the_first_one_s_state_and_an_empty_folder(tmp_path: Path) -> None:
    transfer = request(tmp_path, test=None, second_after_s=10)
    pair = pair_of_one()
    assert not pair.unsupported_reason(transfer.case)
    server, *clients = pair.server(transfer), pair.client(transfer, 0), pair.client(transfer, 1)
    assert {one.environment["TESTCASE"] for one in (server, *clients)} == {"second-download"}
    folders = [{bind.target: bind for bind in one.mounts} for one in (server, *clients)]
    assert all(one["/state"].writable for one in folders)
    assert server.environment["STATEDIR"] == "/state/"
    # Each side has its own, the same for both connections.
    assert folders[1]["/state"] == folders[2]["/state"] != folders[0]["/state"]
    assert folders[1]["/downloads"].source != folders[2]["/downloads"].source
    for file in (tmp_path / "www").iterdir():
        shutil.copy(file, folders[1]["/downloads"].source)
    found = [pair.sample(transfer, number, DONE, captured([b"a"])) for number in (0, 1)]
    assert found[0].status == "ok" and "is missing" in found[1].reason


def test_a_test_case_of_the_runner_has_no_second_download(tmp_path: Path) -> None:
    assert pair_of_one().unsupported_reason(
        request(tmp_path, test="transfer", second_after_s=10).case
    )


def test_an_image_starts_as_its_configuration_has_it(tmp_path: Path) -> None:
    """As those of quic-go, whose script lies in its working directory and finds its programs by
    PATH.
    """
    config = {
        "Entrypoint": ["./run_endpoint.sh"],
        "Env": ["PATH=/quic-go:/bin", "ROLE=none"],
        "WorkingDir": "/quic-go",
    }
    archive = image(
        tmp_path / "quic-go.tar",
        layer(("usr", None), ("quic-go/run_endpoint.sh", b"")),
        config=config,
    )
    transfer = request(tmp_path)
    variables = {CLIENT: {"CLIENT_PARAMS": "--window 5", "QUIC_GO_X": "1"}}
    with interop_endpoint.opened(archive, SCRIPT, variables) as pair:
        server, client = pair.server(transfer), pair.client(transfer, 0)
    assert pair.name == "quic-go to ngtcp2"
    assert client.argv == ("./run_endpoint.sh",)
    assert client.directory == "/quic-go"
    assert (client.environment["PATH"], client.environment["ROLE"]) == ("/quic-go:/bin", "client")
    assert client.environment["CLIENT_PARAMS"] == "--window 5"
    assert client.environment["QUIC_GO_X"] == "1"
    assert client.base != server.base == Path("/") and server.argv == ("/run_endpoint.sh",)
    assert server.environment["CLIENT_PARAMS"] == "" and "PATH" not in server.environment


def test_the_working_directory_is_writable_and_has_the_files_of_the_image(tmp_path: Path) -> None:
    """aioquic's script writes its session ticket there.

    A link that leads out of the image is not followed.
    """
    (tmp_path / "secret").write_text("secret")
    members = [
        ("usr", None),
        ("a/run.sh", b""),
        ("b/x", b"x"),
        ("a/in", ("link", "/b/x")),
        ("a/near", ("link", "../b")),
        ("a/out", ("link", "../../secret")),
        ("a/gone", ("link", "/none")),
    ]
    config = {"Entrypoint": ["./run.sh"], "WorkingDir": "/a"}
    transfer = request(tmp_path)
    with interop_endpoint.opened(
        image(tmp_path / "a.tar", layer(*members), config=config), SCRIPT
    ) as pair:
        server, client = pair.server(transfer), pair.client(transfer, 0)
        mounts = {bind.target: bind for bind in client.mounts if bind.target.startswith("/a")}
        assert mounts["/a"].writable and not any(mounts["/a"].source.iterdir())
        found = {
            name: bind.source.relative_to(client.base)
            for name, bind in mounts.items()
            if name != "/a"
        }
        assert not any(bind.writable for name, bind in mounts.items() if name != "/a")
    assert {name: str(path) for name, path in found.items()} == {
        "/a/run.sh": "a/run.sh",
        "/a/in": "b/x",
        "/a/near": "b",
    }
    # A folder's script finds its files in the root and in its working directory.
    places = {bind.target: bind.writable for bind in server.mounts}
    assert server.directory == "/endpoint" and places["/endpoint"] is True
    assert places["/endpoint/run_endpoint.sh"] is places["/run_endpoint.sh"] is False


@pytest.mark.parametrize("directory", ["/", "/link", "/none", "/full"])
def test_a_working_directory_of_the_system_stays_read_only(directory: str, tmp_path: Path) -> None:
    members: list[Member] = [("run.sh", b""), ("link", ("link", "/usr")), ("usr", None)]
    members += [(f"full/{number}", b"") for number in range(interop_image.MAX_HELD + 1)]
    config = {"Entrypoint": ["/run.sh"], "WorkingDir": directory}
    with interop_image.opened(image(tmp_path / "a.tar", layer(*members), config=config)) as found:
        assert found.held is None and found.config.directory == directory


def test_t17_a_second_start_writes_nowhere_that_the_first_could_prepare(tmp_path: Path) -> None:
    transfer, victim = request(tmp_path), tmp_path / "victim"
    victim.mkdir()
    with interop_endpoint.opened(SCRIPT) as found:
        found.server(transfer)
        found.client(transfer, 0)
        (tmp_path / CLIENT / "certs").rename(tmp_path / "away")
        (tmp_path / CLIENT / "certs").symlink_to(victim)
        found.client(transfer, 1)
    assert not list(victim.iterdir())


def test_a_folder_without_a_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run_endpoint\.sh"), interop_endpoint.opened(tmp_path):
        pass


@pytest.mark.parametrize(
    ("role", "test"), [("server", "invented"), ("client", "invented"), ("server", "keyupdate")]
)
def test_the_script_of_ngtcp2_refuses_unsupported_test_cases(
    role: str, test: str, tmp_path: Path
) -> None:
    text = (
        (SCRIPT / "run_endpoint.sh")
        .read_text()
        .replace("/setup.sh", ":")
        .replace("/wait-for-it.sh", ":")
    )
    (tmp_path / "run.sh").write_text(text)
    names = ("REQUESTS", "SERVER_PARAMS", "CLIENT_PARAMS", "QLOGDIR")
    environment = {"ROLE": role, "TESTCASE": test, "PATH": "/usr/bin:/bin"} | dict.fromkeys(
        names, ""
    )
    bash = shutil.which("bash") or "bash"
    done = subprocess.run(
        [bash, str(tmp_path / "run.sh")],
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 127, done.stderr


def pair_of_one() -> InteropPair:
    return InteropPair(dict.fromkeys((CLIENT, SERVER), Image("x", Path("/"))))


def captured(names: list[bytes], *kinds: Kind) -> CapturedTransfer:
    first = Datagram(0.0, False, 1200, ("initial",))
    initials = [
        Datagram(0.6 + n, True, 1200, ("initial",), (name,), (1,)) for n, name in enumerate(names)
    ]
    others = [Datagram(3.0, True, 100, (kind,)) for kind in kinds]
    return CapturedTransfer(UDP, (first, *initials, *others, Datagram(4.0, True, 320, ("1-rtt",))))


@pytest.mark.parametrize(
    ("case", "wire", "token", "words"),
    [
        ({}, captured([b"a", b"a"]), b"", ""),
        ({"handshakes": 1}, captured([b"a", b"b"]), b"", "2 handshakes, 1 expected"),
        ({"handshakes": 2}, captured([b"a", b"a"]), b"", "1 handshakes, 2 expected"),
        ({"retry": True}, captured([b"a"]), b"t", "no Retry was sent"),
        ({"retry": True}, captured([b"a"], "retry"), b"t", ""),
        (
            {"retry": True},
            captured([b"a"], "retry"),
            b"",
            "no Initial packet had the token of the Retry",
        ),
        ({"retry": False}, captured([b"a"], "retry"), b"t", "a Retry was sent"),
    ],
)
def test_handshakes_and_retries_are_checked(
    case: dict[str, Any],
    wire: CapturedTransfer,
    token: bytes,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transfer, pair = request(tmp_path, **case), pair_of_one()
    pair.server(transfer)
    pair.client(transfer, 0)
    for file in (tmp_path / "www").iterdir():
        shutil.copy(file, tmp_path / CLIENT / "downloads")
    known = [Handshake(b"a", 1, was_retried=True, token=token)]
    monkeypatch.setattr(quic_handshake, "handshakes", lambda _: known)
    found = pair.sample(transfer, 0, DONE, wire)
    assert (found.status, found.reason) == ("failed" if words else "ok", words)
    next((tmp_path / CLIENT / "downloads").iterdir()).write_bytes(b"")
    assert "wrong file" in pair.sample(transfer, 0, DONE, wire).reason


@dataclass
class Outcome:
    """What a client left, and the packets."""

    files: Path
    wire: CapturedTransfer
    ended: ExitReport = DONE

    def first(self, change: Callable[[bytes], bytes]) -> None:
        file = min(self.files.iterdir())
        file.write_bytes(change(file.read_bytes()))


def speaks_version_2(of: Outcome) -> None:
    changed = [replace(one, versions=(VERSION_2,) * len(one.versions)) for one in of.wire.datagrams]
    of.wire = replace(of.wire, datagrams=tuple(changed))


PLANTED: dict[str, Callable[[Outcome], object]] = {
    "is missing": lambda of: min(of.files.iterdir()).unlink(),
    "differs from the server's": lambda of: of.first(lambda data: data[:-1]),
    "differs from": lambda of: of.first(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "'more' was not requested": lambda of: (of.files / "more").write_bytes(b""),
    "it ended with status 1": lambda of: setattr(of, "ended", replace(DONE, status=1)),
    "handshakes, ": lambda of: setattr(of, "wire", captured([b"a", b"b"])),
    "have version 2, version 1 alone": speaks_version_2,
}


@pytest.mark.parametrize(
    "name",
    ["blackhole", "handshakeloss", "handshakecorruption", "transferloss", "transfercorruption"],
)
def test_files_handshakes_and_version_decide_over_links_with_faults(
    name: str, tmp_path: Path
) -> None:
    """Nothing else is to be seen in these cases of the shipped suite: the link is at fault."""
    shipped = suite.load(suite.file_of("interop"))
    whole = replace(request(tmp_path), suite=shipped, case=shipped.case(name))
    pair = pair_of_one()
    pair.server(whole)
    pair.client(whole, 0)
    wire = captured([bytes([number]) for number in range(whole.case.handshakes or 1)])
    for words, plant in {"": lambda _: None, **PLANTED}.items():
        of = Outcome(tmp_path / CLIENT / "downloads", wire)
        shutil.rmtree(of.files)
        shutil.copytree(tmp_path / "www", of.files)
        plant(of)
        found = pair.sample(whole, 0, of.ended, of.wire)
        assert found.status == ("failed" if words else "ok") and words in found.reason


@pytest.mark.parametrize(
    ("phases", "status", "words"),
    [
        (None, "unsupported", "key phases cannot be read"),
        ({"client": {0, 1}, "server": {0}}, "failed", "the server sent no packet of key phase 1"),
        ({"client": {0, 1}, "server": {0, 1}}, "ok", ""),
    ],
)
def test_a_key_update_is_not_believed_without_evidence(
    phases: dict[str, set[int]] | None,
    status: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transfer, pair = request(tmp_path, key_update=True), pair_of_one()
    pair.server(transfer)
    pair.client(transfer, 0)
    for file in (tmp_path / "www").iterdir():
        shutil.copy(file, tmp_path / CLIENT / "downloads")
    if phases is not None:
        monkeypatch.setattr(interop_evidence, "key_phases", lambda *_: phases)
    found = pair.sample(transfer, 0, DONE, captured([b"a"]))
    assert found.status == status and words in found.reason


@pytest.mark.parametrize(
    ("arrived", "last_s", "words"),
    [
        ([1000] * 50, 59.0, "time limit of 60 s reached after 49050 of 2097152 bytes"),
        # What came after the limit does not count.
        ([1000] * 51, 61.0, "time limit of 60 s reached after 49050 of 2097152 bytes"),
        ([1500] * 2000, 59.0, "time limit of 60 s reached after 2097152 of 2097152 bytes"),
        ([1000] * 50, 40.0, "it stalled: nothing arrived after 40.0 s"),
    ],
)
def test_a_time_limit_blames_nobody(
    arrived: list[int], last_s: float, words: str, tmp_path: Path
) -> None:
    transfer, pair = request(tmp_path, files_bytes=[2097152], timeout_s=60), pair_of_one()
    pair.server(transfer)
    pair.client(transfer, 0)
    times = [1.0 + n / 1000 for n in range(len(arrived) - 1)] + [last_s]
    data = [Datagram(t, True, n, ("1-rtt",)) for t, n in zip(times, arrived, strict=True)]
    first = Datagram(0.0, False, 1200, ("initial",))
    answer = Datagram(0.6, True, 1200, ("initial",), (b"a",), (1,))
    wire = CapturedTransfer(UDP, (first, answer, *data))
    ended = ExitReport(-9, "it did not end within 75 s", 0.1, 1, "")
    found = pair.sample(transfer, 0, ended, wire)
    assert (found.status, found.reason) == ("failed", words)
    # The client may still end by itself after the limit.
    for file in (tmp_path / "www").iterdir():
        shutil.copy(file, tmp_path / CLIENT / "downloads")
    found = pair.sample(transfer, 0, DONE, wire)
    late = last_s > 60
    assert (found.status, found.reason) == (("failed", words) if late else ("ok", ""))


@pytest.mark.promise("P78")
def test_an_unknown_version_is_unsupported_and_not_misread(tmp_path: Path) -> None:
    transfer, pair = request(tmp_path, handshakes=1, retry=False), pair_of_one()
    pair.server(transfer)
    pair.client(transfer, 0)
    sent = [Datagram(n / 10, n > 0, 1200, ("unknown",), (), (0x6B3343D0,)) for n in range(3)]
    wire = CapturedTransfer(UDP, (*sent, Datagram(4.0, True, 320, ("1-rtt",))))
    assert "wrong file" in pair.sample(transfer, 0, DONE, wire).reason
    for file in (tmp_path / "www").iterdir():
        shutil.copy(file, tmp_path / CLIENT / "downloads")
    found = pair.sample(transfer, 0, DONE, wire)
    assert found.status == "unsupported" and "unknown version 0x6b3343d0" in found.reason


def test_a_lacking_test_case_has_its_reason(tmp_path: Path) -> None:
    pair = pair_of_one()
    assert pair.unsupported_reason(request(tmp_path, lacking="no NAT").case) == "no NAT"
