// SPDX-License-Identifier: GPL-3.0-or-later
//! Redundancy that follows the losses which the receiver reports
//! (docs/decisions/0009-fec-tunnel.md).

use crate::{Code, Nanos, Report};

/// The codes, the least redundant first. All have the same window.
pub const LADDER: [Code; 5] = [
    Code::on_ladder(50),
    Code::on_ladder(20),
    Code::on_ladder(10),
    Code::on_ladder(5),
    Code::on_ladder(2),
];
/// Before the first report, and at least after a silence: S(5,100).
const BLIND: usize = 3;
/// Share of repair frames over the loss ratio, at least.
const MARGIN: u64 = 2;
/// A rung that was needed is kept for so long.
const CALM: Nanos = 10_000_000_000;
/// Without a report for so long the sender is blind.
const SILENCE: Nanos = 5_000_000_000;

/// Chooses a code of the ladder.
#[derive(Debug)]
pub(crate) struct Adaptation {
    rung: usize,
    /// When each rung was last needed.
    needed: [Option<Nanos>; LADDER.len()],
    /// Number of the last report, and when it came; `None` while blind.
    last: Option<(u16, Nanos)>,
    changes: u64,
}

impl Adaptation {
    pub fn new() -> Self {
        Self {
            rung: BLIND,
            needed: [None; LADDER.len()],
            last: None,
            changes: 0,
        }
    }

    /// The code in force.
    pub fn code(&self) -> Code {
        LADDER[self.rung]
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes a report. One that was overtaken by a later one is ignored.
    pub fn report(&mut self, now: Nanos, report: Report) {
        let is_old = |(number, _)| report.number.wrapping_sub(number).wrapping_sub(1) >= 1 << 15;
        if self.last.is_some_and(is_old) {
            return;
        }
        // If nothing was sent, or nothing came, that says nothing of the need.
        let is_news = report.received > 0;
        if self.last.is_none() || !is_news {
            self.needed[self.rung] = Some(now);
        }
        if is_news {
            self.needed[need(report, self.code())] = Some(now);
        }
        self.last = Some((report.number, now));
        let is_recent = |at: &Option<Nanos>| at.is_some_and(|at| now < at.saturating_add(CALM));
        let rung = self.needed.iter().rposition(is_recent);
        self.set(rung.unwrap_or(0));
    }

    /// When [`Self::timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.last.map(|(_, heard)| heard.saturating_add(SILENCE))
    }

    /// Notes that reports are missing.
    pub fn timeout(&mut self, now: Nanos) {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.last = None;
            self.set(self.rung.max(BLIND));
        }
    }

    fn set(&mut self, rung: usize) {
        self.changes += u64::from(rung != self.rung);
        self.rung = rung;
    }
}

