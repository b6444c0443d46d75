// SPDX-License-Identifier: GPL-3.0-or-later
//! The requirements of a platform's entities on their machines.

use dvb::modcod::FrameSize;
use emulator::demand;
use emulator::timing::Timing;
use link::Carrier;
use profile::{Fault, Faults, Platform, Profile, supported};
use schemars::JsonSchema;
use serde::Serialize;

/// What `describe` prints, schemas/profile-description.schema.json.
#[derive(Serialize, JsonSchema)]
pub struct Description<'a> {
    #[schemars(extend("const" = "satlab/profile-description/2"))]
    schema: &'static str,
    #[serde(flatten)]
    platform: &'a Platform,
}

/// What `satlink describe` prints of a profile.
#[must_use]
pub const fn description(platform: &Platform) -> Description<'_> {
    Description {
        schema: "satlab/profile-description/2",
        platform,
    }
}

/// What `inspect` prints, schemas/profile-inspection.schema.json.
#[derive(Serialize, JsonSchema)]
pub struct Inspection<'a> {
    #[schemars(extend("const" = "satlab/profile-inspection/1"))]
    schema: &'static str,
    /// the link in one line; null: there are faults
    link: Option<String>,
    /// accepted otherwise than written, or of no use
    warnings: &'a [Fault],
    /// well written, but satlink does not carry it
    unsupported: Vec<Fault>,
    /// `OpenSAND` does not start with it, or nothing can be emulated
    faults: &'a [Fault],
}

/// What satlink makes of a profile that was read leniently.
#[must_use]
pub fn inspection(read: &Result<Profile, Faults>) -> Inspection<'_> {
    Inspection {
        schema: "satlab/profile-inspection/1",
        link: read.as_ref().ok().map(summary),
        warnings: read.as_ref().map_or(&[], |it| it.warnings.as_slice()),
        unsupported: (read.as_ref())
            .map_or_else(|_| Vec::new(), |it| supported(it).as_slice().to_vec()),
        faults: read.as_ref().err().map_or(&[], Faults::as_slice),
    }
}

/// The link of a profile in one line.
#[must_use]
pub fn summary(profile: &Profile) -> String {
    let (forward, back) = (&profile.forward, &profile.return_link);
    let frames = if let Some(scpc) = &back.scpc {
        let mbaud = scpc.symbol_rate as f64 / 1e6;
        format!("SCPC {} at {mbaud:.3} Mbaud", scpc.modcod)
    } else {
        let slots = demand::slots(Timing::Standard, profile);
        let (words, slots) = match profile.random_access() {
            Some(_) => ("random access to ", slots.carrier),
            None if profile.is_on_demand() => ("up to ", slots.most),
            None => ("", slots.most),
        };
        let superframe_ms = back.superframe_ns as f64 / 1e6;
        format!(
            "{} in {words}{slots} slots per {superframe_ms} ms",
            back.waveform
        )
    };
    format!(
        "forward {} at {:.3} Mbaud, return {frames}, {} ms one way",
        forward.modcod,
        forward.symbol_rate as f64 / 1e6,
        profile.one_way_delay_ns as f64 / 1e6,
    )
}

/// The terminals with their rates, a line each; none where the ST is alone. Figures of `OpenSAND`'s
/// own arithmetic are in brackets.
#[must_use]
pub fn terminals(profile: &Profile) -> Vec<String> {
    let further: Vec<_> = profile.others().map(|it| it.id).collect();
    if further.is_empty() {
        return Vec::new();
    }
    let seen = std::iter::once(profile.st.id).chain(further);
    let seen = seen.filter_map(|id| profile.of(id));
    let line = |it: Profile| {
        let line = terminal(&it);
        if it.gw.id != profile.gw.id {
            return format!(
                "{line}, spot of GW {}, carriers of {}",
                it.gw.id,
                it.group()
            );
        }
        if it.group() == profile.group() {
            return line;
        }
        format!("{line}, carriers of {}", it.group())
    };
    seen.map(line).collect()
}

