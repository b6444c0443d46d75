// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminal's side: from the levels of its FIFOs to capacity requests.

use std::collections::VecDeque;

use super::{Access, Arithmetic, Carrier, Grant, Request, Share};
use crate::rcs2::Waveform;

/// What the terminal may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Constant rate, kbit/s.
    pub cra_kbps: u32,
    /// Most to ask by rate, kbit/s; `None`: no RBDC.
    pub rbdc_max_kbps: Option<u32>,
    /// Most volume that may be asked for and not yet granted, kbit; `None`: no VBDC.
    pub vbdc_max_kbit: Option<u32>,
    /// Superframes that an RBDC request lives.
    pub duration: u16,
}

impl Agreement {
    /// What the planner has to know of it.
    #[must_use]
    pub fn share(&self) -> Share {
        Share {
            cra_kbps: self.cra_kbps,
            rbdc_max_kbps: self.rbdc_max_kbps.unwrap_or(0),
            duration: self.duration,
        }
    }
}

/// When the terminal asks, and how long the answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Time of the first request, ns.
    pub first: u64,
    /// Time between two requests, ns, above 0.
    pub synchro: u64,
    /// Propagation to the gateway and back, ns.
    pub round_trip: u64,
}

/// Filling of one FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its kind of capacity.
    pub access: Access,
    /// Bytes in it.
    pub bytes: u64,
}

/// Serves FIFOs in strict priority, the first one first; returns the unused bytes of `budget`.
pub fn serve(levels: &mut [Level], mut budget: u64) -> u64 {
    for level in levels {
        let served = level.bytes.min(budget);
        level.bytes -= served;
        budget -= served;
    }
    budget
}

/// The requests of one terminal.
///
/// Every `synchro` it works out what will still wait when its request takes effect, one loop from
/// now (propagation both ways and a superframe each for plan and terminal): the FIFOs less what the
/// constant rate and the requests on their way carry until then. RBDC asks for the rate that
/// empties this while the request lasts; VBDC for the volume not yet asked for. So nothing is asked
/// for twice, and a steady load gets a steady rate. Where a loop passes without a burst of the
/// volume asked for, request or plan was lost: the next request states the whole volume (AVBDC).
///
/// `OpenSAND` 8.2 asks each time for the whole volume that waits, and counts neither the constant
/// rate nor earlier requests.
#[derive(Clone, Debug)]
pub struct Terminal {
    carrier: Carrier,
    agreement: Agreement,
    timers: Timers,
    next_request: u64,
    /// Sending times and rates of the requests that may still be served.
    rates: VecDeque<(u64, u32)>,
    /// Bursts asked for by volume and not yet granted.
    outstanding: u32,
    /// When they were asked for, or the last of them was granted.
    progress: u64,
    assigned: Grant,
}

impl Terminal {
    /// A terminal that has just logged on.
    #[must_use]
    pub fn new(carrier: Carrier, agreement: Agreement, timers: Timers) -> Self {
        Self {
            carrier,
            agreement,
            timers,
            next_request: timers.first,
            rates: VecDeque::new(),
            outstanding: 0,
            progress: 0,
            assigned: Grant::default(),
        }
    }

    /// Sends another waveform of the same length from now on.
    pub fn retune(&mut self, waveform: Waveform) {
        self.carrier.waveform = waveform;
    }

    /// The way to the gateway and back takes another time from now on, ns.
    pub fn set_round_trip(&mut self, round_trip: u64) {
        self.timers.round_trip = round_trip;
    }

    /// When the next request is due, ns.
    #[must_use]
    pub const fn next_event(&self) -> u64 {
        self.next_request
    }

    /// The request that is due at `now`, if one is; `levels` are the FIFOs, highest priority first.
    pub fn request(&mut self, now: u64, levels: &[Level]) -> Option<Request> {
        if now < self.next_request {
            return None;
        }
        let missed = (now - self.next_request) / self.timers.synchro;
        self.next_request += (missed + 1) * self.timers.synchro;
        let mut waiting = levels.to_vec();
        serve(&mut waiting, self.carried(now));
        let sum = |levels: &[Level], access| {
            let of_kind = levels.iter().filter(|level| level.access == access);
            of_kind.map(|level| level.bytes).sum::<u64>()
        };
        let asks_for_all = self.carrier.arithmetic == Arithmetic::OpenSand;
        let is_lost = self.outstanding > 0 && now > self.progress + self.lag();
        if is_lost || asks_for_all || self.outstanding == 0 {
            (self.outstanding, self.progress) = (0, now);
        }
        let for_volume = if asks_for_all { levels } else { &waiting };
        let request = Request {
            rbdc_kbps: self.rate(sum(&waiting, Access::Rbdc)),
            vbdc_bursts: self.volume(sum(for_volume, Access::Vbdc)),
            is_absolute: is_lost && !asks_for_all,
        };
        self.rates.push_back((now, request.rbdc_kbps));
        self.outstanding += request.vbdc_bursts;
        Some(request)
    }

