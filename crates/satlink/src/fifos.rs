// SPDX-License-Identifier: GPL-3.0-or-later
//! Figures of FIFOs in a sample: what they hold, and how long packets waited in them.

use std::collections::BTreeMap;

use emulator::drive::Snapshot;
use link::{FifoState, Volume, Waited};
use schemars::JsonSchema;
use serde::Serialize;

/// Times in a queue of the packets that left it for a frame in an interval; null where none did.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct QueueTimes {
    /// median time in the queue, of the packets that left the queue for a frame in the interval
    pub queue_p50_ms: Option<f64>,
    /// 95th percentile of the time in the queue
    pub queue_p95_ms: Option<f64>,
    /// 99th percentile of the time in the queue
    pub queue_p99_ms: Option<f64>,
    /// histogram of the time in the queue: middle of the bin in us, number of packets. A time is
    /// accurate to 3.2 % or 1 us. Left out if it is empty, or if the terminals or FIFOs below have
    /// their own histograms
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<[u32; 2]>", length(max = 4096))]
    pub waits_us: Vec<(u32, u32)>,
}

/// Figures of one of several FIFOs in an interval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FifoLine {
    /// name of the FIFO in the profile, in which _ replaces all characters but letters, digits, _,
    /// - and .; or its number, from 1
    #[schemars(length(min = 1, max = 40))]
    pub fifo: String,
    pub queue_bytes: u64,
    pub queue_packets: u64,
    /// packets that left the FIFO for a frame
    pub sent_packets: u64,
    pub dropped_packets: u64,
    /// What was offered, and bytes sent and dropped; for probes alone.
    #[serde(skip)]
    pub offered: Volume,
    #[serde(skip)]
    pub sent_bytes: u64,
    #[serde(skip)]
    pub dropped_bytes: u64,
    #[serde(flatten)]
    pub times: QueueTimes,
}

/// Times of all FIFOs together, and a line for each that had packets where there are several.
pub(crate) fn of_fifos(
    last: &[FifoState],
    now: &[FifoState],
    names: &[String],
) -> (QueueTimes, Vec<FifoLine>) {
    if let [only] = now {
        return (QueueTimes::with_waits(&only.waits), Vec::new());
    }
    let nothing = FifoState::default();
    let lines = (0..).zip(now).filter_map(|(index, now)| {
        let last = last.get(index).unwrap_or(&nothing);
        let sent = now.sent.saturating_sub(last.sent);
        let dropped = now.dropped.saturating_sub(last.dropped);
        let had_packets = sent.packets + dropped.packets + now.queue.packets > 0;
        had_packets.then(|| FifoLine {
            fifo: names
                .get(index)
                .map_or_else(|| (index + 1).to_string(), Clone::clone),
            queue_bytes: now.queue.bytes,
            queue_packets: now.queue.packets,
            sent_packets: sent.packets,
            dropped_packets: dropped.packets,
            offered: now.offered.saturating_sub(last.offered),
            sent_bytes: sent.bytes,
            dropped_bytes: dropped.bytes,
            times: QueueTimes::with_waits(&now.waits),
        })
    });
    (QueueTimes::of_all(now), lines.collect())
}

/// Moves the times of an interval that has no sample to the next one, which has the rest of its
/// figures, too.
pub(crate) fn carry_over(from: Snapshot, to: &mut Snapshot) {
    let fifos = |snapshot: Snapshot| {
        let of_terminals = snapshot.terminals.into_iter().flat_map(|it| it.fifos);
        snapshot.fifos.into_iter().chain(of_terminals)
    };
    let of_terminals = to.terminals.iter_mut().flat_map(|it| &mut it.fifos);
    for (to, from) in to.fifos.iter_mut().chain(of_terminals).zip(fifos(from)) {
        to.waits.extend(from.waits);
    }
}

impl QueueTimes {
    /// Of several FIFOs together.
    pub(crate) fn of_all<'a>(fifos: impl IntoIterator<Item = &'a FifoState>) -> Self {
        let mut packets_by_us = BTreeMap::new();
        for waited in fifos.into_iter().flat_map(|it| &it.waits) {
            *packets_by_us.entry(waited.us).or_insert(0) += u64::from(waited.packets);
        }
        let packets: u64 = packets_by_us.values().sum();
        // By nearest rank: the least time that so many percent of the packets did not exceed.
        let percentile_ms = |percent: u64| {
            let rank = (packets * percent).div_ceil(100);
            let mut passed = 0;
            for (&us, &packets) in &packets_by_us {
                passed += packets;
                if passed >= rank {
                    return Some(f64::from(us) / 1e3);
                }
            }
            None
        };
        Self {
            queue_p50_ms: percentile_ms(50),
            queue_p95_ms: percentile_ms(95),
            queue_p99_ms: percentile_ms(99),
            waits_us: Vec::new(),
        }
    }

    /// Of a direction whose own FIFOs have `own`; `None` where it has no queue.
    pub(crate) fn of_direction(own: Self, now: &Snapshot) -> Option<Self> {
        if now.terminals.is_empty() {
            return (!now.fifos.is_empty()).then_some(own);
        }
        let all = now.terminals.iter().flat_map(|it| &it.fifos);
        Some(Self::of_all(all))
    }

    fn with_waits(waits: &[Waited]) -> Self {
        let only = FifoState {
            waits: waits.to_vec(),
            ..FifoState::default()
        };
        Self {
            waits_us: waits.iter().map(|it| (it.us, it.packets)).collect(),
            ..Self::of_all([&only])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fifo(sent: u64, dropped: u64, waits: &[(u32, u32)]) -> FifoState {
        let waits = waits.iter().map(|&(us, packets)| Waited { us, packets });
        FifoState {
            sent: Volume::new(sent, 0),
            dropped: Volume::new(dropped, 0),
            waits: waits.collect(),
            ..FifoState::default()
        }
    }

    #[test]
    fn p297_percentiles_are_by_rank_over_all_fifos() {
        let fifos = [
            fifo(50, 0, &[(1000, 50)]),
            fifo(50, 0, &[(500, 45), (9000, 4), (80_000, 1)]),
        ];
        let times = QueueTimes::of_all(&fifos);
        assert_eq!(
            (times.queue_p50_ms, times.queue_p95_ms),
            (Some(1.0), Some(1.0))
        );
        assert_eq!(times.queue_p99_ms, Some(9.0));
        let only = QueueTimes::with_waits(&fifos[1].waits);
        assert_eq!(
            (only.queue_p50_ms, only.queue_p95_ms),
            (Some(0.5), Some(9.0))
        );
        assert_eq!(only.queue_p99_ms, Some(80.0));
        assert_eq!(QueueTimes::of_all([]), QueueTimes::default());
    }

    #[test]
    fn p297_fifos_without_packets_are_left_out_and_names_are_those_of_the_profile() {
        let names = ["EF".to_owned()];
        let last = [fifo(5, 0, &[]), fifo(7, 7, &[])];
        let now = [fifo(6, 0, &[(1000, 1)]), fifo(7, 7, &[]), fifo(0, 2, &[])];
        let (times, lines) = of_fifos(&last, &now, &names);
        let found: Vec<_> = lines
            .iter()
            .map(|it| (it.fifo.as_str(), it.sent_packets, it.dropped_packets))
            .collect();
        assert_eq!(found, [("EF", 1, 0), ("3", 0, 2)]);
        assert_eq!((times.queue_p99_ms, times.waits_us.len()), (Some(1.0), 0));
        let (alone, none) = of_fifos(&last, &now[..1], &names);
        assert_eq!((alone.waits_us, none.len()), (vec![(1000, 1)], 0));
    }
}
