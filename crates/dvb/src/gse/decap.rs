// SPDX-License-Identifier: GPL-3.0-or-later
//! Reassembly of packets from data fields.

use super::packet::{Label, LabelField, Packet};
use crate::sdu::crc32;

/// BBFRAMEs after which an incomplete PDU is given up.
const TIME_OUT_FRAMES: u64 = 256;

/// A PDU that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Ethertype.
    pub protocol_type: u16,
    /// Receiver.
    pub label: Label,
    /// The PDU.
    pub data: &'a [u8],
}

#[derive(Debug)]
struct Context {
    frag_id: u8,
    since: u64,
    total_length: u16,
    protocol_type: u16,
    label: Label,
    label_re_used: bool,
    /// More data than announced came in.
    broken: bool,
    data: Vec<u8>,
}

impl Context {
    /// Bytes of the PDU that the total length announces.
    fn expected(&self) -> usize {
        let label = if self.label_re_used {
            0
        } else {
            self.label.as_bytes().len()
        };
        usize::from(self.total_length).saturating_sub(2 + label)
    }

    fn push(&mut self, data: &[u8]) {
        if self.data.len() + data.len() > self.expected() {
            self.broken = true;
        } else {
            self.data.extend_from_slice(data);
        }
    }

    fn is_intact(&self, crc: u32) -> bool {
        let label = if self.label_re_used {
            &[]
        } else {
            self.label.as_bytes()
        };
        !self.broken
            && self.data.len() == self.expected()
            && crc32(&[
                &self.total_length.to_be_bytes(),
                &self.protocol_type.to_be_bytes(),
                label,
                &self.data,
            ]) == crc
    }
}

/// Takes data fields of BBFRAMEs apart and joins fragments.
///
/// Frames may be missing: then PDUs are missing, but no wrong one comes out. Memory is bounded by
/// 256 fragment ids of at most 64 KiB, and an incomplete PDU is given up after 256 BBFRAMEs.
#[derive(Debug, Default)]
pub struct Decapsulator {
    frames: u64,
    open: Vec<Context>,
    spare: Vec<Vec<u8>>,
    lost: u64,
    malformed: u64,
}

impl Decapsulator {
    /// Without fragments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// PDUs of which something arrived but not all. One that vanished without a trace is not in it;
    /// one that was given up and whose end still arrives is in it twice.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Data fields that contained anything but GSE packets and padding.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// A BBFRAME passed that could not be decoded: only the time-out moves on.
    pub fn frame_lost(&mut self) {
        self.frames += 1;
        self.expire();
    }

    /// Parses one data field and passes each PDU that is now complete to `sink`, in the order of
    /// the last fragments.
    pub fn frame(&mut self, field: &[u8], mut sink: impl FnMut(Pdu<'_>)) {
        self.frames += 1;
        self.expire();
        let mut rest = field;
        let mut last_label = None;
        loop {
            match Packet::parse(rest) {
                Ok(Some((packet, tail))) => {
                    self.packet(packet, &mut last_label, &mut sink);
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

    fn packet(
        &mut self,
        packet: Packet<'_>,
        last_label: &mut Option<Label>,
        sink: &mut impl FnMut(Pdu<'_>),
    ) {
        match packet {
            Packet::Complete {
                protocol_type,
                label,
                data,
            } => match self.label(label, last_label) {
                Some(label) => sink(Pdu {
                    protocol_type,
                    label,
                    data,
                }),
                None => self.lost += 1,
            },
            Packet::First {
                frag_id,
                total_length,
                protocol_type,
                label: field,
                data,
            } => {
                self.close(frag_id);
                let Some(label) = self.label(field, last_label) else {
                    return;
                };
                let mut context = Context {
                    frag_id,
                    since: self.frames,
                    total_length,
                    protocol_type,
                    label,
                    label_re_used: field == LabelField::ReUse,
                    broken: false,
                    data: self.spare.pop().unwrap_or_default(),
                };
                context.push(data);
                self.open.push(context);
            }
            Packet::Middle { frag_id, data } => {
                if let Some(context) = self.open.iter_mut().find(|c| c.frag_id == frag_id) {
                    context.push(data);
                }
            }
            Packet::Last { frag_id, data, crc } => self.finish(frag_id, data, crc, sink),
        }
    }

    /// The label meant; `None` for re-use without a label to re-use, which is malformed.
    fn label(&mut self, field: LabelField, last: &mut Option<Label>) -> Option<Label> {
        match field {
            LabelField::Label(label) => *last = Some(label),
            LabelField::ReUse if last.is_none() => self.malformed += 1,
            LabelField::ReUse => {}
        }
        *last
    }

    fn finish(&mut self, frag_id: u8, data: &[u8], crc: u32, sink: &mut impl FnMut(Pdu<'_>)) {
        let Some(at) = self.open.iter().position(|c| c.frag_id == frag_id) else {
            self.lost += 1;
            return;
        };
        let mut context = self.open.swap_remove(at);
        context.push(data);
        if context.is_intact(crc) {
            sink(Pdu {
                protocol_type: context.protocol_type,
                label: context.label,
                data: &context.data,
            });
        } else {
            self.lost += 1;
        }
        self.recycle(context);
    }

    /// Discards an incomplete PDU whose fragment id is used again.
    fn close(&mut self, frag_id: u8) {
        if let Some(at) = self.open.iter().position(|c| c.frag_id == frag_id) {
            let context = self.open.swap_remove(at);
            self.recycle(context);
            self.lost += 1;
        }
    }

    fn expire(&mut self) {
        while let Some(at) = self
            .open
            .iter()
            .position(|c| self.frames - c.since > TIME_OUT_FRAMES)
        {
            let context = self.open.swap_remove(at);
            self.recycle(context);
            self.lost += 1;
        }
    }

    fn recycle(&mut self, mut context: Context) {
        context.data.clear();
        // One spare buffer serves a sender that finishes a PDU before it starts the next.
        if self.spare.is_empty() {
            self.spare.push(context.data);
        }
    }
}
