// SPDX-License-Identifier: GPL-3.0-or-later
//! Output as JSON lines, schemas/satpep.schema.json. A slow or absent reader never delays traffic.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quic::LegOptions;
use schemars::JsonSchema;
use serde::Serialize;

use crate::memory::JumpState;
use crate::options::Mode;

/// Most lines that wait for a slow reader. Further lines are dropped and counted.
const QUEUE_LINES: usize = 10_000;

/// One line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// Clients may connect.
    Ready {
        /// Format of all lines of this process.
        #[schemars(extend("const" = "satlab/satpep/1"))]
        schema: &'static str,
        /// Version of satpep.
        version: &'static str,
        /// Process id.
        pid: u32,
        /// Addresses on which satpep listens.
        listen: Vec<SocketAddr>,
        /// address to which connections are relayed; null: the client's destination
        next_hop: Option<SocketAddr>,
        /// Whether satpep accepts connections to other addresses (transparent proxy).
        transparent: bool,
        /// Whether satpep connects from the client's address.
        keep_client_address: bool,
        /// Order of the handshakes.
        mode: Mode,
        /// Options of the leg to the client.
        client_side: LegOptions,
        /// Options of the leg to the next hop.
        server_side: LegOptions,
    },
    /// A session ticket arrived.
    Primed {
        /// Server name for which the ticket is valid.
        server_name: String,
        /// From dialling to the ticket, ms.
        took_ms: f64,
    },
    /// A client sent a `ClientHello`.
    Accepted {
        /// Number of the connection, from 1.
        connection: u64,
        /// Address of the client.
        client: SocketAddr,
        /// The destination of the client's packets.
        destination: SocketAddr,
        /// Address to which the connection is relayed.
        next_hop: SocketAddr,
        /// Server name indication.
        server_name: Option<String>,
        /// Protocols that the client offers.
        alpn: Vec<String>,
    },
    /// A connection was refused.
    Refused {
        /// Address of the client.
        client: SocketAddr,
        /// Why the connection was refused.
        reason: String,
    },
    /// A connection is over.
    Closed(Box<Closed>),
    /// The proxy ends.
    Summary {
        /// Why the proxy ended.
        reason: String,
        /// Connections accepted.
        connections: u64,
        /// How many of these connections never reached the next hop.
        failed: u64,
        /// Connections refused.
        refused: u64,
        /// Stream bytes from clients.
        from_client_bytes: u64,
        /// Stream bytes from servers.
        from_server_bytes: u64,
        /// User and system time, s.
        cpu_s: f64,
        /// Lines that a slow reader missed.
        lines_dropped: u64,
        /// Why the metrics file is incomplete, if it is.
        metrics_fault: Option<String>,
    },
}

/// The end of a connection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Closed {
    /// Number of the connection.
    pub connection: u64,
    /// `closed`: by an application, or because the proxy ended; `lost`: on the way; `failed`: before
    /// it reached the next hop.
    pub outcome: Outcome,
    /// Which side ended, and why.
    pub reason: String,
    /// Protocol in use.
    pub alpn: Option<String>,
    /// Whether early data was sent to the next hop.
    pub zero_rtt: bool,
    /// Time since the `ClientHello`, s.
    pub duration_s: f64,
    /// Received from the client.
    pub from_client: Counts,
    /// Received from the server.
    pub from_server: Counts,
    /// The leg to the client, once accepted.
    pub client_side: Option<LegState>,
    /// The leg to the next hop, once connected.
    pub server_side: Option<LegState>,
    /// Why a qlog file is incomplete, if one is.
    pub qlog_fault: Option<String>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By an application's `CONNECTION_CLOSE`, or because the proxy ends.
    Closed,
    /// By a timeout or an error of the transport.
    Lost,
    /// Before both legs were connected.
    Failed,
}

/// What was relayed in one direction.
#[derive(Debug, Default)]
pub struct Relayed {
    /// Stream bytes.
    pub bytes: AtomicU64,
    /// Streams that this side opened, of both kinds.
    pub streams: AtomicU64,
    /// Datagrams passed on.
    pub datagrams: AtomicU64,
    /// Datagrams that did not fit the other connection, or found no room.
    pub datagrams_dropped: AtomicU64,
}

/// Data relayed so far.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Counts {
    /// Stream bytes.
    pub bytes: u64,
    streams: u64,
    datagrams: u64,
    datagrams_dropped: u64,
}

impl From<&Relayed> for Counts {
    fn from(relayed: &Relayed) -> Self {
        Self {
            bytes: relayed.bytes.load(Relaxed),
            streams: relayed.streams.load(Relaxed),
            datagrams: relayed.datagrams.load(Relaxed),
            datagrams_dropped: relayed.datagrams_dropped.load(Relaxed),
        }
    }
}

/// The library's counters of a leg.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub rtt_ms: f64,
    pub cwnd_bytes: u64,
    pub mtu_bytes: u16,
    pub packets_sent: u64,
    pub packets_lost: u64,
    pub congestion_events: u64,
    pub udp_bytes_sent: u64,
    pub udp_bytes_received: u64,
    pub acks_sent: u64,
    pub acks_received: u64,
    pub ack_frequency_sent: u64,
}

/// State of a leg.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LegState {
    /// From `ClientHello` or dialling to the end of the handshake, ms.
    pub handshake_ms: Option<f64>,
    /// Now.
    #[serde(flatten)]
    pub counters: Counters,
    /// Jump of Careful Resume (RFC 9959) on this leg; null: none.
    pub jump: Option<JumpState>,
}

