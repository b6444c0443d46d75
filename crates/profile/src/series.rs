// SPDX-License-Identifier: GPL-3.0-or-later
//! Files of delay and attenuation over time, and their values at an instant.

use crate::fault::{Fault, Faults, Severity};
use crate::xml_file::{Place, read_capped};

/// Faulty lines of a file that are reported one by one.
const MOST_FAULTS: usize = 20;

/// A value over time: points that are joined by straight lines.
///
/// One `STEP VALUE` pair a line; empty lines and lines that start with `#` are skipped, the order
/// of lines does not matter, and of a step that occurs twice the last counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    points: Vec<(u64, f64)>,
    looped: bool,
}

/// An invalid line, not a `STEP VALUE` pair: its number from 1, and why.
pub type BadLine = (u32, String);

impl Series {
    /// Reads the text of a file; values have to be within `range`.
    ///
    /// # Errors
    /// Up to 20 lines that cannot be read.
    pub fn parse(text: &str, range: (f64, f64), looped: bool) -> Result<Self, Vec<BadLine>> {
        let (mut points, mut bad) = (std::collections::BTreeMap::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match point(line, range) {
                Some((step, value)) => {
                    points.insert(step, value);
                }
                None if bad.len() < MOST_FAULTS => {
                    let shown: String = line.chars().take(40).collect();
                    bad.push((
                        index as u32 + 1,
                        format!("{shown:?} is not a STEP VALUE pair"),
                    ));
                }
                None => {}
            }
        }
        if bad.is_empty() {
            let points = points.into_iter().collect();
            Ok(Self { points, looped })
        } else {
            Err(bad)
        }
    }

    /// The value of a step; the first one is step 1. Before the first point: its value. After the
    /// last: with loop the count goes on from step 0, else the last value is held. 0 without
    /// points.
    #[must_use]
    pub fn at(&self, step: u64) -> f64 {
        let Some(&(last, last_value)) = self.points.last() else {
            return 0.0;
        };
        let step = if self.looped {
            step % last.saturating_add(1)
        } else {
            step
        };
        let after = self.points.partition_point(|&(point, _)| point <= step);
        match (after.checked_sub(1), self.points.get(after)) {
            (None, _) => self.points[0].1,
            (Some(_), None) => last_value,
            (Some(before), Some(&(end, end_value))) => {
                let (start, start_value) = self.points[before];
                // One division at the end: points on whole values stay exact.
                let (passed, ahead) = ((step - start) as f64, (end - step) as f64);
                (start_value * ahead + end_value * passed) / (end - start) as f64
            }
        }
    }

    /// True when it starts again after the last point.
    #[must_use]
    pub const fn is_looped(&self) -> bool {
        self.looped
    }

    /// True when there is no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

fn point(line: &str, (least, most): (f64, f64)) -> Option<(u64, f64)> {
    let mut words = line.split_ascii_whitespace();
    let (step, value) = (words.next()?, words.next()?);
    let value: f64 = value.parse().ok()?;
    let pair = (step.parse().ok()?, value);
    (words.next().is_none() && value >= least && value <= most).then_some(pair)
}

/// Reads the file that the leaf at `path` names, relative to the profile folder.
pub(crate) fn read(
    place: &Place<'_>,
    path: &str,
    range: (f64, f64),
    looped: bool,
    faults: &mut Faults,
) -> Option<Series> {
    let leaf = place.get(path)?;
    let file = leaf.source.dir.join(leaf.text()?);
    let text = match read_capped(&file) {
        Ok(text) => text,
        Err((_, reason, remedy)) => {
            leaf.fault(faults, format!("{} {reason}", file.display()), remedy);
            return None;
        }
    };
    match Series::parse(&text, range, looped) {
        Ok(series) => {
            if series.is_empty() {
                let reason = format!("{} has no STEP VALUE pair", file.display());
                leaf.slip(faults, reason, "write at least one, e.g. 0 125");
            }
            Some(series)
        }
        Err(bad) => {
            for (line, reason) in bad {
                faults.push(Fault {
                    file: file.display().to_string(),
                    line,
                    element: leaf.path.clone(),
                    reason,
                    remedy: format!("a step from 0 and a value, {} to {}", range.0, range.1),
                    severity: Severity::Error,
                });
            }
            None
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "exact by construction"
)]
mod tests {
    use super::*;

    fn series(text: &str, looped: bool) -> Series {
        Series::parse(text, (0.0, 1000.0), looped).unwrap()
    }

    #[test]
    fn values_are_those_that_were_seen() {
        // The observed run of OpenSAND 8.2 over these points.
        let text = "# step ms\n10 50\n\n 0\t125 \n5 99\n5 100\n";
        let ten = [
            120.0, 115.0, 110.0, 105.0, 100.0, 90.0, 80.0, 70.0, 60.0, 50.0,
        ];
        let looped: Vec<_> = (1..=12).map(|step| series(text, true).at(step)).collect();
        assert_eq!(looped, [&ten[..], &[125.0, 120.0]].concat());
        let held: Vec<_> = (1..=12).map(|step| series(text, false).at(step)).collect();
        assert_eq!(held, [&ten[..], &[50.0, 50.0]].concat());
    }

    #[test]
    fn ends_of_a_series() {
        let late = series("5 7\n4000000000 9", false);
        assert_eq!((late.at(1), late.at(u64::MAX)), (7.0, 9.0));
        assert_eq!(series("3 4", true).at(1_000_000), 4.0);
        assert_eq!(series("# nothing", true).at(3), 0.0);
        assert_eq!(series(&format!("{} 2", u64::MAX), true).at(5), 2.0);
    }

    #[test]
    fn bad_lines_are_named() {
        let bad = Series::parse(
            "0 1\n1\nx 2\n1 2 3\n2 -1\n3 nan\n-4 1\n5 1001",
            (0.0, 1000.0),
            false,
        );
        let lines: Vec<_> = bad.unwrap_err().iter().map(|bad| bad.0).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8]);
        let many = Series::parse(&"x\n".repeat(1000), (0.0, 1.0), false);
        assert_eq!(many.unwrap_err().len(), MOST_FAULTS);
    }
}
