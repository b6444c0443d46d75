// SPDX-License-Identifier: GPL-3.0-or-later
//! quiche in lock-step with satlab's virtual time (docs/virtual-interface.md): client or server, by
//! the set-up.
//!
//! An example of the crate satperf: cargo build --release --locked -p satperf --features quiche
//! --example quiche-lockstep (cmake and a C++ compiler for `BoringSSL`). File descriptor 0 is the
//! socket to satlab.
#![allow(
    unsafe_code,
    reason = "a clock and functions of C libraries are replaced"
)]

mod message;
mod metrics;
mod replaced;
mod transfer;

use std::collections::VecDeque;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use message::{Answer, Head, Hello, INTERFACE, Setup, Step};
use quiche::{CongestionControlAlgorithm, ConnectionId, Header};
use transfer::{DATAGRAM, Role, Transfer};

type Failure = Box<dyn Error>;

const NAME: &str = "quiche 0.28.0";
const ALPN: &[u8] = b"hq-interop";
/// Flow-control windows, bytes: satperf's. More than 250 Mbit/s times 650 ms.
const WINDOW: u64 = 64 << 20;
const IDLE_MS: u64 = 600_000;
const ID_BYTES: usize = 16;
const MOST_DATAGRAMS: usize = 1000;
const CLIENT: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    1,
);
const SERVER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)),
    443,
);

struct Endpoint {
    setup: Setup,
    config: quiche::Config,
    is_client: bool,
    zero: Instant,
    /// The last connection, and the one before, which may have packets to send.
    transfers: VecDeque<Transfer>,
    /// The last one is of the transfer that runs.
    has_begun: bool,
    session: Option<Vec<u8>>,
    out: VecDeque<Vec<u8>>,
}

impl Endpoint {
    fn new(setup: Setup) -> Result<Self, Failure> {
        let is_client = setup.role == "client";
        replaced::set_seed(2 * setup.seed + u64::from(is_client));
        Ok(Self {
            config: configuration(&setup, is_client)?,
            is_client,
            zero: Instant::now(),
            transfers: VecDeque::new(),
            has_begun: false,
            session: None,
            out: VecDeque::new(),
            setup,
        })
    }

    fn addresses(&self) -> (SocketAddr, SocketAddr) {
        if self.is_client {
            (CLIENT, SERVER)
        } else {
            (SERVER, CLIENT)
        }
    }

    fn add(&mut self, quic: quiche::Connection, ids: Vec<ConnectionId<'static>>, resumes: bool) {
        let sends = self.is_client == (self.setup.direction == "upload");
        let role = Role {
            is_client: self.is_client,
            sends,
            bytes: self.setup.bytes,
        };
        self.transfers
            .push_back(Transfer::new(quic, ids, role, resumes));
        if self.transfers.len() > 2 {
            self.transfers.pop_front();
        }
        self.has_begun = true;
    }

    /// Begins a transfer; a server's connection begins with its first packet.
    fn start(&mut self) -> Result<(), Failure> {
        self.has_begun = false;
        if !self.is_client {
            return Ok(());
        }
        if let Some(session) = self.transfers.back().and_then(|one| one.quic.session()) {
            self.session = self.setup.early_data.then(|| session.to_vec());
        }
        let (own, peer) = self.addresses();
        let id = random_id();
        let mut quic = quiche::connect(
            Some(&self.setup.server_name),
            &id,
            own,
            peer,
            &mut self.config,
        )?;
        if let Some(session) = &self.session {
            quic.set_session(session)?;
        }
        let resumes = self.session.is_some();
        self.add(quic, vec![id], resumes);
        Ok(())
    }

    fn receive(&mut self, mut data: Vec<u8>) {
        let (own, peer) = self.addresses();
        let Ok(header) = Header::from_slice(&mut data, ID_BYTES) else {
            return;
        };
        let is_new = !self.transfers.iter().any(|one| one.is_for(&header.dcid));
        if is_new {
            if self.is_client || header.ty != quiche::Type::Initial {
                return;
            }
            let id = random_id();
            let Ok(quic) = quiche::accept(&id, None, own, peer, &mut self.config) else {
                return;
            };
            // A client uses its own choice until it knows the server's.
            self.add(
                quic,
                vec![id, header.dcid.clone().into_owned()],
                self.setup.early_data,
            );
        }
        if let Some(one) = self
            .transfers
            .iter_mut()
            .find(|one| one.is_for(&header.dcid))
        {
            one.receive(&mut data, peer, own);
        }
    }

