// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes on their way to a direction: orders, and the mailbox through which they reach its real-time thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use link::{Change, LinkError, Nanos};
use serde_json::{Map, Value};

use crate::course::Course;
use crate::sys::Event;

/// Orders that wait in a mailbox at most.
const CAPACITY: usize = 1 << 17;

/// A change that is due at a time.
#[derive(Debug, Clone)]
pub struct Order {
    /// When, since the start of all directions.
    pub at: Nanos,
    /// What.
    pub change: Change,
    /// How long an outage lasts; `None`: until another order ends it.
    pub lasts: Option<Nanos>,
    /// The end of an outage that was given with its length.
    pub is_end: bool,
    /// The course of the profile that goes on after this order.
    pub course: Option<Course>,
    /// Where it comes from.
    pub origin: Origin,
    /// What was asked for, as in the request.
    pub asked: Map<String, Value>,
}

impl Order {
    /// An order that holds until another one, with nothing told of it.
    #[must_use]
    pub fn new(at: Nanos, change: Change, origin: Origin) -> Self {
        Self {
            at,
            change,
            lasts: None,
            is_end: false,
            course: None,
            origin,
            asked: Map::new(),
        }
    }

    /// The order that follows this one, which was carried out at `at`: the end of an outage, or the course's next.
    #[must_use]
    pub fn next(&self, at: Nanos) -> Option<Self> {
        if let Some(course) = &self.course {
            return Some(course.after(self.at));
        }
        let up = Change::Outage(false);
        let end = Self {
            is_end: true,
            asked: Map::from_iter([("outage".to_owned(), Value::Bool(false))]),
            ..Self::new(at.saturating_add(self.lasts?), up, self.origin)
        };
        Some(match self.change {
            Change::Plans(_) => end.for_plans(),
            _ => end,
        })
    }

    /// The same for the plans that travel on the direction, of which nothing is told.
    #[must_use]
    pub fn for_plans(&self) -> Self {
        Self {
            change: Change::Plans(Box::new(self.change.clone())),
            asked: Map::new(),
            ..self.clone()
        }
    }

    /// It is told of in the metrics.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        !matches!(self.change, Change::Plans(_) | Change::Plan { .. })
    }
}

/// Where an order comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The control socket.
    Control,
    /// The time line of the configuration.
    Timeline,
    /// A file or a periodic attenuation of the profile.
    Profile,
}

impl Origin {
    /// Its word in the metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Timeline => "timeline",
            Self::Profile => "profile",
        }
    }
}

/// An order that was carried out, or that the link refused.
#[derive(Debug)]
pub struct Applied {
    /// When, since the start of all directions.
    pub at: Nanos,
    /// What.
    pub order: Order,
    /// Why the link stayed as it was.
    pub error: Option<LinkError>,
}

/// Orders for one direction. Posting wakes the thread that takes them; taking never waits.
#[derive(Debug)]
pub struct Mailbox {
    orders: Mutex<VecDeque<Order>>,
    /// Set after every posting.
    pub posted: Event,
}

impl Mailbox {
    /// An empty mailbox.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            orders: Mutex::default(),
            posted: Event::new()?,
        })
    }

    /// Posts all orders, or none where there is no room.
    #[must_use]
    pub fn post(&self, new: impl ExactSizeIterator<Item = Order>) -> bool {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = orders.len() + new.len() <= CAPACITY;
        if has_room {
            orders.extend(new);
        }
        drop(orders);
        self.posted.set();
        has_room
    }

    /// Takes the oldest order. Where the poster holds the mailbox, there is none yet: its signal comes after.
    pub fn take(&self) -> Option<Order> {
        self.orders.try_lock().ok()?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(at: Nanos) -> Order {
        Order::new(at, Change::Delay(at), Origin::Control)
    }

    #[test]
    fn orders_come_out_as_they_went_in() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.take().is_none());
        assert!(mailbox.post([order(2), order(1)].into_iter()));
        let taken: Vec<_> = std::iter::from_fn(|| mailbox.take())
            .map(|it| it.at)
            .collect();
        assert_eq!(taken, [2, 1]);
    }

    #[test]
    fn full_mailbox_takes_nothing() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.post(vec![order(1); CAPACITY].into_iter()));
        assert!(!mailbox.post([order(2)].into_iter()));
        assert!(mailbox.take().is_some());
        assert!(mailbox.post([order(2)].into_iter()));
    }

    #[test]
    fn taking_does_not_wait_for_the_poster() {
        let mailbox = Mailbox::new().unwrap();
        let held = mailbox.orders.lock().unwrap();
        assert!(mailbox.take().is_none());
        drop(held);
    }
}
