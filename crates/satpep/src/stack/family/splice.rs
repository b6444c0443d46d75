// SPDX-License-Identifier: GPL-3.0-or-later
//! Joins two connections: streams with the same ids, datagrams, and the end of either.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quic::LegOptions;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::library::{
    Connection, ConnectionError, Dir, RecvStream, SendDatagramError, SendStream, VarInt,
};
use super::relay::{RelayEnd, TornStream, relay};
use super::window::Window;
use crate::report::Relayed;

/// After the end of one connection, the other may take this long to acknowledge finished streams.
const FLUSH: Duration = Duration::from_secs(10);

/// Codes of connections that the proxy closes on its own behalf. HTTP/3 takes codes that it does
/// not know for `H3_NO_ERROR` (RFC 9114 section 9); the reason phrase has details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PepCode {
    /// The proxy ends.
    Shutdown = 0x7361_7400,
    /// The next hop cannot be reached.
    NextHop = 0x7361_7401,
    /// The other connection broke without an application's code.
    OtherLeg = 0x7361_7402,
    /// The next hop did not accept early data that was already sent.
    ZeroRttRejected = 0x7361_7403,
}

impl From<PepCode> for VarInt {
    fn from(code: PepCode) -> Self {
        Self::from_u32(code as u32)
    }
}

/// One of the two connections of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Towards the client.
    Client,
    /// Towards the server.
    Server,
}

/// One connection of a pair.
#[derive(Debug, Clone)]
pub struct Leg {
    /// The connection.
    pub connection: Connection,
    /// Receive window of the leg.
    pub window: Arc<Window>,
    /// What it received and the other leg sent.
    pub relayed: Arc<Relayed>,
}

impl Leg {
    /// A connection with the windows of `options`.
    #[must_use]
    pub fn new(connection: Connection, options: &LegOptions) -> Self {
        Self {
            window: Arc::new(Window::new(connection.clone(), options)),
            connection,
            relayed: Arc::default(),
        }
    }
}

/// The connection that ended first, and the reason.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The side that ended.
    pub side: Side,
    /// The library's reason.
    pub error: ConnectionError,
    /// Finished streams were not acknowledged in time by the other side.
    pub cut: bool,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Client => "client side",
            Side::Server => "server side",
        };
        write!(f, "{side}: {}", self.error)?;
        if self.cut {
            write!(f, "; finished streams were cut")?;
        }
        Ok(())
    }
}

/// Joins two connections until one of them ends. Then delivers the streams that it has finished,
/// and closes the other connection in the same way.
pub async fn splice(client: &Leg, server: &Leg) -> Ending {
    let mut work = pin!(async {
        tokio::join!(
            carry(client, server, Dir::Bi),
            carry(client, server, Dir::Uni),
            carry(server, client, Dir::Bi),
            carry(server, client, Dir::Uni),
            carry_datagrams(client, server),
            carry_datagrams(server, client),
        )
    });
    let mut first = pin!(async {
        tokio::select! {
            error = client.connection.closed() => (Side::Client, error),
            error = server.connection.closed() => (Side::Server, error),
        }
    });
    // The work ends only after one of the connections did. Torn streams are kept until the other
    // one is closed.
    let mut torn = None;
    let (side, error) = tokio::select! {
        biased;
        ended = &mut first => ended,
        streams = &mut work => {
            torn = Some(streams);
            first.await
        }
    };
    if torn.is_none() {
        torn = timeout(FLUSH, &mut work).await.ok();
    }
    let cut = torn.is_none();
    let other = match side {
        Side::Client => &server.connection,
        Side::Server => &client.connection,
    };
    let (code, reason) = closing(&error);
    other.close(code, &reason);
    Ending { side, error, cut }
}

/// Code and reason of the other leg's `CONNECTION_CLOSE`. The libraries can send no transport error
/// code, so that these become [`PepCode::OtherLeg`] with their text.
fn closing(error: &ConnectionError) -> (VarInt, Vec<u8>) {
    match error {
        ConnectionError::ApplicationClosed(frame) => (frame.error_code, frame.reason.to_vec()),
        ConnectionError::LocallyClosed => (PepCode::Shutdown.into(), b"satpep ends".to_vec()),
        other => (
            PepCode::OtherLeg.into(),
            format!("satpep: {other}").into_bytes(),
        ),
    }
}

