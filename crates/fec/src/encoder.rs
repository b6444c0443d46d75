// SPDX-License-Identifier: GPL-3.0-or-later
//! The encoder: the sliding window of source symbols, and repair symbols over it.

use std::collections::VecDeque;

use crate::coefficients::{FULL_DENSITY, coefficients};
use crate::wire::{RepairId, put_repair, put_source, symbol_of};
use crate::{Code, gf256};

/// Makes source and repair frames. Keeps the last `z` packets, so at most `z` times the longest
/// packet in bytes.
#[derive(Debug)]
pub struct Encoder {
    code: Option<Code>,
    window: VecDeque<Vec<u8>>,
    /// Number of the next source packet.
    next: u32,
    /// Source packets since the last repair frame.
    uncovered: u32,
    key: u16,
    coefficients: Vec<u8>,
}

impl Encoder {
    /// An encoder whose first source packet has this number; without a code it makes no repair
    /// frames.
    #[must_use]
    pub fn new(code: Option<Code>, first: u32) -> Self {
        Self {
            code,
            window: VecDeque::new(),
            next: first,
            uncovered: 0,
            key: 0,
            coefficients: Vec::new(),
        }
    }

    /// Changes the code from the next packet on. The window keeps what the new one covers.
    pub fn set_code(&mut self, code: Option<Code>) {
        self.code = code;
        self.forget();
    }

    /// The code in force.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// Source packets that no repair frame covers yet.
    #[must_use]
    pub fn uncovered(&self) -> u32 {
        self.uncovered
    }

    /// Appends the source frame of a packet to `out`. True if a repair frame is due now.
    pub fn source(&mut self, packet: &[u8], out: &mut Vec<u8>) -> bool {
        put_source(self.next, packet, out);
        self.next = self.next.wrapping_add(1);
        let Some(code) = self.code else { return false };
        self.window.push_back(symbol_of(packet));
        self.forget();
        self.uncovered += 1;
        self.uncovered >= u32::from(code.step())
    }

    /// Appends a repair frame over the window to `out`; nothing, and false, if there is no source
    /// packet to cover.
    pub fn repair(&mut self, out: &mut Vec<u8>) -> bool {
        if self.window.is_empty() {
            return false;
        }
        let count = self.window.len();
        let id = RepairId {
            key: self.key,
            density: FULL_DENSITY,
            count: count as u16,
            first: self.next.wrapping_sub(count as u32),
        };
        coefficients(id.key, id.density, count, &mut self.coefficients);
        // Consecutive repair symbols have different keys (RFC 8681 section 3.6).
        self.key = self.key.wrapping_add(1);
        self.uncovered = 0;
        put_repair(id, out);
        let start = out.len();
        let longest = self.window.iter().map(Vec::len).max().unwrap_or_default();
        out.resize(start + longest, 0);
        for (symbol, &coefficient) in self.window.iter().zip(&self.coefficients) {
            gf256::add_product(&mut out[start..], coefficient, symbol);
        }
        true
    }

    fn forget(&mut self) {
        let kept = self.code.map_or(0, |code| usize::from(code.window()));
        let surplus = self.window.len().saturating_sub(kept);
        self.window.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, parse};

    #[test]
    fn every_step_one_repair_over_a_window_that_grows_and_then_slides() {
        // Figure 1 of Petrou et al.: S(3,9).
        let mut encoder = Encoder::new(Some(Code::new(3, 9).unwrap()), u32::MAX);
        let mut windows = Vec::new();
        for number in 0..15_u32 {
            if encoder.source(&[1; 10], &mut Vec::new()) {
                let mut bytes = Vec::new();
                assert!(encoder.repair(&mut bytes));
                let Ok(Frame::Repair { id, symbol }) = parse(&bytes) else {
                    panic!("{bytes:?}")
                };
                assert_eq!(symbol.len(), 13);
                windows.push((number, id.key, id.first.wrapping_add(1), id.count));
            }
        }
        let expected = [
            (2, 0, 0, 3),
            (5, 1, 0, 6),
            (8, 2, 0, 9),
            (11, 3, 3, 9),
            (14, 4, 6, 9),
        ];
        assert_eq!(windows, expected);
    }

    #[test]
    fn without_a_code_nothing_is_kept() {
        let mut encoder = Encoder::new(None, 0);
        assert!(!encoder.source(&[1; 10], &mut Vec::new()));
        assert!(!encoder.repair(&mut Vec::new()));
        assert_eq!(encoder.uncovered(), 0);
    }
}
