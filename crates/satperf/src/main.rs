// SPDX-License-Identifier: GPL-3.0-or-later
//! `satperf`: measures QUIC connections. Client and server, two QUIC libraries behind one
//! interface.

mod net;
mod output;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};
use quic::{CarefulResume, LegOptions, StateFile};
use satperf::app::App;
use satperf::client::Client;
use satperf::connection_log::Context;
use satperf::record::{Direction, Request, Side};
use satperf::server::Server;
use satperf::stack::{self, MAX_STREAMS, Setup, Stack, StackError, TlsFiles};
use satperf::streams::{MAX_SOURCE_MBPS, is_source_rate};

use crate::net::{RunError, Socket};
use crate::output::Output;

const EXIT_STATUSES: &str = "Exit status: 0 done, 1 the transfer failed (the summary line says why), 2 usage or \
configuration, 3 the host cannot do it (address in use, disk full), 130 interrupted.\n\
Output: lines of JSON, schemas/satperf.schema.json.";

/// Measures QUIC: handshake, time to first byte, goodput, congestion window, losses,
/// acknowledgements
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUSES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer clients until SIGINT or SIGTERM; writes to stderr where it listens
    Server(ServerArgs),
    /// Transfer once and measure
    Client(ClientArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StackName {
    /// quinn-proto: reno, cubic, ACK frequency
    Quinn,
    /// quiche: reno, cubic, bbr, 0-RTT over runs
    Quiche,
    /// noq-proto: reno, cubic, bbr3, ACK frequency
    Noq,
}

#[derive(Debug, Args)]
struct Common {
    /// QUIC library
    #[arg(long, value_enum, default_value = "quinn")]
    stack: StackName,
    #[command(flatten)]
    leg: LegOptions,
    /// Write a qlog file per connection into this folder
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Keep what Careful Resume learned about paths in this file (mode 0600), from one run to the
    /// next
    #[arg(long, value_name = "STATE_FILE")]
    resume_state: Option<PathBuf>,
    /// Where the lines go; `-` is stdout
    #[arg(long, value_name = "FILE.jsonl", default_value = "-")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Own address and UDP port; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Certificate chain, PEM
    #[arg(long, value_name = "PEM")]
    cert: PathBuf,
    /// Private key, PEM (PKCS 8)
    #[arg(long, value_name = "PEM")]
    key: PathBuf,
    /// End with the first connection, and with its exit status
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct ClientArgs {
    /// Server's address and UDP port
    #[arg(long, value_name = "ADDR:PORT")]
    connect: SocketAddr,
    /// Name in the server's certificate
    #[arg(long, value_name = "NAME")]
    server_name: String,
    /// The only certificates trusted, PEM
    #[arg(long, value_name = "PEM")]
    ca: PathBuf,
    #[command(flatten)]
    amount: Amount,
    /// Which way the payload goes
    #[arg(long, value_enum, default_value = "download")]
    direction: Direction,
    /// Streams at once (1 to 100)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREAMS)))]
    streams: u32,
    /// The sender's application generates payload at this rate, Mbit/s [default: all is there at
    /// once]
    #[arg(long, value_name = "MBPS", value_parser = source_mbps)]
    source_mbps: Option<f64>,
    /// Offer the session in this file for 0-RTT, if it is there, and leave the new one in it (mode
    /// 0600); quiche only
    #[arg(long, value_name = "SESSION_FILE")]
    zero_rtt: Option<PathBuf>,
    /// Send from another own address from this time after the first packet on, s (repeated: rising
    /// times); quinn, noq
    #[arg(long, value_name = "S:ADDR", value_parser = migration)]
    migrate: Vec<(Duration, IpAddr)>,
    /// The connection may take this long, s [default: 600 by bytes, the duration and 60 by
    /// duration]
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Amount {
    /// Transfer for this long, from the first packet on, s
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// Transfer this much payload, bytes
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "no number of seconds".to_owned())?;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not within 0.001 to 86400 s".into())
    }
}

fn migration(text: &str) -> Result<(Duration, IpAddr), String> {
    let (at, address) = text
        .split_once(':')
        .ok_or("not a time and an address, as 15:198.18.1.130")?;
    let address = address.parse().map_err(|_| "no IP address".to_owned())?;
    Ok((seconds(at)?, address))
}

fn source_mbps(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| is_source_rate(*rate));
    rate.ok_or_else(|| format!("not above 0 and up to {MAX_SOURCE_MBPS} Mbit/s"))
}

