// SPDX-License-Identifier: GPL-3.0-or-later
//! Samples for the collectors of `OpenSAND` 8.2: its probe names and units, one datagram per entity and sample.
//!
//! A datagram is `<epoch ms> <probe> <value> <probe> <value> ... entity <name>`. Probes without a counterpart here (a
//! satellite, requests of terminals, the parts of the two legs) are left out. Throughputs count the Ethernet frames that
//! `OpenSAND` carries: 14 bytes more a packet than the IP packets here.

use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use dvb::sdu::ETHERNET_HEADER;
use emulator::config::Probes;
use profile::{Leg, Physical, Profile, Qos};

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
        let socket = match &probes.netns {
            Some(netns) => sys::in_namespace(&namespace(netns), move || connect(address))?,
            None => connect(address)?,
        };
        let entities = Entities::of(profile);
        Ok(Self { socket, entities })
    }

    /// Sends a sample. Losses are ignored.
    pub(crate) fn send(&self, sample: &Sample) {
        for datagram in self.entities.datagrams(sample) {
            let _ = self.socket.send(datagram.as_bytes());
        }
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
}

#[derive(Debug)]
struct Entity {
    name: String,
    /// Where packets without a tag wait, lower case.
    fifo: String,
    /// `Es/N0` without attenuation of what it sends and of what it receives, dB.
    clear_sky_db: [f64; 2],
    minimal_es_n0_db: Option<f64>,
}

impl Entity {
    fn new(name: String, physical: &Physical, qos: &Qos) -> Self {
        let fifo = qos
            .fifo_of_pcp(qos.default_pcp)
            .map(|at| &qos.fifos[at].name);
        let clear_sky = |leg: &Leg| leg.clear_sky_db;
        Self {
            name,
            fifo: fifo.map_or_else(|| "be".into(), |name| name.to_lowercase()),
            clear_sky_db: [&physical.uplink, &physical.downlink].map(clear_sky),
            minimal_es_n0_db: physical.minimal_es_n0_db,
        }
    }
}

impl Entities {
    fn of(profile: &Profile) -> Self {
        let (st, gw) = (&profile.st_profile, &profile.gw_physical);
        Self {
            // The gateway's number is the spot's.
            spot: format!("spot_{}", profile.gw.id),
            st: Entity::new(format!("st{}", profile.st.id), &st.physical, &st.qos),
            gw: Entity::new(format!("gw{}", profile.gw.id), gw, &profile.gw_qos),
        }
    }

    /// The datagrams of a sample; none where another emulator carries the satellite segment.
    fn datagrams(&self, sample: &Sample) -> Vec<String> {
        let (Some(forward), Some(back)) = (sample.forward(), sample.back()) else {
            return Vec::new();
        };
        let (s, seconds) = (&self.spot, sample.seconds);
        let mut st = Datagram::new(sample.t_unix_s);
        st.modcods("up_return_modcod", back, None);
        st.modcods(
            &format!("{s}.st.down_forward_modcod"),
            forward,
            Some(forward),
        );
        st.physical(&format!("{s}.st.phy"), &self.st, forward);
        st.queue(&format!("{s}.st"), &self.st.fifo, back, seconds);
        let received = kbps(forward.out_bytes, forward.out_packets, seconds);
        st.whole(&format!("{s}.st.throughputs.l2_from_sat.total"), received);
        let mut gw = Datagram::new(sample.t_unix_s);
        let group = format!("{s}.gw.standard");
        gw.modcods(&format!("{s}.gw.up_forward_modcod"), forward, None);
        gw.modcods(&format!("{s}.gw.down_return_modcod"), back, Some(back));
        gw.physical(&format!("{s}.gw.phy"), &self.gw, back);
        gw.queue(&group, &self.gw.fifo, forward, seconds);
        gw.whole(&format!("{group}.global.bbframe_number"), forward.frames);
        let received = kbps(back.out_bytes, back.out_packets, seconds);
        gw.whole(&format!("{s}.gw.throughputs.l2_from_sat"), received);
        gw.whole(&format!("{s}.gw.global.st_number"), 1);
        vec![st.end(&self.st.name), gw.end(&self.gw.name)]
    }
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

