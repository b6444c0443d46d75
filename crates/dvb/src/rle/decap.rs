// SPDX-License-Identifier: GPL-3.0-or-later
//! Reassembly of packets from burst payloads.

use super::ppdu::{AlpduType, Header, Ppdu};
use super::{Protection, compressed};
use crate::sdu::{IPV4, IPV6, crc32, protocol_type};

/// Bursts after which an incomplete ALPDU is given up. The standard leaves it open; the value of
/// GSE is taken.
const TIME_OUT_BURSTS: u64 = 256;

/// A packet that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdu<'a> {
    /// Ethertype.
    pub protocol_type: u16,
    /// The packet.
    pub data: &'a [u8],
}

/// Reassembly of one fragment id.
#[derive(Debug, Default)]
struct Context {
    /// Header of the start PPDU; `None` while no ALPDU is open.
    start: Option<Start>,
    /// Sequence number the next end PPDU has if nothing was lost.
    sequence: u8,
    alpdu: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    since: u64,
    protection: Protection,
    total_length: usize,
    alpdu: AlpduType,
    /// More data than announced came in.
    broken: bool,
}

impl Context {
    fn push(&mut self, data: &[u8]) {
        let Some(start) = &mut self.start else { return };
        if self.alpdu.len() + data.len() > start.total_length {
            start.broken = true;
        } else {
            self.alpdu.extend_from_slice(data);
        }
    }

    /// Discards the open ALPDU; returns whether there was one.
    fn abandon(&mut self) -> bool {
        let open = self.start.take().is_some();
        self.sequence = self.sequence.wrapping_add(u8::from(open));
        open
    }

    /// Closes the ALPDU with the end PPDU that holds `data`; the SDU if all of it is there.
    fn finish(&mut self, data: &[u8]) -> Option<Sdu<'_>> {
        self.push(data);
        // The sequence number advances even if the start was lost.
        let expected = self.sequence;
        let found = data.last().copied();
        self.sequence = found.unwrap_or(expected).wrapping_add(1);
        let start = self.start.take()?;
        if start.broken || self.alpdu.len() != start.total_length {
            return None;
        }
        let length = self.alpdu.len().checked_sub(start.protection.len())?;
        let (alpdu, trailer) = self.alpdu.split_at(length);
        let sdu = open_alpdu(start.alpdu, alpdu)?;
        let intact = match start.protection {
            Protection::SequenceNumber => found == Some(expected),
            Protection::Crc32 => {
                crc32(&[&sdu.protocol_type.to_be_bytes(), sdu.data]).to_be_bytes() == *trailer
            }
        };
        intact.then_some(sdu)
    }
}

/// Reads the protocol type in front of the SDU (EN 301 545-2 table 7-3); `None` for what is not IP.
fn open_alpdu(kind: AlpduType, alpdu: &[u8]) -> Option<Sdu<'_>> {
    if kind != AlpduType::PLAIN {
        return None;
    }
    let (&first, rest) = alpdu.split_first()?;
    let (protocol_type, data) = match first {
        compressed::IPV4 => (IPV4, rest),
        compressed::IPV6 => (IPV6, rest),
        compressed::IP => (protocol_type(rest)?, rest),
        compressed::FALLBACK => {
            let (protocol_type, data) = rest.split_first_chunk()?;
            (u16::from_be_bytes(*protocol_type), data)
        }
        _ => return None,
    };
    Some(Sdu {
        protocol_type,
        data,
    })
}

/// Takes burst payloads apart and joins fragments.
///
/// Bursts may be missing: then packets are missing, but no wrong one comes out (with sequence
/// numbers: unless 2048 fragmented packets in a row are lost within 256 bursts, which is
/// impossible). Memory is bounded by 8 fragment ids of at most 4095 bytes.
#[derive(Debug, Default)]
pub struct Decapsulator {
    bursts: u64,
    contexts: Box<[Context; 8]>,
    lost: u64,
    malformed: u64,
}

impl Decapsulator {
    /// Without fragments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Packets of which something arrived but not all, or that are not IP. A packet that vanished
    /// without a trace is not in it.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bursts that contained anything but PPDUs and padding.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// A burst passed that could not be decoded: only the time-out moves on.
    pub fn frame_lost(&mut self) {
        self.bursts += 1;
        for context in self.contexts.iter_mut() {
            if context
                .start
                .is_some_and(|start| self.bursts - start.since > TIME_OUT_BURSTS)
            {
                self.lost += u64::from(context.abandon());
            }
        }
    }

    /// Parses one burst payload and passes each packet that is now complete to `sink`, in the order
    /// of the last fragments.
    pub fn frame(&mut self, payload: &[u8], mut sink: impl FnMut(Sdu<'_>)) {
        self.frame_lost();
        let mut rest = payload;
        loop {
            match Ppdu::parse(rest) {
                Ok(Some((ppdu, tail))) => {
                    self.ppdu(ppdu, &mut sink);
                    rest = tail;
                }
                Ok(None) => break,
                Err(_) => {
                    self.malformed += 1;
                    break;
                }
            }
        }
    }

    fn ppdu(&mut self, ppdu: Ppdu<'_>, sink: &mut impl FnMut(Sdu<'_>)) {
        let sdu = match ppdu.header {
            Header::Complete { alpdu } => open_alpdu(alpdu, ppdu.data),
            Header::Start {
                frag_id,
                use_crc,
                total_length,
                alpdu,
            } => {
                let protection = if use_crc {
                    Protection::Crc32
                } else {
                    Protection::SequenceNumber
                };
                let total_length = usize::from(total_length);
                let context = &mut self.contexts[usize::from(frag_id)];
                self.lost += u64::from(context.abandon());
                context.alpdu.clear();
                context.start = Some(Start {
                    since: self.bursts,
                    protection,
                    total_length,
                    alpdu,
                    broken: false,
                });
                context.push(ppdu.data);
                return;
            }
            Header::Continuation { frag_id } => {
                self.contexts[usize::from(frag_id)].push(ppdu.data);
                return;
            }
            Header::End { frag_id } => self.contexts[usize::from(frag_id)].finish(ppdu.data),
        };
        match sdu {
            Some(sdu) => sink(sdu),
            None => self.lost += 1,
        }
    }
}
