// SPDX-License-Identifier: GPL-3.0-or-later
//! The clock and the devices behind the loop of a real-time thread.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emulator::bundle::{Bundle, Takes};
use emulator::drive::{Gone, Heard, Io};
use emulator::scheduled::Scheduled;
use link::Nanos;

use crate::entity::Air;
use crate::mailbox::Mailbox;
use crate::sys::{self, Event, Poll, Timer};
use crate::terminals::Terminals;
use crate::tun::Tun;

/// So close to a deadline, input waits for it, for one wake serves both. Where arrivals are not
/// noted, packets count as come when they are read: at most this much late.
const NAP: Nanos = 150_000;
/// The same where arrivals are noted, and the delay of the link allows for it: what waits in the
/// device's queue stays short.
const LONG_NAP: Nanos = 1_000_000;
/// This close to a deadline, waiting costs more than polling the clock.
const SPIN: Nanos = 10_000;
/// Deadlines in a row after which the stop event is checked, however close the next one is.
const UNHEEDED: u32 = 256;

/// The timer advance: the wake-up latency that most of the last wake-ups had at least. In a virtual
/// machine it is tens of microseconds, and hardly ever less. A thread that wakes too early polls
/// the clock.
#[derive(Debug, Default)]
struct TimerAdvance {
    /// Latencies of the last wake-ups, ns; the oldest is overwritten.
    late: [Nanos; Self::WAKES],
    next: usize,
    ns: Nanos,
}

impl TimerAdvance {
    /// Few, so that it adapts soon when sparse packets follow dense ones.
    const WAKES: usize = 16;
    /// Of 16 wake-ups, the number that come too early and spin.
    const EARLY: usize = 4;
    /// Bound on the spinning of a wake-up, ns.
    const MOST: Nanos = 100_000;

    /// Adds a wake-up at `woke` by a timer set for `set`.
    fn learn(&mut self, set: Nanos, woke: Nanos) {
        self.late[self.next] = woke.saturating_sub(set);
        self.next = (self.next + 1) % Self::WAKES;
        let mut late = self.late;
        let (_, ns, _) = late.select_nth_unstable(Self::EARLY);
        self.ns = (*ns).min(Self::MOST);
    }
}

/// Where packets or datagrams come from or go.
#[derive(Debug)]
pub enum End {
    /// A device of this host.
    Tun(Tun),
    /// A device for each of several terminals, or gateways.
    Terminals(Terminals),
    /// Another entity.
    Air(Air),
}

impl End {
    fn descriptor(&self) -> &dyn AsRawFd {
        match self {
            Self::Tun(tun) => tun,
            Self::Terminals(terminals) => terminals,
            Self::Air(air) => air.socket(),
        }
    }

