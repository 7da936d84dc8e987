//! Page for browsers: one HTML file with the documents of a trace, and the script that draws them.
//!
//! The page asks for nothing: style and script stand in it, and its security policy names them by their hashes. All text that comes
//! from a trace stands in one data block, as JSON without a `<`, and the script puts it on the screen as text.

pub(crate) mod loss;
mod nodes;
mod parts;

use std::io::{self, Write};

use kmemtrace::documents::Document;
use kmemtrace::documents::tree::TreeBody;
use kmemtrace::{Clock, GroupKey};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::text::escape::escape_json;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

use nodes::Tree;
use parts::{Cross, Growth, Leaks, PageTable, Waiting};

/// Page, with marks where policy, style, data and script stand.
const PAGE: &str = include_str!("page.html");
/// Style of the page.
const STYLE: &str = include_str!("page.css");
/// Script of the page: its parts share one scope, and stand in this order.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("script/format.js"),
    include_str!("script/model.js"),
    include_str!("script/head.js"),
    include_str!("script/layout.js"),
    include_str!("script/picture.js"),
    include_str!("script/branch.js"),
    include_str!("script/table.js"),
    include_str!("script/charts.js"),
    include_str!("script/leaks.js"),
    include_str!("script/waiting.js"),
    include_str!("script/page.js"),
);
/// Hash of [`STYLE`] in base64, as a security policy has it. After a change of the style, a test tells the new one.
const STYLE_HASH: &str = "H10sc/UOBunVukstdR+37YQJMej8p1MaVV4FSxC/N64=";
/// Hash of [`SCRIPT`].
const SCRIPT_HASH: &str = "kzn7NOqhJsJaVpxxMX046XKhWkJJFSbJEMc4q6+n3Z4=";

/// Nodes of the first tree of a page at most: a browser shows as many at once, and a person sees fewer.
const MAX_NODES: usize = 20_000;

/// Nodes of the other trees at most, each.
const MAX_NODES_OF_OTHERS: usize = 2_000;

/// Documents of a page. A part that the input does not have is `None`, and the page says so.
pub(crate) struct Documents<'a> {
    /// Name of the input, as the user gave it.
    pub(crate) title: String,
    /// Filters and time window in words.
    pub(crate) asked: Vec<String>,
    /// Clock of the trace.
    pub(crate) clock: Clock,
    /// `summary`.
    pub(crate) summary: Document<'a>,
    /// The page keeps the name of the host and the recorder's command line.
    pub(crate) with_host: bool,
    /// Trees, the one that is shown first at the front.
    pub(crate) trees: Vec<PageTree>,
    /// `leaks`.
    pub(crate) leaks: Option<Document<'a>>,
    /// `latency` and `stalls`.
    pub(crate) waiting: Option<[Document<'a>; 2]>,
    /// `sites`.
    pub(crate) sites: Document<'a>,
    /// `caches`.
    pub(crate) caches: Option<Document<'a>>,
    /// `mismatch`.
    pub(crate) mismatch: Option<Document<'a>>,
    /// `growth`.
    pub(crate) growth: Option<Document<'a>>,
    /// Intervals of order keys in which events may be missing; `None` where the input has no order of events.
    pub(crate) loss: Option<Vec<(u64, u64)>>,
    /// `cross`.
    pub(crate) cross: Option<Document<'a>>,
    /// `sites` by requested size.
    pub(crate) sizes: Option<Document<'a>>,
}

/// Tree of a page.
#[derive(Clone, Debug)]
pub(crate) struct PageTree {
    /// Word of its first key.
    pub(crate) by: &'static str,
    /// Keys; none of a tree of folders or areas.
    pub(crate) keys: Vec<GroupKey>,
    /// Body of `tree`, whole.
    pub(crate) tree: TreeBody,
}

/// Tree of the data block.
#[derive(Serialize)]
struct TreeData {
    /// Words of its keys, the first one tells what its nodes at the top are.
    by: Vec<&'static str>,
    /// Name of the space that its figures are of.
    space: &'static str,
    #[serde(flatten)]
    tree: Tree,
}

impl TreeData {
    fn of(tree: &PageTree, max: usize) -> TreeData {
        let by = if tree.keys.is_empty() { vec![tree.by] } else { tree.keys.iter().map(|key| key.name()).collect() };
        TreeData { by, space: tree.tree.shows, tree: Tree::of(&tree.tree.root, max) }
    }
}

/// Data block of a page.
#[derive(Serialize)]
struct Data<'a> {
    schema: &'static str,
    title: &'a str,
    asked: &'a [String],
    /// Unit of times: `ns`, `ticks` or `records`.
    unit: &'static str,
    summary: Value,
    /// Folder or area at the root, as it was asked for.
    branch: Option<&'a str>,
    /// Live bytes whose caller is not known.
    wrapped_live: u64,
    trees: Vec<TreeData>,
    leaks: Option<Leaks>,
    waiting: Option<Waiting>,
    sites: Option<PageTable>,
    caches: Option<PageTable>,
    mismatch: Option<PageTable>,
    growth: Option<Growth>,
    loss: Option<Vec<(u64, u64)>>,
    cross: Option<Cross>,
    sizes: Option<PageTable>,
}

