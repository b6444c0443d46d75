// SPDX-License-Identifier: GPL-3.0-or-later
//! `satlink run`: starts and ends the devices, a real-time thread for each direction, and the
//! metrics writer.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cli::{Failure, log};
use emulator::bearer::Bearer;
use emulator::config::{Config, Port};
use emulator::directions::{DIRECTIONS, TRAVEL};
use emulator::drive::{self, Drive, Gone, Late, Report};
use emulator::gateway_changes::GatewayChanges;
use emulator::{fifos, links, network};
use link::{Assignments, LinkConfig, LinkError, Receiver as LinkReceiver, Relay, Sender};
use linux::Signals;
use profile::Profile;

use crate::awake::{self, Awake};
use crate::bounded::Bounded;
use crate::control::{Controller, Socket, State};
use crate::devices::{Devices, End};
use crate::ends::{self, Ends};
use crate::entity::{Entity, Role};
use crate::mailbox::Mailbox;
use crate::metrics::{self, End as Ending, Header, Message, Output, ReleaseErrors};
use crate::probes::Collector;
use crate::relay;
use crate::sys::{self, Event, Poll};

/// Real-time priority of the threads.
const PRIORITY: i32 = 40;
/// Up to this rate of the satellite link, bit/s, one thread serves all directions: waking costs
/// more than packets then.
const ONE_THREAD_BELOW_BPS: f64 = 500e6;
/// Snapshots that wait for the writer at most: 100 s of a metrics interval of 100 ms.
const WAITING_SNAPSHOTS: usize = 4096;
/// Time between two looks at the namespaces.
const NAMESPACE_CHECK: Duration = Duration::from_secs(1);

/// Runs until a signal or until a device or namespace goes away.
///
/// # Errors
/// Devices or metrics file cannot be opened, a device went away, or metrics could not be written.
pub fn run(config: &Config, profile: &Profile, entity: Entity) -> Result<(), Failure> {
    // The emulator outlives its terminal.
    let signals = Signals::block(&[libc::SIGHUP])
        .map_err(|error| Failure::host(format!("signals: {error}"), "see ulimit -n"))?;
    let (stop, ended) = events()?;
    let ends = ends::open(config, entity)?;
    let (file, collector) = (open_metrics(config)?, collector(config, profile)?);
    let socket = config.control.as_deref().map(bind).transpose()?;
    let memory_locked = logged("mlockall", &sys::lock_memory());
    let start = Start::now();
    let (sender, receiver) = sync_channel(WAITING_SNAPSHOTS);
    let unsent = AtomicU64::new(0);
    let shared = Shared {
        stop: &stop,
        ended: &ended,
        unsent: &unsent,
        start: start.instant,
    };
    let (fifo_sender, fifo) = sync_channel(DIRECTIONS.len());

    let mut directions = directions(config, profile, entity, ends)?;
    join_plans(entity, &mut directions)?;
    let state = &State::new(config, delays_ms(config, profile));
    let mut controller = controller(config, profile, &directions, state);
    let output = Output {
        file,
        served: controller.mailboxes.each_ref().map(Option::is_some),
        fifos: fifos::names(config, profile),
        collector,
    };
    let prepared = workers(directions, shared)?;
    controller.start_at_once();
    thread::scope(|scope| {
        let threads: Vec<_> = prepared
            .into_iter()
            .map(|worker| {
                let (sender, fifo_sender) = (sender.clone(), fifo_sender.clone());
                scope.spawn(move || worker.run(shared, &sender, &fifo_sender))
            })
            .collect();
        let is_fifo = all_fifo(&fifo, threads.len());
        let header = header(config, profile, entity, &start, is_fifo, memory_locked);
        let awake = Awake::new(Path::new(awake::DEVICE), config.metrics_interval_ms);
        let writer = scope.spawn(move || write_metrics(output, &header, &receiver, state, awake));
        let control =
            socket.map(|socket| scope.spawn(move || serve(&socket, &mut controller, shared)));
        ready();
        let ending = wait_for_end(&entity.ports(config), &signals, &ended);
        stop.set();
        if control.is_some_and(|thread| thread.join().is_err()) {
            log("the control socket's thread panicked");
        }
        let (errors, failure) = join(threads);
        // The reason from a direction comes before that of the main thread.
        let gone = failure.or_else(|| ending.as_ref().err().cloned());
        let said = ending.unwrap_or_default().to_owned();
        let reason = gone.clone().unwrap_or(said);
        // The writer drains the channel until this line, so the send returns.
        let end = Ending::new(unix_s(), reason, errors, linux::cpu_seconds());
        let _ = sender.send(Message::End(Box::new(end)));
        let is_written = writer.join().unwrap_or(false);
        outcome(gone, is_written, unsent.load(Ordering::Relaxed))
    })
}

