// SPDX-License-Identifier: GPL-3.0-or-later
//! Messages of the interface (schemas/virtual-interface.schema.json): a line of JSON, then the
//! bytes of its datagrams.

use satperf::record::Direction;
use satperf::streams::SourceState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the interface.
pub const INTERFACE: &str = "satlab/virtual-interface/1";
/// Longest line with its end, bytes.
pub const MAX_LINE: usize = 1 << 16;
/// Most datagrams of a message.
pub const MAX_DATAGRAMS: usize = 1024;
/// Largest UDP payload of an IPv4 packet, bytes.
pub const MAX_DATAGRAM: usize = 65_507;
/// Period of the payload: byte number i is i modulo this.
const PERIOD: usize = 251;

/// A byte stream to a program and back.
pub trait Pipe {
    /// Sends a whole message.
    ///
    /// # Errors
    /// Why it did not arrive, in words.
    fn send(&mut self, message: &[u8]) -> Result<(), String>;
    /// Receives a line of at most [`MAX_LINE`] bytes, without its end.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn line(&mut self) -> Result<Vec<u8>, String>;
    /// Receives this many bytes.
    ///
    /// # Errors
    /// Why there are fewer, in words.
    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, String>;
}

/// First message to a program.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup<'a> {
    /// Name and version of the interface.
    #[schemars(extend("const" = "satlab/virtual-interface/1"))]
    pub interface: &'static str,
    /// Which end the program is.
    #[schemars(extend("enum" = ["client", "server"]))]
    pub role: &'static str,
    /// Seed of all random choices.
    pub seed: u64,
    /// `download`: the server sends the payload.
    pub direction: Direction,
    /// Payload of each connection.
    pub bytes: u64,
    /// Connections, one after another.
    pub connections: u32,
    /// Connections after the first one resume the session and send their request as 0-RTT data.
    pub early_data: bool,
    /// In the server's certificate.
    pub server_name: &'a str,
    /// The server's certificate, PEM; the client trusts it alone.
    pub certificate: &'a str,
    /// The server's private key, PEM; none for the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<&'a str>,
}

/// Answer to the set-up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Name and version of the interface.
    #[schemars(extend("const" = "satlab/virtual-interface/1"))]
    pub interface: String,
    /// Name and version of the stack.
    #[schemars(length(min = 1, max = 60))]
    pub name: String,
    /// Why the program cannot do what the set-up asks for.
    #[serde(default)]
    pub unsupported: Option<String>,
}

/// A datagram whose bytes follow the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// UDP payload; more than 1472 are lost.
    #[schemars(range(min = 1, max = 65_507))]
    pub bytes: usize,
    /// Two bits of the IP header (RFC 3168).
    #[serde(default)]
    #[schemars(range(min = 0, max = 3))]
    pub ecn: u8,
}

/// Every further message to a program; the bytes of the datagrams follow it, in order.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Virtual time.
    pub now_ns: u64,
    /// A new connection begins: the client opens it, and what both report counts from zero.
    pub start: bool,
    /// What has arrived, in order.
    pub datagrams: Vec<Head>,
}

/// Answer to a step; the bytes of the datagrams follow it, in order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// When the program wants to be called at the latest; null: when a datagram arrives.
    pub timer_ns: Option<u64>,
    /// What it sends, in order.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub datagrams: Vec<Head>,
    /// State of the connection; null: as before.
    #[serde(default)]
    pub report: Option<Report>,
}

/// What a program reports of the connection, all of it each time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Its handshake is complete.
    #[serde(default)]
    pub connected: bool,
    /// The sender of the payload knows what to send.
    #[serde(default)]
    pub requested: bool,
    /// The request went as 0-RTT data and was accepted.
    #[serde(default)]
    pub early_data: bool,
    /// Payload that has arrived, bytes.
    #[serde(default)]
    pub received_bytes: u64,
    /// SHA-256 of the payload in hexadecimal digits, once all of it and its end have arrived.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The connection has failed: why.
    #[serde(default)]
    pub error: Option<String>,
    /// State of the payload's sender, if it can be known.
    #[serde(default)]
    pub sender: Option<Sender>,
}

/// State of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Sent, neither acknowledged nor declared lost.
    pub in_flight_bytes: u64,
    /// The window is below the slow start threshold.
    pub slow_start: bool,
    /// What its application has for the stack.
    pub supply: Supply,
    /// Smoothed round-trip time.
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1_000_000))]
    pub rtt_ms: f64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Rate of the sender's pacer, bit/s.
    #[serde(default)]
    pub pacing_bps: Option<u64>,
}

/// What the sending application has for the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Supply {
    /// All payload was sent.
    Done,
    /// Credit or send buffer is used up.
    Blocked,
    /// Neither.
    Slow,
}

impl From<Supply> for SourceState {
    fn from(supply: Supply) -> Self {
        match supply {
            Supply::Done => Self::Done,
            Supply::Blocked => Self::Blocked,
            Supply::Slow => Self::Slow,
        }
    }
}

/// Sends the set-up; returns the stack's name, or why the program cannot do it.
///
/// # Errors
/// The program answers nothing, or nonsense.
pub fn greet(pipe: &mut dyn Pipe, setup: &Setup) -> Result<Result<String, String>, String> {
    pipe.send(&line_of(setup)?)?;
    let hello: Hello = parse(&pipe.line()?)?;
    if hello.interface != INTERFACE {
        return Err(format!(
            "its interface is {:.60}, not {INTERFACE}",
            hello.interface
        ));
    }
    let is_printable =
        |text: &str| (1..=60).contains(&text.len()) && !text.contains(char::is_control);
    if !is_printable(&hello.name) {
        return Err("its name has not 1 to 60 printable characters".into());
    }
    Ok(hello
        .unsupported
        .map_or(Ok(hello.name), |why| Err(short(&why))))
}

/// Sends what arrived and returns the answer with its datagrams.
///
/// # Errors
/// The program answers nothing, or nonsense.
pub fn ask(
    pipe: &mut dyn Pipe,
    step: &Step,
    arrived: &[u8],
) -> Result<(Answer, Vec<Vec<u8>>), String> {
    let mut message = line_of(step)?;
    message.extend_from_slice(arrived);
    pipe.send(&message)?;
    let answer: Answer = parse(&pipe.line()?)?;
    if answer.datagrams.len() > MAX_DATAGRAMS {
        return Err(format!("more than {MAX_DATAGRAMS} datagrams in a message"));
    }
    let mut sent = Vec::with_capacity(answer.datagrams.len());
    for head in &answer.datagrams {
        if !(1..=MAX_DATAGRAM).contains(&head.bytes) || head.ecn > 3 {
            return Err(format!(
                "a datagram of {} bytes, ECN {}",
                head.bytes, head.ecn
            ));
        }
        sent.push(pipe.bytes(head.bytes)?);
    }
    Ok((answer, sent))
}

fn line_of(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(line)
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("its message is not valid: no JSON object".into());
    }
    serde_json::from_slice(line).map_err(|error| format!("its message is not valid: {error}"))
}

/// A text of a program as it may be shown: one line of 200 characters at most.
#[must_use]
pub fn short(text: &str) -> String {
    let printable = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one });
    printable.take(200).collect()
}

/// A part of the payload from its start.
#[must_use]
pub fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % PERIOD) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema counts")]
    enum Line<'a> {
        Setup(Setup<'a>),
        Hello(Hello),
        Step(Step),
        Answer(Answer),
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "Lines between satvirtual and a program in lock-step with the virtual clock (docs/virtual-interface.md)";
        schema::compare_with_file(&schema::read::<Line<'_>>("virtual-interface", title));
    }
}