    fn step(
        &mut self,
        step: &Step,
        arrived: Vec<Vec<u8>>,
    ) -> Result<(Answer, Vec<Vec<u8>>), Failure> {
        replaced::set_now(step.now_ns);
        if step.start {
            self.start()?;
        }
        for data in arrived {
            self.receive(data);
        }
        let now = Instant::now();
        for one in &mut self.transfers {
            one.work(now, &mut self.out);
        }
        let sent: Vec<_> = self
            .out
            .drain(..self.out.len().min(MOST_DATAGRAMS))
            .collect();
        let due = self.transfers.iter().filter_map(Transfer::due).min();
        let timer = due.map(|due| due.saturating_duration_since(self.zero).as_nanos() as u64);
        let answer = Answer {
            timer_ns: if self.out.is_empty() {
                timer
            } else {
                Some(step.now_ns)
            },
            datagrams: sent.iter().map(|data| Head { bytes: data.len() }).collect(),
            report: self
                .transfers
                .back_mut()
                .filter(|_| self.has_begun)
                .map(Transfer::report),
        };
        Ok((answer, sent))
    }
}

fn random_id() -> ConnectionId<'static> {
    let mut id = vec![0; ID_BYTES];
    replaced::draw(&mut id);
    ConnectionId::from_vec(id)
}

/// quiche as satperf configures it, with a longer idle timeout.
fn configuration(setup: &Setup, is_client: bool) -> Result<quiche::Config, Failure> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    let certificate = file("certificate.pem", &setup.certificate)?;
    if is_client {
        config.load_verify_locations_from_file(text(&certificate)?)?;
        config.verify_peer(true);
    } else {
        let key = file(
            "key.pem",
            setup.key.as_deref().ok_or("the set-up has no key")?,
        )?;
        config.load_cert_chain_from_pem_file(text(&certificate)?)?;
        config.load_priv_key_from_pem_file(text(&key)?)?;
    }
    config.set_application_protos(&[ALPN])?;
    config.enable_early_data();
    config.set_cc_algorithm(CongestionControlAlgorithm::CUBIC);
    config.set_initial_rtt(Duration::from_millis(333));
    config.set_max_idle_timeout(IDLE_MS);
    config.set_max_send_udp_payload_size(DATAGRAM);
    config.set_use_initial_max_data_as_flow_control_win(true);
    config.set_max_connection_window(WINDOW);
    config.set_max_stream_window(WINDOW);
    config.set_initial_max_data(WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_initial_max_streams_bidi(4);
    config.set_disable_active_migration(true);
    Ok(config)
}

/// Writes a file for quiche, which takes names of files alone.
fn file(name: &str, content: &str) -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("quiche-lockstep-{}-{name}", std::process::id()));
    fs::write(&path, content)?;
    Ok(path)
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str()
        .ok_or_else(|| "the name of a file is not UTF-8".into())
}

fn send(
    pipe: &mut File,
    message: &impl serde::Serialize,
    datagrams: &[Vec<u8>],
) -> Result<(), Failure> {
    let mut whole = serde_json::to_vec(message)?;
    whole.push(b'\n');
    for data in datagrams {
        whole.extend_from_slice(data);
    }
    Ok(pipe.write_all(&whole)?)
}

fn main() -> Result<(), Failure> {
    // SAFETY: file descriptor 0 is the socket, and nothing else uses it.
    let mut pipe = unsafe { File::from_raw_fd(0) };
    let mut input = BufReader::with_capacity(1 << 20, pipe.try_clone()?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut endpoint = Endpoint::new(serde_json::from_str(&line)?)?;
    send(
        &mut pipe,
        &Hello {
            interface: INTERFACE,
            name: NAME,
        },
        &[],
    )?;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let step: Step = serde_json::from_str(&line)?;
        let mut arrived = Vec::with_capacity(step.datagrams.len());
        for head in &step.datagrams {
            let mut data = vec![0; head.bytes];
            input.read_exact(&mut data)?;
            arrived.push(data);
        }
        let (answer, sent) = endpoint.step(&step, arrived)?;
        send(&mut pipe, &answer, &sent)?;
    }
}
