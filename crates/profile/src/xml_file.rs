// SPDX-License-Identifier: GPL-3.0-or-later
//! One XML file: caps checked before parsing, no DTD, no entities, line numbers, access by path.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use roxmltree::{Document, Node, ParsingOptions};

use crate::fault::{Fault, Faults, Severity};

/// Largest file that is read, bytes. The largest shipped file has 13 kB.
pub const MAX_BYTES: u64 = 4 << 20;
/// Deepest nesting that is parsed. `OpenSAND` 8.2 needs 9 levels.
pub const MAX_DEPTH: usize = 32;
/// Bytes of a tag with its attributes, each of which the parser compares with all before it.
const MAX_TAG: usize = 4096;
/// Most XML nodes in a file.
const MAX_NODES: u32 = 100_000;

/// Text of a file and its name as the user will see it in faults.
pub(crate) struct Source {
    /// Name inside the folder.
    pub name: String,
    pub file: String,
    pub text: String,
    /// Folder of the file: its paths are relative to it.
    pub dir: PathBuf,
    lines: Vec<usize>,
}

impl Source {
    /// Reads `dir/name`; refuses anything but a regular file, and one that is too large, not UTF-8
    /// or nested too deeply.
    pub fn read(dir: &Path, name: &str, faults: &mut Faults) -> Option<Self> {
        let path = dir.join(name);
        let file = path.display().to_string();
        match read_capped(&path).and_then(|text| check_depth(&text).map(|()| text)) {
            Ok(text) => {
                let lines = text.match_indices('\n').map(|(at, _)| at).collect();
                Some(Self {
                    name: name.to_owned(),
                    file,
                    text,
                    dir: dir.to_path_buf(),
                    lines,
                })
            }
            Err((line, reason, remedy)) => {
                faults.push(Fault {
                    file,
                    line,
                    element: "model".into(),
                    reason,
                    remedy,
                    severity: Severity::Error,
                });
                None
            }
        }
    }

    /// Parses the text; syntax errors, DTDs and entities become faults.
    pub fn parse(&self, faults: &mut Faults) -> Option<Document<'_>> {
        let options = ParsingOptions {
            allow_dtd: false,
            nodes_limit: MAX_NODES,
            ..ParsingOptions::default()
        };
        Document::parse_with_options(&self.text, options)
            .map_err(|error| {
                let remedy = match error {
                    roxmltree::Error::DtdDetected => {
                        "remove the DOCTYPE: profiles have no DTD and no entities"
                    }
                    roxmltree::Error::NodesLimitReached => "a profile has at most 100000 XML nodes",
                    _ => "make the file well-formed XML",
                };
                faults.push(Fault {
                    file: self.file.clone(),
                    line: error.pos().row,
                    element: "model".into(),
                    reason: error.to_string(),
                    remedy: remedy.into(),
                    severity: Severity::Error,
                });
            })
            .ok()
    }

    /// `model/root`, unchecked; `None` where it is not there.
    pub fn root<'a>(&'a self, document: &'a Document<'a>) -> Option<Place<'a>> {
        let model = document.root_element();
        let node = elements(model).find(|node| node.tag_name().name() == "root")?;
        Some(Place {
            source: self,
            node,
            path: String::new(),
        })
    }

    /// As [`Source::root`]; without one it is a fault.
    pub fn checked_root<'a>(
        &'a self,
        document: &'a Document<'a>,
        faults: &mut Faults,
    ) -> Option<Place<'a>> {
        let root = self.root(document);
        if root.is_none() {
            let remedy = "the root of an OpenSAND 8.2 file is <model version=\"1.0.0\"><root>";
            self.fault(faults, None, "model", "has no <root> below <model>", remedy);
        }
        root
    }

    /// Line of a node, from 1. A table of line ends keeps this cheap for files full of faults.
    pub fn line(&self, node: Node<'_, '_>) -> u32 {
        let start = node.range().start;
        u32::try_from(self.lines.partition_point(|&end| end < start) + 1).unwrap_or(u32::MAX)
    }

    /// Reports `element` (at `node`, or the file as a whole).
    pub fn fault(
        &self,
        faults: &mut Faults,
        node: Option<Node<'_, '_>>,
        element: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.report(Severity::Error, faults, node, element, reason, remedy);
    }

    fn report(
        &self,
        severity: Severity,
        faults: &mut Faults,
        node: Option<Node<'_, '_>>,
        element: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        faults.push(Fault {
            file: self.file.clone(),
            line: node.map_or(0, |node| self.line(node)),
            element: element.into(),
            reason: reason.into(),
            remedy: remedy.into(),
            severity,
        });
    }
}