    fn decibel(&mut self, probe: &str, value: f64) {
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

    fn physical(&mut self, prefix: &str, entity: &Entity, received: &Direction) {
        let [up, down] = entity.clear_sky_db;
        self.decibel(&format!("{prefix}.uplink_clear_sky_condition"), up);
        self.decibel(&format!("{prefix}.downlink_clear_sky_condition"), down);
        if let Some(db) = received.es_n0_db {
            self.decibel(&format!("{prefix}.total_cn"), db);
        }
        if let Some(db) = entity.minimal_es_n0_db.or(received.threshold_db) {
            self.decibel(&format!("{prefix}.minimal_condition"), db);
        }
        self.whole(&format!("{prefix}.drops"), received.lost_frames);
    }

    fn queue(&mut self, prefix: &str, fifo: &str, sent: &Direction, seconds: f64) {
        let kbits = (sent.queue_bytes as f64 * 8e-3).round() as u64;
        let offered = kbps(sent.in_bytes, sent.in_packets, seconds);
        self.whole(&format!("{prefix}.queue_size.capacity.{fifo}"), kbits);
        self.whole(
            &format!("{prefix}.queue_size.packets.{fifo}"),
            sent.queue_packets,
        );
        self.whole(
            &format!("{prefix}.queue_loss.packets.{fifo}"),
            sent.dropped_packets,
        );
        let before = format!("{prefix}.throughputs.l2_to_sat_before_sched.{fifo}");
        self.whole(&before, offered);
    }

    fn end(mut self, entity: &str) -> String {
        let _ = write!(self.0, " entity {entity}");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use link::{Carrier, Counters};

    use crate::samples::sampled;
    use emulator::drive::Snapshot;

    /// A second reading of the format: time, entity, and every probe with its value.
    fn decoded(datagram: &str) -> (u64, &str, BTreeMap<&str, f64>) {
        let words: Vec<_> = datagram.split(' ').collect();
        assert!(words.len() % 2 == 1, "{datagram}");
        let pairs = words[1..].chunks(2).map(|pair| (pair[0], pair[1]));
        let mut probes: BTreeMap<_, _> = pairs.collect();
        let entity = probes.remove("entity").unwrap();
        let values = probes
            .into_iter()
            .map(|(name, value)| (name, value.parse().unwrap()));
        (words[0].parse().unwrap(), entity, values.collect())
    }

    fn snapshot(carrier: Carrier, es_n0_db: Option<f64>) -> Snapshot {
        let counters = Counters {
            packets_in: 100,
            bytes_in: 100_000,
            packets_out: 50,
            bytes_out: 50_000,
            packets_dropped: 7,
            frames_sent: 60,
            frames_lost: 2,
            ..Counters::default()
        };
        Snapshot {
            heard: None,
            counters,
            queue: (12_500, 9),
            carrier,
            es_n0_db,
            tick: 1,
            refused: (0, 0),
            late: None,
            late_packets: 0,
        }
    }

    #[test]
    fn datagrams_have_opensand_s_names_units_and_shape() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../opensand-profiles/geo");
        let profile = profile::load(dir.as_ref()).unwrap();
        let carriers = [
            Carrier::Forward {
                symbol_rate: 1,
                modcod: profile.forward.modcod,
                frame_size: dvb::modcod::FrameSize::Normal,
                pilots: false,
                label: [0; 6],
            },
            Carrier::Return {
                symbol_rate: 1,
                waveform: profile.return_link.waveform,
                superframe: 1,
                slots: 1,
            },
        ];
        let radio = carriers.map(|carrier| Some(snapshot(carrier, Some(7.25))));
        let wire = || Some(snapshot(Carrier::Wire, None));
        let [forward, back] = radio;
        // An interval of 100 ms that ends at 1000.1 s.
        let sample = sampled(&[forward, back, wire(), wire()]);
        let entities = Entities::of(&profile);
        let datagrams = entities.datagrams(&sample);
        let (at, entity, st) = decoded(&datagrams[0]);
        assert_eq!((at, entity), (1_000_100, "st1"));
        let expected = [
            ("up_return_modcod.sent_modcod", 12.0),
            ("spot_0.st.down_forward_modcod.received_modcod", 1.0),
            ("spot_0.st.down_forward_modcod.rejected_modcod", 1.0),
            ("spot_0.st.phy.uplink_clear_sky_condition", 20.0),
            ("spot_0.st.phy.downlink_clear_sky_condition", 20.0),
            ("spot_0.st.phy.total_cn", 7.25),
            ("spot_0.st.phy.minimal_condition", -2.35),
            ("spot_0.st.phy.drops", 2.0),
            ("spot_0.st.queue_size.capacity.be", 100.0),
            ("spot_0.st.queue_size.packets.be", 9.0),
            ("spot_0.st.queue_loss.packets.be", 7.0),
            // 101 400 bytes and 50 700 bytes in 0.1 s.
            ("spot_0.st.throughputs.l2_to_sat_before_sched.be", 8112.0),
            ("spot_0.st.throughputs.l2_from_sat.total", 4056.0),
        ];
        assert_eq!(st, BTreeMap::from(expected));
        let (_, entity, gw) = decoded(&datagrams[1]);
        assert_eq!(entity, "gw0");
        for (name, value) in [
            ("spot_0.gw.up_forward_modcod.sent_modcod", 1.0),
            ("spot_0.gw.down_return_modcod.received_modcod", 12.0),
            ("spot_0.gw.phy.total_cn", 7.25),
            ("spot_0.gw.standard.queue_size.packets.be", 9.0),
            ("spot_0.gw.standard.global.bbframe_number", 60.0),
            ("spot_0.gw.throughputs.l2_from_sat", 4056.0),
            ("spot_0.gw.global.st_number", 1.0),
        ] {
            assert!((gw[name] - value).abs() < 1e-9, "{name}");
        }
        assert!(datagrams[0].contains(" spot_0.st.phy.total_cn 7.250000 "));
        let terrestrial = sampled(&[None, None, wire(), wire()]);
        assert!(entities.datagrams(&terrestrial).is_empty());
    }
}