/// The lowest rung that a report of packets under a code needs; the highest if none is enough.
fn need(report: Report, code: Code) -> usize {
    let burst = u64::from(report.burst);
    // A burst is as long in frames whatever the code; among them are fewer source packets if more
    // are repair frames.
    let frames = burst + burst / u64::from(code.step());
    let (lost, all) = (
        u64::from(report.lost),
        u64::from(report.received) + u64::from(report.lost),
    );
    let is_enough = |code: &Code| {
        let step = u64::from(code.step());
        let sources = (frames * step).div_ceil(step + 1);
        let repaired = (u64::from(code.window()) / step).saturating_sub(2);
        sources <= repaired && MARGIN * lost * (step + 1) <= all
    };
    let found = LADDER.iter().position(is_enough);
    found.unwrap_or(LADDER.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LONGEST_BURST;
    use proptest::prelude::*;

    const S: Nanos = 1_000_000_000;

    fn report(number: u16, lost: u32, burst: u8) -> Report {
        Report {
            number,
            received: 10_000 - lost,
            lost,
            burst,
        }
    }

    fn step(adaptation: &Adaptation) -> u16 {
        adaptation.code().step()
    }

    #[test]
    fn a_rung_is_what_the_report_needs() {
        for (lost, burst, step) in [
            (0, 0, 50),
            (100, 1, 20),
            (200, 3, 20),
            (238, 3, 20),
            (239, 3, 10),
            (100, 4, 10),
            (100, 7, 10),
            (100, 8, 5),
            (567, 15, 5),
            (100, 18, 5),
            (100, 19, 2),
            (1000, 1, 2),
            (6000, 2, 2),
            (100, LONGEST_BURST, 2),
        ] {
            let need = need(report(1, lost, burst), LADDER[BLIND]);
            assert_eq!(LADDER[need].step(), step, "{lost} lost, burst {burst}");
        }
    }

    #[test]
    fn a_burst_needs_the_same_rung_whatever_the_code_is_while_it_is_measured() {
        for frames in 0..=72_u64 {
            let needs = LADDER.map(|code| {
                let step = u64::from(code.step());
                let burst = (frames * step).div_ceil(step + 1) as u8;
                need(report(1, u32::from(burst), burst), code)
            });
            let [least, most] = [needs.iter().min(), needs.iter().max()].map(Option::unwrap);
            assert!(most - least <= 1, "{frames}: {needs:?}");
        }
    }

    #[test]
    fn up_at_once_and_down_after_ten_seconds_without_need() {
        let mut adaptation = Adaptation::new();
        assert_eq!(step(&adaptation), 5);
        adaptation.report(S, report(1, 100, 19));
        assert_eq!(step(&adaptation), 2);
        for second in 2..11 {
            adaptation.report(second * S, report(second as u16, 50, 4));
            assert_eq!(step(&adaptation), 2);
        }
        adaptation.report(11 * S, report(11, 0, 0));
        assert_eq!(step(&adaptation), 10, "the most that was needed meanwhile");
        adaptation.report(20 * S - 1, report(19, 0, 0));
        assert_eq!(step(&adaptation), 10);
        adaptation.report(20 * S, report(20, 0, 0));
        assert_eq!(step(&adaptation), 50);
        assert_eq!(adaptation.changes(), 3);
    }

    #[test]
    // promise: P72
    fn silence_leaves_at_least_the_blind_rung_and_no_traffic_keeps_the_rung() {
        let mut adaptation = Adaptation::new();
        adaptation.timeout(100 * S);
        for second in 100..120 {
            adaptation.report(second * S, report(second as u16, 0, 0));
        }
        assert_eq!(step(&adaptation), 50);
        for second in 120..150 {
            adaptation.timeout(second * S);
            let number = second as u16;
            let empty = Report {
                number,
                ..Report::default()
            };
            adaptation.report(second * S, empty);
        }
        assert_eq!(step(&adaptation), 50);
        assert_eq!(adaptation.next_timeout(), Some(154 * S));
        adaptation.timeout(154 * S - 1);
        assert_eq!(step(&adaptation), 50);
        adaptation.timeout(154 * S);
        assert_eq!((step(&adaptation), adaptation.next_timeout()), (5, None));
        // A number that would be old counts again.
        adaptation.report(155 * S, report(7, 100, 19));
        adaptation.timeout(160 * S);
        assert_eq!(step(&adaptation), 2);
    }

    #[test]
    fn reports_that_were_overtaken_are_ignored() {
        let mut adaptation = Adaptation::new();
        adaptation.report(S, report(2, 0, 0));
        for number in [
            2,
            1,
            0,
            u16::MAX,
            2_u16.wrapping_add(1 << 15).wrapping_add(1),
        ] {
            adaptation.report(S, report(number, 100, 19));
            assert_eq!(step(&adaptation), 5, "{number}");
        }
        adaptation.report(S, report(3, 100, 19));
        assert_eq!(step(&adaptation), 2);
    }

    proptest! {
        /// More losses or longer bursts never need less.
        #[test]
        fn need_rises_with_losses(received in 1..u32::MAX, lost: u32, burst in 0..=LONGEST_BURST, at in 0..5_usize) {
            let report = Report { number: 0, received, lost, burst };
            let code = LADDER[at];
            let least = need(report, code);
            prop_assert!(least < LADDER.len());
            let worse = Report { lost: lost.saturating_add(1), burst: (burst + 1).min(LONGEST_BURST), ..report };
            prop_assert!(need(worse, code) >= least);
            prop_assert_eq!(need(Report { lost: 0, burst: 0, ..report }, code), 0);
        }

        /// Whatever is reported, and when: the code is one of the ladder, and the next timeout
        /// bounded.
        #[test]
        fn test_t53_any_reports_choose_a_code_of_the_ladder(
            reports in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u32>(), any::<u8>(), 0..20 * S), 0..100),
        ) {
            let (mut adaptation, mut now) = (Adaptation::new(), 0);
            for (number, received, lost, burst, later) in reports {
                now += later;
                adaptation.timeout(now);
                adaptation.report(now, Report { number, received, lost, burst });
                prop_assert!(LADDER.contains(&adaptation.code()));
                prop_assert!(adaptation.next_timeout().is_some_and(|at| at > now && at <= now + SILENCE));
            }
        }
    }
}
