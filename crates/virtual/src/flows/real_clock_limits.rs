// SPDX-License-Identifier: GPL-3.0-or-later
//! What the real clock, and the programs that run there, have not.

use schema::Faults;

use super::kind::Kind;
use super::spec::{Flow, Spec};

/// Most flows on the real clock, where each has two processes.
const REAL_FLOWS: usize = 64;

impl Spec {
    /// What the real clock has not.
    pub(super) fn real_faults(&self, faults: &mut Faults) {
        if self.flows.len() > REAL_FLOWS {
            faults.push(format!(
                "flows: {} are too many for the real clock (at most {REAL_FLOWS})",
                self.flows.len()
            ));
        }
        let moving = self.flows.iter().position(|it| !it.migrate_s.is_empty());
        if let (Some(index), true) = (moving, self.fec.is_some()) {
            faults.push(format!(
                "flows[{index}].migrate_s: a tunnel has one address a side on the real clock (remove it, or fec)"
            ));
        }
    }
}

impl Flow {
    /// What of the options the program has not, or none that is of one flow.
    pub(super) fn real_faults(&self, place: &str, faults: &mut Faults) {
        let is = |names: &[Kind]| names.contains(&self.stack);
        let given = [
            (
                "migrate_s",
                !self.migrate_s.is_empty(),
                is(&[Kind::Quinn, Kind::Noq, Kind::Ngtcp2]),
            ),
            ("careful_resume", self.careful_resume.is_some(), false),
            (
                "initial_window",
                self.initial_window.is_some(),
                is(&[Kind::Quinn, Kind::Noq, Kind::Quiche]),
            ),
            (
                "ack_threshold",
                self.ack_threshold.is_some(),
                is(&[Kind::Quinn, Kind::Noq, Kind::Ngtcp2]),
            ),
            (
                "max_ack_delay_ms",
                self.max_ack_delay_ms.is_some(),
                is(&[Kind::Quinn, Kind::Noq]),
            ),
            (
                "window_bytes",
                self.window_bytes.is_some(),
                !is(&[Kind::Picoquic, Kind::Tcp]),
            ),
            (
                "datagram_bytes",
                self.datagram_bytes.is_some(),
                is(&[Kind::Ngtcp2, Kind::Udp, Kind::Tcp]),
            ),
        ];
        // What udp has not is a fault on every clock.
        let is_transport = self.stack != Kind::Udp;
        for (field, ..) in given.iter().filter(|it| is_transport && it.1 && !it.2) {
            faults.push(format!(
                "{place}.{field}: {} has none on the real clock (remove it)",
                self.stack.name()
            ));
        }
        if self.stack == Kind::Picoquic && !self.is_forward() {
            faults.push(format!(
                "{place}.from: picoquic's client sends nothing (name a server; or ngtcp2)"
            ));
        }
        if self.stack == Kind::Ngtcp2 && self.migrate_s.len() > 1 {
            faults.push(format!(
                "{place}.migrate_s: ngtcp2 takes another address once (name one time; or quinn, noq)"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spec::{
        Clock,
        tests::{assert_faults, two_flows},
    };
    use super::*;

    #[test]
    fn the_real_clock_has_other_stacks() {
        let mut value = two_flows();
        value["flows"][0]["stack"] = json!("ngtcp2");
        value["flows"][0]["congestion_control"] = json!("bbr2");
        value["flows"][0]["datagram_bytes"] = json!(1200);
        value["flows"][1]["stack"] = json!("tcp");
        value["flows"][1]["datagram_bytes"] = json!(1372);
        value["tcp_hystart"] = json!(false);
        value["fec"] = json!({"code": "2,100", "hold_ms": 0});
        let text = value.to_string();
        assert_eq!(Spec::parse(&text, Clock::Real).unwrap().flows.len(), 2);
        let faults = Spec::parse(&text, Clock::Virtual).unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("flows[0].stack: ngtcp2 runs on the real clock alone"));
    }

    #[test]
    fn what_a_program_has_not_is_refused() {
        let mut value = two_flows();
        value["tcp_hystart"] = json!(false);
        value["flows"][0]["stack"] = json!("quiche");
        value["flows"][0]["congestion_control"] = json!("bbr2");
        value["flows"][1]["congestion_control"] = json!("bbr2");
        value["flows"][1]["datagram_bytes"] = json!(1200);
        let faults = Spec::parse(&value.to_string(), Clock::Real).unwrap_err();
        assert_faults(
            &faults,
            &[
                "tcp_hystart: no flow has stack tcp",
                "flows[0].congestion_control: bbr2 is not offered with quiche (one of: reno, cubic, bbr)",
                "flows[1].congestion_control: bbr2 is not offered with quinn",
                "flows[1].datagram_bytes: quinn has none on the real clock",
            ],
        );
    }

    #[test]
    fn picoquic_sends_from_a_server_what_it_decides_itself() {
        let mut value = two_flows();
        value["flows"][0]["stack"] = json!("picoquic");
        value["flows"][0]["congestion_control"] = json!("bbr");
        assert!(Spec::parse(&value.to_string(), Clock::Real).is_ok());
        value["flows"][0]["from"] = json!("client1");
        value["flows"][0]["to"] = json!("server1");
        value["flows"][0]["congestion_control"] = json!("bbr2");
        value["flows"][0]["ack_threshold"] = json!(16);
        value["flows"][0]["window_bytes"] = json!(70_000);
        let faults = Spec::parse(&value.to_string(), Clock::Real).unwrap_err();
        assert_faults(
            &faults,
            &[
                "flows[0].from: picoquic's client sends nothing",
                "flows[0].congestion_control: bbr2 is not offered with picoquic (one of: reno, cubic, bbr, bbr3)",
                "flows[0].ack_threshold: picoquic has none on the real clock",
                "flows[0].window_bytes: picoquic has none on the real clock",
            ],
        );
    }

    #[test]
    fn another_address_is_for_a_running_flow_whose_program_can() {
        let mut value = two_flows();
        value["flows"][0]["migrate_s"] = json!([5, 7]);
        value["flows"][1]["stack"] = json!("ngtcp2");
        value["flows"][1]["migrate_s"] = json!([5]);
        assert!(Spec::parse(&value.to_string(), Clock::Real).is_ok());
        value["fec"] = json!({"code": "2,100", "hold_ms": 0});
        value["flows"][0]["migrate_s"] = json!([5, 10]);
        value["flows"][1]["migrate_s"] = json!([1, 5]);
        let mut other = value["flows"][1].clone();
        other["id"] = json!("c");
        other["stack"] = json!("quiche");
        other["migrate_s"] = json!([5]);
        value["flows"].as_array_mut().unwrap().push(other);
        let faults = Spec::parse(&value.to_string(), Clock::Real).unwrap_err();
        assert_faults(
            &faults,
            &[
                "flows[0].migrate_s: a tunnel has one address a side",
                "flows[0].migrate_s: 10 is not while the flow runs, 0 to 10 s",
                "flows[1].migrate_s: 1 is not while the flow runs, 1 to 10 s",
                "flows[1].migrate_s: ngtcp2 takes another address once",
                "flows[2].migrate_s: quiche has none on the real clock",
            ],
        );
    }

    #[test]
    fn the_real_clock_has_so_many_flows() {
        let mut value = two_flows();
        let flow = value["flows"][0].clone();
        let many = (0..=REAL_FLOWS).map(|index| {
            let mut flow = flow.clone();
            flow["id"] = index.to_string().into();
            flow["from"] = json!(["server1", "server2"][index % 2]);
            flow["to"] = json!(["client1", "client2"][index % 2]);
            flow
        });
        value["flows"] = many.collect();
        let text = value.to_string();
        let faults = Spec::parse(&text, Clock::Real).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with("flows: 65 are too many"));
        assert!(Spec::parse(&text, Clock::Virtual).is_ok());
    }
}
