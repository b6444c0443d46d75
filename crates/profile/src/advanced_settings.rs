// SPDX-License-Identifier: GPL-3.0-or-later
//! Frame durations, margins and timers of the topology (`advanced_settings`).

use crate::xml_file::Place;

/// Frames, margins and timers of the topology (`advanced_settings`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Forward frame of `OpenSAND`, ns; whole microseconds.
    pub forward_frame_ns: u64,
    /// Return superframe, ns; whole microseconds.
    pub superframe_ns: u64,
    /// Added to the thresholds of DVB-S2, dB.
    pub forward_margin_db: f64,
    /// Added to the thresholds of DVB-RCS2, dB.
    pub return_margin_db: f64,
    /// Probe period, ms.
    pub statistics_ms: u32,
    /// Step of attenuation and of `Es/N0` reports, ms.
    pub acm_refresh_ms: u32,
    /// Packets in the delay queue.
    pub delay_fifo_packets: u64,
    /// Period in which `OpenSAND` polls its delay queue, ms.
    pub delay_timer_ms: u32,
}

/// Reads `advanced_settings`.
pub(crate) fn settings(topology: &Place<'_>) -> Option<Settings> {
    let place = topology.get("advanced_settings")?;
    let duration_ns = |name: &str| {
        let us = (place.value::<f64>(name)? * 1000.0).round() as u64;
        Some(us.saturating_mul(1000))
    };
    Some(Settings {
        forward_frame_ns: duration_ns("links/forward_duration")?,
        superframe_ns: duration_ns("links/return_duration")?,
        forward_margin_db: place.value("links/forward_margin")?,
        return_margin_db: place.value("links/return_margin")?,
        statistics_ms: place.value("timers/statistics")?,
        acm_refresh_ms: place.value("timers/acm_refresh")?,
        delay_fifo_packets: place.value("delay/fifo_size")?,
        delay_timer_ms: place.value("delay/delay_timer")?,
    })
}
