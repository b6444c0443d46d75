// SPDX-License-Identifier: GPL-3.0-or-later
//! The command line.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use fec::{Delivery, Protection};
use serde::Serialize;

use crate::control::Control;
use crate::quic;

/// Bytes by which a packet grows at most: the identifiers of a repair frame and the overhead of its
/// symbol.
pub const FRAMING: u16 = 12;
/// UDP and IPv4, bytes.
const HEADERS: u16 = 8 + 20;

/// What carries frames to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// One UDP datagram per frame
    Udp,
    /// DATAGRAM frames of one QUIC connection (RFC 9221)
    Quic,
}

impl Transport {
    /// What a packet grows by on the way, at most, bytes.
    #[must_use]
    pub fn overhead(self) -> u16 {
        match self {
            Self::Udp => FRAMING + HEADERS,
            Self::Quic => FRAMING + quic::OVERHEAD + HEADERS,
        }
    }

    /// MTU that a path needs for packets of so many bytes.
    #[must_use]
    pub fn need(self, mtu: u16) -> u16 {
        let least = match self {
            Self::Udp => 0,
            Self::Quic => quic::LEAST_PAYLOAD + HEADERS,
        };
        least.max(mtu + self.overhead())
    }
}

/// Order in which packets leave the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// As soon as they are known
    Immediate,
    /// In the sender's order; a missing packet holds later ones back for --hold-ms at most
    InOrder,
}

/// Options of `satfec`.
#[derive(Debug, Clone, clap::Parser)]
#[command(version, about, after_help = EXIT_STATUSES)]
pub struct Options {
    /// Where the other end's datagrams come to
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddrV4,
    /// The other end; datagrams of others are ignored
    #[arg(long, value_name = "ADDR:PORT")]
    pub peer: SocketAddrV4,
    /// Name of the TUN device to make, up to 15 letters and digits
    #[arg(long, value_name = "NAME", default_value = "fec0")]
    pub device: String,
    /// Own address in the tunnel; without it the device has none, and routes have to lead into it
    #[arg(long, value_name = "ADDR", requires = "peer_address")]
    pub address: Option<Ipv4Addr>,
    /// The other end's address in the tunnel
    #[arg(long, value_name = "ADDR", requires = "address")]
    pub peer_address: Option<Ipv4Addr>,
    /// Mark of the outer datagrams, by which rules keep them out of the tunnel (0: none)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mark: u32,
    /// Code of what this end sends: none; K,Z: one repair frame after K packets over the last Z (up
    /// to 1024); or adaptive: what the losses need that the other end reports, of 50,100 to 2,100
    #[arg(long, value_name = "CODE", default_value = "none", value_parser = protection)]
    pub code: Protection,
    /// When packets leave the tunnel
    #[arg(long, value_enum, default_value = "in-order")]
    pub deliver: Order,
    /// In order: longest wait for a missing packet, ms (1 to 10000)
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub hold_ms: u64,
    /// Longest packet in the tunnel, bytes (576 to 9000); outside it is 40 more, with quic 78
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(576..=9000))]
    pub mtu: u16,
    /// End if the other end is silent this long, s (1 to 3600)
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub peer_timeout_s: u64,
    /// What carries frames to the other end, at both ends the same
    #[arg(long, value_enum, default_value = "udp")]
    pub transport: Transport,
    /// quic: what limits the datagrams in flight [default: cubic]
    #[arg(long, value_enum, value_name = "NAME")]
    pub congestion_control: Option<Control>,
    /// quic, the server's end: certificate chain, PEM
    #[arg(long, value_name = "PEM", requires = "key", conflicts_with = "ca")]
    pub cert: Option<PathBuf>,
    /// quic, the server's end: private key, PKCS 8 in PEM
    #[arg(long, value_name = "PEM", requires = "cert")]
    pub key: Option<PathBuf>,
    /// quic, the client's end: authority that must have signed the other end's certificate, PEM
    #[arg(long, value_name = "PEM")]
    pub ca: Option<PathBuf>,
    /// quic, the client's end: name in that certificate [default: the address in --peer]
    #[arg(long, value_name = "NAME", requires = "ca")]
    pub server_name: Option<String>,
    /// Time between two lines of counters, ms (10 to 60000)
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub interval_ms: u64,
}