/// A line of the metrics file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sample {
    /// Number of the connection.
    pub connection: u64,
    /// Received from the client so far.
    pub from_client: Counts,
    /// Received from the server so far.
    pub from_server: Counts,
    /// The leg to the client.
    pub client_side: LegState,
    /// The leg to the next hop.
    pub server_side: LegState,
}

/// A line with its time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stamped_{T}")]
struct Stamped<'a, T> {
    unix_s: f64,
    #[serde(flatten)]
    line: &'a T,
}

/// Milliseconds with three decimals.
#[must_use]
pub fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// Queues lines; never waits.
#[derive(Debug, Clone)]
pub struct Report {
    records: SyncSender<String>,
    samples: Option<SyncSender<String>>,
    dropped: Arc<AtomicU64>,
    metrics_fault: Arc<OnceLock<String>>,
}

/// The writing threads; to be joined when all reports are dropped.
#[derive(Debug)]
pub struct Writers(Vec<JoinHandle<()>>);

impl Report {
    /// Writes records to `out` and samples to the end of `metrics`, each on a thread of its own.
    ///
    /// # Errors
    /// The metrics file cannot be opened.
    pub fn new(
        out: impl Write + Send + 'static,
        metrics: Option<&Path>,
    ) -> io::Result<(Self, Writers)> {
        let (records, from_records) = sync_channel(QUEUE_LINES);
        // A closed stdout is not an error: traffic continues.
        let mut writers = vec![thread::spawn(move || drop(drain(&from_records, out)))];
        let metrics_fault = Arc::new(OnceLock::new());
        let mut samples = None;
        if let Some(path) = metrics {
            let file = File::options().append(true).create(true).open(path)?;
            let (sender, from_samples) = sync_channel(QUEUE_LINES);
            let fault = Arc::clone(&metrics_fault);
            let path = path.to_path_buf();
            writers.push(thread::spawn(move || {
                if let Err(error) = drain(&from_samples, file) {
                    let text = format!("{}: {error}", path.display());
                    let _ = writeln!(io::stderr(), "error: {text}; no further samples");
                    let _ = fault.set(text);
                    // Later samples have somewhere to go.
                    for _ in from_samples {}
                }
            }));
            samples = Some(sender);
        }
        let report = Self {
            records,
            samples,
            dropped: Arc::default(),
            metrics_fault,
        };
        Ok((report, Writers(writers)))
    }

    /// Whether samples are written.
    #[must_use]
    pub fn wants_samples(&self) -> bool {
        self.samples.is_some() && self.metrics_fault.get().is_none()
    }

    /// Adds a record.
    pub fn record(&self, record: &Record) {
        self.send(&self.records, record);
    }

    /// Adds a sample.
    pub fn sample(&self, sample: &Sample) {
        if let Some(samples) = &self.samples {
            self.send(samples, sample);
        }
    }

    /// Returns how many lines were dropped so far, and the fault of the metrics file.
    #[must_use]
    pub fn faults(&self) -> (u64, Option<String>) {
        (
            self.dropped.load(Relaxed),
            self.metrics_fault.get().cloned(),
        )
    }

    fn send(&self, to: &SyncSender<String>, line: &impl Serialize) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_s = since.unwrap_or_default().as_micros() as f64 / 1e6;
        let text = serde_json::to_string(&Stamped { unix_s, line });
        if !text.is_ok_and(|text| to.try_send(text).is_ok()) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Writers {
    /// Waits until everything is written.
    pub fn join(self) {
        for writer in self.0 {
            // A writer does not panic; if it did, its lines are lost.
            let _ = writer.join();
        }
    }
}

/// Writes lines one by one, so that a reader sees each at once.
fn drain(lines: &Receiver<String>, mut out: impl Write) -> io::Result<()> {
    for mut line in lines {
        line.push('\n');
        out.write_all(line.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema counts")]
    enum Line<'a> {
        Record(Stamped<'a, Record>),
        /// every 100 ms, in the metrics file: one connection
        Sample(Stamped<'a, Sample>),
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "One line of what satpep quic prints on stdout, or of its --metrics file";
        schema::compare_with_file(&schema::written::<Line<'_>>("satpep", title));
    }

    #[test]
    fn a_full_disk_is_reported_once_and_stops_only_the_samples() {
        let (report, writers) = Report::new(io::sink(), Some(Path::new("/dev/full"))).unwrap();
        let refused = || Record::Refused {
            client: "127.0.0.1:1".parse().unwrap(),
            reason: "test".into(),
        };
        assert!(report.wants_samples());
        let samples = report.samples.clone().unwrap();
        samples.send("{}".into()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while report.wants_samples() {
            assert!(std::time::Instant::now() < deadline);
            thread::yield_now();
        }
        report.record(&refused());
        let (dropped, fault) = report.faults();
        assert_eq!(dropped, 0);
        assert!(fault.unwrap().contains("No space left"));
        drop((report, samples));
        writers.join();
    }

    #[test]
    fn a_reader_that_does_not_read_never_blocks() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (go, stuck) = std::sync::mpsc::channel();
        let (report, writers) = Report::new(Stuck(stuck), None).unwrap();
        let record = Record::Refused {
            client: "127.0.0.1:1".parse().unwrap(),
            reason: "test".into(),
        };
        for _ in 0..QUEUE_LINES + 10 {
            report.record(&record);
        }
        assert!((8..=10).contains(&report.faults().0));
        drop((go, report));
        writers.join();
    }
}