/// Line, reason, remedy.
pub(crate) type Refusal = (u32, String, String);

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "files of the profile"
)]
pub(crate) fn read_capped(path: &Path) -> Result<String, Refusal> {
    let refuse = |reason: String, remedy: &str| (0, reason, remedy.to_owned());
    let unreadable = |error: std::io::Error| {
        refuse(
            format!("cannot be read: {error}"),
            "write the path of a file that is there; profile folders hold six XML files",
        )
    };
    // Asked before opening: opening a FIFO would wait for a writer.
    let meta = fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(refuse(
            "is not a regular file".into(),
            "put the file itself here",
        ));
    }
    let too_large = || {
        refuse(
            format!("is larger than {MAX_BYTES} bytes"),
            "a profile file is a few kB; check what this is",
        )
    };
    if meta.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".into(), "save the file as UTF-8"))
}

/// Walks the tags without building a tree, so that nesting cannot exhaust the parser's stack.
fn check_depth(text: &str) -> Result<(), Refusal> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0usize, 0usize);
    while let Some(open) = text[at..].find('<').map(|found| at + found) {
        let rest = &text[open..];
        let (length, step) = if rest.starts_with("<!--") {
            (skip(rest, "-->"), 0)
        } else if rest.starts_with("<![CDATA[") {
            (skip(rest, "]]>"), 0)
        } else if rest.starts_with("<?") {
            (skip(rest, "?>"), 0)
        } else {
            let length = tag_length(rest.as_bytes());
            let step = match bytes.get(open + 1) {
                Some(b'/') => -1,
                Some(b'!') => 0,
                _ if rest.as_bytes()[..length].ends_with(b"/>") => 0,
                _ => 1,
            };
            (length, step)
        };
        if length > MAX_TAG && !rest.starts_with("<!--") && !rest.starts_with("<![CDATA[") {
            let line = text[..open].matches('\n').count() as u32 + 1;
            return Err((
                line,
                format!("has a tag of more than {MAX_TAG} bytes"),
                "OpenSAND 8.2 has no such attributes".into(),
            ));
        }
        depth = depth.saturating_add_signed(step);
        if depth > MAX_DEPTH {
            let line = text[..open].matches('\n').count() as u32 + 1;
            return Err((
                line,
                format!("nested deeper than {MAX_DEPTH} levels"),
                "OpenSAND 8.2 needs 9 levels".into(),
            ));
        }
        at = open + length;
    }
    Ok(())
}

/// Bytes up to and including `end`, or all of `rest`: the parser reports what is not closed.
fn skip(rest: &str, end: &str) -> usize {
    rest.find(end).map_or(rest.len(), |found| found + end.len())
}

