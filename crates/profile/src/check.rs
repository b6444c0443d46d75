// SPDX-License-Identifier: GPL-3.0-or-later
//! Checks a file against its element table: one generic walk, every fault reported.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use roxmltree::Node;

use crate::document::{Place, Source, elements, join};
use crate::fault::Faults;
use crate::schema::{Element, Kind, Need, Type};

/// How the refusal of something `OpenSAND` knows begins.
pub(crate) const UNSUPPORTED: &str = "not supported by satlink 0.1";

/// Checks `model[@version="1.0.0"]/root` and everything below it. Gives the place of `root` when there is one.
pub(crate) fn check_file<'a>(
    source: &'a Source,
    document: &'a roxmltree::Document<'a>,
    table: &'static [Element],
    faults: &mut Faults,
) -> Option<Place<'a>> {
    let model = document.root_element();
    if model.tag_name().name() != "model" || model.tag_name().namespace().is_some() {
        let reason = format!("root element is <{}>", model.tag_name().name());
        source.fault(
            faults,
            Some(model),
            "model",
            reason,
            "the root of an OpenSAND 8.2 file is <model version=\"1.0.0\">",
        );
        return None;
    }
    check_version(source, model, faults);
    let roots: Vec<_> = elements(model).collect();
    let [root] = roots.as_slice() else {
        let reason = format!("holds {} elements", roots.len());
        source.fault(
            faults,
            Some(model),
            "model",
            reason,
            "exactly one <root> stands below <model>",
        );
        return None;
    };
    if root.tag_name().name() != "root" {
        source.fault(
            faults,
            Some(*root),
            "model",
            format!("unknown element <{}>", root.tag_name().name()),
            "write <root>",
        );
        return None;
    }
    let place = Place {
        source,
        node: *root,
        path: String::new(),
    };
    check_section(&place, table, true, faults);
    Some(place)
}

fn check_version(source: &Source, model: Node<'_, '_>, faults: &mut Faults) {
    match model.attribute("version") {
        Some("1.0.0") => {}
        Some(other) => {
            let reason = format!("version {other:?} is not known");
            source.fault(
                faults,
                Some(model),
                "model",
                reason,
                "write version=\"1.0.0\"",
            );
        }
        None => source.fault(
            faults,
            Some(model),
            "model",
            "attribute version is missing",
            "write version=\"1.0.0\"",
        ),
    }
}

/// Checks the children of a section. `required`: whether missing children are faults.
fn check_section(
    place: &Place<'_>,
    table: &'static [Element],
    required: bool,
    faults: &mut Faults,
) {
    let mut rows = Vec::new();
    flatten(table, &mut rows);
    check_shape(place, faults);
    check_names(place, &rows, faults);
    for row in rows {
        let needed = match row.need {
            Need::Required => required,
            Need::Optional => false,
            Need::When(sibling, value) => {
                required && place.get(sibling).and_then(|leaf| leaf.text()) == Some(value)
            }
        };
        match place.get(row.name) {
            Some(child) => check_element(&child, row.kind, needed, faults),
            None if needed => place.source.fault(
                faults,
                Some(place.node),
                join(&place.path, row.name),
                missing(row),
                format!("add <{}>: {}", row.name, describe(row.kind)),
            ),
            None => {}
        }
    }
}

fn missing(row: &Element) -> String {
    match row.need {
        Need::When(sibling, value) => format!("missing, needed when {sibling} is {value}"),
        _ => "missing".into(),
    }
}

fn flatten(table: &'static [Element], rows: &mut Vec<&'static Element>) {
    for row in table {
        match row.kind {
            Kind::Include(inner) => flatten(inner, rows),
            _ => rows.push(row),
        }
    }
}

/// No attributes and no text between the children.
fn check_shape(place: &Place<'_>, faults: &mut Faults) {
    check_attributes(place, faults);
    let stray = place
        .node
        .children()
        .filter(Node::is_text)
        .any(|text| !text.text().unwrap_or("").trim().is_empty());
    if stray {
        place.fault(faults, "holds text between its elements", "remove the text");
    }
}

fn check_attributes(place: &Place<'_>, faults: &mut Faults) {
    for attribute in place.node.attributes() {
        place.fault(
            faults,
            format!("unknown attribute {}", attribute.name()),
            "remove it: only <model> has an attribute",
        );
    }
}

/// Unknown, repeated and misplaced children.
fn check_names(place: &Place<'_>, rows: &[&'static Element], faults: &mut Faults) {
    let mut seen = HashSet::new();
    let mut furthest = 0;
    for node in elements(place.node) {
        let name = node.tag_name().name();
        let path = join(&place.path, name);
        let Some(position) = rows.iter().position(|row| row.name == name) else {
            let known: Vec<_> = rows.iter().map(|row| row.name).collect();
            place.source.fault(
                faults,
                Some(node),
                path,
                "unknown element",
                format!("known here: {}", known.join(", ")),
            );
            continue;
        };
        if !seen.insert(position) {
            place.source.fault(
                faults,
                Some(node),
                path,
                "element stands here twice",
                "keep one of them",
            );
        } else if position < furthest {
            let remedy = format!(
                "move it before <{}>: OpenSAND reads elements in order",
                rows[furthest].name
            );
            place
                .source
                .fault(faults, Some(node), path, "element is out of order", remedy);
        }
        furthest = furthest.max(position);
    }
}

