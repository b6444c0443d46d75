// SPDX-License-Identifier: GPL-3.0-or-later
//! JSON against a JSON Schema (draft 2020-12, the keywords that the project's schemas use): every
//! fault at once, each with its place and a remedy.
//!
//! Stricter than the draft: `1.0` is not an integer, lengths count bytes of UTF-8, and no text
//! holds a NUL. Two keywords have a meaning of their own here: `remedy` describes a valid value in
//! words, and replaces all faults below it by one; `format` names a [`Rule`] that a schema cannot
//! express.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use serde_json::Value;

mod remedy;

/// Faults, one line each: `place: reason (remedy)`.
pub type Faults = Vec<String>;

/// Checks a value against what `format` names: name, place, value. Faults that it adds begin with
/// their place.
pub type Rule<'a> = dyn FnMut(&str, &str, &Value, &mut Faults) + 'a;

/// Keywords without effect, and those with effect whose values are no schemas. `minProperties` is
/// left to a rule, which can say what is missing.
const KEYWORDS: &str = "$schema $id title description default remedy minProperties \
    $ref const dependentRequired enum exclusiveMinimum format maxItems maxLength maximum minItems minLength minimum required type";

/// Schemas that refer to each other by `$id`.
#[derive(Debug)]
pub struct Schemas(Vec<Value>);

/// A schema, and the document in which its references count.
#[derive(Clone, Copy)]
struct Node<'a> {
    document: &'a Value,
    schema: &'a Value,
}

impl<'a> Node<'a> {
    fn at(self, schema: &'a Value) -> Self {
        Self { schema, ..self }
    }
}

impl Schemas {
    /// Reads schema documents.
    ///
    /// # Errors
    /// A text is not JSON, or has keywords that [`Schemas::check`] does not know.
    pub fn parse(texts: &[&str]) -> Result<Self, String> {
        let documents = texts.iter().map(|text| serde_json::from_str(text));
        let documents = documents.collect::<Result<Vec<Value>, _>>();
        let schemas = Self(documents.map_err(|error| error.to_string())?);
        let mut unknown = Vec::new();
        for document in &schemas.0 {
            unknown_keywords(document, &mut unknown);
        }
        if unknown.is_empty() {
            Ok(schemas)
        } else {
            Err(format!("unknown keywords: {}", unknown.join(", ")))
        }
    }

    /// Faults of `value` against a schema, e.g. `satlab/link-config#/$defs/set`. `place` names the
    /// value in faults; it is empty for a whole file.
    pub fn check(&self, schema: &str, place: &str, value: &Value, rule: &mut Rule<'_>) -> Faults {
        let (mut faults, schemas) = (Faults::new(), self);
        match self.resolve(&Value::Null, schema) {
            Some(node) => Walk { schemas, rule }.value(node, place, value, &mut faults),
            None => faults.push(format!("{schema}: no such schema")),
        }
        faults
    }

