// SPDX-License-Identifier: GPL-3.0-or-later
//! Messages of the interface (schemas/virtual-interface.schema.json).

use serde::{Deserialize, Serialize};

pub const INTERFACE: &str = "satlab/virtual-interface/1";

#[derive(Deserialize)]
pub struct Setup {
    pub role: String,
    pub seed: u64,
    pub direction: String,
    pub bytes: u64,
    pub early_data: bool,
    pub server_name: String,
    pub certificate: String,
    pub key: Option<String>,
}

#[derive(Serialize)]
pub struct Hello {
    pub interface: &'static str,
    pub name: &'static str,
}

#[derive(Deserialize)]
pub struct Step {
    pub now_ns: u64,
    pub start: bool,
    pub datagrams: Vec<Head>,
}

#[derive(Serialize, Deserialize)]
pub struct Head {
    pub bytes: usize,
}

#[derive(Serialize)]
pub struct Answer {
    pub timer_ns: Option<u64>,
    pub datagrams: Vec<Head>,
    pub report: Option<Report>,
}

#[derive(Serialize)]
pub struct Report {
    pub connected: bool,
    pub requested: bool,
    pub early_data: bool,
    pub received_bytes: u64,
    pub sha256: Option<String>,
    pub error: Option<String>,
    pub sender: Option<Sender>,
}

#[derive(Serialize)]
pub struct Sender {
    pub cwnd_bytes: usize,
    pub in_flight_bytes: u64,
    pub slow_start: bool,
    pub supply: &'static str,
    pub rtt_ms: f64,
    pub lost_packets: usize,
}