const EXIT_STATUSES: &str = "Exit status: 0 ended by SIGTERM or SIGINT, 1 the other end is silent or does not fit, \
2 usage, 3 the host cannot do it.";

fn protection(text: &str) -> Result<Protection, String> {
    text.parse()
        .map_err(|error| format!("{error}, none or adaptive"))
}

impl Options {
    /// Checks what the parser cannot check. Returns all faults, one per line.
    ///
    /// # Errors
    /// Options are out of range, or exclude each other.
    pub fn check(&self) -> Result<(), String> {
        let mut faults = Vec::new();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric();
        if !(1..=15).contains(&self.device.len()) || !self.device.bytes().all(is_name) {
            faults.push("--device: is not 1 to 15 letters and digits");
        }
        let inside = self.address.zip(self.peer_address);
        if inside.is_some_and(|(own, peer)| own == peer) {
            faults.push("--peer-address: is this end's own address");
        }
        if self.listen == self.peer {
            faults.push("--peer: is where this end listens");
        }
        if inside.is_some_and(|(own, peer)| [own, peer].contains(self.peer.ip())) {
            faults.push("--peer: is an address in the tunnel, which would carry itself");
        }
        faults.extend(self.transport_fault());
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.join("\n"))
        }
    }

    fn transport_fault(&self) -> Option<&'static str> {
        let has_tls = self.cert.is_some() || self.ca.is_some();
        match self.transport {
            Transport::Quic if !has_tls => {
                Some("--transport quic: needs --ca, or --cert and --key, one at each end")
            }
            Transport::Udp if has_tls || self.congestion_control.is_some() => {
                Some("--cert, --ca, --congestion-control: need --transport quic")
            }
            _ => None,
        }
    }

    /// When packets leave the tunnel.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        let hold = self.hold_ms * 1_000_000;
        match self.deliver {
            Order::Immediate => Delivery::Immediate,
            Order::InOrder => Delivery::InOrder { hold },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    const LEAST: [&str; 5] = [
        "satfec",
        "--listen=198.18.1.2:5800",
        "--peer=198.18.4.2:5800",
        "--address=198.18.200.1",
        "--peer-address=198.18.200.2",
    ];

    fn parse(more: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(LEAST.iter().chain(more))
    }

    #[test]
    fn command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn codes_are_read_and_faults_named() {
        for text in ["none", "5,100", "adaptive"] {
            let options = parse(&["--code", text]).unwrap();
            assert_eq!(options.code.to_string(), text);
        }
        assert_eq!(parse(&[]).unwrap().code, Protection::None);
        let error = parse(&["--code=0,100"]).unwrap_err().to_string();
        assert!(error.contains("needs 1 <= K <= Z <= 1024"), "{error}");
        for wrong in ["--mtu=500", "--hold-ms=0", "--code=5", "--peer-timeout-s=0"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_end_of_a_quic_connection_is_its_client_or_its_server() {
        let fault = |more: &[&str]| parse(more).unwrap().check().err();
        assert_eq!(fault(&["--transport=quic", "--ca=ca.crt"]), None);
        let server = ["--transport=quic", "--cert=a", "--key=b"];
        assert_eq!(fault(&server), None);
        assert!(fault(&["--transport=quic"]).is_some());
        assert!(fault(&["--ca=ca.crt"]).is_some());
        assert!(fault(&["--congestion-control=off"]).is_some());
        for wrong in [&["--cert=a"][..], &["--cert=a", "--key=b", "--ca=c"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Transport::Udp.need(1400), 1440);
        assert_eq!(Transport::Quic.need(1400), 1478);
        assert_eq!(Transport::Quic.need(600), 1228);
    }

    #[test]
    fn every_fault_is_reported() {
        let mut options = parse(&["--device=a/b"]).unwrap();
        assert_eq!(options.check().unwrap_err().lines().count(), 1);
        options.peer_address = options.address;
        options.peer = SocketAddrV4::new(options.address.unwrap(), 1);
        options.listen = options.peer;
        assert_eq!(options.check().unwrap_err().lines().count(), 4);
        assert_eq!(parse(&[]).unwrap().check(), Ok(()));
    }
}
