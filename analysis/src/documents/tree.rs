//! `tree`: figures by folder, file, function and call-site, or by area.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::event::Space;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::ranked::{Shape, SortKey};
use super::row::{Address, Cell, Row, RowSource, TakeMember, TakeRow, text_of};
use super::shown::{self, Grown};
use super::stacks::StackCounts;
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::account::figures::Figure;
pub use crate::account::place_paths::PlacedBy;
use crate::account::place_paths::{NO_AREA, NO_FOLDER, PlaceStep, PlacedSite, steps_of_file};
pub use crate::account::row_paths::NodeKind;
use crate::names::areas::Areas;
use crate::names::place::StaticByFile;
use crate::query::select::Branch;

/// Node of the tree: its figures are the sums of its children's and its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeNode {
    /// Name below its parent: any bytes.
    pub name: Box<[u8]>,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Return address of a frame or a call-site.
    pub address: Option<Address>,
    /// Module of a frame or a call-site, or the module that the node stands for.
    pub module: Option<Box<[u8]>>,
    /// True where that module was gone at the end of the recording.
    pub is_gone: bool,
    /// Thread id of a thread, which documents have in its name.
    pub pid: Option<i32>,
    /// Sums over what is below it, with a peak of its own where the query counts those of nodes.
    pub stats: PrintedStats,
    /// Live bytes at the end less those at the end of the first slice of time; `None` where growth was not counted.
    pub grew: Option<i64>,
    /// Bytes of functions and objects in the kernel's image or tree; `None` where no such file was named.
    pub static_bytes: Option<u64>,
    /// Static bytes and live bytes.
    pub current: Option<u64>,
    /// Number of nodes folded into it; 0 except for [`NodeKind::Others`].
    pub folded: usize,
    /// Children, largest first; a folded node is the last one.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// Module of a frame or a call-site that its name does not have.
    pub fn module_beside(&self) -> Option<&[u8]> {
        let module = self.module.as_deref()?;
        let is_in_name = self.name.strip_prefix(b"[").is_some_and(|name| name.starts_with(module));
        ([NodeKind::Frame, NodeKind::Site].contains(&self.kind) && !is_in_name).then_some(module)
    }
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
        map.serialize_entry("address", &self.address)?;
        let module = self.module.as_deref().map(text_of);
        map.serialize_entry("module", &module.as_ref().map(|(text, _)| text))?;
        if let Some(hex) = module.and_then(|(_, hex)| hex) {
            map.serialize_entry("module_hex", &hex)?;
        }
        if self.is_gone {
            map.serialize_entry("module_gone", &true)?;
        }
        let mut result = Ok(());
        self.stats.members(&mut |member, cell| {
            if result.is_ok() {
                result = map.serialize_entry(member, &cell);
            }
        });
        result?;
        map.serialize_entry("grew", &self.grew)?;
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
#[derive(Clone, Debug, Serialize)]
pub struct TreeBody {
    /// Word of the key that nodes are sized and sorted by.
    pub sort: &'static str,
    /// Folders at the root, as they were asked for; `None` for all.
    pub branch: Option<String>,
    /// Live bytes of objects whose caller is not known: a wrapper is in its place.
    pub wrapped_live: u64,
    /// All of it.
    pub root: TreeNode,
    /// Name of the space.
    pub shows: &'static str,
    /// Members of a tree over keys.
    #[serde(flatten)]
    pub keys: Option<KeyTree>,
}

impl TreeBody {
    /// Name of the space, unless it is that of slab objects.
    pub fn other_space(&self) -> Option<&'static str> {
        (self.shows != Space::Slab.name()).then_some(self.shows)
    }
}

/// Members that only a tree over keys has.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeyTree {
    /// Number of events that were read.
    pub events: u64,
    /// Numbers of stacks.
    #[serde(flatten)]
    pub stacks: StackCounts,
}

/// Options of a tree, beyond the order and the number of children.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// Nodes at the top of a tree of call-sites.
    pub by: PlacedBy,
    /// Space of a tree over keys, in place of the one that it has by itself.
    pub space: Option<Space>,
    /// Levels below the root.
    pub depth: Option<usize>,
    /// Frames of the entry into the kernel, with which all stacks of system calls begin, take none of the levels.
    pub passes_entry: bool,
    /// Share of the sort key, in percent, that the children shown of each node of a tree over keys make up.
    pub throttle: Option<f64>,
    /// Folders that were asked for: a single one is the root.
    pub branches: Vec<Branch>,
}

/// Name of the root.
const ROOT: &[u8] = b"linux";