    /// Takes the grant of a plan that arrives at `now`; it is used from the next superframe on. Of
    /// two the newer counts.
    pub fn assign(&mut self, now: u64, grant: Grant) {
        if grant.vbdc > 0 {
            self.progress = now;
        }
        self.outstanding = self.outstanding.saturating_sub(grant.vbdc);
        self.assigned = grant;
    }

    /// A superframe begins: the bursts that may be sent in it. Without a plan of its own there are
    /// none.
    pub fn superframe(&mut self) -> Grant {
        std::mem::take(&mut self.assigned)
    }

    /// Time from a request to its effect: both ways, and up to a superframe each at gateway and
    /// terminal.
    const fn lag(&self) -> u64 {
        self.timers.round_trip + 2 * self.carrier.superframe
    }

    const fn life(&self) -> u64 {
        self.carrier.superframe * self.agreement.duration as u64
    }

    /// Time in which a request is served: until it expires or the next one takes its place.
    fn hold(&self) -> u64 {
        self.life().min(self.timers.synchro)
    }

    /// Bytes that leave without this request: by the constant rate while it lasts, by earlier ones
    /// until it takes effect.
    fn carried(&mut self, now: u64) -> u64 {
        let (lag, life) = (self.lag(), self.life());
        self.rates
            .retain(|&(sent, _)| sent.saturating_add(lag).saturating_add(life) > now);
        let constant = u128::from(self.agreement.cra_kbps) * u128::from(lag + self.hold());
        let mut replaced = now;
        let mut earlier = 0;
        for &(sent, kbps) in self.rates.iter().rev() {
            let (start, end) = (sent + lag, (sent + lag + life).min(replaced + lag));
            let in_effect = end.min(now + lag).saturating_sub(start.max(now));
            earlier += u128::from(kbps) * u128::from(in_effect);
            replaced = sent;
        }
        // kbit/s * ns = 1e-6 bit.
        u64::try_from((constant + earlier) / 8_000_000).unwrap_or(u64::MAX)
    }

    /// kbit/s that empty `bytes` while the request lasts.
    fn rate(&self, bytes: u64) -> u32 {
        let most = self.agreement.rbdc_max_kbps.unwrap_or(0);
        let kbps = (u128::from(bytes) * 8_000_000).div_ceil(u128::from(self.hold().max(1)));
        kbps.min(u128::from(most)) as u32
    }

