// SPDX-License-Identifier: GPL-3.0-or-later
//! The NCC: a terminal burst time plan for every superframe.

use std::collections::BTreeMap;

use super::{Carrier, Grant, Request};
use crate::rcs2::Waveform;

/// What a terminal may get, as agreed at its logon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Constant rate, kbit/s.
    pub cra_kbps: u32,
    /// Most that RBDC grants, kbit/s.
    pub rbdc_max_kbps: u32,
    /// Superframes that an RBDC request lives.
    pub duration: u16,
}

/// The terminal burst time plan of one superframe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Superframe of the gateway in which the plan was made, from 0.
    pub superframe: u64,
    /// Bursts of each terminal that is logged on, by id.
    pub grants: BTreeMap<u8, Grant>,
    /// Bursts that were not granted.
    pub free: u32,
    /// Bursts kept for requests.
    pub signalling: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The carrier with the terminal's waveform.
    carrier: Carrier,
    share: Share,
    rbdc_kbps: u32,
    /// First superframe that the request does not reach.
    rbdc_until: u64,
    vbdc_bursts: u32,
    /// Bursts of the constant rate, of the requested one and of FCA: they stay for many
    /// superframes.
    cra: u32,
    rbdc: u32,
    fca: u32,
}

impl Entry {
    /// Bursts of its rates in its waveform.
    fn count(&mut self, fca_kbps: u32) {
        self.cra = self.carrier.bursts_of_rate(self.share.cra_kbps);
        self.rbdc = self.carrier.bursts_of_rate(self.rbdc_kbps);
        self.fca = self.carrier.bursts_of_rate(fca_kbps);
    }
}

/// Divides the bursts of a carrier: CRA, then RBDC, VBDC and FCA.
#[derive(Clone, Debug)]
pub struct Planner {
    carrier: Carrier,
    fca_kbps: u32,
    superframe: u64,
    terminals: BTreeMap<u8, Entry>,
}

impl Planner {
    /// A planner without terminals; each gets up to `fca_kbps` of what is left.
    #[must_use]
    pub const fn new(carrier: Carrier, fca_kbps: u32) -> Self {
        Self {
            carrier,
            fca_kbps,
            superframe: 0,
            terminals: BTreeMap::new(),
        }
    }

    /// Logs a terminal on, or anew: its requests are forgotten.
    pub fn logon(&mut self, id: u8, share: Share) {
        let mut entry = Entry {
            carrier: self.carrier,
            share,
            rbdc_kbps: 0,
            rbdc_until: 0,
            vbdc_bursts: 0,
            cra: 0,
            rbdc: 0,
            fca: 0,
        };
        entry.count(self.fca_kbps);
        self.terminals.insert(id, entry);
    }

    /// Logs a terminal off: it has no part in further plans.
    pub fn logoff(&mut self, id: u8) {
        self.terminals.remove(&id);
    }

    /// A terminal sends another waveform of the same length from now on.
    pub fn retune(&mut self, id: u8, waveform: Waveform) {
        let entry = self.terminals.get_mut(&id);
        if let Some(entry) = entry.filter(|it| it.carrier.waveform != waveform) {
            entry.carrier.waveform = waveform;
            entry.count(self.fca_kbps);
        }
    }

    /// Takes a request, which counts from the next plan on; false if the terminal is not logged on.
    pub fn request(&mut self, id: u8, request: Request) -> bool {
        let Some(entry) = self.terminals.get_mut(&id) else {
            return false;
        };
        entry.rbdc_kbps = request.rbdc_kbps.min(entry.share.rbdc_max_kbps);
        entry.count(self.fca_kbps);
        entry.rbdc_until = self.superframe + u64::from(entry.share.duration);
        let before = if request.is_absolute {
            0
        } else {
            entry.vbdc_bursts
        };
        entry.vbdc_bursts = before.saturating_add(request.vbdc_bursts);
        true
    }