fn terminal(profile: &Profile) -> String {
    let (down, up) = (&profile.forward, &profile.return_link);
    let (symbol_rate, modcod, label) = (down.symbol_rate, down.modcod, profile.st.mac);
    let standard = Carrier::Forward {
        symbol_rate,
        modcod,
        frame_size: FrameSize::Normal,
        pilots: false,
        label,
    };
    let opensand = Carrier::OpenSandForward {
        symbol_rate,
        modcod,
        tick: down.tick_ns,
        label,
        defects: false,
        drift: 0,
    };
    let kbps = |carrier: Carrier| carrier.rate_bps().unwrap_or(0.0) / 1e3;
    let forward = format!(
        "terminal {}: forward {modcod} {:.0} kbit/s [{:.0}]",
        profile.st.id,
        kbps(standard),
        kbps(opensand)
    );
    if let Some(scpc) = &up.scpc {
        let back = standard
            .with_modcod(scpc.modcod)
            .with_symbol_rate(scpc.symbol_rate);
        return format!(
            "{forward}, return SCPC {} {:.0} kbit/s",
            scpc.modcod,
            kbps(back)
        );
    }
    if profile.random_access().is_some() {
        return format!("{forward}, return {} with random access", up.waveform);
    }
    let [slots, theirs] =
        [Timing::Standard, Timing::OpenSand].map(|timing| demand::slots(timing, profile));
    format!(
        "{forward}, return {}, CRA {} kbit/s in {} [{}] of {} [{}] slots, up to {} [{}]",
        up.waveform,
        up.cra_kbps,
        slots.cra,
        theirs.cra,
        slots.carrier,
        theirs.carrier,
        slots.most,
        theirs.most,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    #[test]
    fn p188_terminals_are_shown_with_the_rates_of_both_arithmetics() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles");
        let of = |name: &str| terminals(&profile::load(&dir.join(name)).unwrap());
        assert_eq!(of("geo"), [""; 0]);
        let lines = of("geo-dama");
        assert_eq!(lines.len(), 2);
        for (line, id) in lines.iter().zip([1, 4]) {
            let start = format!(
                "terminal {id}: forward QPSK 1/4 19610 kbit/s [19541], return 16QAM 5/6 (536 symbols), CRA "
            );
            assert!(line.starts_with(&start), "{line}");
            assert!(line.contains(" of 791 [792] slots, up to "), "{line}");
        }
    }

    #[test]
    fn schema_files_are_those_of_the_types() {
        let title = "What OpenSAND's entities need of their machines, as satlink describe reads it from a profile";
        let description = schema::written::<Description<'_>>("profile-description", title);
        schema::compare_with_file(&description);
        let title = "What satlink makes of an OpenSAND profile, as satlink inspect prints it";
        let inspection = schema::written::<Inspection<'_>>("profile-inspection", title);
        schema::compare_with_file(&inspection);
    }

    #[test]
    fn a_profile_is_described_and_inspected() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        let described =
            serde_json::to_value(description(&profile::platform(&dir).unwrap())).unwrap();
        assert_eq!(described["st"]["tap_iface"], "tap");
        assert_eq!(described["gw"]["mac_address"], "00:00:00:00:00:01");
        assert_eq!(described["sat"]["emu_address"], "10.77.0.1");
        assert_eq!(described["st"]["path_local"], "/var/log/opensand/st");
        assert_eq!(described["st"]["profile"], "profile_st.xml");
        assert_eq!(described["sat"]["profile"], serde_json::Value::Null);
        let read = profile::read(&dir, profile::Mode::Lenient);
        let inspected = serde_json::to_value(inspection(&read)).unwrap();
        assert!(
            inspected["link"]
                .as_str()
                .unwrap()
                .starts_with("forward QPSK 1/4 at 40.000 Mbaud")
        );
        let dama = profile::platform(&dir.join("../geo-dama")).unwrap();
        let described = serde_json::to_value(description(&dama)).unwrap();
        assert_eq!(described["further_sts"][0]["entity_id"], 4);
        assert_eq!(described["further_sts"][0]["profile"], "profile_st4.xml");
    }
}
