// SPDX-License-Identifier: GPL-3.0-or-later
//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use quic::{CarefulResume, CongestionControl, Fault, Faults, LegOptions};
use rustls::pki_types::DnsName;
use serde::Serialize;

use crate::subdomain_verifier;

/// Order of the two handshakes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Both handshakes at once; early data of the client waits for the next hop
    Default,
    /// The handshake with the next hop first, so the client knows the server's settings before its
    /// first request
    H3Capable,
    /// Both handshakes at once, with 0-RTT to the next hop by a session ticket of an earlier
    /// connection
    Warm,
}

/// Options of `satpep quic`.
#[derive(Debug, Clone, clap::Args)]
pub struct QuicOptions {
    /// Where clients connect to; once for each port if --transparent, as answers come from this
    /// very port
    #[arg(long, required = true, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Take connections that are meant for other hosts (nft tproxy to --listen) and answer in their
    /// name
    #[arg(long)]
    pub transparent: bool,
    /// Proxy or server behind this one [default: the client's destination; needs --transparent]
    #[arg(long, value_name = "ADDR:PORT")]
    pub next_hop: Option<SocketAddr>,
    /// Order of the handshakes
    #[arg(long, value_enum, default_value = "default")]
    pub mode: Mode,
    /// Certificate chain shown to clients, PEM
    #[arg(long, value_name = "PEM")]
    pub cert: PathBuf,
    /// Its private key, PKCS 8 in PEM
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
    /// Authority that must have signed the certificate of the next hop, PEM
    #[arg(long, value_name = "PEM")]
    pub ca: PathBuf,
    /// The next hop serves the domains below this host, whose name its certificate must have then;
    /// may be repeated
    #[arg(long, value_name = "HOST", value_parser = subdomain_verifier::host)]
    pub domains_of: Vec<DnsName<'static>>,
    /// Connect to the next hop from the client's own address and port (needs routes and a rule for
    /// the way back)
    #[arg(long)]
    pub keep_client_address: bool,
    /// With --mode warm: fetch a session ticket for this server name at once; may be repeated
    #[arg(long, value_name = "NAME")]
    pub prime: Vec<String>,
    /// Protocol (ALPN) of the priming connections
    #[arg(long, value_name = "NAME", default_value = "h3")]
    pub prime_alpn: String,
    /// Keep what Careful Resume learned about paths in this file (mode 0600), from one run to the
    /// next; written at the end
    #[arg(long, value_name = "STATE_FILE")]
    pub resume_state: Option<PathBuf>,
    /// Write qlog files into this folder, one for each leg of each connection
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
    /// Append a sample of both legs of each connection every 100 ms
    #[arg(long, value_name = "FILE.jsonl")]
    pub metrics: Option<PathBuf>,
    /// Connections at once; further ones are refused (1 to 10000)
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_connections: usize,
    /// Streams of each kind that a peer may have open at once (1 to 100000)
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_streams: u32,
    /// Handshake and next hop must be done after this time, ms (100 to 600000)
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub handshake_timeout_ms: u64,
    /// After SIGTERM, connections may go on this long, ms (0 to 600000)
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub drain_ms: u64,
    /// Run outside a lab's network namespace. satpep reads all that users send and receive
    #[arg(long)]
    pub outside_a_lab: bool,
    /// The leg to the client
    #[command(flatten)]
    pub client_side: ClientSide,
    /// The leg to the next hop
    #[command(flatten)]
    pub server_side: ServerSide,
}

