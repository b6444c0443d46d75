// SPDX-License-Identifier: GPL-3.0-or-later
//! Lines of output (`schemas/satfec.schema.json`). A thread writes them: the tunnel never waits for
//! a reader or disk.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use crate::options::Transport;
use crate::ports::Passed;
use crate::session::{Dropped, Session};

/// Lines that wait for the writer at most.
const WAITING: usize = 1024;

/// A line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The tunnel device is up, and the socket is bound.
    Ready {
        /// satfec's version.
        version: &'static str,
        /// Name of the tunnel device.
        device: String,
        /// Code that protects what this end sends.
        code: String,
        /// Longest packet, bytes.
        mtu: u16,
        /// What carries frames to the other end.
        transport: Transport,
    },
    /// Both ends have heard each other.
    Connected {
        /// Packets that one repair frame of the peer covers; 0: the peer sends without code.
        peer_window: u16,
    },
    /// An adaptive end has changed its code.
    Code {
        /// The new code.
        code: String,
        /// Why the code changed.
        reason: Reason,
        /// Loss ratio that the peer reported, 0 to 1.
        loss_ratio: f64,
        /// Length of loss bursts that the peer reported, packets.
        burst_packets: u8,
    },
    /// The path carries only shorter datagrams than the tunnel needs, so senders were asked for
    /// shorter packets.
    PathMtu {
        /// Longest packet that the path now carries, bytes.
        packet_bytes: u16,
    },
    /// Counters, printed once per interval.
    Counters(Counters),
    /// The end of the tunnel.
    Summary {
        /// Why the tunnel ended.
        reason: String,
        /// All counters.
        #[serde(flatten)]
        counters: Counters,
        /// User and system time, s.
        cpu_s: f64,
        /// Lines that could not be written.
        lines_dropped: u64,
    },
}

/// Reason for a change of the code.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// What the peer reported.
    Report,
    /// Reports of the peer are missing.
    Silence,
}

impl Line {
    /// Makes the line of a code change. Without a report the change is due to missing reports.
    #[must_use]
    pub fn of_code(code: fec::Code, report: Option<fec::Report>) -> Self {
        Self::Code {
            code: code.to_string(),
            reason: report.map_or(Reason::Silence, |_| Reason::Report),
            loss_ratio: report.map_or(0.0, fec::Report::loss_ratio),
            burst_packets: report.map_or(0, |it| it.burst),
        }
    }
}

/// Counters since the start, or since the last restart of the peer.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Counters {
    sources_sent: u64,
    repairs_sent: u64,
    /// repair packets of these that were sent at the end of a stream
    tail_repairs_sent: u64,
    source_bytes_sent: u64,
    repair_bytes_sent: u64,
    sources_received: u64,
    repairs_received: u64,
    /// received repair packets that carried new information
    repairs_used: u64,
    /// packets
    recovered: u64,
    /// Packets that left the decoding window without being received or recovered.
    lost: u64,
    /// Packets in the decoding window that are neither received nor recovered.
    missing: u64,
    /// packets that arrived a second time, or after their recovery
    duplicates: u64,
    /// packets that arrived after they had left the window
    late: u64,
    /// packets recovered after their place in the order had passed
    out_of_time: u64,
    /// frames that cannot be parsed, and recovered symbols without a packet
    malformed: u64,
    /// from the first sign that a packet is missing to its recovery
    recovery_delay_mean_ms: f64,
    recovery_delay_max_ms: f64,
    /// Code in use; empty without a code.
    code: String,
    /// changes of the code by adaptive redundancy
    code_changes: u64,
    /// reports of losses that were sent to the peer
    reports_sent: u64,
    reports_received: u64,
    /// packets dropped because the ends had not heard each other
    dropped_unconnected: u64,
    /// datagrams of data before a greeting, and reports that were not requested
    dropped_unexpected: u64,
    /// datagrams that do not belong to this tunnel
    dropped_foreign: u64,
    /// packets longer than the path carries; their senders get an ICMP error
    dropped_too_long: u64,
    /// Frames dropped because the QUIC connection had no room or had ended; 0 with UDP.
    dropped_outer: u64,
    /// QUIC connections so far.
    outer_connections: u64,
    /// Datagrams and packets that the host refused to send.
    send_errors: u64,
}

