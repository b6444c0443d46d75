// SPDX-License-Identifier: GPL-3.0-or-later
//! What a profile says of later times: attenuation that changes and delay from a file, as orders that follow each other.

use std::sync::Arc;

use link::{Change, Nanos};
use profile::{Delay, Leg, Profile};
use serde_json::Value;

use crate::order::{Order, Origin};

/// Steps that are looked ahead for a change at most: a wake per so many steps costs nothing.
const LOOK_AHEAD: usize = 64;

/// One quantity of one direction over time. Files without loop hold their last value.
#[derive(Debug, Clone)]
pub struct Course {
    profile: Arc<Profile>,
    what: What,
    /// Its time 0, since the start of all directions.
    zero: Nanos,
}

#[derive(Debug, Clone, Copy)]
enum What {
    ForwardCn,
    ReturnCn,
    /// The C/N of plans, which travel on the forward link.
    PlanCn,
    Delay,
}

/// What changes by itself, in the order of [`crate::plan::DIRECTIONS`].
#[must_use]
pub fn courses(profile: &Profile) -> [Vec<Course>; 4] {
    let profile = Arc::new(profile.clone());
    let (gw, st) = (&profile.gw_physical, &profile.st_profile.physical);
    let varies = |legs: [&Leg; 2]| legs.into_iter().any(|leg| !leg.is_constant());
    let delay = [&gw.delay, &st.delay]
        .iter()
        .any(|it| it.step_ns().is_some());
    let of = |what: What| Course {
        profile: Arc::clone(&profile),
        what,
        zero: 0,
    };
    let some = |is_there: bool, what| is_there.then(|| of(what));
    let fades = varies([&gw.uplink, &st.downlink]);
    let forward = [some(fades, What::ForwardCn), some(delay, What::Delay)];
    let back = [
        some(varies([&st.uplink, &gw.downlink]), What::ReturnCn),
        some(fades && profile.is_on_demand(), What::PlanCn),
        some(delay, What::Delay),
    ];
    [
        forward.into_iter().flatten().collect(),
        back.into_iter().flatten().collect(),
        Vec::new(),
        Vec::new(),
    ]
}

impl Course {
    /// The first order, for a time 0 of `zero`.
    #[must_use]
    pub fn start(&self, zero: Nanos) -> Order {
        let started = Self {
            zero,
            ..self.clone()
        };
        started.order(0)
    }

    /// The order that follows the one of time `at`.
    #[must_use]
    pub fn after(&self, at: Nanos) -> Order {
        let mut elapsed = at.saturating_sub(self.zero);
        let now = self.change(elapsed);
        for _ in 0..LOOK_AHEAD {
            elapsed = self.next_step(elapsed);
            if self.change(elapsed) != now {
                break;
            }
        }
        self.order(elapsed)
    }

    fn order(&self, elapsed: Nanos) -> Order {
        let change = self.change(elapsed);
        let asked = match change {
            Change::Cn(db) => Some(("es_n0_db", (db * 1e3).round() / 1e3)),
            Change::Delay(ns) => Some(("delay_ms", ns as f64 / 1e6)),
            _ => None,
        };
        let asked = asked.map(|(name, value)| (name.to_owned(), Value::from(value)));
        Order {
            course: Some(self.clone()),
            asked: asked.into_iter().collect(),
            ..Order::new(self.zero.saturating_add(elapsed), change, Origin::Profile)
        }
    }

    fn change(&self, elapsed: Nanos) -> Change {
        let step = elapsed / self.attenuation_step() + 1;
        match self.what {
            What::ForwardCn => Change::Cn(self.profile.forward_cn_db(step)),
            What::ReturnCn => Change::Cn(self.profile.return_cn_db(step)),
            What::PlanCn => Change::Plans(Box::new(Change::Cn(self.profile.forward_cn_db(step)))),
            What::Delay => Change::Delay(self.profile.one_way_delay_at(elapsed)),
        }
    }

    fn attenuation_step(&self) -> Nanos {
        (u64::from(self.profile.settings.acm_refresh_ms) * 1_000_000).max(1)
    }

