// SPDX-License-Identifier: GPL-3.0-or-later
//! Figures of flows, groups and queues from their series. A flow that died counts with nothing
//! until its planned end.

use link::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{Counts, Record, Status};
use super::spec::{Flow, Spec};
use crate::outcome::seconds;
use crate::path::{QueueSample, SAMPLE};

/// Window of rates, s: fairness and shares are of this time.
const WINDOW_S: f64 = 1.0;

/// Mean and sample standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    mean: f64,
    /// sample standard deviation over time
    sd: f64,
}

impl Spread {
    /// Of these values; `None` without any.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)?;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        let sd = (squares / (count - 1.0).max(1.0)).sqrt();
        Some(Self {
            mean: round(mean),
            sd: round(sd),
        })
    }
}

/// A flow in a phase.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PhaseStatistics {
    from_s: f64,
    to_s: f64,
    /// Payload rate over windows of 1 s, Mbit/s.
    goodput_mbps: Option<Spread>,
    /// Payload rate over the bins, Mbit/s.
    goodput_bins_mbps: Option<Spread>,
    /// UDP payload rate at the receiver over windows of 1 s, Mbit/s.
    received_mbps: Option<Spread>,
    /// Round-trip time over the bins, ms.
    rtt_ms: Option<Spread>,
    lost_packets: u64,
}

/// Flows of a group, in one direction.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GroupStatistics {
    group: String,
    #[schemars(extend("enum" = ["forward", "return"]))]
    direction: &'static str,
    flows: usize,
    failed: usize,
    /// Payload of the group per capacity of the link while any of its flows was to run.
    utilisation: Option<f64>,
    /// Jain's index over the goodput of the flows while all were to run (Jain, Chiu, Hawe,
    /// DEC-TR-301, 1984).
    jain: Option<f64>,
    /// Of each second; `null` with fewer than two flows.
    jain_over_time: Vec<Option<f64>>,
}

/// A queue over time.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueueStatistics {
    #[schemars(extend("enum" = ["forward", "return"]))]
    direction: &'static str,
    phases: Vec<QueuePhase>,
    /// Time that the link needs for what waits, ms, every 50 ms until the last flow is over.
    delays_ms: Vec<f64>,
}

/// A queue in a phase: percentiles of its delay, ms, by samples every 50 ms.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueuePhase {
    from_s: f64,
    to_s: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// To a millionth: enough for every figure, and short.
#[must_use]
pub fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Jain's index of rates: 1 when all are equal, 1/n when one has all; `None` when there is nothing
/// to share.
#[must_use]
pub fn jain(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|it| it * it).sum();
    (squares > 0.0).then(|| round(sum * sum / (rates.len() as f64 * squares)))
}

/// Value below which `share` of the sorted values lie, by the nearest rank; 0 without values.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    round(sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0))
}

/// What all figures are made of.
pub struct All<'a> {
    /// The request.
    pub spec: &'a Spec,
    records: &'a [Record],
    queues: &'a [Vec<QueueSample>; 2],
    bin_s: f64,
}

impl<'a> All<'a> {
    /// Series of flows and queues.
    #[must_use]
    pub fn new(spec: &'a Spec, records: &'a [Record], queues: &'a [Vec<QueueSample>; 2]) -> Self {
        let bin_s = f64::from(spec.bin_ms) / 1e3;
        Self {
            spec,
            records,
            queues,
            bin_s,
        }
    }