    /// Bursts to ask for on top of those on their way.
    fn volume(&self, bytes: u64) -> u32 {
        let most = u64::from(self.agreement.vbdc_max_kbit.unwrap_or(0)) * 1000 / 8;
        let needed = self.carrier.bursts_of_volume(bytes.min(most));
        needed.saturating_sub(self.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn terminal(agreement: Agreement) -> Terminal {
        with(Arithmetic::Standard, agreement)
    }

    fn with(arithmetic: Arithmetic, agreement: Agreement) -> Terminal {
        let carrier = Carrier {
            symbol_rate: 16_000_000,
            superframe: 26_500_000,
            waveform: Waveform::by_id(12).unwrap(),
            arithmetic,
        };
        let timers = Timers {
            first: 0,
            synchro: 1000 * MS,
            round_trip: 500 * MS,
        };
        Terminal::new(carrier, agreement, timers)
    }

    const RBDC: Agreement = Agreement {
        cra_kbps: 0,
        rbdc_max_kbps: Some(5000),
        vbdc_max_kbit: None,
        duration: 23,
    };

    fn level(access: Access, bytes: u64) -> Level {
        Level { access, bytes }
    }

    #[test]
    fn rate_empties_the_fifo_while_the_request_lives() {
        let mut terminal = terminal(RBDC);
        // 23 superframes are 609.5 ms: ceil(8 * 60950 / 609.5).
        let levels = [level(Access::Rbdc, 60_950)];
        let request = terminal.request(0, &levels).unwrap();
        assert_eq!(
            request,
            Request {
                rbdc_kbps: 800,
                ..Request::default()
            }
        );
        assert_eq!(
            (terminal.request(999 * MS, &levels), terminal.next_event()),
            (None, 1000 * MS)
        );
        // It took effect after 553 ms; 162.5 ms of it are still to come and carry 16250 bytes.
        let request = terminal
            .request(1000 * MS, &[level(Access::Rbdc, 16_250)])
            .unwrap();
        assert_eq!(request.rbdc_kbps, 0);
        let most = terminal
            .request(5000 * MS, &[level(Access::Rbdc, 1 << 40)])
            .unwrap();
        assert_eq!(most.rbdc_kbps, 5000);
    }

    #[test]
    fn a_constant_rate_needs_no_request() {
        let mut terminal = terminal(Agreement {
            cra_kbps: 800,
            ..RBDC
        });
        // 800 kbit/s carry 116250 bytes in loop and life.
        let levels = [level(Access::Cra, 100_000), level(Access::Rbdc, 16_250)];
        assert_eq!(terminal.request(0, &levels), Some(Request::default()));
        let levels = [level(Access::Cra, 1 << 30), level(Access::Rbdc, 100)];
        assert_eq!(terminal.request(1000 * MS, &levels).unwrap().rbdc_kbps, 2);
    }

    #[test]
    fn volume_is_asked_for_once_and_up_to_its_bound() {
        let mut terminal = terminal(Agreement {
            rbdc_max_kbps: None,
            vbdc_max_kbit: Some(16),
            ..RBDC
        });
        let ask = |terminal: &mut Terminal, second: u64, bytes: u64| {
            let levels = [level(Access::Vbdc, bytes), level(Access::Rbdc, 5000)];
            let request = terminal.request(second * 1000 * MS, &levels).unwrap();
            assert_eq!((request.rbdc_kbps, request.is_absolute), (0, false));
            request.vbdc_bursts
        };
        // A burst each half second shows that requests are served.
        let grant = |terminal: &mut Terminal, half: u64, vbdc| {
            let grant = Grant {
                vbdc,
                ..Grant::default()
            };
            terminal.assign(half * 500 * MS, grant);
        };
        assert_eq!(ask(&mut terminal, 0, 194 * 3), 3);
        grant(&mut terminal, 1, 1);
        assert_eq!(ask(&mut terminal, 1, 194 * 4), 2);
        grant(&mut terminal, 3, 1);
        // 16 kbit are 2000 bytes or 11 bursts.
        assert_eq!(ask(&mut terminal, 2, 1 << 40), 8);
        grant(&mut terminal, 5, 4);
        assert_eq!(ask(&mut terminal, 3, 1 << 40), 4);
    }

    #[test]
    fn opensand_asks_for_all_that_waits_each_time() {
        let agreement = Agreement {
            cra_kbps: 256,
            rbdc_max_kbps: Some(4000),
            vbdc_max_kbit: Some(10_000),
            duration: 60,
        };
        let mut terminal = with(Arithmetic::OpenSand, agreement);
        // As seen: 8.2.0 asked for 100 kbit and 1008 ms later for 189, with these in its FIFO.
        for (second, bytes) in [(0, 12_500), (1, 23_625)] {
            let levels = [level(Access::Cra, 100), level(Access::Vbdc, bytes)];
            let request = terminal.request(second * 1000 * MS, &levels).unwrap();
            assert_eq!(u64::from(request.vbdc_bursts), bytes.div_ceil(223));
            assert_eq!((request.rbdc_kbps, request.is_absolute), (0, false));
        }
    }

    #[test]
    fn volume_that_nobody_granted_is_asked_for_anew_and_whole() {
        let mut terminal = terminal(Agreement {
            rbdc_max_kbps: None,
            vbdc_max_kbit: Some(1000),
            ..RBDC
        });
        let levels = [level(Access::Vbdc, 194 * 7)];
        let request = |terminal: &mut Terminal, second: u64| {
            let request = terminal.request(second * 1000 * MS, &levels).unwrap();
            (request.vbdc_bursts, request.is_absolute)
        };
        assert_eq!(request(&mut terminal, 0), (7, false));
        // The loop takes 553 ms: the request of time 0 was lost.
        assert_eq!(request(&mut terminal, 1), (7, true));
        let vbdc = Grant {
            vbdc: 3,
            ..Grant::default()
        };
        terminal.assign(1900 * MS, vbdc);
        assert_eq!(request(&mut terminal, 2), (3, false));
        // All of it was granted: there is nothing to miss.
        terminal.assign(2500 * MS, Grant { vbdc: 7, ..vbdc });
        assert_eq!(request(&mut terminal, 5), (7, false));
    }

    #[test]
    fn late_calls_do_not_pile_up_and_a_plan_is_used_once() {
        let mut terminal = terminal(RBDC);
        assert!(terminal.request(2500 * MS, &[]).is_some());
        assert_eq!(terminal.next_event(), 3000 * MS);
        let grant = Grant {
            cra: 1,
            rbdc: 2,
            vbdc: 3,
            fca: 4,
        };
        terminal.assign(0, grant);
        assert_eq!((terminal.superframe(), grant.bursts()), (grant, 10));
        assert_eq!(terminal.superframe(), Grant::default());
    }

    #[test]
    fn priority_is_strict() {
        let mut levels = [
            level(Access::Vbdc, 10),
            level(Access::Cra, 10),
            level(Access::Rbdc, 10),
        ];
        assert_eq!(serve(&mut levels, 15), 0);
        assert_eq!(levels.map(|level| level.bytes), [0, 5, 10]);
        assert_eq!(serve(&mut levels, 100), 85);
    }
}