    /// A second handle to the same device or socket.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tun(tun) => Self::Tun(tun.try_clone()?),
            Self::Terminals(terminals) => Self::Terminals(terminals.try_clone()?),
            Self::Air(air) => Self::Air(air.try_clone()?),
        })
    }

    /// Whether arrival times are known.
    fn has_stamps(&self) -> bool {
        !matches!(self, Self::Air(_)) && self.tuns().all(|tun| tun.stamps().is_ok())
    }

    /// Its devices.
    fn tuns(&self) -> impl Iterator<Item = &Tun> {
        let (one, several) = match self {
            Self::Tun(tun) => (Some(tun), None),
            Self::Terminals(terminals) => (None, Some(terminals.iter())),
            Self::Air(_) => (None, None),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Whether there is more to read that no descriptor shows.
    fn holds_more(&self) -> bool {
        self.tuns().any(Tun::holds_more)
    }

    /// Whether a read could find something, as far as that is known without asking the kernel.
    fn may_have_input(&self) -> bool {
        match self {
            Self::Tun(tun) => tun.may_have_input(),
            Self::Terminals(terminals) => terminals.iter().any(Tun::may_have_input),
            Self::Air(_) => true,
        }
    }
}

/// Clock and devices of the directions of one thread.
pub struct Devices {
    /// Where the packets of each direction come from, and where they go.
    ends: Vec<(End, End)>,
    /// Where the changes of each direction come from.
    mailboxes: Vec<Arc<Mailbox>>,
    /// The inputs of all directions, then the event that ends them, then the mailboxes, then the
    /// timer.
    poll: Poll,
    timer: Timer,
    /// The deadline that the timer was set for.
    armed: Nanos,
    /// Its expiry: earlier than the deadline by the timer advance.
    goes_off: Nanos,
    timer_advance: TimerAdvance,
    /// Deadlines since the last look at the descriptors; 0: this wake looked at them.
    unheeded: u32,
    /// Arrivals are noted at all inputs.
    has_stamps: bool,
    /// Time 0 of all directions; `Instant` is `CLOCK_MONOTONIC`.
    start: Instant,
    /// The same, ns.
    origin: u64,
}

impl Devices {
    /// Serves directions (input, output), each with its mailbox, until `stop` is set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        ends: Vec<(End, End)>,
        mailboxes: Vec<Arc<Mailbox>>,
        stop: &Event,
        start: Instant,
    ) -> io::Result<Self> {
        let timer = Timer::new()?;
        let inputs = ends.iter().map(|(from, _)| from.descriptor());
        let posted = mailboxes.iter().map(|it| &it.posted as &dyn AsRawFd);
        let events = [stop as &dyn AsRawFd].into_iter().chain(posted);
        let poll = Poll::new(inputs.chain(events).chain([&timer as &dyn AsRawFd]))?;
        Ok(Self {
            has_stamps: ends.iter().all(|(from, _)| from.has_stamps()),
            ends,
            mailboxes,
            poll,
            timer,
            armed: 0,
            goes_off: 0,
            timer_advance: TimerAdvance::default(),
            unheeded: 0,
            start,
            origin: sys::monotonic_ns() - start.elapsed().as_nanos() as u64,
        })
    }

    /// Why arrival times of a device are not known.
    #[must_use]
    pub fn refused_stamps(&self) -> Option<&io::Error> {
        let mut inputs = self.ends.iter().flat_map(|(from, _)| from.tuns());
        inputs.find_map(|tun| tun.stamps().err())
    }

    /// Waits for the deadline alone where that is near.
    fn nap(&mut self, deadline: Nanos, patience: Nanos) -> io::Result<bool> {
        let left = deadline.saturating_sub(self.now());
        let longest = if self.has_stamps {
            patience.min(LONG_NAP)
        } else {
            NAP
        };
        if left > longest || self.unheeded == UNHEEDED {
            self.unheeded = 0;
            return Ok(false);
        }
        self.unheeded += 1;
        if left > SPIN + self.timer_advance.ns {
            // One system call; the timer takes two, and is for waiting together with input.
            let until = deadline - self.timer_advance.ns;
            sys::sleep_until(Duration::from_nanos(self.origin + until))?;
            self.timer_advance.learn(until, self.now());
        }
        self.spin(deadline);
        Ok(true)
    }

    fn spin(&self, deadline: Nanos) {
        while self.now() < deadline {
            std::hint::spin_loop();
        }
    }

    /// Sets the timer, which costs more than a system call, unless it is set.
    fn arm(&mut self, deadline: Nanos) -> io::Result<()> {
        if self.armed == deadline {
            return Ok(());
        }
        self.armed = deadline;
        let now = self.now();
        self.goes_off = now.max(deadline.saturating_sub(self.timer_advance.ns));
        self.timer.set(Duration::from_nanos(self.goes_off - now))
    }

    /// Waits for the deadline or input; `false` at the stop event.
    fn watch(&mut self, deadline: Nanos) -> io::Result<bool> {
        if deadline <= self.now() || self.ends.iter().any(|(from, _)| from.holds_more()) {
            self.poll.wait(Duration::ZERO)?;
        } else {
            self.arm(deadline)?;
            self.poll.wait_for_input()?;
            if self
                .poll
                .is_readable(self.ends.len() + 1 + self.mailboxes.len())
            {
                self.timer_advance.learn(self.goes_off, self.now());
                self.spin(deadline);
            }
        }
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            if self.poll.is_readable(self.ends.len() + 1 + index) {
                mailbox.posted.reset();
            }
        }
        Ok(!self.poll.is_readable(self.ends.len()))
    }
}

