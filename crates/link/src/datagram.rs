// SPDX-License-Identifier: GPL-3.0-or-later
//! Frames between the processes of a split link: one BBFRAME data field or burst payload in one datagram.
//!
//! ```text
//! "slf1" | kind (1) | 0 (3) | session (4) | sequence number (4) | payload
//! ```
//! Numbers are big-endian. A sender counts its frames from 0 in a session of its own, so that a receiver knows what it missed
//! and when the sender started anew.

use thiserror::Error;

/// Bytes in front of the payload.
pub const HEADER: usize = 16;
/// Longest payload: above the longest BBFRAME data field.
pub const MAX_PAYLOAD: usize = 8192;

const MAGIC: &[u8; 4] = b"slf1";
const HELLO: u8 = 0;
const FRAME: u8 = 1;

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A sign of life.
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
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no datagram of a satlink entity")]
pub struct BadDatagram;

impl<'a> Datagram<'a> {
    /// Reads a datagram. Any bytes are told apart.
    ///
    /// # Errors
    /// They are none.
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
            _ => Err(BadDatagram),
        }
    }

    /// Writes the datagram to `out`, which is cleared first.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(MAGIC);
        match *self {
            Self::Hello => {
                out.push(HELLO);
                out.resize(HEADER, 0);
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
        for datagram in [frame, Datagram::Hello] {
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
        for length in 0..=HEADER {
            assert_eq!(Datagram::parse(&good[..length]), Err(BadDatagram));
        }
    }
}
