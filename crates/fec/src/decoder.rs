// SPDX-License-Identifier: GPL-3.0-or-later
//! The decoder: Gaussian elimination that keeps its equations solved as far as they go.
//!
//! The decoding window (RFC 8681 section 3.1) is a ring of slots by number of the source symbol. A
//! slot is missing, known, or the pivot of one equation. An equation is in reduced form: its pivot
//! has coefficient 1 and is the first missing symbol in it, and no other equation contains it. So
//! an equation leaves with its pivot when the window slides, and what remains never refers to what
//! has left.

use crate::coefficients::coefficients;
use crate::gf256;
use crate::wire::{RepairId, packet_in, symbol_of};

/// What a source packet was to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was missing.
    New,
    /// It came, or was recovered, before.
    Duplicate,
    /// It lies behind the window.
    Late,
}

/// Position of a recovered packet: its encoding symbol identifier, counted on beyond 32 bits.
pub type Recovered = u64;

/// Recovers source symbols of the last `window` ones.
///
/// Keeps at most `window` symbols and `window` equations of `window` coefficients and one symbol
/// each.
#[derive(Debug)]
pub struct Decoder {
    slots: Vec<Slot>,
    start: u64,
    /// One behind the newest symbol that is known to exist.
    end: u64,
    lost: u64,
    malformed: u64,
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Missing,
    Known(Vec<u8>),
    Pivot(Equation),
}

/// Coefficients by slot, and the sum of what they are multiplied with.
#[derive(Debug)]
struct Equation {
    coefficients: Vec<u8>,
    sum: Vec<u8>,
}

impl Decoder {
    /// A decoder of the last `window` symbols of a stream whose first symbol has this identifier.
    #[must_use]
    pub fn new(window: usize, first: u32) -> Self {
        // So far from 0 that no identifier lies before it.
        let start = (1 << 32) + u64::from(first);
        Self {
            slots: (0..window.max(1)).map(|_| Slot::Missing).collect(),
            start,
            end: start,
            lost: 0,
            malformed: 0,
            buffer: Vec::new(),
        }
    }

    /// Positions in the window, `start` of the stream not before.
    #[must_use]
    pub fn window(&self) -> std::ops::Range<u64> {
        let base = self.end.saturating_sub(self.slots.len() as u64);
        base.max(self.start)..self.end
    }

    /// The position that an identifier means: the one nearest to the newest symbol.
    #[must_use]
    pub fn position(&self, esi: u32) -> u64 {
        let ahead = i32::from_ne_bytes(esi.wrapping_sub(self.end as u32).to_ne_bytes());
        self.end.saturating_add_signed(i64::from(ahead))
    }

    /// Where the window will start once it reaches `end`, one behind a position.
    #[must_use]
    pub fn base_at(&self, end: u64) -> u64 {
        end.max(self.end).saturating_sub(self.slots.len() as u64)
    }

    /// The packet at a position, if it is in the window and known.
    #[must_use]
    pub fn packet(&self, position: u64) -> Option<&[u8]> {
        match self.at(position) {
            Slot::Known(symbol) if self.window().contains(&position) => packet_in(symbol),
            _ => None,
        }
    }