fn open_metrics(config: &Config) -> Result<Bounded, Failure> {
    Bounded::open(&config.metrics, config.metrics_max_bytes).map_err(|error| {
        let what = format!("{}: {error}", config.metrics.display());
        Failure::host(
            what,
            "name a file in a folder that exists and can be written",
        )
    })
}

fn collector(config: &Config, profile: &Profile) -> Result<Option<Collector>, Failure> {
    let Some(probes) = &config.probes else {
        return Ok(None);
    };
    let collector = if probes.from.is_empty() {
        Collector::new(probes, config, profile).map(Some)
    } else {
        relay::start(probes).map(|()| None)
    };
    collector.map_err(|error| {
        let what = format!("probes: {}: {error}", probes.address);
        Failure::host(what, "name an address that this host has a route to")
    })
}

fn bind(path: &Path) -> Result<Socket, Failure> {
    Socket::bind(path).map_err(|error| {
        let what = format!("control: {}: {error}", path.display());
        Failure::host(
            what,
            "name a file that does not exist, in a folder that does",
        )
    })
}

/// Writes metrics to their end. The control socket's state and the host's cores see each message
/// first.
fn write_metrics(
    output: Output<Bounded>,
    header: &Header,
    messages: &Receiver<Message>,
    state: &State,
    mut awake: Awake,
) -> bool {
    let messages = messages.iter().inspect(|message| {
        state.observe(message);
        awake.observe(message);
    });
    metrics::write_all(output, header, messages, |error| {
        log(&format!("metrics are incomplete: {error}"));
    })
}

/// Serves the control socket. Its end is not the link's.
fn serve(socket: &Socket, controller: &mut Controller<'_>, shared: Shared<'_>) {
    if let Err(error) = socket.serve(controller, shared.stop, shared.start) {
        log(&format!("the control socket is gone: {error}"));
    }
}

fn delays_ms(config: &Config, profile: &Profile) -> [f64; 4] {
    links::links(config, profile).map(|link| link.delay as f64 / 1e6)
}

/// What answers the control socket.
fn controller<'a>(
    config: &'a Config,
    profile: &'a Profile,
    directions: &[Prepared],
    state: &'a State,
) -> Controller<'a> {
    let mut mailboxes = [const { None }; 4];
    for direction in directions {
        mailboxes[direction.index] = Some(Arc::clone(&direction.mailbox));
    }
    Controller {
        config,
        targets: links::targets(config, profile),
        moves: GatewayChanges::new(config, profile),
        variations: network::variations(config, profile),
        mailboxes,
        state,
        has_started: false,
    }
}

/// Release errors of the directions, and the first failure.
fn join(threads: Vec<thread::ScopedJoinHandle<'_, Ended>>) -> (ReleaseErrors, Option<String>) {
    let mut errors = ReleaseErrors::default();
    let mut failure = None;
    for thread in threads {
        let panicked = |_| (Vec::new(), Some("a thread panicked".into()));
        let (totals, reason) = thread.join().unwrap_or_else(panicked);
        for (index, total) in totals {
            errors[index] = total;
        }
        failure = failure.or(reason);
    }
    (errors, failure)
}

/// What all directions share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    stop: &'a Event,
    ended: &'a Event,
    unsent: &'a AtomicU64,
    start: Instant,
}

struct Start {
    instant: Instant,
    unix_s: f64,
}

impl Start {
    fn now() -> Self {
        Self {
            instant: Instant::now(),
            unix_s: unix_s(),
        }
    }
}

/// One direction before it starts.
struct Prepared {
    index: usize,
    rate_bps: f64,
    drive: Drive,
    ends: (End, End),
    mailbox: Arc<Mailbox>,
}

/// One thread before it starts: the directions that it serves, in the order of travel.
struct Worker {
    indexes: Vec<usize>,
    drives: Vec<Drive>,
    devices: Devices,
}

