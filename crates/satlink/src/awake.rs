// SPDX-License-Identifier: GPL-3.0-or-later
//! Keeps the host's idle cores from sleeping while packets move: waking a core costs more, and
//! takes longer, than all that a packet needs. What the kernel is asked for (Linux,
//! `pm_qos_interface.rst`) ends with the file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::metrics::Message;

/// Takes the latency, µs, that cores may need at most to wake; it holds while the file is open.
pub const DEVICE: &str = "/dev/cpu_dma_latency";
/// Time without packets after which cores may sleep again, ms.
const QUIET_MS: u64 = 1000;

/// Watches what directions report. Without the device, or where it is refused, nothing is held.
pub struct Awake {
    device: PathBuf,
    held: Option<File>,
    /// Packets in and out of each direction at its last snapshot.
    packets: [u64; 4],
    quiet_ticks: u64,
    /// Tick after which nothing holds any more.
    until: u64,
}

impl Awake {
    /// Holds nothing yet; snapshots come every `interval_ms`.
    #[must_use]
    pub fn new(device: &Path, interval_ms: u64) -> Self {
        Self {
            device: device.to_owned(),
            held: None,
            packets: [0; 4],
            quiet_ticks: QUIET_MS.div_ceil(interval_ms.max(1)),
            until: 0,
        }
    }

    /// Records a direction's traffic.
    pub fn observe(&mut self, message: &Message) {
        let Message::Snapshot(direction, snapshot) = message else {
            return;
        };
        let packets = snapshot.counters.packets_in + snapshot.counters.packets_out;
        self.moved(*direction, snapshot.tick, packets);
    }

    fn moved(&mut self, direction: usize, tick: u64, packets: u64) {
        if packets != self.packets[direction] {
            self.packets[direction] = packets;
            self.until = tick + self.quiet_ticks;
            self.hold();
        } else if tick > self.until {
            self.held = None;
        }
    }

    fn hold(&mut self) {
        if self.held.is_none() {
            let device = OpenOptions::new().write(true).open(&self.device);
            self.held = device
                .ok()
                .filter(|mut file| file.write_all(&0_i32.to_ne_bytes()).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_held_while_packets_move_and_a_second_longer() {
        let device = std::env::temp_dir().join(format!("satlink-awake-{}", std::process::id()));
        std::fs::write(&device, "").expect("a file");
        let mut awake = Awake::new(&device, 100);
        let mut at = |tick, packets| {
            awake.moved(2, tick, packets);
            awake.held.is_some()
        };
        assert!(!at(1, 0));
        assert!(at(2, 5));
        assert_eq!(std::fs::read(&device).expect("a file"), [0; 4]);
        assert!((3..=12).all(|tick| at(tick, 5)));
        assert!(!at(13, 5));
        assert!(at(14, 6));
        std::fs::remove_file(&device).expect("removed");
    }

    #[test]
    fn a_host_without_the_device_sleeps_as_it_likes() {
        let mut awake = Awake::new(Path::new("/nowhere/cpu_dma_latency"), 100);
        awake.moved(0, 1, 1);
        assert!(awake.held.is_none());
    }
}
