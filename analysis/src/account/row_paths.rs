//! Nodes of rows: the way of each row from the root of a tree, or the groups that it belongs to.
//!
//! The registry of classes adds each new row; the tracker of peaks, on another thread, copies those that it meets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use crate::account::grouping::{GroupKey, GroupValue};

/// Form of the nodes of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathForm {
    /// Each row is a leaf of a tree, below a node for each of its keys, and counts in all nodes above.
    Tree,
    /// Each row counts in several nodes below the root of its kind: the groups of its first key.
    Groups,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeKind {
    /// Folder of sources; the root, too.
    #[default]
    Folder,
    /// Source file.
    File,
    /// Function.
    Function,
    /// Call-site.
    Site,
    /// Module; in a tree of folders one whose folder is not known.
    Module,
    /// Area of the kernel's MAINTAINERS.
    Area,
    /// Frame of a stack.
    Frame,
    /// Thread.
    Task,
    /// Cgroup of threads.
    Cgroup,
    /// Use of pages.
    Use,
    /// All of a tree over keys.
    Root,
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
            NodeKind::Frame => "frame",
            NodeKind::Task => "task",
            NodeKind::Cgroup => "cgroup",
            NodeKind::Use => "use",
            NodeKind::Root => "root",
            NodeKind::Unknown => "unknown",
            NodeKind::Others => "others",
        }
    }
}

/// Step from a node to one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// Key of the node; [`GroupKey::Stack`] for a frame.
    pub(crate) key: GroupKey,
    /// Value of the key; for a frame its return address, [`NO_FRAME`] where there is no stack; for a place see
    /// [`PlaceSteps`](super::place_paths::PlaceSteps).
    pub(crate) value: GroupValue,
}

/// Frame of an allocation without a stack.
pub(crate) const NO_FRAME: u64 = 0;

/// Roots of groups: a kind each. Roots of trees: a space each, of which there are no more.
const ROOTS: usize = Kind::ALL.len();

/// Nodes of rows by the row's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// End of each row's nodes in `nodes`.
    ends: Vec<usize>,
    nodes: Vec<u32>,
}

impl Paths {
    #[inline]
    pub(crate) fn has(&self, row: u32) -> bool {
        (row as usize) < self.ends.len()
    }

    /// Nodes of a row, the root first.
    #[inline]
    pub(crate) fn of(&self, row: u32) -> &[u32] {
        let row = row as usize;
        let Some(&end) = self.ends.get(row) else { return &[] };
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.nodes[begin..end]
    }
}

/// Node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathNode {
    /// Node above it; `None` for a root.
    pub(crate) parent: Option<u32>,
    /// Step from there; `None` for a root.
    pub(crate) step: Option<Step>,
}

/// All nodes, and the paths of all rows.
#[derive(Debug)]
pub(crate) struct RowPaths {
    form: PathForm,
    nodes: Vec<PathNode>,
    by_step: HashMap<(u32, Step), u32, RandomState>,
    paths: Paths,
}

/// Paths as the registry and the tracker share them.
#[derive(Clone, Debug)]
pub(crate) struct SharedPaths(Arc<Mutex<RowPaths>>);

impl SharedPaths {
    pub(crate) fn new(form: PathForm) -> SharedPaths {
        let root = PathNode { parent: None, step: None };
        let nodes = (0..ROOTS).map(|_| root).collect();
        let paths = RowPaths { form, nodes, by_step: HashMap::default(), paths: Paths::default() };
        SharedPaths(Arc::new(Mutex::new(paths)))
    }

    fn lock(&self) -> MutexGuard<'_, RowPaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next row, whose steps are these.
    pub(crate) fn add(&self, kind: Kind, steps: impl Iterator<Item = Step>) {
        self.lock().add(kind, steps);
    }

    /// Adds to `paths` the rows that it lacks; the number of nodes.
    pub(crate) fn copy_to(&self, paths: &mut Paths) -> usize {
        let known = &*self.lock();
        paths.ends.extend_from_slice(known.paths.ends.get(paths.ends.len()..).unwrap_or_default());
        paths.nodes.extend_from_slice(known.paths.nodes.get(paths.nodes.len()..).unwrap_or_default());
        known.nodes.len()
    }

    /// Nodes and paths, once all rows were added.
    pub(crate) fn take(&self) -> (Vec<PathNode>, Paths) {
        let known = &mut *self.lock();
        (std::mem::take(&mut known.nodes), std::mem::take(&mut known.paths))
    }
}

impl RowPaths {
    fn add(&mut self, kind: Kind, steps: impl Iterator<Item = Step>) {
        let root = match self.form {
            PathForm::Tree => kind.space() as u32,
            PathForm::Groups => kind as u32,
        };
        self.paths.nodes.push(root);
        let mut parent = root;
        for step in steps {
            let next = self.nodes.len() as u32;
            let node = *self.by_step.entry((parent, step)).or_insert(next);
            if node == next {
                self.nodes.push(PathNode { parent: Some(parent), step: Some(step) });
            }
            self.paths.nodes.push(node);
            if self.form == PathForm::Tree {
                parent = node;
            }
        }
        self.paths.ends.push(self.paths.nodes.len());
    }
}

/// Nodes of an analysis, with their peaks.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// A node follows the one above it.
    pub(crate) nodes: Vec<PathNode>,
    pub(crate) paths: Paths,
    /// Largest number of live bytes of each node.
    pub(crate) peaks: Vec<u128>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(values: &[u64]) -> impl Iterator<Item = Step> + '_ {
        values.iter().map(|&value| Step { key: GroupKey::Stack, value })
    }

    #[test]
    fn rows_share_the_nodes_above_them() {
        let shared = SharedPaths::new(PathForm::Tree);
        shared.add(Kind::Pages, steps(&[7, 8]));
        shared.add(Kind::Pages, steps(&[7, 9]));
        let mut paths = Paths::default();
        assert_eq!((shared.copy_to(&mut paths), paths.has(1), paths.has(2)), (ROOTS + 3, true, false));
        shared.add(Kind::Cache, steps(&[7]));
        assert_eq!(shared.copy_to(&mut paths), ROOTS + 4);
        let [seven, eight, nine, of_cache] = std::array::from_fn(|node| (ROOTS + node) as u32);
        assert_eq!(
            (paths.of(0), paths.of(1), paths.of(2), paths.of(3)),
            (&[1, seven, eight][..], &[1, seven, nine][..], &[0, of_cache][..], &[][..])
        );
    }

    #[test]
    fn groups_of_a_row_lie_beside_each_other() {
        let shared = SharedPaths::new(PathForm::Groups);
        shared.add(Kind::Pages, steps(&[7, 8]));
        shared.add(Kind::Pages, steps(&[8]));
        let (nodes, paths) = shared.take();
        let [seven, eight] = std::array::from_fn(|node| (ROOTS + node) as u32);
        assert_eq!((paths.of(0), paths.of(1)), (&[2, seven, eight][..], &[2, eight][..]));
        assert!(nodes[ROOTS..].iter().all(|node| node.parent == Some(2)));
    }
}
