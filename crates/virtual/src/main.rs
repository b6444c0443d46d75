// SPDX-License-Identifier: GPL-3.0-or-later
//! `satvirtual`: QUIC transfers over an emulated link under a virtual clock.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use cli::Failure;
use satvirtual::transfer::Transfer;

/// Largest transfer file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Runs QUIC transfers over an emulated satellite link under a virtual clock; prints times and counters as JSON.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUSES)]
struct Cli {
    /// Link configuration, schemas/link-config.schema.json; devices and files in it are not touched
    #[arg(long, value_name = "LINK.json")]
    link: PathBuf,
    /// What is sent, schemas/virtual-transfer.schema.json
    #[arg(long, value_name = "TRANSFER.json")]
    transfer: PathBuf,
}

const EXIT_STATUSES: &str = "Exit status: 0 all transfers complete, 1 one failed or ran out of time, 2 usage, \
configuration or profile, 3 the host cannot do it.";

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            failure.log();
            ExitCode::from(failure.status)
        }
    }
}

fn run(cli: &Cli) -> Result<bool, Failure> {
    let (config, profile) = cli::load(&cli.link)?;
    let transfer = read(&cli.transfer)?;
    let outcome = satvirtual::run(&config, &profile, &transfer)
        .map_err(|error| Failure::usage(error.to_string(), "check link and transfer"))?;
    let text = serde_json::to_string(&outcome).map_err(|error| unprinted(&error))?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| unprinted(&error))?;
    Ok(outcome.transfers.iter().all(|done| done.status == "ok"))
}

fn read(path: &Path) -> Result<Transfer, Failure> {
    let usage = |why: String| {
        let what = format!("{}: {why}", path.display());
        Failure::usage(
            what,
            "fields and ranges: schemas/virtual-transfer.schema.json",
        )
    };
    let size = std::fs::metadata(path)
        .map_err(|error| usage(error.to_string()))?
        .len();
    if size > MAX_BYTES {
        return Err(usage(format!("larger than {MAX_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    Transfer::parse(&text).map_err(usage)
}

fn unprinted(error: &dyn std::fmt::Display) -> Failure {
    Failure::host(
        format!("stdout: {error}"),
        "redirect stdout to a file or program that can be written",
    )
}