    /// Symbols that left the window without being known.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Symbols in the window that are not known.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let unknown = |&at: &u64| !matches!(self.at(at), Slot::Known(_));
        self.window().filter(unknown).count() as u64
    }

    /// Recovered symbols that hold no packet: the peer's repair symbols do not belong to its source
    /// packets.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Equations kept.
    #[must_use]
    pub fn equations(&self) -> usize {
        let pivots = self.slots.iter();
        pivots.filter(|slot| matches!(slot, Slot::Pivot(_))).count()
    }

    /// Takes a source packet. Appends to `out` what it makes known besides itself.
    pub fn source(&mut self, esi: u32, packet: &[u8], out: &mut Vec<Recovered>) -> Arrival {
        let position = self.position(esi);
        if position < self.window().start {
            return Arrival::Late;
        }
        self.advance(position + 1);
        let symbol = symbol_of(packet);
        match std::mem::take(self.at_mut(position)) {
            Slot::Known(before) => {
                *self.at_mut(position) = Slot::Known(before);
                return Arrival::Duplicate;
            }
            Slot::Missing => self.learn(position, symbol, out),
            Slot::Pivot(mut equation) => {
                self.learn(position, symbol, out);
                self.substitute(&mut equation);
                self.insert(equation, out);
            }
        }
        Arrival::New
    }

    /// Takes a repair symbol. Appends to `out` what it makes known. False if it is of no use: all
    /// it covers is known, or part of it has left the window.
    pub fn repair(&mut self, id: RepairId, symbol: &[u8], out: &mut Vec<Recovered>) -> bool {
        let count = usize::from(id.count);
        let first = self.position(id.first);
        let end = first + count as u64;
        if count == 0 || count > self.slots.len() || first < self.start {
            return false;
        }
        self.advance(end);
        let known = |at: u64| matches!(self.at(at), Slot::Known(_));
        if first < self.window().start || (first..end).all(known) {
            return false;
        }
        let mut equation = Equation {
            coefficients: vec![0; self.slots.len()],
            sum: symbol.to_vec(),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        coefficients(id.key, id.density, count, &mut buffer);
        for (position, &coefficient) in (first..end).zip(&buffer) {
            equation.coefficients[self.index(position)] = coefficient;
        }
        self.buffer = buffer;
        self.substitute(&mut equation);
        self.insert(equation, out)
    }

    fn index(&self, position: u64) -> usize {
        (position % self.slots.len() as u64) as usize
    }

    fn at(&self, position: u64) -> &Slot {
        &self.slots[self.index(position)]
    }

    fn at_mut(&mut self, position: u64) -> &mut Slot {
        let index = self.index(position);
        &mut self.slots[index]
    }

    /// Slides the window so that it ends at `end`.
    fn advance(&mut self, end: u64) {
        let size = self.slots.len() as u64;
        // Symbols that enter and leave at once.
        let passing = end.saturating_sub(self.end).saturating_sub(size);
        let first = self.end;
        for position in first..end.min(first.saturating_add(size)) {
            let left = std::mem::take(self.at_mut(position));
            if position >= self.start + size && !matches!(left, Slot::Known(_)) {
                self.lost += 1;
            }
        }
        self.lost += passing;
        self.end = self.end.max(end);
    }

    /// Takes what is known, and the pivots of the other equations, out of a new equation.
    fn substitute(&self, equation: &mut Equation) {
        for (index, slot) in self.slots.iter().enumerate() {
            let factor = equation.coefficients[index];
            match slot {
                Slot::Known(symbol) => {
                    equation.coefficients[index] = 0;
                    add(&mut equation.sum, factor, symbol);
                }
                Slot::Pivot(other) => equation.add(factor, other),
                Slot::Missing => {}
            }
        }
    }

    /// Keeps a substituted equation, and solves what it solves. False if it says nothing new.
    fn insert(&mut self, mut equation: Equation, out: &mut Vec<Recovered>) -> bool {
        let unknown = |&at: &u64| equation.coefficients[self.index(at)] != 0;
        let Some(pivot) = self.window().find(unknown) else {
            return false;
        };
        let index = self.index(pivot);
        let factor = gf256::inverse(equation.coefficients[index]);
        gf256::scale(&mut equation.coefficients, factor);
        gf256::scale(&mut equation.sum, factor);
        for slot in &mut self.slots {
            if let Slot::Pivot(other) = slot {
                other.add(other.coefficients[index], &equation);
            }
        }
        self.slots[index] = Slot::Pivot(equation);
        self.solve(out);
        true
    }

    /// Makes a symbol known that is the pivot of no equation.
    fn learn(&mut self, position: u64, symbol: Vec<u8>, out: &mut Vec<Recovered>) {
        let index = self.index(position);
        for slot in &mut self.slots {
            if let Slot::Pivot(other) = slot {
                let factor = std::mem::take(&mut other.coefficients[index]);
                add(&mut other.sum, factor, &symbol);
            }
        }
        self.slots[index] = Slot::Known(symbol);
        self.solve(out);
    }

    /// Makes the pivots known whose equations contain nothing else.
    fn solve(&mut self, out: &mut Vec<Recovered>) {
        for position in self.window() {
            let slot = self.at_mut(position);
            let Slot::Pivot(equation) = slot else {
                continue;
            };
            if equation.is_solved() {
                let mut symbol = std::mem::take(&mut equation.sum);
                let length = packet_in(&symbol).map(<[u8]>::len);
                if let Some(length) = length {
                    symbol.truncate(symbol_of(&[]).len() + length);
                    out.push(position);
                }
                *slot = Slot::Known(symbol);
                self.malformed += u64::from(length.is_none());
            }
        }
    }
}

impl Equation {
    fn add(&mut self, factor: u8, other: &Self) {
        gf256::add_product(&mut self.coefficients, factor, &other.coefficients);
        add(&mut self.sum, factor, &other.sum);
    }

    /// Whether only the pivot, whose coefficient is 1, is left.
    fn is_solved(&self) -> bool {
        self.coefficients
            .iter()
            .filter(|&&value| value != 0)
            .count()
            == 1
    }
}

/// Adds a product; the shorter symbol ends with zeros.
fn add(to: &mut Vec<u8>, factor: u8, from: &[u8]) {
    if factor != 0 && to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    gf256::add_product(to, factor, from);
}
