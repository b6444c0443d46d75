// SPDX-License-Identifier: GPL-3.0-or-later
//! What probes are made of: a direction as a whole, or a terminal's part of it.

use crate::fifos::FifoLine;
use crate::samples::{Asked, Direction, TerminalLine};
use link::Volume;

/// What a FIFO holds and did.
#[derive(Clone, Copy, Default)]
pub(super) struct FifoFigures {
    pub queue: Volume,
    pub dropped: Volume,
    pub offered: Volume,
    pub sent: Volume,
}

impl FifoFigures {
    fn of(line: &FifoLine) -> Self {
        Self {
            queue: Volume::new(line.queue_packets, line.queue_bytes),
            dropped: Volume::new(line.dropped_packets, line.dropped_bytes),
            offered: line.offered,
            sent: Volume::new(line.sent_packets, line.sent_bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            queue: self.queue + other.queue,
            dropped: self.dropped + other.dropped,
            offered: self.offered + other.offered,
            sent: self.sent + other.sent,
        }
    }
}

/// A direction, or a terminal's part of it, in an interval.
pub(super) struct Part<'a> {
    pub modcod_id: Option<u8>,
    pub threshold_db: Option<f64>,
    pub es_n0_db: Option<f64>,
    pub frames: u64,
    pub lost_frames: u64,
    pub slots_assigned: Option<u64>,
    pub requests: Option<u64>,
    pub asked: Asked,
    /// All its FIFOs together; what was sent has left the link.
    pub all: FifoFigures,
    /// Several have one name where it is that of several terminals.
    fifos: Vec<&'a FifoLine>,
}

impl<'a> Part<'a> {
    /// A direction as a whole.
    pub(super) fn of(direction: &'a Direction) -> Self {
        let of_terminals = direction.terminals.iter().flat_map(|it| &it.fifos);
        Self {
            modcod_id: direction.modcod_id,
            threshold_db: direction.threshold_db,
            es_n0_db: direction.es_n0_db,
            frames: direction.frames,
            lost_frames: direction.lost_frames,
            slots_assigned: direction.slots_assigned,
            requests: direction.requests,
            asked: direction.asked,
            all: FifoFigures {
                queue: Volume::new(direction.queue_packets, direction.queue_bytes),
                dropped: Volume::new(direction.dropped_packets, direction.dropped_bytes),
                offered: Volume::new(direction.in_packets, direction.in_bytes),
                sent: Volume::new(direction.out_packets, direction.out_bytes),
            },
            fifos: direction.fifos.iter().chain(of_terminals).collect(),
        }
    }

    /// The parts of some terminals together; the direction as a whole where they are all of them.
    /// MODCOD and `Es/N0` are the first one's.
    pub(super) fn of_some(direction: &'a Direction, members: &[usize]) -> Self {
        let lines = &direction.terminals;
        let mut parts = (members.iter())
            .filter_map(|at| lines.get(*at))
            .map(Self::of_terminal);
        match parts.next() {
            Some(first) if members.len() < lines.len() => parts.fold(first, Self::with),
            _ => Self::of(direction),
        }
    }

    fn with(mut self, other: Self) -> Self {
        let some = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        self.fifos.extend(other.fifos);
        Self {
            frames: self.frames + other.frames,
            lost_frames: self.lost_frames + other.lost_frames,
            slots_assigned: some(self.slots_assigned, other.slots_assigned),
            requests: some(self.requests, other.requests),
            asked: Asked {
                rbdc_kbps: self.asked.rbdc_kbps + other.asked.rbdc_kbps,
                vbdc_bursts: self.asked.vbdc_bursts + other.asked.vbdc_bursts,
            },
            all: self.all.plus(other.all),
            ..self
        }
    }

    /// The part of each terminal, the first one's first.
    pub(super) fn of_terminals(direction: &'a Direction) -> impl Iterator<Item = Self> {
        let alone = direction.terminals.is_empty();
        let whole = alone.then(|| Self::of(direction)).into_iter();
        whole.chain(direction.terminals.iter().map(Self::of_terminal))
    }

    fn of_terminal(line: &'a TerminalLine) -> Self {
        Self {
            modcod_id: line.modcod_id,
            threshold_db: line.threshold_db,
            es_n0_db: line.es_n0_db,
            frames: line.frames,
            lost_frames: line.lost_frames,
            slots_assigned: line.slots_assigned,
            requests: line.requests,
            asked: line.asked,
            all: FifoFigures {
                queue: Volume::new(line.queue_packets, line.queue_bytes),
                dropped: Volume::new(line.dropped_packets, line.dropped_bytes),
                offered: Volume::new(line.in_packets, line.in_bytes),
                sent: Volume::new(line.out_packets, line.out_bytes),
            },
            fifos: line.fifos.iter().collect(),
        }
    }

    /// Its FIFOs of this name in lower case; one without packets has no line.
    pub(super) fn fifo(&self, name: &str) -> FifoFigures {
        let lines = self.fifos.iter();
        let lines = lines.filter(|it| it.fifo.to_lowercase() == name);
        lines
            .map(|line| FifoFigures::of(line))
            .fold(FifoFigures::default(), FifoFigures::plus)
    }
}
