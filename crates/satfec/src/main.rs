// SPDX-License-Identifier: GPL-3.0-or-later
//! `satfec`: one end of a tunnel that repairs losses of a satellite link.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use linux::Signals;
use satfec::failure::RunError;
use satfec::options::Options;
use satfec::report::Report;
use satfec::run::run;

/// An error that ends the program: exit status, message, and hint.
type Failure = (u8, String, &'static str);

fn main() -> ExitCode {
    match carry(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, what, hint)) => {
            // stderr may be closed.
            let _ = writeln!(io::stderr(), "error: {what}\nhint: {hint}");
            ExitCode::from(status)
        }
    }
}

fn carry(options: &Options) -> Result<(), Failure> {
    options
        .check()
        .map_err(|faults| (2, faults, "satfec --help"))?;
    // Before any thread is started: each of them holds the signals back.
    let signals =
        Signals::block(&[]).map_err(|error| (3, format!("signals: {error}"), "see ulimit -n"))?;
    let report = Report::new(io::stdout());
    let result = run(options, &signals, &report);
    report.finish();
    result.map_err(|error| (status(&error), error.to_string(), hint(&error)))
}

fn status(error: &RunError) -> u8 {
    match error {
        RunError::Silent { .. }
        | RunError::OtherMtu { .. }
        | RunError::OtherVersion { .. }
        | RunError::Refused { .. } => 1,
        RunError::Host { .. } | RunError::PathMtu { .. } => 3,
    }
}

fn hint(error: &RunError) -> &'static str {
    match error {
        RunError::Silent { .. } => {
            "start satfec there, with --peer and --listen exchanged; or a longer --peer-timeout-s"
        }
        RunError::Refused { .. } => "see --ca and --server-name here, --cert and --key there",
        RunError::OtherVersion { .. } => "use satfec of the same release at both ends",
        RunError::OtherMtu { .. } => "use the same --mtu at both ends",
        RunError::PathMtu { .. } => "use a smaller --mtu at both ends",
        RunError::Host { .. } => "satfec needs CAP_NET_ADMIN, and a free address and device name",
    }
}
