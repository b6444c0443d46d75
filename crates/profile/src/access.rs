// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment, encapsulation, margins and timers.

use dvb::dama::Agreement;

use crate::document::Place;
use crate::fault::Faults;

/// What the terminal may ask for, and how requests are handled (`access/dama`, `network/fca`,
/// `timers/synchro`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dama {
    /// Constant rate, kbit/s.
    pub cra_kbps: u32,
    /// Most that is asked for by rate, kbit/s; `None`: RBDC is off.
    pub rbdc_max_kbps: Option<u32>,
    /// Most volume that may be asked for and not yet granted, kbit; `None`: VBDC is off.
    pub vbdc_max_kbit: Option<u32>,
    /// Superframes that a request lives.
    pub duration_superframes: u16,
    /// Free capacity that each terminal is given, kbit/s.
    pub fca_kbps: u32,
    /// Time between two requests, ms.
    pub synchro_ms: u32,
}

impl Dama {
    /// Of a terminal without demand assignment.
    const OFF: Self = Self {
        cra_kbps: 0,
        rbdc_max_kbps: None,
        vbdc_max_kbit: None,
        duration_superframes: 1,
        fca_kbps: 0,
        synchro_ms: 1,
    };

    /// The terminal's capacity, in the terms of `dvb::dama`.
    #[must_use]
    pub const fn agreement(&self) -> Agreement {
        Agreement {
            cra_kbps: self.cra_kbps,
            rbdc_max_kbps: self.rbdc_max_kbps,
            vbdc_max_kbit: self.vbdc_max_kbit,
            duration: self.duration_superframes,
        }
    }

    /// Slots beyond the constant rate are asked for, or given from what is left.
    #[must_use]
    pub const fn is_on_demand(&self) -> bool {
        self.rbdc_max_kbps.is_some() || self.vbdc_max_kbit.is_some() || self.fca_kbps > 0
    }
}

/// Trailer of a fragmented ALPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlpduProtection {
    /// Sequence number.
    SequenceNumber,
    /// CRC-32.
    Crc,
}

/// Encapsulation of both directions (`encap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulation {
    /// GSE fragmentation contexts.
    pub gse_max_frag_id: u8,
    /// Bytes of the reassembly buffer.
    pub gse_buffer_bytes: u16,
    /// Compatibility mode of the GSE library.
    pub gse_compatibility: bool,
    /// RLE trailer.
    pub protection: AlpduProtection,
}

/// The values of `OpenSAND`'s new profiles, used where the section is missing.
impl Default for Encapsulation {
    fn default() -> Self {
        Self {
            gse_max_frag_id: 8,
            gse_buffer_bytes: 5000,
            gse_compatibility: true,
            protection: AlpduProtection::SequenceNumber,
        }
    }
}

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

/// Reads the demand assignment of the ST, which may be off. `None` if a value cannot be read; lack
/// of capacity is only reported.
pub(crate) fn dama(
    topology: &Place<'_>,
    gw: &Place<'_>,
    st: &Place<'_>,
    faults: &mut Faults,
) -> Option<Dama> {
    if st.text_at("access/settings/dama_enabled") == Some("false") {
        return Some(Dama::OFF);
    }
    let place = st.get("access/dama")?;
    let rbdc_max_kbps = match place.text_at("rbdc_enabled") {
        Some("true") => Some(place.value("rbdc_max")?),
        _ => None,
    };
    let vbdc_max_kbit = match place.text_at("vbdc_enabled") {
        Some("true") => Some(place.value("vbdc_max")?),
        _ => None,
    };
    let dama = Dama {
        cra_kbps: place.value("cra")?,
        rbdc_max_kbps,
        vbdc_max_kbit,
        duration_superframes: place.value("duration")?,
        fca_kbps: gw.value("network/fca")?,
        synchro_ms: topology.value("advanced_settings/timers/synchro")?,
    };
    let may_send = dama.cra_kbps > 0
        || dama.fca_kbps > 0
        || rbdc_max_kbps.is_some_and(|most| most > 0)
        || vbdc_max_kbit.is_some_and(|most| most > 0);
    if !may_send {
        place.nearest("cra").slip(
            faults,
            "no capacity: CRA is 0, RBDC and VBDC are off or 0",
            "a CRA from 1 kbit/s, or RBDC or VBDC with a maximum",
        );
    }
    Some(dama)
}

/// Reads `encap`.
pub(crate) fn encapsulation(root: &Place<'_>) -> Encapsulation {
    let read = |place: Place<'_>| {
        Some(Encapsulation {
            gse_max_frag_id: place.value("gse/max_frag_id")?,
            gse_buffer_bytes: place.value("gse/decap_buffer_len")?,
            gse_compatibility: place.value("gse/compatibility_mode")?,
            protection: match place.text_at("rle/alpdu_protection")? {
                "CRC" => AlpduProtection::Crc,
                _ => AlpduProtection::SequenceNumber,
            },
        })
    };
    root.get("encap").and_then(read).unwrap_or_default()
}

/// Largest Ethernet frame of a LAN with an MTU of 1500 and a tag, bytes: what a reassembly buffer
/// has to hold.
const LARGEST_FRAME: u16 = 1518;

/// Reports a GSE reassembly buffer that is too short. `OpenSAND`'s own profiles have 8 bytes; 8.2.0
/// then loses every packet (its log: `DecapErrorSizePduBuffer`).
pub(crate) fn check_buffer(root: &Place<'_>, faults: &mut Faults) {
    let path = "encap/gse/decap_buffer_len";
    let Some(bytes) = root.value::<u16>(path).filter(|&it| it < LARGEST_FRAME) else {
        return;
    };
    root.nearest(path).note(
        faults,
        format!(
            "{bytes} bytes hold no packet: OpenSAND 8.2.0 drops every forward packet (DecapErrorSizePduBuffer); satlink does not"
        ),
        "write 5000",
    );
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
