// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment (DAMA) of the ST: what it may ask for, and how requests are handled.

use dvb::dama::Agreement;

use crate::fault::Faults;
use crate::xml_file::Place;

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