/// An error that ends the program: status, one line, and what to do next.
#[derive(Debug)]
struct Failure {
    status: u8,
    what: String,
    hint: String,
}

impl Failure {
    fn new(status: u8, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            hint: hint.into(),
        }
    }
}

impl From<StackError> for Failure {
    fn from(error: StackError) -> Self {
        match error {
            StackError::Qlog { .. } => Self::new(
                3,
                error.to_string(),
                "set --qlog to a folder that can be written",
            ),
            StackError::ResumeState(_) => Self::new(
                2,
                error.to_string(),
                "delete the file of --resume-state: nothing of it was used",
            ),
            error => Self::new(
                2,
                error.to_string(),
                "options and units: satperf client --help",
            ),
        }
    }
}

/// Writes to stderr, whose reader may be gone.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Server(args) => serve(args),
        Command::Client(args) => measure(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, what, hint }) => {
            note(&format!("error: {what}\nhint: {hint}"));
            ExitCode::from(status)
        }
    }
}

fn serve(args: ServerArgs) -> Result<(), Failure> {
    let tls = TlsFiles::Server {
        cert: args.cert,
        key: args.key,
    };
    let epoch = epoch();
    let (state, text) = open_state(&args.common)?;
    let mut stack = make(&args.common, &tls, None, (epoch, text))?;
    let mut socket = Socket::bind(args.listen).map_err(|error| {
        Failure::new(
            3,
            format!("listen on {}: {error}", args.listen),
            "choose a free port of an own address",
        )
    })?;
    let mut output = open(&args.common.output)?;
    let context = context(Side::Server, stack.as_ref(), &socket, epoch);
    let mut app = Server::new(context, args.once);
    note(&format!("satperf: listening on {}", socket.local()));
    let result = run(&mut socket, stack.as_mut(), &mut app, &mut output);
    save_state(state, stack.as_ref())?;
    result
}

/// Why the client cannot take the own addresses, if so.
fn migration_fault(args: &ClientArgs) -> Option<Failure> {
    let what = if args.migrate.is_empty() {
        return None;
    } else if args.common.stack == StackName::Quiche {
        "--migrate: quiche has none here; use --stack quinn or noq"
    } else if !args.migrate.is_sorted_by(|a, b| a.0 < b.0) {
        "--migrate: the times do not rise"
    } else if (args.migrate.iter()).any(|it| it.1.is_ipv4() != args.connect.is_ipv4()) {
        "--migrate: an address is of another IP version than that of the server"
    } else {
        return None;
    };
    let hint = "options and units: satperf client --help";
    Some(Failure::new(2, what, hint))
}

fn measure(args: ClientArgs) -> Result<(), Failure> {
    if let Some(failure) = migration_fault(&args) {
        return Err(failure);
    }
    let session = args.zero_rtt.as_deref().map(read_session).transpose()?;
    let tls = TlsFiles::Client { ca: args.ca };
    let epoch = epoch();
    let (state, text) = open_state(&args.common)?;
    let mut stack = make(&args.common, &tls, session, (epoch, text))?;
    let mut socket = Socket::towards(args.connect).map_err(|error| {
        Failure::new(
            3,
            format!("connect to {}: {error}", args.connect),
            "check addresses and routes: ip route",
        )
    })?;
    let mut output = open(&args.common.output)?;
    let request = Request {
        direction: args.direction,
        bytes: args.amount.bytes,
        duration_ms: args
            .amount
            .duration
            .map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
        streams: args.streams,
        source_mbps: args.source_mbps,
    };
    let rest = args
        .amount
        .duration
        .map_or(Duration::from_secs(600), |it| it + Duration::from_secs(60));
    let context = context(Side::Client, stack.as_ref(), &socket, epoch);
    let now = Instant::now();
    socket.migrate(args.migrate.iter().map(|it| (now + it.0, it.1)));
    let conn = stack.connect(now, socket.local(), args.connect, &args.server_name)?;
    let mut app = Client::new(
        context,
        conn,
        args.connect.to_string(),
        request,
        now,
        args.timeout.unwrap_or(rest),
    );
    let result = run(&mut socket, stack.as_mut(), &mut app, &mut output);
    if let (Some(path), Some(session)) = (args.zero_rtt, stack.session(conn)) {
        output::write_private(&path, &session).map_err(|error| {
            Failure::new(
                3,
                format!("{}: {error}", path.display()),
                "set --zero-rtt to a file that can be written",
            )
        })?;
    }
    stack.forget(Instant::now(), conn);
    save_state(state, stack.as_ref())?;
    result
}

