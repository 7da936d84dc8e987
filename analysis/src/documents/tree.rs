//! `tree`: figures by folder, file, function and call-site, or by area.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::ranked::{Shape, SortKey};
use super::row::{Address, Cell, Row, RowSource, TakeMember, TakeRow, text_of};
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::account::stats::Stats;
use crate::names::place::Place;
use crate::query::select::Branch;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeKind {
    /// Folder of sources; the root, too.
    Folder,
    /// Source file.
    File,
    /// Function.
    Function,
    /// Call-site.
    Site,
    /// Module whose folder is not known.
    Module,
    /// Area of the kernel's MAINTAINERS.
    Area,
    /// Call-sites whose folder is not known.
    Unknown,
    /// Children that were folded.
    Others,
}

impl NodeKind {
    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Folder => "folder",
            NodeKind::File => "file",
            NodeKind::Function => "function",
            NodeKind::Site => "site",
            NodeKind::Module => "module",
            NodeKind::Area => "area",
            NodeKind::Unknown => "unknown",
            NodeKind::Others => "others",
        }
    }
}

/// Node of the tree: its figures are the sums of its children's and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Name below its parent: any bytes.
    pub name: Box<[u8]>,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Sums over the call-sites below it; without a peak.
    pub stats: PrintedStats,
    /// Bytes of functions and objects in the kernel's image or tree; `None` where no such file was named.
    pub static_bytes: Option<u64>,
    /// Static bytes and live bytes.
    pub current: Option<u64>,
    /// Number of nodes folded into it; 0 but for [`NodeKind::Others`].
    pub folded: usize,
    /// Children, greatest first; a folded node is the last one.
    pub children: Vec<TreeNode>,
}

impl Serialize for TreeNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (text, hex) = text_of(&self.name);
        map.serialize_entry("name", &text)?;
        if let Some(hex) = hex {
            map.serialize_entry("name_hex", &hex)?;
        }
        map.serialize_entry("kind", self.kind.name())?;
        let mut result = Ok(());
        self.stats.members(&mut |member, cell| {
            if result.is_ok() && member != "peak_live_allocated" {
                result = map.serialize_entry(member, &cell);
            }
        });
        result?;
        map.serialize_entry("static", &self.static_bytes)?;
        map.serialize_entry("current", &self.current)?;
        if self.kind == NodeKind::Others {
            map.serialize_entry("folded", &self.folded)?;
        }
        map.serialize_entry("children", &self.children)?;
        map.end()
    }
}

/// Body of `tree`.
#[derive(Serialize)]
pub struct TreeBody {
    /// Word of the key that nodes are sized and sorted by.
    pub sort: &'static str,
    /// Folders at the root, as they were asked for; `None` for all.
    pub branch: Option<String>,
    /// Live bytes of objects whose caller is not known: a wrapper stands in its place.
    pub wrapped_live: u64,
    /// All of it.
    pub root: TreeNode,
}

/// Options of a tree, beyond the order and the number of children.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// Areas in place of folders.
    pub by_area: bool,
    /// Levels below the root.
    pub depth: Option<usize>,
    /// Folders that were asked for: a single one is the root.
    pub branches: Vec<Branch>,
}

/// Call-site of the tree, with its sums.
pub(super) struct Leaf<'a> {
    /// Call-site.
    pub(crate) call_site: u64,
    /// `function+0x1f`, if it is known.
    pub(crate) symbol: Option<Vec<u8>>,
    /// Module of the call-site.
    pub(crate) module: Option<&'a [u8]>,
    /// Place in the sources.
    pub(crate) place: Arc<Place>,
    /// Sums over its objects.
    pub(crate) stats: &'a Stats,
}

/// Name of the root.
const ROOT: &[u8] = b"linux";
/// Name of the node of call-sites without a folder.
const NO_FOLDER: &[u8] = b"(no folder known)";
/// Name of the node of call-sites without an area.
const NO_AREA: &[u8] = b"(no area known)";

/// Limit of folders within each other: paths of files are a stranger's.
const MAX_DEPTH: usize = 64;

/// Steps from the root to a node.
type Path = Vec<(NodeKind, Box<[u8]>)>;

/// Tree in the making: nodes by kind and name, each with sums of its own.
#[derive(Debug, Default)]
struct Growing {
    own: Stats,
    own_static: u64,
    children: BTreeMap<(NodeKind, Box<[u8]>), Growing>,
}

