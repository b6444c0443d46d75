// SPDX-License-Identifier: GPL-3.0-or-later
//! The physical layer of an ST or GW profile: delay and `Es/N0` over time.

use crate::fault::Faults;
use crate::series::{self, Series};
use crate::xml_file::Place;

/// Longest delay of an entity, ms.
const MOST_DELAY_MS: f64 = 10_000.0;

/// Delay of one ground entity, for what it sends and what it receives.
#[derive(Debug, Clone, PartialEq)]
pub enum Delay {
    /// Always the same.
    Constant {
        /// ms.
        ms: u64,
    },
    /// From a file.
    File {
        /// Delay in ms.
        series: Series,
        /// Length of a step, ms.
        refresh_ms: u64,
    },
}

impl Delay {
    /// Length of a step in ns; `None`: it never changes.
    #[must_use]
    pub fn step_ns(&self) -> Option<u64> {
        match self {
            Self::Constant { .. } => None,
            Self::File { refresh_ms, .. } => Some(refresh_ms * 1_000_000),
        }
    }

    /// Delay in ns, `now` ns after the start; whole milliseconds, as in `OpenSAND`.
    #[must_use]
    pub fn at(&self, now: u64) -> u64 {
        let ms = match self {
            Self::Constant { ms } => *ms,
            Self::File { series, refresh_ms } => {
                series.at(now / (refresh_ms * 1_000_000) + 1) as u64
            }
        };
        ms * 1_000_000
    }
}

/// What is taken off the `Es/N0` of clear sky. A step is one `acm_refresh` of the topology; the
/// first one is step 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Attenuation {
    /// Always the same.
    Ideal {
        /// dB.
        db: f64,
    },
    /// From a file, dB.
    File(Series),
    /// Nothing for `off` steps, then `amplitude_db` for `on` steps, and so on.
    OnOff {
        /// Steps with attenuation.
        on: u64,
        /// Steps without.
        off: u64,
        /// dB.
        amplitude_db: f64,
    },
    /// Rises for the first half of the period and falls in the second.
    Triangular {
        /// dB per step.
        slope_db: f64,
        /// Steps.
        period: u64,
    },
}

impl Attenuation {
    /// Attenuation in dB at a step.
    #[must_use]
    pub fn at(&self, step: u64) -> f64 {
        match self {
            Self::Ideal { db } => *db,
            Self::File(series) => series.at(step),
            Self::OnOff {
                on,
                off,
                amplitude_db,
            } => match step.checked_rem(on + off) {
                Some(phase) if phase >= *off => *amplitude_db,
                _ => 0.0,
            },
            Self::Triangular { slope_db, period } => {
                let phase = step.checked_rem(*period).unwrap_or(0);
                slope_db * phase.min(period - phase) as f64
            }
        }
    }
}

/// One leg of the satellite link, as the profile of its ground entity has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// `Es/N0` without attenuation, dB.
    pub clear_sky_db: f64,
    /// Attenuation over time.
    pub attenuation: Attenuation,
}

impl Leg {
    /// True when its `Es/N0` never changes.
    #[must_use]
    pub const fn is_constant(&self) -> bool {
        matches!(self.attenuation, Attenuation::Ideal { .. })
    }

    /// `Es/N0` in dB at a step.
    #[must_use]
    pub fn es_n0_db(&self, step: u64) -> f64 {
        self.clear_sky_db - self.attenuation.at(step)
    }

    /// `Es/N0` in dB with constant attenuation alone.
    #[must_use]
    pub fn steady_es_n0_db(&self) -> f64 {
        match self.attenuation {
            Attenuation::Ideal { db } => self.clear_sky_db - db,
            _ => self.clear_sky_db,
        }
    }
}

/// Physical layer of a ground entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Physical {
    /// Its part of the propagation delay.
    pub delay: Delay,
    /// `Es/N0` below which it drops every frame, dB; `None`: the threshold of each frame's MODCOD.
    pub minimal_es_n0_db: Option<f64>,
    /// Uplink.
    pub uplink: Leg,
    /// Downlink.
    pub downlink: Leg,
}

impl Physical {
    /// Delay and attenuation that come from files.
    pub(crate) fn series(&self) -> impl Iterator<Item = &Series> {
        let delay = match &self.delay {
            Delay::File { series, .. } => Some(series),
            Delay::Constant { .. } => None,
        };
        let legs = [&self.uplink, &self.downlink].into_iter();
        let attenuation = legs.filter_map(|leg| match &leg.attenuation {
            Attenuation::File(series) => Some(series),
            _ => None,
        });
        delay.into_iter().chain(attenuation)
    }

    /// True if one of its files ends and is not repeated.
    #[must_use]
    pub fn has_open_end(&self) -> bool {
        self.series().any(|series| !series.is_looped())
    }
}

