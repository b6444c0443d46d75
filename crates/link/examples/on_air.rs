// SPDX-License-Identifier: GPL-3.0-or-later
//! Writes what a link has on air under a random mix of packets, for receivers that are not ours:
//!
//! - `on_air forward SEED FOLDER`: `frames.pcap`, each BBFRAME behind a mode adaptation header L.3
//!   in a UDP datagram
//! - `on_air plans SEED FOLDER`: the same with a TBTP2 every 26.5 ms
//! - `on_air tables SEED FOLDER`: TBTP2s of any content alone, what they say in `said.txt`:
//!   superframe, first slot, the terminal of each slot
//! - `on_air shared SEED FOLDER`: as `forward`, for several terminals; `sent-N.txt` has the packets
//!   for terminal N
//! - `on_air network SEED FOLDER`: as `plans`, of a network of three terminals that ask for slots,
//!   and in `bursts.txt` their bursts: number of the terminal, superframe, slot
//! - `on_air return SEED FOLDER`: `bursts.txt`, one burst per line: `ok` or `lost`, its payload in
//!   hexadecimal
//!
//! All but `tables`, `shared` and `network` also write `sent.txt` and `received.txt`: one packet
//! per line in hexadecimal.

#[path = "../tests/common/on_air.rs"]
mod on_air;

use dvb::bbframe::{BbHeader, RollOff};
use dvb::modcod::FrameSize;
use link::{Carrier, Frame};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Raw IP packets (tcpdump's list of link types).
const LINKTYPE_RAW: u32 = 101;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [direction, seed, folder] = &arguments[..] else {
        return Err("usage: on_air forward|plans|tables|shared|network|return SEED FOLDER".into());
    };
    let (seed, folder) = (seed.parse()?, Path::new(folder));
    if direction == "tables" {
        let (carrier, frames, said) = on_air::tables(seed);
        fs::write(folder.join("frames.pcap"), capture(&carrier, &frames))?;
        let line = |(superframe, first, terminals): &on_air::Said| {
            let terminals: Vec<_> = terminals.iter().map(u8::to_string).collect();
            format!("{superframe} {first} {}\n", terminals.join(","))
        };
        fs::write(
            folder.join("said.txt"),
            said.iter().map(line).collect::<String>(),
        )?;
        return Ok(());
    }
    if direction == "network" {
        let (carrier, frames, sent) = on_air::network(seed);
        fs::write(folder.join("frames.pcap"), capture(&carrier, &frames))?;
        let line = |(terminal, superframe, slot): &on_air::Burst| {
            format!("{terminal} {superframe} {slot}\n")
        };
        let lines: String = sent.iter().map(line).collect();
        fs::write(folder.join("bursts.txt"), lines)?;
        return Ok(());
    }
    if direction == "shared" {
        let (carrier, frames, sent) = on_air::shared(seed);
        fs::write(folder.join("frames.pcap"), capture(&carrier, &frames))?;
        for (terminal, packets) in sent.iter().enumerate() {
            fs::write(folder.join(format!("sent-{terminal}.txt")), lines(packets))?;
        }
        return Ok(());
    }
    let run = match direction.as_str() {
        "forward" | "plans" => on_air::forward(seed, direction == "plans"),
        "return" => on_air::back(seed),
        _ => {
            return Err(format!(
                "{direction}: none of forward, plans, tables, shared, network and return"
            )
            .into());
        }
    };
    if let Carrier::Forward { .. } = run.carrier {
        fs::write(
            folder.join("frames.pcap"),
            capture(&run.carrier, &run.frames),
        )?;
    } else {
        fs::write(folder.join("bursts.txt"), bursts(&run.frames))?;
    }
    for (name, packets) in [("sent.txt", &run.sent), ("received.txt", &run.received)] {
        fs::write(folder.join(name), lines(packets))?;
    }
    Ok(())
}

fn lines(packets: &[Vec<u8>]) -> String {
    let lines: Vec<_> = packets.iter().map(|packet| hex(packet)).collect();
    lines.join("\n")
}

fn bursts(frames: &[Frame]) -> String {
    let line = |frame: &Frame| {
        let fate = if frame.is_lost { "lost" } else { "ok" };
        format!("{fate} {}\n", hex(&frame.payload))
    };
    frames.iter().map(line).collect()
}

/// A capture file of IPv4/UDP datagrams from port 6000 to 6001 at the moments the frames open.
fn capture(carrier: &Carrier, frames: &[Frame]) -> Vec<u8> {
    let mut file = vec![];
    for word in [0xA1B2_3C4D, 2 | 4 << 16, 0, 0, 65_535, LINKTYPE_RAW] {
        file.extend(u32::to_le_bytes(word)); // magic with nanoseconds, version 2.4, zone, accuracy, longest, link type
    }
    for (number, frame) in frames.iter().enumerate() {
        let datagram = datagram(&mode_adaptation(carrier, number), &frame.payload);
        let (seconds, nanos) = (frame.at / 1_000_000_000, frame.at % 1_000_000_000);
        let len = datagram.len() as u32;
        for word in [seconds as u32, nanos as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(datagram);
    }
    file
}

/// Header L.3 of the mode adaptation interface (`SatLabs` `sl_561`): sync, ACM command, `Es/N0` +
/// I, frame number.
fn mode_adaptation(carrier: &Carrier, number: usize) -> [u8; 4] {
    let Carrier::Forward {
        modcod,
        frame_size,
        pilots,
        ..
    } = *carrier
    else {
        return [0; 4];
    };
    let is_short = u8::from(frame_size == FrameSize::Short);
    [
        0xB8,
        is_short << 6 | u8::from(pilots) << 5 | modcod.id,
        0,
        number as u8,
    ]
}

fn datagram(adaptation: &[u8], field: &[u8]) -> Vec<u8> {
    let header = BbHeader::gse(field.len(), RollOff::R25).to_bytes();
    let udp_len = (8 + adaptation.len() + header.len() + field.len()) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + udp_len).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    for word in [6000, 6001, udp_len, 0] {
        bytes.extend(word.to_be_bytes());
    }
    [&bytes[..], adaptation, &header, field].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
