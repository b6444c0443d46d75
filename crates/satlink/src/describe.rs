// SPDX-License-Identifier: GPL-3.0-or-later
//! The requirements of a platform's entities on their machines.

use profile::Platform;
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
        let dama = profile::platform(&dir.join("../geo-dama")).unwrap();
        let described = serde_json::to_value(description(&dama)).unwrap();
        assert_eq!(schema_faults(schema, &described), [""; 0]);
        assert_eq!(described["further_sts"][0]["entity_id"], 4);
        assert_eq!(described["further_sts"][0]["profile"], "profile_st4.xml");
    }
}
