// SPDX-License-Identifier: GPL-3.0-or-later
//! Writes the frames of a sender for decoders that are not ours: `frames K,Z SEED`.
//!
//! One line each: `kept` or `lost` and the frame in hexadecimal, in the order of the wire;
//! `recovered` and the number of each packet that our own decoder makes of the kept ones. Each
//! fifth frame or so is lost, in runs.

use std::error::Error;
use std::io::Write;

use fec::{Decoder, Frame, Sender, TinyMt32, parse};

const PACKETS: u32 = 400;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [code, seed] = &arguments[..] else {
        return Err("usage: frames K,Z SEED".into());
    };
    let code: fec::Code = code.parse()?;
    let mut random = TinyMt32::new(seed.parse()?);
    let mut sender = Sender::new(Some(code));
    let mut frames = Vec::new();
    for _ in 0..PACKETS {
        let length = 1 + random.next_u32() as usize % 60;
        let packet: Vec<u8> = (0..length).map(|_| random.next_256()).collect();
        sender.push(0, &packet, |frame| frames.push(frame.to_vec()));
    }
    // As long as the stream: a decoder without bounds is to find the same.
    let mut decoder = Decoder::new(PACKETS as usize, 0);
    let (mut is_lost, mut recovered) = (false, Vec::new());
    let mut out = std::io::stdout().lock();
    for frame in frames {
        let change = random.next_16();
        is_lost = if is_lost { change > 5 } else { change == 0 };
        write!(out, "{} ", if is_lost { "lost" } else { "kept" })?;
        for byte in &frame {
            write!(out, "{byte:02x}")?;
        }
        writeln!(out)?;
        match parse(&frame)? {
            _ if is_lost => {}
            Frame::Source { esi, packet } => {
                decoder.source(esi, packet, &mut recovered);
            }
            Frame::Repair { id, symbol } => {
                decoder.repair(id, symbol, &mut recovered);
            }
            Frame::Report(_) | Frame::Foreign(..) => {}
        }
    }
    for position in recovered {
        writeln!(out, "recovered {}", position as u32)?;
    }
    Ok(())
}
