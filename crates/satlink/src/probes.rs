// SPDX-License-Identifier: GPL-3.0-or-later
//! Samples for the collectors of `OpenSAND` 8.2: its probe names and units, one datagram per entity and sample.
//!
//! A datagram is `<epoch ms> <probe> <value> <probe> <value> ... entity <name>`. Probes without a counterpart here (a
//! satellite, grants by kind) are left out. Throughputs count the Ethernet frames that `OpenSAND` carries: 14 bytes more
//! a packet than the IP packets here. Delay and attenuation are those of the profile; link changes are not in them. Log
//! lines go to the port after that of the probes, as in `OpenSAND` (5361 and 5362).

use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dvb::modcod::{FrameSize, MODCODS, ModCod};
use dvb::rcs2::Waveform;
use dvb::sdu::ETHERNET_HEADER;
use emulator::config::Probes;
use profile::{Physical, Profile, Qos};

use crate::fifos::FifoLine;
use crate::samples::{Direction, Sample};
use crate::sys;

/// What sends the samples of a run to a collector.
#[derive(Debug)]
pub struct Collector {
    socket: UdpSocket,
    entities: Entities,
}

impl Collector {
    /// Address of a collector; it need not be running.
    ///
    /// # Errors
    /// There is no such namespace, or no way to the address from there.
    pub fn new(probes: &Probes, profile: &Profile) -> io::Result<Self> {
        let address = probes.address;
        let socket = reach(probes, address)?;
        let entities = Entities::of(profile);
        let collector = Self { socket, entities };
        collector.announce(address);
        Ok(collector)
    }

    /// Sends the first log line of each entity; whether it arrives does not matter.
    fn announce(&self, probes: SocketAddr) {
        let logs = SocketAddr::new(probes.ip(), probes.port().saturating_add(1));
        for line in self.entities.status("Blocks initialized") {
            let _ = self.socket.send_to(line.as_bytes(), logs);
        }
    }

    /// Sends a sample. Losses are ignored.
    pub(crate) fn send(&self, sample: &Sample) {
        for datagram in self.entities.datagrams(sample) {
            let _ = self.socket.send(datagram.as_bytes());
        }
    }
}

/// A socket to `address`, in the namespace from which the collector is reached.
pub(crate) fn reach(probes: &Probes, address: SocketAddr) -> io::Result<UdpSocket> {
    match &probes.netns {
        Some(netns) => sys::in_namespace(&namespace(netns), move || connect(address)),
        None => connect(address),
    }
}