/// Bytes of a tag up to and including its `>`, which may also stand inside a quoted attribute.
fn tag_length(rest: &[u8]) -> usize {
    let mut quote = None;
    for (index, &byte) in rest.iter().enumerate() {
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (None, b'>') => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Child elements of a node.
pub(crate) fn elements<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

/// A place in a parsed file: the node and its path, for reading values and reporting faults.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    pub source: &'a Source,
    pub node: Node<'a, 'a>,
    pub path: String,
}

impl<'a> Place<'a> {
    /// The element at `path` (names joined by `/`) below this one, if it is there; of two the last,
    /// as in `OpenSAND`.
    pub fn get(&self, path: &str) -> Option<Place<'a>> {
        let mut node = self.node;
        for name in path.split('/') {
            node = elements(node)
                .filter(|child| child.tag_name().name() == name)
                .last()?;
        }
        Some(Place {
            source: self.source,
            node,
            path: join(&self.path, path),
        })
    }

    /// The element at `path` below this one, or with `../` in front below the one around it.
    pub fn sibling(&self, path: &str) -> Option<Place<'a>> {
        let Some(rest) = path.strip_prefix("../") else {
            return self.get(path);
        };
        let around = Place {
            source: self.source,
            node: self.node.parent_element()?,
            path: self.path.rsplit_once('/').map_or("", |it| it.0).to_owned(),
        };
        around.get(rest)
    }

    /// The `item` children of this list.
    pub fn items_here(&self) -> Vec<Place<'a>> {
        elements(self.node)
            .filter(|node| node.tag_name().name() == "item")
            .enumerate()
            .map(|(index, node)| Place {
                source: self.source,
                node,
                path: join(&self.path, &format!("item[{}]", index + 1)),
            })
            .collect()
    }

    /// The `item` children of the list at `path`; none when the list is not there.
    pub fn items(&self, path: &str) -> Vec<Place<'a>> {
        self.get(path)
            .map(|list| list.items_here())
            .unwrap_or_default()
    }

    /// A place at this node under the path of a child that is not there.
    pub fn child_named(&self, name: &str) -> Self {
        Self {
            path: join(&self.path, name),
            ..self.clone()
        }
    }

    /// The text of this leaf; empty text counts as unset, as in `OpenSAND`.
    pub fn text(&self) -> Option<&'a str> {
        let mut texts = self.node.children().filter(Node::is_text);
        texts.find_map(|node| node.text().filter(|text| !text.is_empty()))
    }

    /// The text of the leaf at `path`.
    pub fn text_at(&self, path: &str) -> Option<&'a str> {
        self.get(path)?.text()
    }

    /// The value of the leaf at `path`, read as leniently as `OpenSAND` does. `None` when it is
    /// missing or malformed. The element table reports both, and what is read leniently.
    pub fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        let text = self.text_at(path)?.trim();
        let lenient = || lenient_integer(text)?.to_string().parse().ok();
        text.parse().ok().or_else(lenient)
    }

    /// Reports this element.
    pub fn fault(&self, faults: &mut Faults, reason: impl Into<String>, remedy: impl Into<String>) {
        self.reported(Severity::Error, faults, reason, remedy);
    }

    /// Reports this element as something that `OpenSAND` takes otherwise than written.
    pub fn slip(&self, faults: &mut Faults, reason: impl Into<String>, remedy: impl Into<String>) {
        self.reported(Severity::Slip, faults, reason, remedy);
    }

    /// Reports this element as something that is loaded, and of no use.
    pub fn note(&self, faults: &mut Faults, reason: impl Into<String>, remedy: impl Into<String>) {
        self.reported(Severity::Note, faults, reason, remedy);
    }

    /// Reports this element as something that satlink does not carry.
    pub fn refuse(
        &self,
        faults: &mut Faults,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.reported(Severity::Unsupported, faults, reason, remedy);
    }

    /// Reports this element.
    pub fn reported(
        &self,
        severity: Severity,
        faults: &mut Faults,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (node, path) = (Some(self.node), self.path.clone());
        self.source
            .report(severity, faults, node, path, reason, remedy);
    }

    /// The element at `path`, or this one when there is none.
    pub fn nearest(&self, path: &str) -> Self {
        self.get(path).unwrap_or_else(|| self.clone())
    }

    /// Reports the element at `path`, or this one when there is none at `path`.
    pub fn fault_at(
        &self,
        path: &str,
        faults: &mut Faults,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.nearest(path).fault(faults, reason, remedy);
    }
}

/// The integer that `OpenSAND` reads: the leading digits of a text; negative numbers wrap, here in
/// 16 bits.
pub(crate) fn lenient_integer(text: &str) -> Option<u64> {
    let (negative, digits) = text
        .strip_prefix('-')
        .map_or((false, text), |digits| (true, digits));
    let end = digits
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(digits.len());
    let value: u64 = digits[..end].parse().ok()?;
    Some(if negative {
        (value as u16).wrapping_neg().into()
    } else {
        value
    })
}

/// Joins two element paths.
pub(crate) fn join(parent: &str, child: &str) -> String {
    if parent.is_empty() {
        child.to_owned()
    } else {
        format!("{parent}/{child}")
    }
}
