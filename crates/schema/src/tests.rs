// SPDX-License-Identifier: GPL-3.0-or-later
//! The checker with a schema that has every keyword.

use super::*;
use serde_json::json;

fn schemas() -> Schemas {
    let shapes = json!({"$id": "x/shapes", "$defs": {
        "shape": {"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
                "required": ["r"], "additionalProperties": false},
            {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "integer", "minimum": 1}},
                "required": ["kind", "w"], "additionalProperties": false}]}}});
    let main = json!({"$id": "x/main", "type": "object", "additionalProperties": false, "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 3},
            "shape": {"oneOf": [{"$ref": "x/shapes#/$defs/shape"}, {"type": "array", "maxItems": 2,
                "items": {"$ref": "x/shapes#/$defs/shape"}}]},
            "limit": {"type": "object", "properties": {"a": {}, "b": {}, "c": {}},
                "dependentRequired": {"a": ["c"]}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "out": {"remedy": "true, or seconds above 0", "oneOf": [{"const": true}, {"type": "number", "exclusiveMinimum": 0}]},
            "even": {"type": "integer", "format": "even"},
            "on": {"type": "boolean"}},
        "if": {"required": ["on"]}, "then": {"properties": {"even": false}}});
    Schemas::parse(&[&shapes.to_string(), &main.to_string()]).unwrap()
}

fn faults(value: &Value) -> Faults {
    let even = &mut |name: &str, place: &str, value: &Value, faults: &mut Faults| {
        assert_eq!(name, "even");
        if value.as_i64().is_some_and(|it| it % 2 != 0) {
            faults.push(format!("{place}: is odd (add 1)"));
        }
    };
    schemas().check("x/main", "", value, even)
}

#[test]
fn good_values_have_no_faults() {
    for value in [
        json!({"name": "abc", "shape": {"r": 0.5}, "limit": {"b": 1}, "even": 2}),
        json!({"name": "a", "shape": [{"kind": "box", "w": 1}], "out": true, "on": false}),
    ] {
        assert_eq!(faults(&value), [""; 0]);
    }
}

#[test]
fn every_fault_has_its_place_and_remedy() {
    let bad = json!({"name": "abcd", "shape": [{"kind": "box", "w": 1.0}, {"kind": "disc"}, {"r": 0, "x": 1}, 7],
        "limit": {"a": 1, "b": 2}, "out": 0, "even": 3, "more": 1});
    let bad_faults = faults(&bad);
    for expected in [
        "name: \"abcd\" is not allowed (a text of 1 to 3 bytes)",
        "limit: needs exactly one of a and b",
        "limit.a: needs c (add it)",
        "out: 0 is not allowed (true, or seconds above 0)",
        "even: is odd (add 1)",
        "more: is unknown (remove it)",
    ] {
        assert!(
            bad_faults.contains(&expected.to_owned()),
            "{expected} not in {bad_faults:?}"
        );
    }
    let two = json!({"shape": [{"kind": "box", "w": 1.0}, 7], "even": 2, "on": true, "limit": 1});
    assert_eq!(
        faults(&two),
        [
            "limit: is not an object (see schemas/main.schema.json)",
            "shape[0].w: 1.0 is not allowed (an integer from 1)",
            "shape[1]: is not an object (see schemas/shapes.schema.json)",
            "name: is missing (a text of 1 to 3 bytes)",
            "even: is unknown (remove it)",
        ]
    );
    let shapes = json!({"name": "a", "shape": [{"kind": "disc"}, {"r": 0, "x": 1}]});
    assert_eq!(
        faults(&shapes),
        [
            "shape[0].kind: \"disc\" is not allowed (one of: circle, box)",
            "shape[1].r: 0 is not allowed (a number above 0)",
            "shape[1].x: is unknown (remove it)",
        ]
    );
    assert_eq!(
        faults(&json!([])),
        ["the file: is not an object (see schemas/main.schema.json)"]
    );
}

#[test]
fn keywords_without_effect_are_refused() {
    let schema = json!({"$id": "x", "properties": {"a": {"items": {"pattern": "^a$"}}}});
    assert_eq!(
        Schemas::parse(&[&schema.to_string()]).unwrap_err(),
        "unknown keywords: pattern"
    );
}
