//! `static`: bytes of functions and objects by folder and file, from a built tree or a linked image. It has no trace.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::row::{Field, Name, RowSource, TakeMember, TakeRow, row, text_of};
use super::tree::NodeKind;
use crate::names::image_sizes::{FileSizes, PartSizes, StaticSizes};
use crate::query::select::Branch;

/// Name of the root.
const ROOT: &[u8] = b"linux";
/// Name of the node of all bytes without a folder.
const NO_FOLDER: &[u8] = b"(no folder known)";
/// Folders within folders that a path may have; the rest of a longer one is the name of its file.
const MAX_DEPTH: usize = 64;

/// Document of `static`: it opens with the members of every document, null where they would describe a trace.
#[derive(Serialize)]
pub struct StaticDocument {
    /// Name and version of the document's form.
    pub schema: &'static str,
    /// Null: no trace, nothing lost.
    pub completeness: (),
    /// Null.
    pub trace: (),
    /// Origin of the sizes.
    pub source: StaticSource,
    /// Sections of all files read, as `size -A` lists them.
    pub sections: Vec<SectionRow>,
    /// All of it.
    pub root: SizeNode,
}

/// Origin of the sizes.
#[derive(Clone, Debug, Serialize)]
pub struct StaticSource {
    /// `tree` or `vmlinux`.
    pub kind: &'static str,
    /// Path as it was given.
    pub path: String,
    /// Folders or files that were asked for, with commas; `None` for all.
    pub branch: Option<String>,
    /// Number of ELF files read.
    pub objects: usize,
    /// Number of files and folders left out because they cannot be read.
    pub left_out: usize,
}

/// Section and its bytes, of all files together.
#[derive(Clone, Debug)]
pub struct SectionRow {
    /// Name, any bytes.
    pub name: Box<[u8]>,
    /// Bytes.
    pub bytes: u64,
}

impl Serialize for SectionRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        put_name(&mut map, &self.name)?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.end()
    }
}

/// Folder or file: its sizes are the sums of its children's.
#[derive(Clone, Debug)]
pub struct SizeNode {
    /// Name below its parent, any bytes.
    pub name: Box<[u8]>,
    /// Kind: folder, file, unknown or others.
    pub kind: NodeKind,
    /// Bytes.
    pub sizes: PartSizes,
    /// Number of nodes folded into it; 0 except for [`NodeKind::Others`].
    pub folded: usize,
    /// Children, largest first; a folded node is the last one.
    pub children: Vec<SizeNode>,
}

/// Folders, levels and children that a document shows.
#[derive(Clone, Debug, Default)]
pub struct StaticShape {
    /// Folders or files; none for all. A single one is the root.
    pub branches: Vec<Branch>,
    /// Levels below the root; `None` for all.
    pub depth: Option<usize>,
    /// Children of each folder; the rest is folded.
    pub top: Option<usize>,
}

/// Document of `static`; `kind` is `tree` or `vmlinux`, `path` the text of its path.
pub fn static_sizes(sizes: &StaticSizes, kind: &'static str, path: String, shape: &StaticShape) -> StaticDocument {
    let section = |(name, bytes): (&[u8], u64)| SectionRow { name: name.into(), bytes };
    let mut root = Folder::default();
    let is_whole = shape.branches.is_empty();
    let is_asked = |path: &[u8]| is_whole || shape.branches.iter().any(|branch| branch.holds(path));
    for (path, file) in sizes.files().filter(|(path, _)| is_asked(path)) {
        let mut parts = path.splitn(MAX_DEPTH, |&byte| byte == b'/').peekable();
        let mut folder = &mut root;
        while let Some(part) = parts.next() {
            if parts.peek().is_some() {
                folder = folder.folders.entry(part.into()).or_default();
            } else {
                folder.files.entry(part.into()).or_default().add(&file.parts);
            }
        }
    }
    let mut root = root.node(ROOT.into());
    if is_whole {
        root.children.extend(placeless(sizes));
    }
    if let [branch] = &shape.branches[..] {
        root = root.below(&branch.to_string());
    }
    root.sum_up();
    root.shape(shape, 0);
    let branches: Vec<String> = shape.branches.iter().map(Branch::to_string).collect();
    let branch = (!is_whole).then(|| branches.join(","));
    StaticDocument {
        schema: "kmemtrace.static/1",
        completeness: (),
        trace: (),
        source: StaticSource { kind, path, branch, objects: sizes.objects(), left_out: sizes.left_out().1 },
        sections: sizes.sections().map(section).collect(),
        root,
    }
}

