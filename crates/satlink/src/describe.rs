// SPDX-License-Identifier: GPL-3.0-or-later
//! The requirements of a platform's entities on their machines.

use emulator::demand;
use emulator::timing::Timing;
use profile::{Fault, Faults, Platform, Profile, supported};
use serde::Serialize;

/// What `describe` prints, schemas/profile-description.schema.json.
#[derive(Serialize)]
pub struct Description<'a> {
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
#[derive(Serialize)]
pub struct Inspection<'a> {
    schema: &'static str,
    /// The link in one line; `None` where there are faults.
    link: Option<String>,
    warnings: &'a [Fault],
    unsupported: Vec<Fault>,
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
    format!(
        "forward {} at {:.3} Mbaud, return {} in {}{} slots per {} ms, {} ms one way",
        forward.modcod,
        forward.symbol_rate as f64 / 1e6,
        back.waveform,
        if profile.is_on_demand() { "up to " } else { "" },
        demand::slots(Timing::Standard, profile).most,
        back.superframe_ns as f64 / 1e6,
        profile.one_way_delay_ns as f64 / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::schema_faults;
    use std::path::Path;

    #[test]
    fn description_has_exactly_the_fields_of_its_schema() {
        let schema = include_str!("../../../schemas/profile-description.schema.json");
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        let described =
            serde_json::to_value(description(&profile::platform(&dir).unwrap())).unwrap();
        assert_eq!(schema_faults(schema, &described), [""; 0]);
        assert_eq!(described["st"]["tap_iface"], "tap");
        assert_eq!(described["gw"]["mac_address"], "00:00:00:00:00:01");
        assert_eq!(described["sat"]["emu_address"], "10.77.0.1");
        assert_eq!(described["st"]["path_local"], "/var/log/opensand/st");
        assert_eq!(described["st"]["profile"], "profile_st.xml");
        assert_eq!(described["sat"]["profile"], serde_json::Value::Null);
        let schema_of_inspection = include_str!("../../../schemas/profile-inspection.schema.json");
        let read = profile::read(&dir, profile::Mode::Lenient);
        let inspected = serde_json::to_value(inspection(&read)).unwrap();
        assert_eq!(schema_faults(schema_of_inspection, &inspected), [""; 0]);
        assert!(
            inspected["link"]
                .as_str()
                .unwrap()
                .starts_with("forward QPSK 1/4 at 40.000 Mbaud")
        );
        let dama = profile::platform(&dir.join("../geo-dama")).unwrap();
        let described = serde_json::to_value(description(&dama)).unwrap();
        assert_eq!(schema_faults(schema, &described), [""; 0]);
        assert_eq!(described["further_sts"][0]["entity_id"], 4);
        assert_eq!(described["further_sts"][0]["profile"], "profile_st4.xml");
    }
}
