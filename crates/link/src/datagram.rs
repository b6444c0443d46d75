// SPDX-License-Identifier: GPL-3.0-or-later
//! Frames between the processes of a split link: one BBFRAME data field or burst payload in one
//! datagram; and the requests and plans of demand assignment.
//!
//! ```text
//! "slf1" | kind (1) | 0 (3) | session (4) | sequence number (4) | payload
//! ```
//! Numbers are big-endian. A sender counts its frames from 0 in a session of its own, so that a
//! receiver can count missed frames and detect a restart of the sender. Requests and plans, like
//! heartbeats, have neither. A request is rate, volume and whether the volume is absolute; a plan
//! the bursts of the terminal by kind (CRA, RBDC, VBDC, FCA), the free ones and those for requests:
//! numbers of four bytes.

use dvb::dama::{Grant, Request};
use thiserror::Error;

/// Bytes in front of the payload.
pub const HEADER: usize = 16;
/// Longest payload: above the longest BBFRAME data field.
pub const MAX_PAYLOAD: usize = 8192;

/// Most bursts of a plan.
const MOST_BURSTS: u32 = 1 << 24;

const MAGIC: &[u8; 4] = b"slf1";
const HELLO: u8 = 0;
const FRAME: u8 = 1;
const REQUEST: u8 = 2;
const PLAN: u8 = 3;

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A heartbeat.
    Hello,
    /// A frame.
    Frame {
        /// Start of its sender.
        session: u32,
        /// Number in the session; wraps.
        sequence: u32,
        /// Data field or burst payload, padding included; 1 to [`MAX_PAYLOAD`] bytes.
        payload: &'a [u8],
    },
    /// A capacity request of the terminal.
    Request(Request),
    /// The plan of a superframe, as far as the terminal is concerned.
    Plan {
        /// Bursts of the terminal.
        grant: Grant,
        /// Bursts that were not granted.
        free: u32,
        /// Bursts kept for requests.
        signalling: u32,
    },
}

/// Reads `N` numbers of four bytes each.
fn numbers<const N: usize>(payload: &[u8]) -> Option<[u32; N]> {
    if payload.len() != 4 * N {
        return None;
    }
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(payload.chunks_exact(4)) {
        *number = u32::from_be_bytes(bytes.try_into().ok()?);
    }
    Some(numbers)
}

/// The bytes are not a datagram of a split link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no datagram of a satlink entity")]
pub struct BadDatagram;

impl<'a> Datagram<'a> {
    /// Parses a datagram.
    ///
    /// # Errors
    /// [`BadDatagram`] if the bytes are not one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadDatagram> {
        let (head, payload) = bytes.split_first_chunk::<HEADER>().ok_or(BadDatagram)?;
        let [a, b, c, d, kind, 0, 0, 0, rest @ ..] = head else {
            return Err(BadDatagram);
        };
        let [s0, s1, s2, s3, n0, n1, n2, n3] = *rest;
        match (*kind, payload.len()) {
            _ if [*a, *b, *c, *d] != *MAGIC => Err(BadDatagram),
            (HELLO, 0) => Ok(Self::Hello),
            (FRAME, 1..=MAX_PAYLOAD) => Ok(Self::Frame {
                session: u32::from_be_bytes([s0, s1, s2, s3]),
                sequence: u32::from_be_bytes([n0, n1, n2, n3]),
                payload,
            }),
            (REQUEST, _) => Self::request(payload).ok_or(BadDatagram),
            (PLAN, _) => Self::plan(payload).ok_or(BadDatagram),
            _ => Err(BadDatagram),
        }
    }

    fn request(payload: &[u8]) -> Option<Self> {
        let [rbdc_kbps, vbdc_bursts, is_absolute @ (0 | 1)] = numbers(payload)? else {
            return None;
        };
        Some(Self::Request(Request {
            rbdc_kbps,
            vbdc_bursts,
            is_absolute: is_absolute == 1,
        }))
    }

    fn plan(payload: &[u8]) -> Option<Self> {
        let all: [u32; 6] = numbers(payload)?;
        // A superframe has not so many bursts, and their sum has to be a number.
        if all.iter().any(|&bursts| bursts > MOST_BURSTS) {
            return None;
        }
        let [cra, rbdc, vbdc, fca, free, signalling] = all;
        let grant = Grant {
            cra,
            rbdc,
            vbdc,
            fca,
        };
        Some(Self::Plan {
            grant,
            free,
            signalling,
        })
    }

    /// Writes the datagram to `out`, which is cleared first.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(MAGIC);
        let mut short = |kind: u8, numbers: &[u32]| {
            out.push(kind);
            out.resize(HEADER, 0);
            out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        };
        match *self {
            Self::Hello => short(HELLO, &[]),
            Self::Request(request) => short(
                REQUEST,
                &[
                    request.rbdc_kbps,
                    request.vbdc_bursts,
                    request.is_absolute.into(),
                ],
            ),
            Self::Plan {
                grant,
                free,
                signalling,
            } => {
                let Grant {
                    cra,
                    rbdc,
                    vbdc,
                    fca,
                } = grant;
                short(PLAN, &[cra, rbdc, vbdc, fca, free, signalling]);
            }
            Self::Frame {
                session,
                sequence,
                payload,
            } => {
                out.extend_from_slice(&[FRAME, 0, 0, 0]);
                out.extend_from_slice(&session.to_be_bytes());
                out.extend_from_slice(&sequence.to_be_bytes());
                out.extend_from_slice(payload);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = vec![9];
        let frame = Datagram::Frame {
            session: 0xDEAD_BEEF,
            sequence: 7,
            payload: &[1, 2, 3],
        };
        let request = Datagram::Request(Request {
            rbdc_kbps: 1,
            vbdc_bursts: 2,
            is_absolute: true,
        });
        let plan = Datagram::Plan {
            grant: Grant {
                cra: 1,
                rbdc: 2,
                vbdc: 3,
                fca: 4,
            },
            free: 5,
            signalling: 6,
        };
        for datagram in [frame, Datagram::Hello, request, plan] {
            datagram.write(&mut out);
            assert_eq!(Datagram::parse(&out), Ok(datagram));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let mut good = Vec::new();
        let payload = &[0; MAX_PAYLOAD][..];
        let frame = Datagram::Frame {
            session: 1,
            sequence: 2,
            payload,
        };
        frame.write(&mut good);
        for (place, byte) in [(0, 0), (3, b'2'), (4, 0), (4, 2), (5, 1), (7, 1)] {
            let mut bad = good.clone();
            bad[place] = byte;
            assert_eq!(Datagram::parse(&bad), Err(BadDatagram), "{place}");
        }
        good.push(0);
        assert_eq!(Datagram::parse(&good), Err(BadDatagram));
        let short = |kind: u8, bytes: &[u8]| [&b"slf1"[..], &[kind; 1], &[0; 11], bytes].concat();
        assert!(Datagram::parse(&short(REQUEST, &[0; 12])).is_ok());
        assert!(Datagram::parse(&short(PLAN, &[0; 24])).is_ok());
        for (kind, payload) in [
            (REQUEST, &[0; 11][..]),
            (REQUEST, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]),
            (PLAN, &[0; 25]),
            (PLAN, &[2; 24]),
            (4, &[]),
        ] {
            assert_eq!(Datagram::parse(&short(kind, payload)), Err(BadDatagram));
        }
        for length in 0..=HEADER {
            assert_eq!(Datagram::parse(&good[..length]), Err(BadDatagram));
        }
    }
}