impl Growing {
    fn at(&mut self, path: Path) -> &mut Growing {
        path.into_iter().fold(self, |node, step| node.children.entry(step).or_default())
    }

    /// Adds the sums of a call-site.
    pub(crate) fn add(&mut self, leaf: &Leaf<'_>, options: &TreeOptions) {
        self.at(options.below_root(path_of(leaf, options.by_area))).own.add(leaf.stats);
    }

    /// Adds static bytes of a file of the sources, `None` for those whose file is not known.
    pub(crate) fn add_static(&mut self, file: Option<&[u8]>, bytes: u64, options: &TreeOptions) {
        let path = match file {
            Some(file) if options.takes(file) => options.below_root(steps_of_file(file)),
            None if options.branches.is_empty() => vec![(NodeKind::Unknown, NO_FOLDER.into())],
            _ => return,
        };
        let node = self.at(path);
        node.own_static = node.own_static.saturating_add(bytes);
    }

    /// Node with its children in order, to `depth` levels below it.
    fn finish(self, step: (NodeKind, Box<[u8]>), depth: usize, form: &Form<'_>) -> (TreeNode, Stats) {
        let (mut sum, mut static_bytes) = (self.own, self.own_static);
        let mut children = Vec::new();
        for (step, child) in self.children {
            let (node, stats) = child.finish(step, depth.saturating_sub(1), form);
            sum.add(&stats);
            static_bytes = static_bytes.saturating_add(node.static_bytes.unwrap_or(0));
            children.push((node, stats));
        }
        form.saturation.check(&sum);
        let children = if depth == 0 { Vec::new() } else { form.ordered(children) };
        let (kind, name) = step;
        let node = form.node(name, kind, &sum, static_bytes);
        (TreeNode { children, ..node }, sum)
    }
}

/// Order and size of a tree's nodes.
struct Form<'f> {
    sort: SortKey,
    top: Option<usize>,
    has_static: bool,
    ordering: Ordering,
    saturation: &'f Saturation,
}

impl Form<'_> {
    fn node(&self, name: Box<[u8]>, kind: NodeKind, stats: &Stats, static_bytes: u64) -> TreeNode {
        let stats = PrintedStats::new(stats, self.ordering);
        let current = self.has_static.then(|| static_bytes.saturating_add(stats.live_allocated));
        let static_bytes = self.has_static.then_some(static_bytes);
        TreeNode { name, kind, stats, static_bytes, current, folded: 0, children: Vec::new() }
    }

    fn figure(&self, node: &TreeNode, stats: &Stats) -> u128 {
        match self.sort {
            SortKey::Static => node.static_bytes.unwrap_or(0).into(),
            SortKey::Current => node.current.unwrap_or(0).into(),
            key => key.of(stats, self.ordering),
        }
    }

    /// Children, greatest first; the last ones folded into one where there are more than wanted.
    fn ordered(&self, mut children: Vec<(TreeNode, Stats)>) -> Vec<TreeNode> {
        children.sort_by_cached_key(|(node, stats)| (Reverse(self.figure(node, stats)), node.name.clone(), node.kind));
        let rest = children.split_off(self.top.unwrap_or(children.len()).min(children.len()));
        let mut shown: Vec<TreeNode> = children.into_iter().map(|(node, _)| node).collect();
        if !rest.is_empty() {
            let mut sum = Stats::default();
            rest.iter().for_each(|(_, stats)| sum.add(stats));
            let static_bytes =
                rest.iter().fold(0u64, |bytes, (node, _)| bytes.saturating_add(node.static_bytes.unwrap_or(0)));
            let name = b"others"[..].into();
            shown.push(TreeNode { folded: rest.len(), ..self.node(name, NodeKind::Others, &sum, static_bytes) });
        }
        shown
    }
}

impl TreeOptions {
    /// True for a file that belongs to the tree.
    fn takes(&self, file: &[u8]) -> bool {
        self.branches.is_empty() || self.branches.iter().any(|branch| branch.holds(file))
    }

    /// Steps below the root: the folder that was asked for is the root itself.
    fn below_root(&self, mut path: Path) -> Path {
        let [branch] = &self.branches[..] else { return path };
        if !self.by_area {
            let steps = branch.to_string().split('/').count();
            path.drain(..steps.min(path.len().saturating_sub(1)));
        }
        path
    }