/// Passes on the streams of one kind that the peer of `from` opens. The library accepts and opens
/// streams in the order of their ids, so that both connections count alike. Ends when either
/// connection has ended and all streams with it; returns the streams that must not be dropped
/// before the other connection is closed.
async fn carry(from: &Leg, to: &Leg, dir: Dir) -> Vec<TornStream> {
    let mut relays = JoinSet::new();
    let mut torn = Vec::new();
    let mut accepted: Option<(Option<SendStream>, RecvStream)> = None;
    let mut open = true;
    let mut gone = pin!(to.connection.closed());
    while open || !relays.is_empty() {
        tokio::select! {
            Some(ended) = relays.join_next(), if !relays.is_empty() => {
                if let Ok(RelayEnd::Torn(stream)) = ended {
                    torn.push(stream);
                }
            }
            _ = &mut gone, if open => open = false,
            stream = accept(&from.connection, dir), if open && accepted.is_none() => match stream {
                Ok(stream) => accepted = Some(stream),
                Err(_) => open = false,
            },
            // The peer of `to` may allow fewer streams at once than this proxy does: later ones
            // wait here.
            opened = open_stream(&to.connection, dir), if open && accepted.is_some() => {
                let (Ok((send, answer)), Some((back, receive))) = (opened, accepted.take()) else {
                    open = false;
                    continue;
                };
                from.relayed.streams.fetch_add(1, Relaxed);
                spawn(&mut relays, receive, send, from);
                if let (Some(answer), Some(back)) = (answer, back) {
                    spawn(&mut relays, answer, back, to);
                }
            }
        }
    }
    torn
}

fn spawn(relays: &mut JoinSet<RelayEnd>, receive: RecvStream, send: SendStream, from: &Leg) {
    let from = from.clone();
    relays.spawn(async move { relay(receive, send, &from.window, &from.relayed.bytes).await });
}

async fn accept(
    connection: &Connection,
    dir: Dir,
) -> Result<(Option<SendStream>, RecvStream), ConnectionError> {
    Ok(match dir {
        Dir::Bi => {
            let (send, receive) = connection.accept_bi().await?;
            (Some(send), receive)
        }
        Dir::Uni => (None, connection.accept_uni().await?),
    })
}

async fn open_stream(
    connection: &Connection,
    dir: Dir,
) -> Result<(SendStream, Option<RecvStream>), ConnectionError> {
    Ok(match dir {
        Dir::Bi => {
            let (send, receive) = connection.open_bi().await?;
            (send, Some(receive))
        }
        Dir::Uni => (connection.open_uni().await?, None),
    })
}

/// Passes on datagrams; as everywhere, they may be lost (RFC 9221 section 5).
async fn carry_datagrams(from: &Leg, to: &Leg) {
    let mut gone = pin!(to.connection.closed());
    loop {
        let datagram = tokio::select! {
            datagram = from.connection.read_datagram() => datagram,
            _ = &mut gone => return,
        };
        let Ok(datagram) = datagram else { return };
        let counter = match to.connection.send_datagram(datagram) {
            Ok(()) => &from.relayed.datagrams,
            Err(SendDatagramError::ConnectionLost(_)) => return,
            Err(_) => &from.relayed.datagrams_dropped,
        };
        counter.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::library;
    use super::*;

    #[test]
    fn only_an_application_s_code_is_passed_on() {
        let frame = library::ApplicationClose {
            error_code: VarInt::from_u32(0x100),
            reason: b"bye".as_slice().into(),
        };
        let (code, reason) = closing(&ConnectionError::ApplicationClosed(frame));
        assert_eq!((code, &reason[..]), (VarInt::from_u32(0x100), &b"bye"[..]));
        let (code, reason) = closing(&ConnectionError::TimedOut);
        assert_eq!(code, VarInt::from(PepCode::OtherLeg));
        assert_eq!(reason, b"satpep: timed out");
    }
}