/// The state file, if there is to be one, and its text.
fn open_state(common: &Common) -> Result<(Option<StateFile>, String), Failure> {
    let Some(path) = &common.resume_state else {
        return Ok((None, String::new()));
    };
    if common.leg.careful_resume == CarefulResume::Off {
        let what = "--resume-state goes with --careful-resume";
        return Err(Failure::new(2, what, "add --careful-resume on"));
    }
    let (file, text) = StateFile::open(path).map_err(|error| {
        Failure::new(
            2,
            format!("{}: {error}", path.display()),
            "set --resume-state to a file of an earlier run, or to a new name",
        )
    })?;
    Ok((Some(file), text))
}

fn save_state(file: Option<StateFile>, stack: &dyn Stack) -> Result<(), Failure> {
    let (Some(mut file), Some(text)) = (file, stack.resume_state()) else {
        return Ok(());
    };
    file.write(&text).map_err(|error| {
        Failure::new(
            3,
            format!("state of Careful Resume: {error}"),
            "make room, or choose another --resume-state",
        )
    })
}

/// A session that is not there yet is an empty one: this run makes it.
fn read_session(path: &Path) -> Result<Vec<u8>, Failure> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(|error| {
            Failure::new(
                2,
                format!("{}: {error}", path.display()),
                "set --zero-rtt to a file of an earlier run, or to a new name",
            )
        }),
    }
}

fn make(
    common: &Common,
    tls: &TlsFiles,
    session: Option<Vec<u8>>,
    (epoch, resume_state): ((Instant, f64), String),
) -> Result<Box<dyn Stack>, Failure> {
    let setup = Setup {
        options: common.leg.clone(),
        qlog: common.qlog.clone(),
        session,
        epoch: Some(epoch),
        resume_state,
        ..Setup::default()
    };
    Ok(match common.stack {
        StackName::Quinn => Box::new(stack::quinn::Quinn::new(setup, tls)?),
        #[cfg(feature = "quiche")]
        StackName::Quiche => Box::new(stack::quiche::Quiche::new(setup, tls)?),
        #[cfg(not(feature = "quiche"))]
        StackName::Quiche => {
            return Err(Failure::new(
                2,
                "built without quiche",
                "build it: ./satlab --install quic",
            ));
        }
        #[cfg(feature = "noq")]
        StackName::Noq => Box::new(stack::noq::Noq::new(setup, tls)?),
        #[cfg(not(feature = "noq"))]
        StackName::Noq => {
            return Err(Failure::new(
                2,
                "built without noq",
                "build it with Rust 1.88 or later: cargo build --release -p satperf --features noq",
            ));
        }
    })
}

fn open(path: &Path) -> Result<Output, Failure> {
    Output::open(Some(path)).map_err(|error| {
        Failure::new(
            3,
            format!("{}: {error}", path.display()),
            "set --output to a file that can be written",
        )
    })
}

/// One moment on both clocks: monotonic, and Unix time in s.
fn epoch() -> (Instant, f64) {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |it| it.as_secs_f64());
    (Instant::now(), unix)
}

fn context(side: Side, stack: &dyn Stack, socket: &Socket, epoch: (Instant, f64)) -> Rc<Context> {
    Rc::new(Context {
        side,
        stack: stack.name(),
        options: stack.options().clone(),
        socket: socket.describe(),
        epoch,
        cpu_s: linux::cpu_seconds,
        omits_intervals: false,
    })
}

fn run(
    socket: &mut Socket,
    stack: &mut dyn Stack,
    app: &mut dyn App,
    output: &mut Output,
) -> Result<(), Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone()).map_err(|error| {
            Failure::new(
                3,
                format!("signals: {error}"),
                "this should not happen; please report it",
            )
        })?;
    }
    match net::run(socket, stack, app, output, &|| flag.load(Ordering::Relaxed)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(Failure::new(
            1,
            why,
            "the lines written so far show the progress; for a qlog: --qlog DIR",
        )),
        Err(RunError::Signal) => Err(Failure::new(
            130,
            "interrupted",
            "what was measured is written",
        )),
        Err(RunError::Output(why)) => Err(Failure::new(
            3,
            why,
            "make room, or choose another --output or --qlog",
        )),
        Err(RunError::Socket(error)) => Err(Failure::new(
            3,
            format!("UDP socket: {error}"),
            "check interfaces: ip address",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