    /// Phases, s.
    fn bounds(&self) -> Vec<(f64, f64)> {
        let edges = [0.0].into_iter().chain(self.spec.phases_s.iter().copied());
        let edges: Vec<_> = edges.chain([self.spec.duration_s]).collect();
        edges.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// A total of a flow at a moment: of the last bin that ended by then.
    fn at(&self, index: usize, t_s: f64, value: fn(&Counts) -> u64) -> u64 {
        let bins = &self.records[index].bins;
        let last = ((t_s / self.bin_s + 1e-9) as usize).min(bins.len());
        let counts = bins[..last].iter().rev().flatten().next();
        counts.map_or(0, value)
    }

    /// Rate of a flow between two moments, Mbit/s.
    fn rate(&self, index: usize, from_s: f64, to_s: f64, value: fn(&Counts) -> u64) -> f64 {
        let bytes = self.at(index, to_s, value) - self.at(index, from_s, value);
        bytes as f64 * 8e-6 / (to_s - from_s)
    }

    /// When a flow is to end: one that is complete is over, one that died is not.
    fn planned_end(&self, index: usize) -> f64 {
        let (flow, record) = (&self.spec.flows[index], &self.records[index]);
        let planned = flow.stop_s.unwrap_or(self.spec.duration_s);
        let ended = record.ended.filter(|_| record.status == Status::Ok);
        ended.map_or(planned, |at| (at as f64 / 1e9).min(planned))
    }

    fn runs(&self, index: usize, from_s: f64, to_s: f64) -> bool {
        self.spec.flows[index].start_s <= from_s && to_s <= self.planned_end(index)
    }

    /// Flows of the same group and direction.
    fn members(&self, flow: &Flow) -> Vec<usize> {
        let is_member =
            |other: &Flow| other.group == flow.group && other.is_forward() == flow.is_forward();
        let all = self.spec.flows.iter().enumerate();
        all.filter(|(_, other)| is_member(other))
            .map(|it| it.0)
            .collect()
    }

    /// Mean rate of the link between two moments, Mbit/s.
    fn capacity(&self, is_forward: bool, from_s: f64, to_s: f64) -> Option<f64> {
        let samples = &self.queues[usize::from(!is_forward)];
        let index = |t_s: f64| ((t_s * 1e9) as u64 / SAMPLE) as usize;
        let last = index(to_s).min(samples.len());
        let part = samples.get(index(from_s).min(last)..last)?;
        let sum: f64 = part.iter().map(|it| it.rate_bps).sum();
        (!part.is_empty()).then(|| sum / part.len() as f64 / 1e6)
    }

    /// Time from a flow's start until its goodput of 1 s is `share` of its fair share of the link,
    /// s.
    #[must_use]
    pub fn time_to_share(&self, index: usize, share: f64) -> Option<f64> {
        let flow = &self.spec.flows[index];
        let members = self.members(flow);
        let mut from_s = flow.start_s;
        while from_s + WINDOW_S <= self.planned_end(index) + 1e-9 {
            let to_s = from_s + WINDOW_S;
            let others = members.iter().filter(|&&it| self.runs(it, from_s, to_s));
            let count = others.count().max(1) as f64;
            let fair = self.capacity(flow.is_forward(), from_s, to_s)? / count;
            if self.rate(index, from_s, to_s, |it| it.payload_bytes) >= share * fair {
                return Some(round(to_s - flow.start_s));
            }
            from_s += self.bin_s;
        }
        None
    }

    /// Share of a flow in what its group carried in its first seconds; `None` when the group
    /// carried nothing.
    #[must_use]
    pub fn first_share(&self, index: usize, length_s: f64) -> Option<f64> {
        let flow = &self.spec.flows[index];
        let (from_s, to_s) = (flow.start_s, flow.start_s + length_s);
        let rate = |index| self.rate(index, from_s, to_s, |it| it.payload_bytes);
        let all: f64 = self.members(flow).into_iter().map(rate).sum();
        (all > 0.0).then(|| round(rate(index) / all))
    }

    /// A flow in each phase.
    #[must_use]
    pub fn phases(&self, index: usize) -> Vec<PhaseStatistics> {
        let bounds = self.bounds().into_iter();
        let phase = bounds.map(|(from_s, to_s)| self.phase(index, from_s, to_s));
        phase.collect()
    }

    fn phase(&self, index: usize, from_s: f64, to_s: f64) -> PhaseStatistics {
        let start_s = from_s.max(self.spec.flows[index].start_s);
        let end_s = to_s.min(self.planned_end(index));
        let rates = |step_s: f64, value: fn(&Counts) -> u64| {
            let count = ((end_s - start_s).max(0.0) / step_s + 1e-9) as usize;
            let rate = |step: usize| {
                let from_s = start_s + step as f64 * step_s;
                self.rate(index, from_s, from_s + step_s, value)
            };
            Spread::of(&(0..count).map(rate).collect::<Vec<_>>())
        };
        let bins = &self.records[index].bins;
        let place = |t_s: f64| ((t_s / self.bin_s + 1e-9) as usize).min(bins.len());
        let part = bins.get(place(start_s)..place(end_s)).unwrap_or_default();
        let rtts = part.iter().flatten().map(|it| it.rtt_ms);
        let rtts: Vec<_> = rtts.filter(|it| *it > 0.0).collect();
        let lost = |t_s| self.at(index, t_s, |it| it.lost_packets);
        PhaseStatistics {
            from_s,
            to_s,
            goodput_mbps: rates(WINDOW_S, |it| it.payload_bytes),
            goodput_bins_mbps: rates(self.bin_s, |it| it.payload_bytes),
            received_mbps: rates(WINDOW_S, |it| it.received_bytes),
            rtt_ms: Spread::of(&rtts),
            lost_packets: lost(to_s) - lost(from_s),
        }
    }

    /// Every group and direction, in the order of their first flows.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupStatistics> {
        let flows = self.spec.flows.iter().enumerate();
        let first = flows.filter(|(index, flow)| self.members(flow).first() == Some(index));
        first.map(|(_, flow)| self.group(flow)).collect()
    }