    /// Plans the next superframe, of which `signalling` bursts are kept for requests. Never more
    /// than the carrier holds: where the requests of one kind exceed what is left, the terminals
    /// get equal parts of it; the remainder of the division goes to other terminals in each
    /// superframe.
    pub fn plan(&mut self, signalling: u32) -> Plan {
        let all = self.carrier.capacity();
        let signalling = signalling.min(all);
        let mut free = all - signalling;
        let mut divide = |requested: &dyn Fn(&Entry) -> u32| {
            let requests: Vec<_> = self.terminals.values().map(requested).collect();
            let given = share_out(&requests, free, self.superframe);
            free -= given.iter().sum::<u32>();
            given
        };
        let cra = divide(&|entry| entry.cra);
        let rbdc = divide(&|entry| {
            let alive = self.superframe < entry.rbdc_until;
            if alive { entry.rbdc } else { 0 }
        });
        let vbdc = divide(&|entry| entry.vbdc_bursts);
        let fca = divide(&|entry| entry.fca);
        let mut grants = BTreeMap::new();
        for (index, (&id, entry)) in self.terminals.iter_mut().enumerate() {
            entry.vbdc_bursts -= vbdc[index];
            let grant = Grant {
                cra: cra[index],
                rbdc: rbdc[index],
                vbdc: vbdc[index],
                fca: fca[index],
            };
            grants.insert(id, grant);
        }
        let superframe = self.superframe;
        self.superframe += 1;
        Plan {
            superframe,
            grants,
            free,
            signalling,
        }
    }
}

