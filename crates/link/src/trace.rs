// SPDX-License-Identifier: GPL-3.0-or-later
//! Recorded losses as text.

use crate::{LossModel, Nanos};
use std::ops::Range;
use thiserror::Error;

/// Every fault of a trace, one per line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct TraceError(pub Vec<String>);

/// Longest time of a trace, s.
const LONGEST_S: f64 = 1e9;

enum Line {
    Unit(bool),
    Window(Range<Nanos>),
}

/// Reads a loss trace. Each line is either `0` or `1` (one unit: kept or lost; the trace repeats),
/// or `START END` in seconds (everything sent from START until before END is lost). Blank lines and
/// lines that begin with `#` are skipped.
///
/// # Errors
/// All faults: lines that are neither, both kinds in one trace, windows out of order, no line at
/// all.
pub fn parse_trace(text: &str) -> Result<LossModel, TraceError> {
    let mut faults = Vec::new();
    let (mut units, mut windows) = (Vec::new(), Vec::<Range<Nanos>>::new());
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut fault = |reason: &str| faults.push(format!("line {}: {reason}", number + 1));
        match read(line) {
            None => fault("is neither 0, 1 nor START END in seconds, 0 <= START <= END <= 1e9"),
            Some(Line::Unit(lost)) => units.push(lost),
            Some(Line::Window(window)) => {
                if windows.last().is_some_and(|last| window.start < last.end) {
                    fault("starts before the end of the one before it");
                }
                windows.push(window);
            }
        }
    }
    if units.is_empty() == windows.is_empty() && faults.is_empty() {
        faults.push("a trace holds either 0 and 1, or START END lines".into());
    }
    match faults.is_empty() {
        false => Err(TraceError(faults)),
        true if units.is_empty() => Ok(LossModel::Windows(windows.into())),
        true => Ok(LossModel::Units(units.into())),
    }
}

fn read(line: &str) -> Option<Line> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["0"] => Some(Line::Unit(false)),
        ["1"] => Some(Line::Unit(true)),
        [start, end] => {
            let nanos = |text: &str| {
                let seconds: f64 = text.parse().ok()?;
                let in_bounds = (0.0..=LONGEST_S).contains(&seconds);
                in_bounds.then(|| (seconds * 1e9).round() as Nanos)
            };
            let window = nanos(start)?..nanos(end)?;
            (window.start <= window.end).then_some(Line::Window(window))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read() {
        let units = parse_trace("# kept, lost, kept\n0\n1\n\n 0 \n").unwrap();
        assert_eq!(units, LossModel::Units([false, true, false].into()));
        let windows = parse_trace("0.5 0.51\n1e0\t1.25\n").unwrap();
        let expected = [500_000_000..510_000_000, 1_000_000_000..1_250_000_000];
        assert_eq!(windows, LossModel::Windows(expected.into()));
    }

    #[test]
    fn every_fault_is_reported() {
        let faults = parse_trace("1 2\n1.5 3\n2 1\nx\n-1 2\n1 2 3\nnan 1").unwrap_err();
        assert_eq!(faults.0.len(), 6, "{faults}");
        assert!(faults.0[0].starts_with("line 2: starts before"));
        assert!(parse_trace("").is_err() && parse_trace("1\n1 2").is_err());
    }
}