impl QuicOptions {
    /// Checks what the parser cannot check. Returns all faults.
    ///
    /// # Errors
    /// Options are out of range, or exclude each other.
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = Vec::new();
        let mut fault = |option, why: String| faults.push(Fault { option, why });
        if self.next_hop.is_none() && !self.transparent {
            fault(
                "next-hop",
                "without it, only --transparent knows the destination".into(),
            );
        }
        let listening = |address: &SocketAddr| self.listen.contains(address);
        if self.next_hop.as_ref().is_some_and(listening) {
            fault("next-hop", "is where this proxy listens".into());
        }
        if !self.prime.is_empty() && (self.mode != Mode::Warm || self.next_hop.is_none()) {
            fault("prime", "goes with --mode warm and --next-hop".into());
        }
        if !(1..=10_000).contains(&self.max_connections) {
            fault("max-connections", "is not within 1 to 10000".into());
        }
        if !(1..=100_000).contains(&self.max_streams) {
            fault("max-streams", "is not within 1 to 100000".into());
        }
        if !(100..=600_000).contains(&self.handshake_timeout_ms) {
            fault("handshake-timeout-ms", "is not within 100 to 600000".into());
        }
        if self.drain_ms > 600_000 {
            fault("drain-ms", "is not within 0 to 600000".into());
        }
        for (name, leg) in [
            (CLIENT_SIDE, &self.client_side.0),
            (SERVER_SIDE, &self.server_side.0),
        ] {
            faults.extend(self.leg_faults(leg).into_iter().map(|it| Fault {
                option: name,
                why: format!("{}: {}", it.option, it.why),
            }));
        }
        let legs = [&self.client_side.0, &self.server_side.0];
        let is_off = legs.map(|leg| leg.careful_resume) == [CarefulResume::Off; 2];
        if self.resume_state.is_some() && is_off {
            faults.push(Fault {
                option: "resume-state",
                why: "goes with --client-side-careful-resume or --server-side-careful-resume"
                    .into(),
            });
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Faults(faults))
        }
    }

    /// Whether a leg has bbr3. Both legs then run on noq.
    #[must_use]
    pub fn needs_noq(&self) -> bool {
        let legs = [&self.client_side.0, &self.server_side.0];
        legs.map(|leg| leg.congestion_control)
            .contains(&CongestionControl::Bbr3)
    }

    fn leg_faults(&self, leg: &LegOptions) -> Vec<Fault> {
        let of = |result: Result<(), Faults>| result.err().map_or(Vec::new(), |it| it.0);
        if !self.needs_noq() {
            return of(quic::transport(leg).map(drop));
        }
        let plain = LegOptions {
            careful_resume: CarefulResume::Off,
            ..leg.clone()
        };
        let mut faults = of(with_noq(&plain));
        faults.extend(leg.careful_resume_fault("next to bbr3"));
        faults
    }
}

#[cfg(feature = "noq")]
fn with_noq(leg: &LegOptions) -> Result<(), Faults> {
    quic::noq::transport(leg).map(drop)
}

#[cfg(not(feature = "noq"))]
fn with_noq(leg: &LegOptions) -> Result<(), Faults> {
    let mut faults = leg.check().err().map_or(Vec::new(), |it| it.0);
    if leg.congestion_control == CongestionControl::Bbr3 {
        faults.push(Fault {
            option: "congestion-control",
            why: "bbr3: built without noq; build it with Rust 1.88 or later: cargo build --release -p satpep --features noq".into(),
        });
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Faults(faults))
    }
}

const CLIENT_SIDE: &str = "client-side";
const SERVER_SIDE: &str = "server-side";