    /// Start of the step after the one of `elapsed`; the delays of the two ground entities step apart.
    fn next_step(&self, elapsed: Nanos) -> Nanos {
        let of = |step: Nanos| (elapsed / step + 1).saturating_mul(step);
        match self.what {
            What::ForwardCn | What::ReturnCn | What::PlanCn => of(self.attenuation_step()),
            What::Delay => {
                let (gw, st) = (&self.profile.gw_physical, &self.profile.st_profile.physical);
                let steps = [&gw.delay, &st.delay]
                    .into_iter()
                    .filter_map(Delay::step_ns);
                steps.map(of).min().unwrap_or(Nanos::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Attenuation, Series};

    fn profile(edit: impl FnOnce(&mut Profile)) -> Profile {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../opensand-profiles/geo");
        let mut profile = profile::load(dir.as_ref()).unwrap();
        edit(&mut profile);
        profile
    }

    fn series(text: &str, looped: bool) -> Series {
        Series::parse(text, (0.0, 1000.0), looped).unwrap()
    }

    /// The first orders of a course that starts at 7 ns, as (time since then in ms, what was asked).
    fn told(course: &Course, count: usize) -> Vec<(u64, Value)> {
        let mut order = course.start(7);
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(((order.at - 7) / 1_000_000, order.asked.clone().into()));
            order = order.next(order.at).unwrap();
        }
        seen
    }

    #[test]
    fn constant_profiles_have_no_course() {
        assert!(courses(&profile(|_| {})).iter().all(Vec::is_empty));
    }

    #[test]
    fn attenuation_changes_with_its_steps_and_holds_its_end() {
        let profile = profile(|it| {
            let fade = series("1 0\n3 0\n5 10", false);
            it.st_profile.physical.downlink.attenuation = Attenuation::File(fade);
        });
        let [forward, back, down, up] = courses(&profile);
        assert!(back.is_empty() && down.is_empty() && up.is_empty());
        let db = |db: f64| serde_json::json!({"es_n0_db": db});
        // Steps of 1 s; the third, fourth and fifth have 0, 5 and 10 dB; then a look ahead now and then.
        assert_eq!(
            told(&forward[0], 5),
            [
                (0, db(16.99)),
                (3000, db(13.807)),
                (4000, db(9.586)),
                (68_000, db(9.586)),
                (132_000, db(9.586))
            ]
        );
    }

    #[test]
    fn files_of_a_profile_folder_are_followed_with_and_without_loop() {
        let dir = std::env::temp_dir().join(format!("satlink-course-{}", std::process::id()));
        let geo =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        std::fs::create_dir_all(&dir).unwrap();
        for name in profile::FILES {
            std::fs::copy(geo.join(name), dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("orbit.txt"), "# STEP ms\n1 125\n2 125\n3 75\n").unwrap();
        std::fs::write(dir.join("rain.txt"), "1 0\n2 1\n").unwrap();
        let xml = std::fs::read_to_string(dir.join("profile_st.xml")).unwrap();
        let (up, down) = xml.split_once("<downlink_attenuation>").unwrap();
        let constant =
            "<delay_type>ConstantDelay</delay_type>\n        <delay_value>125</delay_value>";
        let ideal = "<attenuation_type>Ideal</attenuation_type>\n        <ideal_attenuation_value>0.0</ideal_attenuation_value>";
        assert!(up.contains(constant) && down.contains(ideal));
        let orbit = "<delay_type>FileDelay</delay_type><file_path>orbit.txt</file_path>\
            <refresh_period>1000</refresh_period><loop>false</loop>";
        let rain = "<attenuation_type>File</attenuation_type>\
            <file_attenuation_file>rain.txt</file_attenuation_file>\
            <file_attenuation_loop>true</file_attenuation_loop>";
        let edited = [up.replace(constant, orbit), down.replace(ideal, rain)];
        std::fs::write(
            dir.join("profile_st.xml"),
            edited.join("<downlink_attenuation>"),
        )
        .unwrap();
        let profile = profile::load(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let [forward, back, ..] = courses(&profile);
        let ms = |ms: f64| serde_json::json!({"delay_ms": ms});
        let db = |db: f64| serde_json::json!({"es_n0_db": db});
        // Without loop the last value holds, and is looked at now and then.
        assert_eq!(
            told(&back[0], 3),
            [(0, ms(250.0)), (2000, ms(200.0)), (66_000, ms(200.0))]
        );
        // Steps 0, 1 and 2 of the loop, which begins with step 1.
        assert_eq!(
            told(&forward[0], 5),
            [
                (0, db(16.99)),
                (1000, db(16.461)),
                (2000, db(16.99)),
                (4000, db(16.461)),
                (5000, db(16.99))
            ]
        );
    }

    #[test]
    fn delay_follows_the_files_of_both_entities() {
        let profile = profile(|it| {
            it.gw_physical.delay = Delay::File {
                series: series("1 125\n2 100", true),
                refresh_ms: 300,
            };
            it.st_profile.physical.delay = Delay::File {
                series: series("1 125\n2 120", false),
                refresh_ms: 500,
            };
        });
        let [forward, back, ..] = courses(&profile);
        assert_eq!(told(&forward[0], 4), told(&back[0], 4));
        let ms = |ms: f64| serde_json::json!({"delay_ms": ms});
        // The loop has steps 0, 1 and 2, and begins with step 1.
        assert_eq!(
            told(&forward[0], 4),
            [
                (0, ms(250.0)),
                (300, ms(225.0)),
                (500, ms(220.0)),
                (600, ms(245.0))
            ]
        );
    }
}
