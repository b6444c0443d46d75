// SPDX-License-Identifier: GPL-3.0-or-later
//! Loss traces that a configuration or a change names.

use std::collections::BTreeMap;

use link::LossModel;
use schema::Faults;

/// Returns the text of the file at a path, or why it cannot be read.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Traces that were read, by path.
pub(crate) struct Traces<'a> {
    read: &'a ReadFile<'a>,
    models: BTreeMap<String, LossModel>,
}

impl<'a> Traces<'a> {
    pub(crate) fn new(read: &'a ReadFile<'a>) -> Self {
        Self {
            read,
            models: BTreeMap::new(),
        }
    }

    /// Reads the trace of a file. Its faults are those of `place`.
    pub(crate) fn check(&mut self, place: &str, path: &str, faults: &mut Faults) {
        if self.models.contains_key(path) {
            return;
        }
        let parsed = (self.read)(path).map_err(|reason| vec![reason]);
        match parsed.and_then(|text| link::parse_trace(&text).map_err(|error| error.0)) {
            Ok(model) => drop(self.models.insert(path.to_owned(), model)),
            Err(reasons) => {
                let fault = |reason: String| format!("{place}: {path}: {reason}");
                faults.extend(reasons.into_iter().map(fault));
            }
        }
    }

    /// The trace of a checked file.
    pub(crate) fn model(&self, path: &str) -> Option<LossModel> {
        self.models.get(path).cloned()
    }
}