/// Node of all bytes without a folder, if there are any, with a child for each base name.
fn placeless(sizes: &StaticSizes) -> Option<SizeNode> {
    let child = |(name, file): (&[u8], &FileSizes)| match name {
        [] => SizeNode::leaf(b"(no file known)"[..].into(), NodeKind::Unknown, file.parts),
        name => SizeNode::leaf(name.into(), NodeKind::File, file.parts),
    };
    let children: Vec<SizeNode> = sizes.placeless().map(child).collect();
    let node = SizeNode::leaf(NO_FOLDER.into(), NodeKind::Unknown, PartSizes::default());
    (!children.is_empty()).then_some(SizeNode { children, ..node })
}

/// Folder that is being filled.
#[derive(Default)]
struct Folder {
    folders: BTreeMap<Box<[u8]>, Folder>,
    files: BTreeMap<Box<[u8]>, PartSizes>,
}

impl Folder {
    /// Node of the folder, without sums.
    fn node(self, name: Box<[u8]>) -> SizeNode {
        let folders = self.folders.into_iter().map(|(name, folder)| folder.node(name));
        let files = self.files.into_iter().map(|(name, sizes)| SizeNode::leaf(name, NodeKind::File, sizes));
        let node = SizeNode::leaf(name, NodeKind::Folder, PartSizes::default());
        SizeNode { children: folders.chain(files).collect(), ..node }
    }
}

impl SizeNode {
    fn leaf(name: Box<[u8]>, kind: NodeKind, sizes: PartSizes) -> SizeNode {
        SizeNode { name, kind, sizes, folded: 0, children: Vec::new() }
    }

    /// Folder or file at a path below it, under that path.
    fn below(self, path: &str) -> SizeNode {
        let step = |node: SizeNode, part: &str| node.children.into_iter().find(|child| *child.name == *part.as_bytes());
        let node = path.split('/').try_fold(self, step);
        let node = node.unwrap_or_else(|| SizeNode::leaf(Box::default(), NodeKind::Folder, PartSizes::default()));
        SizeNode { name: path.as_bytes().into(), ..node }
    }

    /// Adds up the sizes of folders, and sorts children: the largest first, then by name.
    fn sum_up(&mut self) {
        for child in &mut self.children {
            child.sum_up();
            self.sizes.add(&child.sizes);
        }
        self.children.sort_by(|a, b| b.sizes.total().cmp(&a.sizes.total()).then_with(|| a.name.cmp(&b.name)));
    }

    /// Leaves out the levels and the children beyond those of the shape.
    fn shape(&mut self, shape: &StaticShape, depth: usize) {
        if shape.depth.is_some_and(|limit| depth >= limit) {
            self.children.clear();
            return;
        }
        let rest = self.children.split_off(shape.top.unwrap_or(usize::MAX).min(self.children.len()));
        self.children.iter_mut().for_each(|child| child.shape(shape, depth + 1));
        if !rest.is_empty() {
            let mut others = SizeNode::leaf(Box::default(), NodeKind::Others, PartSizes::default());
            rest.iter().for_each(|node| others.sizes.add(&node.sizes));
            others.folded = rest.len();
            self.children.push(others);
        }
    }