macro_rules! side {
    ($(#[$doc:meta])* $name:ident, $prefix:expr, $heading:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name(pub LegOptions);

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                command.args(prefixed($prefix, $heading))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                leg_of($prefix, matches).map(Self)
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

side!(
    /// `--client-side-...`: the options of a leg under names of their own.
    ClientSide,
    CLIENT_SIDE,
    "Leg to the client"
);
side!(
    /// `--server-side-...`: the options of a leg under names of their own.
    ServerSide,
    SERVER_SIDE,
    "Leg to the next hop"
);

/// The options of a leg, as every QUIC tool has them.
fn plain() -> Command {
    LegOptions::augment_args(Command::new("leg").no_binary_name(true))
}

fn prefixed(prefix: &str, heading: &'static str) -> Vec<Arg> {
    let rename = |arg: &Arg| {
        let long = arg.get_long().unwrap_or_default();
        arg.clone()
            .id(format!("{prefix}-{}", arg.get_id()))
            .long(format!("{prefix}-{long}"))
            .help_heading(heading)
    };
    plain().get_arguments().map(rename).collect()
}

/// Reads the prefixed options of a leg by their plain names, so that one table defines the options
/// of all legs.
fn leg_of(prefix: &str, matches: &ArgMatches) -> Result<LegOptions, Error> {
    let plain = plain();
    let mut argv = Vec::new();
    for arg in plain.get_arguments() {
        let id = format!("{prefix}-{}", arg.get_id());
        if matches.value_source(&id) == Some(ValueSource::CommandLine) {
            argv.push(format!("--{}", arg.get_long().unwrap_or_default()).into());
            argv.extend(matches.get_raw(&id).into_iter().flatten().map(Into::into));
        }
    }
    let argv: Vec<std::ffi::OsString> = argv;
    LegOptions::from_arg_matches(&plain.clone().try_get_matches_from(argv)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Quic {
        #[command(flatten)]
        options: QuicOptions,
    }

    const LEAST: [&str; 9] = [
        "satpep",
        "--listen",
        "127.0.0.1:443",
        "--cert",
        "c",
        "--key",
        "k",
        "--ca",
        "a",
    ];

    fn parse(more: &[&str]) -> QuicOptions {
        Quic::try_parse_from(LEAST.iter().chain(more))
            .unwrap()
            .options
    }

    #[test]
    fn each_leg_has_options_of_its_own() {
        let options = parse(&[
            "--client-side-congestion-control",
            "reno",
            "--server-side-initial-window=100",
            "--server-side-ack-threshold",
            "20",
            "--server-side-max-ack-delay-ms",
            "100",
        ]);
        assert_eq!(
            options.client_side.0.congestion_control,
            CongestionControl::Reno
        );
        assert_eq!(options.client_side.0.initial_window, 10);
        let expected = LegOptions {
            initial_window: 100,
            ack_threshold: Some(20),
            max_ack_delay_ms: Some(100),
            ..LegOptions::default()
        };
        assert_eq!(options.server_side.0, expected);
    }

    #[test]
    fn every_fault_is_reported() {
        let options = parse(&[
            "--max-connections",
            "0",
            "--prime",
            "x.test",
            "--server-side-initial-window",
            "0",
            "--client-side-congestion-control",
            "bbr",
        ]);
        let text = options.check().unwrap_err().to_string();
        for part in [
            "next-hop: without it",
            "max-connections: is not within",
            "prime: goes with",
            "server-side: initial-window: 0 is not within",
            "client-side: congestion-control: bbr",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn each_leg_may_resume_with_cubic_alone() {
        let way = ["--next-hop", "127.0.0.1:444"];
        let gw = ["--client-side-careful-resume", "on", "--resume-state", "s"];
        parse(&[&way[..], &gw].concat()).check().unwrap();
        let reno = ["--client-side-congestion-control", "reno"];
        let text = |more: &[&str]| parse(more).check().unwrap_err().to_string();
        let refused = text(&[&way[..], &gw, &reno].concat());
        assert!(
            refused.starts_with("client-side: careful-resume: is not offered"),
            "{refused}"
        );
        let alone = text(&[&way[..], &gw[2..]].concat());
        assert!(alone.starts_with("resume-state: goes with"), "{alone}");
    }

    #[test]
    fn bbr3_runs_on_noq_and_only_where_it_is_built_in() {
        let way = ["--next-hop", "127.0.0.1:444"];
        assert!(!parse(&way).needs_noq());
        for side in ["client-side", "server-side"] {
            let control = format!("--{side}-congestion-control");
            let options = parse(&[&way[..], &[&control, "bbr3"]].concat());
            assert!(options.needs_noq());
            if cfg!(feature = "noq") {
                options.check().unwrap();
                continue;
            }
            let text = options.check().unwrap_err().to_string();
            let expected = format!("{side}: congestion-control: bbr3: built without noq; build it");
            assert!(text.starts_with(&expected), "{text}");
        }
    }

    #[test]
    fn no_leg_resumes_next_to_bbr3() {
        let way = ["--next-hop", "127.0.0.1:444"];
        let legs = ["--client-side-congestion-control", "bbr3"];
        for side in ["client-side", "server-side"] {
            let resume = format!("--{side}-careful-resume");
            let options = parse(&[&way[..], &legs, &[&resume, "on"]].concat());
            let text = options.check().unwrap_err().to_string();
            let expected = format!("{side}: careful-resume: is not offered next to bbr3");
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn a_proxy_does_not_call_itself() {
        let options = parse(&["--next-hop", "127.0.0.1:443"]);
        let text = options.check().unwrap_err().to_string();
        assert_eq!(text, "next-hop: is where this proxy listens");
        parse(&["--next-hop", "127.0.0.1:444"]).check().unwrap();
    }
}
