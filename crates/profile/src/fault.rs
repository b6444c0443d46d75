// SPDX-License-Identifier: GPL-3.0-or-later
//! Faults of a profile: each names file, line, element, reason and remedy; all are reported
//! together.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// What a fault means for who loads the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// `OpenSAND` does not start with it, or nothing can be emulated from it.
    Error,
    /// `OpenSAND` starts, but not as the file says: a fault, unless one asks to be as lenient.
    Slip,
    /// Loaded as it is written, and of no use: a warning, always.
    Note,
    /// Well written, but not carried by this release of satlink.
    Unsupported,
}

/// One thing that is wrong with a profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Fault {
    /// File as the user named it: the profile folder joined with the file name.
    pub file: String,
    /// Line of the element, from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// Path of the element below `model/root`, e.g. `access/dama/cra`; list items carry their index
    /// from 1.
    pub element: String,
    /// What is wrong.
    pub reason: String,
    /// What to write instead: allowed values, range, or the next step.
    pub remedy: String,
    /// Who minds.
    #[serde(skip)]
    pub(crate) severity: Severity,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {} ({})",
            self.file, self.line, self.element, self.reason, self.remedy
        )
    }
}

/// Every fault of a profile, ordered by file and line. Displays one fault per line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct Faults(Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl Faults {
    /// Adds a fault.
    pub(crate) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Adds faults.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// True when nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults, ordered by file and line once loading has ended.
    #[must_use]
    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }

    /// The faults whose severity satisfies `matches`.
    pub(crate) fn select(&self, matches: impl Fn(Severity) -> bool) -> Self {
        let chosen = self.0.iter().filter(|fault| matches(fault.severity));
        Self(chosen.cloned().collect())
    }

    /// Orders the faults and drops repetitions: two checks may stumble over the same element.
    pub(crate) fn sorted(mut self) -> Self {
        self.0.sort();
        self.0.dedup();
        self
    }
}
