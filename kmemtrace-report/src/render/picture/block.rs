//! Tree as pictures see it: labels and one size.

use std::cmp::Reverse;

use kmemtrace::documents::tree::{NodeKind, TreeNode};
use kmemtrace::{Figure, FigureUnit, SortKey};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;

/// Limit of levels. A hostile path may have any number of folders.
pub(crate) const MAX_LEVELS: usize = 24;

/// Figure that pictures are sized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// A figure of every row.
    Figure(Figure),
    /// Bytes of functions and objects in the image.
    Static,
    /// Static and live bytes.
    Current,
}

impl Measure {
    /// Figure of a sort key; live bytes of one that sizes nothing.
    pub(crate) fn of_key(key: Option<SortKey>) -> Measure {
        match key {
            Some(SortKey::Figure(figure)) => Measure::Figure(figure),
            Some(SortKey::Static) => Measure::Static,
            Some(SortKey::Current) => Measure::Current,
            _ => Measure::Figure(Figure::LiveAllocated),
        }
    }

    /// Meaning, as the title of a picture.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Measure::Figure(Figure::LiveAllocated) => "Live memory at the end",
            Measure::Figure(Figure::Wasted) => "Memory wasted, over all allocations",
            Measure::Figure(Figure::LiveWasted) => "Memory wasted by live objects",
            Measure::Figure(Figure::Allocated) => "Memory allocated, over all allocations",
            Measure::Figure(Figure::Requested) => "Memory requested, over all allocations",
            Measure::Figure(Figure::Allocs) => "Allocations",
            Measure::Figure(Figure::Frees) => "Frees",
            Measure::Figure(figure) => figure.entry().meaning.trim_end_matches('.'),
            Measure::Static => "Static memory",
            Measure::Current => "Static and live memory",
        }
    }

    /// Figure of a node; 0 where it is not known.
    fn of(self, node: &TreeNode) -> u64 {
        match self {
            Measure::Figure(figure) => node.stats.get(figure).unwrap_or(0),
            Measure::Static => node.static_bytes.unwrap_or(0),
            Measure::Current => node.current.or(node.stats.live_allocated).unwrap_or(0),
        }
    }

    fn is_count(self) -> bool {
        matches!(self, Measure::Figure(figure) if figure.entry().unit == FigureUnit::Count)
    }

    /// Figure as text: `6.34 MiB`, or a count.
    pub(crate) fn text(self, size: u64) -> String {
        if self.is_count() { units::grouped(size) } else { units::bytes(size) }
    }

    /// Figure as exact text.
    pub(crate) fn exact(self, size: u64) -> String {
        let number = units::grouped(size);
        if self.is_count() { number } else { format!("{number} bytes") }
    }
}

/// Node with a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Name below its parent, escaped.
    pub(crate) name: String,
    /// Size; children are at most as large together.
    pub(crate) size: u64,
    /// True for nodes without a place of their own: folded ones, and those whose folder is not known.
    pub(crate) is_vague: bool,
    /// Children, the greatest first.
    pub(crate) children: Vec<Block>,
}

impl Block {
    /// Tree down to functions, or to call-sites where it has none, `depth` levels below its root at most. Nodes of size 0 are left out.
    pub(crate) fn of(root: &TreeNode, measure: Measure, depth: usize) -> Block {
        let is_place = |child: &TreeNode| {
            matches!(child.kind, NodeKind::Folder | NodeKind::File | NodeKind::Area | NodeKind::Unknown)
        };
        Block::below(root, measure, depth, root.children.iter().any(is_place))
    }

    /// `has_places`: the tree has folders or areas, so a module is what belongs to none.
    fn below(node: &TreeNode, measure: Measure, depth: usize, has_places: bool) -> Block {
        let levels = depth.min(MAX_LEVELS);
        // A call-site says nothing in a picture that its function, or what holds the place of one, does not say.
        let has_sites =
            !matches!(node.kind, NodeKind::Function | NodeKind::Unknown | NodeKind::File | NodeKind::Folder);
        let is_shown =
            |child: &&TreeNode| levels > 0 && (has_sites || child.kind != NodeKind::Site) && measure.of(child) > 0;
        let mut children: Vec<Block> = node
            .children
            .iter()
            .filter(is_shown)
            .map(|child| Block::below(child, measure, levels - 1, has_places))
            .collect();
        children.sort_by_key(|child| Reverse(child.size));
        // Sums beyond 64 bits are saturated; then a parent may be less than its children.
        let sum = children.iter().fold(0u64, |sum, child| sum.saturating_add(child.size));
        let size = measure.of(node).max(sum);
        if measure == Measure::Current && node.kind == NodeKind::File && !children.is_empty() && size > sum {
            let name = "(static)".to_owned();
            children.push(Block { name, size: size - sum, is_vague: false, children: Vec::new() });
            children.sort_by_key(|child| Reverse(child.size));
        }
        let name = match node.kind {
            NodeKind::Others => format!("other ({})", node.folded),
            _ => match node.module_beside().filter(|_| !has_places) {
                Some(module) => format!("{} [{}]", escape(&node.name), escape(module)),
                None => escape(&node.name).into_owned(),
            },
        };
        let is_vague =
            matches!(node.kind, NodeKind::Others | NodeKind::Unknown) || (node.kind == NodeKind::Module && has_places);
        Block { name, size, is_vague, children }
    }
}
