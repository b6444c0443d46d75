// SPDX-License-Identifier: GPL-3.0-or-later
//! The elements of `OpenSAND` 8.2 profiles: one table per file, in the order the files are written.
//!
//! Values that `OpenSAND` allows and this release does not support are in the `refused` half of a
//! [`Type::Choice`] or in a [`Kind::RefusedList`], so that they are refused by name.

mod infrastructure;
mod profile;
mod topology;

use crate::fault::Severity;

pub(crate) use infrastructure::INFRASTRUCTURE;
pub(crate) use profile::{PROFILE_GW, PROFILE_ST};
pub(crate) use topology::TOPOLOGY;

/// What a leaf may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type {
    /// Decimal integer without sign, bounds included.
    Int(u64, u64),
    /// Decimal number, bounds included.
    Dec(f64, f64),
    /// `true` or `false`: 8.2 loads no other spelling.
    Bool,
    /// Any text.
    Text,
    /// One of the words; the second list has those that `OpenSAND` supports and satlink does not.
    Choice(&'static [&'static str], &'static [&'static str]),
    /// MODCOD or waveform ids: `;` between ids, `-` for a range.
    WaveForms,
    /// IPv4 address in dotted form.
    Ipv4,
    /// Unicast MAC address, six hexadecimal pairs.
    Mac,
    /// Name of a network interface, 1 to 15 characters.
    Interface,
}

/// When an element has to be there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    Required,
    Optional,
    /// Required when the sibling leaf has this value, or with `../` in front that of the section
    /// around; its content is then required too.
    When(&'static str, &'static str),
}

/// Shape of an element.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Leaf(Type),
    /// Children in this order, each at most once.
    Section(&'static [Element]),
    /// Children named `item`; at least so many.
    List(usize, &'static [Element]),
    /// A list that must be empty: what its items describe is not supported.
    RefusedList(&'static [Element]),
    /// The elements of another table stand here.
    Include(&'static [Element]),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element {
    pub name: &'static str,
    pub kind: Kind,
    pub need: Need,
    /// `OpenSAND` starts without it, although its schema asks for it.
    pub spared: bool,
}

impl Element {
    /// What its absence means.
    pub(crate) const fn absence(&self) -> Severity {
        if self.spared {
            Severity::Slip
        } else {
            Severity::Error
        }
    }

    const fn spared(self) -> Self {
        Self {
            spared: true,
            ..self
        }
    }

    const fn optional(self) -> Self {
        Self {
            need: Need::Optional,
            ..self
        }
    }

    const fn when(self, sibling: &'static str, value: &'static str) -> Self {
        Self {
            need: Need::When(sibling, value),
            ..self
        }
    }
}

const fn element(name: &'static str, kind: Kind) -> Element {
    Element {
        name,
        kind,
        need: Need::Required,
        spared: false,
    }
}

const fn leaf(name: &'static str, leaf: Type) -> Element {
    element(name, Kind::Leaf(leaf))
}

const fn section(name: &'static str, children: &'static [Element]) -> Element {
    element(name, Kind::Section(children))
}

const fn list(name: &'static str, least: usize, item: &'static [Element]) -> Element {
    element(name, Kind::List(least, item))
}

const fn refused_list(name: &'static str, item: &'static [Element]) -> Element {
    element(name, Kind::RefusedList(item))
}

const fn include(children: &'static [Element]) -> Element {
    Element {
        name: "",
        kind: Kind::Include(children),
        need: Need::Optional,
        spared: false,
    }
}

/// Elements that files of 7.x and earlier have, by the end of their path, and what 8.2 has in their
/// place.
const EARLIER: [(&str, &str); 5] = [
    (
        "entity_sat/default_gw",
        "the satellite has no default gateway",
    ),
    (
        "infrastructure/satellite",
        "satellites/item with entity_id and emu_address",
    ),
    (
        "logs/encap",
        "logs has no level of its own for encapsulation, extra_levels names units",
    ),
    (
        "symbol_rate",
        "bandwidth in kHz, the symbol rate times 1 + roll_off",
    ),
    (
        "gse/packing_threshold",
        "gse has max_frag_id, decap_buffer_len and compatibility_mode",
    ),
];

/// What 8.2 has in place of an element of an earlier release; `None`: no release had it.
pub(crate) fn earlier(path: &str) -> Option<&'static str> {
    let found = EARLIER.iter().find(|(end, _)| path.ends_with(end));
    found.map(|(_, now)| *now)
}

/// The id that frames to all terminals carry; entities stay below it.
pub(crate) const BROADCAST_ID: u64 = 31;

const ID: Type = Type::Int(0, BROADCAST_ID - 1);
const USHORT: Type = Type::Int(0, 65_535);
const UBYTE: Type = Type::Int(0, 255);
const UINT: Type = Type::Int(0, u32::MAX as u64);
const INT: Type = Type::Int(0, i32::MAX as u64);
const POSITIVE: Type = Type::Int(1, u32::MAX as u64);
const PORT: Type = Type::Int(1, 65_535);
const DECIBEL: Type = Type::Dec(-100.0, 100.0);
/// Frame durations, ms: `OpenSAND` keeps integer microseconds.
const DURATION_MS: Type = Type::Dec(0.001, 10_000.0);
const LEVEL: Type = Type::Choice(
    &["debug", "info", "notice", "warning", "error", "critical"],
    &[],
);
const GROUP: Type = Type::Choice(
    &[
        "Standard",
        "Premium",
        "Professional",
        "SVNO1",
        "SVNO2",
        "SVNO3",
        "SNO",
    ],
    &[],
);
const BURST: Type = Type::Choice(&["536 sym", "1616 sym"], &[]);
const LAN_FRAMES: Type = Type::Choice(&["Ethernet", "802.1Q"], &["802.1ad"]);
const SAT_FRAMES: Type = Type::Choice(&["Ethernet"], &["802.1Q", "802.1ad"]);
const OFF: Type = Type::Choice(&["false"], &["true"]);
const MODULATION: Type = Type::Choice(
    &[
        "BPSK", "Pi/2BPSK", "QPSK", "8PSK", "16APSK", "16QAM", "32APSK",
    ],
    &[],
);
const CODING: Type = Type::Choice(
    &[
        "1/4", "1/3", "2/5", "1/2", "3/5", "2/3", "3/4", "4/5", "5/6", "6/7", "8/9", "9/10",
    ],
    &[],
);