fn check_element(place: &Place<'_>, kind: Kind, required: bool, faults: &mut Faults) {
    match kind {
        Kind::Section(children) => check_section(place, children, required, faults),
        Kind::List(least, item) => {
            let count = check_items(place, item, required, faults);
            if required && count < least {
                place.fault(
                    faults,
                    format!("holds {count} items"),
                    format!("at least {least} <item>"),
                );
            }
        }
        Kind::RefusedList(item) => {
            if check_items(place, item, false, faults) > 0 {
                place.fault(faults, UNSUPPORTED, "leave the list empty");
            }
        }
        Kind::Leaf(leaf) => check_leaf(place, leaf, required, faults),
        // Flattened by `check_section`.
        Kind::Include(_) => {}
    }
}

/// Checks every `item` of a list and gives their number.
fn check_items(
    place: &Place<'_>,
    item: &'static [Element],
    required: bool,
    faults: &mut Faults,
) -> usize {
    check_shape(place, faults);
    for node in elements(place.node).filter(|node| node.tag_name().name() != "item") {
        let path = join(&place.path, node.tag_name().name());
        place.source.fault(
            faults,
            Some(node),
            path,
            "unknown element",
            "a list holds <item> elements",
        );
    }
    let items = place.items_here();
    for place in &items {
        check_section(place, item, required, faults);
    }
    items.len()
}

fn check_leaf(place: &Place<'_>, leaf: Type, required: bool, faults: &mut Faults) {
    check_attributes(place, faults);
    if place.node.children().any(|child| !child.is_text()) {
        place.fault(faults, "holds more than text", describe_type(leaf));
        return;
    }
    let Some(text) = place.text() else {
        if required {
            place.fault(faults, "is empty", describe_type(leaf));
        }
        return;
    };
    if text.trim() != text {
        place.fault(
            faults,
            "has blanks around its value",
            "remove blanks and line breaks",
        );
    } else if let Some(reason) = refusal(leaf, text) {
        place.fault(faults, reason, describe_type(leaf));
    }
}

/// Why `text` is no value of this type.
fn refusal(leaf: Type, text: &str) -> Option<String> {
    let wrong = |valid: bool| (!valid).then(|| format!("{text:?} is not allowed"));
    match leaf {
        Type::Int(min, max) => wrong(
            text.bytes().all(|byte| byte.is_ascii_digit())
                && text
                    .parse::<u64>()
                    .is_ok_and(|value| (min..=max).contains(&value)),
        ),
        Type::Dec(min, max) => wrong(
            text.bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte))
                && text
                    .parse::<f64>()
                    .is_ok_and(|value| (min..=max).contains(&value)),
        ),
        Type::Bool => wrong(matches!(text, "true" | "false")),
        Type::Text => None,
        Type::Choice(supported, refused) => match text {
            _ if supported.contains(&text) => None,
            _ if refused.contains(&text) => Some(format!("{text} is {UNSUPPORTED}")),
            _ => wrong(false),
        },
        Type::WaveForms if text.contains(',') => {
            Some(format!("groups of ids (VCM) are {UNSUPPORTED}"))
        }
        Type::WaveForms => wrong(wave_forms(text).is_some()),
        Type::Ipv4 => wrong(text.parse::<Ipv4Addr>().is_ok()),
        Type::Mac => wrong(mac(text).is_some_and(|address| address[0] & 1 == 0)),
        Type::Interface => wrong(
            (1..=15).contains(&text.len())
                && !matches!(text, "." | "..")
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':'),
        ),
    }
}

/// The allowed values of an element, in words.
fn describe(kind: Kind) -> String {
    match kind {
        Kind::Leaf(leaf) => describe_type(leaf),
        Kind::List(..) | Kind::RefusedList(_) => "a list of <item>, may be written empty".into(),
        Kind::Section(_) | Kind::Include(_) => "a section, see a shipped profile".into(),
    }
}

fn describe_type(leaf: Type) -> String {
    match leaf {
        Type::Int(min, max) => format!("an integer, {min} to {max}"),
        Type::Dec(min, max) => format!("a decimal number, {min} to {max}"),
        Type::Bool => "true or false".into(),
        Type::Text => "text".into(),
        Type::Choice(supported, _) => format!("one of: {}", supported.join(", ")),
        Type::WaveForms => {
            "ids 0 to 255 with ';' between them and '-' for a rising range, e.g. 1;3;5-8".into()
        }
        Type::Ipv4 => "an IPv4 address, e.g. 10.77.0.1".into(),
        Type::Mac => "a unicast MAC address, e.g. 00:00:00:00:00:01".into(),
        Type::Interface => "an interface name of 1 to 15 characters".into(),
    }
}

/// The ids that a `wave_form` text allows, in ascending order; `None` when it is malformed.
pub(crate) fn wave_forms(text: &str) -> Option<Vec<u8>> {
    let mut ids = Vec::new();
    for part in text.split(';') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (id(first)?, id(last)?);
        if first > last {
            return None;
        }
        ids.extend(first..=last);
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

fn id(text: &str) -> Option<u8> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A MAC address written as six hexadecimal pairs.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut address {
        let pair = pairs.next()?;
        if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(address)
}
