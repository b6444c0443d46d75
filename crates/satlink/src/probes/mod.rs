// SPDX-License-Identifier: GPL-3.0-or-later
//! Samples for the collectors of `OpenSAND` 8.2: its probe names and units, one datagram per entity
//! and sample.
//!
//! Of several terminals each has a datagram, and the gateway one with the figures of all.
//!
//! A datagram is `<epoch ms> <probe> <value> <probe> <value> ... entity <name>`. Probes without a
//! counterpart here (a satellite, grants by kind) are left out. Throughputs count the Ethernet
//! frames that `OpenSAND` carries: 14 bytes more a packet than the IP packets here. Delay and
//! attenuation are those of the profile; link changes are not in them. Log lines go to the port
//! after that of the probes, as in `OpenSAND` (5361 and 5362).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use emulator::config::{Config, Probes};
use emulator::network::of_platform;
use profile::Profile;

use self::carriers::{Carriers, Group, asked};
use self::datagram::{Datagram, Entity, Interval, kbps};
use self::part::Part;
use crate::samples::{Direction, Sample};
use crate::sys;

mod carriers;
mod datagram;
mod part;

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
    pub fn new(probes: &Probes, config: &Config, profile: &Profile) -> io::Result<Self> {
        let address = probes.address;
        let socket = reach(probes, address)?;
        let entities = Entities::of(profile, &further(config, profile));
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

/// The further terminals: `st` and the id of those of the profile, the lab's names of equal ones.
fn further(config: &Config, profile: &Profile) -> Vec<(String, Profile)> {
    let is_own = config.has_own_profiles();
    let name = |id: u8| {
        if is_own {
            format!("st{id}")
        } else {
            format!("st-{}", id + 1)
        }
    };
    let platform = of_platform(config, profile).into_iter();
    let further = platform.skip(1).map(|(id, seen)| (name(id), seen));
    further.take(config.terminals.len()).collect()
}

/// Names and constants of the ground entities of one gateway.
#[derive(Debug)]
struct Entities {
    spot: String,
    /// Those with packets, the profile's ST first.
    sts: Vec<Entity>,
    gw: Entity,
    /// Groups of terminals that share carriers, that of the first terminal first.
    groups: Vec<Group>,
    step_ns: u64,
    /// Unix time of the first sample, s: attenuation and delay start there.
    started: OnceLock<f64>,
}

impl Entities {
    fn of(profile: &Profile, further: &[(String, Profile)]) -> Self {
        let has_classes = profile.is_on_demand() || !further.is_empty();
        let st = |name: String, seen: &Profile| {
            let own = &seen.st_profile;
            Entity::new(name, &own.physical, &own.qos, has_classes)
        };
        let first = st(format!("st{}", profile.st.id), profile);
        let further_sts = further.iter().map(|(name, seen)| st(name.clone(), seen));
        let all = std::iter::once(profile).chain(further.iter().map(|(_, seen)| seen));
        Self {
            // The gateway's number is the spot's.
            spot: format!("spot_{}", profile.gw.id),
            sts: std::iter::once(first).chain(further_sts).collect(),
            gw: Entity::new(
                format!("gw{}", profile.gw.id),
                &profile.gw_physical,
                &profile.gw_qos,
                profile.gw_qos.is_tagged,
            ),
            groups: Group::of(&all.collect::<Vec<_>>()),
            step_ns: u64::from(profile.settings.acm_refresh_ms) * 1_000_000,
            started: OnceLock::new(),
        }
    }

    /// A log line of each entity, in the form of `OpenSAND`'s logs without the date.
    fn status(&self, text: &str) -> Vec<String> {
        let entities = std::iter::once(&self.gw).chain(&self.sts);
        entities
            .map(|entity| format!("[EVENT][{}][status] {text}", entity.name))
            .collect()
    }

    /// The datagrams of a sample; none where another emulator carries the satellite segment.
    fn datagrams(&self, sample: &Sample) -> Vec<String> {
        let (Some(forward), Some(back)) = (sample.forward(), sample.back()) else {
            return Vec::new();
        };
        let seconds = sample.seconds;
        let started = *self.started.get_or_init(|| sample.t_unix_s - seconds);
        let now = ((sample.t_unix_s - seconds - started).max(0.0) * 1e9) as u64;
        let interval = Interval {
            t_unix_s: sample.t_unix_s,
            seconds,
            since_start_ns: now,
            step: now / self.step_ns.max(1) + 1,
        };
        let parts = Part::of_terminals(forward).zip(Part::of_terminals(back));
        let of_sts = parts.enumerate().take(self.sts.len());
        of_sts
            .map(|(index, (forward, back))| self.of_st(index, [&forward, &back], &interval))
            .chain([self.of_gw(forward, back, &interval)])
            .collect()
    }

    fn of_st(&self, index: usize, links: [&Part<'_>; 2], of: &Interval) -> String {
        let (s, seconds, [forward, back]) = (&self.spot, of.seconds, links);
        let st = &self.sts[index];
        let mut found = Datagram::new(of.t_unix_s);
        let down = format!("{s}.st.down_forward_modcod");
        found.modcods("up_return_modcod", back, None);
        found.modcods(&down, forward, Some(forward));
        found.physical(&format!("{s}.st.phy"), st, forward, of);
        let lost = ("capacity", 8e-3);
        found.queue(&format!("{s}.st"), st, (back, lost), seconds);
        let received = kbps(forward.all.sent, seconds);
        found.whole(&format!("{s}.st.throughputs.l2_from_sat.total"), received);
        found.required(&down, forward);
        found.lan(back, forward, seconds);
        let group = self.groups.iter().find(|it| it.members.contains(&index));
        let carriers = &group.unwrap_or(&self.groups[0]).carriers;
        carriers.allocation(&mut found, &format!("{s}.st"), back, seconds);
        found.end(&st.name)
    }

    fn of_gw(&self, forward: &Direction, back: &Direction, of: &Interval) -> String {
        let (s, seconds) = (&self.spot, of.seconds);
        let (sent, received) = (Part::of(forward), Part::of(back));
        let mut found = Datagram::new(of.t_unix_s);
        found.modcods(&format!("{s}.gw.up_forward_modcod"), &sent, None);
        let down = format!("{s}.gw.down_return_modcod");
        found.modcods(&down, &received, Some(&received));
        found.physical(&format!("{s}.gw.phy"), &self.gw, &received, of);
        for group in &self.groups {
            self.of_group(&mut found, group, [forward, back], seconds);
        }
        let from_sat = kbps(received.all.sent, seconds);
        found.whole(&format!("{s}.gw.throughputs.l2_from_sat"), from_sat);
        found.whole(&format!("{s}.gw.global.st_number"), self.sts.len() as u64);
        found.lan(&sent, &received, seconds);
        self.of_all_groups(&mut found, back, seconds);
        found.end(&self.gw.name)
    }

    fn of_group(&self, found: &mut Datagram, group: &Group, links: [&Direction; 2], seconds: f64) {
        let prefix = format!("{}.gw.{}", self.spot, group.name);
        let [sent, received] = links.map(|it| group.part(it));
        let lost = ("rate", 8e-3 / seconds);
        found.queue(&prefix, &self.gw, (&sent, lost), seconds);
        // A frame with packets of several terminals counts for each of them: only all together are
        // known, or one alone.
        if self.groups.len() == 1 || group.members.len() == 1 {
            found.whole(&format!("{prefix}.global.bbframe_number"), sent.frames);
            (group.carriers).forward_capacities(found, &prefix, &sent, seconds);
        }
        (group.carriers).return_capacities(found, &prefix, &received, seconds);
    }

    /// What was asked for, and what the return carriers of all groups hold and have left.
    fn of_all_groups(&self, gw: &mut Datagram, back: &Direction, seconds: f64) {
        let s = &self.spot;
        let sum = |value: fn(&Carriers) -> u64| {
            let all = self.groups.iter().map(|it| value(&it.carriers));
            all.sum::<u64>()
        };
        let of_groups = self.groups.iter();
        let of_groups = of_groups
            .map(|it| (it.carriers).per_superframe(&it.part(back), seconds))
            .fold([0.0, 0.0], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        for (name, value) in ["available", "remaining"].iter().zip(of_groups) {
            let name = format!("{s}.gw.up/return_total_capacity.{name}");
            gw.whole(&name, value.round() as u64);
        }
        gw.whole(
            &format!("{s}.gw.global.cra_allocated"),
            sum(|it| it.cra_kbps),
        );
        gw.whole(&format!("{s}.gw.rbdc.rbdc_max"), sum(|it| it.rbdc_max_kbps));
        let back = Part::of(back);
        let [rbdc_kbps, vbdc_kbits] = asked(&back);
        for (kind, value) in [("rbdc", rbdc_kbps), ("vbdc", vbdc_kbits)] {
            let group = format!("{s}.gw.{kind}.{kind}");
            gw.whole(&format!("{group}_requested_capacity"), value);
            let requests = back.requests.filter(|_| value > 0).unwrap_or(0);
            gw.whole(&format!("{group}_request_number"), requests);
        }
        let tick_ms = self.groups[0].carriers.forward.tick_ns as f64 / 1e6;
        gw.decimal(&format!("{s}.gw.perf.frames_interval"), tick_ms);
    }
}

#[cfg(test)]
mod tests;
