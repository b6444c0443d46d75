# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulator has on air, read by receivers that are not its own: tshark for BBFRAMEs and
GSE, `rle_receiver` for bursts.

`crates/link/examples/on_air.rs` writes the frames of a link under a random mix of packets.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from tests import rle_receiver

ON_AIR = paths.PROGRAMS / "examples" / "on_air"
DISSECT = [
    *"tshark -n -T json -J".split(),
    "dvb-s2_modeadapt dvb-s2_bb dvb-s2_gse",
    *"--enable-heuristic dvb_s2_udp -o dvb-s2_modeadapt.decode_df:TRUE".split(),
    *"-o dvb-s2_modeadapt.full_decode:FALSE -r".split(),
]
Fields = list[tuple[str, Any]]
"""An object of JSON as its pairs: tshark repeats keys."""


def on_air(direction: str, seed: int, folder: Path) -> None:
    assert ON_AIR.exists(), f"{ON_AIR} is not built: cargo build --release --examples"
    subprocess.run([ON_AIR, direction, str(seed), folder], check=True, timeout=60)


def packets(file: Path) -> list[bytes]:
    return [bytes.fromhex(line) for line in file.read_text().split()]


def dissected(capture: Path) -> list[Fields]:
    done = subprocess.run(
        [*DISSECT, capture], check=True, capture_output=True, text=True, timeout=120
    )
    frames = json.loads(done.stdout, object_pairs_hook=list)
    return [dict(dict(frame)["_source"])["layers"] for frame in frames]


def pdu(gse: dict[str, Any]) -> bytes | None:
    """Return what one GSE packet completes, which tshark has put together;

    None for first and middle fragments.
    """
    head = dict(gse["dvb-s2_gse.hdr_tree"])
    if head["dvb-s2_gse.hdr.stop"] == "0":
        return None
    if head["dvb-s2_gse.hdr.start"] == "0":
        assert gse["dvb-s2_gse.crc.status"] == "1", gse
    return bytes.fromhex(gse["dvb-s2_gse.data"].replace(":", ""))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.promise("P2")
def test_tshark_reads_every_bbframe_of_the_forward_link(seed: int, tmp_path: Path) -> None:
    on_air("forward", seed, tmp_path)
    got, fragments = [], 0
    for layers in dissected(tmp_path / "frames.pcap"):
        frame = dict(layers)
        assert frame["dvb-s2_bb"], layers
        header = dict(frame["dvb-s2_bb"])
        assert header["dvb-s2_bb.crc.status"] == "1"
        assert dict(header["dvb-s2_bb.matype1_tree"])["dvb-s2_bb.matype1.tsgs"] == "1"
        for name, fields in layers:
            gse = dict(fields) if name == "dvb-s2_gse" else {}
            if "dvb-s2_gse.hdr" not in gse:
                continue
            assert gse.get("dvb-s2_gse.label_ether", "02:00:00:00:00:01") == "02:00:00:00:00:01"
            fragments += "dvb-s2_gse.fragid" in gse
            whole = pdu(gse)
            got += [] if whole is None else [whole]
    assert fragments
    assert got == packets(tmp_path / "sent.txt")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.promise("P2")
def test_p288_tshark_finds_every_packet_under_the_label_of_its_terminal(
    seed: int, tmp_path: Path
) -> None:
    on_air("shared", seed, tmp_path)
    got: dict[str, list[bytes]] = {}
    label_of: dict[str, str] = {}
    frames_of_several = 0
    for layers in dissected(tmp_path / "frames.pcap"):
        labels = set()
        for name, fields in layers:
            gse = dict(fields) if name == "dvb-s2_gse" else {}
            if "dvb-s2_gse.hdr" not in gse:
                continue
            fragment = gse.get("dvb-s2_gse.fragid")
            label = gse.get("dvb-s2_gse.label_ether") or label_of[str(fragment)]
            if fragment is not None:
                label_of[fragment] = label
            labels.add(label)
            whole = pdu(gse)
            got.setdefault(label, []).extend([] if whole is None else [whole])
        frames_of_several += len(labels) > 1
    assert frames_of_several
    sent = {
        f"02:00:00:00:00:{int(file.stem[5:]):02x}": packets(file)
        for file in tmp_path.glob("sent-*.txt")
    }
    assert got == {label: of for label, of in sent.items() if of}