    /// Hands the nodes that have no children to `take`, with the folder that each is in.
    fn each_leaf<E>(&self, folder: &[u8], take: &mut TakeRow<'_, E>) -> Result<(), E> {
        for child in &self.children {
            let path = if folder.is_empty() { child.name.to_vec() } else { [folder, b"/", &child.name].concat() };
            if child.children.is_empty() {
                take(&child.row(folder, &path))?;
            } else {
                child.each_leaf(&path, take)?;
            }
        }
        Ok(())
    }

    /// Row of a node without children.
    fn row<'a>(&'a self, folder: &'a [u8], path: &'a [u8]) -> StaticRow<'a> {
        let (folder, file) = match self.kind {
            NodeKind::File => (folder, Some(&*self.name)),
            NodeKind::Others => (folder, None),
            _ => (path, None),
        };
        StaticRow {
            folder: Some(folder.into()),
            file: file.map(Into::into),
            kind: self.kind.name(),
            sizes: Sizes(self.sizes),
        }
    }
}

row! {
    /// File and its sizes, or a folder whose files are not shown.
    pub struct StaticRow<'a> {
        /// Folder, from the root of the sources; empty for the root.
        pub folder: Name<'a>,
        /// File in that folder; `None` for all of it.
        pub file: Name<'a>,
        /// Word of the kind of node.
        pub kind: &'static str,
        /// Bytes.
        pub sizes: Sizes,
    }
}

/// Sizes as members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes(pub PartSizes);

impl Sizes {
    /// Names and values of the members.
    fn members(self) -> [(&'static str, u64); 10] {
        let sizes = self.0;
        [
            ("static", sizes.total()),
            ("text", sizes.text),
            ("rodata", sizes.rodata),
            ("data", sizes.data),
            ("bss", sizes.bss),
            ("init", sizes.init()),
            ("init_text", sizes.init_text),
            ("init_rodata", sizes.init_rodata),
            ("init_data", sizes.init_data),
            ("init_bss", sizes.init_bss),
        ]
    }
}

impl Field for Sizes {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members().iter().for_each(|(name, bytes)| bytes.put(name, take));
    }
}

impl Serialize for SizeNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        put_name(&mut map, &self.name)?;
        map.serialize_entry("kind", self.kind.name())?;
        for (name, bytes) in Sizes(self.sizes).members() {
            map.serialize_entry(name, &bytes)?;
        }
        if self.kind == NodeKind::Others {
            map.serialize_entry("folded", &self.folded)?;
        }
        map.serialize_entry("children", &self.children)?;
        map.end()
    }
}

/// Writes a name, with its bytes beside it where it is no UTF-8.
fn put_name<M: SerializeMap>(map: &mut M, name: &[u8]) -> Result<(), M::Error> {
    let (text, hex) = text_of(name);
    map.serialize_entry("name", &text)?;
    hex.map_or(Ok(()), |hex| map.serialize_entry("name_hex", &hex))
}

/// Opening members of the document, for outputs that print rows after them.
#[derive(Serialize)]
pub struct StaticHead<'a> {
    schema: &'static str,
    completeness: (),
    trace: (),
    source: &'a StaticSource,
    sections: &'a [SectionRow],
    total: BTreeMap<&'static str, u64>,
}

impl StaticDocument {
    /// All but the nodes, with their sum.
    pub fn head(&self) -> StaticHead<'_> {
        let total = Sizes(self.root.sizes).members();
        StaticHead {
            schema: self.schema,
            completeness: (),
            trace: (),
            source: &self.source,
            sections: &self.sections,
            total: total.into_iter().collect(),
        }
    }
}

impl RowSource for StaticDocument {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        // The paths of a single branch begin with it.
        let is_branch = self.source.branch.as_ref().is_some_and(|branch| !branch.contains(','));
        let path: &[u8] = if is_branch { &self.root.name } else { b"" };
        if self.root.kind != NodeKind::File {
            return self.root.each_leaf(path, take);
        }
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let (folder, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        let file = SizeNode { name: name.into(), ..self.root.clone() };
        take(&file.row(folder, path))
    }
}
