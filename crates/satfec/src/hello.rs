// SPDX-License-Identifier: GPL-3.0-or-later
//! The greeting of a tunnel's end, which is its heartbeat, too.

/// Kind of its frame.
pub const KIND: u8 = 0x80;
const MAGIC: [u8; 4] = *b"SFEC";
/// Version of the greeting. Version 2 added `wants_reports` and reports of losses.
pub const VERSION: u8 = 2;
const BYTES: usize = 26;

/// What an end says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the sender's session, random, not 0.
    pub session: u64,
    /// The peer's session that the sender has heard; 0: none so far.
    pub peer: u64,
    /// Packets that its repair frames cover, 0 to 1,024.
    pub window: u16,
    /// Longest packet in its tunnel, bytes.
    pub mtu: u16,
    /// Whether the sender adapts its redundancy to the losses that the peer reports.
    pub wants_reports: bool,
}

/// Reason why a content is not a greeting of this tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// Something else.
    Foreign,
    /// The greeting of another version of the tunnel.
    Version(u8),
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
        frame.push(u8::from(self.wants_reports));
        frame
    }

    /// Reads the content of a frame of this kind.
    ///
    /// # Errors
    /// The content is not a greeting, or has another version.
    pub fn parse(content: &[u8]) -> Result<Self, HelloError> {
        match content.strip_prefix(&MAGIC) {
            Some([version, ..]) if *version != VERSION => Err(HelloError::Version(*version)),
            Some([_, fields @ ..]) => Self::fields(fields).ok_or(HelloError::Foreign),
            _ => Err(HelloError::Foreign),
        }
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let rest: &[u8; BYTES - 5] = bytes.try_into().ok()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (peer, rest) = rest.split_first_chunk()?;
        let (window, rest) = rest.split_first_chunk()?;
        let (mtu, reports) = rest.split_first_chunk()?;
        let hello = Self {
            session: u64::from_be_bytes(*session),
            peer: u64::from_be_bytes(*peer),
            window: u16::from_be_bytes(*window),
            mtu: u16::from_be_bytes(*mtu),
            wants_reports: reports == [1],
        };
        let is_possible = hello.session != 0
            && hello.window <= fec::Code::MAX_WINDOW
            && (hello.wants_reports || reports == [0]);
        is_possible.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_older_greeting_is_named_by_its_version() {
        let older = [&b"SFEC\x01"[..], &[7; 20]].concat();
        assert_eq!(Hello::parse(&older), Err(HelloError::Version(1)));
        let newer = [&b"SFEC\x03"[..], &[7; 80]].concat();
        assert_eq!(Hello::parse(&newer), Err(HelloError::Version(3)));
        for none in [&b"SFEC"[..], b"SFEC\x02", b"SFED\x01", b""] {
            assert_eq!(Hello::parse(none), Err(HelloError::Foreign));
        }
    }

    proptest! {
        #[test]
        fn it_round_trips(session in 1..u64::MAX, peer: u64, window in 0..=1024_u16, mtu: u16, wants_reports: bool) {
            let hello = Hello { session, peer, window, mtu, wants_reports };
            let frame = hello.frame();
            prop_assert_eq!(frame[0], KIND);
            prop_assert_eq!(Hello::parse(&frame[1..]), Ok(hello));
            prop_assert_eq!(Hello::parse(&frame), Err(HelloError::Foreign));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Hello::parse(&bytes);
        }
    }
}
