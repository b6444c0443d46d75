// SPDX-License-Identifier: GPL-3.0-or-later
//! Adaptive coding from the profile: the MODCODs to choose from, and the one at the start.

use dvb::acm::Selector;
use dvb::modcod::{FrameSize, ModCod};
use dvb::opensand::reported_db;
use link::{Acm, Carrier, Coding};
use profile::{Forward, Profile};

use crate::demand;
use crate::timing::Timing;

/// Hysteresis of ACM above a threshold and its margin, dB: more than the hundredths by which a
/// measured `Es/N0` wavers, less than most steps between thresholds.
const HYSTERESIS_DB: f64 = 0.3;

/// The most efficient MODCOD at the `Es/N0` of the start, as the terminal logged on with it.
pub(crate) fn first_modcod(profile: &Profile, reports_thresholds: bool) -> ModCod {
    let (down, margin_db) = (&profile.forward, profile.settings.forward_margin_db);
    let measured = profile.forward_es_n0_db(1);
    let reported = if reports_thresholds {
        reported_db(measured)
    } else {
        measured
    };
    Selector::new(&down.modcods, FrameSize::Normal, false, margin_db, 0.0)
        .map_or(down.modcod, |mut it| it.report(reported))
}

/// The same of an SCPC return carrier, at the `Es/N0` of the gateway.
pub(crate) fn first_of_scpc(profile: &Profile, scpc: &Forward) -> ModCod {
    let margin_db = profile.settings.return_margin_db;
    Selector::new(&scpc.modcods, FrameSize::Normal, false, margin_db, 0.0)
        .map_or(scpc.modcod, |mut it| it.report(profile.return_es_n0_db(1)))
}

/// Adaptive coding of an SCPC return carrier: reports travel with the next frame of `forward`.
pub(crate) fn scpc_acm(profile: &Profile, forward: &Carrier) -> Option<Acm> {
    let scpc = profile.return_link.scpc.as_ref()?;
    let allowed = scpc.modcods.iter().copied().map(Coding::ModCod).collect();
    acm(profile, allowed, profile.settings.return_margin_db).map(|acm| Acm {
        superframe: forward.frame_duration().max(1),
        ..acm
    })
}

/// Adaptive coding of the forward link. A terminal of `OpenSAND` reports with its next capacity
/// request: half a period after the step of an attenuation on average, as here. With the defects of
/// `OpenSAND` reports are thresholds, and there is no hysteresis.
pub(crate) fn forward_acm(
    profile: &Profile,
    timing: Timing,
    reports_thresholds: bool,
) -> Option<Acm> {
    let allowed = profile.forward.modcods.iter().copied();
    let margin_db = profile.settings.forward_margin_db;
    acm(profile, allowed.map(Coding::ModCod).collect(), margin_db).map(|acm| Acm {
        reports_thresholds,
        hysteresis_db: if reports_thresholds {
            0.0
        } else {
            acm.hysteresis_db
        },
        ..match timing {
            Timing::Standard => acm,
            Timing::OpenSand => with_requests(profile, acm),
        }
    })
}

/// Reports that travel with the capacity requests of the terminal.
fn with_requests(profile: &Profile, acm: Acm) -> Acm {
    let period = (u64::from(profile.st_profile.dama.synchro_ms) * 1_000_000).max(1);
    Acm {
        period,
        phase: period / 2,
        ..acm
    }
}

/// Adaptive coding, where a carrier allows more than one MODCOD or waveform.
pub(crate) fn acm(profile: &Profile, allowed: Vec<Coding>, margin_db: f64) -> Option<Acm> {
    (allowed.len() > 1).then(|| Acm {
        allowed,
        margin_db,
        hysteresis_db: HYSTERESIS_DB,
        period: (u64::from(profile.settings.acm_refresh_ms) * 1_000_000).max(1),
        phase: 0,
        superframe: profile.return_link.superframe_ns,
        reports_thresholds: false,
    })
}

/// The waveforms of the return carrier, with the slots that each makes of what was agreed.
pub(crate) fn waveforms(timing: Timing, profile: &Profile) -> Vec<Coding> {
    let all = profile.return_link.waveforms.iter();
    let slots = |&it| Coding::Waveform(it, demand::slots_of(timing, profile, it).most);
    all.map(slots).collect()
}
