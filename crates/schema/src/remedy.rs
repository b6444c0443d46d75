// SPDX-License-Identifier: GPL-3.0-or-later
//! Words for what a schema requires.

use serde_json::Value;

pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn words(value: &Value) -> impl Iterator<Item = &str> {
    items(value).filter_map(Value::as_str)
}

/// The schema that another one refers to in its document, or itself.
pub(crate) fn target<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str();
    reference.map_or(schema, |it| root.pointer(&it[1..]).unwrap_or(&Value::Null))
}

/// The texts that a schema names one by one.
pub(crate) fn consts(schema: &Value) -> Vec<&str> {
    let variants = items(&schema["oneOf"]).chain([schema]);
    variants
        .flat_map(|it| it["const"].as_str().into_iter().chain(words(&it["enum"])))
        .collect()
}

/// What a value has to be.
pub(crate) fn remedy(root: &Value, schema: &Value) -> String {
    if let Some(remedy) = schema["remedy"].as_str() {
        return remedy.to_owned();
    }
    if schema.get("$ref").is_some() {
        return remedy(root, target(root, schema));
    }
    match &consts(schema)[..] {
        [] => {}
        [only] => return format!("\"{only}\""),
        all => return format!("one of: {}", all.join(", ")),
    }
    if let Some(constant) = schema.get("const") {
        return constant.to_string();
    }
    let all = items(&schema["oneOf"]).chain(items(&schema["anyOf"]));
    let mut variants: Vec<_> = all
        .filter(|it| it["type"] != "null")
        .map(|it| remedy(root, it))
        .collect();
    variants.dedup();
    match kind(schema) {
        "boolean" => "true or false".to_owned(),
        "integer" if schema["maximum"].is_null() => {
            format!("an integer {}", range(schema, "from "))
        }
        "integer" => format!("an integer, {}", range(schema, "")),
        "number" => format!("a number {}", range(schema, "from ")),
        "string" => match schema["maxLength"].as_u64() {
            Some(most) => {
                let least = schema["minLength"].as_u64().unwrap_or(0);
                format!("a text of {least} to {most} bytes")
            }
            None => "a non-empty text".to_owned(),
        },
        "array" => match schema["maxItems"].as_u64() {
            Some(most) => format!("a list of at most {most}"),
            None => "a list".to_owned(),
        },
        "null" => "null".to_owned(),
        "" if !variants.is_empty() => variants.join(", or "),
        _ => format!("an object, see {}", file(root)),
    }
}

/// The fault of a value that is not allowed.
pub(crate) fn refusal(root: &Value, schema: &Value, place: &str, value: &Value) -> String {
    let place = if place.is_empty() { "the file" } else { place };
    let remedy = remedy(root, schema);
    if !value.is_object() && remedy.starts_with("an object") && !remedy.contains(", or ") {
        return format!("{place}: is not an object (see {})", file(root));
    }
    format!("{place}: {value} is not allowed ({remedy})")
}

/// The type that a value has if it is not null.
fn kind(schema: &Value) -> &str {
    let kinds = &schema["type"];
    let mut all = kinds.as_str().into_iter().chain(words(kinds));
    let first = all.find(|it| *it != "null");
    first.or(kinds.as_str()).unwrap_or("")
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

fn file(root: &Value) -> String {
    let id = root["$id"].as_str().unwrap_or_default();
    format!("schemas/{}.schema.json", id.trim_start_matches("satlab/"))
}
