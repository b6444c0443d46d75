// SPDX-License-Identifier: GPL-3.0-or-later
//! A value with every kind of fault against the schema of a type.

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::{Faults, check, read};

/// Either shape, by `kind`.
#[derive(JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema counts")]
enum Shape {
    Circle {
        #[schemars(extend("const" = "circle"))]
        kind: Option<String>,
        #[schemars(extend("exclusiveMinimum" = 0))]
        r: f64,
    },
    Box {
        #[schemars(extend("const" = "box"))]
        kind: String,
        #[schemars(range(min = 1))]
        w: u32,
    },
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema counts")]
enum Shapes {
    One(Shape),
    Several(#[schemars(length(max = 4))] Vec<Shape>),
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("dependentRequired" = {"a": ["c"]}))]
#[schemars(extend("oneOf" = [{"required": ["a"]}, {"required": ["b"]}]))]
#[expect(dead_code, reason = "only its schema counts")]
struct Limit {
    a: Option<u8>,
    b: Option<u8>,
    c: Option<u8>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema counts")]
enum Colour {
    /// As the sky.
    Blue,
    /// As a rose.
    Red,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema counts")]
struct Main {
    #[schemars(length(min = 1, max = 3))]
    name: String,
    shape: Option<Shapes>,
    limit: Option<Limit>,
    #[schemars(extend("remedy" = "true, or seconds above 0", "oneOf" = [{"const": true}, {"type": "number"}]))]
    #[serde(default)]
    #[schemars(with = "Value")]
    out: Option<Value>,
    #[schemars(extend("format" = "even"))]
    digits: Option<String>,
    on: Option<bool>,
    colour: Option<Colour>,
}

fn faults(value: &Value) -> Faults {
    let is_even: fn(&str) -> bool = |text| text.len() % 2 == 0;
    check(
        &read::<Main>("main", "A test"),
        "",
        value,
        &[("even", is_even)],
    )
}

#[test]
fn good_values_have_no_faults() {
    for value in [
        json!({"name": "abc", "shape": {"r": 0.5}, "limit": {"b": 1}, "digits": "12"}),
        json!({"name": "a", "shape": [{"kind": "box", "w": 1}], "out": true, "colour": "blue"}),
        json!({"name": "a", "shape": null, "on": null, "colour": "red"}),
    ] {
        assert_eq!(faults(&value), [""; 0]);
    }
}

#[test]
fn every_fault_has_its_place_and_remedy() {
    let bad = json!({"name": "abcd", "limit": {"a": 1, "b": 2}, "out": "x", "digits": "1",
        "colour": "green", "more": 1, "on": 2});
    assert_eq!(
        faults(&bad),
        [
            "colour: \"green\" is not allowed (one of: blue, red)",
            "digits: \"1\" is not allowed (a non-empty text)",
            "limit.a: needs c (add it)",
            "limit: needs exactly one of a and b",
            "more: is unknown (remove it)",
            "name: \"abcd\" is not allowed (a text of 1 to 3 bytes)",
            "on: 2 is not allowed (true or false)",
            "out: \"x\" is not allowed (true, or seconds above 0)",
        ]
    );
    let shapes = json!({"shape": [{"kind": "disc"}, {"r": 0, "x": 1}, {"kind": "box", "w": 1.0}, 7],
        "limit": 1});
    assert_eq!(
        faults(&shapes),
        [
            "limit: is not an object (see schemas/main.schema.json)",
            "shape[0].kind: \"disc\" is not allowed (one of: circle, box)",
            "shape[1].r: 0 is not allowed (a number above 0)",
            "shape[1].x: is unknown (remove it)",
            "shape[2].w: 1.0 is not allowed (an integer from 1)",
            "shape[3]: is not an object (see schemas/main.schema.json)",
            "name: is missing (a text of 1 to 3 bytes)",
        ]
    );
    assert_eq!(
        faults(&json!([])),
        ["the file: is not an object (see schemas/main.schema.json)"]
    );
}
