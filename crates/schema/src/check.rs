// SPDX-License-Identifier: GPL-3.0-or-later
//! A value against a schema: every fault at once.
//!
//! Knows the keywords that schemas of types have. Stricter than JSON Schema: `1.0` is not an
//! integer, lengths count bytes of UTF-8, and no text holds a NUL.

use serde_json::Value;

use crate::Faults;
use crate::remedy::{consts, items, refusal, remedy, target, words};

/// A name of the keyword `format`, and whether a text has it.
pub type Format = (&'static str, fn(&str) -> bool);

/// Faults of `value` against a schema. `place` names the value; it is empty for a whole file.
#[must_use]
pub fn check(schema: &Value, place: &str, value: &Value, formats: &[Format]) -> Faults {
    let mut faults = Faults::new();
    let root = schema;
    Walk { root, formats }.value(schema, place, value, &mut faults);
    faults
}

struct Walk<'a> {
    root: &'a Value,
    formats: &'a [Format],
}

impl Walk<'_> {
    fn value(&self, schema: &Value, place: &str, value: &Value, faults: &mut Faults) {
        let mut found = Faults::new();
        if schema.get("$ref").is_some() {
            self.value(target(self.root, schema), place, value, &mut found);
        }
        if self.is_allowed(schema, value) {
            self.object(schema, place, value, &mut found);
            for (index, item) in items(value).enumerate() {
                self.value(
                    &schema["items"],
                    &format!("{place}[{index}]"),
                    item,
                    &mut found,
                );
            }
            self.variants(schema, place, value, &mut found);
        } else {
            found.push(refusal(self.root, schema, place, value));
        }
        if !found.is_empty() && schema["remedy"].is_string() {
            found = vec![refusal(self.root, schema, place, value)];
        }
        found.retain(|fault| !faults.contains(fault));
        faults.append(&mut found);
    }

    /// Type, fixed values, bounds and format.
    fn is_allowed(&self, schema: &Value, value: &Value) -> bool {
        let bound = |name: &str| schema[name].as_f64();
        let is_within = match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                bound("minimum").is_none_or(|least| number >= least)
                    && bound("exclusiveMinimum").is_none_or(|least| number > least)
                    && bound("maximum").is_none_or(|most| number <= most)
            }
            Value::String(text) => {
                let format = self.formats.iter().find(|it| schema["format"] == it.0);
                is_sized(schema, "Length", text.len())
                    && !text.contains('\0')
                    && format.is_none_or(|(_, has)| has(text))
            }
            Value::Array(list) => is_sized(schema, "Items", list.len()),
            _ => true,
        };
        let is_listed = schema["enum"].is_null() || items(&schema["enum"]).any(|it| it == value);
        let is_fixed = schema.get("const").is_none_or(|it| it == value);
        is_kind(schema, value) && is_within && is_listed && is_fixed
    }

    fn object(&self, schema: &Value, place: &str, value: &Value, faults: &mut Faults) {
        let Some(fields) = value.as_object() else {
            return;
        };
        // Sorted: the order of the map depends on how serde_json was built.
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(name, _)| *name);
        for (name, field) in sorted {
            let place = inside(place, name);
            let others = &schema["additionalProperties"];
            match schema["properties"].get(name) {
                Some(property) => self.value(property, &place, field, faults),
                None if *others == false => {
                    faults.push(format!("{place}: is unknown (remove it)"));
                }
                None => self.value(others, &place, field, faults),
            }
            let needed = words(&schema["dependentRequired"][name]);
            for needed in needed.filter(|it| !fields.contains_key(*it)) {
                faults.push(format!("{place}: needs {needed} (add it)"));
            }
        }
        for name in words(&schema["required"]).filter(|it| !fields.contains_key(*it)) {
            let property = &schema["properties"][name];
            let (place, remedy) = (inside(place, name), remedy(self.root, property));
            faults.push(format!("{place}: is missing ({remedy})"));
        }
    }

    /// One of the variants must hold. The faults are those of the most likely one: by the value's
    /// type, by its constant fields, else by the smallest number of faults.
    fn variants(&self, schema: &Value, place: &str, value: &Value, faults: &mut Faults) {
        let all: Vec<_> = items(&schema["oneOf"])
            .chain(items(&schema["anyOf"]))
            .collect();
        if all.is_empty() {
            return;
        }
        let alternatives: Vec<_> = all.iter().filter_map(|it| alternative(it)).collect();
        if alternatives.len() == all.len() {
            let present = alternatives.iter().filter(|name| value.get(name).is_some());
            if present.count() != 1 {
                let (last, others) = alternatives.split_last().unwrap_or((&"", &[]));
                let others = others.join(", ");
                faults.push(format!("{place}: needs exactly one of {others} and {last}"));
            }
            return;
        }
        let fitting: Vec<_> = all
            .into_iter()
            .filter(|it| self.may_be(it, value))
            .collect();
        let mut best: Option<Faults> = None;
        let mut other_tag = None;
        for variant in &fitting {
            if let Some(name) = tag(target(self.root, variant), value) {
                other_tag = other_tag.or(Some(name));
                continue;
            }
            let mut found = Faults::new();
            self.value(variant, place, value, &mut found);
            if best.as_ref().is_none_or(|it| found.len() < it.len()) {
                best = Some(found);
            }
        }
        match (best, other_tag) {
            (Some(mut found), _) => faults.append(&mut found),
            (None, Some(name)) => {
                let tags = fitting
                    .iter()
                    .map(|it| &target(self.root, it)["properties"][name]);
                let tags: Vec<_> = tags.flat_map(consts).collect();
                let (place, tags) = (inside(place, name), tags.join(", "));
                let said = &value[name];
                faults.push(format!("{place}: {said} is not allowed (one of: {tags})"));
            }
            (None, None) => faults.push(refusal(self.root, schema, place, value)),
        }
    }

    /// Whether the type or the constant of a value allows for a variant.
    fn may_be(&self, schema: &Value, value: &Value) -> bool {
        let schema = target(self.root, schema);
        let mut variants = items(&schema["oneOf"])
            .chain(items(&schema["anyOf"]))
            .peekable();
        is_kind(schema, value)
            && schema.get("const").is_none_or(|it| it == value)
            && (schema["enum"].is_null() || items(&schema["enum"]).any(|it| it == value))
            && (variants.peek().is_none()
                || variants.any(|it| alternative(it).is_some() || self.may_be(it, value)))
    }
}

