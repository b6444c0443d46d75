// SPDX-License-Identifier: GPL-3.0-or-later
//! Datagrams of probes in the making.

use std::fmt::Write;

use dvb::modcod::MODCODS;
use dvb::sdu::ETHERNET_HEADER;
use link::Volume;
use profile::{Physical, Qos};

use super::part::{FifoFigures, Part};

#[derive(Debug)]
pub(super) struct Entity {
    pub name: String,
    /// Where packets without a tag wait, lower case.
    pub fifo: String,
    /// All FIFOs, lower case.
    fifos: Vec<String>,
    /// Packets wait in the FIFO of their class.
    has_classes: bool,
    physical: Physical,
}

impl Entity {
    pub fn new(name: String, physical: &Physical, qos: &Qos, has_classes: bool) -> Self {
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

/// When a sample ends, its length, when it begins since the first one's beginning, and the step of
/// attenuation then.
pub(super) struct Interval {
    pub t_unix_s: f64,
    pub seconds: f64,
    pub since_start_ns: u64,
    pub step: u64,
}

/// Bytes of packets with their Ethernet headers.
fn ethernet(traffic: Volume) -> u64 {
    traffic.bytes + traffic.packets * ETHERNET_HEADER as u64
}

/// The same, kbit/s.
pub(super) fn kbps(traffic: Volume, seconds: f64) -> u64 {
    (ethernet(traffic) as f64 * 8.0 / seconds / 1e3).round() as u64
}

/// A datagram in the making.
pub(super) struct Datagram(String);

impl Datagram {
    pub fn new(t_unix_s: f64) -> Self {
        Self(format!("{}", (t_unix_s * 1e3).round() as u64))
    }

    /// Writing to a String cannot fail.
    pub fn whole(&mut self, probe: &str, value: u64) {
        let _ = write!(self.0, " {probe} {value}");
    }

    pub fn decimal(&mut self, probe: &str, value: f64) {
        let _ = write!(self.0, " {probe} {value:.6}");
    }

    /// What there is of a capacity, and this part of it, which is left.
    pub fn capacity(&mut self, name: &str, available: f64, left: f64) {
        self.whole(&format!("{name}.available"), available.round() as u64);
        let left = (available * left).round() as u64;
        self.whole(&format!("{name}.remaining"), left);
    }

    /// Traffic sent; or, of a receiver, received and lost.
    pub fn modcods(&mut self, prefix: &str, link: &Part<'_>, received: Option<&Part<'_>>) {
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
    pub fn required(&mut self, prefix: &str, received: &Part<'_>) {
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
    pub fn lan(&mut self, sent: &Part<'_>, received: &Part<'_>, seconds: f64) {
        let (there, back) = (ethernet(sent.all.offered), ethernet(received.all.sent));
        self.whole("evc_frame_size.default", there + back);
        self.decimal(
            "evc_throughput.default",
            (there + back) as f64 * 8e-3 / seconds,
        );
    }

    pub fn physical(&mut self, prefix: &str, own: &Entity, received: &Part<'_>, of: &Interval) {
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
                leg.attenuation.at(of.step),
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
            physical.delay.at(of.since_start_ns) / 1_000_000,
        );
    }

    /// Each FIFO of an entity: with classes its own figures, else those of all for the one of
    /// packets without a tag. Lost bytes times `lost_unit` are kbit of a terminal, kbit/s of a
    /// gateway.
    pub fn queue(
        &mut self,
        prefix: &str,
        entity: &Entity,
        (sent, (unit, lost_unit)): (&Part<'_>, (&str, f64)),
        seconds: f64,
    ) {
        let names = [
            "queue_size.capacity",
            "queue_size.packets",
            &format!("queue_loss.{unit}"),
            "queue_loss.packets",
            "throughputs.l2_to_sat_before_sched",
            "throughputs.l2_to_sat_after_sched",
        ];
        for name in &entity.fifos {
            let found = if entity.has_classes {
                sent.fifo(name)
            } else if *name == entity.fifo {
                sent.all
            } else {
                FifoFigures::default()
            };
            let values = [
                (found.queue.bytes as f64 * 8e-3).round() as u64,
                found.queue.packets,
                (found.dropped.bytes as f64 * lost_unit).round() as u64,
                found.dropped.packets,
                kbps(found.offered, seconds),
                kbps(found.sent, seconds),
            ];
            for (family, value) in names.iter().zip(values) {
                self.whole(&format!("{prefix}.{family}.{name}"), value);
            }
        }
        let left = kbps(sent.all.sent, seconds);
        self.whole(
            &format!("{prefix}.throughputs.l2_to_sat_after_sched.total"),
            left,
        );
    }

    pub fn end(mut self, entity: &str) -> String {
        let _ = write!(self.0, " entity {entity}");
        self.0
    }
}