impl Counters {
    /// The counts of a session and of its I/O.
    #[must_use]
    pub fn of(session: &Session, passed: Passed) -> Self {
        let sent = session.sender().sent();
        let seen = session.receiver().map(fec::Receiver::counters);
        let seen = seen.unwrap_or_default();
        let Dropped {
            unconnected,
            unexpected,
            foreign,
        } = session.dropped();
        let ms = |nanos: u64| nanos as f64 / 1e6;
        Self {
            sources_sent: sent.sources,
            repairs_sent: sent.repairs,
            tail_repairs_sent: sent.tail_repairs,
            source_bytes_sent: sent.source_bytes,
            repair_bytes_sent: sent.repair_bytes,
            sources_received: seen.sources,
            repairs_received: seen.repairs,
            repairs_used: seen.repairs_used,
            recovered: seen.recovered,
            lost: seen.lost,
            missing: session.receiver().map_or(0, fec::Receiver::missing),
            duplicates: seen.duplicates,
            late: seen.late,
            out_of_time: seen.out_of_time,
            malformed: seen.malformed,
            recovery_delay_mean_ms: ms(seen.recovery_delay_sum) / seen.recovered.max(1) as f64,
            recovery_delay_max_ms: ms(seen.recovery_delay_max),
            code: (session.sender().code()).map_or_else(String::new, |code| code.to_string()),
            code_changes: session.sender().code_changes(),
            reports_sent: seen.reports,
            reports_received: session.reports(),
            dropped_unconnected: unconnected,
            dropped_unexpected: unexpected,
            dropped_foreign: foreign,
            dropped_too_long: passed.too_long,
            dropped_outer: passed.outer.dropped,
            outer_connections: passed.outer.connections,
            send_errors: passed.send_errors,
        }
    }
}

/// Queues lines for the writer.
#[derive(Debug)]
pub struct Report {
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
    writer: JoinHandle<()>,
}

#[derive(Serialize, JsonSchema)]
struct Stamped<'a> {
    unix_s: f64,
    #[serde(flatten)]
    line: &'a Line,
}

impl Report {
    /// Writes lines to `out` from now on. The first failure is logged to stderr; lines after it are
    /// dropped and counted.
    #[must_use]
    pub fn new(mut out: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        let writer = thread::spawn(move || {
            let mut is_broken = false;
            for line in waiting {
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if let Err(error) = written {
                    count.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut is_broken, true) {
                        // stderr may be closed.
                        let _ = writeln!(io::stderr(), "error: output: {error}: lines are missing");
                    }
                }
            }
        });
        Self {
            lines,
            dropped,
            writer,
        }
    }

    /// Lines that could not be written so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Queues a line.
    pub fn line(&self, line: &Line) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_s = since.map_or(0.0, |since| since.as_secs_f64());
        let text = serde_json::to_string(&Stamped { unix_s, line });
        let queued = text.is_ok_and(|text| self.lines.try_send(text + "\n").is_ok());
        if !queued {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written.
    pub fn finish(self) {
        drop(self.lines);
        // A panic of the writer has been printed.
        let _ = self.writer.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "One line of what satfec prints on stdout";
        schema::compare_with_file(&schema::written::<Stamped<'_>>("satfec", title));
    }

    use std::fs::File;

    #[test]
    fn a_full_disk_drops_lines_and_nothing_else() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let report = Report::new(full);
        for _ in 0..10 {
            report.line(&Line::Connected { peer_window: 0 });
        }
        let count = Arc::clone(&report.dropped);
        report.finish();
        assert_eq!(count.load(Ordering::Relaxed), 10);
    }
}