/// Call-site of the tree, with its sums.
pub(super) struct Leaf<'a> {
    /// Call-site and its names.
    pub(super) site: PlacedSite<'a>,
    /// Sums over its objects.
    pub(super) grown: Grown,
    /// Numbers of the nodes from the root to the call-site, where their peaks were counted.
    pub(super) nodes: &'a [u32],
}

/// Address and module of a call-site.
#[derive(Debug)]
struct SiteNames {
    address: Address,
    module: Option<Box<[u8]>>,
    /// True where the module was gone at the end of the recording.
    is_gone: bool,
}

/// Tree in the making: nodes by kind and name, each with sums of its own.
#[derive(Debug, Default)]
struct Growing {
    own: Grown,
    own_static: u64,
    /// Number of the node whose peak was counted.
    counted: Option<u32>,
    /// The call-site that the node is.
    site: Option<SiteNames>,
    children: BTreeMap<PlaceStep, Growing>,
}

impl Growing {
    /// The node at the end of a path; `counted`: numbers of the nodes on the way, where peaks were counted.
    fn at(&mut self, path: impl Iterator<Item = PlaceStep>, mut counted: impl Iterator<Item = u32>) -> &mut Growing {
        path.fold(self, |node, step| {
            let child = node.children.entry(step).or_default();
            child.counted = counted.next().or(child.counted);
            child
        })
    }

    /// Adds the sums of a call-site.
    fn add(&mut self, leaf: &Leaf<'_>, options: &TreeOptions) {
        let path = leaf.site.path(options.by);
        let begin = options.above_root(path.len());
        let nodes = leaf.nodes.get(begin + 1..).unwrap_or_default().iter().copied();
        let node = self.at(path.into_iter().skip(begin), nodes);
        node.own.add(&leaf.grown);
        let PlacedSite { address, owner, is_gone, .. } = leaf.site;
        node.site = Some(SiteNames { address: Address(address), module: owner.module().map(Into::into), is_gone });
    }

    /// Adds static bytes of a file of the sources, `None` for those whose file is not known.
    fn add_static(&mut self, file: Option<&[u8]>, bytes: u64, options: &TreeOptions, areas: &Areas) {
        let path = match file {
            Some(file) if options.by == PlacedBy::Area && options.takes(file) => {
                let area = areas.of_file(file).map(|area| (NodeKind::Area, area.as_bytes().into()));
                vec![area.unwrap_or((NodeKind::Unknown, NO_AREA.into())), (NodeKind::File, file.into())]
            }
            Some(file) if options.takes(file) => steps_of_file(file),
            None if options.branches.is_empty() => {
                vec![(NodeKind::Unknown, if options.by == PlacedBy::Area { NO_AREA } else { NO_FOLDER }.into())]
            }
            _ => return,
        };
        let begin = options.above_root(path.len());
        let node = self.at(path.into_iter().skip(begin), std::iter::empty());
        node.own_static = node.own_static.saturating_add(bytes);
    }

    /// Node with its children in order, to `depth` levels below it.
    fn finish(self, step: PlaceStep, depth: usize, form: &Form<'_>) -> (TreeNode, Grown) {
        let (mut sum, mut static_bytes) = (self.own, self.own_static);
        let mut children = Vec::new();
        for (step, child) in self.children {
            let (node, grown) = child.finish(step, depth.saturating_sub(1), form);
            sum.add(&grown);
            static_bytes = static_bytes.saturating_add(node.static_bytes.unwrap_or(0));
            children.push((node, grown));
        }
        if let Some(peaks) = form.peaks {
            let peak = self.counted.and_then(|number| peaks.get(number as usize)).copied().unwrap_or(0);
            sum.set_peak(peak, form.page_bytes);
        }
        form.saturation.check(&sum.stats);
        let children = if depth == 0 { Vec::new() } else { form.ordered(children) };
        let (kind, name) = step;
        let (address, module, is_gone) = match self.site {
            Some(SiteNames { address, module, is_gone }) => (Some(address), module, is_gone),
            None if kind == NodeKind::Module => (None, in_brackets(&name).map(Into::into), false),
            None => (None, None, false),
        };
        let node = form.node(name, kind, &sum, static_bytes);
        (TreeNode { address, module, is_gone, children, ..node }, sum)
    }
}

/// Order and size of a tree's nodes.
struct Form<'f> {
    sort: SortKey,
    top: Option<usize>,
    throttle: Option<f64>,
    has_static: bool,
    /// Peaks of the nodes that were counted, by their numbers, and the bytes of a page.
    peaks: Option<&'f [u128]>,
    page_bytes: Option<u64>,
    ordering: Ordering,
    saturation: &'f Saturation,
}

