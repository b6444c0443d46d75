// SPDX-License-Identifier: GPL-3.0-or-later
//! Makes JSON schemas from Rust types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of what is read, `satlab/NAME`.
#[must_use]
pub fn read<T: JsonSchema>(name: &str, title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    document::<T>(settings, name, title)
}

/// The schema of what is written, `satlab/NAME`: without bounds, and with no other fields than
/// those of the types.
#[must_use]
pub fn written<T: JsonSchema>(name: &str, title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = document::<T>(settings, name, title);
    close(&mut schema, false);
    schema
}

fn document<T: JsonSchema>(settings: SchemaSettings, name: &str, title: &str) -> Value {
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    let definitions = schema["$defs"].clone();
    flatten(&mut schema, &definitions);
    plain(&mut schema);
    let head = [
        ("$schema", schema["$schema"].clone()),
        ("$id", format!("satlab/{name}").into()),
        ("title", title.into()),
    ];
    let rest = schema.as_object().cloned().unwrap_or_default();
    let head = head.map(|(name, value)| (name.to_owned(), value));
    let all: Map<_, _> = head.into_iter().chain(rest).collect();
    let mut schema = Value::Object(all);
    // Those that only stood in other objects are used no more.
    loop {
        let text = schema.to_string();
        let Some(Value::Object(definitions)) = schema.get_mut("$defs") else {
            break;
        };
        let before = definitions.len();
        definitions.retain(|name, _| text.contains(&format!("\"#/$defs/{name}\"")));
        if definitions.len() == before {
            break;
        }
    }
    schema
}

/// Applies `change` to every schema directly below one.
fn below(schema: &mut Value, mut change: impl FnMut(&str, &mut Value)) {
    for (keyword, inner) in schema.as_object_mut().into_iter().flatten() {
        match (keyword.as_str(), inner) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(|it| change(keyword, it));
            }
            ("oneOf" | "anyOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                for it in list {
                    change(keyword, it);
                }
            }
            ("items" | "additionalProperties", inner) => change(keyword, inner),
            _ => {}
        }
    }
}

/// An object that has the fields of another one beside its own gets them.
fn flatten(schema: &mut Value, definitions: &Value) {
    if schema.get("properties").is_some() && schema.get("$ref").is_some() {
        let mut other = definition(schema, definitions);
        flatten(&mut other, definitions);
        if let (Value::Object(own), Value::Object(other)) = (&mut *schema, other) {
            own.remove("$ref");
            for (keyword, value) in other {
                match (own.get_mut(&keyword), value) {
                    (Some(Value::Object(mine)), Value::Object(theirs)) => mine.extend(theirs),
                    (Some(Value::Array(mine)), Value::Array(theirs)) => mine.extend(theirs),
                    (Some(_), _) => {}
                    (None, value) => drop(own.insert(keyword, value)),
                }
            }
        }
    }
    let has_fields = schema.get("properties").is_some();
    below(schema, |keyword, it| {
        // A variant that only names another type; `flatten` adds it to one with fields of its own.
        let is_name = it.get("$ref").is_some() && it.get("properties").is_none();
        if has_fields && keyword.ends_with("Of") && is_name {
            *it = definition(it, definitions);
        }
        flatten(it, definitions);
    });
}

fn definition(reference: &Value, definitions: &Value) -> Value {
    let reference = reference["$ref"].as_str().unwrap_or_default();
    definitions[reference.trim_start_matches("#/$defs/")].clone()
}

/// Leaves out names of Rust's number types, and titles that only repeat names.
fn plain(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        let is_number = |format: &str| {
            format.starts_with("int") || ["uint", "doub"].iter().any(|it| format.starts_with(it))
        };
        if fields
            .get("format")
            .and_then(Value::as_str)
            .is_some_and(is_number)
        {
            fields.remove("format");
        }
        fields.remove("title");
        if fields.get("default").is_some_and(Value::is_null) {
            fields.remove("default");
        }
        if let Some(Value::String(text)) = fields.get_mut("description") {
            *text = text.replace('\n', " ").replace(['`', '[', ']'], "");
        }
    }
    below(schema, |_, it| plain(it));
}

/// Takes bounds off, and refuses further fields. `is_part`: a branch of an object, which has the
/// rest of the fields.
fn close(schema: &mut Value, is_part: bool) {
    let has = |schema: &Value, keyword: &str| schema.get(keyword).is_some();
    let is_object = has(schema, "properties");
    let has_parts = is_object && ["oneOf", "anyOf", "allOf"].iter().any(|it| has(schema, it));
    below(schema, |keyword, it| {
        close(it, has_parts && keyword.ends_with("Of"));
    });
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    remove_bounds(fields);
    if is_object && !is_part && !fields.contains_key("additionalProperties") {
        let keyword = if has_parts {
            "unevaluatedProperties"
        } else {
            "additionalProperties"
        };
        fields.insert(keyword.into(), false.into());
    }
}

fn remove_bounds(fields: &mut Map<String, Value>) {
    for bound in [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "remedy",
    ] {
        fields.remove(bound);
    }
}