    fn resolve<'a>(&'a self, document: &'a Value, reference: &str) -> Option<Node<'a>> {
        let (id, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if id.is_empty() {
            document
        } else {
            self.0.iter().find(|it| it["$id"] == id)?
        };
        let schema = document.pointer(pointer)?;
        Some(Node { document, schema })
    }

    /// The schema that `node` refers to, if it does.
    fn target<'a>(&'a self, node: Node<'a>) -> Option<Node<'a>> {
        self.resolve(node.document, node.schema["$ref"].as_str()?)
    }
}

/// A walk through a value.
struct Walk<'s, 'r, 'f> {
    schemas: &'s Schemas,
    rule: &'r mut Rule<'f>,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) {
        let mut found = Faults::new();
        if let Some(target) = self.schemas.target(node) {
            self.value(target, place, value, &mut found);
        }
        if self.is_allowed(node, place, value, &mut found) {
            self.object(node, place, value, &mut found);
            self.list(node, place, value, &mut found);
            self.one_of(node, place, value, &mut found);
            self.condition(node, place, value, &mut found);
            for part in items(&node.schema["allOf"]) {
                self.value(node.at(part), place, value, &mut found);
            }
            if let Some(name) = node.schema["format"].as_str() {
                (self.rule)(name, place, value, &mut found);
            }
        }
        if !found.is_empty() && node.schema["remedy"].is_string() {
            found = vec![self.schemas.refusal(node, place, value)];
        }
        found.retain(|fault| !faults.contains(fault));
        faults.append(&mut found);
    }

    /// Type, fixed values and bounds. False after a fault.
    fn is_allowed(&self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) -> bool {
        let schema = node.schema;
        if schema == &Value::Bool(false) {
            faults.push(format!("{place}: is unknown (remove it)"));
            return false;
        }
        let bound = |name: &str| schema[name].as_f64();
        let is_within = match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                bound("minimum").is_none_or(|least| number >= least)
                    && bound("exclusiveMinimum").is_none_or(|least| number > least)
                    && bound("maximum").is_none_or(|most| number <= most)
            }
            Value::String(text) => is_sized(schema, "Length", text.len()) && !text.contains('\0'),
            Value::Array(list) => is_sized(schema, "Items", list.len()),
            _ => true,
        };
        let is_listed = schema["enum"].is_null() || items(&schema["enum"]).any(|it| it == value);
        let is_fixed = schema.get("const").is_none_or(|it| it == value);
        let is_ok = is_kind(schema, value) && is_within && is_listed && is_fixed;
        if !is_ok {
            faults.push(self.schemas.refusal(node, place, value));
        }
        is_ok
    }

    fn object(&mut self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) {
        let Some(fields) = value.as_object() else {
            return;
        };
        let schema = node.schema;
        // Sorted: the order of the map depends on how serde_json was built.
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(name, _)| *name);
        for (name, field) in sorted {
            let place = inside(place, name);
            if let Some(property) = schema["properties"].get(name) {
                self.value(node.at(property), &place, field, faults);
            } else if schema["additionalProperties"] == false {
                faults.push(format!("{place}: is unknown (remove it)"));
            }
            let needed = words(&schema["dependentRequired"][name]);
            for needed in needed.filter(|it| !fields.contains_key(*it)) {
                faults.push(format!("{place}: needs {needed} (add it)"));
            }
        }
        for name in words(&schema["required"]).filter(|it| !fields.contains_key(*it)) {
            let property = &schema["properties"][name];
            let (place, remedy) = (inside(place, name), self.schemas.remedy(node.at(property)));
            faults.push(format!("{place}: is missing ({remedy})"));
        }
    }

    fn list(&mut self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) {
        if let Some(schema) = node.schema.get("items") {
            for (index, item) in items(value).enumerate() {
                let place = format!("{place}[{index}]");
                self.value(node.at(schema), &place, item, faults);
            }
        }
    }

    /// Exactly one branch must hold. The faults are those of the most likely branch: by the value's
    /// type, by its constant fields, else by the smallest number of faults.
    fn one_of(&mut self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) {
        let branches: Vec<_> = items(&node.schema["oneOf"]).map(|it| node.at(it)).collect();
        if branches.is_empty() {
            return;
        }
        if let Some(names) = alternatives(&branches) {
            let present = names.iter().filter(|name| value.get(name).is_some());
            if present.count() != 1 {
                let names = remedy::enumeration(&names);
                faults.push(format!("{place}: needs exactly one of {names}"));
            }
            return;
        }
        let fitting: Vec<_> = (branches.into_iter())
            .filter(|branch| self.may_be(*branch, value))
            .collect();
        let tagged = fitting.iter().filter(|it| tag(it.schema, value).is_none());
        let best = tagged
            .map(|branch| {
                let mut found = Faults::new();
                self.value(*branch, place, value, &mut found);
                found
            })
            .min_by_key(Vec::len);
        match (best, fitting.first().and_then(|it| tag(it.schema, value))) {
            (Some(mut found), _) => faults.append(&mut found),
            (None, Some(name)) => {
                let tags = fitting
                    .iter()
                    .map(|it| &it.schema["properties"][name]["const"]);
                let tags: Vec<_> = tags.filter_map(Value::as_str).collect();
                let (place, tags) = (inside(place, name), tags.join(", "));
                let said = &value[name];
                faults.push(format!("{place}: {said} is not allowed (one of: {tags})"));
            }
            (None, None) => faults.push(self.schemas.refusal(node, place, value)),
        }
    }

    /// Whether the type or the constant of a value allows for a branch.
    fn may_be(&self, node: Node<'_>, value: &Value) -> bool {
        let schema = node.schema;
        let branches = &schema["oneOf"];
        is_kind(schema, value)
            && schema.get("const").is_none_or(|it| it == value)
            && self
                .schemas
                .target(node)
                .is_none_or(|it| self.may_be(it, value))
            && (branches.is_null() || items(branches).any(|it| self.may_be(node.at(it), value)))
    }

    fn condition(&mut self, node: Node<'_>, place: &str, value: &Value, faults: &mut Faults) {
        let Some(condition) = node.schema.get("if") else {
            return;
        };
        let mut found = Faults::new();
        self.value(node.at(condition), place, value, &mut found);
        let consequence = if found.is_empty() { "then" } else { "else" };
        if let Some(schema) = node.schema.get(consequence) {
            self.value(node.at(schema), place, value, faults);
        }
    }
}

/// The fields of which one is required, if the branches require nothing else.
fn alternatives<'a>(branches: &[Node<'a>]) -> Option<Vec<&'a str>> {
    let name = |node: &Node<'a>| {
        let fields = node.schema.as_object()?;
        let required = fields.get("required").filter(|_| fields.len() == 1)?;
        words(required).next()
    };
    branches.iter().map(name).collect()
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

fn unknown_keywords(schema: &Value, unknown: &mut Vec<String>) {
    for (name, inner) in schema.as_object().into_iter().flatten() {
        match name.as_str() {
            "properties" | "$defs" => {
                let all = inner.as_object().into_iter().flatten();
                all.for_each(|(_, it)| unknown_keywords(it, unknown));
            }
            "oneOf" | "allOf" => items(inner).for_each(|it| unknown_keywords(it, unknown)),
            "items" | "if" | "then" | "else" | "additionalProperties" => {
                unknown_keywords(inner, unknown);
            }
            name if KEYWORDS.split_whitespace().any(|it| it == name) => {}
            _ => unknown.push(name.to_owned()),
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn words(value: &Value) -> impl Iterator<Item = &str> {
    items(value).filter_map(Value::as_str)
}

fn inside(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.to_owned()
    } else {
        format!("{place}.{name}")
    }
}

#[cfg(test)]
mod tests;
