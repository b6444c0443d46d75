// SPDX-License-Identifier: GPL-3.0-or-later
//! What only quiche's qlog shows of a sender: bytes in flight, and the threshold of slow start.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

/// The newest values.
#[derive(Clone, Copy)]
pub struct Metrics {
    pub in_flight_bytes: u64,
    pub threshold_bytes: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            in_flight_bytes: 0,
            threshold_bytes: u64::MAX,
        }
    }
}

/// Reads a qlog (JSON-SEQ) as quiche writes it.
#[derive(Default)]
pub struct Reader {
    record: Vec<u8>,
    shared: Arc<Mutex<Metrics>>,
}

#[derive(Deserialize)]
struct Event {
    data: Data,
}

/// Only what has changed is there.
#[derive(Deserialize)]
struct Data {
    bytes_in_flight: Option<u64>,
    ssthresh: Option<u64>,
}

impl Reader {
    /// The place of the newest values.
    pub fn shared(&self) -> Arc<Mutex<Metrics>> {
        Arc::clone(&self.shared)
    }

    fn take(&mut self) {
        const NAME: &[u8] = b"metrics_updated";
        if self
            .record
            .windows(NAME.len())
            .take(80)
            .any(|part| part == NAME)
        {
            let text = self.record.strip_prefix(b"\x1e").unwrap_or(&self.record);
            if let Ok(Event { data }) = serde_json::from_slice::<Event>(text) {
                let mut newest = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                newest.in_flight_bytes = data.bytes_in_flight.unwrap_or(newest.in_flight_bytes);
                newest.threshold_bytes = data.ssthresh.unwrap_or(newest.threshold_bytes);
            }
        }
        self.record.clear();
    }
}

impl Write for Reader {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.record.extend_from_slice(part);
        if part.ends_with(b"\n") {
            self.take();
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