/// Reads `physical_layer`; `None` after a fault.
pub(crate) fn read(root: &Place<'_>, faults: &mut Faults) -> Option<Physical> {
    let layer = root.get("physical_layer")?;
    // Each of them may have faults of its own.
    let delay = layer.get("delay").and_then(|place| delay(&place, faults));
    let [uplink, downlink] = ["uplink_attenuation", "downlink_attenuation"]
        .map(|name| layer.get(name).and_then(|place| leg(&place, faults)));
    let condition = layer.get("minimal_condition")?;
    let minimal_es_n0_db = match condition.text_at("minimal_condition_type")? {
        "Constant" => Some(condition.value("threshold")?),
        _ => None,
    };
    Some(Physical {
        delay: delay?,
        minimal_es_n0_db,
        uplink: uplink?,
        downlink: downlink?,
    })
}

fn delay(place: &Place<'_>, faults: &mut Faults) -> Option<Delay> {
    if place.text_at("delay_type")? == "ConstantDelay" {
        let ms = place.value::<u32>("delay_value")?.into();
        return Some(Delay::Constant { ms });
    }
    let looped = place.text_at("loop") == Some("true");
    let series = series::read(place, "file_path", (0.0, MOST_DELAY_MS), looped, faults)?;
    let refresh_ms = place.value::<u32>("refresh_period").filter(|&ms| ms > 0)?;
    Some(Delay::File {
        series,
        refresh_ms: refresh_ms.into(),
    })
}

fn leg(place: &Place<'_>, faults: &mut Faults) -> Option<Leg> {
    let attenuation = match place.text_at("attenuation_type")? {
        "Ideal" => Attenuation::Ideal {
            db: place.value("ideal_attenuation_value")?,
        },
        "File" => {
            let looped = place.text_at("file_attenuation_loop") == Some("true");
            let range = (-100.0, 100.0);
            let file = "file_attenuation_file";
            Attenuation::File(series::read(place, file, range, looped, faults)?)
        }
        "On/Off" => Attenuation::OnOff {
            on: place.value::<u32>("onoff_attenuation_on")?.into(),
            off: place.value::<u32>("onoff_attenuation_off")?.into(),
            amplitude_db: place.value("onoff_attenuation_amplitude")?,
        },
        "Triangular" => Attenuation::Triangular {
            slope_db: place.value("triangle_attenuation_slope")?,
            period: place.value::<u32>("triangle_attenuation_period")?.into(),
        },
        _ => return None,
    };
    check_cycle(place, &attenuation, faults);
    Some(Leg {
        clear_sky_db: place.value("clear_sky")?,
        attenuation,
    })
}

/// A cycle of no steps is none.
fn check_cycle(place: &Place<'_>, attenuation: &Attenuation, faults: &mut Faults) {
    let (steps, last) = match *attenuation {
        Attenuation::OnOff { on, off, .. } => (on + off, "onoff_attenuation_off"),
        Attenuation::Triangular { period, .. } => (period, "triangle_attenuation_period"),
        Attenuation::Ideal { .. } | Attenuation::File(_) => return,
    };
    if steps == 0 {
        let reason = "the cycle has no steps";
        place.fault_at(last, faults, reason, "at least one refresh period");
    }
}

/// Reports a threshold above any `Es/N0` that the receiver can have: it would drop every frame.
pub(crate) fn check_gate(
    receiver: &Place<'_>,
    threshold_db: Option<f64>,
    es_n0_db: f64,
    faults: &mut Faults,
) {
    if threshold_db.is_some_and(|threshold| threshold > es_n0_db) {
        receiver.fault_at(
            "physical_layer/minimal_condition/threshold",
            faults,
            format!("above the Es/N0 of {es_n0_db:.2} dB: every frame is dropped"),
            "lower the threshold, or use ACM-Loop",
        );
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "exact by construction")]
mod tests {
    use super::*;

    #[test]
    fn attenuation_is_a_function_of_the_step() {
        let on_off = Attenuation::OnOff {
            on: 2,
            off: 3,
            amplitude_db: 6.0,
        };
        let values: Vec<_> = (0..7).map(|step| on_off.at(step)).collect();
        assert_eq!(values, [0.0, 0.0, 0.0, 6.0, 6.0, 0.0, 0.0]);
        let triangle = Attenuation::Triangular {
            slope_db: 1.5,
            period: 4,
        };
        let values: Vec<_> = (0..6).map(|step| triangle.at(step)).collect();
        assert_eq!(values, [0.0, 1.5, 3.0, 1.5, 0.0, 1.5]);
        assert_eq!(Attenuation::Ideal { db: 2.0 }.at(u64::MAX), 2.0);
    }

    #[test]
    fn delay_steps_with_its_refresh_period() {
        let series = Series::parse("0 125\n5 100\n7 99", (0.0, 1000.0), false);
        let series = series.unwrap_or_else(|bad| panic!("{bad:?}"));
        let delay = Delay::File {
            series,
            refresh_ms: 200,
        };
        let ms = |now_ms: u64| delay.at(now_ms * 1_000_000) / 1_000_000;
        // 99.5 ms is cut to whole milliseconds; then the last value is held.
        assert_eq!(
            [0, 199, 200, 800, 1000, 1200, 99_999].map(ms),
            [120, 120, 115, 100, 99, 99, 99]
        );
    }
}
