// SPDX-License-Identifier: GPL-3.0-or-later
//! Descriptions of what a schema requires.

use serde_json::Value;

use super::{Node, Schemas, items, words};

impl Schemas {
    /// What a value has to be.
    pub(crate) fn remedy(&self, node: Node<'_>) -> String {
        let schema = node.schema;
        if let Some(remedy) = schema["remedy"].as_str() {
            return remedy.to_owned();
        }
        if let Some(target) = self.target(node) {
            return self.remedy(target);
        }
        if let Some(constant) = schema.get("const") {
            return constant.to_string();
        }
        if !schema["enum"].is_null() {
            let allowed: Vec<_> = words(&schema["enum"]).collect();
            return format!("one of: {}", allowed.join(", "));
        }
        let branches = items(&schema["oneOf"]).map(|it| self.remedy(node.at(it)));
        let branches: Vec<_> = branches.collect();
        match kind(schema) {
            "boolean" => "true or false".to_owned(),
            "integer" if schema["maximum"].is_null() => {
                format!("an integer {}", range(schema, "from "))
            }
            "integer" => format!("an integer, {}", range(schema, "")),
            "number" => format!("a number {}", range(schema, "from ")),
            "string" => match schema["maxLength"].as_u64() {
                Some(most) => format!("a text of {} to {most} bytes", schema["minLength"]),
                None => "a non-empty text".to_owned(),
            },
            "array" => match schema["maxItems"].as_u64() {
                Some(most) => format!("a list of at most {most}"),
                None => "a list".to_owned(),
            },
            "null" => "null".to_owned(),
            "" if !branches.is_empty() => {
                let mut different = branches;
                different.dedup();
                different.join(", or ")
            }
            _ => format!("an object, see {}", file(node.document)),
        }
    }

    /// The fault of a value that is not allowed.
    pub(crate) fn refusal(&self, node: Node<'_>, place: &str, value: &Value) -> String {
        let place = if place.is_empty() { "the file" } else { place };
        let remedy = self.remedy(node);
        if !value.is_object() && remedy.starts_with("an object") && !remedy.contains(", or ") {
            return format!("{place}: is not an object (see {})", file(node.document));
        }
        format!("{place}: {value} is not allowed ({remedy})")
    }
}

/// The type that a value has if it is not null.
fn kind(schema: &Value) -> &str {
    let kinds = &schema["type"];
    let mut all = kinds.as_str().into_iter().chain(words(kinds));
    let first = all.next().unwrap_or("");
    if first == "null" {
        all.next().unwrap_or(first)
    } else {
        first
    }
}

fn range(schema: &Value, from: &str) -> String {
    let least = match (&schema["minimum"], &schema["exclusiveMinimum"]) {
        (Value::Null, Value::Null) => String::new(),
        (Value::Null, above) => format!("above {above}"),
        (least, _) => format!("{from}{least}"),
    };
    match &schema["maximum"] {
        Value::Null => least,
        most => format!("{least} to {most}"),
    }
}

fn file(document: &Value) -> String {
    let id = document["$id"].as_str().unwrap_or_default();
    let name = id.rsplit('/').next().unwrap_or_default();
    format!("schemas/{name}.schema.json")
}

/// `a, b and c`
pub(crate) fn enumeration(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => names.concat(),
    }
}
