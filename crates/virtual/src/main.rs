// SPDX-License-Identifier: GPL-3.0-or-later
//! `satvirtual`: QUIC transfers over an emulated link under a virtual clock.

#[cfg(feature = "noq")]
mod sys;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use cli::Failure;
use satvirtual::flows::measured::Measured;
use satvirtual::flows::outcome;
use satvirtual::flows::record::Status;
use satvirtual::flows::spec::{Clock, Spec};
use satvirtual::lockstep;
use satvirtual::lockstep::message::Pipe;
use satvirtual::lockstep::process::Process;
use satvirtual::transfer::{Program, Transfer};

/// Largest transfer file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Largest file of what was measured: 64 flows for an hour in bins of 0.1 s.
const MAX_MEASURED_BYTES: u64 = 1 << 30;

/// Runs QUIC transfers or flows over an emulated link under a virtual clock; prints times and
/// counters as JSON.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUSES, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    transfer: Option<TransferArgs>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Many flows that share one link
    Flows {
        /// Flows and their link, schemas/virtual-flows.schema.json
        #[arg(value_name = "FLOWS.json")]
        spec: PathBuf,
        /// With real nothing is simulated: the flows are checked and printed, or the figures of
        /// those in --measured are
        #[arg(long, value_enum, default_value = "virtual")]
        clock: Clock,
        /// Series that satlab has measured of these flows on the real clock
        #[arg(long, value_name = "MEASURED.json")]
        measured: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct TransferArgs {
    /// Link configuration, schemas/link-config.schema.json; devices and files in it are not touched
    #[arg(long, value_name = "LINK.json")]
    link: PathBuf,
    /// What is sent, schemas/virtual-transfer.schema.json
    #[arg(long, value_name = "TRANSFER.json")]
    transfer: PathBuf,
}

const EXIT_STATUSES: &str = "Exit status: 0 all transfers or flows ended well, 1 one failed or ran out of time, 2 usage, \
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
    match (&cli.command, &cli.transfer) {
        (
            Some(Command::Flows {
                spec,
                clock,
                measured,
            }),
            _,
        ) => flows(spec, *clock, measured.as_deref()),
        (None, Some(args)) => transfers(args),
        (None, None) => Err(Failure::usage("nothing to do".into(), "see --help")),
    }
}

fn transfers(args: &TransferArgs) -> Result<bool, Failure> {
    let (config, profile) = cli::load(&args.link)?;
    let transfer = read(&args.transfer)?;
    seed(transfer.seed);
    let outcome = match &transfer.programs {
        None => satvirtual::run(&config, &profile, &transfer),
        Some(programs) => {
            let [client, server] = programs.both().map(start);
            lockstep::run(&config, &profile, &transfer, [client?, server?])
        }
    };
    let outcome =
        outcome.map_err(|error| Failure::usage(error.to_string(), "check link and transfer"))?;
    print(&outcome)?;
    Ok(outcome.transfers.iter().all(|done| done.status == "ok"))
}

fn start(program: &Program) -> Result<Box<dyn Pipe>, Failure> {
    let name = program.argv.first().map_or("", String::as_str);
    let hint = "check the program, and the folder of its log";
    match Process::start(program) {
        Ok(process) => Ok(Box::new(process)),
        Err(error) => Err(Failure::host(format!("{name}: {error}"), hint)),
    }
}

/// The failure that the faults of a file are.
fn refused(path: &Path, faults: &[String]) -> Failure {
    for fault in faults {
        cli::log(&format!("{}: {fault}", path.display()));
    }
    let what = format!("{} in {}", cli::counted(faults.len()), path.display());
    Failure::usage(what, "fields and ranges: schemas/virtual-flows.schema.json")
}

fn flows(path: &Path, clock: Clock, measured: Option<&Path>) -> Result<bool, Failure> {
    let text = cli::read_text(path, MAX_BYTES).map_err(|why| refused(path, &[why]))?;
    let spec = Spec::parse(&text, clock).map_err(|faults| refused(path, &faults))?;
    if clock == Clock::Virtual && measured.is_some() {
        let what = "--measured is of the real clock".to_owned();
        return Err(Failure::usage(what, "add --clock real"));
    }
    match (clock, measured) {
        (Clock::Virtual, _) => simulated(path, &spec),
        (Clock::Real, None) => print(&spec).map(|()| true),
        (Clock::Real, Some(file)) => {
            let text = cli::read_text(file, MAX_MEASURED_BYTES);
            let text = text.map_err(|why| refused(file, &[why]))?;
            let read = Measured::parse(&text, &spec).map_err(|faults| refused(file, &faults))?;
            printed(&outcome::of_measured(&spec, read))
        }
    }
}

fn simulated(path: &Path, spec: &Spec) -> Result<bool, Failure> {
    seed(spec.seed);
    let folder = path.parent().unwrap_or(Path::new("."));
    let satellite = spec.link.as_ref().map(|link| cli::load(&folder.join(link)));
    let outcome = satvirtual::flows::run(spec, satellite.transpose()?.as_ref())
        .map_err(|error| Failure::usage(error.to_string(), "check link and flows"))?;
    printed(&outcome)
}

/// Prints an outcome; whether all flows ended well.
fn printed(outcome: &outcome::Outcome) -> Result<bool, Failure> {
    print(outcome)?;
    Ok(outcome.flows.iter().all(|flow| flow.status == Status::Ok))
}

/// What libraries draw from the operating system is the same in every run.
fn seed(seed: u64) {
    #[cfg(feature = "noq")]
    sys::seed(seed);
    #[cfg(not(feature = "noq"))]
    let _ = seed;
}

fn print(outcome: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(outcome).map_err(|error| unprinted(&error))?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| unprinted(&error))
}

fn read(path: &Path) -> Result<Transfer, Failure> {
    let usage = |why: String| {
        let what = format!("{}: {why}", path.display());
        let hint = "fields and ranges: schemas/virtual-transfer.schema.json";
        Failure::usage(what, hint)
    };
    let text = cli::read_text(path, MAX_BYTES).map_err(usage)?;
    Transfer::parse(&text).map_err(usage)
}

fn unprinted(error: &dyn std::fmt::Display) -> Failure {
    Failure::host(
        format!("stdout: {error}"),
        "redirect stdout to a file or program that can be written",
    )
}