    fn group(&self, flow: &Flow) -> GroupStatistics {
        let members = self.members(flow);
        let starts = || members.iter().map(|&it| self.spec.flows[it].start_s);
        let ends = || members.iter().map(|&it| self.planned_end(it));
        let payload = |from_s: f64, to_s: f64| -> Vec<f64> {
            let rate = |it: &usize| self.rate(*it, from_s, to_s, |counts| counts.payload_bytes);
            members.iter().map(rate).collect()
        };
        let (first_s, last_s) = (
            starts().fold(f64::MAX, f64::min),
            ends().fold(0.0, f64::max),
        );
        let capacity = self.capacity(flow.is_forward(), first_s, last_s);
        let used: f64 = payload(first_s, last_s).iter().sum();
        let (from_s, to_s) = (
            starts().fold(0.0, f64::max),
            ends().fold(f64::MAX, f64::min),
        );
        let is_shared = members.len() > 1 && from_s + WINDOW_S <= to_s;
        let failed = members
            .iter()
            .filter(|&&it| self.records[it].status == Status::Failed);
        GroupStatistics {
            group: flow.group.clone(),
            direction: if flow.is_forward() {
                "forward"
            } else {
                "return"
            },
            flows: members.len(),
            failed: failed.count(),
            utilisation: capacity.map(|capacity| round(used / capacity)),
            jain: is_shared.then(|| jain(&payload(from_s, to_s))).flatten(),
            jain_over_time: self.jain_over_time(&members),
        }
    }

    fn jain_over_time(&self, members: &[usize]) -> Vec<Option<f64>> {
        let window = |second: usize| {
            let (from_s, to_s) = (second as f64, second as f64 + WINDOW_S);
            let running = members.iter().filter(|&&it| self.runs(it, from_s, to_s));
            let rates = running.map(|&it| self.rate(it, from_s, to_s, |it| it.payload_bytes));
            let rates: Vec<_> = rates.collect();
            (rates.len() > 1).then(|| jain(&rates)).flatten()
        };
        (0..self.spec.duration_s as usize).map(window).collect()
    }

    /// Both queues.
    #[must_use]
    pub fn queues(&self) -> [QueueStatistics; 2] {
        let names = ["forward", "return"];
        [0, 1].map(|index| QueueStatistics {
            direction: names[index],
            phases: self
                .bounds()
                .into_iter()
                .map(|(from_s, to_s)| self.queue(index, from_s, to_s))
                .collect(),
            delays_ms: self
                .samples(index, 0.0, self.last_s())
                .iter()
                .map(|it| round(it.delay_ms))
                .collect(),
        })
    }

    /// When the last flow was over, s.
    fn last_s(&self) -> f64 {
        let ends = self.records.iter().map(|it| it.ended.unwrap_or(Nanos::MAX));
        let last = ends.max().map_or(f64::INFINITY, seconds);
        last.min(self.spec.duration_s)
    }

    /// Samples of a queue between two moments.
    fn samples(&self, index: usize, from_s: f64, to_s: f64) -> &[QueueSample] {
        let samples = &self.queues[index];
        let place = |t_s: f64| (((t_s * 1e9) as u64 / SAMPLE) as usize).min(samples.len());
        samples.get(place(from_s)..place(to_s)).unwrap_or_default()
    }