/// A path, or the namespace of the process that started this one.
fn namespace(path: &Path) -> PathBuf {
    if path == Path::new("parent") {
        format!("/proc/{}/ns/net", std::os::unix::process::parent_id()).into()
    } else {
        path.to_owned()
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Names and constants of the two ground entities.
#[derive(Debug)]
struct Entities {
    spot: String,
    st: Entity,
    gw: Entity,
    carriers: Carriers,
    /// Unix time of the first sample, s: attenuation and delay start there.
    started: OnceLock<f64>,
}

/// What the carriers of the profile hold.
#[derive(Debug)]
struct Carriers {
    forward: profile::Forward,
    back: profile::Return,
    /// Constant rates of all terminals of the carrier, and the most that they may ask for by rate, kbit/s.
    cra_kbps: u64,
    rbdc_max_kbps: u64,
    step_ns: u64,
}

impl Carriers {
    fn of(profile: &Profile) -> Self {
        let own = std::iter::once(profile.st_profile.dama);
        let all = own.chain(profile.sharing().map(|it| it.profile.dama));
        let (cra_kbps, rbdc_max_kbps) = all.fold((0, 0), |sum, dama| {
            let rbdc = dama.rbdc_max_kbps.unwrap_or(0);
            (sum.0 + u64::from(dama.cra_kbps), sum.1 + u64::from(rbdc))
        });
        Self {
            forward: profile.forward.clone(),
            back: profile.return_link.clone(),
            cra_kbps,
            rbdc_max_kbps,
            step_ns: u64::from(profile.settings.acm_refresh_ms) * 1_000_000,
        }
    }

    /// Part of the forward carrier's symbols that frames took.
    fn forward_use(&self, sent: &Direction, seconds: f64) -> f64 {
        let modcod = sent.modcod_id.and_then(ModCod::by_id);
        let symbols = modcod.map_or(0, |it| it.plframe_symbols(FrameSize::Normal, false));
        let taken = (sent.frames * symbols) as f64;
        (taken / (self.forward.symbol_rate as f64 * seconds)).min(1.0)
    }

    /// kbit/s of the forward carrier with the MODCOD in force.
    fn forward_kbps(&self, sent: &Direction) -> f64 {
        let modcod = sent.modcod_id.and_then(ModCod::by_id);
        let efficiency = modcod.map_or(0.0, |it| it.efficiency(FrameSize::Normal, false));
        self.forward.symbol_rate as f64 * efficiency / 1e3
    }

    /// kbit/s of bursts: assigned to the terminal, and sent.
    fn bursts_kbps(&self, sent: &Direction, seconds: f64) -> [f64; 2] {
        let waveform = sent.modcod_id.and_then(Waveform::by_id);
        let bits = waveform.map_or(0, |it| it.payload_bytes * 8) as f64;
        let superframes = seconds * 1e9 / self.back.superframe_ns as f64;
        let assigned = sent.slots_assigned.map_or_else(
            || f64::from(self.back.slots) * superframes,
            |slots| slots as f64,
        );
        [assigned, sent.frames as f64].map(|bursts| bursts * bits / seconds / 1e3)
    }
}

#[derive(Debug)]
struct Entity {
    name: String,
    /// Where packets without a tag wait, lower case.
    fifo: String,
    /// All FIFOs, lower case.
    fifos: Vec<String>,
    /// Packets wait in the FIFO of their class.
    has_classes: bool,
    physical: Physical,
}

impl Entity {
    fn new(name: String, physical: &Physical, qos: &Qos, has_classes: bool) -> Self {
        let fifo = qos
            .fifo_of_pcp(qos.default_pcp)
            .map(|at| &qos.fifos[at].name);
        let fifo = fifo.map_or_else(|| "be".into(), |name| name.to_lowercase());
        let names = qos.fifos.iter().map(|fifo| fifo.name.to_lowercase());
        Self {
            name,
            fifos: names.collect(),
            fifo,
            has_classes,
            physical: physical.clone(),
        }
    }
}

impl Entities {
    fn of(profile: &Profile) -> Self {
        let (st, gw) = (&profile.st_profile, &profile.gw_physical);
        Self {
            // The gateway's number is the spot's.
            spot: format!("spot_{}", profile.gw.id),
            st: Entity::new(
                format!("st{}", profile.st.id),
                &st.physical,
                &st.qos,
                profile.is_on_demand(),
            ),
            gw: Entity::new(
                format!("gw{}", profile.gw.id),
                gw,
                &profile.gw_qos,
                profile.gw_qos.is_tagged,
            ),
            carriers: Carriers::of(profile),
            started: OnceLock::new(),
        }
    }

    /// A log line of each entity, in the form of `OpenSAND`'s logs without the date.
    fn status(&self, text: &str) -> [String; 2] {
        [&self.gw, &self.st].map(|entity| format!("[EVENT][{}][status] {text}", entity.name))
    }

    /// The datagrams of a sample; none where another emulator carries the satellite segment.
    fn datagrams(&self, sample: &Sample) -> Vec<String> {
        let (Some(forward), Some(back)) = (sample.forward(), sample.back()) else {
            return Vec::new();
        };
        let (s, seconds) = (&self.spot, sample.seconds);
        let started = *self.started.get_or_init(|| sample.t_unix_s - seconds);
        let now = ((sample.t_unix_s - seconds - started).max(0.0) * 1e9) as u64;
        let at = (now, now / self.carriers.step_ns.max(1) + 1);
        let mut st = Datagram::new(sample.t_unix_s);
        st.modcods("up_return_modcod", back, None);
        st.modcods(
            &format!("{s}.st.down_forward_modcod"),
            forward,
            Some(forward),
        );
        st.physical(&format!("{s}.st.phy"), &self.st, forward, at);
        let lost = ("capacity", 8e-3);
        st.queue(&format!("{s}.st"), &self.st, (back, lost), seconds);
        let received = kbps(forward.out_bytes, forward.out_packets, seconds);
        st.whole(&format!("{s}.st.throughputs.l2_from_sat.total"), received);
        st.required(&format!("{s}.st.down_forward_modcod"), forward);
        st.lan(back, forward, seconds);
        self.allocation(&mut st, back, seconds);
        let mut gw = Datagram::new(sample.t_unix_s);
        let group = format!("{s}.gw.standard");
        gw.modcods(&format!("{s}.gw.up_forward_modcod"), forward, None);
        gw.modcods(&format!("{s}.gw.down_return_modcod"), back, Some(back));
        gw.physical(&format!("{s}.gw.phy"), &self.gw, back, at);
        let lost = ("rate", 8e-3 / seconds);
        gw.queue(&group, &self.gw, (forward, lost), seconds);
        gw.whole(&format!("{group}.global.bbframe_number"), forward.frames);
        let received = kbps(back.out_bytes, back.out_packets, seconds);
        gw.whole(&format!("{s}.gw.throughputs.l2_from_sat"), received);
        gw.whole(&format!("{s}.gw.global.st_number"), 1);
        gw.lan(forward, back, seconds);
        self.capacities(&mut gw, (forward, back), seconds);
        vec![st.end(&self.st.name), gw.end(&self.gw.name)]
    }
}

impl Entities {
    /// What the terminal was assigned.
    fn allocation(&self, st: &mut Datagram, back: &Direction, seconds: f64) {
        let (s, carriers) = (&self.spot, &self.carriers);
        let [assigned, sent] = carriers.bursts_kbps(back, seconds);
        st.whole(&format!("{s}.st.allocation.total"), assigned.round() as u64);
        let left = (assigned - sent).max(0.0).round() as u64;
        st.whole(&format!("{s}.st.allocation.remaining"), left);
        let [rbdc_kbps, vbdc_kbits] = asked(back);
        st.whole(&format!("{s}.st.request.rbdc"), rbdc_kbps);
        st.whole(&format!("{s}.st.request.vbdc"), vbdc_kbits);
        let superframe_ms = carriers.back.superframe_ns as f64 / 1e6;
        st.decimal(&format!("{s}.st.perf.sof_interval"), superframe_ms);
    }

    /// What the carriers hold and have left, and what was asked for.
    fn capacities(&self, gw: &mut Datagram, links: (&Direction, &Direction), seconds: f64) {
        let (s, carriers, (forward, back)) = (&self.spot, &self.carriers, links);
        let group = format!("{s}.gw.standard");
        let [assigned, _] = carriers.bursts_kbps(back, seconds);
        let symbols = carriers.back.symbol_rate as f64;
        let waveform = back.modcod_id.and_then(Waveform::by_id);
        let efficiency = waveform.map_or(1.0, Waveform::efficiency);
        let return_left = (1.0 - assigned * 1e3 / efficiency / symbols).max(0.0);
        let per_superframe = symbols * carriers.back.superframe_ns as f64 / 1e9;
        let forward_left = 1.0 - carriers.forward_use(forward, seconds);
        let per_tick = carriers.forward.symbol_rate as f64 * carriers.forward.tick_ns as f64 / 1e9;
        for (name, available, left) in [
            (
                format!("{s}.gw.up/return_total_capacity"),
                per_superframe,
                return_left,
            ),
            (
                format!("{group}.up/return_capacity.total"),
                symbols,
                return_left,
            ),
            (
                format!("{group}.up/return_capacity.carrier0"),
                symbols,
                return_left,
            ),
            (
                format!("{group}.down/forward_capacity.total"),
                per_tick,
                forward_left,
            ),
            (
                format!("{group}.down/forward_capacity.carrier0.ccm"),
                carriers.forward_kbps(forward),
                forward_left,
            ),
        ] {
            gw.whole(&format!("{name}.available"), available.round() as u64);
            gw.whole(
                &format!("{name}.remaining"),
                (available * left).round() as u64,
            );
        }
        gw.whole(&format!("{s}.gw.global.cra_allocated"), carriers.cra_kbps);
        gw.whole(&format!("{s}.gw.rbdc.rbdc_max"), carriers.rbdc_max_kbps);
        let [rbdc_kbps, vbdc_kbits] = asked(back);
        for (kind, value) in [("rbdc", rbdc_kbps), ("vbdc", vbdc_kbits)] {
            let group = format!("{s}.gw.{kind}.{kind}");
            gw.whole(&format!("{group}_requested_capacity"), value);
            let requests = back.requests.filter(|_| value > 0).unwrap_or(0);
            gw.whole(&format!("{group}_request_number"), requests);
        }
        let tick_ms = carriers.forward.tick_ns as f64 / 1e6;
        gw.decimal(&format!("{s}.gw.perf.frames_interval"), tick_ms);
    }
}

/// Rate in kbit/s and volume in kbit that the terminal asked for; of several requests in an interval the mean rate.
fn asked(back: &Direction) -> [u64; 2] {
    let (rates, bursts) = back.asked;
    let waveform = back.modcod_id.and_then(Waveform::by_id);
    let bytes = waveform.map_or(0, |it| it.payload_bytes as u64);
    let rate = rates.checked_div(back.requests.unwrap_or(0)).unwrap_or(0);
    [rate, bursts * bytes * 8 / 1000]
}

/// kbit/s of packets with their Ethernet headers.
fn kbps(bytes: u64, packets: u64, seconds: f64) -> u64 {
    ((bytes + packets * ETHERNET_HEADER as u64) as f64 * 8.0 / seconds / 1e3).round() as u64
}

struct Datagram(String);

impl Datagram {
    fn new(t_unix_s: f64) -> Self {
        Self(format!("{}", (t_unix_s * 1e3).round() as u64))
    }

    /// Writing to a String cannot fail.
    fn whole(&mut self, probe: &str, value: u64) {
        let _ = write!(self.0, " {probe} {value}");
    }

    fn decimal(&mut self, probe: &str, value: f64) {
        let _ = write!(self.0, " {probe} {value:.6}");
    }

    /// Traffic sent; or, of a receiver, received and lost.
    fn modcods(&mut self, prefix: &str, link: &Direction, received: Option<&Direction>) {
        let Some(id) = link.modcod_id.map(u64::from) else {
            return;
        };
        match received {
            None => self.whole(&format!("{prefix}.sent_modcod"), id),
            Some(link) => {
                if link.frames > link.lost_frames {
                    self.whole(&format!("{prefix}.received_modcod"), id);
                }
                if link.lost_frames > 0 {
                    self.whole(&format!("{prefix}.rejected_modcod"), id);
                }
            }
        }
    }

    /// The MODCOD that the terminal could receive.
    fn required(&mut self, prefix: &str, received: &Direction) {
        let best = |db: f64| {
            let fitting = MODCODS.iter().filter(|it| it.es_n0_db() <= db);
            fitting.max_by(|a, b| a.es_n0_db().total_cmp(&b.es_n0_db()))
        };
        if let Some(db) = received.es_n0_db {
            let id = best(db).map_or(MODCODS[0].id, |it| it.id);
            self.whole(&format!("{prefix}.required_modcod"), id.into());
        }
    }

    /// Ethernet frames of both directions on the entity's LAN.
    fn lan(&mut self, sent: &Direction, received: &Direction, seconds: f64) {
        let bytes = |bytes: u64, packets: u64| bytes + packets * ETHERNET_HEADER as u64;
        let (there, back) = (
            bytes(sent.in_bytes, sent.in_packets),
            bytes(received.out_bytes, received.out_packets),
        );
        self.whole("evc_frame_size.default", there + back);
        self.decimal(
            "evc_throughput.default",
            (there + back) as f64 * 8e-3 / seconds,
        );
    }

    /// `at`: ns since the start, and the step of attenuation.
    fn physical(&mut self, prefix: &str, own: &Entity, received: &Direction, at: (u64, u64)) {
        let physical = &own.physical;
        for (name, leg) in [
            ("uplink", &physical.uplink),
            ("downlink", &physical.downlink),
        ] {
            self.decimal(
                &format!("{prefix}.{name}_clear_sky_condition"),
                leg.clear_sky_db,
            );
            self.decimal(
                &format!("{prefix}.{name}_attenuation"),
                leg.attenuation.at(at.1),
            );
        }
        if let Some(db) = received.es_n0_db {
            self.decimal(&format!("{prefix}.total_cn"), db);
        }
        if let Some(db) = physical.minimal_es_n0_db.or(received.threshold_db) {
            self.decimal(&format!("{prefix}.minimal_condition"), db);
        }
        self.whole(&format!("{prefix}.drops"), received.lost_frames);
        self.whole(
            &format!("{prefix}.delay"),
            physical.delay.at(at.0) / 1_000_000,
        );
    }

    /// Each FIFO of an entity: with classes its own figures, else those of all for the one of packets without a tag. Lost bytes
    /// times `lost_unit` are kbit of a terminal, kbit/s of a gateway.
    fn queue(
        &mut self,
        prefix: &str,
        entity: &Entity,
        (sent, (unit, lost_unit)): (&Direction, (&str, f64)),
        seconds: f64,
    ) {
        let kbits = |bytes: u64| (bytes as f64 * 8e-3).round() as u64;
        let lost = |bytes: u64| (bytes as f64 * lost_unit).round() as u64;
        let left = kbps(sent.out_bytes, sent.out_packets, seconds);
        let of_all = || {
            [
                kbits(sent.queue_bytes),
                sent.queue_packets,
                lost(sent.dropped_bytes),
                sent.dropped_packets,
                kbps(sent.in_bytes, sent.in_packets, seconds),
                left,
            ]
        };
        let own = |fifo: &FifoLine| {
            let (packets, bytes) = fifo.offered;
            [
                kbits(fifo.queue_bytes),
                fifo.queue_packets,
                lost(fifo.dropped_bytes),
                fifo.dropped_packets,
                kbps(bytes, packets, seconds),
                kbps(fifo.sent_bytes, fifo.sent_packets, seconds),
            ]
        };
        let names = [
            "queue_size.capacity",
            "queue_size.packets",
            &format!("queue_loss.{unit}"),
            "queue_loss.packets",
            "throughputs.l2_to_sat_before_sched",
            "throughputs.l2_to_sat_after_sched",
        ];
        for name in &entity.fifos {
            let lines = sent.fifos.iter();
            let mut lines = lines.filter(|it| it.fifo.to_lowercase() == *name);
            // One without packets has no line.
            let values = match lines.next().filter(|_| entity.has_classes) {
                Some(line) => own(line),
                None if *name == entity.fifo && !entity.has_classes => of_all(),
                None => [0; 6],
            };
            for (family, value) in names.iter().zip(values) {
                self.whole(&format!("{prefix}.{family}.{name}"), value);
            }
        }
        self.whole(
            &format!("{prefix}.throughputs.l2_to_sat_after_sched.total"),
            left,
        );
    }

    fn end(mut self, entity: &str) -> String {
        let _ = write!(self.0, " entity {entity}");
        self.0
    }
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