    fn root(&self) -> Box<[u8]> {
        match &self.branches[..] {
            [branch] if !self.by_area => branch.to_string().into_bytes().into(),
            _ => ROOT.into(),
        }
    }
}

/// Tree of these call-sites; `sizes` are static bytes by file, where they are known.
pub(super) fn tree<'a>(
    leaves: impl Iterator<Item = Leaf<'a>>,
    sizes: Option<&StaticByFile>,
    options: &TreeOptions,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> TreeBody {
    let mut growing = Growing::default();
    let mut wrapped = 0u128;
    for leaf in leaves {
        if leaf.place.wrapper.is_some() {
            wrapped += leaf.stats.live_allocated;
        }
        growing.add(&leaf, options);
    }
    for (file, bytes) in sizes.into_iter().flatten() {
        growing.add_static(file.as_deref(), *bytes, options);
    }
    let sort = shape.sort.first().copied().unwrap_or(SortKey::Live);
    let form = Form { sort, top: shape.top, has_static: sizes.is_some(), ordering, saturation };
    let depth = options.depth.unwrap_or(usize::MAX);
    let (root, _) = growing.finish((NodeKind::Folder, options.root()), depth, &form);
    let branches: Vec<String> = options.branches.iter().map(Branch::to_string).collect();
    let branch = (!branches.is_empty()).then(|| branches.join(","));
    TreeBody { sort: sort.name(), branch, wrapped_live: saturation.sum(wrapped), root }
}

/// Static bytes by source file; `None` for those whose file is not known.
pub(super) type StaticByFile = BTreeMap<Option<Box<[u8]>>, u64>;

fn steps_of_file(file: &[u8]) -> Path {
    let mut path = steps_of_folder(file);
    if let Some((kind, _)) = path.last_mut() {
        *kind = NodeKind::File;
    }
    path
}

fn steps_of_folder(folder: &[u8]) -> Path {
    let parts = folder.splitn(MAX_DEPTH, |byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| (NodeKind::Folder, part.into())).collect()
}

/// Steps to a call-site: folders and file, or area and file, then function and call-site.
fn path_of(leaf: &Leaf<'_>, by_area: bool) -> Path {
    let place = &*leaf.place;
    let source = place.source.as_ref();
    let file = source.and_then(|source| source.file.as_deref());
    let mut path = match (&place.folder, leaf.module, file) {
        _ if by_area => {
            let area = place.area.as_deref();
            let step = area.map_or((NodeKind::Unknown, NO_AREA), |area| (NodeKind::Area, area));
            let file = file.map(|file| (NodeKind::File, file));
            [Some(step), file].into_iter().flatten().map(|(kind, name)| (kind, name.into())).collect()
        }
        (Some(_), _, Some(file)) => steps_of_file(file),
        (Some(folder), _, None) => steps_of_folder(folder),
        (None, Some(module), _) => vec![(NodeKind::Module, [b"[", module, b"]"].concat().into())],
        (None, None, _) => vec![(NodeKind::Unknown, NO_FOLDER.into())],
    };
    path.extend(source.map(|source| (NodeKind::Function, source.function.clone())));
    let site = leaf.symbol.clone().unwrap_or_else(|| Address(leaf.call_site).to_string().into_bytes());
    path.push((NodeKind::Site, site.into()));
    path
}

/// Node as a row of its own, for outputs without members within members.
struct NodeRow<'n> {
    path: &'n [u8],
    depth: u64,
    node: &'n TreeNode,
}

impl Row for NodeRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        take("path", Cell::Name(self.path));
        take("depth", Cell::Count(self.depth));
        take("kind", Cell::Word(self.node.kind.name()));
        self.node.stats.members(&mut |member, cell| {
            if member != "peak_live_allocated" {
                take(member, cell);
            }
        });
        take("static", self.node.static_bytes.map_or(Cell::Null, Cell::Count));
        take("current", self.node.current.map_or(Cell::Null, Cell::Count));
    }
}

impl RowSource for TreeBody {
    /// Hands over the root, then each node before its children.
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        each_node(&self.root, self.root.name.to_vec(), 0, take)
    }
}

fn each_node<E>(node: &TreeNode, path: Vec<u8>, depth: u64, take: &mut TakeRow<'_, E>) -> Result<(), E> {
    take(&NodeRow { path: &path, depth, node })?;
    for child in &node.children {
        each_node(child, [&path[..], b"/", &child.name].concat(), depth + 1, take)?;
    }
    Ok(())
}
