// SPDX-License-Identifier: GPL-3.0-or-later
//! The greeting of a tunnel's end, which is its heartbeat, too.

/// Kind of its frame.
pub const KIND: u8 = 0x80;
const MAGIC: [u8; 4] = *b"SFEC";
const VERSION: u8 = 1;
const BYTES: usize = 25;

/// What an end says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the sender's session, random, not 0.
    pub session: u64,
    /// The session that it has heard of its peer; 0: none yet.
    pub peer: u64,
    /// Packets that its repair frames cover, 0 to 1,024.
    pub window: u16,
    /// Longest packet in its tunnel, bytes.
    pub mtu: u16,
}

impl Hello {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![KIND];
        frame.extend_from_slice(&MAGIC);
        frame.push(VERSION);
        frame.extend_from_slice(&self.session.to_be_bytes());
        frame.extend_from_slice(&self.peer.to_be_bytes());
        frame.extend_from_slice(&self.window.to_be_bytes());
        frame.extend_from_slice(&self.mtu.to_be_bytes());
        frame
    }

    /// Reads the content of a frame of this kind; `None` if it is none of ours, or of another version.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let content: &[u8; BYTES] = content.try_into().ok()?;
        let rest = content.strip_prefix(&MAGIC)?.strip_prefix(&[VERSION])?;
        let (session, rest) = rest.split_first_chunk()?;
        let (peer, rest) = rest.split_first_chunk()?;
        let (window, rest) = rest.split_first_chunk()?;
        let hello = Self {
            session: u64::from_be_bytes(*session),
            peer: u64::from_be_bytes(*peer),
            window: u16::from_be_bytes(*window),
            mtu: u16::from_be_bytes(rest.try_into().ok()?),
        };
        (hello.session != 0 && hello.window <= fec::Code::MAX_WINDOW).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_round_trips(session in 1..u64::MAX, peer: u64, window in 0..=1024_u16, mtu: u16) {
            let hello = Hello { session, peer, window, mtu };
            let frame = hello.frame();
            prop_assert_eq!(frame[0], KIND);
            prop_assert_eq!(Hello::parse(&frame[1..]), Some(hello));
            prop_assert_eq!(Hello::parse(&frame), None);
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Hello::parse(&bytes);
        }
    }
}