def tables(capture: Path, *named: str) -> list[list[str]]:
    """Return fields of the signalling tables that tshark finds; of one that repeats, all its values
    with commas.
    """
    show = [word for name in named for word in ("-e", f"dvb-s2_table.{name}")]
    full = [word.replace("full_decode:FALSE", "full_decode:TRUE") for word in DISSECT]
    argv = [*full[:2], "-T", "fields", *show, *full[6:], str(capture)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    return [line.split("\t") for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize("seed", range(4))
def test_tshark_reads_every_field_of_a_plan(seed: int, tmp_path: Path) -> None:
    on_air("tables", seed, tmp_path)
    constant = {
        "id": 0xAD,
        "network_interactive_id": 0,
        "version_number": 0,
        "current_next_indicator": 1,
        "group_id": 0,
        "sf.sequence": 0,
        "assign_context": 0,
        "assign_format": 1,
        "frame_loop_count": 0,
        "frame.number": 0,
    }
    varied = (
        "superframe_count",
        "frame.assign_offset",
        "frame.assign_loop_count",
        "frame.assign_id8",
    )
    said = [line.split() for line in (tmp_path / "said.txt").read_text().splitlines()]
    found = tables(tmp_path / "frames.pcap", *constant, *varied)
    assert len(found) == len(said) == 60
    for row, (superframe, first, of_slots) in zip(found, said, strict=True):
        *numbers, terminals = row
        assigned = [int(number) for number in of_slots.split(",")]
        expected = [*constant.values(), int(superframe) % 256, int(first), len(assigned) - 1]
        assert [int(number, 0) for number in numbers] == expected
        assert [int(number, 0) for number in terminals.split(",")] == assigned
    assert any(len(set(of_slots.split(","))) > 2 for *_, of_slots in said), (
        "slots of several terminals"
    )


@pytest.mark.parametrize("seed", range(4))
def test_tshark_reads_the_plans_between_the_packets(seed: int, tmp_path: Path) -> None:
    on_air("plans", seed, tmp_path)
    named = ("id", "superframe_count", "frame.assign_offset", "frame.assign_loop_count")
    slots: dict[int, list[tuple[int, int]]] = {}
    for table, superframe, first, last in tables(tmp_path / "frames.pcap", *named):
        assert table == "0xad"
        slots.setdefault(int(superframe), []).append((int(first), int(last) + 1))
    assert len(slots) > 180
    for parts in slots.values():
        # Each slot of the superframe is named once, in order.
        assert [first for first, _ in parts] == [
            sum(count for _, count in parts[:i]) for i in range(len(parts))
        ]
        assert sum(count for _, count in parts) == 791
    assert packets(tmp_path / "received.txt") == packets(tmp_path / "sent.txt")


@pytest.mark.parametrize("seed", range(2))
def test_p322_tshark_finds_the_terminal_of_every_burst_in_the_plans_on_air(
    seed: int, tmp_path: Path
) -> None:
    on_air("network", seed, tmp_path)
    plans: dict[int, dict[int, int]] = {}
    named = ("superframe_count", "frame.assign_offset", "frame.assign_id8")
    for superframe, first, of_slots in tables(tmp_path / "frames.pcap", *named):
        numbers = (int(number, 0) for number in of_slots.split(","))
        plans.setdefault(int(superframe), {}).update(enumerate(numbers, int(first)))
    bursts = [
        tuple(map(int, line.split())) for line in (tmp_path / "bursts.txt").read_text().splitlines()
    ]
    # What was planned before the start was not on air.
    on_air_at_all = [burst for burst in bursts if burst[1] >= min(plans)]
    assert {terminal for terminal, *_ in on_air_at_all} == {1, 2, 3}
    assert [plans[superframe][slot] for _, superframe, slot in on_air_at_all] == [
        burst[0] for burst in on_air_at_all
    ]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.promise("P2")
def test_a_second_decoder_reads_every_burst_of_the_return_link(seed: int, tmp_path: Path) -> None:
    on_air("return", seed, tmp_path)
    bursts = [line.split() for line in (tmp_path / "bursts.txt").read_text().splitlines()]
    receiver, knowing = rle_receiver.Receiver(), rle_receiver.Receiver()
    everything = [
        packet for _, payload in bursts for packet in receiver.burst(bytes.fromhex(payload))
    ]
    assert everything == packets(tmp_path / "sent.txt")
    got = []
    for fate, payload in bursts:
        if fate == "lost":
            knowing.lost()
        else:
            got += knowing.burst(bytes.fromhex(payload))
    assert got == packets(tmp_path / "received.txt")
