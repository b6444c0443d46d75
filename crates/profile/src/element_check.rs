// SPDX-License-Identifier: GPL-3.0-or-later
//! Checks a file against its element table: one generic walk, every fault reported.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use roxmltree::Node;

use crate::fault::{Faults, Severity};
use crate::schema::{Element, Kind, Need, Type, earlier};
use crate::xml_file::{Place, Source, elements, join, lenient_integer};

/// Why VCM is not offered.
pub(crate) const VCM_DEFECT: &str =
    "OpenSAND 8.2.0 divides ratios as integers and crashes at start with two groups (D5)";

/// Why an element of an earlier release is refused.
const EARLIER_RELEASE: &str = "element of OpenSAND 7.x or earlier, which 8.2 does not load";

/// Start of the message for an `OpenSAND` feature that satlink does not support.
pub(crate) const UNSUPPORTED: &str = "not supported by satlink 0.1";

/// Checks `model[@version="1.0.0"]/root` and everything below it. Returns the place of `root` if
/// there is one.
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
                required && place.sibling(sibling).and_then(|leaf| leaf.text()) == Some(value)
            }
        };
        match place.get(row.name) {
            // Of the section of another kind of entity OpenSAND reads no value.
            Some(child) if matches!(row.need, Need::When(..)) && !needed => {
                let mut found = Faults::default();
                check_element(&child, row.kind, needed, &mut found);
                faults.extend(found.select(|severity| severity == Severity::Error));
            }
            Some(child) => check_element(&child, row.kind, needed, faults),
            None if needed => {
                let remedy = format!("add <{}>: {}", row.name, describe(row.kind));
                place
                    .child_named(row.name)
                    .reported(row.absence(), faults, missing(row), remedy);
            }
            None => {}
        }
    }
}

fn missing(row: &Element) -> String {
    match row.need {
        Need::When(sibling, value) => {
            let name = sibling.rsplit('/').next().unwrap_or(sibling);
            format!("missing, needed when {name} is {value}")
        }
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
        place.slip(
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
            let (reason, remedy) = match earlier(&path) {
                Some(now) => (EARLIER_RELEASE, format!("write a profile of 8.2: {now}")),
                None => (
                    "unknown element",
                    format!("known here: {}", known.join(", ")),
                ),
            };
            place.source.fault(faults, Some(node), path, reason, remedy);
            continue;
        };
        let child = Place {
            node,
            path,
            ..place.clone()
        };
        if !seen.insert(position) {
            child.slip(faults, "element stands here twice", "keep one of them");
        } else if position < furthest {
            let remedy = format!(
                "move it before <{}>: OpenSAND reads elements in order",
                rows[furthest].name
            );
            child.slip(faults, "element is out of order", remedy);
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
                place.refuse(faults, UNSUPPORTED, "leave the list empty");
            }
        }
        Kind::Leaf(leaf) => check_leaf(place, leaf, required, faults),
        // Flattened by `check_section`.
        Kind::Include(_) => {}
    }
}

/// Checks every `item` of a list and returns their number.
fn check_items(
    place: &Place<'_>,
    item: &'static [Element],
    required: bool,
    faults: &mut Faults,
) -> usize {
    check_shape(place, faults);
    for node in elements(place.node).filter(|node| node.tag_name().name() != "item") {
        let path = join(&place.path, node.tag_name().name());
        let child = Place {
            node,
            path,
            ..place.clone()
        };
        child.slip(faults, "unknown element", "a list holds <item> elements");
    }
    let items = place.items_here();
    for place in &items {
        check_section(place, item, required, faults);
    }
    items.len()
}

fn check_leaf(place: &Place<'_>, leaf: Type, required: bool, faults: &mut Faults) {
    check_attributes(place, faults);
    let is_number = matches!(leaf, Type::Int(..) | Type::Dec(..));
    // Around a number OpenSAND reads over comments and blanks.
    let around = if is_number {
        Severity::Slip
    } else {
        Severity::Error
    };
    if place.node.children().any(|child| !child.is_text()) {
        let inner = elements(place.node).next().map(|_| Severity::Error);
        let reason = "holds more than text";
        place.reported(inner.unwrap_or(around), faults, reason, describe_type(leaf));
        return;
    }
    let Some(text) = place.text() else {
        if required {
            place.fault(faults, "is empty", describe_type(leaf));
        }
        return;
    };
    if text.trim() != text {
        let reason = "has blanks around its value";
        place.reported(around, faults, reason, "remove blanks and line breaks");
        if !is_number {
            return;
        }
    }
    if let Some((severity, reason)) = refusal(leaf, text.trim()) {
        place.reported(severity, faults, reason, describe_type(leaf));
    }
}

/// Why `text` is not a value of this type, and how severe that is.
fn refusal(leaf: Type, text: &str) -> Option<(Severity, String)> {
    use Severity::{Error, Slip, Unsupported};
    let otherwise = |valid: bool, severity: Severity| {
        (!valid).then(|| (severity, format!("{text:?} is not allowed")))
    };
    match leaf {
        Type::Int(min, max) => integer(text, min, max),
        Type::Dec(min, max) => otherwise(
            text.bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte))
                && text
                    .parse::<f64>()
                    .is_ok_and(|value| (min..=max).contains(&value)),
            Error,
        ),
        Type::Bool => otherwise(matches!(text, "true" | "false"), Error),
        Type::Choice(supported, refused) => match text {
            _ if supported.contains(&text) => None,
            _ if refused.contains(&text) => Some((Unsupported, format!("{text} is {UNSUPPORTED}"))),
            _ => otherwise(false, Error),
        },
        Type::WaveForms if text.contains(',') => Some((
            Unsupported,
            format!("groups of ids (VCM) are {UNSUPPORTED}: {VCM_DEFECT}"),
        )),
        Type::WaveForms if wave_forms(text).is_none() => otherwise(
            false,
            if lenient_ids(text).is_empty() {
                Error
            } else {
                Slip
            },
        ),
        Type::WaveForms | Type::Text => None,
        Type::Ipv4 => otherwise(text.parse::<Ipv4Addr>().is_ok(), Slip),
        Type::Mac => otherwise(mac(text).is_some_and(|address| address[0] & 1 == 0), Slip),
        Type::Interface => otherwise(
            (1..=15).contains(&text.len())
                && !matches!(text, "." | "..")
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':'),
            Error,
        ),
    }
}

/// Why `text` is not an integer of this range. `OpenSAND` reads the leading digits, and wraps
/// negative numbers.
fn integer(text: &str, min: u64, max: u64) -> Option<(Severity, String)> {
    let range = min..=max;
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits && text.parse().is_ok_and(|value: u64| range.contains(&value)) {
        return None;
    }
    // Beyond 16 bits a wrapped number is of no use.
    let may_wrap = !text.starts_with('-') || max <= 65_535;
    let taken =
        lenient_integer(text).filter(|value| !all_digits && may_wrap && range.contains(value));
    Some(match taken {
        Some(value) => (
            Severity::Slip,
            format!("{text:?} is not allowed, OpenSAND reads {value}"),
        ),
        None => (Severity::Error, format!("{text:?} is not allowed")),
    })
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

/// The ids of a `wave_form` text as far as they can be read: blanks are skipped, a falling range is
/// read upwards, of groups (VCM) all ids count.
pub(crate) fn lenient_ids(text: &str) -> Vec<u8> {
    let mut ids = Vec::new();
    for part in text.split([';', ',']) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Some(first), Some(last)) = (id(first.trim()), id(last.trim())) {
            ids.extend(first.min(last)..=first.max(last));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
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