impl Worker {
    fn of(directions: Vec<Prepared>, shared: Shared<'_>) -> Result<Self, Failure> {
        let (mut indexes, mut drives, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut mailboxes = Vec::new();
        for direction in directions {
            indexes.push(direction.index);
            drives.push(direction.drive);
            ends.push(direction.ends);
            mailboxes.push(direction.mailbox);
        }
        let devices = Devices::new(ends, mailboxes, shared.stop, shared.start)
            .map_err(|error| Failure::host(format!("epoll: {error}"), "see ulimit -n"))?;
        if let Some(error) = devices.refused_stamps() {
            log(&format!(
                "no arrival times: {error}; packets count as arrived when they are read (grant CAP_BPF)"
            ));
        }
        Ok(Self {
            indexes,
            drives,
            devices,
        })
    }
}

/// Shares directions out to threads: one for all of a slow link, one for each of a fast one.
fn workers(mut directions: Vec<Prepared>, shared: Shared<'_>) -> Result<Vec<Worker>, Failure> {
    directions.sort_by_key(|one| TRAVEL.iter().position(|&index| index == one.index));
    let rate: f64 = directions.iter().map(|one| one.rate_bps).sum();
    if rate <= ONE_THREAD_BELOW_BPS {
        return Ok(vec![Worker::of(directions, shared)?]);
    }
    directions
        .into_iter()
        .map(|one| Worker::of(vec![one], shared))
        .collect()
}

/// Release errors by direction, and why the thread failed if it did.
type Ended = (Vec<(usize, Option<Late>)>, Option<String>);

impl Worker {
    fn run(
        mut self,
        shared: Shared<'_>,
        sender: &SyncSender<Message>,
        fifo: &SyncSender<bool>,
    ) -> Ended {
        let _alarm = Alarm(shared.ended);
        let is_fifo = sys::set_fifo(PRIORITY).is_ok();
        if !is_fifo {
            sys::set_least_timer_slack();
        }
        sys::prefault_stack();
        // The receiver waits for all threads, so it is still there.
        let _ = fifo.send(is_fifo);
        let indexes = &self.indexes;
        let result = drive::run(&mut self.drives, &mut self.devices, |number, report| {
            // Never waits: a stuck disk must not delay packets. Losses of metrics are reported at
            // the end.
            let message = match report {
                Report::Snapshot(snapshot) => Message::Snapshot(indexes[number], snapshot),
                Report::Applied(applied) => Message::Change(indexes[number], applied),
            };
            if sender.try_send(message).is_err() {
                shared.unsent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let late = self.drives.iter().map(Drive::late_total);
        let failed =
            |Gone(number, error): Gone| format!("{}: {error}", DIRECTIONS[indexes[number]]);
        (
            indexes.iter().copied().zip(late).collect(),
            result.err().map(failed),
        )
    }
}

/// Wakes the main thread however a direction ends, also by a panic.
struct Alarm<'a>(&'a Event);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn events() -> Result<(Event, Event), Failure> {
    let event = || {
        Event::new().map_err(|error| Failure::host(format!("eventfd: {error}"), "see ulimit -n"))
    };
    Ok((event()?, event()?))
}

/// Connects the directions for demand assignment: a gateway sends its plans by the forward socket,
/// and a terminal passes plans that it receives there to its return link.
fn join_plans(entity: Entity, directions: &mut [Prepared]) -> Result<(), Failure> {
    let [forward, back, ..] = directions else {
        return Ok(());
    };
    match (entity, &mut forward.ends, &mut back.ends) {
        (Entity::St, (End::Air(air), _), _) => air.post_plans(&back.mailbox),
        (Entity::Gw, (_, End::Air(forward)), (End::Air(air), _)) => air
            .send_plans_by(forward)
            .map_err(|error| Failure::host(format!("dup: {error}"), "see ulimit -n"))?,
        _ => {}
    }
    Ok(())
}

/// Links and ends of the directions that are served, in the order of [`DIRECTIONS`].
fn directions(
    config: &Config,
    profile: &Profile,
    entity: Entity,
    ends: Ends,
) -> Result<Vec<Prepared>, Failure> {
    let mut served = shared_carriers(config, profile)?;
    // The sender's process is a new one at every start.
    let session = (unix_s() as u32) ^ std::process::id().rotate_left(16);
    let plans = Assignments::default();
    links::links(config, profile)
        .into_iter()
        .zip(ends)
        .enumerate()
        .filter_map(|(index, (link, ends))| ends.map(|ends| (index, link, ends)))
        .map(|(index, link, ends)| {
            let rate_bps = link.carrier.rate_bps().unwrap_or(0.0);
            let drive = match served.get_mut(index).and_then(Option::take) {
                Some(shared) => driven(shared, config),
                None => drive_of(link, entity.role(index), (session, &plans), config)
                    .map_err(|error| not_a_link(DIRECTIONS[index], &error))?,
            };
            Ok(Prepared {
                index,
                rate_bps,
                drive,
                ends,
                mailbox: mailbox()?,
            })
        })
        .collect()
}

/// The carriers that terminals share, in the order of [`DIRECTIONS`]; none where there is one
/// terminal.
fn shared_carriers(config: &Config, profile: &Profile) -> Result<Vec<Option<Bearer>>, Failure> {
    if config.terminals.is_empty() {
        return Ok(Vec::new());
    }
    let served = network::served(config, profile);
    let served = served.map_err(|error| not_a_link("terminals", &error))?;
    Ok(served.map(Some).into())
}

fn not_a_link(place: &str, error: &LinkError) -> Failure {
    Failure::usage(
        format!("{place}: {error}"),
        "satlink plan shows what was derived",
    )
}

fn driven(served: Bearer, config: &Config) -> Drive {
    let interval = config.metrics_interval_ms * 1_000_000;
    Drive::of(served, interval, config.timing.late_limit_us() * 1000)
}

/// The direction, or this process's part of it.
fn drive_of(
    link: LinkConfig,
    role: Option<Role>,
    (session, plans): (u32, &Assignments),
    config: &Config,
) -> Result<Drive, LinkError> {
    let interval = config.metrics_interval_ms * 1_000_000;
    let late_limit = config.timing.late_limit_us() * 1000;
    Ok(match role {
        None => return Ok(driven(Bearer::of_one(link, plans)?, config)),
        Some(Role::Sends) => Drive::new(Sender::new(link, session)?, interval, late_limit),
        Some(Role::Relays) => Drive::new(Relay::new(link)?, interval, late_limit),
        Some(Role::Receives) => Drive::new(LinkReceiver::new(link)?, interval, late_limit),
    })
}

fn mailbox() -> Result<Arc<Mailbox>, Failure> {
    Mailbox::new()
        .map(Arc::new)
        .map_err(|error| Failure::host(format!("eventfd: {error}"), "see ulimit -n"))
}

/// Whether all `threads` got their real-time class; says so if not.
fn all_fifo(fifo: &Receiver<bool>, threads: usize) -> bool {
    let all = fifo.iter().take(threads).all(|is_fifo| is_fifo);
    if !all {
        log("SCHED_FIFO is refused: release times depend on the load of the host (run as root)");
    }
    all
}

fn logged(what: &str, result: &io::Result<()>) -> bool {
    if let Err(error) = result {
        log(&format!(
            "{what} is refused: {error}; release times may suffer from paging"
        ));
    }
    result.is_ok()
}

fn header(
    config: &Config,
    profile: &Profile,
    entity: Entity,
    start: &Start,
    sched_fifo: bool,
    memory_locked: bool,
) -> Header {
    Header {
        schema: "satlab/link-metrics/1",
        run_id: config.run_id.clone(),
        version: env!("CARGO_PKG_VERSION"),
        profile_sha256: profile.sha256.clone(),
        config_sha256: config.sha256.clone(),
        seed: config.seed,
        clock: "CLOCK_MONOTONIC",
        start_unix_s: start.unix_s,
        interval_ms: config.metrics_interval_ms,
        late_limit_us: config.timing.late_limit_us(),
        sched_fifo,
        memory_locked,
        entity: entity.word(),
    }
}

/// Reports readiness to the parent, which may be gone already.
fn ready() {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{{\"ready\":true,\"pid\":{}}}", std::process::id())
        .and_then(|()| out.flush());
}

/// Waits for a signal (`Ok` with its name), or for the loss of a namespace or direction (`Err` with
/// the reason).
fn wait_for_end(ports: &[&Port], signals: &Signals, ended: &Event) -> Result<&'static str, String> {
    let namespaces: Vec<(&PathBuf, _)> = ports
        .iter()
        .map(|port| (&port.netns, sys::namespace_id(&port.netns)))
        .collect();
    let mut poll =
        Poll::new([signals as &dyn AsRawFd, ended]).map_err(|error| error.to_string())?;
    loop {
        poll.wait(NAMESPACE_CHECK)
            .map_err(|error| error.to_string())?;
        if poll.is_readable(0) {
            return signals.take().map_err(|error| error.to_string());
        }
        if poll.is_readable(1) {
            return Err("a direction ended".into());
        }
        // An open TUN device keeps its namespace alive, so the end of the lab shows at the path
        // alone.
        for (path, id) in &namespaces {
            if sys::namespace_id(path) != *id {
                return Err(format!("the network namespace {} is gone", path.display()));
            }
        }
    }
}

fn outcome(gone: Option<String>, written: bool, unsent: u64) -> Result<(), Failure> {
    if let Some(reason) = gone {
        return Err(Failure::host(reason, "bring the lab up again"));
    }
    if !written {
        return Err(Failure::host(
            "metrics are incomplete: see the message above".into(),
            "free space and run again",
        ));
    }
    if unsent > 0 {
        let what = format!("metrics are incomplete: {unsent} snapshots met a full queue");
        return Err(Failure::host(
            what,
            "use a faster disk or a longer metrics_interval_ms",
        ));
    }
    Ok(())
}

fn unix_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