impl<'a> Data<'a> {
    fn of(documents: &'a Documents<'_>) -> io::Result<Data<'a>> {
        let mut summary = serde_json::to_value(&documents.summary)?;
        parts::make_harmless(&mut summary);
        summary.get_mut("names").into_iter().for_each(parts::shorten_files);
        summary.get_mut("trace").into_iter().for_each(|trace| parts::leave_out_names(trace, documents.with_host));
        let waiting = documents.waiting.as_ref().map(|[spans, stalls]| Waiting::of(spans, stalls)).transpose()?;
        let of_places = documents.trees.iter().find(|tree| tree.keys.is_empty());
        let max_of = |index: usize| if index == 0 { MAX_NODES } else { MAX_NODES_OF_OTHERS };
        let first = documents.summary.head.trace.first;
        let table =
            |document: &Option<Document<'_>>| document.as_ref().and_then(|document| PageTable::of(&document.body));
        Ok(Data {
            schema: "kmemtrace.page/1",
            title: &documents.title,
            asked: &documents.asked,
            unit: match documents.clock.unit {
                Unit::Nanoseconds => "ns",
                Unit::Ticks => "ticks",
                Unit::Records => "records",
            },
            summary,
            branch: of_places.and_then(|tree| tree.tree.branch.as_deref()),
            wrapped_live: of_places.map_or(0, |tree| tree.tree.wrapped_live),
            trees: documents.trees.iter().enumerate().map(|(at, tree)| TreeData::of(tree, max_of(at))).collect(),
            leaks: documents.leaks.as_ref().and_then(|document| Leaks::of(&document.body)),
            waiting,
            sites: PageTable::of(&documents.sites.body),
            caches: table(&documents.caches),
            mismatch: table(&documents.mismatch),
            growth: documents.growth.as_ref().and_then(|document| Growth::of(&document.body, first)),
            loss: documents.loss.clone(),
            cross: documents.cross.as_ref().and_then(|document| Cross::of(&document.body)),
            sizes: table(&documents.sizes),
        })
    }
}

/// Writes the page.
pub(crate) fn page(documents: &Documents<'_>, out: &mut dyn Write) -> io::Result<()> {
    let data = Data::of(documents)?;
    let mut rest = PAGE;
    for mark in ["{style hash}", "{script hash}", "{style}", "{data}", "{script}"] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        match mark {
            "{style hash}" => out.write_all(STYLE_HASH.as_bytes())?,
            "{script hash}" => out.write_all(SCRIPT_HASH.as_bytes())?,
            "{style}" => out.write_all(STYLE.as_bytes())?,
            "{script}" => out.write_all(SCRIPT.as_bytes())?,
            _ => data.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, InMarkup))?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Formatter of JSON within HTML: no `<`, which may end the block, and no character that a reader would not see.
struct InMarkup;

impl Formatter for InMarkup {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let fragment = escape_json(fragment);
        for (number, part) in fragment.split('<').enumerate() {
            if number > 0 {
                out.write_all(b"\\u003c")?;
            }
            out.write_all(part.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// SHA-256 of a text in base64, by the system's own program.
    fn hash(text: &str) -> String {
        let mut child =
            Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha256sum runs");
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let digits = child.wait_with_output().unwrap().stdout;
        let bytes: Vec<u8> = digits[..64]
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect();
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in bytes.chunks(3) {
            let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            let digit = |at: usize| char::from(alphabet[(bits >> (18 - 6 * at)) as usize & 63]);
            text.extend((0..4).map(|at| if at <= three.len() { digit(at) } else { '=' }));
        }
        text
    }

    #[test]
    fn the_policy_names_the_hashes_of_style_and_script() {
        assert_eq!((STYLE_HASH, SCRIPT_HASH), (&*hash(STYLE), &*hash(SCRIPT)), "the constants of this file");
    }

    #[test]
    fn style_and_script_are_small_and_do_not_end_early() {
        assert!(STYLE.len() + SCRIPT.len() <= 300 << 10, "{} bytes", STYLE.len() + SCRIPT.len());
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
    }

    #[test]
    fn text_in_the_data_block_ends_no_element() {
        let mut out = Vec::new();
        let value = ["</script><!--", "a\u{202e}"];
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, InMarkup)).unwrap();
        assert_eq!(out, br#"["\u003c/script>\u003c!--","a\u202e"]"#);
        assert_eq!(serde_json::from_slice::<[String; 2]>(&out).unwrap(), value);
    }
}
