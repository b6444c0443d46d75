// SPDX-License-Identifier: GPL-3.0-or-later
//! Shared by the tests of the code.
#![allow(clippy::unwrap_used, dead_code)] // Helpers outside of #[test] functions; each test uses some.

use fec::{Code, Counters, Delivery, Nanos, Receiver, Sender};
use link::{Carrier, GilbertElliott, Link, LinkConfig, Loss, LossModel, LossUnit, Queue, Stage};

pub const MS: Nanos = 1_000_000;
/// 1,428 bytes on the wire at 12 Mbit/s.
pub const FRAME: Nanos = 952_000;

pub fn code(step: u16, window: u16) -> Code {
    Code::new(step, window).unwrap()
}

/// A packet that holds its number, and has a length that follows from it.
pub fn packet(number: u64, longest: usize) -> Vec<u8> {
    let length = 8 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (longest - 7);
    let mut packet = vec![number as u8; length];
    packet[..8].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number in a packet, which must be whole.
pub fn number(bytes: &[u8], longest: usize) -> u64 {
    let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, packet(number, longest));
    number
}

/// A sender, a way that loses frames, and a receiver.
pub struct Tunnel {
    pub sender: Sender,
    pub receiver: Receiver,
    pub longest: usize,
    /// Numbers of the packets that came out, in order.
    pub out: Vec<u64>,
    /// Frames sent so far.
    pub frames: u64,
}

impl Tunnel {
    pub fn new(code: Code, delivery: Delivery) -> Self {
        Self {
            sender: Sender::new(Some(code)),
            receiver: Receiver::new(2 * usize::from(code.window()), delivery),
            longest: 40,
            out: Vec::new(),
            frames: 0,
        }
    }

    /// Sends packet `number` now; `loses` is asked for each of its frames: its number on the wire,
    /// and whether it is a repair.
    pub fn push(&mut self, now: Nanos, number: u64, mut loses: impl FnMut(u64, bool) -> bool) {
        let mut arrived = Vec::new();
        let packet = packet(number, self.longest);
        self.sender.push(now, &packet, |frame| {
            if !loses(self.frames, frame[0] == 1) {
                arrived.push(frame.to_vec());
            }
            self.frames += 1;
        });
        for frame in arrived {
            self.receive(now, &frame);
        }
    }

    pub fn receive(&mut self, now: Nanos, frame: &[u8]) {
        let (out, longest) = (&mut self.out, self.longest);
        let taken = self
            .receiver
            .receive(now, frame, |packet| out.push(self::number(packet, longest)));
        taken.unwrap();
    }

    pub fn timeout(&mut self, now: Nanos) {
        let (out, longest) = (&mut self.out, self.longest);
        self.receiver
            .timeout(now, |packet| out.push(self::number(packet, longest)));
    }

    pub fn counters(&self) -> Counters {
        self.receiver.counters()
    }
}

/// A wire of 12 Mbit/s that loses frames.
pub struct Channel {
    link: Link,
    released: Vec<u8>,
}

impl Channel {
    pub fn new(model: Option<&LossModel>, seed: u64) -> Self {
        let unit = LossUnit::Packet;
        let losses = model.map(|model| Loss {
            model: model.clone(),
            unit,
        });
        let config = LinkConfig {
            losses: losses.into_iter().collect(),
            ..LinkConfig::new(Carrier::Wire, 0, Queue::drop_tail(1 << 20), seed)
        };
        Self {
            link: Link::new(config).unwrap(),
            released: Vec::new(),
        }
    }

    /// Whether a frame, the next one in time, is lost.
    pub fn loses(&mut self, frame: u64) -> bool {
        let now = frame * FRAME;
        self.link.push(now, &[0; 20]);
        std::iter::from_fn(|| self.link.pop(now, &mut self.released)).count() == 0
    }
}

/// The optical losses of Petrou et al.
pub fn optical() -> LossModel {
    LossModel::GilbertElliott(GilbertElliott {
        p: 0.01,
        r: 0.167,
        good: 0.0,
        bad: 1.0,
        step: Some(MS),
        shortest: 10 * MS,
    })
}

/// One burst of 15.5 ms each 273 ms.
pub fn dvb() -> LossModel {
    LossModel::Bursts {
        period: 273 * MS,
        duration: 15_500_000,
        first: 50 * MS,
    }
}
