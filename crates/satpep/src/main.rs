// SPDX-License-Identifier: GPL-3.0-or-later
//! `satpep`: performance enhancing proxy for QUIC over satellite links.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use satpep::options::QuicOptions;
use satpep::proxy::Proxy;
use satpep::report::Report;
use satpep::start_error::StartError;
use satpep::sys;
use tokio::signal::unix::{SignalKind, signal};

/// Prefix of the names of a lab's namespaces.
const LAB_PREFIX: &str = "satlab-";

/// Splits QUIC connections at the edges of a satellite link. Everything that passes is decrypted on
/// the way.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUSES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUSES: &str = "Exit status: 0 ended by SIGTERM or SIGINT, 2 usage, configuration or certificates, 3 the host cannot do it.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Proxy QUIC until SIGTERM; JSON lines on stdout: ready, accepted, closed, refused, primed,
    /// summary
    Quic(Box<QuicOptions>),
}

/// An error that ends the program: exit status, one line, and hint.
struct Failure {
    status: u8,
    what: String,
    hint: &'static str,
}

fn main() -> ExitCode {
    let Command::Quic(options) = Cli::parse().command;
    match quic(*options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // stderr may be closed.
            let _ = writeln!(
                io::stderr(),
                "error: {}\nhint: {}",
                failure.what,
                failure.hint
            );
            ExitCode::from(failure.status)
        }
    }
}

fn quic(options: QuicOptions) -> Result<(), Failure> {
    options.check().map_err(|faults| Failure {
        status: 2,
        what: faults.to_string(),
        hint: "satpep quic --help",
    })?;
    if !options.outside_a_lab && !sys::in_namespace_named(LAB_PREFIX) {
        return Err(Failure {
            status: 2,
            what: "this is not a network namespace of a lab, and satpep reads what its users send"
                .into(),
            hint: "run it on a node of a lab, or add --outside-a-lab if all users agreed",
        });
    }
    let (report, writers) =
        Report::new(io::stdout(), options.metrics.as_deref()).map_err(|error| Failure {
            status: 3,
            what: format!("metrics file: {error}"),
            hint: "set --metrics to a file in a folder that exists",
        })?;
    let runtime = satpep::runtime().map_err(|error| host(format!("event loop: {error}")))?;
    let result = runtime.block_on(async {
        let shutdown = signals().map_err(|error| host(format!("signals: {error}")))?;
        Proxy::bind(options, report)
            .map_err(|error| start(&error))?
            .run(shutdown)
            .await;
        Ok(())
    });
    drop(runtime);
    writers.join();
    result
}

/// Waits for SIGTERM or SIGINT. They are caught from now on.
fn signals() -> io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

fn start(error: &StartError) -> Failure {
    match error {
        StartError::Memory(_) => Failure {
            status: 2,
            what: error.to_string(),
            hint: "delete the file of --resume-state, of which nothing was used, or choose a new name",
        },
        StartError::Tls(_) => Failure {
            status: 2,
            what: error.to_string(),
            hint: "set --cert, --key and --ca to the PEM files of the lab's CA",
        },
        StartError::Listen { .. } | StartError::Qlog { .. } => host(error.to_string()),
    }
}

fn host(what: String) -> Failure {
    Failure {
        status: 3,
        what,
        hint: "free the address or folder; --transparent and --keep-client-address need CAP_NET_ADMIN",
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