impl Form<'_> {
    fn node(&self, name: Box<[u8]>, kind: NodeKind, grown: &Grown, static_bytes: u64) -> TreeNode {
        let stats = PrintedStats::new(&grown.stats, self.ordering);
        // Static bytes are those of files: the functions in them have none of their own here.
        let has_static = self.has_static && !matches!(kind, NodeKind::Function | NodeKind::Site);
        let current = has_static.then(|| static_bytes.saturating_add(stats.live_allocated.unwrap_or(0)));
        let static_bytes = has_static.then_some(static_bytes);
        TreeNode { name, kind, stats, grew: grown.printed_growth(), static_bytes, current, ..TreeNode::default() }
    }

    fn figure(&self, node: &TreeNode, grown: &Grown) -> i128 {
        match self.sort {
            SortKey::Static => node.static_bytes.unwrap_or(0).into(),
            SortKey::Current => node.current.unwrap_or(0).into(),
            key => grown.figure(key, self.ordering),
        }
    }

    /// Children, largest first; those beyond the limits folded into one.
    fn ordered(&self, mut children: Vec<(TreeNode, Grown)>) -> Vec<TreeNode> {
        children.sort_by_cached_key(|(node, grown)| (Reverse(self.figure(node, grown)), node.name.clone(), node.kind));
        let figure = |(node, grown): &(TreeNode, Grown)| self.figure(node, grown);
        let rest = shown::cut_off(&mut children, figure, self.throttle, self.top);
        let mut shown: Vec<TreeNode> = children.into_iter().map(|(node, _)| node).collect();
        if !rest.is_empty() {
            let mut sum = Grown::default();
            rest.iter().for_each(|(_, grown)| sum.add(grown));
            let static_bytes =
                rest.iter().fold(0u64, |bytes, (node, _)| bytes.saturating_add(node.static_bytes.unwrap_or(0)));
            let name = b"others"[..].into();
            let node = self.node(name, NodeKind::Others, &sum, static_bytes);
            let is_of_files = rest.iter().any(|(node, _)| node.static_bytes.is_some());
            let static_bytes = node.static_bytes.filter(|_| is_of_files);
            let current = node.current.filter(|_| is_of_files);
            shown.push(TreeNode { folded: rest.len(), static_bytes, current, ..node });
        }
        shown
    }
}

/// Module from the name of its node.
fn in_brackets(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(b"[")?.strip_suffix(b"]")
}

impl TreeOptions {
    /// True for a file that belongs to the tree.
    fn takes(&self, file: &[u8]) -> bool {
        self.branches.is_empty() || self.branches.iter().any(|branch| branch.holds(file))
    }

    /// Number of a path's first steps that are not below the root: a folder that was asked for is the root itself.
    fn above_root(&self, steps: usize) -> usize {
        match &self.branches[..] {
            [branch] if self.by == PlacedBy::Folder => {
                branch.to_string().split('/').count().min(steps.saturating_sub(1))
            }
            _ => 0,
        }
    }

    fn root(&self) -> Box<[u8]> {
        match &self.branches[..] {
            [branch] if self.by == PlacedBy::Folder => branch.to_string().into_bytes().into(),
            _ => ROOT.into(),
        }
    }
}

/// Nodes whose peaks were counted: their peaks, the number of the root, and the bytes of a page.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) peaks: &'a [u128],
    pub(super) root: u32,
    pub(super) page_bytes: Option<u64>,
}

