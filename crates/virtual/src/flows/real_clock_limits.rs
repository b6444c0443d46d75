// SPDX-License-Identifier: GPL-3.0-or-later
//! Options that neither the real clock nor the programs that run there offer.

use schema::Faults;

use super::kind::Kind;
use super::spec::{Flow, Spec};

/// Most flows on the real clock, where each has two processes.
const REAL_FLOWS: usize = 64;

/// An option of a flow, and whether its program offers it.
struct GivenOption {
    field: &'static str,
    is_given: bool,
    is_offered: bool,
}

impl Spec {
    /// Adds a fault for each option that the real clock does not offer.
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
    /// Adds a fault for each option that the flow's program does not offer.
    pub(super) fn real_faults(&self, place: &str, faults: &mut Faults) {
        let is_one_of = |names: &[Kind]| names.contains(&self.stack);
        let options = [
            GivenOption {
                field: "migrate_s",
                is_given: !self.migrate_s.is_empty(),
                is_offered: is_one_of(&[Kind::Quinn, Kind::Noq, Kind::Ngtcp2]),
            },
            GivenOption {
                field: "careful_resume",
                is_given: self.careful_resume.is_some(),
                is_offered: false,
            },
            GivenOption {
                field: "slow_start",
                is_given: self.slow_start.is_some(),
                is_offered: is_one_of(&[Kind::Quinn]),
            },
            GivenOption {
                field: "initial_window",
                is_given: self.initial_window.is_some(),
                is_offered: is_one_of(&[Kind::Quinn, Kind::Noq, Kind::Quiche]),
            },
            GivenOption {
                field: "ack_threshold",
                is_given: self.ack_threshold.is_some(),
                is_offered: is_one_of(&[Kind::Quinn, Kind::Noq, Kind::Ngtcp2]),
            },
            GivenOption {
                field: "max_ack_delay_ms",
                is_given: self.max_ack_delay_ms.is_some(),
                is_offered: is_one_of(&[Kind::Quinn, Kind::Noq]),
            },
            GivenOption {
                field: "window_bytes",
                is_given: self.window_bytes.is_some(),
                is_offered: !is_one_of(&[Kind::Picoquic, Kind::Tcp]),
            },
            GivenOption {
                field: "datagram_bytes",
                is_given: self.datagram_bytes.is_some(),
                is_offered: is_one_of(&[Kind::Ngtcp2, Kind::Udp, Kind::Tcp]),
            },
        ];
        // Options that udp does not offer are a fault on every clock.
        if self.stack != Kind::Udp {
            for option in options.iter().filter(|it| it.is_given && !it.is_offered) {
                faults.push(format!(
                    "{place}.{}: {} has none on the real clock (remove it)",
                    option.field,
                    self.stack.name()
                ));
            }
        }
        self.program_faults(place, faults);
    }

    /// Adds a fault for what a program does not do at all, or not so often.
    fn program_faults(&self, place: &str, faults: &mut Faults) {
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
    fn options_that_a_program_does_not_offer_are_refused() {
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