/// Divides `free` bursts: to each terminal what it requested, or equal parts if that is too much.
/// The remainder of the division starts at terminal `turn` modulo their number.
fn share_out(requests: &[u32], mut free: u32, turn: u64) -> Vec<u32> {
    if requests.iter().map(|&it| u64::from(it)).sum::<u64>() <= u64::from(free) {
        return requests.to_vec();
    }
    let mut given = vec![0; requests.len()];
    let mut hungry: Vec<usize> = (0..requests.len()).collect();
    if let Some(first) = turn.checked_rem(requests.len() as u64) {
        hungry.rotate_left(first as usize);
    }
    loop {
        hungry.retain(|&index| given[index] < requests[index]);
        if hungry.is_empty() || free == 0 {
            return given;
        }
        let part = (free / hungry.len() as u32).max(1);
        for &index in &hungry {
            let more = part.min(requests[index] - given[index]).min(free);
            given[index] += more;
            free -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dama::Arithmetic;

    fn carrier(arithmetic: Arithmetic) -> Carrier {
        Carrier {
            symbol_rate: 16_000_000,
            superframe: 26_500_000,
            waveform: Waveform::by_id(12).unwrap(),
            arithmetic,
        }
    }

    fn rate(kbps: u32) -> Request {
        Request {
            rbdc_kbps: kbps,
            ..Request::default()
        }
    }

    const SHARE: Share = Share {
        cra_kbps: 0,
        rbdc_max_kbps: 1_000_000,
        duration: 23,
    };

    #[test]
    fn both_arithmetics_round_to_whole_bursts() {
        let standard = carrier(Arithmetic::Standard);
        assert_eq!((standard.capacity(), standard.burst_bytes()), (791, 194));
        // ceil(10 Mbit/s * 26.5 ms / 1552 bit)
        assert_eq!(standard.bursts_of_rate(10_000), 171);
        let opensand = carrier(Arithmetic::OpenSand);
        assert_eq!((opensand.capacity(), opensand.burst_bytes()), (792, 223));
        assert_eq!(
            [2000, 3000, 10_000].map(|rate| opensand.bursts_of_rate(rate)),
            [30, 45, 149]
        );
        // 8.2.0 sends 8 kbit for 4 bursts of 1784 bits.
        assert_eq!(
            [0, 4, 30, 792].map(|own| opensand.sent(own)),
            [0, 5, 31, 792]
        );
        assert_eq!(standard.sent(4), 4);
        assert_eq!(
            [0, 1, 194, 195].map(|bytes| standard.bursts_of_volume(bytes)),
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn kinds_are_served_in_their_order() {
        let mut planner = Planner::new(carrier(Arithmetic::Standard), 1_000_000);
        let cra = Share {
            cra_kbps: 10_000,
            ..SHARE
        };
        planner.logon(1, cra);
        planner.logon(2, SHARE);
        planner.request(
            2,
            Request {
                rbdc_kbps: 20_000,
                vbdc_bursts: 300,
                is_absolute: false,
            },
        );
        let plan = planner.plan(0);
        assert_eq!((plan.grants[&1].cra, plan.grants[&1].rbdc), (171, 0));
        // ceil(20 Mbit/s * 26.5 ms / 1552 bit) = 342; VBDC gets the 278 that are left, FCA nothing.
        let second = plan.grants[&2];
        assert_eq!((second.rbdc, second.vbdc, plan.free), (342, 278, 0));
        // The rest of the volume comes next, and then there is free capacity for both.
        let plan = planner.plan(0);
        assert_eq!(plan.grants[&2].vbdc, 22);
        assert_eq!((plan.grants[&1].fca, plan.grants[&2].fca), (128, 128));
    }

    #[test]
    fn rate_requests_expire_and_are_replaced() {
        let mut planner = Planner::new(carrier(Arithmetic::Standard), 0);
        planner.logon(
            1,
            Share {
                rbdc_max_kbps: 2000,
                ..SHARE
            },
        );
        assert!(!planner.request(9, rate(1)));
        assert!(planner.request(1, rate(5000)));
        let granted = |planner: &mut Planner| planner.plan(0).grants[&1].rbdc;
        // 5 Mbit/s is cut to 2 Mbit/s: ceil(53000 / 1552) = 35 bursts, for 23 superframes.
        for _ in 0..23 {
            assert_eq!(granted(&mut planner), 35);
        }
        assert_eq!(granted(&mut planner), 0);
        planner.request(1, rate(2000));
        assert_eq!(granted(&mut planner), 35);
        planner.request(1, rate(0));
        assert_eq!(granted(&mut planner), 0);
    }

    #[test]
    fn a_robust_waveform_needs_more_bursts_for_a_rate() {
        let mut planner = Planner::new(carrier(Arithmetic::Standard), 0);
        let share = Share {
            cra_kbps: 1000,
            ..SHARE
        };
        planner.logon(1, share);
        planner.logon(2, share);
        planner.retune(2, Waveform::by_id(3).unwrap());
        let plan = planner.plan(0);
        // 26500 bits of 194 and of 38 bytes a burst.
        assert_eq!((plan.grants[&1].cra, plan.grants[&2].cra), (18, 88));
    }

    #[test]
    fn requests_take_bursts_of_their_own_and_absolute_volumes_replace() {
        let mut planner = Planner::new(carrier(Arithmetic::Standard), 0);
        planner.logon(1, SHARE);
        let volume = |bursts, is_absolute| Request {
            rbdc_kbps: 0,
            vbdc_bursts: bursts,
            is_absolute,
        };
        planner.request(1, volume(500, false));
        planner.request(1, volume(600, false));
        planner.request(1, volume(900, true));
        let plan = planner.plan(2);
        assert_eq!(
            (plan.grants[&1].vbdc, plan.free, plan.signalling),
            (789, 0, 2)
        );
        let plan = planner.plan(1000);
        assert_eq!(
            (plan.grants[&1].vbdc, plan.free, plan.signalling),
            (0, 0, 791)
        );
        assert_eq!(planner.plan(0).grants[&1].vbdc, 111);
    }

    #[test]
    fn equal_parts_and_the_odd_burst_goes_round() {
        assert_eq!(share_out(&[10, 100, 100], 100, 0), [10, 45, 45]);
        assert_eq!(share_out(&[5, 5, 5], 4, 0), [2, 1, 1]);
        assert_eq!(share_out(&[5, 5, 5], 4, 1), [1, 2, 1]);
        assert_eq!(share_out(&[5, 5, 5], 4, 2), [1, 1, 2]);
        assert_eq!(share_out(&[1, 2], 100, 7), [1, 2]);
        assert!(share_out(&[], 100, 7).is_empty());
    }
}