/// Tree of these call-sites.
pub(super) fn tree<'a>(
    leaves: impl Iterator<Item = Leaf<'a>>,
    (areas, sizes): (&Areas, Option<&StaticByFile>),
    counted: Option<Counted<'_>>,
    options: &TreeOptions,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> TreeBody {
    let mut growing = Growing { counted: counted.map(|counted| counted.root), ..Growing::default() };
    let mut wrapped = 0u128;
    for leaf in leaves {
        if leaf.site.place.wrapper.is_some() {
            wrapped += leaf.grown.stats.live_allocated;
        }
        growing.add(&leaf, options);
    }
    for (file, bytes) in sizes.into_iter().flatten() {
        growing.add_static(file.as_deref(), *bytes, options, areas);
    }
    let form = Form {
        sort: shape.sort.first().copied().unwrap_or(SortKey::Figure(Figure::LiveAllocated)),
        top: shape.top,
        throttle: options.throttle,
        has_static: sizes.is_some(),
        peaks: counted.map(|counted| counted.peaks),
        page_bytes: counted.and_then(|counted| counted.page_bytes),
        ordering,
        saturation,
    };
    let depth = options.depth.unwrap_or(usize::MAX);
    let sort = form.sort.name();
    let (root, _) = growing.finish((NodeKind::Folder, options.root()), depth, &form);
    let branches: Vec<String> = options.branches.iter().map(Branch::to_string).collect();
    let branch = (!branches.is_empty()).then(|| branches.join(","));
    TreeBody { sort, branch, wrapped_live: saturation.sum(wrapped), root, shows: Space::Slab.name(), keys: None }
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
        take("address", self.node.address.and_then(Address::told).map_or(Cell::Null, Cell::Address));
        take("module", self.node.module.as_deref().map_or(Cell::Null, Cell::Name));
        self.node.stats.members(take);
        take("grew", self.node.grew.map_or(Cell::Null, Cell::Change));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::names::place::Place;
    use kmemtrace_abi::clock::Agreement;
    use serde_json::{Value, json};

    use super::*;
    use crate::account::stats::Stats;
    use crate::names::kallsyms::SiteOwner;
    use crate::names::place::{NameSource, SourceLine};

    /// Place of a function of a file; without a file it is of a module with that folder, or of nothing.
    fn place(function: &str, file: Option<&str>, folder: Option<&str>) -> Arc<Place> {
        let source =
            SourceLine { function: function.as_bytes().into(), file: file.map(|f| f.as_bytes().into()), line: Some(1) };
        let folder: Option<Box<[u8]>> = folder.map(|folder| folder.as_bytes().into());
        let folder_from = folder.is_some().then_some(NameSource::Dwarf);
        let wrapper = (function == "kvmalloc_node").then(|| source.function.clone());
        Arc::new(Place { source: Some(source), folder, folder_from, wrapper, ..Place::default() })
    }

    fn stats(live: u128) -> Stats {
        Stats { allocs: 1, allocated: live * 2, live_allocated: live, live_objects: 1, ..Stats::default() }
    }

    /// Tree over seven call-sites.
    fn made(options: &TreeOptions, sizes: Option<&StaticByFile>, shape: &Shape) -> Value {
        let sites = [
            ("ext4_alloc", Some("fs/ext4/super.c"), Some("fs/ext4"), None, 100),
            ("ext4_alloc", Some("fs/ext4/super.c"), Some("fs/ext4"), None, 10),
            ("alloc_inode", Some("fs/inode.c"), Some("fs"), None, 50),
            ("kvmalloc_node", Some("mm/util.c"), Some("mm"), None, 7),
            ("probe", None, Some("drivers/block"), Some(&b"virtio_blk"[..]), 30),
            ("gone", None, None, Some(&b"foo"[..]), 3),
            ("alone", None, None, None, 2),
        ];
        let sums: Vec<Stats> = sites.iter().map(|site| stats(site.4)).collect();
        let leaves =
            sites.iter().zip(sums).enumerate().map(|(at, ((function, file, folder, module, _), stats))| Leaf {
                site: PlacedSite {
                    address: at as u64 + 1,
                    symbol: Some(format!("{function}+0x{at}").into_bytes()),
                    owner: module.map_or(SiteOwner::Kernel, SiteOwner::Module),
                    is_gone: false,
                    place: place(function, *file, *folder),
                },
                grown: Grown { stats, grew: None },
                nodes: &[],
            });
        let areas = Areas::parse("storage\tfs/*\n");
        let saturation = Saturation::default();
        json!(tree(leaves, (&areas, sizes), None, options, shape, (&saturation, Ordering::new(Agreement::AllCpus))))
    }

    /// Lines `KIND NAME LIVE`, indented.
    fn lines(node: &Value, depth: usize) -> Vec<String> {
        let text = |member: &str| node[member].as_str().unwrap_or_default().to_owned();
        let line = format!("{}{} {} {}", " ".repeat(depth), text("kind"), text("name"), node["live_allocated"]);
        let children = node["children"].as_array().into_iter().flatten();
        std::iter::once(line).chain(children.flat_map(|child| lines(child, depth + 1))).collect()
    }

    #[test]
    fn folders_files_functions_and_call_sites_lie_in_each_other() {
        let tree = made(&TreeOptions::default(), None, &Shape::default());
        let want = [
            "folder linux 202",
            " folder fs 160",
            "  folder ext4 110",
            "   file super.c 110",
            "    function ext4_alloc 110",
            "     site ext4_alloc+0x0 100",
            "     site ext4_alloc+0x1 10",
            "  file inode.c 50",
            "   function alloc_inode 50",
            "    site alloc_inode+0x2 50",
            " folder drivers 30",
            "  folder block 30",
            "   function probe 30",
            "    site probe+0x4 30",
            " folder mm 7",
            "  file util.c 7",
            "   function kvmalloc_node 7",
            "    site kvmalloc_node+0x3 7",
            " module [foo] 3",
            "  function gone 3",
            "   site gone+0x5 3",
            " unknown (no folder known) 2",
            "  function alone 2",
            "   site alone+0x6 2",
        ];
        assert_eq!(lines(&tree["root"], 0), want);
        assert_eq!((&tree["wrapped_live"], &tree["sort"], &tree["branch"]), (&json!(7), &json!("live"), &json!(null)));
        assert!(tree["root"]["peak_live_allocated"].is_null() && tree["root"]["static"].is_null());
    }

    #[test]
    fn a_folder_that_is_asked_for_is_the_root() {
        let branches = vec!["fs/ext4".parse().unwrap()];
        let tree = TreeOptions { branches, depth: Some(1), ..TreeOptions::default() };
        // Filters have taken the call-sites of other folders away, but not the static bytes.
        let file = |name: &str, bytes| (Some(Box::<[u8]>::from(name.as_bytes())), bytes);
        let sizes = [file("fs/ext4/super.c", 9), file("fs/inode.c", 1000), (None, 5)];
        let root = Growing::default();
        let form = Form {
            sort: SortKey::Figure(Figure::LiveAllocated),
            top: None,
            throttle: None,
            has_static: true,
            peaks: None,
            page_bytes: None,
            ordering: Ordering::new(Agreement::AllCpus),
            saturation: &Saturation::default(),
        };
        let mut root = root;
        for (file, bytes) in &sizes {
            root.add_static(file.as_deref(), *bytes, &tree, &Areas::default());
        }
        let (root, _) = root.finish((NodeKind::Folder, tree.root()), 1, &form);
        assert_eq!((&*root.name, root.static_bytes, root.current), (&b"fs/ext4"[..], Some(9), Some(9)));
        assert_eq!(root.children.iter().map(|child| &*child.name).collect::<Vec<_>>(), [b"super.c"]);
    }

    #[test]
    fn what_is_folded_still_sums_up() {
        let shape = Shape { sort: vec![SortKey::Figure(Figure::Allocated)], top: Some(2) };
        let tree = made(&TreeOptions { depth: Some(1), ..TreeOptions::default() }, None, &shape);
        let root = &tree["root"];
        let children = root["children"].as_array().unwrap();
        let names: Vec<&str> = children.iter().map(|child| child["name"].as_str().unwrap()).collect();
        assert_eq!((names, &children[2]["folded"]), (vec!["fs", "drivers", "others"], &json!(3)));
        let sum: u64 = children.iter().map(|child| child["allocated"].as_u64().unwrap()).sum();
        assert_eq!(json!(sum), root["allocated"]);
        assert!(children.iter().all(|child| child["children"] == json!([])));
    }

    #[test]
    fn static_bytes_belong_to_files_and_make_nodes_of_their_own() {
        let file = |name: &str, bytes| (Some(name.as_bytes().into()), bytes);
        let sizes = [file("fs/inode.c", 1000), file("net/core/skbuff.c", 200), (None, 5)];
        let sizes = sizes.into_iter().collect();
        let tree = made(&TreeOptions::default(), Some(&sizes), &Shape { sort: vec![SortKey::Current], top: None });
        let root = &tree["root"];
        assert_eq!((&root["static"], &root["current"]), (&json!(1205), &json!(1407)));
        let fs = &root["children"][0];
        assert_eq!((&fs["name"], &fs["current"]), (&json!("fs"), &json!(1160)));
        assert_eq!(root["children"][1]["name"], "net", "a folder that allocates nothing has static bytes");
        assert!(fs["children"][0]["children"][0]["static"].is_null(), "functions have none of their own");
    }

    #[test]
    fn areas_take_the_place_of_folders() {
        let options = TreeOptions { by: PlacedBy::Area, depth: Some(1), ..TreeOptions::default() };
        let sizes = [(Some(b"fs/inode.c"[..].into()), 8)].into_iter().collect();
        let root = &made(&options, Some(&sizes), &Shape::default())["root"];
        let children: Vec<&str> =
            root["children"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        // Places of these call-sites have no area: a resolver sets it.
        assert_eq!(children, ["(no area known)", "storage"]);
    }
}