impl Io for Devices {
    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    fn wait(&mut self, deadline: Nanos, patience: Nanos) -> Result<bool, Gone> {
        let failed = |error| Gone(0, error);
        if self.nap(deadline, patience).map_err(failed)? {
            return Ok(true);
        }
        let goes_on = self.watch(deadline).map_err(failed)?;
        match self.poll.broken() {
            Some(index) => Err(Gone(index, io::Error::from_raw_os_error(libc::EBADFD))),
            None => Ok(goes_on),
        }
    }

    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<(Nanos, usize)>> {
        let read = self.read_from(direction, buffer)?;
        Ok(read.map(|(came, length, _)| (came, length)))
    }

    fn read_from(
        &mut self,
        direction: usize,
        buffer: &mut [u8],
    ) -> io::Result<Option<(Nanos, usize, usize)>> {
        let end = &mut self.ends[direction].0;
        // Whatever the notes say, descriptors that were looked at are read: none stays readable.
        if self.unheeded > 0 && !end.may_have_input() {
            return Ok(None);
        }
        let read = match end {
            End::Tun(tun) => tun.read(buffer)?.map(|(came, length)| (came, length, 0)),
            End::Terminals(terminals) => terminals.read(buffer)?,
            End::Air(air) => air.read(buffer).map(|length| (None, length, 0)),
        };
        let now = self.now();
        Ok(read.map(|(came, length, from)| {
            let came = came.map_or(now, |came| came.saturating_sub(self.origin).min(now));
            (came, length, from)
        }))
    }

    fn takes(&self, direction: usize) -> Takes {
        match &self.ends[direction].1 {
            End::Tun(tun) => tun.takes(),
            // Of one kernel, all are alike.
            End::Terminals(terminals) => terminals
                .iter()
                .next()
                .map_or_else(Takes::default, Tun::takes),
            End::Air(_) => Takes::default(),
        }
    }

    fn write(&mut self, direction: usize, bundle: &mut Bundle) -> io::Result<bool> {
        self.write_to(direction, 0, bundle)
    }

    fn write_to(
        &mut self,
        direction: usize,
        terminal: usize,
        bundle: &mut Bundle,
    ) -> io::Result<bool> {
        let (header, packet) = bundle.finish();
        match &mut self.ends[direction].1 {
            End::Tun(tun) => tun.write(&header, packet),
            End::Terminals(terminals) => match terminals.tun(terminal) {
                Some(tun) => tun.write(&header, packet),
                None => Ok(false),
            },
            End::Air(air) => {
                air.write(packet);
                Ok(true)
            }
        }
    }

    fn send_plan(&mut self, direction: usize, datagram: &[u8]) {
        if let End::Air(air) = &self.ends[direction].0 {
            air.send_plan(datagram);
        }
    }

    fn heartbeat(&mut self, direction: usize) {
        if let End::Air(air) = &self.ends[direction].1 {
            air.heartbeat();
        }
    }

    fn heard(&self, direction: usize) -> Option<Heard> {
        match &self.ends[direction].0 {
            End::Tun(_) | End::Terminals(_) => None,
            End::Air(air) => Some(air.heard()),
        }
    }

    fn take_change(&mut self, direction: usize) -> Option<Scheduled> {
        self.mailboxes[direction].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_advance_is_below_most_wake_up_latencies() {
        let timer_advance_after = |late_us: [Nanos; 16]| {
            let mut timer_advance = TimerAdvance::default();
            for (set, late) in (1..).zip(late_us) {
                timer_advance.learn(set, set + late * 1000);
            }
            timer_advance.ns
        };
        let spread = [
            44, 31, 32, 33, 900, 35, 36, 37, 38, 39, 40, 41, 42, 43, 20, 34,
        ];
        assert_eq!(timer_advance_after(spread), 34_000);
        assert_eq!(timer_advance_after([2; 16]), 2_000);
        assert_eq!(timer_advance_after([300; 16]), TimerAdvance::MOST);
        let mut one = TimerAdvance::default();
        one.learn(5, 40_005);
        assert_eq!(one.ns, 0, "one wake-up is not enough");
    }
}