/// The one field that a variant requires, if it says nothing else.
fn alternative(variant: &Value) -> Option<&str> {
    let fields = variant.as_object()?;
    let required = fields.get("required").filter(|_| fields.len() == 1)?;
    words(required).next()
}

/// The field whose constant distinguishes a schema from its alternatives, if the value has another
/// one there.
fn tag<'a>(schema: &'a Value, value: &Value) -> Option<&'a str> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let is_required = |name: &str| words(&schema["required"]).any(|it| it == name);
    let is_other = |name: &str, constant: &Value| match value.get(name) {
        Some(found) => found != constant,
        None => is_required(name),
    };
    properties
        .filter_map(|(name, it)| Some((name.as_str(), it.get("const")?)))
        .find(|(name, constant)| is_other(name, constant))
        .map(|(name, _)| name)
}

fn is_sized(schema: &Value, unit: &str, size: usize) -> bool {
    let bound = |name: &str| schema[format!("{name}{unit}")].as_u64();
    bound("min").is_none_or(|least| size as u64 >= least)
        && bound("max").is_none_or(|most| size as u64 <= most)
}

/// Whether a value is of a type that a schema allows.
fn is_kind(schema: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let kinds = &schema["type"];
    kinds.is_null() || kinds.as_str().into_iter().chain(words(kinds)).any(is)
}

fn inside(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.to_owned()
    } else {
        format!("{place}.{name}")
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
