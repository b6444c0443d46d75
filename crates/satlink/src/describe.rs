// SPDX-License-Identifier: GPL-3.0-or-later
//! The requirements of a platform's entities on their machines.

use profile::Profile;
use serde::Serialize;

/// What `describe` prints, schemas/profile-description.schema.json.
#[derive(Serialize)]
pub struct Description<'a> {
    schema: &'static str,
    profile_sha256: &'a str,
    #[serde(flatten)]
    platform: &'a profile::Platform,
}

/// What `satlink describe` prints of a profile.
#[must_use]
pub fn description(profile: &Profile) -> Description<'_> {
    Description {
        schema: "satlab/profile-description/1",
        profile_sha256: &profile.sha256,
        platform: &profile.platform,
    }
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
        let described = serde_json::to_value(description(&profile::load(&dir).unwrap())).unwrap();
        assert_eq!(schema_faults(schema, &described), [""; 0]);
        assert_eq!(described["st"]["tap_iface"], "tap");
        assert_eq!(described["gw"]["mac_address"], "00:00:00:00:00:01");
        assert_eq!(described["sat"]["emu_address"], "10.77.0.1");
        assert_eq!(described["st"]["path_local"], "/var/log/opensand/st");
    }
}