    /// Of a queue while flows ran: it is empty afterwards.
    fn queue(&self, index: usize, from_s: f64, to_s: f64) -> QueuePhase {
        let to_s = to_s.min(self.last_s()).max(from_s);
        let part = self.samples(index, from_s, to_s);
        let mut delays: Vec<_> = part.iter().map(|it| it.delay_ms).collect();
        delays.sort_by(f64::total_cmp);
        let [p50_ms, p95_ms, p99_ms, max_ms] =
            [0.5, 0.95, 0.99, 1.0].map(|share| percentile(&delays, share));
        QueuePhase {
            from_s,
            to_s,
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-6)
    }

    #[test]
    fn jain_is_one_for_equal_and_one_nth_for_one() {
        assert!(close(jain(&[3.0; 5]), 1.0));
        assert!(close(jain(&[7.0, 0.0, 0.0, 0.0]), 0.25));
        assert!(close(jain(&[1.0, 3.0]), 0.8));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn spread_and_percentiles_are_those_of_the_textbook() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!(close(Some(spread.mean), 5.0) && close(Some(spread.sd), 2.138_09));
        assert_eq!(Spread::of(&[]), None);
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert!(close(Some(percentile(&values, 0.95)), 95.0));
        assert!(close(Some(percentile(&[], 0.5)), 0.0));
    }

    #[test]
    fn a_flow_that_died_counts_with_nothing() {
        let value = crate::flows::spec::tests::two_flows();
        let spec = Spec::parse(&value.to_string(), crate::flows::spec::Clock::Virtual).unwrap();
        let counts = |payload_bytes| {
            Some(Counts {
                payload_bytes,
                ..Counts::default()
            })
        };
        let lives = Record {
            bins: (1..=100).map(|bin| counts(bin * 100_000)).collect(),
            ..Record::default()
        };
        let dies = Record {
            bins: (1..=100)
                .map(|bin| if bin > 20 { None } else { counts(bin * 50_000) })
                .collect(),
            ended: Some(2_000_000_000),
            status: Status::Failed,
            ..Record::default()
        };
        let full = QueueSample {
            delay_ms: 1.0,
            rate_bps: 10e6,
        };
        let queues = [vec![full; 200], vec![full; 200]];
        let records = [lives, dies];
        let all = All::new(&spec, &records, &queues);
        let groups = all.groups();
        assert_eq!((groups[0].flows, groups[0].failed), (2, 1));
        // 1 to 10 s: 9 MB of one, 0.5 MB of the other.
        assert!(close(
            groups[0].jain,
            round(9.5f64.powi(2) / (2.0 * (81.0 + 0.25)))
        ));
        assert!(close(groups[0].jain_over_time[5], 0.5));
        assert_eq!(groups[0].jain_over_time[0], None);
        // 8 Mbit/s of payload on 10 Mbit/s from the first second on.
        assert!(close(all.time_to_share(0, 0.8), 1.0));
        assert_eq!(all.time_to_share(1, 0.9), None);
    }

    #[test]
    fn a_queue_counts_while_flows_run() {
        let value = crate::flows::spec::tests::two_flows();
        let spec = Spec::parse(&value.to_string(), crate::flows::spec::Clock::Virtual).unwrap();
        let over = |ended| Record {
            ended: Some(ended),
            ..Record::default()
        };
        let sample = |delay_ms| QueueSample {
            delay_ms,
            rate_bps: 10e6,
        };
        let mut samples = vec![sample(5.0); 40];
        samples.extend(vec![sample(0.0); 160]);
        let queues = [samples.clone(), samples];
        let records = [over(2_000_000_000), over(1_000_000_000)];
        let [forward, _] = All::new(&spec, &records, &queues).queues();
        let whole = &forward.phases[0];
        assert!(close(Some(whole.p50_ms), 5.0) && close(Some(whole.to_s), 2.0));
        assert_eq!(forward.delays_ms, vec![5.0; 40]);
        let records = [over(2_000_000_000), Record::default()];
        let [forward, _] = All::new(&spec, &records, &queues).queues();
        assert!(close(Some(forward.phases[0].p50_ms), 0.0));
    }
}
