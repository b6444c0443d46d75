// SPDX-License-Identifier: GPL-3.0-or-later

use super::*;
use crate::control::Control;
use rcgen::{CertificateParams, KeyPair};

const MS: Duration = Duration::from_millis(1);
const FRAME: u16 = 1412;
/// One way.
const DELAY: Duration = Duration::from_millis(20);

/// Certificate and key of an authority that signs itself, for this name.
fn roles(name: &str) -> [Role; 2] {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [cert, secret] = ["cert", "key"].map(|it| folder.path().join(it));
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&secret, key.serialize_pem()).unwrap();
    let client = quic::client_crypto(&cert, &[ALPN], false).unwrap();
    let server = quic::server_crypto(&cert, &secret, &[ALPN], false).unwrap();
    [
        Role::Client(client.into(), "satfec.test".into()),
        Role::Server(server.into()),
    ]
}

fn carrier(role: Role, control: Control, now: Instant) -> Carrier {
    let setup = Setup {
        role,
        peer: "198.18.1.2:5800".parse().unwrap(),
        control: control.factory(),
        longest: FRAME,
    };
    Carrier::new(setup, now)
}

/// Both ends and what is on its way: when it arrives, at which end.
struct Wire {
    ends: [Carrier; 2],
    roles: [Role; 2],
    control: Control,
    now: Instant,
    way: VecDeque<(Instant, usize, Vec<u8>)>,
    frames: [Vec<Bytes>; 2],
    longest: usize,
    datagrams: u64,
}

impl Wire {
    fn new(roles: [Role; 2], control: Control) -> Self {
        let now = Instant::now();
        Self {
            ends: roles.clone().map(|role| carrier(role, control, now)),
            roles,
            control,
            now,
            way: VecDeque::new(),
            frames: Default::default(),
            longest: 0,
            datagrams: 0,
        }
    }

    /// Starts an end anew.
    fn restart(&mut self, end: usize) {
        self.ends[end] = carrier(self.roles[end].clone(), self.control, self.now);
    }

    /// Lets time pass; of the datagrams from the client one of `loses` is lost, 0: none.
    fn pass(&mut self, time: Duration, loses: u64) {
        let end = self.now + time;
        while self.now < end {
            while self.way.front().is_some_and(|it| it.0 <= self.now) {
                let (_, to, datagram) = self.way.pop_front().unwrap();
                self.ends[to].receive(self.now, &datagram);
            }
            for side in 0..2 {
                self.ends[side].timeout(self.now);
                let mut buffer = Vec::new();
                while self.ends[side].transmit(self.now, &mut buffer) {
                    self.longest = self.longest.max(buffer.len());
                    self.datagrams += u64::from(side == 0);
                    if side == 1 || loses == 0 || self.datagrams % loses != 0 {
                        self.way
                            .push_back((self.now + DELAY, 1 - side, buffer.clone()));
                    }
                }
                self.frames[side].extend(std::iter::from_fn(|| self.ends[side].arrived()));
            }
            self.now += MS;
        }
    }
}

fn connected(control: Control) -> Wire {
    let mut wire = Wire::new(roles("satfec.test"), control);
    wire.pass(200 * MS, 0);
    assert!(wire.ends.iter().all(|it| it.carried().connections == 1));
    wire
}

#[test]
// promise: P72
fn frames_of_the_longest_length_cross_in_both_directions() {
    let mut wire = connected(Control::Cubic);
    for side in 0..2 {
        for number in 0..20 {
            wire.ends[side].send(&[number; FRAME as usize]);
        }
    }
    wire.pass(300 * MS, 0);
    for side in 0..2 {
        let numbers: Vec<_> = wire.frames[side].iter().map(|it| it[0]).collect();
        assert_eq!(numbers, (0..20).collect::<Vec<_>>());
        assert!(
            wire.frames[side]
                .iter()
                .all(|it| it.len() == usize::from(FRAME))
        );
        assert_eq!(wire.ends[side].carried().dropped, 0);
    }
    assert!(
        wire.longest <= usize::from(FRAME + OVERHEAD),
        "{}",
        wire.longest
    );
}

/// 1,500 frames at once, each fifth datagram lost: without congestion control all leave at once,
/// with it they wait.
#[test]
fn congestion_control_is_on_or_off() {
    let sent = |control| {
        let mut wire = connected(control);
        let before = wire.datagrams;
        for _ in 0..1500 {
            wire.ends[0].send(&[1; 1200]);
        }
        wire.pass(2 * MS, 5);
        let at_once = wire.datagrams - before;
        wire.pass(3000 * MS, 5);
        (at_once, wire.frames[1].len())
    };
    let (at_once, arrived) = sent(Control::Off);
    assert!((1500..1520).contains(&at_once), "{at_once}");
    assert!((1180..=1220).contains(&arrived), "{arrived}");
    for control in [Control::Cubic, Control::Reno] {
        let (at_once, arrived) = sent(control);
        assert!((5..50).contains(&at_once), "{at_once}");
        assert!(arrived < 1100, "{arrived}: {control:?}");
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut wire = connected(Control::Cubic);
    for _ in 0..2000 {
        wire.ends[0].send(&[1; FRAME as usize]);
    }
    let dropped = wire.ends[0].carried().dropped;
    assert!((500..1000).contains(&dropped), "{dropped}");
    wire.pass(5000 * MS, 0);
    assert_eq!(wire.frames[1].len() as u64, 2000 - dropped);
}

#[test]
fn an_end_that_starts_anew_is_heard() {
    for end in 0..2 {
        let mut wire = connected(Control::Off);
        wire.restart(end);
        // The client of a server that is gone notices it by silence.
        for _ in 0..100 {
            wire.ends[0].send(b"up");
            wire.ends[1].send(b"down");
            wire.pass(100 * MS, 0);
        }
        let [up, down] = [1, 0].map(|it| wire.frames[it].len());
        assert!(up > 50 && down > 50, "{end}: {up} {down}");
        assert!(wire.ends[1].connections.len() <= 2);
    }
}

#[test]
fn a_certificate_of_another_name_or_authority_is_refused_by_name() {
    let mut wire = Wire::new(roles("other.test"), Control::Cubic);
    wire.pass(500 * MS, 0);
    let why = wire.ends[0].refusal().unwrap();
    assert!(why.contains("certificate"), "{why}");
    let [client, _] = roles("satfec.test");
    let [_, server] = roles("satfec.test");
    let mut wire = Wire::new([client, server], Control::Cubic);
    wire.pass(500 * MS, 0);
    assert!(wire.ends[0].refusal().is_some());
    assert_eq!(wire.ends[0].next_timeout(), None, "it does not dial again");
    assert_eq!(wire.ends[1].refusal(), None);
}

#[test]
fn any_datagrams_leave_the_server_working() {
    let mut wire = Wire::new(roles("satfec.test"), Control::Off);
    for length in 0..1400_u16 {
        let byte = (length % 251) as u8;
        let noise = vec![byte ^ 0xc0; length.into()];
        wire.ends[1].receive(wire.now, &noise);
    }
    wire.pass(200 * MS, 0);
    wire.ends[0].send(b"frame");
    wire.pass(100 * MS, 0);
    assert_eq!(wire.frames[1], [&b"frame"[..]]);
}
